"""What reconstructors and predictors have in common."""

from __future__ import annotations

from abc import ABC
from collections.abc import Sequence
from typing import ClassVar

from keyhole.core.settings import Configurable

__all__ = ["Model"]


class Model(Configurable, ABC):
    """Base class of models that are made from settings, fitted to sites, and stored in a plan.

    Attributes
    ----------
    closed_form
        Whether ``fit`` is a closed form that needs no validation samples. Such a model is refitted on training and
        validation samples together once all choices are made.
    history
        Losses and validation errors recorded during training, one row per validation; empty for closed forms.

    Examples
    --------
    >>> from keyhole.models.reconstructors import OptimalInterpolation
    >>> OptimalInterpolation(length=0.5).clone().options.length
    0.5
    """

    closed_form: ClassVar[bool] = False
    history: Sequence[dict[str, float]] = ()
