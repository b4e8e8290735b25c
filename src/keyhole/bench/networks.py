"""What constraints, noise, gaps and failures cost a network, and whether its bands hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import product
from typing import Any

import numpy as np

from keyhole import datasets
from keyhole.bench.records import Case
from keyhole.bench.runner import Job, Outcome
from keyhole.pipeline import choose_sites, fit_reconstructor, make_plan, make_selector
from keyhole.preparation import Prepared, prepare
from keyhole.run import Run
from keyhole.scaling import Scaling
from keyhole.signals import Signals
from keyhole.uncertainty import coverage_map, errors_by_failures

__all__ = ["PLACES", "VARIANTS", "jobs"]

PLACES = {"sst": 25, "oisst": 50, "ncep": 100, "ipsl": 50}
_BANDS = {"tropics": (0, 23.5), "mid-latitudes": (23.5, 60), "polar": (60, 90)}
_SWATH = 5
_MOST_FAILURES = 10


def _plain(signals: Signals, k: int) -> Signals:
    return signals


def _constrained(**asked: Any) -> Callable[[Signals, int], Signals]:
    return lambda signals, k: signals.constrained(asked)


def _around_a_fifth(signals: Signals, k: int) -> Signals:
    """A fifth of the sites is there already, spread evenly over the cells."""
    cells = signals.grid.cells
    return signals.constrained({"fixed": cells[np.linspace(0, len(cells) - 1, k // 5).astype(int)].tolist()})


def _priced(signals: Signals, k: int) -> Signals:
    """A site costs more the nearer it is to a pole: one at the equator, six there; K would pay for twos."""
    north = signals.grid.along(int(signals.grid.axis_of_latitude() or 0)).reshape(signals.grid.shape)
    return signals.constrained({"costs": 1 + 5 * np.abs(north) / 90, "cost_limit": 2.0 * k})


def _in_swaths(signals: Signals, k: int) -> Signals:
    """Sites come by five in a row."""
    rows, columns = np.indices(signals.grid.shape)
    return signals.constrained({"groups": rows * signals.grid.shape[1] + columns // _SWATH})


def _noisy(signals: Signals, k: int) -> Signals:
    """Sensors add half of the standard deviation of what is not known without them."""
    return signals.noisy(0.5 * Scaling.fit(signals).scale)


def _torn(signals: Signals, k: int) -> Signals:
    """A fifth of all values is missing, at random."""
    values = signals.values.copy()
    values[np.random.default_rng(0).uniform(size=values.shape) < 0.2] = np.nan
    torn = Signals.build(values, signals.grid, time=signals.time, split=signals.split, origin=signals.origin)
    return torn.anomalies(signals.cycle)


# By name: what is done to the signals, K as a share of the data set's, failures to be ready for, and the method.
VARIANTS: dict[str, tuple[Callable[[Signals, int], Signals], float, int, str]] = {
    "none": (_plain, 1, 0, "greedy"),
    "QR's sites": (_plain, 1, 0, "qr"),
    "30 S to 30 N": (_constrained(allowed={"lat": (-30, 30)}), 1, 0, "greedy"),
    "not from 30 W to 60 E": (_constrained(forbidden={"lon": (-30, 60)}), 1, 0, "greedy"),
    "1000 km apart": (_constrained(distance=1000), 1, 0, "greedy"),
    "a fifth there already": (_around_a_fifth, 0.8, 0, "greedy"),
    "by cost": (_priced, 0, 0, "greedy"),
    "five in a row": (_in_swaths, 1 / _SWATH, 0, "greedy"),
    "a region, 700 km, one there": (
        lambda signals, k: signals.constrained(
            {"forbidden": {"lon": (-30, 60)}, "distance": 700, "fixed": [int(signals.grid.cells[0])]}
        ),
        1, 0, "greedy",
    ),
    "all cells alike": (lambda signals, k: signals.weighted(None), 1, 0, "greedy"),
    "noise": (_noisy, 1, 0, "greedy"),
    "a fifth missing": (_torn, 1, 0, "greedy"),
    "two may fail": (_plain, 1, 2, "greedy"),
}  # fmt: skip


def jobs(names: Sequence[str], variants: Sequence[str], seeds: Sequence[int]) -> Iterator[Job]:
    """Give one job for each data set, seed and variant."""
    for name, seed, variant in product(names, seeds, variants):
        prepared = _prepared(name, variant)
        case = Case("networks", name, "bands", variant, "kriging", PLACES[name], seed, {"variant": variant})
        yield Job([case], prepared.split.sizes(), "auto", partial(_work, case, prepared))


@lru_cache(maxsize=2)
def _prepared(name: str, variant: str) -> Prepared:
    change = VARIANTS[variant][0]
    return prepare(change(datasets.load(name), PLACES[name]), None, seed=0, calibrating=True)


def _work(case: Case, prepared: Prepared, run: Run) -> Iterator[Outcome]:
    _, share, failures, method = VARIANTS[case.method]
    selector, k = make_selector(method, {}), round(share * case.k) or None
    selection = choose_sites(selector, prepared, k, run, failures=failures)
    fitted = fit_reconstructor(case.reconstructor, prepared, selection.sites, run)
    plan = make_plan(prepared, selection, fitted, selector, run, method=method)
    mean, worst = errors_by_failures(plan, prepared.test, _MOST_FAILURES)
    notes = {
        "kept_to": plan.made.get("constraints", {}).get("asked", []),
        "by_failures": mean.tolist(),
        "worst_by_failures": worst.tolist(),
        "coverage_by_region": _by_region(coverage_map(plan, prepared.test), prepared.test),
    }
    yield Outcome(dict(plan.metrics["test"]), plan.k, notes, arrays={"sites": plan.indices})


def _by_region(shares: Any, test: Signals) -> dict[str, float]:
    """Mean coverage by bands of latitude."""
    north = np.abs(test.grid.along(int(test.grid.axis_of_latitude() or 0))).reshape(test.grid.shape)
    found = {}
    for name, (low, high) in _BANDS.items():
        cells = shares[(north >= low) & (north <= high)]
        if np.isfinite(cells).any():
            found[name] = float(np.nanmean(cells))
    return found
