"""Options that come together: a dataclass whose fields become options of every command that asks for it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints

__all__ = ["spread"]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command with an option for each field of each parameter that is a dataclass.

    The command itself is called with the dataclasses made from what the user gave.
    """
    hints = get_type_hints(command, include_extras=True)
    bundles: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        parameters += _options(bundles[name]) if name in bundles else [parameter.replace(annotation=hints[name])]

    @functools.wraps(command)
    def spread_out(**given: Any) -> None:
        made = {name: kind(**{one.name: given.pop(one.name) for one in fields(kind)}) for name, kind in bundles.items()}
        command(**given, **made)

    places = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    spread_out.__signature__ = inspect.Signature(places)  # type: ignore[attr-defined]
    spread_out.__annotations__ = {one.name: one.annotation for one in places}
    return spread_out


def _options(kind: Any) -> list[inspect.Parameter]:
    """Give a parameter for each field, with its annotation and default."""
    hints = get_type_hints(kind, include_extras=True)
    return [
        inspect.Parameter(
            one.name,
            inspect.Parameter.KEYWORD_ONLY,
            annotation=hints[one.name],
            default=inspect.Parameter.empty if one.default is MISSING else one.default,
        )
        for one in fields(kind)
    ]
