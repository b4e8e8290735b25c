"""What a set of sites leaves of a Gaussian field, kept up to date as sites come and go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import sgemm

from keyhole.core.run import Run
from keyhole.data.samples import Samples
from keyhole.models.localisation import localisation, some
from keyhole.models.reconstructors import OptimalInterpolation

__all__ = ["Covariance", "PosteriorCovariance", "fit_localised_covariance"]

_MOST_NUMBERS = 10_000_000  # of the largest array; directions stand for cells where there would be more
_MOST_SEEN = 200_000_000  # of the covariance that directions are found in; fewer cells stand for all beyond
_SEEN_A_SECOND = 3_000_000  # of them, about, on one core
_FEWEST_TARGETS = 256
_BLOCK = 8_000_000  # numbers that are worked on at a time
_LEAST_NOISE = 1e-3  # share of the readings' variance: without any, sites side by side look worth having
_DRIFT = 0.05  # share of a site's noise that rounding may add up to, before all is made anew


@dataclass(frozen=True, eq=False)
class Covariance:
    """Covariance of candidates with each other and with the cells to be rebuilt, `S * exp(-d / length)`.

    Parameters
    ----------
    candidates
        Flat grid index of the sites that may be chosen.
    readings
        ``(n, m, channels)``, what they read, centred, over the root of n.
    targets
        ``(n, t)``, the cells to be rebuilt (all channels, or as many as time allows), likewise.
    sites, cells
        Places of candidates ``(m, d)`` and targets ``(t, d)``.
    length
        Of the fading.
    noise
        ``(m, channels)``, variance of each reading's noise.
    """

    candidates: NDArray[np.int64]
    readings: NDArray[np.float32]
    targets: NDArray[np.float32]
    sites: NDArray[np.float64]
    cells: NDArray[np.float64]
    length: float
    noise: NDArray[np.float64]

    @classmethod
    def of(
        cls, signals: Samples, length: float, noise: float, rng: np.random.Generator, *, seconds: float = np.inf
    ) -> Self:
        """Estimate it; ``noise`` is a share of the readings' mean variance, beside what sensors add.

        Fewer cells stand for all where the ``seconds`` that are left are too few to see them all.
        """
        centred = _centred(signals)
        may = signals.observable.ravel()[signals.grid.cells]
        readings = centred[:, :, may].transpose(0, 2, 1)
        if signals.root is not None:
            readings = readings / signals.root.ravel()[signals.grid.cells[may]][:, np.newaxis]
        places = signals.grid.places[signals.grid.cells]
        seen = int(max(_MOST_NUMBERS, min(_MOST_SEEN, _SEEN_A_SECOND * seconds)))
        columns = some(centred[0].size, max(seen // readings[0].size, _FEWEST_TARGETS), rng)
        level = float(np.square(readings).sum()) / readings[0].size or 1.0
        return cls(
            signals.grid.cells[may], readings, centred.reshape(len(centred), -1)[:, columns],
            places[may], places[columns % len(places)], length, noise * level + _sensors(signals, may),
        )  # fmt: skip

    def among(self, picks: NDArray[np.int64]) -> Covariance:
        """Let only some of the candidates be chosen."""
        return replace(
            self, candidates=self.candidates[picks], readings=self.readings[:, picks], sites=self.sites[picks],
            noise=self.noise[picks],
        )  # fmt: skip

    def with_all_cells(self, signals: Samples) -> Covariance:
        """Let all cells be targets, where a sample of them stood for all; of the signals it was estimated from."""
        centred = _centred(signals).reshape(len(signals), -1)
        if centred.shape == self.targets.shape:
            return self
        places = np.tile(signals.grid.places[signals.grid.cells], (signals.channels, 1))
        return replace(self, targets=centred, cells=places)

    def own(self) -> NDArray[np.float32]:
        """Of each candidate's readings with each other, ``(m, channels, channels)``, without noise."""
        return np.asarray(np.einsum("nmc,nmd->mcd", self.readings, self.readings))

    @cached_property
    def cross(self) -> NDArray[np.float32]:
        """Of all targets with all candidates, ``(t, m, channels)``; of fewer directions where there are too many.

        Only sums over the targets of products of columns are ever asked of it, and these are the same in any
        orthonormal basis of the columns' span. Where cells are many and fields smooth, a few leading directions have as
        good as all of that span (found by a random projection, Halko et al., 2011). A sample of the cells would not do:
        sites are then chosen to be near those.
        """
        width = self.readings[0].size
        count = max(_MOST_NUMBERS // width, _FEWEST_TARGETS)
        if self.targets.shape[1] <= count:
            return self._with_all(slice(None))
        count = min(count, width)  # the span of the columns has no more directions
        drawn = np.random.default_rng(0).normal(size=(width, count)).astype(np.float32)
        return self._onto(np.linalg.qr(self._projected(drawn))[0]).reshape(count, *self.readings.shape[1:])

    def _with_all(self, rows: slice) -> NDArray[np.float32]:
        """Of some targets with all candidates."""
        plain = np.tensordot(self.targets[:, rows], self.readings, axes=(0, 0))
        return np.asarray(plain * localisation(self.cells[rows], self.sites, self.length)[:, :, np.newaxis])

    def _blocks(self) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Give some targets at a time, and their covariance with all readings, ``(rows, m * channels)``."""
        step = max(1, _BLOCK // self.readings[0].size)
        for start in range(0, self.targets.shape[1], step):
            rows = slice(start, start + step)
            yield rows, self._with_all(rows).reshape(-1, self.readings[0].size)

    def _projected(self, directions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Covariance of targets with sums of readings, ``(t, directions)``."""
        return np.concatenate([block @ directions for _, block in self._blocks()])

    def _onto(self, basis: NDArray[np.float32]) -> NDArray[np.float32]:
        """Covariance of sums of targets ``(t, directions)`` with all readings, ``(directions, m * channels)``."""
        total = np.zeros((basis.shape[1], self.readings[0].size), np.float32)
        for rows, block in self._blocks():
            total += basis[rows].T @ block
        return total

    def with_targets(self, pick: int) -> NDArray[np.float32]:
        """Of all targets, or of the directions in their place, with one candidate, ``(t, channels)``."""
        return self.cross[:, pick]

    def with_candidates(self, pick: int) -> NDArray[np.float32]:
        """Of all candidates with one of them, ``(m, channels, channels)``."""
        plain = np.einsum("nmc,nd->mcd", self.readings, self.readings[:, pick], optimize=True)
        return np.asarray(plain * localisation(self.sites, self.sites[[pick]], self.length)[:, :, np.newaxis])

    def between(self, picks: Sequence[int]) -> NDArray[np.float32]:
        """Of some candidates with each other, ``(picks * channels, picks * channels)``, without noise."""
        readings = self.readings[:, picks].reshape(len(self.readings), -1)
        faded = localisation(self.sites[picks], self.sites[picks], self.length)
        channels = self.readings.shape[2]
        return np.asarray(readings.T @ readings * np.kron(faded, np.ones((channels, channels))))


def _centred(signals: Samples) -> NDArray[np.float32]:
    """Cells of all samples, ``(n, channels, cells)``, less their mean, over the root of n."""
    packed = signals.valid_values().astype(np.float32)
    return np.asarray((packed - packed.mean(axis=0)) / np.float32(np.sqrt(len(packed))))


def _sensors(signals: Samples, may: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Variance of the noise of the sensors that may be chosen, ``(m, channels)``, in units of their readings."""
    cells = signals.grid.cells[may]
    root = np.ones(len(cells)) if signals.root is None else signals.root.ravel()[cells]
    return np.asarray((signals.reading_noise(cells) / np.square(root)).T)


def fit_localised_covariance(
    signals: Samples, sites: NDArray[np.int64], run: Run, purpose: str
) -> tuple[Covariance, dict[str, float]]:
    """Give the covariance whose length and noise are Kriging's from these sites, and both of them.

    Where the noise of sensors is known, readings have it already. ``purpose`` names what chance there is, in which
    cells stand for all of a large grid.
    """
    chosen = OptimalInterpolation().fit(signals, sites, validation=signals, run=run).chosen
    noise = _LEAST_NOISE if signals.noise is not None else max(chosen["strength"], _LEAST_NOISE)
    rng = run.generator(f"cells to {purpose} by")
    covariance = Covariance.of(signals, chosen["length"], noise, rng, seconds=run.seconds_left())
    return covariance, {"length": chosen["length"], "noise": noise}


class PosteriorCovariance:
    """What is left of a covariance `C` once some sites `S` are read: `P = C - C_xS (C_SS + a I)^-1 C_Sx`.

    The trace of `P` over the targets is the squared error that the best linear estimate leaves. Reading site j as well
    takes `tr((P_jj + a I)^-1 P_jt P_tj)` from it. Dropping site i gives back `G b^-1 G'`, with `B = (C_SS + a I)^-1`,
    `G = C_xS B_Si` and `b = B_ii`: so the gain of every candidate after a drop costs one product with `P`.

    Each change adds rounding, which little noise blows up. For sites that are read `P_SS = a - a B a` tells how much
    there is by now, and `P` is made anew when it is too much.
    """

    def __init__(self, covariance: Covariance) -> None:
        self.covariance = covariance
        self.picks: list[int] = []
        self._left, self._own = covariance.cross.copy(), covariance.own()
        self._square = _squares(self._left)
        self._to_targets: list[NDArray[np.float32]] = []
        self._to_candidates: list[NDArray[np.float32]] = []

    def copy(self) -> PosteriorCovariance:
        """Give another one in the same state."""
        other = object.__new__(PosteriorCovariance)
        other.covariance, other.picks = self.covariance, list(self.picks)
        other._left, other._own, other._square = self._left.copy(), self._own.copy(), self._square.copy()
        other._to_targets, other._to_candidates = list(self._to_targets), list(self._to_candidates)
        return other

    def explained(self) -> float:
        """Squared error that the sites take away, `tr(C_tS (C_SS + a I)^-1 C_St)`."""
        if not self.picks:
            return 0.0
        targets = np.stack(self._to_targets).astype(np.float64)
        return float(np.einsum("stc,scue,ute->", targets, self._inverse(), targets, optimize=True))

    @property
    def count(self) -> int:
        """Number of candidates."""
        return len(self.covariance.candidates)

    def gains(self) -> NDArray[np.float64]:
        """What reading each candidate would take from the error; nothing for one that is read."""
        return self._gains(self._own, self._square, self.picks)

    def add(self, pick: int) -> None:
        """Read one more site."""
        column = self.covariance.with_candidates(pick)
        factor = np.linalg.inv(self._own[pick] + self._noise[pick])
        self._move(self._left[:, pick].copy(), -factor, self._left_of(column))
        self._note(pick, self.covariance.with_targets(pick), column)
        self._mend()

    def gains_without(self, place: int) -> NDArray[np.float64]:
        """What reading each candidate would take from the error once the site at ``place`` in the picks is dropped."""
        targets, factor, candidates = self._given_back(place)
        single = targets.astype(np.float32)  # or all that is left would be copied to double
        with_left = (single.T @ self._left.reshape(len(targets), -1)).T.reshape(*candidates.shape[:2], -1)
        half = np.einsum("mce,ef,mdf->mcd", with_left, factor, candidates, optimize=True)
        inner = factor @ (targets.T @ targets) @ factor.T
        square = self._square + half + half.transpose(0, 2, 1)
        square += np.einsum("mce,ef,mdf->mcd", candidates, inner, candidates, optimize=True)
        own = self._own + np.einsum("mce,ef,mdf->mcd", candidates, factor, candidates, optimize=True)
        return self._gains(own, square, self.picks[:place] + self.picks[place + 1 :])

    def drop(self, place: int) -> None:
        """Read the site at ``place`` in the picks no more."""
        self._move(*self._given_back(place))
        self._forget(place)
        self._mend()

    def replace(self, place: int, pick: int) -> None:
        """Drop the site at ``place`` in the picks, and read another one, or the same again: it becomes the last."""
        if self.picks[place] == pick:
            self._note(*self._forget(place))
            return
        self.drop(place)
        self.add(pick)

    def _forget(self, place: int) -> tuple[int, NDArray[np.float32], NDArray[np.float32]]:
        return self.picks.pop(place), self._to_targets.pop(place), self._to_candidates.pop(place)

    def _note(self, pick: int, targets: NDArray[np.float32], candidates: NDArray[np.float32]) -> None:
        self.picks.append(pick)
        self._to_targets.append(targets)
        self._to_candidates.append(candidates)

    @cached_property
    def _noise(self) -> NDArray[np.float64]:
        """Of each candidate's readings, ``(m, channels, channels)``."""
        return self.covariance.noise[:, :, np.newaxis] * np.eye(self.covariance.noise.shape[1])

    def _gains(self, own: NDArray[Any], square: NDArray[Any], picks: list[int]) -> NDArray[np.float64]:
        gains = np.einsum("mcd,mdc->m", np.linalg.inv(own + self._noise), square)
        gains[picks] = -np.inf
        return np.asarray(gains, np.float64)

    def _move(self, targets: NDArray[Any], factor: NDArray[Any], candidates: NDArray[Any]) -> None:
        """Add `targets factor candidates'` to what is left."""
        moved = candidates.reshape(-1, len(factor)) @ factor.T
        left = self._left.reshape(len(targets), -1)
        added = sgemm(1.0, moved, targets, beta=1.0, c=left.T, trans_b=1, overwrite_c=1)  # in place: no second array
        self._left = added.T.reshape(self._left.shape)
        self._own += np.einsum("mce,ef,mdf->mcd", candidates, factor, candidates, optimize=True).astype(np.float32)
        self._square = _squares(self._left)

    def _mend(self) -> None:
        """Make all anew from what the sites read, where rounding has added up."""
        if not self.picks:
            return
        noise, inverse, places = self._noise[self.picks], self._inverse(), np.arange(len(self.picks))
        exact = noise - noise @ inverse[places, :, places] @ noise
        if bool((np.abs(self._own[self.picks] - exact) <= _DRIFT * noise.max(axis=(1, 2), keepdims=True)).all()):
            return
        targets, candidates = np.stack(self._to_targets), np.stack(self._to_candidates)
        weights = np.einsum("stc,scue->tue", targets, inverse, optimize=True)
        left = self.covariance.cross - np.einsum("tue,umde->tmd", weights, candidates, optimize=True)
        own = np.einsum("smdc,scue,umfe->mdf", candidates, inverse, candidates, optimize=True)
        self._left, self._own = left.astype(np.float32), (self.covariance.own() - own).astype(np.float32)
        self._square = _squares(self._left)

    def _inverse(self) -> NDArray[np.float64]:
        """`(C_SS + a I)^-1`, ``(sites, channels, sites, channels)``."""
        count, channels = len(self.picks), self._own.shape[1]
        between = np.stack([column[self.picks] for column in self._to_candidates], axis=2)
        size = count * channels
        matrix = between.astype(np.float64).reshape(size, size) + np.diag(self.covariance.noise[self.picks].ravel())
        return np.asarray(np.linalg.inv(matrix).reshape(count, channels, count, channels), np.float64)

    def _given_back(self, place: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """`G` over the targets, `b^-1`, and `G` over the candidates."""
        inverse = self._inverse()[:, :, place]
        targets = np.einsum("stc,sce->te", np.stack(self._to_targets), inverse, optimize=True)
        candidates = np.einsum("smdc,sce->mde", np.stack(self._to_candidates), inverse, optimize=True)
        return targets, np.linalg.inv(inverse[place]), candidates

    def _left_of(self, column: NDArray[np.float32]) -> NDArray[Any]:
        """What is left of the covariance of all candidates with one, ``(m, channels, channels)``."""
        if not self.picks:
            return column
        weights = np.einsum("scte,ted->scd", self._inverse(), column[self.picks], optimize=True)
        return np.asarray(column - np.einsum("smdc,sce->mde", np.stack(self._to_candidates), weights, optimize=True))


def _squares(left: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sums over the targets of products of each candidate's columns, ``(m, channels, channels)``."""
    channels = range(left.shape[2])
    pairs = [[np.einsum("tm,tm->m", left[:, :, one], left[:, :, other]) for other in channels] for one in channels]
    return np.asarray(np.moveaxis(np.array(pairs), 2, 0), np.float32)
