"""Cost of constraints, noise, missing values and failing sites, and coverage of prediction intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from typing import Any, Literal

import numpy as np

from keyhole.core.run import Run
from keyhole.data import datasets
from keyhole.data.preparation import PreparedSamples, prepare
from keyhole.data.samples import Samples
from keyhole.data.scaler import Scaler
from keyhole.placement import SELECTORS
from keyhole.workflow.calibration import coverage_map, errors_by_failures
from keyhole.workflow.selection import choose_sites, fit_reconstructor, make_plan
from keyhole_benchmarks.quality import until
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome

__all__ = ["N_SITES", "VARIANTS", "jobs"]

N_SITES = {"sst": 25, "oisst": 50, "ncep": 100, "ipsl": 50, "mnist": 50}
_REGIONS = {"tropics": (0, 23.5), "mid-latitudes": (23.5, 60), "polar": (60, 90)}
_SWATH = 5
_MOST_FAILURES = 10
_LEARNING_SECONDS = 300.0


def _plain(signals: Samples, k: int) -> Samples:
    return signals


def _constrained(**asked: Any) -> Callable[[Samples, int], Samples]:
    return lambda signals, k: signals.with_constraints(asked)


def _around_a_fifth(signals: Samples, k: int) -> Samples:
    """A fifth of the sites is there already, spread evenly over all."""
    index = signals.sites.index
    return signals.with_constraints({"existing": index[np.linspace(0, len(index) - 1, k // 5).astype(int)].tolist()})


def _priced(signals: Samples, k: int) -> Samples:
    """A site costs more the nearer it is to a pole: one at the equator, six there; K would pay for twos."""
    sites = signals.sites
    costs = sites.to_grid(1 + 5 * np.abs(sites.coordinate(sites.roles["latitude"])) / 90, fill=1.0)
    return signals.with_constraints({"costs": costs, "cost_limit": 2.0 * k})


def _region_and_more(signals: Samples, k: int) -> Samples:
    """A region, a distance and a site that is there, together."""
    first = int(signals.sites.index[0])
    return signals.with_constraints({"forbidden": {"lon": (-30, 60)}, "min_distance": 700, "existing": [first]})


def _in_swaths(signals: Samples, k: int) -> Samples:
    """Sites come by five in a row."""
    rows, columns = np.indices(signals.sites.shape)
    return signals.with_constraints({"groups": rows * signals.sites.shape[1] + columns // _SWATH})


def _noisy(signals: Samples, k: int) -> Samples:
    """Sensors add half of the standard deviation of what is not known without them."""
    return signals.with_noise(0.5 * Scaler.fit(signals).scale)


def _torn(signals: Samples, k: int) -> Samples:
    """A fifth of all values is missing, at random."""
    values = signals.sites.to_grid(signals.values.copy())
    values[np.random.default_rng(0).uniform(size=values.shape) < 0.2] = np.nan
    torn = Samples.build(values, signals.sites, time=signals.time, split=signals.split, origin=signals.origin)
    return torn.anomalies(signals.climatology.kind)


@dataclass(frozen=True)
class Variant:
    """A change to the samples, and how sites and reconstructor are found for them.

    ``share`` is K as a part of the data set's (0: a limit of cost stands in its place); ``on`` says where the variant
    has a meaning: on the globe, on pictures, or everywhere.

    Parameters
    ----------
    change
        Function of the samples and K that returns the changed samples.
    share
        K as a share of the data set's; 0 where a cost limit takes its place.
    failures
        Number of failing sites that the selection allows for.
    method
        Selector.
    reconstructor
        Reconstructor.
    on
        Data that the variant applies to: on the globe, pictures, or all.
    """

    change: Callable[[Samples, int], Samples] = _plain
    share: float = 1.0
    failures: int = 0
    method: str = "greedy"
    reconstructor: str = "optimal_interpolation"
    on: Literal["globe", "pictures", "all"] = "all"

    def suits(self, signals: Samples) -> bool:
        """Whether the variant applies to some samples.

        Parameters
        ----------
        signals
            Samples.

        Returns
        -------
        bool
            True where it does.
        """
        place = "globe" if "latitude" in signals.sites.roles else "pictures"
        return self.on in ("all", place)


VARIANTS: dict[str, Variant] = {
    "none": Variant(),
    "QR's sites": Variant(method="qr"),
    "residual network": Variant(reconstructor="residual", on="pictures"),
    "30 S to 30 N": Variant(_constrained(allowed={"lat": (-30, 30)}), on="globe"),
    "not from 30 W to 60 E": Variant(_constrained(forbidden={"lon": (-30, 60)}), on="globe"),
    "1000 km apart": Variant(_constrained(min_distance=1000), on="globe"),
    "a fifth of the sites existing": Variant(_around_a_fifth, share=0.8),
    "by cost": Variant(_priced, share=0, on="globe"),
    "five in a row": Variant(_in_swaths, share=1 / _SWATH),
    "region + 700 km + existing site": Variant(_region_and_more, on="globe"),
    "equal loss weights": Variant(lambda signals, k: signals.with_weights(None), on="globe"),
    "noise": Variant(_noisy),
    "a fifth missing": Variant(_torn, on="globe"),
    "two may fail": Variant(failures=2),
}


def jobs(names: Sequence[str], variants: Sequence[str], seeds: Sequence[int]) -> Iterator[Job]:
    """Return one job for each data set, seed and variant that applies to it.

    Parameters
    ----------
    names
        Names of data sets, keys of `N_SITES`.
    variants
        Names of variants, keys of `VARIANTS`.
    seeds
        Seeds of the runs.

    Yields
    ------
    Job
        A job with one case.
    """
    for name, seed, variant in product(names, seeds, variants):
        if not VARIANTS[variant].suits(_loaded(name)):
            continue
        words, prepared = {"variant": variant}, partial(_prepared, name, variant)
        case = Case("networks", name, "intervals", variant, VARIANTS[variant].reconstructor, N_SITES[name], seed, words)
        yield Job([case], prepared().split.sizes(), "auto", partial(_work, case, prepared))


@lru_cache(maxsize=1)
def _loaded(name: str) -> Samples:
    return datasets.load(name)


@lru_cache(maxsize=1)
def _prepared(name: str, variant: str) -> PreparedSamples:
    return prepare(VARIANTS[variant].change(_loaded(name), N_SITES[name]), None, seed=0)


def _work(case: Case, prepare_case: Callable[[], PreparedSamples], run: Run) -> Iterator[Outcome]:
    variant, prepared = VARIANTS[case.method], prepare_case()
    selector, k = SELECTORS.make(variant.method, {}), round(variant.share * case.k) or None
    selection = choose_sites(selector, prepared, k, run, failures=variant.failures)
    fitted = fit_reconstructor(case.reconstructor, prepared, selection.sites, until(run, _LEARNING_SECONDS))
    plan = make_plan(prepared, selection, fitted, selector, run, method=variant.method, intervals=True)
    mean, worst = errors_by_failures(plan, prepared.test, _MOST_FAILURES)
    notes = {
        "constraint_metadata": plan.metadata.get("constraints", {}).get("asked", []),
        "by_failures": mean.tolist(),
        "worst_by_failures": worst.tolist(),
        "coverage_by_region": _by_region(coverage_map(plan, prepared.test), prepared.test),
    }
    yield Outcome(dict(plan.metrics["test"]), plan.k, notes, arrays={"sites": plan.indices})


def _by_region(shares: Any, test: Samples) -> dict[str, float]:
    """Mean coverage by bands of latitude; nothing where there is none."""
    latitude = test.sites.role("latitude")
    if latitude is None:
        return {}
    north, found = np.abs(latitude), {}
    for name, (low, high) in _REGIONS.items():
        inside = shares[(north >= low) & (north <= high)]
        if np.isfinite(inside).any():
            found[name] = float(np.nanmean(inside))
    return found
