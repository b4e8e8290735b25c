"""Typed settings: the base class, and conversion from plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from keyhole.core.errors import SettingsError

__all__ = ["Settings", "parse"]


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


def parse(kind: type[Kind], given: Mapping[str, Any]) -> Kind:
    """Make settings from plain values.

    Parameters
    ----------
    kind : type
        A subclass of `Settings`.
    given : mapping
        Values by name.

    Returns
    -------
    Settings

    Raises
    ------
    SettingsError
        If a name is unknown or a value invalid; the message names it.
    """
    unknown = [name for name in given if name not in kind.model_fields and kind.model_config["extra"] == "forbid"]
    if unknown:
        there_are = ", ".join(kind.model_fields)
        raise SettingsError(f"{kind.__name__} has no setting {unknown[0]!r}; there are {there_are}")
    try:
        return kind(**given)
    except ValidationError as error:
        details = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise SettingsError(f"{kind.__name__}: {details}") from error
