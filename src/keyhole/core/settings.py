"""Typed settings: what every stage's settings share, and how plain values become them."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from keyhole.core.errors import SettingsError

__all__ = ["Settings", "parse"]


class Settings(BaseModel):
    """Base of all settings: unknown names are refused, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Kind = TypeVar("Kind", bound=Settings)


def parse(kind: type[Kind], given: dict[str, Any]) -> Kind:
    """Make settings from plain values; a name or value that does not fit is a SettingsError that names it."""
    try:
        return kind(**given)
    except ValidationError as error:
        details = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise SettingsError(f"{kind.__name__}: {details}") from error
