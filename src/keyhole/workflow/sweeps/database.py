"""Calls to a database that may not answer for a while: retried with increasing pauses, up to a limit; heartbeats."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from keyhole.core.errors import StorageError

__all__ = ["Retrying", "heartbeats", "without_password"]

Result = TypeVar("Result")

# Seconds between attempts, about four minutes in all: a database that restarts is back by then.
_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, *[30.0] * 7)


class Retrying:
    """Retry calls as long as the database does not answer.

    Parameters
    ----------
    url
        URL of the database, for messages.
    report
        Called with a message each time the database stops answering, and when it answers again.
    wait
        Sleeps for a number of seconds.
    """

    def __init__(
        self, url: str, report: Callable[[str], None] = lambda _: None, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self.url, self.report, self.wait = without_password(url), report, wait
        self.failures = 0  # calls that were not answered so far

    def __call__(self, call: Callable[[], Result]) -> Result:
        """Return the result of a call; raise a StorageError if the database stays away."""
        for attempt, pause in enumerate(_PAUSES):
            try:
                found = call()
            except Exception as error:
                self._count_if_away(error)
                if attempt == 0:
                    self.report(f"storage {self.url}: {_reason(error)}; trying again")
                self.wait(pause)
            else:
                if attempt:
                    self.report(f"storage {self.url} answers again")
                return found
        try:
            return call()
        except Exception as error:
            self._count_if_away(error)
            raise StorageError(
                f"storage {self.url} has not answered {len(_PAUSES) + 1} times in {sum(_PAUSES) / 60:.0f} minutes "
                f"({_reason(error)}); trials that ended are kept: run the command again to go on"
            ) from error

    def once(self, call: Callable[[], object]) -> None:
        """Call once, and ignore that the database does not answer."""
        try:
            call()
        except Exception as error:
            self._count_if_away(error)

    def _count_if_away(self, error: Exception) -> None:
        """Count an error of a database that does not answer; raise any other."""
        if not _is_away(error):
            raise error
        self.failures += 1


def _is_away(error: BaseException) -> bool:
    """Return whether an error, or its cause, is of a database that is locked, restarting or out of reach."""
    from sqlalchemy.exc import DBAPIError, DisconnectionError, InterfaceError, InternalError, OperationalError
    from sqlalchemy.exc import TimeoutError as PoolTimeoutError

    passing = (OperationalError, InterfaceError, InternalError, DisconnectionError, PoolTimeoutError)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, passing) or (isinstance(cause, DBAPIError) and cause.connection_invalidated):
            return True
        cause = cause.__cause__
    return False


def without_password(url: str) -> str:
    """Return the URL of a database without its password, for messages."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url


def _reason(error: BaseException) -> str:
    """Return the first line of the database driver's message."""
    last = error
    while last.__cause__ is not None:
        last = last.__cause__
    return (str(last).splitlines() or [type(last).__name__])[0]


@contextlib.contextmanager
def heartbeats(beat: Callable[[], None], every: float) -> Iterator[None]:
    """Call ``beat`` at once and then every so many seconds, in a thread, while the block runs."""
    over = threading.Event()

    def keep_beating() -> None:
        beat()
        while not over.wait(every):
            beat()

    thread = threading.Thread(target=keep_beating, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
