"""Sites of a plan as files that other tools read: CSV, GeoJSON, NetCDF."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from keyhole.core.errors import DataError
from keyhole.core.storage import replacing
from keyhole.plan.plan import Plan

__all__ = ["sites_geojson", "write_sites"]


def write_sites(plan: Plan, path: Path) -> None:
    """Write the sites in rank order as CSV, GeoJSON or NetCDF, by the path's suffix."""
    writers = {".csv": _csv, ".geojson": _geojson, ".json": _geojson, ".nc": _netcdf}
    if path.suffix not in writers:
        raise DataError(f"{path}: sites go to .csv, .geojson or .nc, not {path.suffix or 'without a suffix'}")
    content = writers[path.suffix](plan)
    with replacing(path) as file:
        file.write(content)


def sites_geojson(plan: Plan) -> dict[str, Any]:
    """Give the sites as points; longitudes from -180 to 180."""
    axes = plan.grid.axis_of_longitude(), plan.grid.axis_of_latitude()
    if None in axes:
        raise DataError("GeoJSON needs latitude and longitude, and the plan's grid has none; write .csv or .nc")
    east, north = (plan.grid.dims[int(axis or 0)] for axis in axes)
    rows = [{name: _plain(value) for name, value in row.items()} for row in plan.sites.to_dict("records")]
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [(row[east] + 180) % 360 - 180, row[north]]},
            "properties": {name: value for name, value in row.items() if name not in (east, north)},
        }
        for row in rows
    ]
    return {"type": "FeatureCollection", "features": features}


def _csv(plan: Plan) -> bytes:
    return str(plan.sites.to_csv(index=False)).encode()


def _geojson(plan: Plan) -> bytes:
    return json.dumps(sites_geojson(plan), indent=1).encode()


def _netcdf(plan: Plan) -> bytes:
    """One entry for each site along ``site``, and their ranks on the grid, 0 where there is none."""
    import xarray as xr

    table = plan.sites
    dims = plan.grid.dims
    said = plan.origin.axis_attributes
    columns = {name: ("site", table[name].to_numpy()) for name in ("index", "gain")}
    columns |= {
        "name": ("site", table["name"].to_numpy(str)),
        "existing": ("site", table["existing"].to_numpy(np.int8)),
    }
    places = {f"site_{dim}": ("site", table[dim].to_numpy(), dict(said.get(dim, {}))) for dim in dims if dim in table}
    ranks = np.zeros(plan.grid.size, np.int32)
    ranks[plan.indices] = table["rank"]
    axes = {dim: (dim, np.asarray(plan.grid.coordinates[dim]), dict(said.get(dim, {}))) for dim in dims}
    dataset = xr.Dataset(
        columns | places | {"rank_on_grid": (dims, ranks.reshape(plan.grid.shape))},
        {"site": ("site", table["rank"].to_numpy()), **axes},
    )
    return bytes(dataset.to_netcdf(engine="h5netcdf"))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
