"""Interface of the selectors: samples and K in, ranked sites out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import InfeasibleError, SettingsError
from keyhole.core.run import Run
from keyhole.core.settings import Configurable
from keyhole.data.constraints import FeasibleSet, largest_feasible, packing
from keyhole.data.observed import ObservedSamples
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples

if TYPE_CHECKING:
    from keyhole.masks import MaskDistribution

__all__ = ["Selection", "Selector", "complete", "subsample", "with_fixed"]

Kind = TypeVar("Kind", bound="Selector")


@dataclass(frozen=True, eq=False)
class Selection:
    """Ranked sites, and what the selector reports about them.

    Parameters
    ----------
    sites
        ``(K,)``, numbers of the sites, the most useful first.
    history
        Rows of a training or search log, one dict for each logged step.
    notes
        Diagnostics by name, kept in the plan's record.
    reconstruct
        The network that was trained during the search, fixed to the sites: takes scaled samples and returns
        the targets ``(N, channels, m)``. None where no network was trained.
    distribution
        The mask distribution that was collapsed to the sites, if there was one.
    others
        Other sets of sites with nearly the same score, for comparison by a slower and more accurate scorer.
    scorer
        The validation error of a set of sites by which the selector chose; None where it compared nothing.

    Examples
    --------
    >>> Selection(np.array([4, 2]), notes={"restarts": 3}).sites.tolist()
    [4, 2]
    """

    sites: NDArray[np.int64]
    history: Sequence[dict[str, Any]] = ()
    notes: dict[str, Any] = field(default_factory=dict)
    reconstruct: Callable[[ScaledSamples], NDArray[np.float32]] | None = None
    distribution: MaskDistribution | None = None
    others: Sequence[NDArray[np.int64]] = ()
    scorer: Callable[[NDArray[np.int64]], float] | None = None


class Selector(Configurable, ABC):
    """Base class of the selectors: from scaled samples and K to exactly K ranked sites.

    The sites are distinct, observable and feasible under the samples' constraints (`complete` ensures it). A subclass
    implements `select`, names itself and is listed in the registry `SELECTORS`.

    Attributes
    ----------
    name
        Registry name, the ``method=`` of a plan.
    nested
        Whether the ranking for K sites begins with the ranking for fewer, so that one ranking serves every smaller K.
    supervised
        Whether the selector uses the target where there is one. Such a selector conditions on the existing sites
        (`ScaledSamples.existing`) itself; all others get samples from which the linear prediction of the existing sites
        has been subtracted (`SelectionView`).
    takes_sensors
        Whether the candidates may be other sensors than one at each site (`ObservedSamples`). Such a selector uses
        ``observable``, `ScaledSamples.readings` and what is made of them, and takes no candidate for a site.
    any_size
        Whether the selector takes samples that stay in their file, going through them in panels.
    assumes_noise
        Whether the search counts with a little measurement noise where none is given (`ScaledSamples.search_noise`).
    quick
        Whether selection is a closed form of seconds that needs no validation samples, so that it may be repeated with
        blocks of the samples left out in turn (`Scorer.in_turn`).
    """

    kind: ClassVar[str] = "method"
    nested: ClassVar[bool] = False
    supervised: ClassVar[bool] = False
    takes_sensors: ClassVar[bool] = False
    any_size: ClassVar[bool] = False
    assumes_noise: ClassVar[bool] = False
    quick: ClassVar[bool] = False

    @property
    def requires_validation(self) -> bool:
        """Whether validation samples are needed; if not, the selector is given them as training samples."""
        return False

    def incompatibility(self, samples: Samples | ScaledSamples) -> str | None:
        """Explain why the selector cannot be used with these samples.

        Parameters
        ----------
        samples
            Scaled samples, or an object that describes stored ones.

        Returns
        -------
        str or None
            The reason as part of a sentence, or None where the selector can be used.
        """
        return None

    def refusal(self, samples: Samples | ScaledSamples) -> str | None:
        """Explain why the selector cannot be used with these samples: `incompatibility`, or their sensors."""
        if samples.sensors is not None and not self.takes_sensors:
            return "it needs a sensor at each site; greedy, qr, exchange, kernel_exchange and auto select among others"
        return self.incompatibility(samples)

    def in_turn(self) -> Selector | None:
        """Return what stands for the selector where blocks are left out in turn; None unless that is ``quick``."""
        return self if self.quick else None

    @abstractmethod
    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Select ``k`` sites.

        Parameters
        ----------
        train
            Scaled training samples with their constraints, existing sites and target.
        k
            Number of sites, feasible; under a cost limit, the number follows from the costs instead.
        validation
            Scaled validation samples, given if `requires_validation`.
        run
            Seed, deadline and progress.

        Returns
        -------
        Selection
            Ranked sites and diagnostics.
        """

    def refit(self, found: Selection, development: ScaledSamples, run: Run) -> Selection:
        """Select again on more samples, after all choices have been made on validation.

        The default keeps the sites of a selector that requires validation, and calls `select` of any other. Selectors
        that train a network or a mask distribution keep their sites.

        Parameters
        ----------
        found
            The selection made with separate validation samples.
        development
            Scaled training and validation samples together, or all samples there are.
        run
            Seed, deadline and progress.

        Returns
        -------
        Selection
            The selection to use.
        """
        if self.requires_validation:
            return found
        return self.select(development, len(found.sites), validation=None, run=run)


def with_fixed(kind: type[Kind], name: str, **fixed: Any) -> Callable[..., Kind]:
    """Return a constructor of a selector with some settings fixed by its registry name.

    Parameters
    ----------
    kind
        Class of the selector.
    name
        Registry name, for the message when a fixed setting is given.
    fixed
        The fixed settings.

    Returns
    -------
    callable
        Takes the other settings as keyword arguments.

    Examples
    --------
    >>> from keyhole.placement import Greedy
    >>> with_fixed(Greedy, "greedy_small", n_components=10)().settings()
    {'n_components': 10}
    """

    def make(**settings: Any) -> Kind:
        for setting in fixed.keys() & settings.keys():
            raise SettingsError(f"method {name!r} has its {setting}; take method {kind.name!r} to choose another")
        return kind(**fixed, **settings)

    return make


def complete(sites: NDArray[np.int64], k: int, train: ScaledSamples) -> NDArray[np.int64]:
    """Turn a ranking into a feasible selection of ``k`` sites.

    Sites are taken in the order of the ranking as long as the constraints allow; then the most variable feasible sites
    fill up to ``k``. Where the first sites of the ranking exclude ``k`` feasible sites in all, as a minimum distance
    may, the last of them are replaced. Under a cost limit as many sites are taken as can be paid for, whatever ``k``
    is.

    Parameters
    ----------
    sites
        Ranking, numbers of sites; may be empty, or longer than ``k``.
    k
        Number of sites.
    train
        Scaled samples with their constraints.

    Returns
    -------
    ndarray
        Numbers of the sites, ranked.

    Raises
    ------
    InfeasibleError
        If fewer than ``k`` sites are feasible.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(20, 6))).with_constraints({"min_distance": 2})
    >>> complete(np.array([3, 2, 0]), 2, samples)
    array([3, 0])
    """
    feasible = train.feasible_set()
    limit = np.inf if feasible.rules.is_open else k
    feasible.fill(sites, limit)
    if len(feasible.selected) < limit:
        feasible.fill(_by_variance(train), limit)
    if len(feasible.selected) < limit < np.inf:
        return _shortened(feasible, k)
    return np.array(feasible.selected, np.int64)


def _by_variance(train: ScaledSamples) -> NDArray[np.int64]:
    """Return the observable sites by decreasing variance, summed over channels."""
    sites = np.flatnonzero(train.observable)
    if isinstance(train, ObservedSamples):
        spread = train.clean_readings(sites).var(axis=0)
    else:
        spread = train.target_variance()[:, sites].sum(axis=0)
        if train.root is not None:
            spread = spread / np.square(train.root[sites])
    return np.asarray(sites[np.argsort(-spread, kind="stable")], np.int64)


def _shortened(feasible: FeasibleSet, k: int) -> NDArray[np.int64]:
    """Keep as many of the first sites as allow ``k`` feasible sites in all."""
    ranked, n_kept = feasible.selected, len(feasible.selected) - 1
    while n_kept > 0:
        found = packing(feasible.rules, feasible.observable, k, ranked[:n_kept])
        if len(found) == k:
            return np.array(found, np.int64)
        n_kept = n_kept // 2
    found, _ = largest_feasible(feasible.rules, feasible.observable, k)
    if len(found) < k:
        raise InfeasibleError(f"k={k}: no more than {len(found)} sites fit under the constraints")
    return np.array(found, np.int64)


def subsample(samples: ScaledSamples, limit: int, run: Run, purpose: str) -> ScaledSamples:
    """Draw at most ``limit`` samples, without replacement, in their original order.

    Parameters
    ----------
    samples
        ScaledSamples to draw from; returned unchanged if there are no more than ``limit``.
    limit
        Largest number of samples.
    run
        Its seed, together with ``purpose``, determines the draw.
    purpose
        Name of the draw.

    Returns
    -------
    ScaledSamples
        The subset.

    Examples
    --------
    >>> import keyhole as kh
    >>> len(subsample(kh.read(np.eye(9)), 5, Run(), "samples to plot"))
    5
    """
    if len(samples) <= limit:
        return samples
    return samples.take(np.sort(run.generator(purpose).choice(len(samples), limit, replace=False)))
