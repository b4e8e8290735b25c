"""Option bundles: dataclasses whose fields become options of every command that takes one as a parameter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints

__all__ = ["expand_bundles"]


def expand_bundles(command: Callable[..., None]) -> Callable[..., None]:
    """Expand each dataclass parameter of a command into one command-line option for each of its fields.

    Typer builds options from a function's signature. This decorator rewrites the signature and, when the command is
    called, collects the option values into the dataclasses again, so that several commands can share a bundle.

    Parameters
    ----------
    command
        Function whose dataclass parameters are bundles; the fields are annotated with ``typer.Option``.

    Returns
    -------
    callable
        Function with the expanded, keyword-only signature.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Size:
    ...     rows: int = 1
    ...     columns: int = 2
    >>> @expand_bundles
    ... def show(size: Size) -> None:
    ...     print(size)
    >>> show(rows=3, columns=4)
    Size(rows=3, columns=4)
    """
    hints = get_type_hints(command, include_extras=True)
    bundles: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        parameters += _options(bundles[name]) if name in bundles else [parameter.replace(annotation=hints[name])]

    @functools.wraps(command)
    def expanded(**given: Any) -> None:
        made = {name: kind(**{one.name: given.pop(one.name) for one in fields(kind)}) for name, kind in bundles.items()}
        command(**given, **made)

    options = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    expanded.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    expanded.__annotations__ = {one.name: one.annotation for one in options}
    return expanded


def _options(kind: Any) -> list[inspect.Parameter]:
    """Return one parameter for each field, with its annotation and default."""
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
