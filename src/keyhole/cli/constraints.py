"""Constraints as the command line says them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from keyhole.constraints import Constraints
    from keyhole.signals import Signals

__all__ = [
    "Allow",
    "CostLimit",
    "Costs",
    "Distance",
    "Fixed",
    "Forbid",
    "Groups",
    "Noise",
    "Weights",
    "check_budget",
    "constraints_of",
    "counted",
]

_REGION = "a box, lat=10..50,lon=-80..0 (either end may be left out), a .geojson file, or a mask in a .npy file"
Allow = Annotated[list[str] | None, typer.Option("--allow", help=f"Where sites may be: {_REGION}; several add up.")]
Forbid = Annotated[list[str] | None, typer.Option("--forbid", help="Where no site may be; given as --allow is.")]
Fixed = Annotated[
    list[str] | None,
    typer.Option(
        "--fixed", help="Sites that are there already: a plan, a .csv with index, name or coordinates, or a name."
    ),
]
Distance = Annotated[
    float | None, typer.Option("--distance", help="Least distance between sites, in km, or in units of the axes.")
]
Costs = Annotated[
    str | None, typer.Option("--costs", help="What a site costs: a number, or a .npy file of the grid's shape.")
]
CostLimit = Annotated[
    float | None, typer.Option("--cost-limit", help="What all sites may cost together, in place of -k.")
]
Groups = Annotated[
    str | None,
    typer.Option("--groups", help="Axes along which sites come together, or a .npy file of labels; -k counts groups."),
]

Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        help="Where errors count: area (where there is latitude and longitude), none, a region as --allow takes it, or "
        "a .npy file of numbers.",
    ),
]
Noise = Annotated[
    str | None,
    typer.Option(
        "--noise", help="Standard deviation of a sensor's noise, in the data's units, or a .npy file of them."
    ),
]


def counted(signals: Signals, weights: str | None, noise: str | None) -> Signals:
    """Say where errors count, and what sensors add to the truth."""
    if weights is not None:
        plain = weights in ("area", "none")
        signals = signals.weighted(weights if plain else _region(weights, "--weights"))
    return signals if noise is None else signals.noisy(_number_or_array(noise))


def check_budget(k: int | None, cost_limit: float | None) -> None:
    """Fail unless there is a number of sites, or a limit of cost in its place."""
    if k is None and cost_limit is None:
        raise typer.BadParameter("how many sites? Give -k, or --costs and --cost-limit", param_hint="-k")


def constraints_of(
    allow: list[str] | None, forbid: list[str] | None, fixed: list[str] | None, distance: float | None,
    costs: str | None, cost_limit: float | None, groups: str | None,
) -> Constraints:  # fmt: skip
    """Give the constraints that the options ask for."""
    from keyhole.constraints import Constraints

    return Constraints(
        allowed=[_region(text, "--allow") for text in allow] if allow else None,
        forbidden=[_region(text, "--forbid") for text in forbid] if forbid else None,
        fixed=_fixed(fixed or []),
        distance=distance,
        costs=None if costs is None else _number_or_array(costs),
        cost_limit=cost_limit,
        groups=None if groups is None else _labels(groups),
    )


def _region(text: str, option: str) -> Any:
    """Give a mask, a path as it is, or a box as bounds by axis."""
    if text.endswith(".npy"):
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


def _fixed(given: list[str]) -> list[Any]:
    """Give sites by name, and those of plans and tables by index, name or coordinates."""
    from keyhole.constraints.named import rows_of
    from keyhole.plan import load
    from keyhole.readers.tables import load_csv

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
    return _array(text) if text.endswith(".npy") else [axis.strip() for axis in text.split(",")]


def _array(text: str) -> Any:
    from keyhole.readers.arrays import load_npy

    return load_npy(Path(text))
