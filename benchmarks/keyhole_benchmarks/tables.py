"""Features of tables: accuracy and unexplained variance from each selector's features, at equal K."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import product
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data import datasets
from keyhole_benchmarks.peers import PEERS, Table
from keyhole_benchmarks.records import Case
from keyhole_benchmarks.runner import Job, Outcome

__all__ = ["N_SITES", "jobs"]

N_SITES = {"breast_cancer": 5, "digits": 16, "isolet": 50, "coil20": 50, "madelon": 50}
_TEST_SHARE = 0.2
_TREES, _FORESTS = 50, 3
_RIDGES = np.logspace(-3, 3, 7)

Split = tuple[NDArray[np.int64], NDArray[np.int64]]


def jobs(
    names: Sequence[str], methods: Sequence[str], splits: Sequence[int], seconds: float, *, by_processor: bool = False
) -> Iterator[Job]:
    """Return one job for each data set, split and selector.

    Parameters
    ----------
    names
        Names of data sets, keys of `N_SITES`.
    methods
        Names of selectors, keys of `peers.PEERS`.
    splits
        Numbers of splits, each of them the seed of split and selector.
    seconds
        Time limit of a selector.
    by_processor
        Whether the limit is in seconds of the processor, which other work on the machine does not use up.

    Yields
    ------
    Job
        A job with one case.
    """
    for name, split, method in product(names, splits, methods):
        train, test = _rows(name, split)
        case = Case("tables", name, f"{seconds:g} s", method, "extra trees", N_SITES[name], split, {"of": "selector"})
        sizes = {"train": len(train), "test": len(test)}
        yield Job([case], sizes, "auto", partial(_work, case, seconds, by_processor))


def _work(case: Case, seconds: float, by_processor: bool, run: Run) -> Iterator[Outcome]:
    train, test = _rows(case.data, case.seed)
    table, classes, shape = _table(case.data)
    samples = _standard(table, train)
    start, processor = time.monotonic(), time.process_time()
    with mock.patch.object(time, "monotonic", time.process_time if by_processor else time.monotonic):
        chosen = PEERS[case.method].choose(Table(samples[train], classes[train], case.k, case.seed, seconds))
    took = {
        "choosing_seconds": round(time.monotonic() - start, 3),
        "choosing_cpu_seconds": round(time.process_time() - processor, 3),
    }
    notes = {"features": chosen.tolist(), "shape": list(shape), "limit_by_processor": by_processor, **took}
    metrics = {
        "accuracy": _accuracy(samples[:, chosen], classes, train, test),
        "fvu": _unexplained_variance(samples, chosen, train, test),
    }
    yield Outcome(metrics, len(set(chosen.tolist())), notes)


@lru_cache(maxsize=1)
def _table(name: str) -> tuple[NDArray[np.float64], NDArray[np.int64], tuple[int, ...]]:
    """Samples, the number of each one's class, and the shape that features are in, if they are of a picture."""
    if name == "breast_cancer":
        from sklearn.datasets import load_breast_cancer

        samples, classes = load_breast_cancer(return_X_y=True)
        return samples, classes.astype(np.int64), samples.shape[1:]
    signals, classes = datasets.load(name), datasets.labels(name).values
    flat = signals.values.reshape(len(signals), -1)
    return flat.astype(np.float64), classes.astype(np.int64), signals.sites.shape


def _rows(name: str, split: int) -> Split:
    """Rows to learn from and to judge by: a fifth of each class at random, other ones in every split."""
    from sklearn.model_selection import StratifiedShuffleSplit

    samples, classes, _ = _table(name)
    cut = StratifiedShuffleSplit(1, test_size=_TEST_SHARE, random_state=split)
    train, test = next(cut.split(samples, classes))
    return train, test


def _standard(samples: NDArray[np.float64], train: NDArray[np.int64]) -> NDArray[np.float64]:
    """Columns of mean zero and unit variance on what is learned from."""
    spread = samples[train].std(axis=0)
    return np.asarray((samples - samples[train].mean(axis=0)) / np.where(spread > 0, spread, 1.0))


def _accuracy(
    chosen: NDArray[np.float64], classes: NDArray[np.int64], train: NDArray[np.int64], test: NDArray[np.int64]
) -> float:
    """Share of classes that forests tell rightly from the chosen columns."""
    from sklearn.ensemble import ExtraTreesClassifier

    forests = (ExtraTreesClassifier(_TREES, random_state=seed) for seed in range(_FORESTS))
    return float(
        np.mean([one.fit(chosen[train], classes[train]).score(chosen[test], classes[test]) for one in forests])
    )


def _unexplained_variance(
    samples: NDArray[np.float64], chosen: NDArray[np.int64], train: NDArray[np.int64], test: NDArray[np.int64]
) -> float:
    """Share of the variance of all columns that ridge does not explain from the selected ones."""
    from sklearn.linear_model import RidgeCV

    ridge = RidgeCV(_RIDGES).fit(samples[train][:, chosen], samples[train])
    error = np.square(samples[test] - ridge.predict(samples[test][:, chosen])).sum()
    return float(error / np.square(samples[test]).sum())
