"""The command line: parse, call, print. Heavy modules are imported inside commands, so that help is quick."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import typer

from keyhole.bench.commands import app as bench
from keyhole.cli.change import drop, extend
from keyhole.cli.choose import compare, demo, select
from keyhole.cli.count import curve
from keyhole.cli.output import fail, say
from keyhole.cli.sweep import sweep
from keyhole.cli.use import info, predict, reconstruct, sites
from keyhole.errors import KeyholeError, KeyholeWarning, SettingsError

__all__ = ["app", "main"]

app = typer.Typer(
    help="Choose the few points to observe so that the whole can be rebuilt from them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (demo, select, reconstruct, predict, compare, curve, extend, drop, sites, info, sweep):
    app.command()(command)
app.add_typer(bench, name="bench")


def main() -> None:
    """Run the command line: exit 0 when done, 1 for data errors, 2 for usage, 130 and 143 when stopped."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", KeyholeWarning)
            warnings.showwarning = partial(_show, warnings.showwarning)
            app()
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


def _show(otherwise: Callable[..., Any], message: Warning | str, category: type[Warning], *place: Any) -> None:
    """Show Keyhole's own warnings as notes, without the place in the code that they come from."""
    if issubclass(category, KeyholeWarning):
        say(f"note: {message}")
    else:
        otherwise(message, category, *place)
