"""MCFS: sites whose sparse regressions explain the clusters of the samples."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.placement.base import Selection, Selector, complete, subsample
from keyhole.placement.baselines.laplacian_score import neighbour_graph
from keyhole.placement.settings import MCFSSettings

__all__ = ["MCFS", "sparse_coefficients", "spectral_embedding"]

_SCALED_OUT = 2.0  # largest eigenvalue of a normalised Laplacian


class MCFS(Selector):
    r"""Multi-cluster feature selection: sites that explain the leading eigenvectors of a graph of samples.

    Samples are joined to their nearest neighbours, as for the Laplacian score. The generalised eigenvectors of the
    graph's Laplacian, :math:`L y = \lambda D y`, of the smallest eigenvalues tell its clusters apart (the first, which
    is constant, tells nothing). Each is regressed on the sites with an L1 penalty,

    .. math:: \min_a \|y_k - X a\|^2 \quad\text{subject to}\quad |a|_1 \le \gamma_k,

    with :math:`\gamma_k` the largest that leaves no more than K coefficients, on the path of least angle regression.
    The score of a site is its largest absolute coefficient in any regression; of several channels, their norm. The
    graph is that of at most 2000 samples, drawn by the run's seed.

    Parameters
    ----------
    settings
        Fields of `MCFSSettings`, by name.

    References
    ----------
    Cai, Zhang & He (2010). Unsupervised feature selection for multi-cluster data. KDD. Efron, Hastie, Johnstone &
    Tibshirani (2004). Least angle regression. Annals of Statistics 32.

    Examples
    --------
    >>> import keyhole as kh
    >>> rng = np.random.default_rng(0)
    >>> groups = rng.integers(2, size=(60, 1)) * [4, 4, 0] + rng.normal(size=(60, 3))  # two sites tell groups apart
    >>> sorted(MCFS(n_eigenvectors=1).select(kh.read(groups).as_scaled(), 2, validation=None, run=Run()).sites.tolist())
    [0, 1]
    """

    name: ClassVar[str] = "mcfs"
    settings_class: ClassVar[type[MCFSSettings]] = MCFSSettings
    options: MCFSSettings

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Rank the observable sites by their largest coefficient."""
        some = subsample(train, self.options.max_samples, run, "samples of the graph")
        graph = neighbour_graph(some.targets.reshape(len(some), -1), self.options.n_neighbors)
        embedding = spectral_embedding(graph, self.options.n_eigenvectors)
        sites = np.flatnonzero(train.observable)
        values = np.asarray(some.readings(sites), np.float64)
        scores = np.zeros(len(sites))
        for i, target in enumerate(embedding.T):
            if i > 0 and run.seconds_left() <= 0:
                break
            coefficients = sparse_coefficients(values.reshape(len(values), -1), target, k)
            scores = np.maximum(scores, np.linalg.norm(coefficients.reshape(values.shape[1:]), axis=1))
            run.tell(Event(self.name, i + 1, embedding.shape[1]))
        order = np.argsort(-scores, kind="stable")[: np.count_nonzero(scores)]
        return Selection(complete(sites[order], k, train), notes={"active": len(order)})


def spectral_embedding(graph: Any, count: int) -> NDArray[np.float64]:
    r"""Return the generalised eigenvectors :math:`L y = \lambda D y` of the smallest eigenvalues but the constant one.

    They are :math:`D^{-1/2} v` of the eigenvectors `v` of the normalised Laplacian, with :math:`y'Dy = 1`. Where the
    graph falls into parts, zero is an eigenvalue for each of them: the constant one is then moved to the end of the
    spectrum, so that the others are what tells the parts apart.

    Parameters
    ----------
    graph
        Sparse symmetric weights, as of `neighbour_graph`; every sample has a neighbour.
    count
        Number of eigenvectors; fewer are returned for fewer samples.

    Returns
    -------
    ndarray
        ``(n, count)``, by ascending eigenvalue.
    """
    from scipy.linalg import eigh
    from scipy.sparse.csgraph import laplacian

    degrees = np.asarray(graph.sum(axis=1)).ravel()
    constant = np.sqrt(degrees / degrees.sum())
    matrix = laplacian(graph, normed=True).toarray() + _SCALED_OUT * np.multiply.outer(constant, constant)
    vectors = eigh(matrix, subset_by_index=[0, min(count, len(matrix) - 1) - 1])[1]
    return np.asarray(vectors / np.sqrt(degrees)[:, np.newaxis])


def sparse_coefficients(values: NDArray[np.float64], target: NDArray[np.float64], most: int) -> NDArray[np.float64]:
    """Return the last coefficients on the lasso's path of which no more than ``most`` are not zero.

    Parameters
    ----------
    values
        ``(n, columns)``; they are centred, as the target is.
    target
        ``(n,)``.
    most
        Largest number of coefficients.

    Returns
    -------
    ndarray
        ``(columns,)``.

    Examples
    --------
    >>> sparse_coefficients(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), np.array([3.0, -3, 1, -1]), 1)
    array([2., 0.])
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import lars_path

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of columns left out because others equal them
        # The path goes on for as many steps as there may be coefficients, and more for those that leave it again.
        path = lars_path(values - values.mean(axis=0), target - target.mean(), method="lasso", max_iter=2 * most + 1)[2]
    return np.asarray(path[:, np.flatnonzero(np.count_nonzero(path, axis=0) <= most)[-1]])
