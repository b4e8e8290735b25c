"""Command-line options from signatures and docstrings: bundles shared by commands, and help from ``Parameters``."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo, ParameterInfo

__all__ = ["command"]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a function a command: its parameters, and the fields of its dataclass parameters, become options.

    A dataclass parameter is a bundle of options that several commands share; its class attribute ``panel`` is the
    heading in the help. The help of each option stands in the docstring, in the section ``Parameters``, which is left
    out of the help of the command itself. A ``bool`` is a flag. ``Annotated[..., typer.Option(...)]`` gives an option
    other names or bounds; a parameter with `typer.Argument` becomes an argument.

    Parameters
    ----------
    function
        The command.

    Returns
    -------
    callable
        Function with the expanded, keyword-only signature that typer builds the command from.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Size:
    ...     rows: int = 1
    ...     columns: int = 2
    >>> @command
    ... def show(size: Size) -> None:
    ...     print(size)
    >>> show(rows=3, columns=4)
    Size(rows=3, columns=4)
    """
    hints = get_type_hints(function, include_extras=True)
    bundles: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    help_texts, options = _help_texts(function), list[inspect.Parameter]()
    for name, parameter in inspect.signature(function).parameters.items():
        if name in bundles:
            options += _options_of(bundles[name])
        else:
            options.append(_option(name, hints[name], parameter.default, help_texts))

    @functools.wraps(function)
    def expanded(**given: Any) -> None:
        made = {name: kind(**{one.name: given.pop(one.name) for one in fields(kind)}) for name, kind in bundles.items()}
        function(**given, **made)

    expanded.__doc__ = inspect.cleandoc(function.__doc__ or "").partition("\nParameters\n")[0]
    expanded.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    expanded.__annotations__ = {one.name: one.annotation for one in options}
    return expanded


def _options_of(bundle: Any) -> Iterator[inspect.Parameter]:
    """Yield one option for each field of a bundle."""
    hints, help_texts = get_type_hints(bundle, include_extras=True), _help_texts(bundle)
    for one in fields(bundle):
        default = inspect.Parameter.empty if one.default is MISSING else one.default
        yield _option(one.name, hints[one.name], default, help_texts, getattr(bundle, "panel", None))


def _option(
    name: str, hint: Any, default: Any, help_texts: dict[str, str], panel: str | None = None
) -> inspect.Parameter:
    """Return a keyword-only parameter whose annotation tells typer the option's names, help and panel."""
    kind, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    given = next((one for one in extras if isinstance(one, ParameterInfo)), None)
    if given is None:
        given = typer.Option(f"--{name.replace('_', '-')}") if kind is bool else typer.Option()
    info = copy.copy(given)
    info.help = info.help or help_texts.get(name)
    if isinstance(info, OptionInfo):
        info.rich_help_panel = info.rich_help_panel or panel
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, info], default=default)


def _help_texts(documented: Any) -> dict[str, str]:
    """Return the descriptions in the section ``Parameters`` of a docstring, by name."""
    section = inspect.cleandoc(documented.__doc__ or "").partition("\nParameters\n----------\n")[2]
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.partition("\n\n")[0].splitlines():
        if not line.startswith(" "):
            names = line.split(", ")
        for name in names if line.startswith(" ") else ():
            found[name] = f"{found.get(name, '')} {line.strip()}".strip()
    return found
