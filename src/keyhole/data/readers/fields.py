"""Gridded fields on labelled dimensions: what of a Dataset is samples, grid, time and metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.data.origin import SourceInfo, clock_of
from keyhole.data.readers.calendars import from_calendar
from keyhole.data.readers.dimensions import check_space, sample_dimension
from keyhole.data.readers.files import one_of
from keyhole.data.readers.geometry import sites_of_field
from keyhole.data.samples import Samples
from keyhole.data.sites import FULL_TURN, Sites, is_longitude

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["At", "Field", "SampleDims", "Variable", "read_dataarray", "read_dataset", "variable_names"]

_BOUNDS = ("_bnds", "_bounds")
_STACKED = "sample"  # the sample dimension that several are made into

Variable = str | Sequence[str] | None
At = Mapping[str, Any] | None
SampleDims = str | Sequence[str] | None


def read_dataset(
    dataset: xr.Dataset, *, variable: Variable = None, samples: SampleDims = None, at: At = None
) -> Samples:
    """Read samples from one variable of a Dataset, or from several as channels.

    Parameters
    ----------
    dataset : Dataset
        In memory, or lazily loaded.
    variable : str or sequence of str, optional
        Name of one variable, or names of several on the same grid, each a channel. None: all numeric variables with at
        least two dimensions, if they have the same dimensions.
    samples : str or sequence of str, optional
        The sample dimension, or several that are stacked (``("member", "time")``); None: ``time``, else the first.
    at : mapping, optional
        Positions of other dimensions to select, by nearest coordinate: ``{"level": 500}``.

    Returns
    -------
    Samples

    Raises
    ------
    DataError
        If the variable is ambiguous or does not exist, or the dimensions are not those of a field.

    Examples
    --------
    >>> import xarray as xr
    >>> array = xr.DataArray(np.random.default_rng(0).normal(size=(9, 2, 3)), dims=("time", "y", "x"))
    >>> read_dataset(xr.Dataset({"u": array, "v": -array})).channels
    2
    """
    fields = _numeric_fields(dataset)
    together = variable is None and len({dataset[name].dims for name in fields}) == 1
    return Field.from_dataset(dataset, fields if together else variable_names(dataset, variable), samples, at).load()


def read_dataarray(array: xr.DataArray, *, samples: SampleDims = None, at: At = None) -> Samples:
    """Read samples from a DataArray.

    Parameters
    ----------
    array : DataArray
        A field.
    samples, at
        As for `read_dataset`.

    Returns
    -------
    Samples
    """
    name = str(array.name or "field")
    if name in array.coords:
        raise DataError(f"{name}: called like one of its own coordinates; rename it")
    return Field.from_dataset(array.to_dataset(name=name), [name], samples, at).load()


def variable_names(dataset: xr.Dataset, variable: Variable) -> list[str]:
    """Return the names of the variables to read.

    Parameters
    ----------
    dataset : Dataset
        The Dataset.
    variable : str or sequence of str, optional
        Names given by the user; None: the only variable that can be a field.

    Returns
    -------
    list of str

    Raises
    ------
    DataError
        If a name does not exist or is given twice, or no name is given and there are several fields.
    """
    available = [str(name) for name in dataset.data_vars]
    if variable is None or isinstance(variable, str):
        return [one_of(_numeric_fields(dataset), variable, available, "field")]
    if not variable or len(set(variable)) < len(variable):
        raise DataError(f"variable={list(variable)!r}: names of fields, each once, are needed")
    return [one_of([], name, available, "field") for name in variable]


@dataclass(frozen=True, eq=False)
class Field:
    """Variables on one grid, each a channel; values are read when they are needed.

    Parameters
    ----------
    arrays : sequence of DataArray
        The variables, with the sample dimension first.
    sites, time, origin
        As in `Samples`; all sites count as valid, since no value has been read.
    is_snapshot : bool
        Whether the variables are a single sample without a sample dimension.
    """

    arrays: Sequence[xr.DataArray]
    sites: Sites
    time: NDArray[Any] | None
    origin: SourceInfo
    is_snapshot: bool

    @classmethod
    def from_dataset(
        cls, dataset: xr.Dataset, names: Sequence[str], samples: SampleDims, at: At, *, is_snapshot: bool = False
    ) -> Field:
        """Make a field from variables with the same dimensions.

        Parameters
        ----------
        dataset : Dataset
            The Dataset.
        names : sequence of str
            Its variables.
        samples, at
            As for `read_dataset`.
        is_snapshot : bool
            Whether the sample dimension is a scalar coordinate.

        Returns
        -------
        Field

        Raises
        ------
        DataError
            If the variables are not on one grid, or a dimension is not spatial.
        """
        arrays = [_select(dataset[name], at, samples or "time") for name in names]
        if samples is not None and not isinstance(samples, str):
            arrays, samples = [_stacked(array, list(samples)) for array in arrays], _STACKED
        described = [_expanded(array, samples or "time") for array in arrays] if is_snapshot else arrays
        first = described[0]
        if first.ndim < 2:
            raise DataError(f"{first.name}: {first.ndim} dimension; samples and at least one of a grid are needed")
        sample = sample_dimension(first, samples)
        if samples is None:
            check_space(first, sample)
        for other in described[1:]:
            if other.sizes != first.sizes:
                raise DataError(f"{other.name} is on another grid than {first.name}; channels need one grid")
        _check_not_stacked(first)
        dims = tuple(str(dim) for dim in first.dims if dim != sample)
        sites = sites_of_field(first, dims, dataset)
        time, calendar = _time(first, sample)
        several = len(arrays) > 1
        origin = SourceInfo(
            "field",
            sample_dim=sample,
            name=" ".join(str(array.name) for array in arrays),
            attributes={} if several else _attributes(first),
            axis_attributes={
                name: _coordinate_attributes(first[name], sites)
                for name in (sample, *dims, *sites.auxiliary)
                if name in first.coords
            },
            variables={str(array.name): _attributes(array) for array in arrays} if several else {},
            calendar=calendar,
            dataset_attributes=_attributes(dataset),
            clock=clock_of(time),
        )
        order = dims if is_snapshot else (sample, *dims)
        return cls([array.transpose(*order) for array in arrays], sites, time, origin, is_snapshot)

    def __len__(self) -> int:
        return 1 if self.is_snapshot else int(self.arrays[0].shape[0])

    @property
    def chunk(self) -> int:
        """Number of samples that are stored together in the file."""
        first = self.arrays[0]
        chunks = first.encoding.get("preferred_chunks", {}).get(self.origin.sample_dim)
        return int(chunks) if isinstance(chunks, int | np.integer) else 1

    def values(self, rows: slice) -> NDArray[Any]:
        """Read some of the samples.

        Parameters
        ----------
        rows : slice
            Positions of the samples.

        Returns
        -------
        ndarray of shape (n, channels, *sites.shape)

        Raises
        ------
        DataError
            If the file is damaged.
        """
        try:
            if self.is_snapshot:
                return np.stack([array.values for array in self.arrays])[np.newaxis][rows]
            return np.stack([array[rows].values for array in self.arrays], axis=1)
        except MemoryError:
            raise
        except Exception as error:  # whatever xarray and the libraries under it raise on damaged files
            which = "samples" if rows.start is None else f"samples {rows.start} to {rows.stop}"
            raise DataError(f"{self.origin.name}: {which} cannot be read ({error})") from error

    def load(self) -> Samples:
        """Read all samples into memory."""
        return Samples.build(self.values(slice(None)), self.sites, time=self.time, origin=self.origin)


def _stacked(array: xr.DataArray, dims: list[str]) -> xr.DataArray:
    """Make one sample dimension of several, such as members and times; the times stay the coordinate of the samples."""
    missing = [dim for dim in dims if dim not in array.dims]
    if missing or len(set(dims)) < len(dims):
        raise DataError(f"{array.name}: samples={dims!r}; its dimensions are {', '.join(map(str, array.dims))}")
    time = next((dim for dim in dims if dim in array.coords and _is_time(array[dim])), None)
    whole = array.stack({_STACKED: dims}, create_index=False)
    return whole if time is None else whole.assign_coords({_STACKED: (_STACKED, whole[time].values, array[time].attrs)})


def _expanded(array: xr.DataArray, dim: str) -> xr.DataArray:
    """Return a stand-in without values in which a scalar coordinate is a dimension; expanding would read the values."""
    return array.copy(data=np.broadcast_to(np.float32(0), array.shape)).expand_dims(dim)


def _select(array: xr.DataArray, at: At, sample: str | Sequence[str]) -> xr.DataArray:
    """Select positions along some dimensions, and drop all other dimensions of length one but the sample dimension."""
    if not at:
        return array
    for dim, position in at.items():
        if dim not in array.dims:
            raise DataError(f"at: {array.name} has no dimension {dim!r}; it has {', '.join(map(str, array.dims))}")
        try:
            exact = dim not in array.coords or array[dim].dtype.kind in "OSUT"
            if not exact and is_longitude(str(dim)):
                position = _nearest_longitude(array[dim].values, position)
            array = array.sel({dim: [position]}, method=None if exact else "nearest")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DataError(f"at: there is no {dim}={position!r} ({error})") from error
    return array.squeeze(
        [dim for dim in array.dims if array.sizes[dim] == 1 and dim not in (sample, *sample)], drop=True
    )


def _nearest_longitude(longitudes: NDArray[Any], value: Any) -> Any:
    """Return the longitude nearest to a value, modulo 360 degrees."""
    away = np.abs((np.asarray(longitudes, np.float64) - float(value) + FULL_TURN / 2) % FULL_TURN - FULL_TURN / 2)
    return longitudes[int(away.argmin())]


def _numeric_fields(dataset: xr.Dataset) -> list[str]:
    """Names of the numeric variables with at least two dimensions that do not describe the cells of others."""
    describing = set[str]()
    for array in dataset.variables.values():
        said = {**array.encoding, **array.attrs}
        describing |= {str(said.get("bounds"))}
        describing |= set(str(said.get("cell_measures", "")).replace(":", " ").split()[1::2])
        describing |= {str(name) for key, one in said.items() if str(key).endswith("_connectivity") for name in [one]}
    return [
        str(name)
        for name, array in dataset.data_vars.items()
        if array.ndim >= 2 and array.dtype.kind in "biuf" and name not in describing and not str(name).endswith(_BOUNDS)
    ]


def _check_not_stacked(array: xr.DataArray) -> None:
    """Raise a DataError for stacked dimensions: neither plans nor files can hold tuples as coordinates."""
    for dim in array.dims:
        levels = getattr(array.indexes.get(dim), "levels", None)
        if levels is not None:
            names = ", ".join(str(name) for name in array.indexes[dim].names)
            raise DataError(
                f"{array.name}: dimension {str(dim)!r} is stacked (a MultiIndex of {names}); undo it first with "
                f".unstack({str(dim)!r}), or give up its coordinates with .reset_index({str(dim)!r})"
            )


def _time(array: xr.DataArray, sample: str) -> tuple[NDArray[Any] | None, str]:
    """Times of the samples, if any, and their calendar: dates in any case, numbers and durations if named time."""
    if sample not in array.coords:
        return None, "standard"
    values = np.asarray(array[sample].values)
    if values.dtype.kind == "M":
        return values.astype("datetime64[ns]"), "standard"
    if values.dtype.kind in "miuf" and _is_time(array[sample]):
        return values, "standard"
    calendar = getattr(values.flat[0], "calendar", None) if values.dtype == object and values.size else None
    return (None, "standard") if calendar is None else (from_calendar(values), str(calendar))


def _is_time(axis: xr.DataArray) -> bool:
    """Whether a coordinate is time by its name or by its CF attributes."""
    attributes = axis.attrs
    return (
        str(axis.name).lower() == "time" or attributes.get("axis") == "T" or attributes.get("standard_name") == "time"
    )


def _attributes(array: xr.DataArray | xr.Dataset) -> dict[str, Any]:
    """Attributes as JSON can hold them."""
    return {str(name): _json_value(value) for name, value in array.attrs.items()}


def _coordinate_attributes(coordinate: xr.DataArray, sites: Sites) -> dict[str, Any]:
    """Attributes of a coordinate; positions that were given in radians are in degrees."""
    found = _attributes(coordinate)
    degrees = {sites.roles.get("latitude"): "degrees_north", sites.roles.get("longitude"): "degrees_east"}
    if coordinate.name in degrees and str(found.get("units", "")).lower().startswith("rad"):
        found["units"] = degrees[str(coordinate.name)]
    return found


def _json_value(value: Any) -> Any:
    """Convert an attribute to numbers, text, or lists of them."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_json_value(one) for one in value]
    return value if isinstance(value, str | int | float) else str(value)
