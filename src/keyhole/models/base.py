"""What reconstructors and predictors have in common: a name, settings, and a history."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from keyhole.core.settings import Settings, parse

__all__ = ["Model"]


class Model(ABC):
    """Base class of models that are made from settings by name, and fitted later.

    Parameters
    ----------
    settings
        Fields of ``settings_class``, by name; an unknown or invalid one is refused.

    Attributes
    ----------
    name
        The name in the registry.
    closed_form
        Whether ``fit`` is a closed form that needs no validation samples. Such a model is refitted on training and
        validation samples together once all choices are made.
    settings_class
        Names, types and defaults of the settings. The defaults must suffice: a model can be made without arguments.
    settings
        The settings it was made with, an instance of ``settings_class``.
    history
        Losses and validation errors recorded during training, one row per validation; empty for closed forms.

    Examples
    --------
    >>> from keyhole.models.reconstructors import OptimalInterpolation
    >>> OptimalInterpolation(length=0.5).clone().settings.length
    0.5
    """

    name: ClassVar[str]
    closed_form: ClassVar[bool] = False
    settings_class: ClassVar[type[Settings]] = Settings
    settings: Settings = Settings()
    history: Sequence[dict[str, float]] = ()

    def __init__(self, **settings: Any) -> None:
        self.settings = parse(self.settings_class, settings)

    def clone(self) -> Self:
        """Return an unfitted copy with the same settings."""
        return type(self)(**self.settings.model_dump())
