"""Parse the texts of options: regions, sites, numbers, arrays in files, settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer

__all__ = [
    "existing_sites",
    "labels_of",
    "names_of",
    "number_or_array",
    "points_of",
    "region_of",
    "sample_labels",
    "settings_of",
    "sides_of",
    "whole_numbers",
]

_FILES = (".npy", ".nc", ".nc4", ".csv")


def region_of(text: str, option: str) -> Any:
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


def existing_sites(given: list[str]) -> list[Any]:
    """Collect existing sites: names as given, and the sites listed in plans and tables."""
    from keyhole.data.constraints.site_lookup import rows_of
    from keyhole.data.readers.tables import load_csv
    from keyhole.plan import load_without_modules

    sites: list[Any] = []
    for text in given:
        if text.endswith(".keyhole"):
            sites += load_without_modules(text).names
        elif text.endswith(".csv"):
            sites += rows_of(load_csv(Path(text)))
        else:
            sites.append(text)
    return sites


def number_or_array(text: str) -> Any:
    """Parse a number, or load the array in a file."""
    try:
        return float(text)
    except ValueError:
        return _array(text)


def labels_of(text: str) -> Any:
    """Load labels from a file, or parse comma-separated names of axes."""
    return _array(text) if text.endswith(_FILES) else [axis.strip() for axis in text.split(",")]


def sample_labels(text: str | None) -> Any:
    """Return the name of a column or coordinate as it is, or load one label for each sample from a .npy file."""
    return _array(text) if text is not None and text.endswith(".npy") else text


def _array(text: str) -> Any:
    """Load an array: .npy in the order of the grid, NetCDF and CSV with labels, by which values are aligned."""
    from keyhole.data.readers.arrays import load_npy
    from keyhole.data.readers.field_files import load_field
    from keyhole.data.readers.tables import load_values

    if text.endswith((".nc", ".nc4")):
        return load_field(Path(text))
    return load_values(Path(text)) if text.endswith(".csv") else load_npy(Path(text))


def names_of(text: str | None) -> str | list[str] | None:
    """Parse one name, or several that are separated by commas."""
    return [name.strip() for name in text.split(",")] if text is not None and "," in text else text


def whole_numbers(text: str) -> list[int]:
    """Parse comma-separated numbers of sites."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: expected comma-separated whole numbers", param_hint="-k") from error


def sides_of(text: str | None) -> int | tuple[int, int] | None:
    """Parse the size of images."""
    if text is None:
        return None
    try:
        sides = [int(side) for side in text.lower().split("x")]
    except ValueError:
        sides = []
    if len(sides) not in (1, 2):
        raise typer.BadParameter(f"{text!r}: expected 64 or 48x64", param_hint="--size")
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def points_of(pairs: list[str]) -> dict[str, Any] | None:
    """Parse dimension=value pairs; values become numbers where possible."""
    points: dict[str, Any] = {}
    for dim, value in _pairs(pairs, "--at", "dimension=value"):
        try:
            points[dim] = float(value)
        except ValueError:
            points[dim] = value
    return points or None


def settings_of(pairs: list[str]) -> dict[str, Any]:
    """Parse name=value pairs; values are parsed as JSON where possible, else kept as text."""
    settings: dict[str, Any] = {}
    for name, value in _pairs(pairs, "--set", "name=value"):
        try:
            settings[name] = json.loads(value)
        except json.JSONDecodeError:
            settings[name] = value
    return settings


def _pairs(texts: list[str], option: str, expected: str) -> list[tuple[str, str]]:
    """Split texts at their first equals sign."""
    pairs = []
    for text in texts:
        name, found, value = text.partition("=")
        if not found:
            raise typer.BadParameter(f"{text!r}: expected {expected}", param_hint=option)
        pairs.append((name, value))
    return pairs
