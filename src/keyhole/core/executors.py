"""Executors: reductions on the workers of a dask cluster, and which executor is active."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import threading
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from keyhole.core.errors import KeyholeError, KeyholeWarning, OutOfMemoryError, SettingsError
from keyhole.core.extras import check_extra
from keyhole.core.reduction import Executor, Panels, Reduction, Report, Serial, reduce_group

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["Dask", "active_executor", "connected", "is_worker_task"]

S = TypeVar("S")
P = TypeVar("P")

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt
_REACH_SECONDS = 3  # to wait for a worker behind a firewall before its results come by way of the scheduler
_AHEAD = 2  # groups in flight for each worker: one that is computed, and one that waits for it


class Dask:
    """Reduces groups on the workers of a dask cluster.

    Each group is a task. Its state comes back to this process, where states are merged in the order of the groups and
    released; two groups for each worker are in flight. Panels and reduction are pickled and sent once for each pass. A
    group whose worker dies is computed again on another one, as often as dask's setting
    ``distributed.scheduler.allowed-failures`` says (three times by default).

    Parameters
    ----------
    client : distributed.Client
        A connected client.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def map_reduce(self, panels: Panels[P], reduction: Reduction[S, P], *, report: Report | None = None) -> S:
        """Reduce all groups; see `Executor.map_reduce`."""
        result, total = reduction.start(), panels.n_groups
        if not total:
            return result
        pass_, direct = self._sent(panels, reduction), self._reaches_workers()
        ahead: deque[Future[Any]] = deque()
        try:
            for number in range(total):
                for later in range(number + len(ahead), min(number + self._width(), total)):
                    ahead.append(self._submitted(pass_, later))
                result = reduction.merge(result, self._fetched(ahead[0], direct))
                ahead.popleft().release()
                if report is not None:
                    report(number + 1, total)
        except Exception as error:
            if isinstance(error, KeyholeError) or self.client.status == "running":
                raise
            raise KeyholeError("the connection to the dask scheduler was lost; start it and the run again") from error
        finally:  # nothing is left after the last group; after an error or Ctrl-C, what is in flight is cancelled
            if ahead and self.client.status == "running":
                self.client.cancel([*ahead, pass_], force=True)
        return result

    def _sent(self, panels: Panels[P], reduction: Reduction[S, P]) -> Future[Any]:
        """Send panels and reduction to the cluster, as a task that can be computed again if its worker dies."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            return self.client.submit(_Pass, panels, reduction, pure=False)

    def _submitted(self, pass_: Future[Any], number: int) -> Future[Any]:
        """Submit a group; earlier groups go first."""
        return self.client.submit(_reduce_on_worker, pass_, number, pure=False, priority=-number)

    def _fetched(self, future: Future[Any], direct: bool) -> Any:
        """Wait for a state; an error raised in the task is raised here."""
        from distributed import KilledWorker

        try:
            return self.client.gather(future, direct=direct)
        except KilledWorker as error:
            raise OutOfMemoryError(
                "several dask workers died at the same part of the data, most likely for lack of memory: give the "
                "workers more memory or fewer threads, or lower the memory limit"
            ) from error

    def _reaches_workers(self) -> bool:
        """Whether states can come from the workers themselves; by way of the scheduler they take twice the time."""
        if self.client.direct_to_workers is not None:
            return bool(self.client.direct_to_workers)
        address = next(iter(self.client.nthreads()), None)
        try:
            return address is not None and bool(self.client.sync(_connects, address, self.client.connection_args))
        except OSError:
            return False

    def _width(self) -> int:
        """Number of groups in flight, by the workers that there are now."""
        workers = len(self.client.nthreads())
        if not workers:
            where = self.client.scheduler.address if self.client.scheduler else "the dask scheduler"
            warnings.warn(f"{where} has no workers at present; waiting for one", KeyholeWarning, stacklevel=2)
        return _AHEAD * max(1, workers)


async def _connects(address: str, arguments: Mapping[str, Any]) -> bool:
    """Connect to a worker, and leave it again."""
    from distributed.comm.core import connect

    await (await connect(address, timeout=_REACH_SECONDS, **arguments)).close()
    return True


class _Pass:
    """Panels and reduction of one pass, which workers hold while it lasts.

    Parameters
    ----------
    panels, reduction
        As for `reduce`.
    """

    def __init__(self, panels: Panels[Any], reduction: Reduction[Any, Any]) -> None:
        self.panels, self.reduction = panels, reduction


def _reduce_on_worker(pass_: _Pass, number: int) -> Any:
    """Reduce a group in a task."""
    from distributed import get_worker

    with _SETTINGS.applied(get_worker().state.nthreads):
        return reduce_group(pass_.panels, pass_.reduction, number)


class _TaskSettings:
    """Settings of a worker's process that hold while one or more tasks run."""

    def __init__(self) -> None:
        self._lock, self._tasks, self._made = threading.Lock(), 0, ExitStack()

    @contextmanager
    def applied(self, threads: int) -> Iterator[None]:
        """Limit the threads of BLAS, and let memory be reused; the last of concurrent tasks undoes both.

        Parameters
        ----------
        threads : int
            A process that has fewer keeps its number.
        """
        with self._lock:
            if not self._tasks:
                self._made.enter_context(_limited(threads))
                self._made.enter_context(_reusing_memory())
            self._tasks += 1
        try:
            yield
        finally:
            with self._lock:
                self._tasks -= 1
                if not self._tasks:
                    self._made.close()


_SETTINGS = _TaskSettings()


@contextmanager
def _limited(threads: int) -> Iterator[None]:
    """Limit the threads of BLAS in libraries that have more."""
    from threadpoolctl import ThreadpoolController

    blas = ThreadpoolController().select(user_api="blas")
    with blas.limit(limits={one["filepath"]: min(threads, one["num_threads"]) for one in blas.info()}):
        yield


@contextmanager
def _reusing_memory() -> Iterator[None]:
    """Let the C library reuse freed blocks of up to 32 MiB, the most that it allows, as it learns to do by itself.

    It does not where MALLOC_TRIM_THRESHOLD_ is set, and dask sets it for its workers: every array of more than 128 KiB
    is then returned to the system, and the next one takes its pages anew, most of the processor time of a pass.

    References
    ----------
    mallopt(3), Linux manual page.
    """
    given = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" and given.isdigit() else None
    if not hasattr(library, "mallopt"):  # another C library than glibc
        yield
        return
    library.mallopt(_MMAP_THRESHOLD, 2**25)
    library.mallopt(_TRIM_THRESHOLD, 2**26)
    try:
        yield
    finally:
        library.mallopt(_MMAP_THRESHOLD, 2**17)
        library.mallopt(_TRIM_THRESHOLD, int(given))
        library.malloc_trim(0)


def active_executor() -> Executor:
    """Return where reductions run: on the active `dask.distributed` client of this process, else in this process.

    Returns
    -------
    Executor
        `Serial` also inside a task of a worker, which would wait for itself, and for asynchronous clients. dask is
        never imported here: a client is active only where it is imported already.

    Examples
    --------
    >>> type(active_executor()).__name__
    'Serial'
    """
    distributed = sys.modules.get("distributed")
    if distributed is None or is_worker_task():
        return Serial()
    try:
        client = distributed.default_client()
    except ValueError:
        return Serial()
    return Serial() if client.asynchronous else Dask(client)


def is_worker_task() -> bool:
    """Return whether this is a task on a dask worker."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return False
    try:
        distributed.get_worker()
    except ValueError:
        return False
    return True


@contextmanager
def connected(scheduler: str | None) -> Iterator[None]:
    """Run the reductions of a block on the workers of a dask cluster.

    Parameters
    ----------
    scheduler : str or None
        Address of the scheduler, such as ``"tcp://10.0.0.5:8786"``; None leaves everything as it is.

    Raises
    ------
    SettingsError
        If no scheduler answers there.
    MissingExtraError
        If dask is not installed.

    Examples
    --------
    >>> with connected(None):
    ...     type(active_executor()).__name__
    'Serial'
    """
    if scheduler is None:
        yield
        return
    check_extra("dask")
    from distributed import Client, Security

    try:  # before there is a client: one that fails to connect would stay the default one
        asyncio.run(_connects(scheduler, Security().get_connection_args("client")))
    except (OSError, ValueError, TypeError, MemoryError) as error:  # another server may answer anything
        raise SettingsError(
            f"scheduler={scheduler!r}: no dask scheduler answers there ({error}); an address such as "
            "tcp://127.0.0.1:8786 is needed, as `dask scheduler` prints it"
        ) from error
    with Client(scheduler):
        yield
