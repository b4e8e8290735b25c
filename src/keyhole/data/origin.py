"""What signals were read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

__all__ = ["STANDARDISED", "Clock", "SourceInfo", "clock_of"]

STANDARDISED = "standard deviations"
Clock = Literal["dates", "numbers", "durations"]


def clock_of(time: NDArray[Any] | None) -> Clock:
    """Say what times are; dates where there are none, for these are what a plan takes then."""
    kind = "M" if time is None else time.dtype.kind
    return "dates" if kind == "M" else "durations" if kind == "m" else "numbers"


@dataclass(frozen=True)
class SourceInfo:
    """What the signals were read from, so that what is rebuilt comes back as the same kind of object.

    ``kind`` is ``"array"``, ``"field"`` (an xarray DataArray) or ``"table"`` (a pandas frame);
    ``channel_axis`` is where an array's channels were, ``sample_dim`` the name of a field's sample dimension,
    ``axis_attributes`` what a field says about its coordinates. ``variables`` are the names of a Dataset's variables,
    each a channel, with what they say about themselves, ``calendar`` is that of a field's times, ``clock`` what times
    are (dates, numbers, or durations), and ``dataset_attributes`` are the global attributes of the Dataset or file.
    """

    kind: Literal["array", "field", "table"] = "array"
    channel_axis: int | None = None
    sample_dim: str = "sample"
    name: str = "signals"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    axis_attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    variables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    calendar: str = "standard"
    dataset_attributes: Mapping[str, Any] = field(default_factory=dict)
    clock: Clock = "dates"

    @property
    def units(self) -> str:
        """Units of the values, those of all variables where there are several; empty where unknown or different."""
        if not self.variables:
            return str(self.attributes.get("units", ""))
        return self.channel_units(1)[0] if not self.units_differ else ""

    @property
    def units_differ(self) -> bool:
        """Whether variables have different units, so that their errors cannot be added up."""
        return len(set(self.channel_units(1))) > 1

    @property
    def error_units(self) -> str:
        """Units of errors over all channels: those of the values, or standard deviations where they differ."""
        return STANDARDISED if self.units_differ else self.units

    def channel_units(self, channels: int) -> list[str]:
        """Units of each channel, or empty strings."""
        if self.variables:
            return [str(said.get("units", "")) for said in self.variables.values()]
        return [self.units] * channels
