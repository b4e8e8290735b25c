"""Progress bars on the terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from keyhole.core.callbacks import CallbackLike, CallbackList
from keyhole.core.processes import is_first
from keyhole.core.reduction import listening
from keyhole.core.run import Event
from keyhole.core.text import visible

__all__ = ["progress", "reporting"]

# The figures of an event that are shown, with their labels.
_SHOWN = {"loss": "loss", "expected_l0": "L0", "concentration": "concentrated", "validation": "validation"}


@contextlib.contextmanager
def progress(callbacks: Sequence[CallbackLike] = (), *, bars: bool = True) -> Iterator[CallbackList]:
    """Show a progress bar for each stage on standard error while the block runs; nothing if that is not a terminal.

    Parameters
    ----------
    callbacks : sequence of Callback or callable
        Called as well, in the first of several processes.
    bars : bool
        Whether there are bars.

    Yields
    ------
    CallbackList
        To be called with the `Event` of each step; pass it as the run's ``callback``.
    """
    given = CallbackList(callbacks).callbacks if is_first() else []
    if not bars:
        yield CallbackList(given)
        return
    console = Console(stderr=True)
    shown = Progress(
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
        if event.stage not in stages or event.step < shown.tasks[stages[event.stage]].completed:
            stages[event.stage] = shown.add_task(visible(event.stage), total=event.total, figures="")
        figures = "  ".join(f"{name} {event.figures[key]:.3g}" for key, name in _SHOWN.items() if key in event.figures)
        shown.update(stages[event.stage], completed=event.step, total=event.total, figures=figures)

    with shown:
        yield CallbackList([tell, *given])


@contextlib.contextmanager
def reporting(callbacks: Sequence[CallbackLike] = ()) -> Iterator[CallbackList]:
    """Show the progress of what is called with the yielded function, and of all passes through the data.

    Parameters
    ----------
    callbacks : sequence of Callback or callable
        As for `progress`.

    Yields
    ------
    CallbackList
        As by `progress`.
    """
    with progress(callbacks) as report:

        def tell(stage: str, done: int, total: int) -> None:
            """Pass on the progress of a pass."""
            report(Event(stage, done, total))

        with listening(tell):
            yield report
