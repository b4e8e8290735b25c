"""Context: what is known of a sample without any sensor, such as the time of year."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError

__all__ = ["PERIODS", "Period", "check_periods", "harmonics"]

Period = Literal["year", "day"]
PERIODS: tuple[Period, ...] = get_args(Period)
_UNIT: dict[str, Literal["Y", "D"]] = {"year": "Y", "day": "D"}


def check_periods(names: Iterable[str]) -> tuple[Period, ...]:
    """Give the rhythms as a tuple, or raise a SettingsError that names those there are."""
    found = tuple(names)
    for name in found:
        if name not in PERIODS:
            raise SettingsError(f"context {name!r}: there are {', '.join(PERIODS)}, or columns of your own")
    return tuple(period for period in PERIODS if period in found)


def harmonics(time: NDArray[np.datetime64], periods: Iterable[Period]) -> NDArray[np.float32]:
    """Cosine and sine of each sample's place in each rhythm, ``(N, 2 * periods)``.

    Examples
    --------
    >>> harmonics(np.array(["2001-01-01", "2001-07-02T12"], "datetime64[h]"), ("year",)).round(2)
    array([[ 1.,  0.],
           [-1.,  0.]], dtype=float32)
    """
    columns: list[NDArray[Any]] = [np.zeros((len(time), 0))]
    for period in periods:
        begin = time.astype(f"datetime64[{_UNIT[period]}]")
        whole = (begin + 1).astype("datetime64[s]") - begin.astype("datetime64[s]")
        turn = 2 * np.pi * ((time.astype("datetime64[s]") - begin.astype("datetime64[s]")) / whole)
        columns.append(np.stack([np.cos(turn), np.sin(turn)], axis=1))
    return np.concatenate(columns, axis=1).astype(np.float32)
