"""Regression of samples on their own sites, in the space of their principal components."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.principal_components import components_at_sites

__all__ = ["Regression", "regress_on_sites", "site_norms"]


@dataclass(frozen=True, eq=False)
class Regression:
    r"""Design and targets of a regression of the samples on the observable sites.

    With the covariance of the samples as :math:`V \Lambda V'` and the rows :math:`V_o` of the observable sites,

    .. math:: \tfrac1n \|X - X_o W\|_F^2 = \|\Lambda^{1/2} - \Lambda^{1/2} V_o' A\|_F^2 \quad\text{where}\quad W = A V'.

    Rows of `W` and `A` have the same norm, and a `W` outside the span of `V` has only larger norms. So any problem that
    penalises norms of rows has its minimum here, with r equations and r targets instead of all samples and sites.

    Parameters
    ----------
    sites
        ``(sites,)``, numbers of sites.
    design
        ``(r, channels * sites)``: all sites of a channel, then of the next.
    targets
        ``(r, r)``.

    Examples
    --------
    >>> import keyhole as kh
    >>> samples = kh.read(np.random.default_rng(0).normal(size=(50, 4))).as_scaled()
    >>> regress_on_sites(samples, most=3).design.shape
    (3, 4)
    """

    sites: NDArray[np.int64]
    design: NDArray[np.float64]
    targets: NDArray[np.float64]

    @property
    def channels(self) -> int:
        """Columns of the design that one site has."""
        return int(self.design.shape[1]) // len(self.sites)

    @property
    def row_sites(self) -> NDArray[np.int64]:
        """Position in ``sites`` of each column of the design, that is of each row of the coefficients."""
        return np.tile(np.arange(len(self.sites)), self.channels)


def regress_on_sites(train: ScaledSamples, most: int) -> Regression:
    """Set up the regression of samples on their own sites.

    Parameters
    ----------
    train
        Scaled samples.
    most
        Largest number of principal components.
    """
    sites, rows, variances = components_at_sites(train, most)
    roots = np.sqrt(variances)
    design = (rows.reshape(-1, len(roots)) * roots).T
    return Regression(sites, np.ascontiguousarray(design), np.diag(roots))


def site_norms(rows: NDArray[np.float64], channels: int) -> NDArray[np.float64]:
    """Return the norm of each site's rows, all its channels together.

    Parameters
    ----------
    rows
        ``(channels * sites, columns)``.
    channels
        Number of channels.
    """
    return np.asarray(np.linalg.norm(rows.reshape(channels, -1, rows.shape[1]), axis=(0, 2)))
