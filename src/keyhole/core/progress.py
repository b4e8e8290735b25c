"""Progress bars on the terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from keyhole.core.processes import is_first
from keyhole.core.reduction import listening
from keyhole.core.run import Event
from keyhole.core.text import visible

__all__ = ["progress", "reporting"]

# The figures of an event that are shown, with their labels.
_SHOWN = {"loss": "loss", "expected_l0": "L0", "concentration": "concentrated", "validation": "validation"}


@contextlib.contextmanager
def progress(callback: Callable[[Event], None] | None = None) -> Iterator[Callable[[Event], None]]:
    """Show a progress bar for each stage on standard error while the block runs; nothing if that is not a terminal.

    Parameters
    ----------
    callback : callable, optional
        Receives the events in place of the bars.

    Yields
    ------
    callable
        To be called with each `Event`; pass it as the run's ``callback``.
    """
    if callback is not None:
        yield callback
        return
    console = Console(stderr=True)
    bars = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
        console=console,
        transient=True,
        disable=not (console.is_terminal and is_first()),
    )
    stages: dict[str, TaskID] = {}

    def tell(event: Event) -> None:
        """Show one event."""
        if event.stage not in stages or event.step < bars.tasks[stages[event.stage]].completed:
            stages[event.stage] = bars.add_task(visible(event.stage), total=event.total, figures="")
        shown = "  ".join(f"{name} {event.figures[key]:.3g}" for key, name in _SHOWN.items() if key in event.figures)
        bars.update(stages[event.stage], completed=event.step, total=event.total, figures=shown)

    with bars:
        yield tell


@contextlib.contextmanager
def reporting(callback: Callable[[Event], None] | None = None) -> Iterator[Callable[[Event], None]]:
    """Show the progress of what is called with the yielded function, and of all passes through the data.

    Parameters
    ----------
    callback : callable, optional
        As for `progress`.

    Yields
    ------
    callable
        As by `progress`.
    """
    with progress(callback) as report, listening(lambda *step: report(Event(*step))):
        yield report
