"""Read files of readings; write files of reconstructions, predictions and sites."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from keyhole.core.errors import DataError, StorageError
from keyhole.core.paths import check_regular, real_path
from keyhole.core.storage import replacing
from keyhole.data.origin import SourceInfo
from keyhole.data.readers.arrays import load_npy
from keyhole.data.readers.tables import TIME, load_csv
from keyhole.plan.export import as_array, as_field, as_frame, bounds_of, coordinates_of, global_attributes
from keyhole.plan.outliers import Outliers
from keyhole.plan.plan import Plan

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = [
    "check_writable",
    "make_folder",
    "predictions",
    "read_readings",
    "sites_geojson",
    "write_predictions",
    "write_reconstruction",
    "write_region",
    "write_sites",
]

_COLUMNS = (
    "index",
    "name",
    "gain",
    "stability",
    "existing",
)  # of a table of sites, whatever the coordinates are called


def read_readings(path: Path) -> Any:
    """Read readings: CSV with site names as columns and an optional time column, or .npy in rank order."""
    check_regular(path)
    if not path.is_file():
        raise StorageError(f"{path}: no such file")
    if path.suffix == ".npy":
        return load_npy(path)
    if path.suffix == ".csv":
        frame = load_csv(path, whole=True, words=True)
        if frame.empty:
            raise DataError(f"{path}: contains no readings, only a header")
        return frame
    raise DataError(f"{path}: readings are .csv or .npy, not {path.suffix or 'without a suffix'}")


def write_reconstruction(
    plan: Plan, readings: Any, path: Path, when: Sequence[str] | None = None, interval: float | None = None,
    *, outliers: Outliers = "flag",
) -> tuple[int, ...]:  # fmt: skip
    """Reconstruct fields and write them as NetCDF, .npy or CSV, by suffix.

    Parameters
    ----------
    plan, readings
        The plan, and readings as `Plan.reconstruct` takes them.
    path
        File to write; CSV for one channel only.
    when
        Time of each sample, for readings without labels.
    interval
        Coverage of prediction intervals, written as variables ``<name>_lower`` and ``<name>_upper``; NetCDF only.
    outliers
        As in `Plan.reconstruct`.

    Returns
    -------
    tuple of int
        Shape of the reconstruction.
    """
    if path.suffix not in (".nc", ".npy", ".csv"):
        raise DataError(
            f"{path}: reconstructions are written as .nc, .npy or .csv, not {path.suffix or 'without a suffix'}"
        )
    if interval is not None and path.suffix != ".nc":
        raise DataError(f"{path}: prediction intervals are written to .nc only")
    values, time = plan.take_readings(readings, when, interval, outliers=outliers)
    parts = plan.reconstruct_with_bounds(values, time, interval=interval)
    reconstructed = parts[0]
    if path.suffix == ".csv" and reconstructed.shape[1] > 1:
        raise DataError(f"{path}: several channels do not fit a table; write .nc or .npy")
    array = as_array(reconstructed, plan.domain, plan.origin)
    if path.suffix == ".nc":
        content = _netcdf(plan, parts, time, interval, path)
    with replacing(path) as file:
        if path.suffix == ".nc":
            file.write(content)
        elif path.suffix == ".npy":
            np.save(file, array)
        else:
            file.write(as_frame(reconstructed, plan.domain, plan.origin, time).to_csv(index=time is not None).encode())
    several = path.suffix == ".nc" and reconstructed.shape[1] > 1
    return (*reconstructed.shape[:2], *plan.domain.shape) if several else array.shape


def _netcdf(plan: Plan, parts: Sequence[Any], time: Any, interval: float | None, path: Path) -> bytes:
    """Encode a reconstruction, with the bounds of its prediction interval if there is one."""
    whole = _dataset(plan, parts[0], plan.origin, time)
    if interval is not None:
        for end, values, origin in zip(("lower", "upper"), parts[1:], bounds_of(plan.origin, interval), strict=True):
            bound = _dataset(plan, values, origin, time)
            for name, array in bound.data_vars.items():
                whole[f"{name}_{end}"] = array
    whole.attrs = global_attributes(plan.origin)
    if np.issubdtype(whole[plan.origin.sample_dim].dtype, np.datetime64) or plan.origin.calendar != "standard":
        for said in ("units", "calendar"):  # xarray writes its own
            whole[plan.origin.sample_dim].attrs.pop(said, None)
    for part in (whole, *whole.coords.values(), *whole.data_vars.values()):
        part.attrs = {name: _attribute(value) for name, value in part.attrs.items()}
    try:
        return bytes(whole.to_netcdf(engine="h5netcdf"))
    except (ValueError, TypeError, OverflowError, LookupError, RuntimeError, AttributeError) as error:
        raise DataError(f"{path}: cannot be written as NetCDF ({error}); write .npy") from error


def _dataset(plan: Plan, values: Any, origin: SourceInfo, time: Any) -> xr.Dataset:
    import xarray as xr

    field = as_field(values, plan.domain, origin, time)
    return field if isinstance(field, xr.Dataset) else field.to_dataset(name=field.name)


def write_region(
    plan: Plan, readings: Any, path: Path, region: Any, when: Sequence[str] | None = None, level: float = 0.9,
    *, outliers: Outliers = "flag",
) -> int:  # fmt: skip
    """Write the mean over a region with its prediction interval as CSV.

    Parameters
    ----------
    plan, readings, region, level, outliers
        See `Plan.interval`.
    path
        File to write.
    when
        Time of each sample, for readings without labels.

    Returns
    -------
    int
        Number of rows.
    """
    if path.suffix != ".csv":
        raise DataError(f"{path}: means over a region are written as .csv, not {path.suffix or 'without a suffix'}")
    table = plan.interval(region, readings, time=when, level=level, outliers=outliers)
    with replacing(path) as file:
        file.write(table.to_csv().encode())
    return len(table)


def predictions(
    plan: Plan, readings: Any, when: Sequence[str] | None = None, *, outliers: Outliers = "flag"
) -> pd.DataFrame:  # fmt: skip
    """Predict the target as a table: time if known, target, and for classes the probability of the predicted one."""
    import pandas as pd

    predictor = plan.need_predictor()
    values, time = plan.take_readings(readings, when, outliers=outliers)
    scores = plan.predict_array(values, time)
    columns: dict[str, Any] = {} if time is None else {TIME: time}
    columns[predictor.target] = predictor.answer(scores)
    if predictor.is_class:
        columns[f"{predictor.target} probability"] = scores.max(axis=1)
    return pd.DataFrame(columns)


def write_predictions(table: pd.DataFrame, path: Path) -> None:
    """Write predictions as CSV."""
    if path.suffix != ".csv":
        raise DataError(f"{path}: predictions are written as .csv, not {path.suffix or 'without a suffix'}")
    with replacing(path) as file:
        file.write(table.to_csv(index=False).encode())


def write_sites(plan: Plan, path: Path) -> None:
    """Write the sites in rank order as CSV, GeoJSON or NetCDF, by the path's suffix."""
    writers = {".csv": _sites_csv, ".geojson": _sites_json, ".json": _sites_json, ".nc": _sites_netcdf}
    if path.suffix not in writers:
        raise DataError(f"{path}: sites go to .csv, .geojson or .nc, not {path.suffix or 'without a suffix'}")
    content = writers[path.suffix](plan)
    with replacing(path) as file:
        file.write(content)


def sites_geojson(plan: Plan) -> dict[str, Any]:
    """Return the sites as a GeoJSON collection of points, longitudes from -180 to 180."""
    if not plan.domain.is_geographic:
        raise DataError("GeoJSON needs latitude and longitude, and the plan's sites have none; write .csv or .nc")
    east, north = plan.domain.roles["longitude"], plan.domain.roles["latitude"]
    if not {east, north} <= set(plan.sites.columns):
        raise DataError("GeoJSON needs positions, and the plan's sensors are weighted sums; write .csv")
    rows = [{name: _native(value) for name, value in row.items()} for row in plan.sites.to_dict("records")]
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [(row[east] + 180) % 360 - 180, row[north]]},
            "properties": {name: value for name, value in row.items() if name not in (east, north)},
        }
        for row in rows
    ]
    return {"type": "FeatureCollection", "features": features}


def _sites_csv(plan: Plan) -> bytes:
    return str(plan.sites.to_csv(index=False)).encode()


def _sites_json(plan: Plan) -> bytes:
    return json.dumps(sites_geojson(plan), indent=1).encode()


def _sites_netcdf(plan: Plan) -> bytes:
    """Encode one entry for each site along ``site``, and the ranks in the shape of the data, 0 where no site is."""
    import xarray as xr

    table, whole = plan.sites, coordinates_of(plan.domain, plan.origin)
    columns = {name: ("site", table[name].to_numpy()) for name in ("index", "gain")}
    columns |= {
        "name": ("site", table["name"].to_numpy(str)),
        "existing": ("site", table["existing"].to_numpy(np.int8)),
    }
    positions = {
        f"site_{name}": ("site", table[name].to_numpy(values.dtype), about)
        for name, (_, values, about) in whole.items()
        if name in table and name not in _COLUMNS
    }
    ranks = np.zeros(plan.domain.size, np.int32)
    ranks[plan.domain.index[plan.numbers[::-1]]] = table["rank"][::-1]  # of several sensors in a cell the first
    dataset = xr.Dataset(
        columns | positions | {"rank_on_grid": (plan.domain.dims, ranks.reshape(plan.domain.shape))},
        {"site": ("site", table["rank"].to_numpy()), **whole},
    )
    return bytes(dataset.to_netcdf(engine="h5netcdf"))


def _native(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def check_writable(path: Path) -> None:
    """Raise a StorageError unless a file can be made at ``path``."""
    folder = real_path(path).parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise StorageError(f"{folder}: no such folder")
    if path.is_dir():
        raise StorageError(f"{path}: is a folder; name a file")
    if path.exists() and not path.is_file():
        raise StorageError(f"{path}: is not a file; name one")
    if not os.access(folder, os.W_OK):
        raise StorageError(f"{folder}: cannot be written to")


def make_folder(folder: Path) -> None:
    """Create a folder and its parents unless they exist."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be created: {error.strerror or error}") from error


def _attribute(value: Any) -> Any:
    """Convert an attribute to what NetCDF supports: text, numbers, or a list of one of these."""
    if isinstance(value, list):
        of_text = any(isinstance(_attribute(one), str | list) for one in value)
        return [str(one) if of_text else _attribute(one) for one in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return int(value) if isinstance(value, bool) else value
