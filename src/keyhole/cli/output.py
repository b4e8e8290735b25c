"""What commands print: results to standard output, all else to standard error."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from keyhole.errors import ReadingsWarning
from keyhole.processes import is_first

if TYPE_CHECKING:
    from keyhole.comparison import Comparison
    from keyhole.curves import Curve
    from keyhole.plan import Plan

__all__ = [
    "check_suffix",
    "check_writable",
    "fail",
    "print_json",
    "say",
    "show_comparison",
    "show_curve",
    "show_plan",
    "warnings_said",
]


def show_comparison(comparison: Comparison, as_json: bool) -> None:
    """Print one row for each method."""
    from keyhole.tables import comparison_table

    if as_json:
        print_json(comparison.rows())
    else:
        _print(comparison_table(comparison))


def show_curve(curve: Curve, as_json: bool) -> None:
    """Print the error of each method at each K."""
    from keyhole.tables import curve_summary, curve_table

    if as_json:
        print_json(curve_summary(curve))
    else:
        _print(curve_table(curve))


def show_plan(plan: Plan, as_json: bool) -> None:
    """Print the sites of a plan and how it was made."""
    from keyhole.tables import plan_summary, plan_table

    if as_json:
        print_json(plan_summary(plan))
    else:
        _print(plan_table(plan))


def check_writable(*paths: Path | None) -> None:
    """Fail before the work, not after it, where a result cannot be written."""
    from keyhole.files import check_writable

    for path in paths:
        if path is not None:
            check_writable(path)


def check_suffix(path: Path | None, option: str, *suffixes: str) -> None:
    """Fail before the work where a result is to be written as something that it cannot be."""
    if path is not None and path.suffix.lower() not in suffixes:
        raise typer.BadParameter(f"{path}: {' or '.join(suffixes)} is needed", param_hint=option)


def print_json(value: Any) -> None:
    """Print JSON that every reader takes."""
    typer.echo(json.dumps(_strict(value), indent=2, default=str, allow_nan=False))


def say(message: str) -> None:
    """Tell a person something that is not the result; of several processes the first does."""
    if is_first():
        typer.echo(message, err=True)


@contextmanager
def warnings_said() -> Iterator[None]:
    """Say what is warned of readings as a sentence on standard error, without the line of code that did."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ReadingsWarning)
        yield
    for one in caught:
        if issubclass(one.category, ReadingsWarning):
            say(f"keyhole: warning: {one.message}")
        else:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)


def fail(message: str, code: int) -> None:
    """Say what is wrong and exit."""
    typer.echo(f"keyhole: {message}", err=True)
    sys.exit(code)


def _print(renderable: Any) -> None:
    from rich.console import Console

    Console().print(renderable)


def _strict(value: Any) -> Any:
    """Put null for numbers that JSON does not know: NaN and the infinities."""
    if isinstance(value, Mapping):
        return {key: _strict(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
