"""Options that constrain which sites may be selected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from keyhole.cli.parsing import existing_sites, number_or_array, region_of
from keyhole.cli.parsing import labels_of as group_labels

if TYPE_CHECKING:
    from keyhole.data.constraints import Constraints

__all__ = ["CostOptions", "ExistingOptions", "RegionOptions", "constraints_of"]


@dataclass(frozen=True)
class RegionOptions:
    """Regions in which sites may be selected, and the minimum distance between sites.

    Parameters
    ----------
    allow
        Select sites only here: a box such as lat=10..50,lon=160..-160 (either bound may be omitted), a .geojson file,
        or a mask in a .npy or .nc file; repeat for the union of several.
    forbid
        Select no sites here; same syntax as --allow.
    min_distance
        Minimum distance between sites: km for lat/lon, else units of the axes.
    """

    panel: ClassVar[str] = "Constraints on the sites"
    allow: list[str] | None = None
    forbid: list[str] | None = None
    min_distance: float | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `Constraints`."""
        return {
            "allowed": [region_of(text, "--allow") for text in self.allow] if self.allow else None,
            "forbidden": [region_of(text, "--forbid") for text in self.forbid] if self.forbid else None,
            "min_distance": self.min_distance,
        }


@dataclass(frozen=True)
class ExistingOptions:
    """Existing sites, and groups of sites that are selected together.

    Parameters
    ----------
    existing
        Existing sites, kept in addition to the K new ones: a plan, a .csv with index, name or coordinates, or a site
        name; repeatable.
    groups
        Select sites in groups: axes along which they form one group (depth), or a .npy, .nc or .csv file of group
        labels; -k then counts groups.
    """

    panel: ClassVar[str] = "Constraints on the sites"
    existing: list[str] | None = None
    groups: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `Constraints`."""
        return {
            "existing": existing_sites(self.existing or []),
            "groups": None if self.groups is None else group_labels(self.groups),
        }


@dataclass(frozen=True)
class CostOptions:
    """Number of sites, or their costs and the total cost allowed.

    Parameters
    ----------
    k
        Number of sites to select; optional with --cost-limit.
    costs
        Cost of each site: one number, a .npy file of the grid's shape, or a labelled .nc or .csv file.
    cost_limit
        Maximum total cost of the sites; -k may then be omitted.
    """

    panel: ClassVar[str] = "Constraints on the sites"
    k: Annotated[int | None, typer.Option("-k", "--sites", rich_help_panel="Options")] = None
    costs: str | None = None
    cost_limit: float | None = None

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
        costs = None if self.costs is None else number_or_array(self.costs)
        return {"costs": costs, "cost_limit": self.cost_limit}


def constraints_of(*parts: RegionOptions | ExistingOptions | CostOptions) -> Constraints:
    """Combine option bundles into one `Constraints` object."""
    from keyhole.data.constraints import Constraints

    return Constraints(**{name: value for part in parts for name, value in part.arguments().items()})
