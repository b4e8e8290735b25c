"""Ridge regression from readings to the whole field, in closed form."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.principal_components import cached_gram
from keyhole.models.projection import Targets, probe_targets
from keyhole.models.reconstructors.base import Reconstructor, flat
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.models.regression import RidgeRegression, nested_squared_errors

__all__ = ["NestedRidge", "Ridge", "nested_errors", "ridge_strength"]


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
    any_size: ClassVar[bool] = True

    @property
    def strength(self) -> float:
        """The regularisation strength selected by leave-one-out error."""
        return self.chosen["strength"]

    def solve(self, train: ScaledSamples, sites: NDArray[np.int64], targets: Targets, run: Run) -> None:
        """Solve for the strength with the smallest leave-one-out error; see `LinearReconstructor.solve`."""
        products = cached_gram(train) if train.missing is None else None
        self._take(RidgeRegression(flat(train.readings(sites)), targets, products=products), len(sites))

    def fit_fold(self, train: ScaledSamples, sites: NDArray[np.int64], run: Run) -> Reconstructor:
        """Solve the normal equations for the strength of this one; see `Reconstructor.fit_fold`."""
        if train.missing is not None or train.is_large:
            return super().fit_fold(train, sites, run)
        readings, targets, fitted = flat(train.readings(sites)).astype(np.float64), flat(train.targets), self.clone()
        centre = readings.mean(axis=0)
        readings -= centre
        gram = readings.T @ readings + self.strength * np.eye(len(centre))
        fitted.weights = np.linalg.solve(gram, readings.T).astype(np.float32) @ targets
        fitted.offset = targets.mean(axis=0) - centre.astype(np.float32) @ fitted.weights
        fitted.channels, fitted.domain, fitted.chosen = train.channels, train.sites, dict(self.chosen)
        return fitted

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
    train
        Scaled samples.
    sites
        Numbers of the ranked sites, ``(K,)``.
    """

    def __init__(self, train: ScaledSamples, sites: NDArray[np.int64]) -> None:
        self.channels, self.domain = train.channels, train.sites
        self._regression = RidgeRegression(flat(train.readings(sites)), train, products=cached_gram(train))

    def first(self, count: int) -> Ridge:
        """Return the `Ridge` fitted to the first ``count`` sites."""
        ridge = Ridge()
        ridge.channels, ridge.domain = self.channels, self.domain
        return ridge._take(self._regression, count)


def ridge_strength(train: ScaledSamples, sites: NDArray[np.int64]) -> float:
    """Return the regularisation strength that `Ridge` selects, without a pass through large samples.

    Parameters
    ----------
    train
        Scaled samples.
    sites
        Numbers of the K sites.
    """
    if not train.is_large:
        return Ridge().fit(train, sites, validation=train, run=Run()).strength
    inputs = flat(train.readings(sites))
    return RidgeRegression(inputs, probe_targets(train)).best(inputs.shape[1]).strength


def nested_errors(
    train: ScaledSamples,
    scorer: ScaledSamples,
    sites: NDArray[np.int64],
    strength: float,
    scale: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Sum of squared errors on ``scorer`` of ridge fitted on ``train`` to the first 0, 1, ... K sites.

    Of large samples the errors are those at the sites of `ScaledSamples.probe`.

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
        (flat(part.readings(sites)).astype(np.float64), probe_targets(part) * np.repeat(unit, len(part.probe)))
        for part in (train, scorer)
    )
    return nested_squared_errors(fitted, scored, strength)[:: train.reading_channels]
