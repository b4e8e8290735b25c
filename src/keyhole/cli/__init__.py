"""The command line: parse, call, print. Heavy modules are imported inside commands, so that help is quick."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from keyhole.cli.change import drop, extend
from keyhole.cli.choose import compare, demo, select
from keyhole.cli.count import curve
from keyhole.cli.output import echo, fail, say
from keyhole.cli.sweep import sweep
from keyhole.cli.use import info, predict, reconstruct, sites
from keyhole.core.errors import KeyholeError, KeyholeWarning, SettingsError
from keyhole.core.terminal import visible

__all__ = ["app", "main", "run"]


class _Commands(TyperGroup):
    """Commands whose usage errors quote what was given without letting it steer the terminal."""

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
    help="Choose the few points to observe so that the whole can be rebuilt from them.",
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
    """Take what is for no command in particular."""


for command in (demo, select, reconstruct, predict, compare, curve, extend, drop, sites, info, sweep):
    app.command()(command)


def main() -> None:
    """Run `keyhole`."""
    run(app)


def run(commands: typer.Typer) -> None:
    """Run a command line: exit 0 when done, 1 for data errors, 2 for usage, 130 and 143 when stopped."""
    try:
        with _warnings_said():
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
def _warnings_said() -> Iterator[None]:
    """Show Keyhole's own warnings in a line, as errors are; none that quotes a name can steer the terminal."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", KeyholeWarning)

        def show(message: Any, category: type[Warning], *where: Any, **others: Any) -> None:
            if issubclass(category, KeyholeWarning):
                say(f"keyhole: warning: {message}")
            else:
                echo(warnings.formatwarning(message, category, *where[:2]).rstrip(), err=True)

        warnings.showwarning = show
        yield
