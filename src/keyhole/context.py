"""Context: what is known of a sample without any sensor, such as the time of year."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from keyhole.errors import SettingsError

__all__ = ["RHYTHMS", "Rhythm", "check_rhythms", "phases"]

Rhythm = Literal["year", "day"]
RHYTHMS: tuple[Rhythm, ...] = get_args(Rhythm)
_UNIT: dict[str, Literal["Y", "D"]] = {"year": "Y", "day": "D"}


def check_rhythms(names: Iterable[str]) -> tuple[Rhythm, ...]:
    """Give the rhythms as a tuple, or raise a SettingsError that names those there are."""
    found = tuple(names)
    for name in found:
        if name not in RHYTHMS:
            raise SettingsError(f"context {name!r}: there are {', '.join(RHYTHMS)}, or columns of your own")
    return tuple(rhythm for rhythm in RHYTHMS if rhythm in found)


def phases(time: NDArray[np.datetime64], rhythms: Iterable[Rhythm]) -> NDArray[np.float32]:
    """Cosine and sine of each sample's place in each rhythm, ``(N, 2 * rhythms)``.

    Examples
    --------
    >>> phases(np.array(["2001-01-01", "2001-07-02T12"], "datetime64[h]"), ("year",)).round(2)
    array([[ 1.,  0.],
           [-1.,  0.]], dtype=float32)
    """
    columns: list[NDArray[Any]] = [np.zeros((len(time), 0))]
    for rhythm in rhythms:
        begin = time.astype(f"datetime64[{_UNIT[rhythm]}]")
        whole = (begin + 1).astype("datetime64[s]") - begin.astype("datetime64[s]")
        turn = 2 * np.pi * ((time.astype("datetime64[s]") - begin.astype("datetime64[s]")) / whole)
        columns.append(np.stack([np.cos(turn), np.sin(turn)], axis=1))
    return np.concatenate(columns, axis=1).astype(np.float32)
