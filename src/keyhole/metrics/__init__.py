"""Error metrics of reconstructions and predictions: the one place where an error is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.data.sites import Sites
from keyhole.data.target import Target
from keyhole.metrics.bootstrap import Ratio, difference_error, standard_errors
from keyhole.metrics.choice import choose, is_better, simplest

__all__ = [
    "ErrorAccumulator",
    "Ratio",
    "choose",
    "confusion_matrix",
    "difference_error",
    "evaluate",
    "is_better",
    "sharpness",
    "simplest",
    "squared_error_map",
    "standard_errors",
    "target_ratios",
    "target_scores",
]

_BLOCK = 1_000_000  # values whose errors are computed at a time

_SMALLEST = 1e-15  # probability, so that the log loss stays finite


def evaluate(
    truth: NDArray[Any], reconstructed: NDArray[Any], expected: NDArray[Any], sites: Sites,
    weights: NDArray[np.float64] | None = None, *, scale: NDArray[np.float64] | None = None, names: Sequence[str] = (),
) -> dict[str, float]:  # fmt: skip
    """Score reconstructed fields.

    Parameters
    ----------
    truth, reconstructed, expected : ndarray of shape (N, channels, m)
        True values (NaN where missing), reconstructions, and the prediction without sensors (mean or climatology of the
        training part), in the user's units.
    sites : Sites
        The m sites.
    weights : ndarray of shape (m,), optional
        Loss weights, if they are neither uniform nor the area.
    scale : ndarray of shape (channels,), optional
        Standard deviations by which errors of each channel are divided before they are averaged over channels of
        different units.
    names : sequence of str
        Names of the channels, to score each of them as well.

    Returns
    -------
    dict of str to float
        ``mse``, ``rmse``, and ``fvu``, the fraction of variance unexplained: the sum of squared errors over the sum of
        squared deviations from ``expected``, with uniform weights. ``rmse_area`` and ``fvu_area`` are weighted by area
        if the areas of the sites are known, ``rmse_weighted`` and ``fvu_weighted`` by ``weights``. ``rmse[name]`` and
        ``fvu[name]`` are those of one channel, in its own units.

    Examples
    --------
    >>> truth = np.array([[[0.0, 2.0]], [[4.0, 2.0]]])
    >>> evaluate(truth, truth + 1, np.full_like(truth, 2.0), Sites.plain((2,)))
    {'mse': 1.0, 'rmse': 1.0, 'fvu': 0.5}
    """
    accumulator = ErrorAccumulator(sites, weights, scale=scale, names=names)
    accumulator.add(truth, reconstructed, expected)
    return accumulator.scores()


class ErrorAccumulator:
    """Accumulate squared errors over blocks of samples, for data larger than memory; see `evaluate`.

    A few sums over the sites of each sample are kept, by which the metrics have standard errors.

    Parameters
    ----------
    sites : Sites
        The m sites.
    weights : ndarray of shape (m,), optional
        Loss weights, if they are neither uniform nor the area.
    scale : ndarray of shape (channels,), optional
        Standard deviations by which errors of each channel are divided.
    names : sequence of str
        Names of the channels, to score each of them as well.
    spread : ndarray of shape (m,), optional
        Standard deviations by which the errors of each site are divided, such as those of the columns of a table.
    """

    def __init__(
        self, sites: Sites, weights: NDArray[np.float64] | None = None,
        *, scale: NDArray[np.float64] | None = None, names: Sequence[str] = (),
        spread: NDArray[np.float64] | None = None,
    ) -> None:  # fmt: skip
        self.sites, self.weights, self.scale, self.names = sites, weights, scale, names
        self._unit = np.ones(1) if spread is None else spread
        area = sites.area
        own = None if weights is None or (area is not None and np.array_equal(weights, area)) else weights
        weightings = {"": np.ones(len(sites)), "_area": area, "_weighted": own}
        self._weightings = {suffix: one for suffix, one in weightings.items() if one is not None}
        self._sums: list[NDArray[np.float64]] = []  # (n, weightings, channels, 3): of error, spread, and what is known

    def add(self, truth: NDArray[Any], reconstructed: NDArray[Any], expected: NDArray[Any]) -> None:
        """Add a block of samples; arrays as in `evaluate`."""
        step = max(1, _BLOCK // max(1, truth[0].size))
        for start in range(0, len(truth), step):
            rows = slice(start, start + step)
            pairs = [(truth[rows], _like(truth, other)[rows]) for other in (reconstructed, expected)]
            parts = [_squared(*pair) / np.square(self._unit) for pair in pairs]
            parts.append((~np.isnan(truth[rows])).astype(np.float64))
            sums = [[np.einsum("ncm,m->nc", part, one) for part in parts] for one in self._weightings.values()]
            self._sums.append(np.array(sums).transpose(2, 0, 3, 1))

    def __add__(self, other: ErrorAccumulator) -> ErrorAccumulator:
        """Return the sums over the samples of this one, then those of the other."""
        together = ErrorAccumulator(self.sites, self.weights, scale=self.scale, names=self.names, spread=self._unit)
        together._sums = [*self._sums, *other._sums]
        return together

    def ratios(self, order: NDArray[np.int64] | None = None) -> dict[str, Ratio]:
        """Return the metrics of all samples so far by name, as ratios of sums over samples; see `evaluate`.

        Parameters
        ----------
        order : ndarray of int, optional
            The order of the samples in time, if they were not added in it.
        """
        sums = np.concatenate(self._sums)
        sums = sums if order is None else sums[order]
        unit = np.ones((sums.shape[2], 3))
        unit[:, :2] = 1.0 if self.scale is None else 1 / np.square(self.scale)[:, np.newaxis]
        pooled = (sums * unit).sum(axis=2)
        found = {"mse": Ratio(pooled[:, 0, 0], pooled[:, 0, 2])}
        for weighting, suffix in enumerate(self._weightings):
            found |= _rmse_and_fvu(pooled[:, weighting], suffix)
        for channel, name in enumerate(self.names):
            found |= _rmse_and_fvu(sums[:, 0, channel], f"[{name}]")
        return found

    def scores(self) -> dict[str, float]:
        """Return the metrics of all samples so far; see `evaluate`."""
        return {name: ratio.value for name, ratio in self.ratios().items()}


def _rmse_and_fvu(sums: NDArray[np.float64], suffix: str) -> dict[str, Ratio]:
    """Root mean squared error and fraction of variance unexplained, from error, spread and what is known."""
    error, spread, known = sums.T
    return {f"rmse{suffix}": Ratio(error, known, root=True), f"fvu{suffix}": Ratio(error, spread)}


def target_scores(target: Target, scores: NDArray[Any], expected: float | None = None) -> dict[str, float]:
    r"""Score predictions of a target.

    Parameters
    ----------
    target : Target
        True classes or numbers.
    scores : ndarray of shape (N, classes) or (N,)
        Class probabilities, or numbers in the user's units.
    expected : float, optional
        Prediction of a number without sensors, the mean of the training part; None: the mean of ``target``.

    Returns
    -------
    dict of str to float
        For classes ``error``, the misclassification rate, and ``log_loss``, the mean of :math:`-\log p` of the true
        class (probabilities below 1e-15 are clipped). For numbers ``mse``, ``rmse`` and ``fvu``.

    Raises
    ------
    DataError
        If the shape does not match the target.

    Examples
    --------
    >>> target = Target.of(["rain", "sun", "sun"])
    >>> target_scores(target, np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))["error"]
    0.3333333333333333
    """
    return {name: ratio.value for name, ratio in target_ratios(target, scores, expected).items()}


def target_ratios(target: Target, scores: NDArray[Any], expected: float | None = None) -> dict[str, Ratio]:
    """Return the scores of predictions by name, as ratios of sums over samples; see `target_scores`."""
    if target.is_class:
        return _class_ratios(target, scores)
    _check_shape(target, scores, (len(target),))
    error = np.square(scores - target.values)
    spread = np.square(target.values - (target.values.mean() if expected is None else expected))
    one = np.ones(len(target))
    return {"mse": Ratio(error, one), "rmse": Ratio(error, one, root=True), "fvu": Ratio(error, spread)}


def _class_ratios(target: Target, probabilities: NDArray[Any]) -> dict[str, Ratio]:
    """Misclassification rate and log loss."""
    _check_shape(target, probabilities, (len(target), len(target.classes)))
    wrong, one = (probabilities.argmax(axis=1) != target.values).astype(np.float64), np.ones(len(target))
    own = probabilities[np.arange(len(target)), target.values.astype(np.int64)]
    return {"error": Ratio(wrong, one), "log_loss": Ratio(-np.log(np.maximum(own, _SMALLEST)), one)}


def confusion_matrix(target: Target, probabilities: NDArray[Any]) -> NDArray[np.int64]:
    """Count the samples of each true class (rows) by the class that is predicted for them (columns).

    Parameters
    ----------
    target : Target
        True classes.
    probabilities : ndarray of shape (N, classes)
        Predicted ones; the most probable class counts.

    Returns
    -------
    ndarray of int, shape (classes, classes)

    Raises
    ------
    DataError
        If the shape does not match the target, or this is a number.

    Examples
    --------
    >>> target = Target.of(["rain", "sun", "sun"])
    >>> confusion_matrix(target, np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])).tolist()
    [[1, 0], [1, 1]]
    """
    count = len(target.classes)
    _check_shape(target, probabilities, (len(target), count))
    cells = target.values.astype(np.int64) * count + probabilities.argmax(axis=1)
    return np.bincount(cells, minlength=count * count).reshape(count, count)


def _check_shape(target: Target, scores: NDArray[Any], shape: tuple[int, ...]) -> None:
    """Raise a DataError unless predictions have the right shape."""
    if scores.shape != shape:
        raise DataError(f"target {target.name!r}: predictions have shape {scores.shape}, and {shape} is needed")


def squared_error_map(truth: NDArray[Any], reconstructed: NDArray[Any]) -> NDArray[np.float64]:
    """Return the mean squared error of each site over samples and channels.

    Parameters
    ----------
    truth, reconstructed : ndarray of shape (N, channels, m)
        True values (NaN where missing) and reconstructions.

    Returns
    -------
    ndarray of shape (m,)
        NaN where the truth is always missing.
    """
    counts, squares = (~np.isnan(truth)).sum(axis=(0, 1)), np.zeros(truth.shape[1:])
    for one, two in zip(truth, _like(truth, reconstructed), strict=True):
        squares += _squared(one, two)
    with np.errstate(invalid="ignore"):
        return np.asarray(squares.sum(axis=0) / counts)


def _squared(truth: NDArray[Any], other: NDArray[Any]) -> NDArray[np.float64]:
    """Squared errors; missing truth counts as zero."""
    return np.where(np.isnan(truth), 0.0, np.square(np.subtract(truth, other, dtype=np.float64)))


def _like(truth: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
    """One field for all samples, or one for each, as one for each."""
    other = np.broadcast_to(other, truth.shape) if other.shape[:1] == (1,) else other
    if truth.shape != other.shape:
        raise DataError(f"fields of shape {truth.shape} cannot be compared with those of shape {other.shape}")
    return other


def sharpness(truth: NDArray[Any], reconstructed: NDArray[Any]) -> float:
    r"""Return the sharpness of reconstructions: their mean absolute gradient relative to that of the truth.

    .. math:: \frac{\sum_a \mathrm{mean}\,|\Delta_a \hat x|}{\sum_a \mathrm{mean}\,|\Delta_a x|}

    with the difference :math:`\Delta_a` between neighbours along axis `a` of the grid. It is 1 for a reconstruction as
    sharp as the truth, and below 1 for a blurred one, which a low mean squared error does not reveal.

    Parameters
    ----------
    truth, reconstructed : ndarray of shape (N, channels, *grid)
        Without missing values.

    Returns
    -------
    float

    Examples
    --------
    >>> sharpness(np.array([[[0.0, 2.0, 0.0]]]), np.array([[[0.0, 1.0, 0.0]]]))
    0.5
    """
    steps = [[float(np.abs(np.diff(x, axis=axis)).mean()) for axis in range(2, x.ndim)] for x in (truth, reconstructed)]
    return sum(steps[1]) / max(sum(steps[0]), np.finfo(float).tiny)
