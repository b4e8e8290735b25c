"""Ridge regression whose maps are smooth along the edges of a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.core.run import Run
from keyhole.data.graph_metric import GraphMetric
from keyhole.data.metric import Metric
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.projection import Targets, in_memory
from keyhole.models.reconstructors.base import flat
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.models.settings import GraphRidgeSettings
from keyhole.models.subsets import contiguous_folds

__all__ = ["GraphRidge", "check_graph"]

# Candidate strengths of the ridge and of the graph's penalty, relative to the mean squared singular value.
_STRENGTHS, _PENALTIES = np.logspace(-6, 1, 8), (0.0, *np.logspace(-4, 2, 7))

Rows = NDArray[np.bool_]
Solver = Callable[[NDArray[np.float64], NDArray[np.float64], float], NDArray[np.float64]]


class GraphRidge(LinearReconstructor):
    r"""Ridge regression `x = mean + (r - mean_r) B` with a penalty on differences of `B` along the edges of a graph.

    .. math:: \min_B \|X - R B\|_F^2 + a \|B\|_F^2 + b\, \mathrm{tr}(B L B')

    with the normalised graph Laplacian `L`: what a reading says of one node it says nearly of its neighbours. In the
    eigenvectors of `R'R = Q diag(w) Q'` and `L = U diag(l) U'` the solution is diagonal,
    :math:`(Q'BU)_{ij} = (Q'R'XU)_{ij} / (w_i + a + b\, l_j)`; on large graphs it takes one sparse system for each
    reading. Both strengths are selected by cross-validation over contiguous folds; with `b = 0` it is ridge.

    For samples on a graph that are too few to learn each node's map by itself; needs sites with a graph.

    Parameters
    ----------
    settings
        Fields of `GraphRidgeSettings`, by name.

    References
    ----------
    Belkin, Niyogi & Sindhwani (2006), *Manifold regularization*. JMLR 7.

    Examples
    --------
    >>> import keyhole as kh
    >>> rng = np.random.default_rng(0)
    >>> path = np.diag(np.ones(19), 1)  # twenty nodes in a row
    >>> samples = kh.read(np.cumsum(rng.normal(size=(30, 20)), axis=1)).with_graph(path + path.T).as_scaled()
    >>> sites = np.array([4, 15])
    >>> GraphRidge().fit(samples, sites, validation=samples, run=Run()).reconstruct(samples.readings(sites)).shape
    (30, 1, 20)
    """

    name: ClassVar[str] = "graph_ridge"
    settings_class = GraphRidgeSettings
    options: GraphRidgeSettings

    def solve(self, train: ScaledSamples, sites: NDArray[np.int64], targets: Targets, run: Run) -> None:
        """Select the strengths on the first call, then solve; see `LinearReconstructor.solve`."""
        metric = check_graph(train.sites.metric, self.name)
        readings = flat(train.readings(sites)).astype(np.float64)
        solver = _by_eigenvectors(metric) if len(metric) <= self.options.max_dense_sites else _by_systems(metric)
        known = in_memory(targets)
        if not self.chosen:
            folds = list(contiguous_folds(len(readings), self.options.n_folds, train.sample_groups))
            self.chosen = _choose(readings, known, solver, folds)
        self.offset, self.weights = _fit(readings, known, solver, **self.chosen)


def check_graph(metric: Metric, name: str) -> GraphMetric:
    """Return the metric if it is that of a graph; else raise a SettingsError that names the reconstructor."""
    if not isinstance(metric, GraphMetric):
        raise SettingsError(f"reconstructor {name!r} needs sites with a graph (read(..., graph=...))")
    return metric


def _by_eigenvectors(metric: GraphMetric) -> Solver:
    """Solve `diag(d) B + b B L = C` for any `d` by all eigenvectors of `L`."""
    values, vectors = np.linalg.eigh(metric.laplacian.toarray())

    def solve(diagonal: NDArray[np.float64], right: NDArray[np.float64], penalty: float) -> NDArray[np.float64]:
        by_channel = right.reshape(len(right), -1, len(values)) @ vectors
        scaled = by_channel / (diagonal[:, np.newaxis, np.newaxis] + penalty * np.maximum(values, 0))
        return np.asarray((scaled @ vectors.T).reshape(right.shape))

    return solve


def _by_systems(metric: GraphMetric) -> Solver:
    """Solve `diag(d) B + b B L = C` row by row, by conjugate gradients."""
    from scipy.sparse import identity
    from scipy.sparse.linalg import cg

    laplacian, count = metric.laplacian.tocsr(), len(metric)

    def solve(diagonal: NDArray[np.float64], right: NDArray[np.float64], penalty: float) -> NDArray[np.float64]:
        found = np.empty_like(right)
        for row, entry in enumerate(diagonal):
            matrix = entry * identity(count, format="csr") + penalty * laplacian
            parts = [cg(matrix, part, x0=part / entry, rtol=1e-8)[0] for part in right[row].reshape(-1, count)]
            found[row] = np.concatenate(parts)
        return found

    return solve


def _fit(
    readings: NDArray[np.float64], targets: NDArray[Any], solver: Solver, strength: float, penalty: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Offset and weights for given strengths."""
    reading_mean, target_mean = readings.mean(axis=0), targets.mean(axis=0, dtype=np.float64)
    centred = readings - reading_mean
    values, vectors = np.linalg.eigh(centred.T @ centred)
    level = max(float(values.mean()), np.finfo(float).tiny)
    rotated = vectors.T @ (centred.T @ (targets - target_mean))
    weights = vectors @ solver(np.maximum(values, 0) + strength * level, rotated, penalty * level)
    return (target_mean - reading_mean @ weights).astype(np.float32), weights.astype(np.float32)


def _choose(
    readings: NDArray[np.float64], targets: NDArray[Any], solver: Solver, folds: Sequence[tuple[Rows, Rows]]
) -> dict[str, float]:
    """Strengths with the smallest cross-validation error."""
    errors = dict.fromkeys(product(_STRENGTHS, _PENALTIES), 0.0)
    for kept, held_out in folds:
        for strength, penalty in errors:
            offset, weights = _fit(readings[kept], targets[kept], solver, strength, penalty)
            residual = targets[held_out] - (offset + readings[held_out] @ weights)
            errors[strength, penalty] += float(np.square(residual, dtype=np.float64).sum())
    strength, penalty = min(errors, key=errors.__getitem__)
    return {"strength": float(strength), "penalty": float(penalty)}
