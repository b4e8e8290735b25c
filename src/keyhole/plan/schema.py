"""What the file of a plan must hold: a typed header, and arrays that agree with it and with each other.

A file's checksum tells that it is whole, not that it makes sense. Everything is checked here before any of it is used,
so that a file takes no more memory than its own size calls for, and a plan that was loaded works.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from keyhole.core.errors import PlanError
from keyhole.core.storage import Arrays, array_of, check_numbers
from keyhole.data.covariates import Period, check_periods
from keyhole.data.grid import Grid
from keyhole.data.origin import Clock, SourceInfo
from keyhole.data.scaler import Scaler

__all__ = ["Header", "checked_header", "grid_of", "origin_of", "scaling_of", "sites_of"]

_NUMBERS = re.compile(r"[<>=|]?(bool|int|uint|float|[biuf])\d{0,2}")
_TIMES = re.compile(r"[<>=]?(datetime64|timedelta64|[Mm]8)(\[\d{0,6}[A-Za-z]{1,2}\])?")
_TEXTS = re.compile(r"[<>=]?U\d{1,12}")
_LARGEST_TEXTS = 2**26  # bytes of an axis of texts, each as wide as the longest, that need no further reason
_WIDER_THAN_WRITTEN = 64  # times as many bytes as characters: beyond that, one long text makes many short ones wide
_PHASES = {None: 1, "month": 12}
_CALENDARS = Literal[
    "standard", "gregorian", "proleptic_gregorian", "noleap", "365_day", "360_day", "julian", "all_leap", "366_day"
]

Count = Annotated[int, Field(ge=0, lt=2**63)]
Attribute = str | int | float | bool
Attributes = dict[str, Attribute | list[Attribute | list[Any]]]


class _Part(BaseModel):
    """Values of JSON, taken as they are: no text becomes a number. What is not known is left out."""

    model_config = ConfigDict(strict=True, frozen=True)


class GridPart(_Part):
    """Shape, names of the axes, and of the cells if they have some."""

    shape: list[Annotated[int, Field(ge=1, lt=2**63)]] = Field(min_length=1, max_length=32)
    dims: list[str]
    names: list[str] | None


class ScalingPart(_Part):
    """Cycle of the climatology, and the rhythms of time; files older than context have none."""

    cycle: Literal["month"] | None
    periods: list[Period] = []


class NamedPart(_Part):
    """A reconstructor or predictor: its name in the registry, and its own settings."""

    name: str
    settings: dict[str, Any]


class OriginPart(_Part):
    """What was read; see `SourceInfo`."""

    kind: Literal["array", "field", "table"] = "array"
    channel_axis: int | None = None
    sample_dim: str = "sample"
    name: str = "signals"
    attributes: Attributes = {}
    axis_attributes: dict[str, Attributes] = {}
    variables: dict[str, Attributes] = {}
    calendar: _CALENDARS = "standard"
    dataset_attributes: Attributes = {}
    clock: Clock = "dates"


class ConstraintsPart(_Part):
    """What the sites keep to."""

    asked: list[str]
    existing: Count
    cost: float = 0.0
    groups: list[int | str] | None = None


_FREE = ConstraintsPart(asked=[], existing=0)


class MetadataPart(_Part):
    """How the plan was made, as far as it is shown; there may be more."""

    method: str
    reconstructor: str
    seed: int
    date: str
    seconds: float = 0.0
    notes: dict[str, Any] = {}
    split: dict[str, Count | str] = {}
    missing: str = "error"
    constraints: ConstraintsPart = _FREE


class BandsPart(_Part):
    """Numbers of the prediction intervals; see `PredictionIntervals`."""

    neighbours: Count
    samples: Count
    missing: list[Count] = Field(min_length=1)


class Header(_Part):
    """The header of a plan's file."""

    grid: GridPart
    coordinate_types: dict[str, str]
    coordinate_texts: dict[str, list[str]]
    scaling: ScalingPart
    reconstructor: NamedPart
    origin: OriginPart
    metadata: MetadataPart
    metrics: dict[str, dict[str, float]]
    history: list[dict[str, Any]]
    predictor: NamedPart | None = None  # files older than targets have none
    intervals: BandsPart | None = None


def checked_header(header: Mapping[str, Any], arrays: Arrays) -> Header:
    """Give the header by its types, once every array holds real numbers that are finite where they must be."""
    try:
        found = Header.model_validate(header)
    except ValidationError as error:
        first = error.errors()[0]
        raise PlanError(f"header: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    _check_metrics(found)
    for name, array in arrays.items():
        free = name.startswith("coordinates.")
        limit = name.rpartition(".")[0].endswith("bounds")
        check_numbers(name, array, nan=free or name == "intervals.squares", infinite=free or limit)
    return found


def _check_metrics(header: Header) -> None:
    """Look for the errors that are shown of every plan."""
    for part, scores in header.metrics.items():
        missing = {"rmse", "fvu"} - set(scores)
        if missing:
            raise PlanError(f"header: metrics.{part}: {sorted(missing)[0]} is missing")


def grid_of(header: Header, arrays: Arrays) -> Grid:
    """Give the grid: the shape is that of an array, coordinates are as long as it and of types that are listed."""
    shape, dims, names = tuple(header.grid.shape), tuple(header.grid.dims), header.grid.names
    inside = array_of(arrays, "grid.inside", shape, "b")
    if not inside.any():
        raise PlanError("the array 'grid.inside' has no valid cell")
    if len(dims) != len(shape) or len(set(dims)) < len(dims):
        raise PlanError(f"header: grid.dims: {len(shape)} different names are needed, not {list(dims)}")
    if names is not None and (len(names) != inside.size or len(set(names)) < len(names)):
        raise PlanError(f"header: grid.names: {inside.size} different names are needed")
    axes = {dim: _axis(header, arrays, dim, n) for dim, n in zip(dims, shape, strict=True)}
    return Grid(shape, dims, axes, inside, None if names is None else tuple(names))


def _axis(header: Header, arrays: Arrays, dim: str, n: int) -> NDArray[Any]:
    """Give the coordinate of an axis; the type that is declared is never more than what the file holds."""
    kind = header.coordinate_types.get(dim, "")
    if dim in header.coordinate_texts:
        if not _TEXTS.fullmatch(kind):
            raise PlanError(f"header: coordinate_types.{dim}: {kind!r} is no type of texts")
        return _texts(header.coordinate_texts[dim], dim, n)
    found = array_of(arrays, f"coordinates.{dim}", (n,), "biuf")
    of_times = _TIMES.fullmatch(kind) is not None
    if not of_times and not _NUMBERS.fullmatch(kind):
        raise PlanError(f"header: coordinate_types.{dim}: {kind!r} is no type that coordinates are saved with")
    declared = np.dtype(kind)
    if found.dtype != (np.dtype(np.int64) if of_times else declared.newbyteorder("=")):
        raise PlanError(f"the array 'coordinates.{dim}' is of type {found.dtype}, and the header says {kind}")
    return found.astype(declared)


def _texts(texts: list[str], dim: str, n: int) -> NDArray[np.str_]:
    if len(texts) != n:
        raise PlanError(f"header: coordinate_texts.{dim}: {n} are needed, and there are {len(texts)}")
    lengths = [len(text) for text in texts]
    if 4 * n * max(lengths) > max(_LARGEST_TEXTS, _WIDER_THAN_WRITTEN * sum(lengths)):
        raise PlanError(f"header: coordinate_texts.{dim}: one of {max(lengths)} characters is longer than all others")
    return np.array(texts, str)


def sites_of(header: Header, arrays: Arrays, grid: Grid) -> NDArray[np.int64]:
    """Give the sites: different cells that are valid."""
    sites = array_of(arrays, "sites.index", (None,), "iu")
    if not len(sites):
        raise PlanError("the array 'sites.index' has no site")
    beyond = sites[(sites < 0) | (sites >= grid.size)]
    beyond = beyond if len(beyond) else sites[~grid.inside.ravel()[sites.astype(np.int64)]]
    if len(beyond):
        raise PlanError(f"the array 'sites.index' has the site {beyond[0]}, which is no valid cell of the grid")
    if len(np.unique(sites)) < len(sites):
        raise PlanError("the array 'sites.index' has a site more than once")
    groups = header.metadata.constraints.groups
    if groups is not None and len(groups) != len(sites):
        raise PlanError(f"header: made.constraints.groups: {len(sites)} are needed, one for each site")
    return sites.astype(np.int64)


def scaling_of(header: Header, arrays: Arrays, grid: Grid) -> Scaler:
    """Give the scaling, whose scales are positive."""
    cycle = header.scaling.cycle
    scale = array_of(arrays, "scaling.scale", (None,))
    baseline = array_of(arrays, "scaling.baseline", (_PHASES[cycle], len(scale), *grid.shape))
    columns = array_of({"scaling.columns": np.zeros((2, 0)), **arrays}, "scaling.columns", (2, None))
    root = array_of(arrays, "scaling.root", grid.shape) if "scaling.root" in arrays else None
    weights = np.ones(1) if root is None else root[grid.inside]
    for name, positive in (("scale", scale), ("columns", columns[1]), ("root", weights)):
        if not (positive > 0).all():
            raise PlanError(f"the array 'scaling.{name}' holds numbers that are not positive")
    if not len(scale):
        raise PlanError("the array 'scaling.scale' is empty")
    return Scaler(
        baseline,
        scale.astype(np.float64),
        cycle,
        check_periods(header.scaling.periods),
        columns.astype(np.float64),
        root,
    )


def origin_of(header: Header, grid: Grid, channels: int) -> SourceInfo:
    """Give what was read; what is rebuilt can come back as such."""
    said, axes = header.origin, len(grid.shape) + 2
    if said.channel_axis is not None and not -axes <= said.channel_axis < axes:
        raise PlanError(f"header: origin.channel_axis: {said.channel_axis} is no axis of {axes}")
    if said.variables and len(said.variables) != channels:
        raise PlanError(f"header: origin.variables: {channels} are needed, and there are {len(said.variables)}")
    if said.kind == "table" and channels > 1:
        raise PlanError(f"header: origin.kind: a table has one channel, not {channels}")
    if said.kind == "field":
        _check_different([said.sample_dim, *(said.variables or [said.name]), *grid.dims], channels, said)
    return SourceInfo(**said.model_dump())


def _check_different(names: list[str], channels: int, said: OriginPart) -> None:
    """Names of dimensions and variables share one space in a Dataset."""
    names = [*names, "channel"] if channels > 1 and not said.variables else names
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise PlanError(f"header: origin: {repeated[0]!r} is the name of two things: samples, variables or axes")
