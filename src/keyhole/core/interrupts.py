"""Ctrl-C and SIGTERM that wait for the end of a step."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

__all__ = ["Interrupted", "Pending", "deferred", "stoppable"]


class Interrupted(KeyboardInterrupt):
    """A run was stopped by a signal; its message says what was kept and how to go on."""

    def __init__(self, message: str, signum: int) -> None:
        super().__init__(message)
        self.signum = signum


class Pending:
    """Holds the signal that arrived, if one did."""

    signum: int | None = None


@contextlib.contextmanager
def deferred() -> Iterator[Pending]:
    """Note SIGINT and SIGTERM instead of acting on them; a second one acts at once.

    Outside the main thread, where signals cannot be caught, this does nothing.
    """
    pending = Pending()
    if threading.current_thread() is not threading.main_thread():
        yield pending
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def note(number: int, frame: FrameType | None) -> None:
        pending.signum = number
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, note)
    try:
        yield pending
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if pending.signum is not None:  # nobody acted on it: it came after the last look
        signal.raise_signal(pending.signum)


@contextlib.contextmanager
def stoppable(say: Callable[[str], None]) -> Iterator[None]:
    """Let a command that is stopped say what it kept, and exit with 130 or 143."""
    try:
        yield
    except Interrupted as stop:
        say(f"keyhole: {stop}")
        raise SystemExit(128 + stop.signum) from stop
