"""Errors of quick predictions of a target from some sites, linear and non-linear, to compare sets of sites by."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError
from scipy.special import softmax

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.metrics import Ratio, target_ratios
from keyhole.models.kernels import Hyperparameters, inverse, kernel, leave_one_out
from keyhole.models.predictors import Linear, target_of
from keyhole.models.predictors.base import Standardiser
from keyhole.models.predictors.linear import calibration
from keyhole.models.subsets import random_subset
from keyhole.placement.baselines.supervised import extra_trees

__all__ = ["PREDICTIONS", "predicted_by_kernel", "predicted_by_trees", "prediction_errors"]

_TREES = 100
_SMOOTHING = 0.02  # of probabilities towards uniform: one sample that a model was too sure of must not decide
_MAX_SAMPLES = 2000  # of the kernel; with so many of MNIST it ordered sets of pixels as networks do, and trees did not
_MAX_TRIED = 500  # by which its hyperparameters are chosen
_WIDTHS, _REGULARISATIONS = (0.5, 2.0), (1e-2, 1e-1, 3e-1)  # relative to the median squared distance
_MIN_WIDTH = 1e-12  # of inputs that are all the same


def prediction_errors(
    train: ScaledSamples, validation: ScaledSamples, sites: NDArray[np.int64], models: Collection[str]
) -> dict[str, Ratio]:
    """Return the errors of predictions of a target: the log loss of a class, the unexplained variance of a number.

    Probabilities are mixed with 2 % of equal ones before: the log loss of a sample is then bounded, as comparisons need
    whose standard errors are estimated from few samples.

    Parameters
    ----------
    train, validation
        Scaled samples with a target, to fit to and to score on.
    sites
        Numbers of the sites; existing ones are observed in addition.
    models
        Names of models in `PREDICTIONS`.

    Returns
    -------
    dict of str to Ratio
        Error of each model, sample by sample in order of time, or group by group; without models that cannot be
        fitted.
    """
    sites = np.concatenate([train.existing, sites[~np.isin(sites, train.existing)]])
    order, groups = validation.order_in_time(), validation.sample_groups
    target = target_of(validation).take(order)
    name = "log_loss" if target.is_class else "fvu"
    expected = None if target.is_class else float(target_of(train).values.mean())
    errors = {}
    for model in models:
        prediction = PREDICTIONS[model](train, validation, sites)
        if prediction is not None:
            if target.is_class:
                prediction = (1 - _SMOOTHING) * prediction + _SMOOTHING / len(target.classes)
            error = target_ratios(target, prediction[order], expected)[name]
            errors[model] = error.over(None if groups is None else groups[order])
    return errors


def predicted_by_linear(
    train: ScaledSamples, validation: ScaledSamples, sites: NDArray[np.int64]
) -> NDArray[np.floating[Any]]:  # fmt: skip
    """Predict the target of the validation samples by `Linear`; parameters as for `predicted_by_trees`."""
    linear = Linear().fit(train, sites, validation=validation, run=Run())
    return linear.predict(validation.readings(sites))


def predicted_by_trees(
    train: ScaledSamples, validation: ScaledSamples, sites: NDArray[np.int64]
) -> NDArray[np.float64]:  # fmt: skip
    """Predict the target of the validation samples by extremely randomised trees.

    Parameters
    ----------
    train, validation
        Scaled samples with a target, to fit to and to predict.
    sites
        Numbers of the sites.

    Returns
    -------
    ndarray
        Probabilities ``(N, classes)``, or numbers ``(N,)``.
    """
    target = target_of(train)
    forest = extra_trees(train, _TREES, 0).fit(_rows(train, sites), target.values)
    if not target.is_class:
        return np.asarray(forest.predict(_rows(validation, sites)), np.float64)
    probabilities = np.full((len(validation), len(target.classes)), 1 / len(target.classes))
    probabilities[:, forest.classes_] = forest.predict_proba(_rows(validation, sites))
    return probabilities


def predicted_by_kernel(
    train: ScaledSamples, validation: ScaledSamples, sites: NDArray[np.int64]
) -> NDArray[np.float64] | None:
    """Predict the target of the validation samples by kernel ridge regression, on indicators of the classes.

    At most 2000 samples are used. Leave-one-out errors choose length scale and regularisation, of 500 of them, and
    calibrate the probabilities.

    Parameters
    ----------
    train, validation, sites
        As for `predicted_by_trees`.

    Returns
    -------
    ndarray or None
        As of `predicted_by_trees`; None where the kernel matrix is singular.
    """
    rows = random_subset(len(train), _MAX_SAMPLES, np.random.default_rng(0))
    standardiser, target = Standardiser.fit(_rows(train, sites)[rows]), target_of(train).take(rows)
    inputs, new = (standardiser.transform(_rows(part, sites)).astype(np.float64) for part in (train, validation))
    inputs = inputs[rows]
    columns = np.eye(len(target.classes))[target.values] if target.is_class else target.values[:, np.newaxis]
    mean = columns.mean(axis=0)
    try:
        parameters = _best(inputs, columns - mean)
        inverse_gram = inverse(kernel(inputs, inputs, parameters), parameters.regularisation)
    except LinAlgError:
        return None
    predicted = mean + kernel(new, inputs, parameters) @ (inverse_gram @ (columns - mean))
    if not target.is_class:
        return np.asarray(predicted[:, 0])
    left_out = columns - leave_one_out(inverse_gram, columns - mean)
    return np.asarray(softmax(calibration(left_out, target.values.astype(np.int64)) * predicted, axis=1))


PREDICTIONS: Mapping[str, Callable[[ScaledSamples, ScaledSamples, NDArray[np.int64]], NDArray[Any] | None]] = {
    "linear": predicted_by_linear, "trees": predicted_by_trees, "kernel": predicted_by_kernel,
}  # fmt: skip


def _best(inputs: NDArray[np.float64], columns: NDArray[np.float64]) -> Hyperparameters:
    """The hyperparameters with the smallest leave-one-out error on some of the samples."""
    some = slice(None, None, -(-len(inputs) // _MAX_TRIED))
    inputs, columns = inputs[some], columns[some]

    def error(parameters: Hyperparameters) -> float:
        inverse_gram = inverse(kernel(inputs, inputs, parameters), parameters.regularisation)
        return float(np.square(leave_one_out(inverse_gram, columns)).sum())

    return min(_hyperparameters(inputs), key=error)


def _hyperparameters(inputs: NDArray[np.float64]) -> Iterator[Hyperparameters]:
    """Candidate hyperparameters: multiples of the median squared distance."""
    from scipy.spatial.distance import pdist

    level = max(float(np.square(inputs).sum(axis=1).mean()), _MIN_WIDTH)
    median = max(float(np.median(pdist(inputs, "sqeuclidean"))) if len(inputs) > 1 else 0.0, _MIN_WIDTH * level)
    for width in _WIDTHS:
        for regularisation in _REGULARISATIONS:
            yield Hyperparameters(width * median, level, regularisation)


def _rows(samples: ScaledSamples, sites: NDArray[np.int64]) -> NDArray[np.floating]:
    return samples.readings(sites).reshape(len(samples), -1)
