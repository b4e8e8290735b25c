"""Named data sets: what ships with Keyhole, how it was made, and what is said when data are not there."""

from __future__ import annotations

import gzip
import importlib.util
import struct
import sys
import zipfile
from importlib import resources
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import xarray as xr

from example_data import gridded
from keyhole.data import datasets
from keyhole.errors import DataError

ELSEWHERE = {
    "mnist": ("mnist", "idx .gz files of MNIST"),
    "celeba": ("celeba10k", "celeba10k_89x109_jpg.zip"),
    "ipsl": ("cmip6_ipsl_tas_monthly", "tas_mon_IPSL-CM6A-LR_20x20.npz"),
    "ncep": ("ncep_monthly_air", "air.mon.mean.nc"),
    "oisst": ("oisst_monthly", r"one NetCDF file \*oisst\*.nc"),
}


# Embedded -----------------------------------------------------------------------------------------------------------


def test_sst_is_monthly_from_1981_12_to_2023_01_on_36_by_72():
    field = datasets.sst()
    assert (len(field), field.channels, field.sites.shape) == (494, 1, (36, 72))
    months = np.arange("1981-12", "2023-02", dtype="datetime64[M]")
    np.testing.assert_array_equal(field.time.astype("datetime64[M]"), months)
    assert field.climatology.kind == "month"
    assert (field.origin.name, field.origin.units, field.origin.kind) == ("sst", "degC", "field")


def test_sst_has_latitude_longitude_and_land():
    field = datasets.sst()
    assert field.sites.dims == ("lat", "lon")
    np.testing.assert_array_equal(field.sites.axes["lat"], np.arange(87.5, -90, -5))
    np.testing.assert_array_equal(field.sites.axes["lon"], np.arange(2.5, 360, 5))
    at = {name: (int((87.5 - lat) / 5), int((lon - 2.5) / 5)) for name, lat, lon in
          (("Sahara", 22.5, 12.5), ("Pacific", 2.5, 202.5), ("Antarctica", -82.5, 92.5))}  # fmt: skip
    number = {name: field.sites.number(np.ravel_multi_index(place, (36, 72))) for name, place in at.items()}
    assert field.observable[number["Pacific"]]
    assert number["Sahara"] == number["Antarctica"] == -1
    assert field.missing is None


def test_sst_is_in_degrees_celsius_and_warm_at_the_equator():
    field = datasets.sst()
    assert -2 <= field.values.min() < 0
    assert 30 < field.values.max() < 36
    mean = field.sites.to_grid(field.values.mean(axis=(0, 1)))
    assert np.nanmean(mean[16:20]) > 25 > 5 > np.nanmean(mean[3:5])


def test_the_last_fifth_of_sst_is_the_test_part():
    split = datasets.sst().split
    np.testing.assert_array_equal(split.test, np.arange(395, 494))
    np.testing.assert_array_equal(split.development, np.arange(395))


def test_the_embedded_file_is_small_integers_with_its_axes():
    file = resources.files("keyhole").joinpath("data/sst.npz")
    with resources.as_file(file) as path:
        assert path.stat().st_size < 2_000_000
        with np.load(path) as data:
            assert set(data) == {"sst", "latitude", "longitude", "time", "land"}
            assert data["sst"].dtype == np.int16
            np.testing.assert_array_equal(data["land"], (data["sst"] == -32768).all(axis=0))
            np.testing.assert_array_equal(np.flatnonzero(~data["land"]), datasets.sst().sites.index)


def test_digits_are_images_from_0_to_1():
    images = datasets.digits()
    assert gridded(images).shape == (1797, 1, 8, 8)
    assert (images.values.min(), images.values.max()) == (0, 1)
    assert images.observable.all()
    np.testing.assert_array_equal(images.split.test, np.arange(1437, 1797))


def test_a_data_set_is_had_by_name():
    assert datasets.load("digits").origin.name == "digits"
    with pytest.raises(DataError, match="no data set 'iris'; there are sst, digits, water, mnist, celeba"):
        datasets.load("iris")


# Elsewhere ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ELSEWHERE)
def test_without_keyhole_data_it_says_how_to_get_the_data(monkeypatch, name):
    folder, content = ELSEWHERE[name]
    monkeypatch.delenv("KEYHOLE_DATA", raising=False)
    with pytest.raises(DataError, match=f"set KEYHOLE_DATA to a folder that holds {folder}/ with .*{content}"):
        datasets.load(name)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_where_the_folder_is_missing_it_says_what_to_put_there(monkeypatch, tmp_path, name):
    folder, content = ELSEWHERE[name]
    monkeypatch.setenv("KEYHOLE_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"{tmp_path / folder}: no such folder; put there .*{content}"):
        datasets.load(name)


@pytest.mark.parametrize("name", ELSEWHERE)
def test_where_the_file_is_missing_it_is_named(monkeypatch, tmp_path, name):
    folder = tmp_path / ELSEWHERE[name][0]
    folder.mkdir()
    monkeypatch.setenv("KEYHOLE_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"{folder}.*(one file .* is expected, 0 are there|no such file)"):
        datasets.load(name)


def idx(*shape: int) -> bytes:
    return gzip.compress(b"\0\0\x08" + struct.pack(">B", len(shape)) + struct.pack(f">{len(shape)}i", *shape), mtime=0)


def archive(folder: Path, name: str, **members: bytes) -> None:
    with zipfile.ZipFile(folder / name, "w") as file:
        for member, content in members.items():
            file.writestr(member.replace("_", "."), content)


DAMAGED = {
    "mnist: not gzip": ("mnist", lambda f: (f / "train-images-idx3-ubyte.gz").write_bytes(b"no gzip")),
    "mnist: cut short": ("mnist", lambda f: (f / "train-images-idx3-ubyte.gz").write_bytes(idx(5, 2, 2)[:-9])),
    "mnist: too few values": ("mnist", lambda f: (f / "train-images-idx3-ubyte.gz").write_bytes(idx(5, 2, 2))),
    "mnist: empty": ("mnist", lambda f: (f / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b""))),
    "celeba: not zip": ("celeba", lambda f: (f / "faces.zip").write_bytes(b"no zip")),
    "celeba: no images": ("celeba", lambda f: archive(f, "faces.zip")),
    "celeba: not an image": ("celeba", lambda f: archive(f, "faces.zip", a_jpg=b"no jpeg")),
    "ipsl: not zip": ("ipsl", lambda f: (f / "runs.npz").write_bytes(b"no zip")),
    "ipsl: other arrays": ("ipsl", lambda f: np.savez(f / "runs.npz", a=np.zeros(3))),
    "ncep: not NetCDF": ("ncep", lambda f: (f / "air.nc").write_bytes(b"no NetCDF")),
    "oisst: not NetCDF": ("oisst", lambda f: (f / "oisst.nc").write_bytes(b"no NetCDF")),
}


@pytest.mark.parametrize(("name", "damage"), DAMAGED.values(), ids=DAMAGED)
def test_damaged_data_are_refused_by_name(monkeypatch, tmp_path, name, damage):
    folder = tmp_path / ELSEWHERE[name][0]
    folder.mkdir()
    damage(folder)
    monkeypatch.setenv("KEYHOLE_DATA", str(tmp_path))
    with pytest.raises(DataError, match=str(folder)):
        datasets.load(name)


@pytest.mark.parametrize(
    ("name", "shape", "test", "kind"),
    [
        ("mnist", (70000, 1, 28, 28), 10000, "auto"),
        ("celeba", (10000, 1, 64, 64), 2000, "auto"),
        ("ipsl", (3960, 1, 20, 20), 1980, "month"),
        ("ncep", (938, 1, 73, 144), 188, "month"),
        ("oisst", (494, 1, 73, 144), 99, "month"),
    ],
)
def test_the_benchmark_data_are_as_described(data_folder, name, shape, test, kind):
    signals = datasets.load(name)
    assert gridded(signals).shape == shape
    assert signals.values.dtype == np.float32
    assert len(signals.split.test) == test
    assert len(signals.split.development) == shape[0] - test
    assert signals.split.test.min() > signals.split.development.max()
    assert signals.climatology.kind == kind


# How the embedded data were made ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def make_sst() -> ModuleType:
    """The script as a module."""
    path = Path(__file__).parents[2] / "scripts" / "make_sst.py"
    spec = importlib.util.spec_from_file_location("make_sst", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def made_up(months: int = 2) -> xr.DataArray:
    """Sea everywhere, on the grid of the source: centres at multiples of 2.5 degrees, both poles."""
    values = np.random.default_rng(0).normal(size=(months, 73, 144))
    axes = {"time": np.arange(months), "lat": np.linspace(90, -90, 73), "lon": np.arange(144) * 2.5}
    return xr.DataArray(values, axes, ("time", "lat", "lon"))


def mean_of_the_sea(field: xr.DataArray, month: int, lat: float, lon: float) -> tuple[float, float]:
    """Mean over the sea of a 5-degree cell, and its share of the area, by many points in it."""
    latitudes = lat - 2.5 + (np.arange(400) + 0.5) * 5 / 400
    longitudes = lon - 2.5 + (np.arange(8) + 0.5) * 5 / 8
    rows = np.rint((90 - latitudes) / 2.5).astype(int)
    columns = np.rint(longitudes / 2.5).astype(int) % 144
    found = field.values[month][np.ix_(rows, columns)]
    weight = np.broadcast_to(np.cos(np.deg2rad(latitudes))[:, None], found.shape)
    sea = np.isfinite(found)
    return (found[sea] * weight[sea]).sum() / weight[sea].sum(), weight[sea].sum() / weight.sum()


def test_coarsening_is_the_area_weighted_mean_of_the_sea(make_sst):
    field = made_up()
    field.values[:, np.random.default_rng(1).random((73, 144)) < 0.3] = np.nan
    values, latitude, longitude = make_sst.coarsen(field)
    assert values.shape == (2, 36, 72)
    for row, column in [(0, 0), (0, 71), (9, 30), (17, 71), (18, 0), (35, 40)]:
        for month in range(2):
            mean, share = mean_of_the_sea(field, month, latitude[row], longitude[column])
            if share >= 0.5:
                assert values[month, row, column] == pytest.approx(mean, abs=1e-4)
            else:
                assert np.isnan(values[month, row, column])


def test_a_field_that_is_the_same_everywhere_stays_so(make_sst):
    values, _, _ = make_sst.coarsen(made_up() * 0 + 20)
    np.testing.assert_allclose(values, 20, rtol=1e-12)


@pytest.mark.parametrize(("covered", "is_sea"), [(2.5, True), (1.25, False), (5.0, True)])
def test_a_cell_is_sea_if_half_of_it_is(make_sst, covered, is_sea):
    """The cell from 0 to 5 degrees east meets source cells that end at 1.25, 3.75 and 6.25 degrees."""
    field = made_up()
    columns = {1.25: [0], 2.5: [1], 5.0: [0, 1, 2]}[covered]
    field[:, :, [c for c in range(3) if c not in columns]] = np.nan
    values, _, _ = make_sst.coarsen(field)
    assert np.isfinite(values[:, :, 0]).all() == is_sea
    assert np.isnan(values[:, :, 0]).all() != is_sea


def test_a_cell_that_is_land_in_one_month_is_land_in_all(make_sst):
    field = made_up(3)
    field[1, 30:34, 10:14] = np.nan
    values, _, _ = make_sst.coarsen(field)
    land = np.isnan(values)
    assert land[1].any()
    np.testing.assert_array_equal(land[0], land[1])
    np.testing.assert_array_equal(land[2], land[1])


def test_the_embedded_file_is_what_the_script_makes(data_folder, make_sst, tmp_path, monkeypatch, capsys):
    source = data_folder / "oisst_monthly" / "test_input_oisst_data.nc"
    monkeypatch.setattr(sys, "argv", ["make_sst.py", str(source), str(tmp_path / "sst.npz")])
    make_sst.main()
    assert "(494, 36, 72)" in capsys.readouterr().out
    with (
        resources.files("keyhole").joinpath("data/sst.npz").open("rb") as file,
        np.load(file) as embedded,
        np.load(tmp_path / "sst.npz") as made,
    ):
        assert set(made) == set(embedded)
        for name in made:
            np.testing.assert_array_equal(made[name], embedded[name])
