"""Calibrate prediction intervals: by cross-fitting, or on samples that were held out anyway."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.core.run import Run
from keyhole.data.decorrelation import decorrelation_time_of
from keyhole.data.preparation import PreparedSamples
from keyhole.data.samples import Samples
from keyhole.data.scaler import Scaler
from keyhole.data.splits import Indices, folds
from keyhole.data.values import subset_stride
from keyhole.models.intervals import MOST_SAMPLES, HeldOut, Incomplete, PredictionIntervals
from keyhole.models.reconstructors.base import flat
from keyhole.plan.fitted import FittedModels

__all__ = ["calibrated", "cross_fitted", "held_out", "is_cross_fitted", "recalibrated", "refit_to"]

Refit = Callable[[Indices], FittedModels]

_FOLDS = 5
_FEWEST = 20  # samples; intervals from fewer would be guesses
_MOST_GAP = 0.05  # of the samples
_MOST_KERNEL_SAMPLES = 1500  # a method whose cost grows with the cube of the samples is not fitted five times to more
_INCOMPLETE = 40  # samples of each fold whose readings are taken away
_LEAST_WHOLE = 0.2  # share of the samples without missing readings from which the others are left out
_COUNTS = 6  # numbers of missing readings
_PATTERNS = 400  # of missing readings for each number of them, divided by K; each is one system of equations


def calibrated(
    measured: FittedModels, final: FittedModels, prepared: PreparedSamples, run: Run
) -> PredictionIntervals | None:
    """Return prediction intervals for models that are fitted to training and validation samples, or to training alone.

    Parameters
    ----------
    measured, final
        The models fitted to the training part; and closed forms refitted to training and validation parts.
    prepared
        The split samples.
    run
        Its seed orders samples that are no series.

    Returns
    -------
    PredictionIntervals or None
        None from too few samples.
    """
    samples, split = prepared.samples, prepared.split
    if is_cross_fitted(final, samples):
        return cross_fitted(final, samples, split.development, partial(refit_to, final, samples, run=run), run)
    return held_out(measured, samples, split.validation, run)


def recalibrated(
    measured: FittedModels, final: FittedModels, prepared: PreparedSamples, run: Run
) -> PredictionIntervals | None:
    """Return prediction intervals for models that are fitted to all samples.

    Parameters
    ----------
    measured
        The models that were scored, which have not seen the test part, and as networks not the validation part either.
    final
        The models fitted to all samples, perhaps at other sites.
    prepared
        The split samples.
    run
        Its seed orders samples that are no series.

    Returns
    -------
    PredictionIntervals or None
        None from too few samples.
    """
    samples, split = prepared.samples, prepared.split
    if is_cross_fitted(final, samples):
        return cross_fitted(final, samples, np.arange(len(samples)), partial(refit_to, final, samples, run=run), run)
    rows = split.test if measured.reconstructor.closed_form else np.concatenate([split.validation, split.test])
    return held_out(measured, samples, rows, run, local=np.array_equal(measured.indices, final.indices))


def is_cross_fitted(models: FittedModels, samples: Samples) -> bool:
    """Return whether models are cheap enough to fit five times: closed forms of samples in memory."""
    reconstructor = models.reconstructor
    few = reconstructor.any_size or len(samples) <= _MOST_KERNEL_SAMPLES
    return reconstructor.closed_form and few and not samples.is_large


def refit_to(models: FittedModels, samples: Samples, rows: Indices, run: Run) -> FittedModels:
    """Scale and fit closed forms anew, at the same sites and with the same hyperparameters, to some of the samples.

    Parameters
    ----------
    models
        Fitted models.
    samples, rows
        Samples in memory in the user's units, and the numbers of those to fit to.
    run
        Seed of random subsets.
    """
    part = samples.take(rows)
    scaling = Scaler.fit(part)
    scaled, sites = scaling.apply(part).impute(), models.candidates_in(samples)
    reconstructor = models.reconstructor.fit_fold(scaled, sites, run)
    covariance = scaled.reading_covariance(sites)
    return replace(models, scaling=scaling, reconstructor=reconstructor, covariance=covariance, intervals=None)


def cross_fitted(
    models: FittedModels, samples: Samples, rows: Indices, refit: Refit, run: Run
) -> PredictionIntervals | None:
    """Calibrate prediction intervals by cross-fitting, so that no sample is set aside for them.

    The samples are cut into five blocks, of a series with a gap of its decorrelation time; each block is reconstructed
    by models fitted to the others. Blocks to which nothing can be fitted (a climatology that lacks a month) are left
    out.

    Parameters
    ----------
    models
        Fitted to all of the samples, at the sites in question.
    samples
        Samples in memory in the user's units.
    rows
        Numbers of those that the models are fitted to.
    refit
        Fits such models to some of these samples, given their numbers.
    run
        Its seed orders samples that are no series.

    Returns
    -------
    PredictionIntervals or None
        None from too few samples.

    References
    ----------
    Barber, Candès, Ramdas & Tibshirani (2021). Predictive inference with the jackknife+. Annals of Statistics 49.
    """
    if len(rows) < _FEWEST:
        return None
    rows = _in_order(samples, rows, run)
    found = _Found(models, samples, kept=_evenly(samples, rows))
    for fit, out in folds(rows, _FOLDS, gap=_gap(samples, rows), groups=_groups(samples, rows)):
        try:
            fitted = refit(fit)
        except DataError:
            continue
        found.add(fitted, out)
    return found.intervals()


def held_out(
    models: FittedModels, samples: Samples, rows: Indices, run: Run, *, local: bool = True
) -> PredictionIntervals | None:
    """Calibrate prediction intervals on samples that the models were not fitted to.

    For networks and fields that stay in their file, which are not fitted several times.

    Parameters
    ----------
    models
        Fitted to other samples.
    samples
        Samples in the user's units; of many values an evenly spaced subset is used.
    rows
        Numbers of those that were held out, such as validation samples.
    run
        Its seed orders samples that are no series.
    local
        Whether the width may depend on the readings; not so if the intervals are for models at other sites.

    Returns
    -------
    PredictionIntervals or None
        None from too few samples.
    """
    if len(rows) < _FEWEST // 2:
        return None
    rows = _in_order(samples, rows, run)
    found = _Found(models, samples, kept=_evenly(samples, rows))
    for _, out in folds(rows, _FOLDS, groups=_groups(samples, rows)):
        found.add(models, out)
    return found.intervals(local=local)


class _Found:
    """Errors on held-out samples, fold by fold."""

    def __init__(self, models: FittedModels, samples: Samples, kept: Indices) -> None:
        self.models, self.samples, self.kept = models, samples, kept
        self.complete: list[HeldOut] = []
        self.incomplete: dict[int, list[Incomplete]] = defaultdict(list)
        self.columns = PredictionIntervals.columns(len(kept), samples.channels * len(samples.sites))
        self.rng = np.random.default_rng(0)

    def add(self, fitted: FittedModels, out: Indices) -> None:
        """Add the errors of models on the samples of a fold, with all readings and with some of them missing."""
        part, start = self.samples.panel(out[np.isin(out, self.kept)]), sum(len(one.folds) for one in self.complete)
        readings = fitted.readings_of(part)
        whole = np.flatnonzero(fitted.count_missing(readings) == 0)
        if _LEAST_WHOLE * len(part) <= len(whole) < len(part):  # missing readings would count twice
            part, readings = part.take(whole), readings[whole]
        errors = flat(part.values - fitted.reconstruct_samples(part))
        scaled = flat(fitted.scaled(readings, part.time))
        self.complete.append(HeldOut(scaled, errors, np.full(len(part), len(self.complete))))
        some = np.linspace(0, len(part) - 1, min(len(part), _INCOMPLETE)).astype(np.int64)
        part, truth = part.take(some), flat(part.values)[some][:, self.columns]
        for missing in np.unique(np.geomspace(1, fitted.k, _COUNTS).round().astype(int)).tolist():
            given = self._without(readings[some], missing)
            filled = fitted.scaled(given, part.time)
            estimate = fitted.reconstruct_columns(filled, part.time, part.covariates, self.columns)
            self.incomplete[missing].append(Incomplete(start + some, flat(filled), truth - estimate))

    def _without(self, readings: NDArray[np.floating], missing: int) -> NDArray[np.float64]:
        """Readings of which some are missing, in a few patterns."""
        given, k = np.array(readings, np.float64), readings.shape[1]
        patterns = [self.rng.permutation(k)[:missing] for _ in range(-(-_PATTERNS // k))]
        for row, pattern in zip(given, islice(cycle(patterns), len(given)), strict=True):
            row[pattern] = np.nan
        return given

    def intervals(self, *, local: bool = True) -> PredictionIntervals | None:
        """The intervals; None if nothing was held out."""
        if sum(len(one.folds) for one in self.complete) < _FEWEST // 2:
            return None
        complete = HeldOut(*(np.concatenate(parts) for parts in zip(*self.complete, strict=True)))
        incomplete = {
            missing: Incomplete(*(np.concatenate(parts) for parts in zip(*found, strict=True)))
            for missing, found in self.incomplete.items()
        }
        scale = self.models.error_scale.ravel()
        return PredictionIntervals.fit(complete, incomplete, scale=scale, series=self.samples.is_series, local=local)


def _in_order(samples: Samples, rows: Indices, run: Run) -> Indices:
    """Sample numbers in the order of time, or in random order where there is none."""
    if not samples.is_series:
        return run.generator("intervals").permutation(rows)
    return np.sort(rows) if samples.time is None else rows[np.argsort(samples.time[rows], kind="stable")]


def _evenly(samples: Samples, rows: Indices) -> Indices:
    """Evenly spaced ones of some samples, as many as methods take that need whole samples at once."""
    step = max(subset_stride((len(rows), *samples.shape[1:])), -(-len(rows) // MOST_SAMPLES))
    return rows[::step]


def _groups(samples: Samples, rows: Indices) -> NDArray[Any] | None:
    """Groups of samples that are held out together; None if there is one at most."""
    groups = None if samples.sample_groups is None else samples.sample_groups[rows]
    return None if groups is None or (groups == groups[0]).all() else groups


def _gap(samples: Samples, rows: Indices) -> int:
    """Number of samples between blocks that are fitted to and those that are held out."""
    if not samples.is_series:
        return 0
    taken = samples.take(rows)
    at_once = 1 if taken.time is None else len(rows) // len(np.unique(taken.time))
    return min(at_once * decorrelation_time_of(taken), int(_MOST_GAP * len(rows)))
