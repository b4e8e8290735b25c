"""The kernel of kernel ridge regression: its hyperparameters, its gradient and leave-one-out errors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError
from scipy.linalg.lapack import get_lapack_funcs

__all__ = ["Hyperparameters", "PairwiseKernel", "candidates", "inverse", "kernel", "leave_one_out", "scale_of"]

_WIDTHS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # relative to the median squared distance
_REGULARISATIONS = (1e-3, 1e-2, 1e-1, 3e-1)
_MIN_LEVEL = 1e-24  # of constant inputs; the smallest width that follows from it is a single-precision number
_LINEAR_WEIGHT = 0.3  # of the linear kernel; from 0 to 1 it made no difference on the data tried


class Hyperparameters(NamedTuple):
    """Hyperparameters of kernel ridge regression.

    Parameters
    ----------
    width
        Squared length scale `w` of the Matérn kernel, in squared units of the (standardised) inputs.
    level
        Scale of the linear kernel: the mean squared norm of the inputs.
    regularisation
        Regularisation strength `a`, the noise variance of the Gaussian process.
    standardised
        Whether inputs are standardised, each by its own standard deviation.
    """

    width: float
    level: float
    regularisation: float
    standardised: bool = False


class PairwiseKernel:
    r"""Kernel between two sets of inputs: Matérn of smoothness 3/2 plus linear.

    .. math:: k(r, r') = (1 + d)\, e^{-d} + 0.3\, r \cdot r' / \ell, \qquad d = \sqrt{3\, |r - r'|^2 / w}

    Parameters
    ----------
    first, second
        ``(n, d)`` and ``(m, d)``, in single or double precision.
    parameters
        Hyperparameters; the inputs are already standardised if they say so.

    References
    ----------
    Rasmussen & Williams (2006), *Gaussian Processes for Machine Learning*, section 4.2.

    Examples
    --------
    >>> inputs = np.array([[0.0], [1.0]])
    >>> PairwiseKernel(inputs, inputs, Hyperparameters(3.0, 0.3, 0.1)).matrix().round(3)
    array([[1.   , 0.736],
           [0.736, 2.   ]])
    """

    def __init__(self, first: NDArray[Any], second: NDArray[Any], parameters: Hyperparameters) -> None:
        self.parameters, self.inner = parameters, first @ second.T
        squares = np.square(first).sum(axis=1)[:, np.newaxis] + np.square(second).sum(axis=1) - 2 * self.inner
        self.distances: NDArray[Any] = np.maximum(squares, 0, out=squares)
        self.distances /= parameters.width / 3
        np.sqrt(self.distances, out=self.distances)

    def matrix(self) -> NDArray[Any]:
        """Return the kernel matrix, ``(n, m)``."""
        decay: NDArray[Any] = np.exp(-self.distances)
        decay *= 1 + self.distances
        decay += self.inner * (_LINEAR_WEIGHT / self.parameters.level)
        return decay

    def mean_slope(self) -> float:
        """Return the mean derivative of the kernel by an inner product of inputs, whose norms are fixed."""
        return float(
            3 / self.parameters.width * np.exp(-self.distances).mean() + _LINEAR_WEIGHT / self.parameters.level
        )

    def gradients(self, by_kernel: NDArray[Any], rows: slice, columns: slice) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the gradient of a function of the matrix by squared distances, and by inner products.

        Parameters
        ----------
        by_kernel
            Gradient by the entries of the matrix, for a subset of its rows and columns.
        rows, columns
            The subset.
        """
        slope = np.exp(-self.distances[rows, columns])
        slope *= -1.5 / self.parameters.width
        return by_kernel * slope, by_kernel * (_LINEAR_WEIGHT / self.parameters.level)


def kernel(first: NDArray[Any], second: NDArray[Any], parameters: Hyperparameters) -> NDArray[Any]:
    """Evaluate the kernel between two sets of inputs.

    Parameters
    ----------
    first, second, parameters
        As `PairwiseKernel` takes them.

    Returns
    -------
    ndarray
        Kernel matrix, ``(n, m)``.

    Examples
    --------
    >>> inputs = np.array([[0.0], [1.0], [2.0]])
    >>> kernel(inputs, inputs[:1], Hyperparameters(3.0, 1.0, 0.1)).round(3).ravel()
    array([1.   , 0.736, 0.406])
    """
    return PairwiseKernel(first, second, parameters).matrix()


def candidates(inputs: NDArray[np.float64]) -> Iterator[tuple[NDArray[np.float64], list[Hyperparameters]]]:
    """Iterate over candidate hyperparameters, with the inputs standardised or not.

    Widths are multiples of the median squared distance between inputs (the median heuristic).

    Parameters
    ----------
    inputs
        ``(n, d)``.

    Yields
    ------
    scaled : ndarray
        The inputs, standardised where the hyperparameters say so.
    parameters : list of Hyperparameters
        Of one width, with different regularisation: one kernel matrix serves them all.

    Examples
    --------
    >>> sum(len(parameters) for _, parameters in candidates(np.eye(4)))
    48
    """
    from scipy.spatial.distance import pdist

    for standardised in (False, True):
        scaled = inputs / scale_of(inputs, standardised)
        level = max(float(np.square(scaled).sum(axis=1).mean()), _MIN_LEVEL)
        median = float(np.median(pdist(scaled, "sqeuclidean"))) if len(scaled) > 1 else 0.0
        for width in _WIDTHS:
            of_level = partial(Hyperparameters, width * max(median, 1e-12 * level), level)
            yield scaled, [of_level(regularisation, standardised) for regularisation in _REGULARISATIONS]


def scale_of(inputs: NDArray[Any], standardised: bool) -> NDArray[np.float64]:
    """Return the divisors that standardise inputs.

    Parameters
    ----------
    inputs
        ``(n, d)``.
    standardised
        Whether to standardise at all; if not, all divisors are one.

    Returns
    -------
    ndarray
        Standard deviations, ``(d,)``; one for columns that vary by no more than the rounding of single precision.

    Examples
    --------
    >>> scale_of(np.array([[0.0, 5.0], [4.0, 5.0]]), standardised=True)
    array([2., 1.])
    """
    if not standardised:
        return np.ones(inputs.shape[1])
    deviation, size = inputs.std(axis=0), np.abs(inputs).max(axis=0, initial=0.0)
    return np.where(deviation > np.finfo(np.float32).eps * size, deviation, 1.0)


def inverse(gram: NDArray[Any], regularisation: float) -> NDArray[Any]:
    """Return `(K + a I)^-1` by the Cholesky factor, which takes half the time of a general inverse.

    Parameters
    ----------
    gram
        Kernel matrix `K`.
    regularisation
        `a`.

    Raises
    ------
    scipy.linalg.LinAlgError
        If the matrix is numerically singular.

    Examples
    --------
    >>> inverse(np.eye(2), regularisation=1.0)
    array([[0.5, 0. ],
           [0. , 0.5]])
    """
    factorise, invert = get_lapack_funcs(("potrf", "potri"), (gram,))
    regularised = gram + gram.dtype.type(regularisation) * np.eye(len(gram), dtype=gram.dtype)
    factor, failed = factorise(regularised, lower=1, clean=1, overwrite_a=1)
    if failed:
        raise LinAlgError("the kernel matrix is numerically singular")
    lower, _ = invert(factor, lower=1, overwrite_c=1)
    return np.asarray(np.tril(lower) + np.tril(lower, -1).T)


def leave_one_out(inverse_gram: NDArray[Any], targets: NDArray[Any]) -> NDArray[Any]:
    """Return the leave-one-out residuals: with `C = (K + a I)^-1`, that of sample i is `(C Y)_i / C_ii`.

    Parameters
    ----------
    inverse_gram
        `C`, ``(n, n)``.
    targets
        `Y`, ``(n, t)``.

    Returns
    -------
    ndarray
        ``(n, t)``.

    References
    ----------
    Rasmussen & Williams (2006), *Gaussian Processes for Machine Learning*, section 5.4.2.

    Examples
    --------
    >>> leave_one_out(inverse(np.eye(2), 1.0), np.array([[3.0], [1.0]])).ravel()  # of unrelated samples: all of them
    array([3., 1.])
    """
    return np.asarray(inverse_gram @ targets / np.diagonal(inverse_gram)[:, np.newaxis])
