"""What signals were read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

__all__ = ["Clock", "Origin", "clock_of"]

Clock = Literal["dates", "numbers", "durations"]


def clock_of(time: NDArray[Any] | None) -> Clock:
    """Say what times are; dates where there are none, for these are what a plan takes then."""
    kind = "M" if time is None else time.dtype.kind
    return "dates" if kind == "M" else "durations" if kind == "m" else "numbers"


@dataclass(frozen=True)
class Origin:
    """What the signals were read from, so that what is rebuilt comes back as the same kind of object.

    ``kind`` is ``"array"``, ``"field"`` (an xarray DataArray) or ``"table"`` (a pandas frame);
    ``channel_axis`` is where an array's channels were, ``sample_dim`` the name of a field's sample dimension,
    ``axis_attributes`` what a field says about its coordinates. ``variables`` are the names of a Dataset's variables,
    each a channel, with what they say about themselves, ``calendar`` is that of a field's times, and ``clock`` what
    times are: dates, numbers, or durations.
    """

    kind: Literal["array", "field", "table"] = "array"
    channel_axis: int | None = None
    sample_dim: str = "sample"
    name: str = "signals"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    axis_attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    variables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    calendar: str = "standard"
    clock: Clock = "dates"

    @property
    def units(self) -> str:
        """Units of the values, or an empty string."""
        return str(self.attributes.get("units", ""))
