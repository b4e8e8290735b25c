"""Where samples were read from, so that reconstructions are returned as the same kind of object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from keyhole.data.table_columns import TableColumns

__all__ = ["STANDARDISED", "Clock", "SourceInfo", "clock_of"]

STANDARDISED = "standard deviations"
Clock = Literal["dates", "numbers", "durations"]


def clock_of(time: NDArray[Any] | None) -> Clock:
    """Return the kind of times: dates, durations or numbers; dates where there are none."""
    kind = "M" if time is None else time.dtype.kind
    return "dates" if kind == "M" else "durations" if kind == "m" else "numbers"


@dataclass(frozen=True)
class SourceInfo:
    """Where samples were read from, so that reconstructions are returned as the same kind of object.

    Parameters
    ----------
    kind : {"array", "field", "table"}
        NumPy array, xarray object or pandas DataFrame.
    channel_axis : int, optional
        Axis of an array that held the channels.
    sample_dim : str
        Name of a field's sample dimension.
    name : str
        Name of the variable.
    attributes, axis_attributes : mapping
        Attributes of the variable, and of each coordinate.
    variables : mapping of str to mapping
        Attributes of each variable of a Dataset; each is a channel.
    calendar : str
        Calendar of a field's times.
    dataset_attributes : mapping
        Global attributes of the Dataset or file.
    clock : {"dates", "numbers", "durations"}
        Kind of times.
    columns : TableColumns, optional
        Columns of a table, if some of them are encoded as numbers or left out; None: each is a site.
    standardised : bool
        Whether errors are in standard deviations of each site.
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
    columns: TableColumns | None = None
    standardised: bool = False

    @property
    def units(self) -> str:
        """Units of the values, common to all variables; empty where unknown or different."""
        if not self.variables:
            return str(self.attributes.get("units", ""))
        return self.channel_units(1)[0] if not self._variables_differ else ""

    @property
    def units_differ(self) -> bool:
        """Whether variables, or the columns of a table, have different units, so that errors cannot be averaged."""
        return self.standardised or self._variables_differ

    @property
    def _variables_differ(self) -> bool:
        return len(set(self.channel_units(1))) > 1

    @property
    def error_units(self) -> str:
        """Units of errors over all channels: those of the values, or standard deviations where these differ."""
        return STANDARDISED if self.units_differ else self.units

    def channel_units(self, channels: int) -> list[str]:
        """Return the units of each channel; empty strings where unknown."""
        if self.variables:
            return [str(said.get("units", "")) for said in self.variables.values()]
        return [self.units] * channels
