"""Ridge regression from readings to the whole field, in closed form."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.samples import ScaledSamples
from keyhole.data.sites import Sites
from keyhole.models.principal_components import cached_gram
from keyhole.models.reconstructors.base import flat
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.models.regression import RidgeRegression, nested_squared_errors

__all__ = ["NestedRidge", "Ridge", "nested_errors"]


class Ridge(LinearReconstructor):
    """Ridge regression `x = mean + (r - mean_r) B`, `B = (R'R + a I)^-1 R'X`.

    `R` are the centred readings of the training samples and `X` their centred fields. The regularisation strength `a`
    minimises the leave-one-out error, which the singular value decomposition `R = U S V'` gives for every strength at
    once: with leverage `h_i`, the leave-one-out residual of sample `i` is `e_i / (1 - h_i)` (PRESS). Constant and
    duplicate sites are harmless.

    The fastest reconstructor and the default linear one. With fewer samples than sites' correlations need, prefer
    `OptimalInterpolation`, which localises the covariance; for non-linear relations prefer `Kernel` or `Residual`.

    References
    ----------
    Hoerl & Kennard (1970), *Ridge regression: biased estimation for nonorthogonal problems*. Allen (1974), *The
    relationship between variable selection and data augmentation and a method for prediction* (PRESS).

    Examples
    --------
    >>> import numpy as np
    >>> import keyhole as kh
    >>> from keyhole.core.run import Run
    >>> rng = np.random.default_rng(0)
    >>> fields = np.tensordot(rng.normal(size=(60, 2)), rng.normal(size=(2, 5, 5)), axes=1)  # rank 2
    >>> samples, sites = kh.read(fields.astype(np.float32)).as_scaled(), np.array([3, 12])
    >>> ridge = Ridge().fit(samples, sites, validation=samples, run=Run())
    >>> estimate = ridge.reconstruct(samples.readings(sites))
    >>> estimate.shape, bool(np.allclose(estimate, samples.values, atol=1e-4))
    ((60, 1, 25), True)
    """

    name: ClassVar[str] = "ridge"

    @property
    def strength(self) -> float:
        """The regularisation strength selected by leave-one-out error."""
        return self.chosen["strength"]

    def solve(self, train: ScaledSamples, sites: NDArray[np.int64], targets: NDArray[Any], run: Run) -> None:
        """Solve for the strength with the smallest leave-one-out error; see `LinearReconstructor.solve`."""
        products = cached_gram(train) if train.missing is None else None
        self._take(RidgeRegression(flat(train.readings(sites)), lambda: [targets], products=products), len(sites))

    def _take(self, regression: RidgeRegression, count: int) -> Self:
        """Adopt the regression on the first ``count`` sites."""
        strength, self.offset, self.weights, _ = regression.best(count * self.channels)
        self.chosen = {"strength": strength}
        return self


class NestedRidge:
    """Ridge on the first 1, 2, ... sites of a ranking, at little more than the cost of the largest.

    All of them share one decomposition (see `RidgeRegression`). For samples without missing values.

    Parameters
    ----------
    readings
        Scaled readings of the ranked sites, ``(N, K, channels)``.
    targets
        Called to iterate over blocks ``(n, channels * m)`` of consecutive samples, which need not fit in
        memory; see `RidgeRegression`.
    domain
        The sites of the samples.
    products
        Gram matrix of the centred targets, if it is available.
    """

    def __init__(
        self, readings: NDArray[Any], targets: Callable[[], Iterable[NDArray[Any]]], domain: Sites,
        *, products: NDArray[np.float64] | None = None,
    ) -> None:  # fmt: skip
        self.channels, self.domain = readings.shape[2], domain
        self._regression = RidgeRegression(flat(readings), targets, products=products)

    @classmethod
    def of(cls, train: ScaledSamples, sites: NDArray[np.int64]) -> Self:
        """Fit to samples in memory; ``sites`` are numbers of sites by rank, ``(K,)``."""
        targets = flat(train.targets)
        return cls(train.readings(sites), lambda: [targets], train.sites, products=cached_gram(train))

    def first(self, count: int) -> Ridge:
        """Return the `Ridge` fitted to the first ``count`` sites."""
        ridge = Ridge()
        ridge.channels, ridge.domain = self.channels, self.domain
        return ridge._take(self._regression, count)


def nested_errors(
    train: ScaledSamples,
    scorer: ScaledSamples,
    sites: NDArray[np.int64],
    strength: float,
    scale: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Sum of squared errors on ``scorer`` of ridge fitted on ``train`` to the first 0, 1, ... K sites.

    Parameters
    ----------
    train, scorer
        Scaled samples to fit on and to score on.
    sites
        Numbers of the ranked sites, ``(K,)``.
    strength
        The regularisation strength, the same for every number of sites.
    scale
        ``(channels,)``, factors that bring each channel to its own unit before errors are summed; None for errors of
        the scaled samples.

    Returns
    -------
    ndarray
        ``(K + 1,)``; the first is the error of the training mean.
    """
    unit = np.ones(train.channels) if scale is None else scale
    fitted, scored = (
        (flat(part.readings(sites)).astype(np.float64), flat(part.targets * unit[:, np.newaxis]))
        for part in (train, scorer)
    )
    return nested_squared_errors(fitted, scored, strength)[:: train.channels]
