"""Sites for other tools, and the accessor of xarray's objects."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import xarray as xr

import keyhole as kh
from example_data import monthly_field, quick, smooth
from keyhole.core.errors import DataError
from keyhole.data.constraints.site_lookup import find_sites
from keyhole.plan.files import sites_geojson, write_sites


@pytest.fixture
def plan():
    return quick(monthly_field(), constraints={"existing": [0]})


def test_sites_as_csv_name_the_same_sites(plan, tmp_path):
    """What is written can be given back as fixed sites."""
    import pandas as pd

    write_sites(plan, tmp_path / "sites.csv")
    table = pd.read_csv(tmp_path / "sites.csv")
    assert find_sites(table, plan.grid).tolist() == plan.indices.tolist()
    assert table["existing"].tolist() == [True, False, False, False]


def test_sites_as_geojson_are_points_by_rank(plan, tmp_path):
    """Longitude before latitude, from -180 to 180; everything else in the properties."""
    write_sites(plan, tmp_path / "sites.geojson")
    points = json.loads((tmp_path / "sites.geojson").read_text())["features"]
    assert [point["properties"]["rank"] for point in points] == [1, 2, 3, 4]
    for point, row in zip(points, plan.sites.to_dict("records"), strict=True):
        east, north = point["geometry"]["coordinates"]
        assert -180 <= east < 180
        assert (east - row["lon"]) % 360 == pytest.approx(0)
        assert north == pytest.approx(row["lat"])


def test_sites_as_netcdf_with_their_ranks_on_the_grid(plan, tmp_path):
    """Coordinates keep their units."""
    write_sites(plan, tmp_path / "sites.nc")
    with xr.open_dataset(tmp_path / "sites.nc") as data:
        assert data["index"].values.tolist() == plan.indices.tolist()
        assert data["rank_on_grid"].values.ravel()[plan.indices].tolist() == [1, 2, 3, 4]
        assert data["site_lat"].attrs["units"] == "degrees_north"


def test_what_cannot_be_written_is_said(plan, tmp_path):
    """An unknown ending; points without latitude and longitude."""
    with pytest.raises(DataError, match=r"sites\.shp: sites go to"):
        write_sites(plan, tmp_path / "sites.shp")
    with pytest.raises(DataError, match="latitude and longitude"):
        sites_geojson(quick(smooth(20, 4, 5)))


def test_the_accessor_selects_as_select_does():
    """With anomalies, constraints and the error against K."""
    field = monthly_field()
    options = {"method": "qr", "reconstructor": "ridge"}
    plan = field.keyhole.select(k=3, anomalies="month", **options)
    assert plan.indices.tolist() == quick(kh.read(field).anomalies("month")).indices.tolist()
    assert isinstance(plan.reconstruct(np.zeros(3), time="2001-02-01"), xr.DataArray)
    both = xr.Dataset({"a": field, "b": field + 1})
    assert both.keyhole.select(k=2, variable="a", **options).origin.name == "a"
    assert field.keyhole.curve([2, 3], methods=["greedy"]).ks == [2, 3]


@pytest.mark.parametrize(
    "order",
    [
        "import keyhole; import xarray",
        "import xarray; import keyhole",
        "import keyhole, importlib.util; importlib.util.find_spec('xarray'); import xarray",
    ],
)
def test_the_accessor_is_there_whoever_is_loaded_first(order):
    """Even if somebody only asks for xarray before; and xarray's loader is its own."""
    code = f"{order}; assert hasattr(xarray.DataArray, 'keyhole') and hasattr(xarray.Dataset, 'keyhole'); "
    code += "assert 'keyhole' not in type(xarray.__spec__.loader).__module__"
    subprocess.run([sys.executable, "-c", code], check=True)
