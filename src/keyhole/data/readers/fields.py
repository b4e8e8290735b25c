"""Gridded fields on labelled dimensions: what of a Dataset is samples, grid, time and metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.core.executors import is_worker_task
from keyhole.data.coordinates import FULL_TURN, is_longitude, is_radian
from keyhole.data.origin import SourceInfo, clock_of
from keyhole.data.readers.calendars import from_calendar
from keyhole.data.readers.dimensions import check_space, is_time, sample_dimension, scalar_time, time_among
from keyhole.data.readers.files import one_of
from keyhole.data.readers.geometry import is_position, sites_of_field
from keyhole.data.readers.stored import stored_samples
from keyhole.data.sample_labels import Coordinates
from keyhole.data.samples import Samples
from keyhole.data.sites import Sites
from keyhole.data.validation import floating_type
from keyhole.data.values import fits

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["At", "Field", "SampleDims", "StackedField", "Variable", "read_dataarray", "read_dataset", "variable_names"]

_BOUNDS = ("_bnds", "_bounds")
_STACKED = "sample"  # the sample dimension that several are made into

Variable = str | Sequence[str] | None
At = Mapping[str, Any] | None
SampleDims = str | Sequence[str] | None


def read_dataset(
    dataset: xr.Dataset, *, memory: int, variable: Variable = None, samples: SampleDims = None, at: At = None
) -> Samples:
    """Read samples from one variable of a Dataset, or from several as channels.

    Parameters
    ----------
    dataset : Dataset
        In memory, or lazily loaded.
    memory : int
        Bytes that work on the samples may take, beyond which they are read when they are used.
    variable : str or sequence of str, optional
        Name of one variable, or names of several on the same grid, each a channel. None: all numeric variables with at
        least two dimensions, if they have the same dimensions.
    samples : str or sequence of str, optional
        The sample dimension, or several that are stacked (``("member", "time")``); None: that of time, else the first.
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
    >>> read_dataset(xr.Dataset({"u": array, "v": -array}), memory=2**30).channels
    2
    """
    fields = _numeric_fields(dataset)
    together = variable is None and len({dataset[name].dims for name in fields}) == 1
    return Field.from_dataset(dataset, fields if together else variable_names(dataset, variable), samples, at).samples(
        memory
    )


def read_dataarray(array: xr.DataArray, *, memory: int, samples: SampleDims = None, at: At = None) -> Samples:
    """Read samples from a DataArray.

    Parameters
    ----------
    array : DataArray
        A field.
    memory, samples, at
        As for `read_dataset`.

    Returns
    -------
    Samples
    """
    name = str(array.name or "field")
    if name in array.coords:
        raise DataError(f"{name}: called like one of its own coordinates; rename it")
    return Field.from_dataset(array.to_dataset(name=name), [name], samples, at).samples(memory)


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

    A pickled field holds the paths of files, not their values, so that another process can read from them; values that
    are in memory are pickled with it.

    Parameters
    ----------
    arrays : sequence of DataArray
        The variables, with the sample dimension first.
    sites, time, origin
        As in `Samples`; all sites count as valid, since no value has been read.
    is_snapshot : bool
        Whether the variables are a single sample without a sample dimension.
    coordinates : mapping of str to ndarray
        Coordinates along the samples other than the time, by name.
    """

    arrays: Sequence[xr.DataArray]
    sites: Sites
    time: NDArray[Any] | None
    origin: SourceInfo
    is_snapshot: bool
    coordinates: Coordinates

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
        sample_dims: list[str] = []
        described = arrays
        if samples is not None and not isinstance(samples, str):
            sample_dims, samples = list(samples), _STACKED
            described = [_stacked(_without_values(array), sample_dims) for array in arrays]
        elif is_snapshot:
            described = [
                _without_values(array).expand_dims(samples or scalar_time(array) or "time") for array in arrays
            ]
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
                name: _coordinate_attributes(first[name] if name in first.coords else dataset[name], sites)
                for name in (sample, *dims, *sites.auxiliary)
                if name in first.coords or name in dataset.variables
            },
            variables={str(array.name): _attributes(array) for array in arrays} if several else {},
            calendar=calendar,
            dataset_attributes=_attributes(dataset),
            clock=clock_of(time),
        )
        order = dims if is_snapshot else (*(sample_dims or [sample]), *dims)
        kind = StackedField if sample_dims else cls
        along = _coordinates_along(first, sample, timed=time is not None)
        return kind([_bare(array.transpose(*order)) for array in arrays], sites, time, origin, is_snapshot, along)

    def __len__(self) -> int:
        return 1 if self.is_snapshot else int(self.arrays[0].shape[0])

    @property
    def chunk(self) -> int:
        """Number of samples that are stored together in the file, or are one chunk of a dask array."""
        return 1 if self.is_snapshot else _chunk_along(self.arrays[0], 0)

    @property
    def is_lazy(self) -> bool:
        """Whether values are read from files, or computed by dask, rather than in memory already."""
        return not all(array.variable._in_memory for array in self.arrays)

    @property
    def nbytes(self) -> int:
        """Bytes of all samples once they are read, in floating point."""
        return len(self) * len(self.arrays) * math.prod(self.sites.shape) * floating_type(self.dtype).itemsize

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values."""
        return np.result_type(*(array.dtype for array in self.arrays))

    def values(self, rows: slice) -> NDArray[Any]:
        """Read some of the samples.

        Parameters
        ----------
        rows : slice
            Positions of the samples, consecutive ones.

        Returns
        -------
        ndarray of shape (n, channels, *sites.shape)

        Raises
        ------
        DataError
            If the file is damaged.
        """
        try:
            return self._read(rows)
        except MemoryError:
            raise
        except Exception as error:  # whatever xarray and the libraries under it raise on damaged files
            which = "samples" if rows.start is None else f"samples {rows.start} to {rows.stop}"
            raise DataError(f"{self.origin.name}: {which} cannot be read ({error}){_hint(error)}") from error

    def _read(self, rows: slice) -> NDArray[Any]:
        """Read some of the samples."""
        if self.is_snapshot:  # indexed, since xarray would keep the values of the whole array
            return _joined(_computed([array[...] for array in self.arrays]), 0)[np.newaxis][rows]
        return _joined(_computed([array[rows] for array in self.arrays]), 1)

    def samples(self, memory: int) -> Samples:
        """Return the samples: in memory where they fit in a share of it, else to be read when they are used.

        Parameters
        ----------
        memory : int
            Bytes that work on the samples may take.
        """
        if not self.is_lazy or fits(self.nbytes, memory):
            return self.load()
        return stored_samples(self, memory)

    def load(self) -> Samples:
        """Read all samples into memory."""
        values = self.values(slice(None))
        return Samples.build(values, self.sites, time=self.time, origin=self.origin, coordinates=self.coordinates)


@dataclass(frozen=True, eq=False)
class StackedField(Field):
    """A field whose samples run along several dimensions, the last of them fastest; the arrays begin with these."""

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Lengths of the sample dimensions."""
        return tuple(self.arrays[0].shape[: self.arrays[0].ndim - len(self.sites.shape)])

    def __len__(self) -> int:
        return math.prod(self.sample_shape)

    @property
    def chunk(self) -> int:
        """Number of samples that are stored together; see `Field.chunk`."""
        together = 1
        for axis, size in reversed(list(enumerate(self.sample_shape))):
            chunk = _chunk_along(self.arrays[0], axis)
            together *= chunk
            if chunk < size:
                break
        return together

    def _read(self, rows: slice) -> NDArray[Any]:
        """Read some of the samples, those of each member at a time."""
        start, stop, _ = rows.indices(len(self))
        *outer, size = self.sample_shape
        parts = [
            array[(*np.unravel_index(member, outer), slice(max(0, start - member * size), stop - member * size))]
            for array in self.arrays
            for member in (range(start // size, -(-stop // size)) if stop > start else [0])
        ]
        values, count = _computed(parts), len(parts) // len(self.arrays)
        together = [np.concatenate(values[first : first + count]) for first in range(0, len(values), count)]
        return _joined(together, 1)


def _joined(arrays: Sequence[NDArray[Any]], axis: int) -> NDArray[Any]:
    """Join arrays along a new axis; a single one is not copied."""
    return np.expand_dims(arrays[0], axis) if len(arrays) == 1 else np.stack(arrays, axis=axis)


def _bare(array: xr.DataArray) -> xr.DataArray:
    """Leave out coordinates that are not axes, which are in `Sites`: they would be indexed with each reading."""
    return array.drop_vars([name for name in array.coords if name not in array.dims])


def _chunk_along(array: xr.DataArray, axis: int) -> int:
    """Number of positions along an axis that are read together: a chunk of dask, else one of the file."""
    dim = array.dims[axis]
    if dim in array.chunksizes:
        return max(1, *array.chunksizes[dim])
    chunk = array.encoding.get("preferred_chunks", {}).get(dim)
    return int(chunk) if isinstance(chunk, int | np.integer) else 1


def _computed(arrays: Sequence[xr.DataArray]) -> list[NDArray[Any]]:
    """Values of arrays; those of dask are computed at once, and in a task of a worker within that task.

    A task that waited for others on the cluster would hold the thread that they need. Only what the cluster holds
    already (``persist``) is fetched from it, by a task that gives its thread back until then.
    """
    if all(array.chunks is None for array in arrays):
        return [np.asarray(array.values) for array in arrays]
    from dask.base import compute

    lazy = [array.data for array in arrays]
    if not is_worker_task():
        found = compute(*lazy)
    else:
        from distributed import futures_of, worker_client

        with worker_client() if futures_of(lazy) else nullcontext("synchronous") as scheduler:
            found = compute(*lazy, scheduler=scheduler)
    return [np.asarray(values) for values in found]


def _hint(error: Exception) -> str:
    """What may be amiss if a file is missing on a worker."""
    is_missing = is_worker_task() and isinstance(error, FileNotFoundError)
    return "; dask workers read files themselves and need them at the same path" if is_missing else ""


def _stacked(array: xr.DataArray, dims: list[str]) -> xr.DataArray:
    """Make one sample dimension of several, such as members and times; the times stay the coordinate of the samples."""
    missing = [dim for dim in dims if dim not in array.dims]
    if missing or len(set(dims)) < len(dims):
        raise DataError(f"{array.name}: samples={dims!r}; its dimensions are {', '.join(map(str, array.dims))}")
    time = time_among(array, [dim for dim in dims if dim in array.coords])
    array = array.assign_coords({dim: np.arange(array.sizes[dim]) for dim in dims if dim not in array.coords})
    whole = array.stack({_STACKED: dims}, create_index=False)
    return whole if time is None else whole.assign_coords({_STACKED: (_STACKED, whole[time].values, array[time].attrs)})


def _without_values(array: xr.DataArray) -> xr.DataArray:
    """Return a stand-in without values; to stack or expand the array itself would read them."""
    return array.copy(data=np.broadcast_to(np.float32(0), array.shape))


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
        if array.ndim >= 2
        and array.dtype.kind in "biuf"
        and name not in describing
        and not str(name).endswith(_BOUNDS)
        and not is_position(array)
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
    if values.dtype.kind in "miuf" and is_time(array[sample]):
        return values, "standard"
    calendar = getattr(values.flat[0], "calendar", None) if values.dtype == object and values.size else None
    return (None, "standard") if calendar is None else (from_calendar(values), str(calendar))


def _coordinates_along(array: xr.DataArray, sample: str, *, timed: bool) -> Coordinates:
    """Coordinates along the samples by name, without the one that is their time."""
    along = {str(name): one for name, one in array.coords.items() if one.dims == (sample,)}
    return {name: np.asarray(one.values) for name, one in along.items() if not (timed and name == sample)}


def _attributes(array: xr.DataArray | xr.Dataset) -> dict[str, Any]:
    """Attributes as JSON can hold them."""
    return {str(name): _json_value(value) for name, value in array.attrs.items()}


def _coordinate_attributes(coordinate: xr.DataArray, sites: Sites) -> dict[str, Any]:
    """Attributes of a coordinate; positions that were given in radians are in degrees."""
    found = _attributes(coordinate)
    degrees = {sites.roles.get("latitude"): "degrees_north", sites.roles.get("longitude"): "degrees_east"}
    if coordinate.name in degrees and is_radian(found):
        found["units"] = degrees[str(coordinate.name)]
    return found


def _json_value(value: Any) -> Any:
    """Convert an attribute to numbers, text, or lists of them."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_json_value(one) for one in value]
    return value if isinstance(value, str | int | float) else str(value)
