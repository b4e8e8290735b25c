"""Which climatology predicts training samples that are left out: none, months, or harmonics of year and day."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.core.reduction import Both, reduce
from keyhole.data.climatology import MEAN, Climatology, cycles_in, harmonics_of
from keyhole.data.covariates import PERIODS
from keyhole.data.moments import Moments, sums_over
from keyhole.data.normal_equations import NormalEquations
from keyhole.data.samples import Samples
from keyhole.data.series import decorrelation_time, feature_sites
from keyhole.data.splits import Indices, folds
from keyhole.data.values import Panel, read_columns

__all__ = ["Candidates", "Choice", "calendar_of", "choose_and_sum", "choose_climatology", "with_climatology"]

_HARMONICS = (1, 2, 4)  # of each period: as many as monthly to hourly data of a few years support
_FEWEST_YEARS = 3.0  # of monthly means
_BLOCKS = 10
_FEWEST_SAMPLES = 12
_AS_ASKED = "as asked"
_REGULARISATION = 1e-9  # share of the samples: a month that a fit has no sample of is predicted by the mean


class Choice(NamedTuple):
    """A climatology, and why it was chosen.

    Parameters
    ----------
    climatology
        With its columns.
    reason
        For the plan's metadata.
    """

    climatology: Climatology
    reason: str


def with_climatology(samples: Samples, train: Indices) -> tuple[Samples, Choice]:
    """Return samples in memory with a climatology that is chosen on the training samples where none is named."""
    choice = choose_climatology(samples, train)
    return replace(samples, climatology=choice.climatology), choice


def choose_and_sum(samples: Samples, *parts: Indices) -> tuple[Samples, str, list[Moments]]:
    """Return samples with their climatology, why it was chosen, and the sums over some parts.

    Of samples that stay in their file sums and choice take one pass together. Its candidates are then the mean, and one
    or two harmonics.

    Parameters
    ----------
    samples
        In the user's units.
    *parts
        Positions of the samples of each part; the choice is made on the first.
    """
    if samples.memory is None:
        samples, choice = with_climatology(samples, parts[0])
        return samples, choice.reason, Moments.of(samples, *parts)
    candidates = Candidates.of(samples, parts[0], months=False, most=_HARMONICS[1])
    if candidates.choice is not None:
        samples = replace(samples, climatology=candidates.choice.climatology)
        return samples, candidates.choice.reason, Moments.of(samples, *parts)
    together, sums = sums_over(replace(samples, climatology=candidates.largest), *parts)
    at_sites = _AtSites(feature_sites((len(parts[0]), *samples.shape[1:])))
    moments, values = reduce(samples.take(together).panels(), Both(sums, at_sites, sums.stage))
    choice = candidates.choose(np.concatenate(values)[np.searchsorted(together, parts[0])])
    found = [one.restricted(choice.climatology) for one in moments]
    return replace(samples, climatology=choice.climatology), choice.reason, found


@dataclass(frozen=True, eq=False)
class _AtSites:
    """The reduction that keeps the values of some sites."""

    sites: Indices

    def start(self) -> list[NDArray[Any]]:
        return []

    def update(self, state: list[NDArray[Any]], panel: Panel[Samples]) -> list[NDArray[Any]]:
        return [*state, panel.samples.values[:, :, self.sites]]

    def merge(self, one: list[NDArray[Any]], other: list[NDArray[Any]]) -> list[NDArray[Any]]:
        return one + other


def calendar_of(samples: Samples, train: Indices) -> Climatology | None:
    """Return the harmonics that cross-validate best on training samples in memory; None where they resolve none."""
    if samples.climatology.kind == "harmonics":
        return samples.climatology
    if samples.time is None or samples.time.dtype.kind != "M":
        return None
    if harmonics_of(samples.time, 1, train=samples.time[train]) is None:
        return None
    return choose_climatology(samples.anomalies("harmonics"), train).climatology


def choose_climatology(samples: Samples, train: Indices) -> Choice:
    """Return the climatology that samples name, or the one that cross-validates best.

    Training samples are left out in ten blocks of time in turn, with a gap of the decorrelation time, and predicted by
    each candidate: the mean, months, and one, two or four harmonics of year and day. Of the candidates whose error is
    within one standard error of the smallest (over the blocks, paired), the one with the fewest coefficients is chosen.
    At most 512 sites are looked at.

    Parameters
    ----------
    samples
        In memory, in the user's units; ``samples.climatology`` is respected where its kind is not ``"auto"``.
    train
        Positions of the training samples.

    Raises
    ------
    DataError
        If harmonics are named, and the samples cover less than one and a half cycles of year and day.
    """
    candidates = Candidates.of(samples, train)
    if candidates.choice is not None:
        return candidates.choice
    sites = feature_sites((len(train), *samples.shape[1:]))
    return candidates.choose(read_columns(samples.source, sites)[train])


@dataclass(frozen=True, eq=False)
class Candidates:
    """Climatologies to choose among, for some training samples.

    Parameters
    ----------
    climatologies
        By the number of their coefficients, the fewest first.
    time
        ``(n,)``, times of the training samples.
    choice
        The choice, where there is nothing to compare.
    """

    climatologies: tuple[Climatology, ...]
    time: NDArray[np.datetime64]
    choice: Choice | None = None

    @classmethod
    def of(cls, samples: Samples, train: Indices, *, months: bool = True, most: int = _HARMONICS[-1]) -> Candidates:
        """Return the candidates that training samples allow.

        Parameters
        ----------
        samples, train
            As in `choose_climatology`.
        months
            Whether monthly means are among them.
        most
            Largest number of harmonics.
        """
        asked, n = samples.climatology, len(train)
        time = np.empty(0, "datetime64[s]") if samples.time is None else samples.time[train]
        if asked.is_chosen:
            return cls((asked,), time, Choice(asked, _AS_ASKED))
        reason = _reason_against(samples) if asked.kind == "auto" else ""
        if reason or samples.time is None:
            return cls((), time, Choice(MEAN, reason))
        made = [harmonics_of(samples.time, number, train=time) for number in _HARMONICS if number <= most]
        found = list(dict.fromkeys(one for one in made if one is not None))
        if asked.kind == "harmonics":
            _check_any(found, samples.time)
            return cls(tuple(found), time, Choice(found[0], _AS_ASKED) if n < _FEWEST_SAMPLES else None)
        if not found or n < _FEWEST_SAMPLES:
            return cls((), time, Choice(MEAN, "samples cover too few cycles of the year or of the day"))
        by_month = [Climatology("month")] if months and cycles_in(samples.time, "year") >= _FEWEST_YEARS else []
        ordered = sorted([*found, *by_month], key=lambda one: one.n_columns)
        return cls((MEAN, *ordered), time)

    @property
    def largest(self) -> Climatology:
        """The candidate that has the columns of all others; the mean if there is none."""
        return self.climatologies[-1] if self.climatologies else MEAN

    def choose(self, values: NDArray[np.floating[Any]]) -> Choice:
        """Cross-validate the candidates.

        Parameters
        ----------
        values : ndarray of shape (n, channels, sites)
            Training samples at some sites; NaN where missing.
        """
        errors = self._errors(_standardised(values))
        best = int(errors.mean(axis=1).argmin())
        excess = errors - errors[best]
        noise = excess.std(axis=1, ddof=1) / np.sqrt(errors.shape[1])
        chosen = int(np.argmax(excess.mean(axis=1) <= noise))
        climatology = self.climatologies[chosen]
        if self.climatologies[0].kind == "harmonics":
            return Choice(climatology, _AS_ASKED)
        if climatology.kind == "none":
            return Choice(climatology, "the calendar does not predict blocks of training samples that are left out")
        left = errors[chosen].mean() / errors[0].mean()
        return Choice(climatology, f"chosen by cross-validation, with {left:.0%} of the squared error of the mean")

    def _errors(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Mean squared error of each candidate in each block, ``(candidates, blocks)``, relative to the variance."""
        designs = [one.design(self.time) for one in self.climatologies]
        ends = np.cumsum([0, *(design.shape[1] for design in designs)]).tolist()
        columns = [slice(*pair) for pair in pairwise(ends)]
        design, known = np.concatenate(designs, axis=1), ~np.isnan(values)
        values = np.where(known, values, 0)
        whole = NormalEquations.of(design, values, known)
        blocks = []
        for fit, out in self._folds(values):
            rest = np.setdiff1d(np.arange(len(design)), fit)
            without = whole - NormalEquations.of(design[rest], values[rest], known[rest])
            blocks.append([_error(values[out], known[out], design[out, part], without, part) for part in columns])
        return np.transpose(blocks)

    def _folds(self, values: NDArray[np.float64]) -> list[tuple[Indices, Indices]]:
        """Blocks of time; samples of the same time stay together."""
        order = np.argsort(self.time, kind="stable")
        time = self.time[order]
        if (time[1:] == time[:-1]).any():
            return folds(order, _BLOCKS, groups=time)
        gap = min(decorrelation_time(values[order]), len(order) // (2 * _BLOCKS))
        return folds(order, _BLOCKS, gap=gap)


def _error(
    values: NDArray[np.float64], known: NDArray[np.bool_], design: NDArray[np.float64],
    fitted: NormalEquations, columns: slice,
) -> float:  # fmt: skip
    """Mean squared error of the values that are left out, by some columns of the design."""
    ridge = np.full(design.shape[1], _REGULARISATION * max(float(fitted.gram.max()), 1.0))
    residual = values - design @ fitted.solve(ridge, columns)
    return float(np.square(residual[known]).sum()) / max(int(known.sum()), 1)


def _standardised(values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Deviations from the mean of each site over the spread of each channel, ``(n, channels * sites)``."""
    with np.errstate(invalid="ignore"):
        known = ~np.isnan(values)
        mean = np.where(known, values, 0).sum(axis=0, dtype=np.float64) / np.maximum(known.sum(axis=0), 1)
        centred = values - mean
        variance = np.where(known, np.square(centred), 0).sum(axis=(0, 2)) / np.maximum(known.sum(axis=(0, 2)), 1)
    scaled = centred / np.sqrt(np.where(variance > 0, variance, 1.0))[:, np.newaxis]
    return np.asarray(scaled.reshape(len(values), -1), np.float64)


def _check_any(found: list[Climatology], time: NDArray[np.datetime64]) -> None:
    """Raise a DataError if samples resolve no harmonic."""
    if not found:
        cycles = " and ".join(f"{cycles_in(time, period):.2g} {period}s" for period in PERIODS)
        raise DataError(
            "anomalies='harmonics': samples must cover one and a half years (or days), with two samples in each or "
            f"more, and the training samples one; these cover {cycles}. Take anomalies='none'"
        )


def _reason_against(samples: Samples) -> str:
    """Why the calendar is not looked at, if it is not."""
    if samples.target is not None:
        return "a target is predicted from the values themselves"
    return "" if samples.time is not None and samples.time.dtype.kind == "M" else "samples have no dates"
