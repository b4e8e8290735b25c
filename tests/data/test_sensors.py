"""Sensors apart from sites: how they read the field between cells, and what they refuse."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import keyhole as kh
from example_data import monthly_field, smooth
from keyhole.data import Sensors
from keyhole.data.constraints.site_lookup import find_sites
from keyhole.data.preparation import prepare
from keyhole.data.samples import Samples
from keyhole.errors import KeyholeWarning, SettingsError


def plane(*shape: int) -> np.ndarray:
    """One sample that is linear along the axes, a second one that is constant."""
    axes = np.meshgrid(*(np.arange(length, dtype=float) for length in shape), indexing="ij")
    return np.stack([sum((i + 2) * axis for i, axis in enumerate(axes)), np.full(shape, 5.0)])


def world(values: np.ndarray, lat: np.ndarray, lon: np.ndarray) -> Samples:
    return kh.read(xr.DataArray(values, {"lat": lat, "lon": lon}, ["time", "lat", "lon"]))


def read_at(samples: Samples, positions, **options) -> np.ndarray:
    """Noise-free readings ``(N, s)`` of sensors at positions."""
    observed = samples.with_sensors(Sensors.at(positions, **options))
    return observed.readings(np.arange(len(observed.sensors)))[:, :, 0]


# Between cells ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(7,), (4, 5), (3, 4, 5)])
def test_a_field_that_is_linear_in_space_is_read_exactly(shape):
    samples, rng = kh.read(plane(*shape)), np.random.default_rng(0)
    columns = {dim: rng.uniform(0, length - 1, 6) for dim, length in zip(samples.sites.dims, shape, strict=True)}
    exact = sum((i + 2) * column for i, column in enumerate(columns.values()))
    np.testing.assert_allclose(read_at(samples, columns), [exact, np.full(6, 5.0)])


def test_latitudes_may_descend_and_longitudes_go_around():
    lat, lon = np.arange(60.0, -61.0, -30.0), np.arange(0.0, 360.0, 60.0)
    values = np.stack([np.repeat(lat[:, np.newaxis], 6, axis=1), np.tile(lon, (5, 1))])
    samples = world(values, lat, lon)
    found = read_at(samples, {"latitude": [45.0, -50.0, 0.0], "longitude": [-30.0, 370.0, -290.0]})
    np.testing.assert_allclose(found[0], [45.0, -50.0, 0.0])
    np.testing.assert_allclose(found[1], [150.0, 10.0, 70.0])  # -30 lies between 300 and 0, whose mean is 150


def test_a_regional_map_does_not_go_around():
    samples = world(plane(3, 4), np.arange(3.0), np.arange(170.0, 174.0))
    np.testing.assert_allclose(read_at(samples, {"lat": [0.5], "lon": [-187.5]}), [[2 * 0.5 + 3 * 2.5], [5.0]])
    with pytest.raises(SettingsError, match="lon=180 is outside the data"):
        read_at(samples, {"lat": [0.0], "lon": [180.0]})


def test_in_the_outer_half_of_the_last_cell_it_is_that_cell():
    samples = kh.read(plane(4, 5))
    np.testing.assert_allclose(read_at(samples, {"row": [-0.4], "column": [4.5]})[0], [12.0])
    with pytest.raises(SettingsError, match=r"row=-0\.6 is outside"):
        read_at(samples, {"row": [-0.6], "column": [4.0]})


def test_land_has_no_weight_and_a_warning_says_so():
    values = np.arange(24.0).reshape(2, 3, 4)
    values[:, 0, 1] = np.nan
    samples = kh.read(values)
    with pytest.warns(KeyholeWarning, match=r"1 of 2 sensors have invalid cells.*: a"):
        found = read_at(samples, {"row": [0.5, 1.5], "column": [0.5, 2.5]}, names=["a", "b"])
    np.testing.assert_allclose(found[0, 0], np.mean([0.0, 4.0, 5.0]))  # of the three cells of the sea
    with pytest.raises(SettingsError, match="no cell around row=0 column=1 is valid"):
        read_at(samples, {"row": [0.0], "column": [1.0]})


def test_a_mesh_is_read_in_the_triangle_around():
    rng = np.random.default_rng(1)
    x, y = rng.uniform(0, 10, (2, 300))
    table = pd.DataFrame(np.stack([2 * x - y, np.ones(300), x]), columns=[f"c{i}" for i in range(300)])
    cells = pd.DataFrame({"name": table.columns, "x": x, "y": y})
    samples = kh.read(table).with_coordinates(cells)
    where = {"x": rng.uniform(2, 8, 20), "y": rng.uniform(2, 8, 20)}
    found = read_at(samples, where)
    np.testing.assert_allclose(found, [2 * where["x"] - where["y"], np.ones(20), where["x"]], atol=1e-9)
    with pytest.raises(SettingsError, match="no valid site is near"):
        read_at(samples, {"x": [30.0], "y": [5.0]})


def test_on_a_curvilinear_grid_smooth_fields_are_read_as_on_the_lattice():
    lat, lon = np.arange(-60.0, 61.0, 2.0), np.arange(0.0, 360.0, 2.0)
    north, east = np.meshgrid(np.deg2rad(lat), np.deg2rad(lon), indexing="ij")
    values = np.stack([np.sin(north) + np.cos(north) * np.cos(east), np.cos(east - 1)])
    curvilinear = xr.DataArray(
        values, {"lat": (("y", "x"), np.rad2deg(north)), "lon": (("y", "x"), np.rad2deg(east))}, ["time", "y", "x"]
    )
    where = {"lat": [10.3, -41.9, 0.0], "lon": [359.5, 181.3, 90.0]}
    up, around = (np.deg2rad(where[name]) for name in ("lat", "lon"))
    exact = np.stack([np.sin(up) + np.cos(up) * np.cos(around), np.cos(around - 1)])
    for samples in (world(values, lat, lon), kh.read(curvilinear)):
        np.testing.assert_allclose(read_at(samples, where), exact, atol=5e-4)


def test_a_sensor_on_a_cell_reads_that_cell_alone():
    for samples in (kh.read(smooth(5, 4, 5)), kh.read(monthly_field()), kh.datasets.sst()):
        columns = {name: samples.sites.coordinate(name) for name in samples.sites.location}
        placed = samples.with_sensors(Sensors.at(columns)).sensors
        np.testing.assert_array_equal(placed.operator.toarray(), np.eye(len(samples.sites)))


def test_nearest_is_the_site_that_existing_ones_are_matched_to():
    samples, rng = kh.datasets.sst(), np.random.default_rng(0)
    sea = rng.choice(len(samples.sites), 40, replace=False)
    lat = samples.sites.role("latitude")[sea] + rng.uniform(-2, 2, 40)
    lon = samples.sites.role("longitude")[sea] + rng.uniform(-2, 2, 40)
    placed = samples.with_sensors(Sensors.at({"lat": lat, "lon": lon}, interpolation="nearest")).sensors
    snapped = [find_sites({"lat": a, "lon": o}, samples.sites)[0] for a, o in zip(lat, lon, strict=True)]
    np.testing.assert_array_equal(placed.home(len(samples.sites)), snapped)
    assert placed.operator.nnz == 40


def test_labels_of_an_axis_are_matched():
    both = kh.read(smooth(20, 4, 5, 2), channels=-1).channels_apart()
    positions = {"channel": ["channel 1", "channel 0"], "row": [0.5, 1.0], "column": [0.0, 2.0]}
    found = read_at(both, positions)
    whole = both.sites.to_grid(both.values)[:, 0]
    np.testing.assert_allclose(found, np.stack([whole[:, 1, :2, 0].mean(axis=1), whole[:, 0, 1, 2]], axis=1))


# Channels, rows, noise ------------------------------------------------------------------------------------------------


def test_a_sensor_reads_one_variable():
    samples = kh.read(smooth(20, 4, 5, 2), channels=-1)
    found = read_at(samples, {"row": [1.0, 1.0], "column": [2.0, 2.0]}, variable=[1, 0], names=["v", "u"])
    np.testing.assert_array_equal(found, samples.values[:, ::-1, 7])
    with pytest.raises(SettingsError, match="2 channels; say which"):
        read_at(samples, {"row": [1.0], "column": [2.0]})
    with pytest.raises(SettingsError, match="variable='w'"):
        read_at(samples, {"row": [1.0], "column": [2.0]}, variable="w")


def test_rows_are_weighted_sums_of_the_data():
    values = smooth(20, 3, 4)
    values[:, 0, 0] = np.nan
    weights = np.zeros((2, 3, 4))
    weights[0, 1:, :2], weights[1, 2, 3] = 0.25, -1.0
    observed = kh.read(values).with_sensors(Sensors.of_rows(weights, names=["mean", "minus"]))
    expected = np.stack([values[:, 1:, :2].mean(axis=(1, 2)), -values[:, 2, 3]], axis=1)
    np.testing.assert_allclose(observed.readings(np.array([0, 1]))[:, :, 0], expected)
    weights[0, 0, 0] = 1.0
    with pytest.raises(SettingsError, match="not valid"):
        kh.read(values).with_sensors(Sensors.of_rows(weights))


def test_scaled_readings_are_those_of_the_user_in_other_units():
    """Baseline and scale of a sensor are its row applied to those of the field, by month too."""
    between = Sensors.at({"lat": [10.0, -30.0], "lon": [100.0, 200.0]}, noise=0.5)
    samples = kh.read(monthly_field(120)).anomalies("month").with_sensors(between)
    prepared, every = prepare(samples, None, 0), np.arange(2)
    rows, scale = prepared.split.development, prepared.scaling.scale[0]
    baseline = prepared.scaling.expected(samples.take(rows))[:, 0] @ samples.sensors.operator.T.toarray()
    expected = (samples.take(rows).noisy_readings(every)[:, :, 0] - baseline) / scale
    np.testing.assert_allclose(prepared.development.readings(every)[:, :, 0], expected, atol=1e-4)


def test_noise_is_keyed_by_sample_and_sensor_and_has_the_size_asked_for():
    values = smooth(4000, 3, 4)
    both = kh.read(values).with_sensors([Sensors.every_site(noise=0.5), Sensors.every_site(noise=2.0)])
    every = np.arange(24)
    noise = (both.noisy_readings(every) - both.readings(every))[:, :, 0]
    np.testing.assert_allclose(noise.std(axis=0), np.repeat([0.5, 2.0], 12), rtol=0.05)
    correlation = np.corrcoef(noise.T) - np.eye(24)
    assert np.abs(correlation).max() < 0.08  # two sensors in one cell have noise of their own
    some, rows = np.array([17, 3]), np.array([9, 2])
    np.testing.assert_array_equal(both.take(rows).noisy_readings(some), both.noisy_readings(some)[rows])


def test_without_noise_of_its_own_a_sensor_has_that_of_the_data():
    samples = kh.read(smooth(20, 3, 4)).with_noise(0.3)
    own = samples.with_sensors([Sensors.every_site(kind="a"), Sensors.every_site(noise=0.0, kind="b")])
    np.testing.assert_allclose(own.sensors.noise_of(own.noise), np.repeat([0.3, 0.0], 12))


def test_availability_is_additional_noise():
    samples = kh.read(smooth(500, 3, 4))
    half = samples.with_sensors(Sensors.every_site(availability=0.5)).as_scaled()
    variance = samples.values[:, 0].var(axis=0)
    np.testing.assert_allclose(half.reading_noise(np.arange(12))[0], variance, rtol=1e-5)


def test_missing_values_make_a_reading_missing_and_its_covariance_imputes_it():
    rng = np.random.default_rng(0)
    values = smooth(600, 4, 5)
    gaps = values.copy()
    gaps[rng.random(values.shape) < 0.1] = np.nan
    between = Sensors.at({"row": [0.5, 2.0, 1.5, 3.0], "column": [0.5, 3.0, 2.5, 1.0]})
    observed = kh.read(gaps, missing="model").with_sensors(between)
    every, truth = np.arange(4), kh.read(values).with_sensors(between).readings(np.arange(4))[:, :, 0]
    raw = observed.readings(every)[:, :, 0]
    assert np.isnan(raw[:, 0]).mean() > 0.25  # of four cells
    np.testing.assert_allclose(raw[~np.isnan(raw)], truth[~np.isnan(raw)])
    scaled = observed.as_scaled().impute()
    filled = scaled.readings(every)[:, :, 0]
    error = (filled - truth)[np.isnan(raw)]
    assert error.std() < 0.6 * truth.std()
    np.testing.assert_allclose(scaled.reading_covariance(every), np.cov(truth.T), atol=0.2 * truth.var())


# Lists of them --------------------------------------------------------------------------------------------------------


def test_kinds_are_named_by_a_mapping_and_stand_in_the_names_where_these_would_be_the_same():
    samples = kh.read(smooth(20, 2, 2))
    placed = samples.with_sensors({"buoy": Sensors.every_site(cost=1), "float": Sensors.every_site(cost=3)}).sensors
    assert placed.names[0] == "buoy row=0 column=0"
    assert placed.kinds == ("buoy",) * 4 + ("float",) * 4
    assert placed.cost.tolist() == [1.0] * 4 + [3.0] * 4
    alone = samples.with_sensors(Sensors.every_site(kind="buoy")).sensors
    assert alone.names[0] == "row=0 column=0"


def test_a_table_says_it_all(tmp_path):
    table = pd.DataFrame(
        {"name": ["A", "B"], "row": [0.5, 1], "column": [0, 1.5], "noise": [0.1, 0.2], "kind": ["old", "new"]}
    )
    table.to_csv(tmp_path / "moorings.csv", index=False)
    samples = kh.read(smooth(20, 3, 4))
    for given in (table, tmp_path / "moorings.csv", Sensors.at(table)):
        placed = samples.with_sensors(given).sensors
        assert placed.names == ("A", "B")
        assert placed.kinds == ("old", "new")
        assert placed.noise.tolist() == [0.1, 0.2]
        assert placed.coordinates["column"].tolist() == [0.0, 1.5]


def test_kinds_may_have_regions():
    samples = kh.read(smooth(20, 4, 5))
    placed = samples.with_sensors(Sensors.every_site(within={"row": (0, 1)})).sensors
    assert len(placed) == 10


def test_distances_between_sensors_are_those_of_their_own_positions():
    samples = kh.datasets.sst()
    placed = samples.with_sensors(
        [Sensors.at({"lat": [0.0, 0.0], "lon": [180.0, 181.0]}), Sensors.every_site(kind="float")]
    ).sensors
    distance = placed.sites.metric.distances([0], [1])[0, 0]
    assert distance == pytest.approx(np.deg2rad(1) * 6371.0, rel=1e-6)
    assert len(placed.sites.metric) == len(placed)


def test_a_site_that_is_left_out_moves_the_weights_of_sensors():
    samples = kh.read(smooth(30, 3, 4)).with_sensors(Sensors.at({"row": [0.5], "column": [0.0]}))
    with pytest.warns(KeyholeWarning, match="invalid cells"):
        rest = samples.restrict(np.arange(12) != 0)
    np.testing.assert_array_equal(rest.readings(np.array([0]))[:, 0, 0], samples.values[:, 0, 4])


@pytest.mark.parametrize(
    ("sensors", "said"),
    [
        (lambda: Sensors.at({"row": [9.0], "column": [0.0]}), "row=9 is outside"),
        (lambda: Sensors.at({"row": [1.0]}), "'column' is missing"),
        (lambda: Sensors.at({"lat": [1.0], "column": [0.0]}), "'lat' is no coordinate"),
        (lambda: Sensors.at({"row": [1.0, 2.0], "column": [0.0]}), "columns of one length"),
        (lambda: Sensors.at({"row": [np.nan], "column": [0.0]}), "'row' is missing in row 1"),
        (lambda: Sensors.at([1, 2]), "columns of coordinates are needed"),
        (lambda: Sensors.at({"row": [1.0], "column": [0.0]}, interpolation="cubic"), "'linear' or 'nearest'"),
        (lambda: Sensors.at({"row": [1.0], "column": [0.0]}, names=["a", "b"]), "2 names for 1 sensors"),
        (lambda: Sensors.at({"row": [1.0, 2.0], "column": [0.0, 1.0]}, names=["a", "a"]), "called 'a'"),
        (lambda: Sensors.every_site(noise=-1.0), "noise: numbers 0 or more"),
        (lambda: Sensors.every_site(noise="much"), "noise"),
        (lambda: Sensors.every_site(noise=[1.0, 2.0]), "one for each of 12 sensors"),
        (lambda: Sensors.every_site(cost=0.0), "above zero"),
        (lambda: Sensors.every_site(availability=1.5), "availability: numbers from 0 to 1"),
        (lambda: Sensors.every_site(within={"row": (7, 9)}), "no valid site in this region"),
        (lambda: Sensors.of_rows(np.ones((2, 5))), "finite weights of shape"),
        (lambda: Sensors.of_rows(np.zeros((2, 3, 4))), "row 0 has no weight"),
        (lambda: [1, 2], "Sensors.at"),
        (lambda: [], "the list is empty"),
    ],
)
def test_what_cannot_be_is_refused(sensors, said):
    with pytest.raises(SettingsError, match=said):
        kh.read(smooth(20, 3, 4)).with_sensors(sensors())


def test_columns_of_a_table_have_no_positions():
    samples = kh.read(pd.DataFrame(smooth(20, 3), columns=list("abc")))
    with pytest.raises(SettingsError, match="no positions in space"):
        samples.with_sensors(Sensors.at({"column": [0]}))
    assert samples.with_sensors(Sensors.every_site(kind="x")).sensors.names == ("a", "b", "c")


def test_an_array_in_place_of_positions_is_refused():
    """It is most likely meant as rows, which have a constructor of their own."""
    with pytest.raises(SettingsError, match=r"make sensors by Sensors\.at, Sensors\.of_rows"):
        kh.read(np.random.default_rng(0).normal(size=(20, 3))).with_sensors(Sensors(np.eye(3)))
