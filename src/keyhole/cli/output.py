"""What commands print: results to standard output, all else to standard error."""

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
from keyhole.core.terminal import visible

if TYPE_CHECKING:
    from keyhole.plan.plan import Plan
    from keyhole.workflow.comparison import Comparison
    from keyhole.workflow.curves import Curve

__all__ = [
    "check_apart",
    "check_suffix",
    "check_writable",
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


def show_comparison(comparison: Comparison, as_json: bool) -> None:
    """Print one row for each method."""
    from keyhole.report.tables import comparison_table

    if as_json:
        print_json(comparison.rows())
    else:
        _print(comparison_table(comparison))


def show_curve(curve: Curve, as_json: bool) -> None:
    """Print the error of each method at each K."""
    from keyhole.report.tables import curve_summary, curve_table

    if as_json:
        print_json(curve_summary(curve))
    else:
        _print(curve_table(curve))


def show_plan(plan: Plan, as_json: bool) -> None:
    """Print the sites of a plan and how it was made."""
    from keyhole.report.tables import plan_summary, plan_table

    if as_json:
        print_json(plan_summary(plan))
    else:
        _print(plan_table(plan))


def check_apart(inputs: Mapping[str, Any], outputs: Mapping[str, Path | None]) -> None:
    """Fail before the work where a result would replace what is read, or another result, also through links.

    Inputs are what an argument or an option gives: a path, several, or a text that may be one.
    """
    from keyhole.core.paths import check_apart
    from keyhole.data.datasets import DATASETS
    from keyhole.data.readers import IN_FOLDERS, named_paths

    given = {name: [value] if isinstance(value, str | Path) else value or [] for name, value in inputs.items()}
    paths = {name: named_paths([one for one in ones if one not in DATASETS]) for name, ones in given.items()}
    check_apart(paths, outputs, read_from_folders=IN_FOLDERS)


def texts_of(*bundles: Any) -> dict[str, str | list[str]]:
    """Give the options of some bundles that hold text, by name: each may be the path of a file."""
    named = {
        f"--{one.name.replace('_', '-')}": getattr(bundle, one.name) for bundle in bundles for one in fields(bundle)
    }
    return {name: value for name, value in named.items() if isinstance(value, str | list)}


def check_writable(*paths: Path | None) -> None:
    """Fail before the work, not after it, where a result cannot be written."""
    from keyhole.plan.files import check_writable

    for path in paths:
        if path is not None:
            check_writable(path)


def check_suffix(path: Path | None, option: str, *suffixes: str) -> None:
    """Fail before the work where a result is to be written as something that it cannot be."""
    if path is not None and path.suffix.lower() not in suffixes:
        raise typer.BadParameter(f"{path}: {' or '.join(suffixes)} is needed", param_hint=option)


def print_json(value: Any) -> None:
    """Print JSON that every reader takes, and that no terminal acts on."""
    text = json.dumps(_strict(value), indent=2, default=str, allow_nan=False)
    typer.echo(text.replace("\x7f", "\\u007f"))  # the one control character that json leaves as it is


def print_data(text: str) -> None:
    """Print a table for other programs: exact in a file or a pipe, harmless on a terminal."""
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)  # typer would leave escapes out of a pipe


def echo(text: object, *, err: bool = False) -> None:
    """Print a text for people; what may stem from a file cannot steer the terminal."""
    typer.echo(visible(str(text)), err=err)


def say(message: str) -> None:
    """Tell a person something that is not the result; of several processes the first does."""
    if is_first():
        echo(message, err=True)


def fail(message: str, code: int) -> None:
    """Say what is wrong and exit."""
    echo(f"keyhole: {message}", err=True)
    sys.exit(code)


def _print(renderable: Any) -> None:
    from rich.console import Console
    from rich.segment import Segment, Segments

    console = Console()
    parts = [part if part.control else Segment(visible(part.text), part.style) for part in console.render(renderable)]
    console.print(Segments(parts), end="")


def _strict(value: Any) -> Any:
    """Put null for numbers that JSON does not know: NaN and the infinities."""
    if isinstance(value, Mapping):
        return {key: _strict(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
