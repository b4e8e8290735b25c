"""Header of a plan's file: its parts with their types, as JSON holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from keyhole.core.errors import PlanError
from keyhole.core.storage import Arrays, check_numbers
from keyhole.data.coordinates import Role
from keyhole.data.covariates import Period
from keyhole.data.origin import Clock
from keyhole.data.table_columns import Column, ColumnKind, TableColumns

__all__ = ["Header", "OriginPart", "checked_header"]

_CALENDARS = Literal[
    "standard", "gregorian", "proleptic_gregorian", "noleap", "365_day", "360_day", "julian", "all_leap", "366_day"
]

_Harmonic = Annotated[int, Field(gt=-(2**15), lt=2**15)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
Attribute = str | int | float | bool
Attributes = dict[str, Attribute | list[Attribute | list[Any]]]


class _Part(BaseModel):
    """Base of all parts: values of JSON are not converted, and unknown entries are ignored."""

    model_config = ConfigDict(strict=True, frozen=True)


class MeshPart(_Part):
    """What lies on a mesh, and along which dimension; its arrays are ``mesh.faces``, ``mesh.x`` and ``mesh.y``."""

    dim: str
    location: Literal["face", "node"]


class GridPart(_Part):
    """Shape, axes and coordinates of the data, and names of the sites if they have any; see `Sites`."""

    shape: list[Annotated[int, Field(ge=1, lt=2**63)]] = Field(min_length=1, max_length=32)
    dims: list[str]
    names: list[str] | None
    auxiliary: dict[str, list[str]] = {}
    roles: dict[Role, str] | None = None  # files older than auxiliary coordinates have none
    vertical_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    unit: str = ""
    mesh: MeshPart | None = None


class ScalingPart(_Part):
    """Climatology and periods of the covariates; files older than covariates have none."""

    cycle: Literal["month", "harmonics"] | None
    harmonics: list[Annotated[list[_Harmonic], Field(min_length=2, max_length=2)]] = []  # of year and day, by column
    periods: list[Period] = []


class NamedPart(_Part):
    """A reconstructor or predictor: its registry name and its settings."""

    name: str
    settings: dict[str, Any]


class ColumnPart(_Part):
    """How a column of a table is encoded; see `Column`."""

    name: str
    kind: ColumnKind
    words: list[str] = []
    left_out: str = ""


class ColumnsPart(_Part):
    """The columns of a table; see `TableColumns`."""

    columns: list[ColumnPart] = Field(min_length=1)

    def restore(self) -> TableColumns:
        """Return the columns."""
        return TableColumns(tuple(Column(one.name, one.kind, tuple(one.words), one.left_out) for one in self.columns))


class OriginPart(_Part):
    """Type and attributes of the data that were read; see `SourceInfo`."""

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
    columns: ColumnsPart | None = None
    standardised: bool = False


class ConstraintsPart(_Part):
    """Constraints on the sites."""

    asked: list[str]
    existing: Count
    cost: float = 0.0
    groups: list[int | str] | None = None


class RefitPart(_Part):
    """What was repeated on all samples once the plan was measured."""

    samples: Count
    same_sites: Count = 0
    kept: str = ""


class AnomaliesPart(_Part):
    """What was subtracted from the samples, and why."""

    kind: str = ""
    reason: str = ""


class MetadataPart(_Part):
    """How the plan was made, as far as it is shown; the file may hold more."""

    method: str
    reconstructor: str
    seed: int
    date: str
    seconds: float = 0.0
    notes: dict[str, Any] = {}
    split: dict[str, Count | str] = {}
    missing: str = "error"
    warnings: list[str] = []
    stopped: dict[str, Count] = {}
    refit: RefitPart | None = None
    anomalies: AnomaliesPart = AnomaliesPart()
    constraints: ConstraintsPart = ConstraintsPart(asked=[], existing=0)
    assumed_noise: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None


class SensorsPart(_Part):
    """The selected sensors, where these are not simply sites; see `PlacedSensors`."""

    names: list[str] = Field(min_length=1)
    kinds: list[str]
    coordinates: list[str]
    roles: dict[Role, str]
    texts: dict[str, list[str]] = {}


class IntervalsPart(_Part):
    """Settings of the prediction intervals; see `PredictionIntervals`."""

    neighbours: Count
    samples: Count
    missing: list[Count] = Field(min_length=1)
    half_life: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    correlated: bool = True


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
    intervals: IntervalsPart | None = None
    sensors: SensorsPart | None = None


def checked_header(header: Mapping[str, Any], arrays: Arrays) -> Header:
    """Check the header, and that every array holds real numbers that are finite where they must be.

    Parameters
    ----------
    header, arrays
        Contents of a file of the current format.

    Returns
    -------
    Header
        The typed header.

    Raises
    ------
    PlanError
        A part of the header is missing or of another type, or an array holds invalid numbers.
    """
    try:
        found = Header.model_validate(header)
    except ValidationError as error:
        first = error.errors()[0]
        raise PlanError(f"header: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    _check_metrics(found)
    for name, array in arrays.items():
        free = name.startswith("coordinates.") or name in ("sensors.cost", "sites.stability")
        limit = name.rpartition(".")[0].endswith("bounds")
        check_numbers(name, array, nan=free, infinite=free or limit)
    return found


def _check_metrics(header: Header) -> None:
    """Raise a PlanError unless the errors that are shown of every plan are there."""
    for part, scores in header.metrics.items():
        missing = {"rmse", "fvu"} - set(scores)
        if missing:
            raise PlanError(f"header: metrics.{part}: {sorted(missing)[0]} is missing")
