"""Error metrics of reconstructions and predictions: the one place where an error is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.data.sites import Sites
from keyhole.data.target import Target

__all__ = ["ErrorAccumulator", "evaluate", "sharpness", "squared_error_map", "target_scores"]

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
    accumulator = ErrorAccumulator(sites, scale=scale, names=names)
    accumulator.add(truth, reconstructed, expected)
    return accumulator.scores(weights)


class ErrorAccumulator:
    """Accumulate squared errors over blocks of samples, for data larger than memory; see `evaluate`.

    Parameters
    ----------
    sites : Sites
        The m sites.
    scale : ndarray of shape (channels,), optional
        Standard deviations by which errors of each channel are divided.
    names : sequence of str
        Names of the channels, to score each of them as well.
    """

    def __init__(self, sites: Sites, *, scale: NDArray[np.float64] | None = None, names: Sequence[str] = ()) -> None:
        self.sites, self.scale, self.names = sites, scale, names
        self.error = self.spread = self.known = np.zeros((1, len(sites)))  # (channels, m) once there are samples

    def add(self, truth: NDArray[Any], reconstructed: NDArray[Any], expected: NDArray[Any]) -> None:
        """Add a block of samples; arrays as in `evaluate`."""
        self.error = self.error + _squares(truth, reconstructed)
        self.spread = self.spread + _squares(truth, expected)
        self.known = self.known + (~np.isnan(truth)).sum(axis=0)

    def __add__(self, other: ErrorAccumulator) -> ErrorAccumulator:
        """Return the sums over both sets of samples."""
        together = ErrorAccumulator(self.sites, scale=self.scale, names=self.names)
        for name in ("error", "spread", "known"):
            setattr(together, name, getattr(self, name) + getattr(other, name))
        return together

    def scores(self, weights: NDArray[np.float64] | None = None) -> dict[str, float]:
        """Return the metrics of all samples so far; see `evaluate`."""
        area = self.sites.area
        column = np.ones((1, 1)) if self.scale is None else np.square(self.scale)[:, np.newaxis]
        error, spread = ((squares / column).sum(axis=0) for squares in (self.error, self.spread))
        known = self.known.sum(axis=0)
        scores = {"mse": float(error.sum() / known.sum()), **_rmse_and_fvu(error, spread, known)}
        own = None if weights is None or (area is not None and np.array_equal(weights, area)) else weights
        for name, counts in (("_area", area), ("_weighted", own)):
            if counts is not None:
                scores |= _rmse_and_fvu(error * counts, spread * counts, known * counts, name)
        for channel, name in enumerate(self.names):
            error, spread, known = (part[channel] for part in (self.error, self.spread, self.known))
            scores |= _rmse_and_fvu(error, spread, known, f"[{name}]")
        return scores


def _rmse_and_fvu(
    error: NDArray[Any], spread: NDArray[Any], known: NDArray[Any], suffix: str = ""
) -> dict[str, float]:  # fmt: skip
    """Root mean squared error and fraction of variance unexplained, NaN where nothing is known."""
    rmse = _ratio(error.sum(), known.sum()) ** 0.5
    return {f"rmse{suffix}": rmse, f"fvu{suffix}": _ratio(error.sum(), spread.sum())}


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
    if target.is_class:
        return _class_scores(target, scores)
    _check_shape(target, scores, (len(target),))
    error = np.square(scores - target.values)
    spread = np.square(target.values - (target.values.mean() if expected is None else expected))
    mse = float(error.mean())
    return {"mse": mse, "rmse": mse**0.5, "fvu": _ratio(error.sum(), spread.sum())}


def _class_scores(target: Target, probabilities: NDArray[Any]) -> dict[str, float]:
    """Misclassification rate and log loss."""
    _check_shape(target, probabilities, (len(target), len(target.classes)))
    wrong = probabilities.argmax(axis=1) != target.values
    own = probabilities[np.arange(len(target)), target.values.astype(np.int64)]
    return {"error": float(wrong.mean()), "log_loss": float(-np.log(np.maximum(own, _SMALLEST)).mean())}


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
    counts = (~np.isnan(truth)).sum(axis=(0, 1))
    with np.errstate(invalid="ignore"):
        return np.asarray(_squares(truth, reconstructed).sum(axis=0) / counts)


def _squares(truth: NDArray[Any], other: NDArray[Any]) -> NDArray[np.float64]:
    """Squared errors summed over samples, ``(channels, m)``; missing truth counts as zero."""
    other = np.broadcast_to(other, truth.shape) if other.shape[:1] == (1,) else other
    if truth.shape != other.shape:
        raise DataError(f"fields of shape {truth.shape} cannot be compared with those of shape {other.shape}")
    squares = np.zeros(truth.shape[1:])
    for one, two in zip(truth, other, strict=True):
        squares += np.where(np.isnan(one), 0, np.square(np.subtract(one, two, dtype=np.float64)))
    return squares


def _ratio(part: np.float64, whole: np.float64) -> float:
    """Quotient, NaN where the denominator is zero."""
    return float(part / whole) if whole > 0 else float("nan")


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
