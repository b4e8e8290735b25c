"""Output of the commands: results to standard output, messages to standard error; checks of output paths."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from keyhole.core.processes import is_first
from keyhole.core.text import visible

if TYPE_CHECKING:
    from keyhole.plan.plan import Plan
    from keyhole.workflow.comparison import Comparison
    from keyhole.workflow.curves import Curve

__all__ = [
    "check_outputs",
    "echo",
    "fail",
    "print_data",
    "print_json",
    "say",
    "show_comparison",
    "show_curve",
    "show_plan",
    "texts_of",
]


_SUFFIXES = dict.fromkeys(("--figure", "--plot"), (".png", ".svg", ".pdf"))


def show_comparison(comparison: Comparison, as_json: bool) -> None:
    """Print a comparison as a table with one row for each method, or as JSON."""
    from keyhole.report.tables import comparison_table

    if as_json:
        print_json(comparison.rows())
    else:
        _print(comparison_table(comparison))


def show_curve(curve: Curve, as_json: bool) -> None:
    """Print a curve as a table of errors by K and method, or as JSON."""
    from keyhole.report.tables import curve_summary, curve_table

    if as_json:
        print_json(curve_summary(curve))
    else:
        _print(curve_table(curve))


def show_plan(plan: Plan, as_json: bool) -> None:
    """Print the sites, errors and metadata of a plan as a table or as JSON."""
    from keyhole.report.tables import plan_summary, plan_table

    if as_json:
        print_json(plan_summary(plan))
    else:
        _print(plan_table(plan))


def check_outputs(inputs: Mapping[str, Any], outputs: Mapping[str, Path | None], *, writable: bool = True) -> None:
    """Fail before any work if an output cannot be written, or would overwrite an input or another output.

    Parameters
    ----------
    inputs
        By name of the argument or option: a path, several, or text that may be a path.
    outputs
        Paths to be written, by name of the option; None where the option was not given. Figures and tables must have a
        suffix of theirs.
    writable
        Whether to check that the files can be made; if not, that is left to writing them.

    Raises
    ------
    SettingsError
        An output is also an input or another output, also through symbolic links.
    StorageError
        A file cannot be made there.
    """
    from keyhole.core.paths import check_apart
    from keyhole.data.datasets import DATASETS
    from keyhole.data.readers import IN_FOLDERS, named_paths
    from keyhole.plan.files import check_writable

    for option, path in outputs.items():
        suffixes = _SUFFIXES.get(option)
        if path is not None and suffixes is not None and path.suffix.lower() not in suffixes:
            raise typer.BadParameter(f"{path}: expected {' or '.join(suffixes)}", param_hint=option)
    given = {name: [value] if isinstance(value, str | Path) else value or [] for name, value in inputs.items()}
    paths = {name: named_paths([one for one in ones if one not in DATASETS]) for name, ones in given.items()}
    check_apart(paths, outputs, read_from_folders=IN_FOLDERS)
    for path in outputs.values() if writable else ():
        if path is not None:
            check_writable(path)


def texts_of(*bundles: Any) -> dict[str, str | list[str]]:
    """Return the text options of some bundles by name; each may be a path, for `check_outputs`."""
    named = {
        f"--{one.name.replace('_', '-')}": getattr(bundle, one.name) for bundle in bundles for one in fields(bundle)
    }
    return {name: value for name, value in named.items() if isinstance(value, str | list)}


def print_json(value: Any) -> None:
    """Print strict JSON (null for NaN and infinities) without control characters."""
    text = json.dumps(_strict(value), indent=2, default=str, allow_nan=False)
    typer.echo(text.replace("\x7f", "\\u007f"))  # the one control character that json leaves as it is


def print_data(text: str) -> None:
    """Print data verbatim to a file or pipe, and with control characters escaped to a terminal."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)  # typer would leave escapes out of a pipe


def echo(text: object, *, err: bool = False) -> None:
    """Print text with control characters escaped, since parts of it may come from a file."""
    typer.echo(visible(str(text)), err=err)


def say(message: str) -> None:
    """Print a message to standard error, from the first of several processes only."""
    if is_first():
        echo(message, err=True)


def fail(message: str, code: int) -> None:
    """Print an error message to standard error and exit with ``code``."""
    echo(f"keyhole: {message}", err=True)
    sys.exit(code)


def _print(renderable: Any) -> None:
    """Print a table of rich with control characters escaped."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    console = Console()
    parts = [part if part.control else Segment(visible(part.text), part.style) for part in console.render(renderable)]
    console.print(Segments(parts), end="")


def _strict(value: Any) -> Any:
    """Replace NaN and infinities, which JSON does not have, with None."""
    if isinstance(value, Mapping):
        return {key: _strict(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
