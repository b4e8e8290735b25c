"""Constraints as the command line says them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from keyhole.data.constraints import Constraints

__all__ = ["Counting", "Kept", "Price", "Where", "constraints_of"]

_PLACES = "Where sites may be"
_ERRORS = "Where errors count"
_REGION = (
    "a box, lat=10..50,lon=160..-160 (either end may be left out), a .geojson file, or a mask in a .npy or .nc file"
)
_FILES = (".npy", ".nc", ".nc4", ".csv")


@dataclass(frozen=True)
class Where:
    """Where sites may be."""

    allow: Annotated[
        list[str] | None,
        typer.Option(help=f"Where sites may be: {_REGION}; several add up.", rich_help_panel=_PLACES),
    ] = None
    forbid: Annotated[
        list[str] | None, typer.Option(help="Where no site may be; given as --allow is.", rich_help_panel=_PLACES)
    ] = None
    min_distance: Annotated[
        float | None,
        typer.Option(help="Least distance between sites, in km, or in units of the axes.", rich_help_panel=_PLACES),
    ] = None

    def asked(self) -> dict[str, Any]:
        """Give them as Python says them."""
        return {
            "allowed": [_region(text, "--allow") for text in self.allow] if self.allow else None,
            "forbidden": [_region(text, "--forbid") for text in self.forbid] if self.forbid else None,
            "min_distance": self.min_distance,
        }


@dataclass(frozen=True)
class Kept:
    """What is there already, and what comes together."""

    existing: Annotated[
        list[str] | None,
        typer.Option(
            help="Sites that are there already: a plan, a .csv with index, name or coordinates, or a name.",
            rich_help_panel=_PLACES,
        ),
    ] = None
    groups: Annotated[
        str | None,
        typer.Option(
            help="Axes along which sites come together, or a .npy, .nc or .csv file of labels; -k counts groups.",
            rich_help_panel=_PLACES,
        ),
    ] = None

    def asked(self) -> dict[str, Any]:
        """Give them as Python says them."""
        return {
            "existing": _existing(self.existing or []),
            "groups": None if self.groups is None else _labels(self.groups),
        }


@dataclass(frozen=True)
class Price:
    """How many sites, or what they may cost."""

    k: Annotated[
        int | None, typer.Option("-k", "--sites", help="How many sites to choose, if no limit of cost says so.")
    ] = None
    costs: Annotated[
        str | None,
        typer.Option(
            help="What a site costs: a number, a .npy file of the grid's shape, or a .nc or .csv file with labels.",
            rich_help_panel=_PLACES,
        ),
    ] = None
    cost_limit: Annotated[
        float | None,
        typer.Option(help="What all sites may cost together, in place of -k.", rich_help_panel=_PLACES),
    ] = None

    def asked(self) -> dict[str, Any]:
        """Give them as Python says them; there must be a number of sites, or a limit in its place."""
        if self.k is None and self.cost_limit is None:
            raise typer.BadParameter("how many sites? Give -k, or --costs and --cost-limit", param_hint="-k")
        costs = None if self.costs is None else _number_or_array(self.costs)
        return {"costs": costs, "cost_limit": self.cost_limit}


@dataclass(frozen=True)
class Counting:
    """Where errors count, and what sensors add to the truth."""

    weights: Annotated[
        str | None,
        typer.Option(
            help="Where errors count: area (where there is latitude and longitude), none, a region as --allow takes "
            "it, or a .npy, .nc or .csv file of numbers.",
            rich_help_panel=_ERRORS,
        ),
    ] = None
    noise: Annotated[
        str | None,
        typer.Option(
            help="Standard deviation of a sensor's noise, in the data's units, or a .npy, .nc or .csv file of them.",
            rich_help_panel=_ERRORS,
        ),
    ] = None

    def of(self, signals: Any) -> Any:
        """Give signals, or a store, counted so."""
        if self.weights is not None:
            plain = self.weights in ("area", "none")
            signals = signals.with_weights(self.weights if plain else _region(self.weights, "--weights"))
        return signals if self.noise is None else signals.with_noise(_number_or_array(self.noise))


def constraints_of(*parts: Where | Kept | Price) -> Constraints:
    """Give the constraints that the options ask for."""
    from keyhole.data.constraints import Constraints

    return Constraints(**{name: value for part in parts for name, value in part.asked().items()})


def _region(text: str, option: str) -> Any:
    """Give a mask, a path as it is, or a box as bounds by axis."""
    if text.endswith(_FILES):
        return _array(text)
    if "=" not in text:
        return text
    box: dict[str, tuple[float | None, float | None]] = {}
    for part in text.split(","):
        axis, _, ends = part.partition("=")
        low, found, high = ends.partition("..")
        try:
            box[axis.strip()] = _end(low), _end(high if found else low)
        except ValueError:
            raise typer.BadParameter(f"{part!r}: axis=low..high is needed", param_hint=option) from None
    return box


def _end(text: str) -> float | None:
    return float(text) if text.strip() else None


def _existing(given: list[str]) -> list[Any]:
    """Give sites by name, and those of plans and tables by index, name or coordinates."""
    from keyhole.data.constraints.site_lookup import rows_of
    from keyhole.data.readers.tables import load_csv
    from keyhole.plan.plan import load

    sites: list[Any] = []
    for text in given:
        if text.endswith(".keyhole"):
            sites += load(text).names
        elif text.endswith(".csv"):
            sites += rows_of(load_csv(Path(text)))
        else:
            sites.append(text)
    return sites


def _number_or_array(text: str) -> Any:
    """Give a number, or the array of a file."""
    try:
        return float(text)
    except ValueError:
        return _array(text)


def _labels(text: str) -> Any:
    return _array(text) if text.endswith(_FILES) else [axis.strip() for axis in text.split(",")]


def _array(text: str) -> Any:
    """Give what a file holds: of .npy an array in the grid's order, else labelled values, which are aligned."""
    from keyhole.data.readers.arrays import load_npy
    from keyhole.data.readers.fields import load_field
    from keyhole.data.readers.tables import load_values

    if text.endswith((".nc", ".nc4")):
        return load_field(Path(text))
    return load_values(Path(text)) if text.endswith(".csv") else load_npy(Path(text))
