"""Penalties on the rows of a matrix that leave few of them: their proximal operators and duals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "ExclusiveNorms", "GroupNorms", "RowPenalty", "SparseGroupNorms"]

Array = NDArray[np.float64]
_TINY = np.finfo(float).tiny
# Weight at which the path of an exclusive lasso begins, relative to the curvature of the loss: rows are then a
# hundredth of what the loss alone would have, and hardly any group has two sites.
_EXCLUSIVE_START = 1e2


@dataclass(frozen=True, eq=False)
class RowPenalty(ABC):
    r"""Base class: a convex penalty :math:`\Omega` of the rows of a matrix.

    Parameters
    ----------
    labels
        ``(rows,)``, the unit that each row belongs to. Units are what enters a solution: sites, or groups of sites.

    Attributes
    ----------
    step
        Factor from one weight of a path of solutions to the next.
    lowest
        Weight at which a path ends, relative to the first.
    """

    labels: NDArray[np.int64]
    step: ClassVar[float] = 0.9
    lowest: ClassVar[float] = 1e-3

    @property
    def n_units(self) -> int:
        """Number of units."""
        return int(self.labels.max()) + 1

    def norms(self, rows: Array) -> Array:
        """Frobenius norm of each unit's rows."""
        squares = np.einsum("ct,ct->c", rows, rows)
        return np.sqrt(np.bincount(self.labels, weights=squares, minlength=self.n_units))

    @abstractmethod
    def value(self, rows: Array) -> float:
        r"""Return :math:`\Omega` of the rows."""

    @abstractmethod
    def shrink(self, rows: Array, weight: float) -> Array:
        r"""Return the proximal operator :math:`\arg\min_A \tfrac12 \|A - R\|_F^2 + w\,\Omega(A)`."""

    @abstractmethod
    def excess(self, gradient: Array, rows: Array, alpha: float) -> Array:
        r"""Return by what share each unit breaks the condition under which it is zero at the minimum.

        Parameters
        ----------
        gradient
            Of the loss at ``rows``, with its sign changed.
        rows
            The rows, of which some units are zero.
        alpha
            Weight of the penalty.

        Returns
        -------
        ndarray
            ``(units,)``, at most 0 where a unit that is zero should be; without a meaning where one is not zero.
        """

    @abstractmethod
    def dual(self, gradient: Array, alpha: float) -> tuple[float, float]:
        r"""Return `limit` and `q` of the conjugate :math:`(\alpha\Omega)^*(cZ) = c^2 q / 2` up to `c = limit`.

        Beyond the limit it is infinite.
        """

    @abstractmethod
    def start(self, gradient: Array, curvature: float) -> float:
        """Return the weight at which a path begins.

        Parameters
        ----------
        gradient
            Of the loss at zero, with its sign changed.
        curvature
            Largest curvature of the loss.
        """

    @abstractmethod
    def among(self, rows: NDArray[np.int64]) -> Self:
        """Return the penalty of a few rows alone, all others being zero."""


@dataclass(frozen=True, eq=False)
class GroupNorms(RowPenalty):
    r"""Sum of the norms of groups, :math:`\Omega(A) = \sum_g w_g \|A_g\|_F`: the lasso and the group lasso.

    Parameters
    ----------
    labels
        The group of each row.
    weights
        `w`, ``(groups,)``.

    Examples
    --------
    >>> GroupNorms(np.array([0, 0, 1]), np.ones(2)).shrink(np.array([[3.0], [4.0], [1.0]]), 2.5).ravel()
    array([1.5, 2. , 0. ])
    """

    weights: Array

    def value(self, rows: Array) -> float:
        """Weighted sum of the norms."""
        return float(self.weights @ self.norms(rows))

    def shrink(self, rows: Array, weight: float) -> Array:
        """Shorten each group by its weight, or to zero."""
        return np.asarray(rows * _remaining(self.norms(rows), weight * self.weights)[self.labels, None])

    def dual_norms(self, gradient: Array) -> Array:
        """Smallest weight of the penalty at which each group stays zero, ``(groups,)``."""
        return np.asarray(self.norms(gradient) / self.weights)

    def excess(self, gradient: Array, rows: Array, alpha: float) -> Array:
        """Dual norm of each group over the weight, less one."""
        return self.dual_norms(gradient) / alpha - 1

    def dual(self, gradient: Array, alpha: float) -> tuple[float, float]:
        """Return the scale at which the dual norm is the weight; there is no quadratic term."""
        return alpha / max(float(self.dual_norms(gradient).max()), _TINY), 0.0

    def start(self, gradient: Array, curvature: float) -> float:
        """Return the smallest weight at which all is zero."""
        return float(self.dual_norms(gradient).max())

    def among(self, rows: NDArray[np.int64]) -> Self:
        """Return the penalty of a few groups, whose rows are given."""
        kept, labels = np.unique(self.labels[rows], return_inverse=True)
        return type(self)(labels, self.weights[kept])


@dataclass(frozen=True, eq=False)
class SparseGroupNorms(GroupNorms):
    r"""Norms of groups and of the sites in them, :math:`(1-\tau) \sum_g w_g \|A_g\|_F + \tau \sum_s \|A_s\|_F`.

    The proximal operator shortens the rows of each site by :math:`\tau`, then what is left of each group.

    Parameters
    ----------
    labels, weights
        As `GroupNorms` takes them.
    sites
        ``(rows,)``, the site of each row; all rows of a site are in one group.
    share
        :math:`\tau`, from 0 (group lasso) to 1 (lasso).

    References
    ----------
    Simon, Friedman, Hastie & Tibshirani (2013). A sparse-group lasso. J. Comput. Graph. Statist. 22.

    Examples
    --------
    >>> penalty = SparseGroupNorms(np.array([0, 0, 1]), np.ones(2), sites=np.arange(3), share=0.5)
    >>> penalty.shrink(np.array([[4.0], [1.0], [1.0]]), 2.0).ravel()
    array([2., 0., 0.])
    """

    sites: NDArray[np.int64]
    share: float

    def value(self, rows: Array) -> float:
        """Weighted sum of both kinds of norms."""
        return (1 - self.share) * super().value(rows) + self.share * float(_norms_of(self.sites, rows).sum())

    def shrink(self, rows: Array, weight: float) -> Array:
        """Shorten sites, then groups."""
        norms = _norms_of(self.sites, rows)
        within = rows * _remaining(norms, np.full(len(norms), weight * self.share))[self.sites, None]
        return super().shrink(within, weight * (1 - self.share))

    def dual_norms(self, gradient: Array) -> Array:
        r"""Solve :math:`\sum_s (\|Z_s\| - \nu\tau)_+^2 = (\nu (1-\tau) w_g)^2` for each group's :math:`\nu`.

        With norms in descending order, the first `m` exceed the root where the left side at :math:`\nu = \|Z_m\|/\tau`
        is smaller than the right; on them the equation is quadratic.
        """
        norms, tau = _norms_of(self.sites, gradient), self.share
        group = np.zeros(len(norms), np.int64)
        group[self.sites] = self.labels
        order = np.lexsort((-norms, group))
        norms, group = norms[order], group[order]
        first = np.searchsorted(group, np.arange(self.n_units))
        rank = np.arange(1, len(norms) + 1) - first[group]
        sums, squares = (_running(part, first, group) for part in (norms, np.square(norms)))
        bound = (1 - tau) * self.weights[group]
        exceeds = tau**2 * (squares - 2 * norms * sums + rank * np.square(norms)) < np.square(bound * norms)
        last = first + np.maximum(np.bincount(group, weights=exceeds, minlength=self.n_units).astype(int), 1) - 1
        inner, square = tau * sums[last], squares[last]
        root = np.square(inner) - (rank[last] * tau**2 - np.square(bound[last])) * square
        return np.asarray(square / np.maximum(inner + np.sqrt(np.maximum(root, 0.0)), _TINY))

    def among(self, rows: NDArray[np.int64]) -> Self:
        """Return the penalty of a few groups, whose rows are given."""
        kept, labels = np.unique(self.labels[rows], return_inverse=True)
        sites = np.unique(self.sites[rows], return_inverse=True)[1]
        return type(self)(labels, self.weights[kept], sites, self.share)


@dataclass(frozen=True, eq=False)
class ExclusiveNorms(RowPenalty):
    r"""Squared sums of the norms of a group's sites, :math:`\Omega(A) = \tfrac12 \sum_g (\sum_{s \in g} \|A_s\|)^2`.

    Sites of one group compete, and those of different groups do not. However large its weight, a group that explains
    anything keeps a site: a site is zero where the norm of its gradient is at most :math:`\alpha S_g`, with
    :math:`S_g = \sum_{s \in g} \|A_s\|`. So a path begins where nearly all groups have one, and goes over more
    orders of magnitude than that of a norm.

    Parameters
    ----------
    labels
        The site of each row.
    groups
        ``(sites,)``, the group of each site.

    References
    ----------
    Zhou, Jin & Hoi (2010). Exclusive lasso for multi-task feature selection. AISTATS. Campbell & Allen (2017). Within
    group variable selection through the exclusive lasso. Electron. J. Statist. 11.

    Examples
    --------
    >>> ExclusiveNorms(np.arange(3), groups=np.array([0, 0, 1])).shrink(np.array([[4.0], [1.0], [1.0]]), 1.0).ravel()
    array([2. , 0. , 0.5])
    """

    groups: NDArray[np.int64]
    step: ClassVar[float] = 0.5
    lowest: ClassVar[float] = 1e-8

    def value(self, rows: Array) -> float:
        """Half the squared sums."""
        return float(np.square(self._sums(rows)).sum()) / 2

    def shrink(self, rows: Array, weight: float) -> Array:
        r"""Shorten the sites of each group by :math:`w S_g`, where :math:`S_g` is the sum of what remains of them.

        With norms in descending order, :math:`S_g = \sum_{s \le m} \|R_s\| / (1 + w m)`, for the `m` at which it is
        largest.
        """
        norms = self.norms(rows)
        order = np.lexsort((-norms, self.groups))
        group = self.groups[order]
        first = np.searchsorted(group, np.arange(self._n_groups))
        rank = np.arange(1, len(norms) + 1) - first[group]
        sums = np.maximum.reduceat(_running(norms[order], first, group) / (1 + weight * rank), first)
        return np.asarray(rows * _remaining(norms, weight * sums[self.groups])[self.labels, None])

    def excess(self, gradient: Array, rows: Array, alpha: float) -> Array:
        """Norm of each site's gradient beyond the group's bound, relative to the largest of the group."""
        norms = self.norms(gradient)
        largest = np.maximum(self._largest(norms), _TINY)
        return np.asarray((norms - alpha * self._sums(rows)[self.groups]) / largest[self.groups])

    def dual(self, gradient: Array, alpha: float) -> tuple[float, float]:
        """Return no limit, and the sum over groups of the largest squared norm, over the weight."""
        return np.inf, float(np.square(self._largest(self.norms(gradient))).sum()) / alpha

    def start(self, gradient: Array, curvature: float) -> float:
        """Return a weight under which hardly any group has two sites."""
        return _EXCLUSIVE_START * curvature

    def among(self, rows: NDArray[np.int64]) -> Self:
        """Return the penalty of a few sites, whose rows are given."""
        kept, labels = np.unique(self.labels[rows], return_inverse=True)
        return type(self)(labels, np.unique(self.groups[kept], return_inverse=True)[1])

    @property
    def _n_groups(self) -> int:
        return int(self.groups.max()) + 1

    def _sums(self, rows: Array) -> Array:
        return np.asarray(np.bincount(self.groups, weights=self.norms(rows), minlength=self._n_groups), np.float64)

    def _largest(self, norms: Array) -> Array:
        largest = np.zeros(self._n_groups)
        np.maximum.at(largest, self.groups, norms)
        return largest


def _norms_of(labels: NDArray[np.int64], rows: Array) -> Array:
    """Norm of the rows with each label."""
    return np.sqrt(np.bincount(labels, weights=np.einsum("ct,ct->c", rows, rows)))


def _remaining(norms: Array, less: Array) -> Array:
    """Share of each norm that is left once it is reduced by so much, or to zero."""
    return np.asarray(1 - np.divide(less, norms, out=np.ones(len(norms)), where=norms > less))


def _running(values: Array, first: NDArray[np.int64], group: NDArray[np.int64]) -> Array:
    """Sums of the values up to each, within its group; groups follow each other."""
    sums = np.cumsum(values)
    return np.asarray(sums - (sums[first] - values[first])[group])
