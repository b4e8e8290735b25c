"""Interruption by Ctrl-C and SIGTERM at the end of a step."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["Interrupted", "Pending", "deferred", "stoppable"]


class Interrupted(KeyboardInterrupt):
    """A run was stopped by a signal.

    Parameters
    ----------
    message : str
        What was saved, and how to resume.
    signum : int
        Number of the signal.
    """

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.signum = signum


class Pending:
    """The signal that arrived while a step was running.

    Attributes
    ----------
    signum : int or None
        Its number; None: no signal arrived.
    """

    signum: int | None = None


@contextlib.contextmanager
def deferred() -> Iterator[Pending]:
    """Record SIGINT and SIGTERM instead of acting on them; a second one acts at once.

    Outside the main thread, where signals cannot be handled, this does nothing.

    Yields
    ------
    Pending
        A signal that nobody acted on is raised at the end of the block.

    Examples
    --------
    >>> with deferred() as pending:
    ...     signal.raise_signal(signal.SIGINT)
    ...     arrived, pending.signum = pending.signum, None
    >>> arrived == signal.SIGINT
    True
    """
    pending = Pending()
    if threading.current_thread() is not threading.main_thread():
        yield pending
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        """Record a signal, and restore the handler that was there before."""
        pending.signum = number
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, note)
    try:
        yield pending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if pending.signum is not None:  # it arrived after the last check
        signal.raise_signal(pending.signum)


@contextlib.contextmanager
def stoppable(say: Callable[[str], None]) -> Iterator[None]:
    """Let an interrupted command print what was saved, and exit with 128 plus the signal's number.

    Parameters
    ----------
    say : callable
        Prints a message.
    """
    try:
        yield
    except Interrupted as stop:
        say(f"keyhole: {stop}")
        raise SystemExit(128 + stop.signum) from stop
