"""The last fit: sites and models once more, on all samples, after they have been chosen and measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Run
from keyhole.data.preparation import PreparedSamples, prepare_all
from keyhole.placement import Selection, Selector
from keyhole.placement.conditioning import SelectionView
from keyhole.placement.failures import harden_against_failures
from keyhole.placement.stability import stability
from keyhole.plan.fitted import FittedModels, range_of
from keyhole.plan.plan import Plan
from keyhole.workflow.cross_fitting import recalibrated
from keyhole.workflow.scoring import gains

__all__ = ["Seconds", "refit_models", "refit_on_all", "select_again"]


class Seconds(NamedTuple):
    """Time that the measured plan took.

    Parameters
    ----------
    selection, fit
        To select its sites, and to fit and score its models.
    """

    selection: float = 0.0
    fit: float = 0.0


def refit_on_all(
    measured: Plan, prepared: PreparedSamples, run: Run,
    *, took: Seconds, select: Callable[[PreparedSamples], NDArray[np.int64]] | None = None,
) -> Plan:  # fmt: skip
    """Select the sites and fit the models of a plan once more, on all samples.

    The errors of a plan are measured on samples that neither its sites nor its models have seen. What is then used
    should have seen them too, the latest above all.

    Parameters
    ----------
    measured
        The plan whose method was chosen and measured.
    prepared
        The parts on which that was done.
    run
        Seed and deadline. Where the time left is less than a step took before, its result is kept.
    took
        Time that the measured plan took.
    select
        Returns the numbers of the sites that are chosen from all samples, by rank; None keeps those of the plan.

    Returns
    -------
    Plan
        With the errors of the measured one, which is its ``measured``; ``metadata["refit"]`` says what was repeated.
    """
    kept = _reason_to_keep(measured, run, took)
    if kept:
        return replace(measured, metadata={**measured.metadata, "refit": {"samples": 0, "kept": kept}})
    everything, before = prepare_all(prepared), measured.candidates_in(prepared.samples)
    sites = before if select is None or run.seconds_left() < took.selection else select(everything)
    final, same = refit_models(measured, everything, sites, run), np.array_equal(sites, before)
    if measured.intervals is not None:
        final = replace(final, intervals=recalibrated(measured, final, prepared, run))
    record = {"samples": len(everything.development), "same_sites": _same(measured, final)}
    return Plan(
        **final.parts(),
        gain=measured.gain if same else gains(prepared, sites),
        stability=measured.stability if same else stability(everything.development, sites),
        metadata={**measured.metadata, "refit": record},
        metrics=measured.metrics,
        sample_errors=measured.sample_errors,
        history=measured.history,
        ranges=range_of(final.readings_of(prepared.samples)),
        measured=measured,
    )


def select_again(
    everything: PreparedSamples, found: Selection, selector: Selector, k: int | None, run: Run, *, failures: int = 0
) -> NDArray[np.int64]:
    """Return the sites that a selector chooses from all samples.

    Parameters
    ----------
    everything
        All samples, from `prepare_all`.
    found
        What it chose before.
    selector
        Repeats closed forms; it keeps sites that it found by training.
    k, run, failures
        As `choose_sites` takes them.

    Returns
    -------
    ndarray
        Numbers of the sites, existing ones first.
    """
    whole, validation = (part.with_count(k) for part in (everything.development, everything.validation))
    view = SelectionView.of(whole, validation, whole, supervised=selector.supervised)
    own = found.sites[len(everything.existing) :]
    again = selector.refit(replace(found, sites=view.numbers(own), scorer=None), view.development, run)
    if failures:
        again = harden_against_failures(again, SelectionView.of(whole, validation, whole).development, failures, run)
    return np.concatenate([everything.existing, view.sites(again.sites)])


def refit_models(models: FittedModels, everything: PreparedSamples, sites: NDArray[np.int64], run: Run) -> FittedModels:
    """Fit reconstructor and predictor to the readings of some sites in the development part.

    Parameters
    ----------
    models
        The fitted models that were chosen.
    everything
        All samples, from `prepare_all`; or prepared samples, whose development part lacks the test part.
    sites
        Numbers of the sites by rank.
    run
        The seed. There is no deadline: the clock must not change the schedule of a training.
    """
    samples, run = everything.samples, replace(run, deadline=None)
    development, validation = everything.development, everything.validation
    predictor = models.predictor
    return replace(
        FittedModels(**models.parts()),
        indices=samples.positions(sites),
        scaling=everything.scaling,
        reconstructor=models.reconstructor.refit(development, sites, validation=validation, run=run),
        predictor=None if predictor is None else predictor.refit(development, sites, validation=validation, run=run),
        covariance=development.reading_covariance(sites),
        sensors=None if samples.sensors is None else samples.sensors.take(sites).resolved(samples.noise),
    )


def _same(measured: Plan, final: FittedModels) -> int:
    """Return how many sites, or columns of a table, were selected both times; words have a site for each indicator."""
    columns = measured.origin.columns
    if columns is None or measured.sensors is not None:
        return int(np.isin(final.indices, measured.indices).sum())
    first, second = (set(columns.of_sites(one.indices)) for one in (measured, final))
    return len(first & second)


def _reason_to_keep(measured: Plan, run: Run, took: Seconds) -> str:
    """Return why the models stay as they were measured; empty if they are fitted again."""
    for model in (measured.reconstructor, measured.predictor):
        if model is None or model.closed_form:
            continue
        if not model.can_refit:
            return f"{model.name} needs samples for validation"
        if run.seconds_left() < took.fit:
            return f"no time was left to train {model.name} again"
    return ""
