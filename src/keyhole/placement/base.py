"""What a selector is: signals and K in, ranked sites out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import InfeasibleError
from keyhole.core.run import Run
from keyhole.data.constraints import FeasibleSet, largest_feasible, packing
from keyhole.data.samples import Samples
from keyhole.masks import MaskDistribution

__all__ = ["Selection", "Selector", "complete", "subsample"]


@dataclass(frozen=True, eq=False)
class Selection:
    """Ranked sites (flat grid indices, best first), and what the selector has to say about them.

    ``reconstruct`` is the network that a selector trained while it searched, fixed on the sites it found: scaled
    signals in, what it makes of their readings out, ``(N, channels, *grid)``, zero outside. None where it trained none.
    ``law`` is the law of masks that was collapsed to them, if there was one. ``others`` are sets that it held for
    nearly as good, for a judge that is slower and sees more.
    """

    sites: NDArray[np.int64]
    history: Sequence[dict[str, Any]] = ()
    notes: dict[str, Any] = field(default_factory=dict)
    reconstruct: Callable[[Samples], NDArray[np.float32]] | None = None
    distribution: MaskDistribution | None = None
    others: Sequence[NDArray[np.int64]] = ()


class Selector(ABC):
    """Turns scaled signals and K into exactly K distinct observable sites, ranked, that keep the signals' rules.

    A selector that ``decides`` something on validation samples gets them apart; one that does not gets everything but
    the test part to work on.

    The rankings of one that is ``nested`` begin with those for fewer sites, so that one ranking, cut, serves every
    smaller K.

    One that is ``supervised`` chooses for the target, where there is one, and conditions its choice on the existing
    sites (`Samples.existing`) itself. All others see samples from which what existing sites predict has been removed.
    """

    name: ClassVar[str]
    nested: ClassVar[bool] = False
    supervised: ClassVar[bool] = False

    @property
    def requires_validation(self) -> bool:
        """Whether validation samples are needed."""
        return False

    def incompatibility(self, signals: Samples) -> str | None:
        """Why these signals are none that it can choose on, or None where they are."""
        return None

    @abstractmethod
    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
        """Choose ``k`` sites; signals are scaled, K has been checked."""

    def refit(self, found: Selection, development: Samples, run: Run) -> Selection:
        """Choose once more, as ``found`` was, on everything but test: validation has had its say; as it is by default.

        Asked of one that ``decides`` alone.
        """
        return found

    def settings(self) -> dict[str, Any]:
        """Settings that define the selector, for the record."""
        return {}


def complete(sites: NDArray[np.int64], k: int, train: Samples) -> NDArray[np.int64]:
    """Make a legal choice of a ranking: rules are kept, and the most variable sites left fill up to ``k``.

    Under a limit of cost there are as many as can be paid for, whatever ``k`` is. Where the first of the ranking leave
    no room for ``k``, which a distance may do, the last of them give way.
    """
    room = train.room()
    most = np.inf if room.rules.costs is not None else k
    room.fill(sites, most)
    if len(room.taken) < most:
        room.fill(_by_spread(train), most)
    if len(room.taken) < most < np.inf:
        return _made_room(room, k)
    return np.array(room.taken, np.int64)


def _by_spread(train: Samples) -> NDArray[np.int64]:
    """Observable sites, the most variable first."""
    sites = np.flatnonzero(train.observable.ravel())
    spread = train.values.reshape(len(train), train.channels, -1)[:, :, sites].var(axis=0).sum(axis=0)
    return np.asarray(sites[np.argsort(-spread, kind="stable")], np.int64)


def _made_room(room: FeasibleSet, k: int) -> NDArray[np.int64]:
    """Keep as many of the first sites as leave room for ``k`` in all."""
    given, kept = room.taken, len(room.taken) - 1
    while kept > 0:
        found = packing(room.rules, room.observable, k, given[:kept])
        if len(found) == k:
            return np.array(found, np.int64)
        kept = kept // 2
    found, _ = largest_feasible(room.rules, room.observable, k)
    if len(found) < k:
        raise InfeasibleError(f"k={k}: no more than {len(found)} sites fit under the constraints")
    return np.array(found, np.int64)


def subsample(signals: Samples, most: int, run: Run, purpose: str) -> Samples:
    """Give at most ``most`` of the samples, drawn by the run's seed for a purpose, in their order."""
    if len(signals) <= most:
        return signals
    return signals.take(np.sort(run.generator(purpose).choice(len(signals), most, replace=False)))
