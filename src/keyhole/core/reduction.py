"""Reductions over panels: passes through data that need not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

__all__ = [
    "Both",
    "Executor",
    "Panels",
    "Reduction",
    "Report",
    "Serial",
    "listening",
    "reduce",
    "reduce_group",
    "tell",
]

S = TypeVar("S")
T = TypeVar("T")
P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)
P_contra = TypeVar("P_contra", contravariant=True)

Report = Callable[[int, int], None]
_LISTENER: ContextVar[Callable[[str, int, int], None] | None] = ContextVar("listener", default=None)


class Reduction(Protocol[S, P_contra]):
    """What is computed in one pass over data: a state that starts empty, takes panels in, and merges with others.

    For all states, ``merge(start(), state)`` must equal ``state``. On dask workers a reduction and its states are
    pickled: they hold arrays and settings, and neither open files nor functions that are defined within functions.
    """

    def start(self) -> S:
        """Return the state before any panel.

        Returns
        -------
        S
        """
        ...

    def update(self, state: S, panel: P_contra) -> S:
        """Take a panel in.

        Parameters
        ----------
        state : S
            May be changed in place.
        panel : P
            A panel.

        Returns
        -------
        S
        """
        ...

    def merge(self, one: S, other: S) -> S:
        """Join two states, of which the panels of the first come before those of the second.

        Parameters
        ----------
        one : S
            May be changed in place.
        other : S
            Is not used afterwards.

        Returns
        -------
        S
        """
        ...


@dataclass(frozen=True, eq=False)
class Both(Generic[S, T, P_contra]):
    """Two reductions in one pass; their states are a pair.

    Parameters
    ----------
    first, second : Reduction
        The reductions.
    stage : str
        Name of the pass.
    """

    first: Reduction[S, P_contra]
    second: Reduction[T, P_contra]
    stage: str

    def start(self) -> tuple[S, T]:
        """Return the states before any panel."""
        return self.first.start(), self.second.start()

    def update(self, state: tuple[S, T], panel: P_contra) -> tuple[S, T]:
        """Take a panel in."""
        return self.first.update(state[0], panel), self.second.update(state[1], panel)

    def merge(self, one: tuple[S, T], other: tuple[S, T]) -> tuple[S, T]:
        """Join two pairs of states."""
        return self.first.merge(one[0], other[0]), self.second.merge(one[1], other[1])


class Panels(Protocol[P_co]):
    """Data cut in groups of panels, by their shape alone, so that every pass adds up in the same order.

    On dask workers it is pickled once for each pass, and the threads of a worker share it: what lies in files should be
    sent as a path, not as values. Panels in memory say so by an attribute ``is_lazy`` that is false, and are reduced in
    this process, unless an executor is named.
    """

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        ...

    def group(self, number: int) -> Iterable[P_co]:
        """Return the panels of a group in order, loaded when iterated.

        Parameters
        ----------
        number : int
            From 0 to ``n_groups - 1``.

        Returns
        -------
        iterable of P
        """
        ...


class Executor(Protocol):
    """Where reductions run; every executor gives the same bits, since groups are merged in their order."""

    def map_reduce(self, panels: Panels[P], reduction: Reduction[S, P], *, report: Report | None = None) -> S:
        """Reduce all groups.

        Parameters
        ----------
        panels : Panels
            The data.
        reduction : Reduction
            What to compute.
        report : callable, optional
            Called with the number of groups done and their total after each group.

        Returns
        -------
        S
        """
        ...


class Serial:
    """Reduces one group after the other in this process; at most two states are alive."""

    def map_reduce(self, panels: Panels[P], reduction: Reduction[S, P], *, report: Report | None = None) -> S:
        """Reduce all groups; see `Executor.map_reduce`."""
        result = reduction.start()
        for number in range(panels.n_groups):
            result = reduction.merge(result, reduce_group(panels, reduction, number))
            if report is not None:
                report(number + 1, panels.n_groups)
        return result


def reduce_group(panels: Panels[P], reduction: Reduction[S, P], number: int) -> S:
    """Reduce one group to a state of its own.

    Parameters
    ----------
    panels, reduction
        As for `reduce`.
    number : int
        The group.

    Returns
    -------
    S
    """
    state = reduction.start()
    for panel in panels.group(number):
        state = reduction.update(state, panel)
    return state


def reduce(
    panels: Panels[P], reduction: Reduction[S, P], *, executor: Executor | None = None, report: Report | None = None
) -> S:
    """Pass through data once.

    Each group of panels is reduced to a state of its own, and the states are merged in the order of the groups,
    wherever they were computed. So the result has the same bits on any executor whose processes compute with equally
    many threads.

    Parameters
    ----------
    panels : Panels
        The data.
    reduction : Reduction
        What to compute.
    executor : Executor, optional
        Where to compute it. None: on the workers of the active `dask.distributed` client, if this process has one and
        the panels are lazy, else here (`keyhole.core.executors.active_executor`).
    report : callable, optional
        Called with the number of groups done and their total after each group.

    Returns
    -------
    S
        ``reduction.start()`` if there are no groups.

    Examples
    --------
    >>> class Blocks:
    ...     n_groups = 3
    ...     def group(self, number):
    ...         return [[number, 10 * number]]
    >>> class Total:
    ...     def start(self):
    ...         return 0
    ...     def update(self, state, panel):
    ...         return state + sum(panel)
    ...     def merge(self, one, other):
    ...         return one + other
    >>> reduce(Blocks(), Total())
    33
    """
    if executor is None:
        from keyhole.core.executors import active_executor

        executor = active_executor() if getattr(panels, "is_lazy", True) else Serial()
    listener = _LISTENER.get()
    if report is None and listener is not None and panels.n_groups > 1:
        report = partial(listener, getattr(reduction, "stage", "pass through the data"))
    return executor.map_reduce(panels, reduction, report=report)


@contextmanager
def listening(listener: Callable[[str, int, int], None]) -> Iterator[None]:
    """Have the progress of all passes within the block reported, but those that have a report of their own.

    Parameters
    ----------
    listener : callable
        Called with the name of the pass (the attribute ``stage`` of the reduction, where it has one), the number of
        groups done and their total.
    """
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def tell(stage: str, done: int, total: int) -> None:
    """Report the progress of a pass that is not a reduction, if anybody listens.

    Parameters
    ----------
    stage : str
        Name of the pass.
    done, total : int
        Samples done, and their total.
    """
    listener = _LISTENER.get()
    if listener is not None:
        listener(stage, done, total)
