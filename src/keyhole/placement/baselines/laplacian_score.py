"""Laplacian score: sites that preserve the neighbourhoods of samples."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.placement.base import Selection, Selector, complete, subsample
from keyhole.placement.settings import LaplacianSettings

__all__ = ["Laplacian", "laplacian_scores", "neighbour_graph"]

_CONSTANT = 1e-10


class Laplacian(Selector):
    r"""Laplacian score: the sites that vary least between neighbouring samples.

    ScaledSamples are joined to their nearest neighbours by the heat kernel,
    :math:`S_{ij} = \exp(-\|x_i - x_j\|^2 / t)` with :math:`t` the mean squared distance of neighbours. With the degrees
    :math:`D = \operatorname{diag}(S 1)`, the Laplacian :math:`L = D - S` and the values :math:`f` of a site,

    .. math:: \text{score} = \frac{\tilde f' L \tilde f}{\tilde f' D \tilde f}, \qquad
              \tilde f = f - \frac{f' D 1}{1' D 1} 1,

    and lower is better. Over the channels of a site, numerators and denominators add up. The graph is that of at most
    2000 samples, drawn by the run's seed. Sites are scored independently: redundant ones rank alike.

    Parameters
    ----------
    settings
        Fields of `LaplacianSettings`, by name.

    References
    ----------
    He, Cai & Niyogi (2005). Laplacian score for feature selection. NeurIPS 18.

    Examples
    --------
    >>> import keyhole as kh
    >>> rng = np.random.default_rng(0)
    >>> groups = rng.integers(2, size=(60, 1)) * [4, 4, 0] + rng.normal(size=(60, 3))  # two sites tell groups apart
    >>> sorted(Laplacian().select(kh.read(groups).as_scaled(), 2, validation=None, run=Run()).sites.tolist())
    [0, 1]
    """

    name: ClassVar[str] = "laplacian"
    quick: ClassVar[bool] = True
    nested: ClassVar[bool] = True
    settings_class: ClassVar[type[LaplacianSettings]] = LaplacianSettings
    options: LaplacianSettings

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Rank the observable sites by their score."""
        some = subsample(train, self.options.max_samples, run, "samples of the graph")
        graph = neighbour_graph(some.targets.reshape(len(some), -1), self.options.n_neighbors)
        sites = np.flatnonzero(train.observable)
        scores = laplacian_scores(some.readings(sites), graph)
        return Selection(complete(sites[np.argsort(scores, kind="stable")], k, train))


def laplacian_scores(values: NDArray[Any], graph: Any) -> NDArray[np.float64]:
    """Return the Laplacian score of each site, infinite for a constant one.

    Uses `f'Lf = f'Df - f'Sf`, and that `L` does not see the shift from `f` to its centred form.

    Parameters
    ----------
    values
        ``(samples, sites, channels)``.
    graph
        Sparse weights between samples, as of `neighbour_graph`.

    Returns
    -------
    ndarray
        ``(sites,)``; lower is better.
    """
    flat = np.asarray(values, np.float64).reshape(len(values), -1)
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    centred = flat - degrees @ flat / degrees.sum()
    spread = degrees @ np.square(centred)
    rough = spread - np.einsum("nf,nf->f", centred, graph @ centred)
    spread, rough = (part.reshape(values.shape[1:]).sum(axis=1) for part in (spread, rough))
    varies = spread > _CONSTANT * spread.max()
    return np.asarray(np.divide(rough, spread, out=np.full(len(spread), np.inf), where=varies))


def neighbour_graph(samples: NDArray[Any], neighbours: int) -> Any:
    """Return sparse symmetric weights: two samples are joined where either is among the nearest of the other.

    Parameters
    ----------
    samples
        ``(n, d)``.
    neighbours
        Number of nearest neighbours.
    """
    from sklearn.neighbors import kneighbors_graph

    graph = kneighbors_graph(samples, min(neighbours, len(samples) - 1), mode="distance")
    squared = np.square(graph.data)
    graph.data = np.exp(-squared / (squared.mean() or 1.0))
    return graph.maximum(graph.T)
