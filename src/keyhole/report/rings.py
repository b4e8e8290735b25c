"""Polygons of the sphere on a map of longitude and latitude: across the date line, and around the poles."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyhole.data.coordinates import FULL_TURN

__all__ = ["Rings", "cut", "flat_rings", "refined", "repeated"]

Numbers = NDArray[np.float64]

_POLE = 90.0
_AT_POLE = 1e-6  # degrees


class Rings(NamedTuple):
    """Polygons of equally many corners.

    Parameters
    ----------
    corners : ndarray of shape (n, corners, 2)
        Horizontal and vertical position; a polygon with fewer corners repeats its last.
    number : ndarray of shape (n,)
        Of which of the polygons that were given each of them is a part.
    """

    corners: Numbers
    number: NDArray[np.int64]

    @classmethod
    def of(cls, rings: list[Numbers], number: list[int]) -> Rings:
        """Put polygons of different numbers of corners together."""
        most = max((len(ring) for ring in rings), default=3)
        corners = np.empty((len(rings), most, 2))
        for row, ring in zip(corners, rings, strict=True):
            row[: len(ring)], row[len(ring) :] = ring, ring[-1]
        return cls(corners, np.array(number, np.int64))


def flat_rings(longitude: Numbers, latitude: Numbers, middle: Numbers) -> list[Rings]:
    """Return polygons of the sphere as polygons of a map whose axes are longitude and latitude.

    Longitudes of one polygon do not jump, so that it may extend beyond the date line. A corner at a pole, which has no
    longitude, becomes an edge along the pole between the longitudes of its neighbours; a polygon around a pole is
    closed along it.

    Parameters
    ----------
    longitude, latitude : ndarray of shape (n, corners)
        Degrees; corners may be repeated.
    middle : ndarray of shape (n,)
        A longitude near which each polygon is to lie.

    Returns
    -------
    list of Rings
        Ordinary polygons, and those at the poles if there are any.

    Examples
    --------
    >>> triangle = np.array([[179.0, -179.0, 180.0]]), np.array([[0.0, 0.0, 1.0]])
    >>> flat_rings(*triangle, np.array([-180.0]))[0].corners[0, :, 0]
    array([-181., -179., -180.])
    """
    steps = _turn(np.diff(longitude, axis=1, append=longitude[:, :1]))
    at_pole = (np.abs(latitude) > _POLE - _AT_POLE).any(axis=1)
    polar = at_pole | (np.abs(steps.sum(axis=1)) > FULL_TURN / 2)
    whole = longitude[:, :1] + np.concatenate([np.zeros((len(steps), 1)), np.cumsum(steps[:, :-1], axis=1)], axis=1)
    corners = np.stack([_near(whole, middle), latitude], axis=2)
    plain = np.flatnonzero(~polar & np.isfinite(corners).all(axis=(1, 2)))
    found = [Rings(corners[plain], plain)]
    at = np.flatnonzero(polar & np.isfinite(latitude).all(axis=1))
    if len(at):
        rings = [_polar(longitude[i], latitude[i]) for i in at]
        for ring, i in zip(rings, at, strict=True):
            ring[:, 0] = _near(ring[np.newaxis, :, 0], middle[i : i + 1])
        found.append(Rings.of(rings, at.tolist()))
    return found


def repeated(rings: Rings, low: float, high: float) -> Rings:
    """Return polygons with copies one turn to the east and west, as far as they lie between two longitudes.

    So a polygon that extends beyond one side of a map appears at the other one.
    """
    least, most = rings.corners[..., 0].min(axis=1, initial=np.inf), rings.corners[..., 0].max(axis=1, initial=-np.inf)
    corners, number = [], []
    for turn in (0.0, -FULL_TURN, FULL_TURN):
        inside = (most + turn > low) & (least + turn < high)
        corners.append(rings.corners[inside] + np.array([turn, 0.0]))
        number.append(rings.number[inside])
    return Rings(np.concatenate(corners), np.concatenate(number))


def cut(ring: Numbers, low: float, high: float) -> Numbers:
    """Return the part of a polygon ``(corners, 2)`` between two longitudes, by the algorithm of Sutherland and Hodgman.

    Empty where there is none. The parts of a polygon that bulges over the border several times stay connected along it.

    Examples
    --------
    >>> cut(np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 2.0]]), 0.0, 2.0).tolist()
    [[2.0, 1.0], [0.0, 0.0], [2.0, 0.0]]
    """
    for border, side in ((low, 1.0), (high, -1.0)):
        inside = side * (ring[:, 0] - border) >= 0
        corners: list[Numbers] = []
        for i in range(len(ring)):
            before, here = ring[i - 1], ring[i]
            if inside[i] != inside[i - 1]:
                share = (border - before[0]) / (here[0] - before[0])
                corners.append(np.array([border, before[1] + share * (here[1] - before[1])]))
            if inside[i]:
                corners.append(here)
        ring = np.array(corners).reshape(-1, 2)
    return ring


def refined(ring: Numbers, step: float) -> Numbers:
    """Return a closed polygon with further corners on its edges, so that none is longer than a step."""
    after = np.roll(ring, -1, axis=0)
    counts = np.maximum(np.ceil(np.abs(after - ring).max(axis=1) / step), 1).astype(int)
    parts = [
        one + np.linspace(0, 1, count, endpoint=False)[:, np.newaxis] * (other - one)
        for one, other, count in zip(ring, after, counts, strict=True)
    ]
    return np.concatenate([*parts, ring[:1]])


def _turn(difference: Numbers) -> Numbers:
    """Differences of longitudes the short way round."""
    return np.asarray((difference + FULL_TURN / 2) % FULL_TURN - FULL_TURN / 2)


def _near(longitude: Numbers, middle: Numbers) -> Numbers:
    """Shift the longitudes ``(n, corners)`` of polygons by whole turns, so that they lie around a longitude of each."""
    centre = (longitude.min(axis=1) + longitude.max(axis=1)) / 2
    return np.asarray(longitude + FULL_TURN * np.round((middle - centre) / FULL_TURN)[:, np.newaxis])


def _polar(longitude: Numbers, latitude: Numbers) -> Numbers:
    """Corners of one polygon that touches or surrounds a pole."""
    at_pole = np.abs(latitude) > _POLE - _AT_POLE
    away = np.flatnonzero(~at_pole)
    if not len(away):
        return np.stack([longitude, latitude], axis=1)
    start = int(away[0])  # the first corner has a longitude
    longitude, latitude, at_pole = np.roll(longitude, -start), np.roll(latitude, -start), np.roll(at_pole, -start)
    around = longitude[~at_pole]
    whole = np.empty(len(longitude))
    whole[~at_pole] = around[0] + np.append(0.0, np.cumsum(_turn(np.diff(around))))
    ring: list[tuple[float, float]] = []
    end = whole[0] + _turn_of(whole[~at_pole][-1], whole[0])
    for i in range(len(whole)):
        if not at_pole[i]:
            ring.append((whole[i], latitude[i]))
            continue
        later = [whole[j] for j in range(i + 1, len(whole)) if not at_pole[j]]
        ring += [(ring[-1][0], latitude[i]), (later[0] if later else end, latitude[i])]
    if abs(end - whole[0]) > FULL_TURN / 2:  # it surrounds the pole
        pole = float(np.copysign(_POLE, latitude.mean()))
        ring += [(end, latitude[0]), (end, pole), (whole[0], pole)]
    return np.array(ring)


def _turn_of(last: float, first: float) -> float:
    """By how much the way back to the first corner, the short way round, misses it: a whole turn or nothing."""
    return float(last + _turn(np.array(first - last)) - first)
