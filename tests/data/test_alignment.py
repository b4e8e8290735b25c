"""Nothing that has labels is matched by position: it is aligned by coordinate or refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import keyhole as kh
from example_data import monthly_field, quick, smooth
from keyhole.core.errors import DataError, PlanError, SettingsError
from keyhole.data.alignment import align
from keyhole.data.constraints.groups import labels_of
from keyhole.data.constraints.regions import region
from keyhole.data.constraints.site_lookup import find_sites
from keyhole.data.labels import match
from keyhole.data.sites import Sites
from keyhole.data.target import Target

FIELD = monthly_field().fillna(1.0) * np.linspace(1, 2, 20).reshape(4, 5)
LABELLED = xr.DataArray(np.arange(1.0, 21.0).reshape(4, 5), {"lat": FIELD.lat, "lon": FIELD.lon}, ("lat", "lon"))


def map_sites() -> Sites:
    """Latitude descending, longitude 0 to 360."""
    return kh.read(FIELD).sites


def rearranged() -> dict[str, xr.DataArray]:
    """The same labelled values in other orders and notations."""
    west = LABELLED.assign_coords(lon=(LABELLED.lon + 180) % 360 - 180)
    single = LABELLED.assign_coords(lat=LABELLED.lat.astype(np.float32), lon=LABELLED.lon.astype(np.float32) + 1e-5)
    wider = LABELLED.reindex(lat=[80.0, *LABELLED.lat.values, -80.0], fill_value=99.0)
    return {
        "ascending": LABELLED.sortby("lat"),
        "transposed": LABELLED.transpose(),
        "-180..180": west.sortby("lon"),
        "other names": LABELLED.rename(lat="latitude", lon="longitude").sortby("latitude"),
        "single precision": single,
        "covers more": wider,
        "one more dimension of one": LABELLED.expand_dims("level").sortby("lat"),
    }


@pytest.mark.parametrize("kind", rearranged())
def test_labelled_values_are_aligned_by_coordinate(kind):
    """Whatever their order, masks, costs, labels of groups, weights and noise mean the same sites."""
    values, signals, plain = rearranged()[kind], kh.read(FIELD), LABELLED.values.ravel()
    np.testing.assert_array_equal(region(values > 7, signals.sites), plain > 7)
    np.testing.assert_array_equal(region([values > 7, {"lat": (50, 90)}], signals.sites)[5:], plain[5:] > 7)
    np.testing.assert_array_equal(signals.with_weights(values).weights, plain)
    np.testing.assert_array_equal(signals.with_weights(values > 7).weights, plain > 7)
    np.testing.assert_array_equal(signals.with_noise(values).noise[0], plain)
    resolved = signals.with_constraints({"costs": values, "cost_limit": 50.0}).constraints
    np.testing.assert_array_equal(resolved.rules.costs, plain)
    np.testing.assert_array_equal(labels_of(values % 3, signals.sites), labels_of(LABELLED.values % 3, signals.sites))


def test_a_mask_of_the_north_chooses_sites_in_the_north():
    """Ascending latitudes on a descending field, through `select`."""
    north = (LABELLED.sortby("lat").lat > 0) & (LABELLED.lon >= 0)
    for allowed in (north, FIELD.sortby("lat").lat > 0):
        plan = quick(FIELD, k=3, constraints={"allowed": allowed})
        assert (plan.sites["lat"] > 0).all()
    plan = FIELD.keyhole.select(k=3, method="qr", reconstructor="ridge", constraints={"forbidden": north})
    assert (plan.sites["lat"] < 0).all()


def test_a_dimension_that_is_left_out_is_broadcast():
    """A mask of latitudes alone, a cost of places on a grid with depth."""
    np.testing.assert_array_equal(region(LABELLED.sortby("lat").lat > 0, map_sites()), LABELLED.values.ravel() <= 10)
    deep = {"depth": np.array([0.0, 10.0]), "lat": FIELD.lat.values, "lon": FIELD.lon.values}
    whole = Sites.build((2, 4, 5), tuple(deep), deep)
    np.testing.assert_array_equal(align(LABELLED.sortby("lat"), whole, "costs"), np.tile(LABELLED.values.ravel(), 2))


def test_a_dimension_without_labels_goes_by_its_name():
    """Nothing but the order is known along it."""
    bare = xr.DataArray(LABELLED.values.T, dims=("lon", "lat"))
    np.testing.assert_array_equal(align(bare, map_sites(), "costs"), LABELLED.values.ravel())
    np.testing.assert_array_equal(align(bare.variable, map_sites(), "costs"), LABELLED.values.ravel())
    with pytest.raises(SettingsError, match="costs: 3 values along 'lat' and no labels"):
        align(bare[:, :3], map_sites(), "costs")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (LABELLED.assign_coords(lat=LABELLED.lat + 5), "no value at lat=60.0, 20.0, -20.0 ..., 4 of 4 along 'lat'"),
        (LABELLED[1:], "no value at lat=60.0, 1 of 4"),
        (LABELLED.isel(lon=[0, 1, 2, 2, 3, 4]), "more than one value at lon=144"),
        (LABELLED.rename(lat="y"), "its dimension 'y' is no coordinate of the sites; the sites have lat, lon"),
        (LABELLED.expand_dims(time=2), "its dimension 'time' is no coordinate of the sites"),
        (LABELLED.to_dataset(name="cost"), "a Dataset; give one of its variables"),
        (LABELLED.assign_coords(lat=list("abcd")), "no value at lat=60.0"),
        (LABELLED.assign_coords(lat=pd.date_range("2000", periods=4)), "no value at lat=60.0"),
        (pd.Series(np.arange(20.0)), "a Series has 1 index for data along lat, lon"),
        (pd.DataFrame(LABELLED.values), "no value at lat=60.0"),
        ({"lat=60 lon=0": 1.0}, "no value for site 'lat=60 lon=72'; 19 of 20 are missing"),
    ],
)
def test_labels_that_do_not_fit_are_refused(values, said):
    """With a sentence that names the argument, the dimension and what is missing."""
    with pytest.raises(SettingsError) as caught:
        quick(FIELD, k=None, constraints={"costs": values, "cost_limit": 9.0})
    assert str(caught.value).startswith("costs: ")
    assert said in str(caught.value)


def test_frames_and_series_of_a_map_sites():
    """Rows and columns by their labels; one level of an index for each axis."""
    frame = LABELLED.to_pandas()
    for one in (frame[::-1], frame.T, frame.rename_axis(index=None, columns=None).iloc[::-1, ::-1]):
        np.testing.assert_array_equal(align(one, map_sites(), "costs"), LABELLED.values.ravel())
    series = LABELLED.to_series()
    np.testing.assert_array_equal(align(series[::-1], map_sites(), "costs"), LABELLED.values.ravel())
    np.testing.assert_array_equal(
        align(LABELLED.rename("cost").to_series(), map_sites(), "costs"), LABELLED.values.ravel()
    )
    with pytest.raises(SettingsError, match=r"costs: more than one value at 60\.0, 0\.0"):
        align(pd.concat([series[:1], series]), map_sites(), "costs")


def test_columns_of_a_table_go_by_name():
    """A Series or a mapping of costs, weights or groups in any order; other names are refused."""
    table = kh.read(pd.DataFrame(smooth(30, 4), columns=list("abcd")))
    costs = {"d": 4.0, "b": 2.0, "a": 1.0, "c": 3.0}
    for given in (costs, pd.Series(costs), xr.DataArray(pd.Series(costs), dims="site")):
        resolved = table.with_constraints({"costs": given, "cost_limit": 5.0}).constraints
        assert resolved.rules.costs.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert table.with_weights(pd.Series(costs)).weights.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert table.with_noise(pd.Series(costs)).noise[0].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert region(pd.Series(costs) > 2, table.sites).tolist() == [False, False, True, True]
    assert labels_of(pd.Series({"d": "x", "b": "y", "a": "x", "c": ""}), table.sites).tolist() == [0, 1, -1, 0]
    with pytest.raises(SettingsError, match="weights: no value at column=a, b, c"):
        table.with_weights(pd.Series([1.0, 2.0, 3.0, 4.0]))
    with pytest.raises(SettingsError, match="costs: numbers are needed"):
        table.with_constraints({"costs": pd.Series(list("abcd"), list("abcd")), "cost_limit": 5.0})


def test_stations_go_by_their_texts():
    """A grid of one axis whose coordinates are names."""
    stations = xr.DataArray(smooth(20, 3), {"station": ["buoy", "pier", "reef"]}, ("time", "station"), "level")
    costs = pd.Series({"reef": 3.0, "buoy": 1.0, "pier": 2.0})
    for given in (costs, costs.rename_axis("station").to_xarray()):
        assert align(given, kh.read(stations).sites, "costs").tolist() == [1.0, 2.0, 3.0]


def test_noise_by_variable_goes_by_name():
    """A Series, a DataArray or a Dataset in any order of the variables."""
    signals = kh.read(xr.Dataset({"sst": FIELD, "wind": 2 * FIELD}))
    one = pd.Series({"wind": 0.5, "sst": 0.1})
    for given in (one, one.to_dict(), one.rename_axis("variable").to_xarray()):
        np.testing.assert_array_equal(signals.with_noise(given).noise[:, 12], [0.1, 0.5])
    both = xr.Dataset({"wind": 2 * LABELLED.sortby("lat"), "sst": LABELLED})
    for given in (both, both.to_dataarray("variable")):
        np.testing.assert_array_equal(signals.with_noise(given).noise, np.outer([1, 2], LABELLED.values))
    with pytest.raises(SettingsError, match="noise: no value for variable 'sst'"):
        signals.with_noise(pd.Series({"wind": 0.5, "air": 0.1}))


def test_sites_of_a_table_go_by_place_not_by_the_index_of_another_map_sites():
    """A plan of the same field, upside down: its `index` counts along another grid."""
    plan, turned = quick(FIELD, k=3), kh.read(FIELD.sortby("lat")).sites
    found = find_sites(plan.sites, turned)
    names = [turned.name(int(site)) for site in found]
    assert names == plan.names
    assert find_sites(plan.sites[["index", "name"]], turned).tolist() == found.tolist()
    assert find_sites(plan.sites.iloc[0], turned).tolist() == found[:1].tolist()
    west = FIELD.assign_coords(lon=(FIELD.lon + 180) % 360 - 180).sortby("lon")
    again = quick(west, k=2, constraints={"existing": plan.sites})
    np.testing.assert_array_equal(again.sites["lat"][:3], plan.sites["lat"])
    np.testing.assert_allclose(again.sites["lon"][:3] % 360, plan.sites["lon"])
    table = pd.DataFrame(smooth(30, 4), columns=list("abcd"))
    chosen = quick(table, k=2)
    other = kh.read(table[list("dcba")]).sites
    assert [other.name(int(site)) for site in find_sites(chosen.sites, other)] == chosen.names


def test_observable_sites_that_are_labelled():
    """Put into signals by hand."""
    from dataclasses import replace

    north = (LABELLED.lat > 0) & (LABELLED.lon >= 0)
    plan = quick(replace(kh.read(FIELD), observable=north.sortby("lat")), k=3)
    assert (plan.sites["lat"] > 0).all()


def test_labels_match_within_rounding_and_no_further():
    """Half a step of the grid is another cell."""
    line = np.linspace(-1, 1, 9)
    assert match(line, line[::-1].astype(np.float32))[0].tolist() == list(range(8, -1, -1))
    assert not match(line, line + 0.1)[1].any()
    assert match(np.array([0.5]), np.array([0.5000001, 7.0]))[1].tolist() == [1]
    positions, counts = match(np.array([np.nan, 1.0]), np.array([1.0, np.nan]))
    assert (int(positions[1]), counts.tolist()) == (0, [0, 1])
    ends = np.array([-180.0, 0.0, 180.0])
    assert match(ends, ends[::-1], turn=360.0)[0].tolist() == [2, 1, 0]


def test_a_table_of_sites_may_hold_notes():
    """What is neither a label nor a coordinate does not count beside an index or a name."""
    notes = pd.DataFrame({"index": [3, 7], "note": ["old", "new"]})
    assert find_sites(notes, map_sites()).tolist() == [3, 7]
    assert find_sites(notes.assign(name=["lat=60 lon=0", "lat=20 lon=0"]), map_sites()).tolist() == [0, 5]
    assert find_sites(notes.assign(lat=[60.0, 20.0], lon=[0.0, -72.0]), map_sites()).tolist() == [0, 9]
    with pytest.raises(SettingsError, match="whole number"):
        find_sites(notes.assign(index=[0.5, 1.0]), map_sites())


def test_a_plan_is_extended_and_cut_by_place():
    """Data upside down, or columns in another order: the same sites stay; where they are not to be had, a sentence."""
    plan, turned = quick(FIELD, k=4), FIELD.sortby("lat")
    more = kh.extend(plan, turned, k=1, method="qr", reconstructor="ridge")
    assert more.names[:4] == plan.names
    west = turned.assign_coords(lon=(FIELD.lon + 180) % 360 - 180).sortby("lon")
    again = kh.extend(plan, west, k=1, method="qr", reconstructor="ridge")
    np.testing.assert_array_equal(again.sites["lat"][:4], plan.sites["lat"])
    fewer, same = (kh.drop(plan, data, k=2, reconstructor="ridge") for data in (turned, FIELD))
    assert fewer.names == same.names
    beside = kh.extend(plan, FIELD, k=1, method="qr", constraints={"existing": more.sites[4:]}, reconstructor="ridge")
    assert beside.names[:5] == more.names
    with pytest.raises(PlanError, match=r"the plan's site lat=.* is not in the data"):
        kh.extend(plan, FIELD.assign_coords(lat=FIELD.lat + 7), k=1)
    table = pd.DataFrame(smooth(40, 5), columns=list("abcde"))
    chosen = quick(table, k=3)
    assert kh.extend(chosen, table[list("edcba")], k=1, method="qr", reconstructor="ridge").names[:3] == chosen.names
    with pytest.raises(PlanError, match=r"the plan's site . is not in the data"):
        kh.drop(chosen, table.set_axis(list("vwxyz"), axis=1), k=1)


def test_features_of_an_estimator_go_by_name():
    """Costs, groups and what must be selected, as Series by feature."""
    from keyhole.sklearn import KeyholeSelector

    table = pd.DataFrame(smooth(40, 4), columns=list("abcd"))
    costs = pd.Series({"d": 9.0, "c": 9.0, "b": 9.0, "a": 1.0})
    quick = {"method": "greedy", "reconstructor": "ridge"}
    fitted = KeyholeSelector(**quick, costs=costs, cost_limit=2.0).fit(table)
    assert fitted.get_feature_names_out().tolist() == ["a"]
    groups = pd.Series({"d": 0, "c": 1, "b": 1, "a": 0})
    fitted = KeyholeSelector(1, **quick, feature_groups=groups).fit(table)
    assert fitted.get_feature_names_out().tolist() in (["a", "d"], ["b", "c"])
    must = pd.Series({"d": True, "c": False, "b": False, "a": False})
    assert "d" in KeyholeSelector(2, **quick, must_select=must).fit(table).get_feature_names_out()
    with pytest.raises(SettingsError, match="costs: no value at column=a"):
        KeyholeSelector(**quick, costs=pd.Series([1.0, 2.0, 3.0, 4.0]), cost_limit=2.0).fit(table)


def test_a_target_and_context_go_by_time():
    """Where both have times; a time that is missing is named."""
    signals, values = kh.read(FIELD), np.arange(60.0)
    series = pd.Series(values, FIELD.time.to_index())
    longer = pd.concat([series, pd.Series([7.0], [pd.Timestamp(0)])])
    for given in (series, series[::-1], series.to_xarray()[::-1], longer):
        np.testing.assert_array_equal(signals.with_target(Target.of(given)).target.values, values)
        np.testing.assert_array_equal(signals.with_covariates(columns=given).covariates[:, 0], values)
    np.testing.assert_array_equal(signals.with_covariates(columns=series[::-1].to_frame()).covariates[:, 0], values)
    bare = kh.read(smooth(60, 4))
    np.testing.assert_array_equal(bare.with_target(Target.of(series[::-1])).target.values, values[::-1])
    with pytest.raises(DataError, match=r"target 'target': no value at time 2004-12-01.*; 1 of 60 samples have none"):
        signals.with_target(Target.of(series[:-1]))
    with pytest.raises(DataError, match="covariates: more than one value at time 2000-01-01"):
        signals.with_covariates(columns=pd.concat([series[:1], series]))


def test_readings_of_a_field_go_by_name_or_place():
    """A DataArray in any order of sites and dimensions, with its times; without labels in rank order."""
    plan, sites = quick(kh.read(FIELD).anomalies("month"), k=3), ["site"]
    truth = plan.reconstruct(kh.read(FIELD).readings(plan.indices)[:4], time=FIELD.time.values[:4])
    taken = FIELD[:4].sel(
        lat=xr.DataArray(plan.sites["lat"], dims=sites), lon=xr.DataArray(plan.sites["lon"], dims=sites)
    )
    named = taken.drop_vars(["lat", "lon"]).assign_coords(site=plan.names)
    bare = taken.drop_vars(["lat", "lon", "site"])
    for given in (taken[:, ::-1], taken.T, taken.drop_vars("site")[:, ::-1], named[:, [2, 0, 1]].T, bare, bare.T):
        xr.testing.assert_allclose(plan.reconstruct(given), truth)
    west = taken.assign_coords(lon=(taken.lon + 180) % 360 - 180)[:, ::-1]
    xr.testing.assert_allclose(plan.reconstruct(west), truth)
    xr.testing.assert_allclose(plan.reconstruct(named[0, ::-1]), truth[:1])
    xr.testing.assert_allclose(plan.reconstruct(named[:, ::-1].to_dataset(name="sst")), truth)


def test_readings_of_several_variables_go_by_name():
    """A Dataset, or a DataArray with a dimension of variables."""
    data = xr.Dataset({"sst": FIELD, "wind": 2 * FIELD**2})
    plan = quick(data, k=3)
    readings = kh.read(data).readings(plan.indices)[:4]
    truth = plan.reconstruct(readings)
    whole = xr.DataArray(readings, {"site": plan.names, "variable": ["sst", "wind"]}, ("time", "site", "variable"))
    parts = whole[:, ::-1, ::-1].to_dataset("variable")
    for given in (whole[:, ::-1, ::-1], whole.transpose("variable", "time", "site"), parts):
        xr.testing.assert_allclose(plan.reconstruct(given), truth)
    with pytest.raises(PlanError, match="a Dataset of wind; sst, wind is needed"):
        plan.reconstruct(parts[["wind"]])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda a: a.assign_coords(site=["x", "y", "z"]), "no dimension of time, site is labelled by the plan's sites"),
        (lambda a: a.assign_coords(site=[0, 1, 2]), "no dimension of time, site is labelled"),
        (lambda a: a[:, :2], "no column for site"),
        (lambda a: a[:, [0, 1, 2, 2]], "stands more than once"),
        (lambda a: a.expand_dims(member=2), "dimensions member, time, site; one of sites, and at most one"),
    ],
)
def test_readings_whose_labels_do_not_fit_are_refused(change, said):
    """With a sentence."""
    plan = quick(FIELD, k=3)
    named = xr.DataArray(np.ones((2, 3)), {"site": plan.names}, ("time", "site"))
    with pytest.raises(PlanError, match=said):
        plan.reconstruct(change(named))


def test_readings_between_the_sites_are_refused():
    """A position that is no site."""
    plan = quick(FIELD, k=2)
    places = {"lat": ("site", plan.sites["lat"] + 3), "lon": ("site", plan.sites["lon"])}
    with pytest.raises(PlanError, match="the position at site 0 is no site of the plan's data"):
        plan.reconstruct(xr.DataArray(np.ones((1, 2)), places, ("time", "site")))
