"""Typed settings: the base class, and conversion from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from keyhole.core.errors import SettingsError

__all__ = ["Configurable", "Settings", "parse"]


class Settings(BaseModel):
    """Base class of all settings: immutable, and unknown names are refused.

    Examples
    --------
    >>> class Smoothing(Settings):
    ...     width: float = 1.0
    >>> Smoothing(width=2).width
    2.0
    """

    model_config = ConfigDict(extra="forbid", frozen=True)


Kind = TypeVar("Kind", bound=Settings)


def parse(kind: type[Kind], given: Mapping[str, Any], of: str = "") -> Kind:
    """Make settings from plain values.

    Parameters
    ----------
    kind : type
        Class of the settings.
    given : mapping
        Values by name. The settings inside a group of settings also have a name each: ``{"train.steps": 500}`` is
        ``{"train": {"steps": 500}}``.
    of : str
        What the settings are of, for messages; by default the name of the class.

    Raises
    ------
    SettingsError
        A name is unknown (the message lists those that there are), or a value is invalid.
    """
    given = _grouped(kind, given)
    unknown = [name for name in given if name not in kind.model_fields and kind.model_config["extra"] == "forbid"]
    if unknown:
        there_are = f"there are {', '.join(kind.model_fields)}" if kind.model_fields else "it has none"
        raise SettingsError(f"{of or kind.__name__} has no setting {unknown[0]!r}; {there_are}")
    try:
        return kind(**given)
    except ValidationError as error:
        details = "; ".join(
            f"{'.'.join(map(str, e['loc']))}: {e['msg'].removeprefix('Value error, ')}" for e in error.errors()
        )
        raise SettingsError(f"{of or kind.__name__}: {details}") from error


def _grouped(kind: type[Settings], given: Mapping[str, Any]) -> dict[str, Any]:
    """Gather settings with a dotted name, such as ``train.steps``, in one mapping for each group."""
    gathered = {name: value for name, value in given.items() if "." not in name}
    for name, value in given.items():
        group, dot, inner = name.partition(".")
        if dot and kind.model_config["extra"] == "forbid" and group not in kind.model_fields:
            gathered[name] = value  # no such group: refused by its full name
        elif dot:
            others = gathered.get(group, {})
            if isinstance(others, BaseModel):
                others = others.model_dump(exclude_unset=True)
            if not isinstance(others, Mapping):
                raise SettingsError(f"settings {group} and {name} contradict each other; give one of them")
            gathered[group] = {**others, inner: value}
    return gathered


class Configurable:
    """Base class of selectors, reconstructors and predictors: they are made from settings by name.

    Parameters
    ----------
    settings
        Fields of ``settings_class``, by name; an unknown or invalid one is refused.

    Attributes
    ----------
    kind
        What the class is, for messages: ``"method"``.
    name
        The name in the registry.
    settings_class
        Names, types and defaults of the settings. The defaults must suffice: an object can be made without arguments.
    options
        The settings as an instance of ``settings_class``.

    Examples
    --------
    >>> class Width(Settings):
    ...     width: int = 8
    >>> class Network(Configurable):
    ...     kind, name, settings_class = "reconstructor", "network", Width
    >>> Network(width=16).clone().settings()
    {'width': 16}
    """

    kind: ClassVar[str]
    name: ClassVar[str]
    settings_class: ClassVar[type[Settings]] = Settings
    options: Settings = Settings()

    def __init__(self, **settings: Any) -> None:
        self.options = parse(self.settings_class, settings, f"{self.kind} {self.name!r}")

    def __repr__(self) -> str:
        given = self.options.model_dump(exclude_defaults=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in given.items())})"

    def settings(self) -> dict[str, Any]:
        """Return all settings, from which the same object can be made."""
        return self.options.model_dump()

    def clone(self) -> Self:
        """Return an unfitted object with the same settings."""
        return type(self)(**self.settings())
