"""Option bundles for constraints, loss weights and measurement noise."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from keyhole.data.constraints import Constraints

__all__ = ["CostOptions", "ExistingOptions", "RegionOptions", "WeightOptions", "constraints_of"]

_CONSTRAINTS = "Constraints on the sites"
_ERRORS = "Loss weights and measurement noise"
_REGION = (
    "a box such as lat=10..50,lon=160..-160 (either bound may be omitted), a .geojson file, or a mask in a .npy or "
    ".nc file"
)
_FILES = (".npy", ".nc", ".nc4", ".csv")


@dataclass(frozen=True)
class RegionOptions:
    """Regions in which sites may be selected, and the minimum distance between sites.

    Each field becomes a command-line option; see `expand_bundles`.
    """

    allow: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Select sites only here: {_REGION}; repeat for the union of several.", rich_help_panel=_CONSTRAINTS
        ),
    ] = None
    forbid: Annotated[
        list[str] | None,
        typer.Option(help="Select no sites here; same syntax as --allow.", rich_help_panel=_CONSTRAINTS),
    ] = None
    min_distance: Annotated[
        float | None,
        typer.Option(
            help="Minimum distance between sites: km for lat/lon, else units of the axes.", rich_help_panel=_CONSTRAINTS
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `Constraints`."""
        return {
            "allowed": [_region(text, "--allow") for text in self.allow] if self.allow else None,
            "forbidden": [_region(text, "--forbid") for text in self.forbid] if self.forbid else None,
            "min_distance": self.min_distance,
        }


@dataclass(frozen=True)
class ExistingOptions:
    """Existing sites, and groups of sites that are selected together."""

    existing: Annotated[
        list[str] | None,
        typer.Option(
            help="Existing sites, kept in addition to the K new ones: a plan, a .csv with index, name or coordinates, "
            "or a site name; repeatable.",
            rich_help_panel=_CONSTRAINTS,
        ),
    ] = None
    groups: Annotated[
        str | None,
        typer.Option(
            help="Select sites in groups: axes along which they form one group (depth), or a .npy, .nc or .csv file of "
            "group labels; -k then counts groups.",
            rich_help_panel=_CONSTRAINTS,
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `Constraints`."""
        return {
            "existing": _existing(self.existing or []),
            "groups": None if self.groups is None else _labels(self.groups),
        }


@dataclass(frozen=True)
class CostOptions:
    """Number of sites, or their costs and the total cost allowed."""

    k: Annotated[
        int | None, typer.Option("-k", "--sites", help="Number of sites to select; optional with --cost-limit.")
    ] = None
    costs: Annotated[
        str | None,
        typer.Option(
            help="Cost of each site: one number, a .npy file of the grid's shape, or a labelled .nc or .csv file.",
            rich_help_panel=_CONSTRAINTS,
        ),
    ] = None
    cost_limit: Annotated[
        float | None,
        typer.Option(help="Maximum total cost of the sites; -k may then be omitted.", rich_help_panel=_CONSTRAINTS),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `Constraints`.

        Raises
        ------
        typer.BadParameter
            Neither ``-k`` nor ``--cost-limit`` was given.
        """
        if self.k is None and self.cost_limit is None:
            raise typer.BadParameter(
                "the number of sites is missing: give -k, or --costs and --cost-limit", param_hint="-k"
            )
        costs = None if self.costs is None else _number_or_array(self.costs)
        return {"costs": costs, "cost_limit": self.cost_limit}


@dataclass(frozen=True)
class WeightOptions:
    """Loss weights of the sites, and the measurement noise of the sensors."""

    weights: Annotated[
        str | None,
        typer.Option(
            help="Loss weights: area (cell area, the default on a lat/lon grid), none, a region of interest as for "
            "--allow, or a .npy, .nc or .csv file of weights.",
            rich_help_panel=_ERRORS,
        ),
    ] = None
    noise: Annotated[
        str | None,
        typer.Option(
            help="Standard deviation of the measurement noise in the data's units, or a file of them as for --costs.",
            rich_help_panel=_ERRORS,
        ),
    ] = None

    def apply(self, samples: Any) -> Any:
        """Return the samples (or the out-of-core store) with these loss weights and this measurement noise."""
        if self.weights is not None:
            plain = self.weights in ("area", "none")
            samples = samples.with_weights(self.weights if plain else _region(self.weights, "--weights"))
        return samples if self.noise is None else samples.with_noise(_number_or_array(self.noise))


def constraints_of(*parts: RegionOptions | ExistingOptions | CostOptions) -> Constraints:
    """Combine option bundles into one `Constraints` object."""
    from keyhole.data.constraints import Constraints

    return Constraints(**{name: value for part in parts for name, value in part.arguments().items()})


def _region(text: str, option: str) -> Any:
    """Parse a region: an array from a file, a path to GeoJSON, or a box as bounds by axis."""
    if text.endswith(_FILES):
        return _array(text)
    if "=" not in text:
        return text
    box: dict[str, tuple[float | None, float | None]] = {}
    for part in text.split(","):
        axis, _, ends = part.partition("=")
        lower, found, upper = ends.partition("..")
        try:
            box[axis.strip()] = _bound(lower), _bound(upper if found else lower)
        except ValueError:
            raise typer.BadParameter(f"{part!r}: expected axis=lower..upper", param_hint=option) from None
    return box


def _bound(text: str) -> float | None:
    return float(text) if text.strip() else None


def _existing(given: list[str]) -> list[Any]:
    """Collect existing sites: names as given, and the sites listed in plans and tables."""
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
    """Parse a number, or load the array in a file."""
    try:
        return float(text)
    except ValueError:
        return _array(text)


def _labels(text: str) -> Any:
    return _array(text) if text.endswith(_FILES) else [axis.strip() for axis in text.split(",")]


def _array(text: str) -> Any:
    """Load an array: .npy in the order of the grid, NetCDF and CSV with labels, by which values are aligned."""
    from keyhole.data.readers.arrays import load_npy
    from keyhole.data.readers.field_files import load_field
    from keyhole.data.readers.tables import load_values

    if text.endswith((".nc", ".nc4")):
        return load_field(Path(text))
    return load_values(Path(text)) if text.endswith(".csv") else load_npy(Path(text))
