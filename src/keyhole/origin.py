"""What signals were read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Origin"]


@dataclass(frozen=True)
class Origin:
    """What the signals were read from, so that what is rebuilt comes back as the same kind of object.

    ``kind`` is ``"array"``, ``"field"`` (an xarray DataArray) or ``"table"`` (a pandas frame);
    ``channel_axis`` is where an array's channels were, ``sample_dim`` the name of a field's sample dimension,
    ``axis_attributes`` what a field says about its coordinates. ``variables`` are the names of a Dataset's variables,
    each a channel, with what they say about themselves, ``calendar`` is that of a field's times, and
    ``dataset_attributes`` are the global attributes of the Dataset or file.
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

    @property
    def units(self) -> str:
        """Units of the values, or an empty string."""
        return str(self.attributes.get("units", ""))

    def channel_units(self, channels: int) -> list[str]:
        """Units of each channel, or empty strings."""
        if self.variables:
            return [str(said.get("units", "")) for said in self.variables.values()]
        return [self.units] * channels
