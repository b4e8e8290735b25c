"""The command line: parse, call, print.

Heavy modules are imported inside the commands, so that ``keyhole --help`` is quick.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from keyhole.cli.apply import info, predict, reconstruct, sites
from keyhole.cli.changes import drop, extend, refit
from keyhole.cli.curves import curve
from keyhole.cli.output import echo, fail, say
from keyhole.cli.selection import compare, demo, select
from keyhole.cli.sweep import sweep
from keyhole.core.errors import KeyholeError, KeyholeWarning, SettingsError
from keyhole.core.text import visible

__all__ = ["app", "main", "run"]


class _Commands(TyperGroup):
    """Command group whose usage errors escape control characters in quoted input."""

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _quoting():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        with _quoting():
            return super().invoke(ctx)


@contextmanager
def _quoting() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):  # a usage error; the class is typer's own or click's, by typer's version
            error.message = visible(error.message)  # type: ignore[attr-defined]
        raise


app = typer.Typer(
    cls=_Commands,
    help="Select the K sites of a field to observe, and reconstruct the whole field from their readings.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        echo(f"keyhole {version('keyhole')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that belong to no command."""


for command in (demo, select, reconstruct, predict, compare, curve, extend, drop, refit, sites, info, sweep):
    app.command()(command)


def main() -> None:
    """Run ``keyhole``, the entry point of the console script."""
    run(app)


def run(commands: typer.Typer) -> None:
    """Run a command line and turn errors into exit codes and one-line messages.

    Parameters
    ----------
    commands
        Commands to parse ``sys.argv`` with.

    Raises
    ------
    SystemExit
        With code 0 on success, 1 for errors of the data, 2 for errors of usage, 130 or 143 when interrupted.
    """
    try:
        with _one_line_warnings():
            commands()
    except SettingsError as error:
        fail(str(error), 2)
    except KeyholeError as error:
        fail(str(error), 1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        fail(str(error), 1)
    except MemoryError as error:
        fail(f"not enough memory ({error})", 1)


@contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Show Keyhole's own warnings in one line, with control characters escaped."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", KeyholeWarning)

        def show(message: Any, category: type[Warning], *where: Any, **others: Any) -> None:
            if issubclass(category, KeyholeWarning):
                say(f"keyhole: warning: {message}")
            else:
                echo(warnings.formatwarning(message, category, *where[:2]).rstrip(), err=True)

        warnings.showwarning = show
        yield
