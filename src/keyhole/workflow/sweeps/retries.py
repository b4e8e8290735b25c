"""Calls to a database that may be away for a while: tried again, further and further apart, up to a bound."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from keyhole.core.errors import StorageError

__all__ = ["Patience", "is_away", "signs_of_life", "without_password"]

Result = TypeVar("Result")

# Seconds between attempts, about four minutes in all: a database that restarts is back by then.
_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, *[30.0] * 7)


class Patience:
    """Tries a call again for as long as the database behind it does not answer.

    Parameters
    ----------
    url
        Of the database, for what is said of it.
    tell
        Told once for each time that the database is away, and when it is back.
    wait
        Lets so many seconds pass.
    """

    def __init__(
        self, url: str, tell: Callable[[str], None] = lambda _: None, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self.url, self.tell, self.wait = without_password(url), tell, wait
        self.failures = 0  # calls that the database did not answer so far

    def __call__(self, call: Callable[[], Result]) -> Result:
        """Give what the call gives; a StorageError where the database stays away."""
        for attempt, pause in enumerate(_PAUSES):
            try:
                found = call()
            except Exception as error:
                if not is_away(error):
                    raise
                self.failures += 1
                if attempt == 0:
                    self.tell(f"storage {self.url}: {_reason(error)}; trying again")
                self.wait(pause)
            else:
                if attempt:
                    self.tell(f"storage {self.url} answers again")
                return found
        return self._last(call)

    def once(self, call: Callable[[], object]) -> None:
        """Call, and leave it at that where the database does not answer."""
        try:
            call()
        except Exception as error:
            if not is_away(error):
                raise
            self.failures += 1

    def _last(self, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except Exception as error:
            if not is_away(error):
                raise
            raise StorageError(
                f"storage {self.url} has not answered {len(_PAUSES) + 1} times in {sum(_PAUSES) / 60:.0f} minutes "
                f"({_reason(error)}); trials that ended are kept: run the command again to go on"
            ) from error


def is_away(error: BaseException) -> bool:
    """Whether an error, or what it was raised from, is of a database that is locked, restarting or out of reach."""
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
    """Give a database's URL as it may be shown."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url


def _reason(error: BaseException) -> str:
    """Say in one line what a database's driver said."""
    last = error
    while last.__cause__ is not None:
        last = last.__cause__
    return (str(last).splitlines() or [type(last).__name__])[0]


@contextlib.contextmanager
def signs_of_life(sign: Callable[[], None], every: float) -> Iterator[None]:
    """Sign at once and then every so many seconds, in a thread."""
    over = threading.Event()

    def keep_signing() -> None:
        sign()
        while not over.wait(every):
            sign()

    thread = threading.Thread(target=keep_signing, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
