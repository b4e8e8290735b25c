"""The one place where an error is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.data.grid import Grid
from keyhole.data.target import Target

__all__ = ["ErrorAccumulator", "evaluate", "sharpness", "squared_error_map", "target_scores"]

_SMALLEST = 1e-15  # probability, so that one confident mistake does not make the log loss infinite


def evaluate(
    truth: NDArray[Any], reconstructed: NDArray[Any], expected: NDArray[Any], grid: Grid,
    weights: NDArray[np.float64] | None = None, *, scale: NDArray[np.float64] | None = None, names: Sequence[str] = (),
) -> dict[str, float]:  # fmt: skip
    """Score rebuilt signals.

    Parameters
    ----------
    truth, rebuilt, expected
        ``(N, channels, *grid)`` in the user's units: what was, what was rebuilt, and what is known without
        sensors (mean or climatology of the training block).
    grid
        Only its inside cells count.
    weights
        Of the grid's shape, how much each cell counts, if not all alike or by area.
    scale
        ``(channels,)``, what errors and deviations of each channel are divided by before channels are added up: their
        standard deviations, where their units differ.
    names
        Names of the channels, to score each by itself as well.

    Returns
    -------
    dict
        ``mse``, ``rmse``, and ``fvu``, the fraction of variance unexplained: the sum of squared errors over the
        sum of squared deviations from ``expected``. Cells count equally. Where the grid knows latitude,
        ``rmse_area`` and ``fvu_area`` weigh cells by their area as well; with weights, ``rmse_weighted`` and
        ``fvu_weighted`` weigh them by these. With names, ``rmse[name]`` and ``fvu[name]`` are those of one channel, in
        its own units.

    Examples
    --------
    >>> truth = np.array([[[0.0, 2.0]], [[4.0, 2.0]]])
    >>> evaluate(truth, truth + 1, np.full_like(truth, 2.0), Grid.plain((2,)))
    {'mse': 1.0, 'rmse': 1.0, 'fvu': 0.5}
    """
    tally = ErrorAccumulator(grid, scale=scale, names=names)
    tally.add(truth, reconstructed, expected)
    return tally.scores(weights)


class ErrorAccumulator:
    """Squared errors of samples that come some at a time, cell by cell, as `evaluate` needs them."""

    def __init__(
        self, grid: Grid, *, scale: NDArray[np.float64] | None = None, names: Sequence[str] = ()
    ) -> None:  # fmt: skip
        self.grid, self.scale, self.names = grid, scale, names
        self.error = self.spread = self.known = np.zeros((1, *grid.shape))  # (channels, *grid) once there are samples

    def add(self, truth: NDArray[Any], reconstructed: NDArray[Any], expected: NDArray[Any]) -> None:
        """Take more samples."""
        self.error = self.error + _squares(truth, reconstructed)
        self.spread = self.spread + _squares(truth, expected)
        self.known = self.known + (~np.isnan(truth)).sum(axis=0)

    def scores(self, weights: NDArray[np.float64] | None = None) -> dict[str, float]:
        """Score all samples so far; see `evaluate`."""
        inside = self.grid.inside
        column = np.ones(1) if self.scale is None else np.square(self.scale)
        error, spread = (
            (squares[:, inside] / column[:, np.newaxis]).sum(axis=0) for squares in (self.error, self.spread)
        )
        known = self.known[:, inside].sum(axis=0)
        mse = float(error.sum() / known.sum())
        scores = {"mse": mse, "rmse": mse**0.5, "fvu": _ratio(error.sum(), spread.sum())}
        area = self.grid.area()
        own = None if weights is None or (area is not None and np.array_equal(weights, area)) else weights
        for name, counts in (("area", area), ("weighted", own)):
            if counts is not None:
                weight = counts[inside]
                scores[f"rmse_{name}"] = float(np.sqrt((error * weight).sum() / (known * weight).sum()))
                scores[f"fvu_{name}"] = _ratio((error * weight).sum(), (spread * weight).sum())
        return scores | self._by_channel()

    def _by_channel(self) -> dict[str, float]:
        """Score each channel that has a name by itself, in its own units."""
        scores = {}
        for channel, name in enumerate(self.names):
            error, spread, known = (
                part[channel][self.grid.inside].sum() for part in (self.error, self.spread, self.known)
            )
            scores[f"rmse[{name}]"] = float(np.sqrt(error / known)) if known else float("nan")
            scores[f"fvu[{name}]"] = _ratio(error, spread)
        return scores


def target_scores(target: Target, scores: NDArray[Any], expected: float | None = None) -> dict[str, float]:
    """Score what was told of a target.

    Parameters
    ----------
    scores
        Probabilities ``(N, classes)`` of a class, or numbers ``(N,)`` in the user's units.
    expected
        What is known of a number without sensors, the mean of the training part; None for the mean of ``target``.

    Returns
    -------
    dict
        Of a class, ``error``, the share of samples whose likeliest class is another, and ``log_loss``, the mean of
        `-log p` of the true class. Of a number, ``mse``, ``rmse`` and ``fvu``.

    Examples
    --------
    >>> target = Target.of(["rain", "sun", "sun"])
    >>> target_scores(target, np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]))["error"]
    0.3333333333333333
    """
    if target.is_class:
        return _class_scores(target, scores)
    _check_told(target, scores, (len(target),))
    error = np.square(scores - target.values)
    spread = np.square(target.values - (target.values.mean() if expected is None else expected))
    mse = float(error.mean())
    return {"mse": mse, "rmse": mse**0.5, "fvu": _ratio(error.sum(), spread.sum())}


def _class_scores(target: Target, probabilities: NDArray[Any]) -> dict[str, float]:
    _check_told(target, probabilities, (len(target), len(target.classes)))
    wrong = probabilities.argmax(axis=1) != target.values
    own = probabilities[np.arange(len(target)), target.values.astype(np.int64)]
    return {"error": float(wrong.mean()), "log_loss": float(-np.log(np.maximum(own, _SMALLEST)).mean())}


def _check_told(target: Target, scores: NDArray[Any], shape: tuple[int, ...]) -> None:
    if scores.shape != shape:
        raise DataError(f"target {target.name!r}: what was told has shape {scores.shape}, and {shape} is needed")


def squared_error_map(truth: NDArray[Any], reconstructed: NDArray[Any], grid: Grid) -> NDArray[np.float64]:
    """Mean squared error of each cell over samples and channels; NaN outside, and where no truth is known."""
    counts = (~np.isnan(truth)).sum(axis=(0, 1))
    with np.errstate(invalid="ignore"):
        return np.where(grid.inside, _squares(truth, reconstructed).sum(axis=0) / counts, np.nan)


def _squares(truth: NDArray[Any], other: NDArray[Any]) -> NDArray[np.float64]:
    """Squared errors ``(channels, *grid)``, summed over samples; NaN where nothing was rebuilt of what is known."""
    if truth.shape != other.shape:
        raise DataError(f"signals of shape {truth.shape} cannot be compared with those of shape {other.shape}")
    squares = np.zeros(truth.shape[1:])
    for one, two in zip(truth, other, strict=True):
        squares += np.where(np.isnan(one), 0, np.square(np.subtract(one, two, dtype=np.float64)))
    return squares


def _ratio(part: np.float64, whole: np.float64) -> float:
    return float(part / whole) if whole > 0 else float("nan")


def sharpness(truth: NDArray[Any], reconstructed: NDArray[Any]) -> float:
    r"""How sharp what was rebuilt is: its steps between neighbouring cells over those of the truth, 1 is as sharp.

    .. math:: \frac{\sum_a \mathrm{mean}\,|\Delta_a \hat x|}{\sum_a \mathrm{mean}\,|\Delta_a x|}

    with the difference :math:`\Delta_a` along axis `a` of the grid, in signals ``(N, channels, *grid)``. A blurred
    reconstruction is below 1.

    Examples
    --------
    >>> sharpness(np.array([[[0.0, 2.0, 0.0]]]), np.array([[[0.0, 1.0, 0.0]]]))
    0.5
    """
    steps = [[float(np.abs(np.diff(x, axis=axis)).mean()) for axis in range(2, x.ndim)] for x in (truth, reconstructed)]
    return sum(steps[1]) / max(sum(steps[0]), np.finfo(float).tiny)
