"""The scorer: the validation error of a set of sites, by models fitted on the training samples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.metrics import Ratio, is_better, target_ratios
from keyhole.models.blocks_in_turn import BlocksInTurn
from keyhole.models.predictors import Linear, target_of
from keyhole.models.reconstructors.base import Reconstructor
from keyhole.models.reconstructors.errors import unexplained
from keyhole.models.reconstructors.linear import LinearReconstructor
from keyhole.models.reconstructors.model_selection import fit_linear
from keyhole.models.reconstructors.optimal_interpolation import OptimalInterpolation
from keyhole.models.reconstructors.ridge import Ridge
from keyhole.models.reconstructors.short_trainings import N_FREQUENCIES, STEPS, affordable_steps, error_by_trial
from keyhole.placement.base import Selector, subsample
from keyhole.placement.kernel_surrogate import MAX_SCORING, FitScoreSplit, KernelSurrogate
from keyhole.placement.target_predictions import predicted_by_kernel, predicted_by_trees

__all__ = ["Scorer"]

_MAX_SAMPLES = 10_000
_MIN_STEPS = 80  # of training, that distinguish sets of sites whose difference matters


class Scorer:
    """Validation error of a set of sites, sample by sample; each set is scored once.

    Without a target it is the unexplained variance of ridge or optimal interpolation, whichever is lower; with
    ``nonlinear``, that of kernel ridge regression (`KernelSurrogate`) where it is lower by more than one standard
    error. With a target it is the log loss of a class or the unexplained variance of a number, by a linear predictor,
    extra trees or kernel ridge regression, whichever is lowest; existing sites are observed in addition. At most 10000
    samples are used, of large
    ones the errors are those at the sites of `ScaledSamples.probe`, and the hyperparameters for covariates are chosen
    once, for the first sites.

    Parameters
    ----------
    train, validation
        Scaled samples.
    run
        Its seed determines the subsample.
    nonlinear
        Whether the field may be reconstructed by kernel ridge regression, which takes seconds.

    Attributes
    ----------
    is_nonlinear
        Whether kernel ridge regression was clearly better for any of the sites scored so far.

    Examples
    --------
    >>> import keyhole as kh
    >>> values = np.random.default_rng(0).normal(size=(80, 2)) @ [[1, 1, 1, 0], [0, 0, 0, 1]]
    >>> samples = kh.read(values).as_scaled()
    >>> scorer = Scorer(samples, samples, Run())
    >>> scorer(np.array([0, 3])) < scorer(np.array([0, 1]))
    True
    """

    def __init__(self, train: ScaledSamples, validation: ScaledSamples, run: Run, *, nonlinear: bool = False) -> None:
        self._all_samples, self._run = (train, validation), run
        most = MAX_SCORING if nonlinear else _MAX_SAMPLES  # both errors are then those of the same samples
        self.train = subsample(train, _MAX_SAMPLES, run, "samples to score by")
        self.validation = subsample(validation, most, run, "samples to score by")
        self.nonlinear, self.is_nonlinear = nonlinear, False
        self._errors: dict[frozenset[int], Ratio] = {}
        self._covariate_choices: dict[str, float] = {}
        self._split: FitScoreSplit | None = None

    def __call__(self, sites: NDArray[np.int64]) -> float:
        """Return the error for the sites (numbers of sites); lower is better."""
        return self.error(sites).value

    def error(self, sites: NDArray[np.int64]) -> Ratio:
        """Return the error for the sites (numbers of sites), sample by sample in order of time."""
        key = frozenset(sites.tolist())
        if key not in self._errors:
            self._errors[key] = self._field_error(sites) if self.train.target is None else self._target_error(sites)
        return self._errors[key]

    def in_turn(
        self, selectors: Sequence[Selector], k: int, run: Run, reconstructor: Reconstructor | None = None
    ) -> list[Ratio] | None:
        """Return the error of each selector with blocks of all samples left out in turn; see `BlocksInTurn`.

        Each selects sites anew on the samples that are fitted to, so that it is the selector that is scored, and not
        one set of sites.

        Parameters
        ----------
        selectors
            Selectors that are quick (`Selector.in_turn`).
        k
            Number of sites.
        run
            Seed and deadline.
        reconstructor
            A closed form, cloned and fitted each time; None: ridge or optimal interpolation, whichever is better.

        Returns
        -------
        list of Ratio or None
            None where samples are not few, or have a target.
        """
        blocks = None if self.train.target is not None else BlocksInTurn.of(*self._all_samples, self._run)
        if blocks is None:
            return None

        def error(selector: Selector, fit: ScaledSamples, left_out: ScaledSamples) -> Ratio:
            sites = selector.select(fit, k, validation=None, run=run).sites
            if reconstructor is None:
                return self._linear_error(sites, fit, left_out)
            fitted = reconstructor.clone().fit(fit, sites, validation=left_out, run=Run())
            return unexplained(fitted, sites, left_out)

        return [blocks.error(partial(error, selector)) for selector in selectors]

    def by_network(self, site_sets: Sequence[NDArray[np.int64]], run: Run) -> list[Ratio]:
        """Return the unexplained variance of a briefly trained network, for each set of sites.

        The network is trained on the residual of ridge or optimal interpolation, for 200 steps on each set; where time
        is short, with fewer steps and on the first sets only. Use it where reconstruction is clearly non-linear: there
        networks and closed-form surrogates prefer different sites. On MNIST at K = 20, 200 steps ordered six sets
        (three of them equal by the closed form) as 150 seconds of training did, except for two that differ by 0.2 %.

        Parameters
        ----------
        site_sets
            Sets of sites, numbers of sites, the most promising first.
        run
            Seed and deadline.

        Returns
        -------
        list of Ratio
            Of the sets that were compared; empty where there is no time for at least two.
        """
        steps = affordable_steps(run.seconds_left(), self._all_samples[0], site_sets[0], run)
        count = int(min(len(site_sets), steps / _MIN_STEPS))
        if count < 2:
            return []
        steps_each = int(min(STEPS, steps / count))
        return [self._network_error(sites, steps_each, run) for sites in site_sets[:count]]

    def _field_error(self, sites: NDArray[np.int64]) -> Ratio:
        linear = self._linear_error(sites, self.train, self.validation)
        if not self.nonlinear:
            return linear
        self._split = self._split or FitScoreSplit.from_samples(self.train, self.validation, len(sites), Run())
        nonlinear = KernelSurrogate.fit(self._split, sites).error(sites)
        clearly_lower = is_better(nonlinear, linear, is_series=self.validation.is_series)
        self.is_nonlinear = self.is_nonlinear or clearly_lower
        return nonlinear if clearly_lower else linear

    def _linear_error(self, sites: NDArray[np.int64], train: ScaledSamples, validation: ScaledSamples) -> Ratio:
        """Unexplained variance of ridge or optimal interpolation, whichever is lower."""
        if train.is_large:
            among = np.union1d(train.probe, sites)
            train, validation, sites = train.at(among), validation.at(among), np.searchsorted(among, sites)
        interpolation = OptimalInterpolation(**self._covariate_choices)
        kinds: list[LinearReconstructor] = [Ridge(), interpolation]
        fitted = (kind.fit(train, sites, validation=validation, run=Run()) for kind in kinds)
        errors = [unexplained(one, sites, validation) for one in fitted]
        self._covariate_choices = {name: interpolation.chosen[name] for name in ("share", "means")}
        return min(errors, key=lambda error: error.value)

    def _network_error(self, sites: NDArray[np.int64], steps: int, run: Run) -> Ratio:
        """Unexplained variance of all validation samples after so many steps of training."""
        train, validation = self._all_samples
        linear = fit_linear(train, sites, validation=validation, run=run)
        return error_by_trial(linear, train, sites, validation, run, n_frequencies=N_FREQUENCIES, steps=steps)

    def _target_error(self, sites: NDArray[np.int64]) -> Ratio:
        sites = np.concatenate([self.train.existing, sites[~np.isin(sites, self.train.existing)]])
        linear = Linear().fit(self.train, sites, validation=self.validation, run=Run())
        order = self.validation.order_in_time()
        target = target_of(self.validation).take(order)
        name = "log_loss" if target.is_class else "fvu"
        parts = self.train, self.validation, sites
        predictions = (
            linear.predict(self.validation.readings(sites)), predicted_by_trees(*parts), predicted_by_kernel(*parts),
        )  # fmt: skip
        errors = (
            target_ratios(target, prediction[order], linear.expected)[name]
            for prediction in predictions
            if prediction is not None
        )
        groups = self.validation.sample_groups
        return min(errors, key=lambda error: error.value).over(None if groups is None else groups[order])
