"""The plan: sites, reconstructions, and its file."""

from __future__ import annotations

import ast
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

import keyhole as kh
from example_data import monthly_field, quick, smooth
from keyhole import Plan
from keyhole.core.storage import read_container, write_container
from keyhole.errors import PlanError
from keyhole.models.reconstructors.networks import DenseNet

PLANS = ["array_plan", "channel_plan", "field_plan", "table_plan"]
DATES = ["2010-07-01", "2011-01-15"]


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest) -> Plan:
    """A plan of each kind in turn."""
    return request.getfixturevalue(request.param)


def readings_for(plan: Plan, n: int = 2) -> np.ndarray:
    rng = np.random.default_rng(3)
    return plan.scaling.baseline.mean() + rng.normal(size=(n, plan.k, len(plan.scaling.scale)))


def reconstructed(plan: Plan, readings: np.ndarray) -> np.ndarray:
    """Plain values, whatever the kind."""
    return np.asarray(
        plan.reconstruct(readings, time=DATES[: len(readings)] if plan.scaling.climatology.needs_time else None)
    )


# Sites --------------------------------------------------------------------------------------------------------------


def test_sites_are_ranked_distinct_and_inside(plan):
    sites = plan.sites
    assert list(sites["rank"]) == [1, 2, 3]
    assert sites["index"].is_unique
    assert sites["name"].is_unique
    assert plan.domain.index[plan.numbers].tolist() == sites["index"].tolist()
    assert list(sites["name"]) == plan.names
    assert {"gain", "existing"} <= set(sites.columns)
    for dim, place in zip(plan.domain.dims, np.unravel_index(sites["index"], plan.domain.shape), strict=True):
        np.testing.assert_array_equal(sites[dim], plan.domain.axes[dim][place])


def test_sites_of_a_field_have_its_coordinates(field_plan):
    assert list(field_plan.sites.columns) == ["rank", "index", "name", "lat", "lon", "gain", "stability", "existing"]
    first = field_plan.sites.iloc[0]
    assert first["name"] == f"lat={first['lat']:g} lon={first['lon']:g}"


def test_sites_of_a_table_have_its_names(table_plan):
    assert set(table_plan.names) < set("abcdef")


def test_all_but_the_first_gains_add_up_to_little_once_the_rank_is_reached(array_plan):
    """Three modes: three sites explain nearly everything."""
    assert array_plan.gain.sum() == pytest.approx(1, abs=0.01)
    assert array_plan.metrics["test"]["fvu"] < 0.01


# What comes back ----------------------------------------------------------------------------------------------------


def test_an_array_comes_back_as_an_array(array_plan):
    values = array_plan.reconstruct(readings_for(array_plan)[:, :, 0])
    assert isinstance(values, np.ndarray)
    assert values.shape == (2, 4, 5)
    assert values.dtype == np.float64


@pytest.mark.parametrize("axis", [1, 2, 3, -1])
def test_channels_come_back_where_they_were(axis):
    whole = np.moveaxis(smooth(40, 4, 5, 2), -1, axis)
    plan = quick(kh.read(whole, channels=axis))
    values = np.moveaxis(whole, axis, -1).reshape(40, 20, 2)[:, plan.indices]
    assert plan.reconstruct(values).shape == whole.shape
    np.testing.assert_allclose(plan.reconstruct(values), whole, atol=0.2)


def test_a_field_comes_back_with_coordinates_attributes_time_and_land(field_plan):
    field = monthly_field()
    values = field_plan.reconstruct(readings_for(field_plan), time=DATES)
    assert isinstance(values, xr.DataArray)
    assert (values.name, values.dims) == ("sst", field.dims)
    assert values.dtype == field.dtype
    assert values.attrs["units"] == "degC"
    assert values.attrs["valid_range"] == [-5.0, 40.0]
    for dim in ("lat", "lon"):
        xr.testing.assert_identical(values[dim], field[dim])
    np.testing.assert_array_equal(values.time, np.array(DATES, "datetime64[ns]"))
    np.testing.assert_array_equal(np.isnan(values[0]), np.isnan(field[0]))


def test_a_frame_comes_back_as_a_frame(table_plan):
    values = table_plan.reconstruct(readings_for(table_plan)[:, :, 0])
    assert isinstance(values, pd.DataFrame)
    assert list(values.columns) == list("abcdef")
    dated = table_plan.reconstruct(readings_for(table_plan)[:, :, 0], time=DATES)
    assert list(dated.index) == list(pd.DatetimeIndex(DATES))


def test_readings_come_back_at_their_own_sites(array_plan):
    whole = smooth(40, 4, 5)
    readings = whole.reshape(40, -1)[:, array_plan.indices]
    np.testing.assert_allclose(array_plan.reconstruct(readings), whole, atol=0.2)


def test_one_reading_is_one_signal(array_plan):
    readings = readings_for(array_plan)[:, :, 0]
    np.testing.assert_array_equal(array_plan.reconstruct(readings[0])[0], array_plan.reconstruct(readings[:1])[0])


@given(order=st.permutations(range(3)))
def test_labelled_readings_give_the_same_in_any_order(field_plan, order):
    plain = readings_for(field_plan)[:, :, 0]
    frame = pd.DataFrame(plain, columns=field_plan.names).iloc[:, list(order)].assign(time=DATES)
    xr.testing.assert_identical(field_plan.reconstruct(frame), field_plan.reconstruct(plain, time=DATES))


def test_anomalies_are_added_to_the_climatology_of_the_month(field_plan):
    """Readings equal to the climatology give back the climatology, but for what ridge adds to its mean."""
    baseline = field_plan.scaling.baseline
    july, january = baseline[6, 0], baseline[0, 0]
    readings = np.stack([field[field_plan.numbers] for field in (july, january)])
    values = field_plan.reconstruct(readings, time=DATES).values
    reconstructed = field_plan.domain.from_grid(values)
    np.testing.assert_allclose(reconstructed[0], july, atol=0.05)
    np.testing.assert_allclose(reconstructed[1], january, atol=0.05)


def test_a_plan_on_anomalies_says_that_it_needs_time(field_plan):
    with pytest.raises(PlanError, match=r"fitted to monthly anomalies: give the time of each reading \(time="):
        field_plan.reconstruct(readings_for(field_plan))


def test_a_plan_on_deviations_takes_no_notice_of_the_month(array_plan):
    readings = readings_for(array_plan)[:, :, 0]
    np.testing.assert_array_equal(array_plan.reconstruct(readings, time=DATES), array_plan.reconstruct(readings))


def test_wrong_readings_are_refused(plan):
    with pytest.raises(PlanError, match=r"readings: shape \(7, 7, 7\); this plan takes"):
        plan.reconstruct(np.zeros((7, 7, 7)))


# The file -----------------------------------------------------------------------------------------------------------


def test_a_loaded_plan_reconstructs_the_very_same(plan, tmp_path):
    plan.save(tmp_path / "a.keyhole")
    again = kh.load(tmp_path / "a.keyhole")
    readings = readings_for(plan)
    np.testing.assert_array_equal(reconstructed(again, readings), reconstructed(plan, readings))
    pd.testing.assert_frame_equal(again.sites, plan.sites)
    assert again.metrics == plan.metrics
    assert again.metadata == plan.metadata
    assert again.origin == plan.origin
    again.save(tmp_path / "b.keyhole")
    assert (tmp_path / "b.keyhole").read_bytes() == (tmp_path / "a.keyhole").read_bytes()


@pytest.mark.filterwarnings("ignore::keyhole.errors.ReadingsWarning")
@given(readings=st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=3))
def test_any_readings_reconstruct_bit_identically_after_loading(array_plan, tmp_path_factory, readings):
    path = tmp_path_factory.getbasetemp() / "same.keyhole"
    array_plan.save(path)
    assert kh.load(path).reconstruct(readings).tobytes() == array_plan.reconstruct(readings).tobytes()


def test_a_loaded_field_comes_back_identically(field_plan, tmp_path):
    field_plan.save(tmp_path / "a.keyhole")
    readings = readings_for(field_plan)
    again = kh.load(str(tmp_path / "a.keyhole")).reconstruct(readings, time=DATES)
    xr.testing.assert_identical(again, field_plan.reconstruct(readings, time=DATES))


AXES = {
    "texts": np.array(["buoy", "pier", "Außenriff"]),
    "objects": np.array(["buoy", "pier", "reef"], object),
    "dates": np.array(["2000-01-01", "2000-01-02", "2000-01-03"], "datetime64[ns]"),
    "spans": np.array([1, 2, 3], "timedelta64[ns]"),
    "big endian": np.array([1.5, 2.5, 3.5], ">f4"),
    "small integers": np.array([1, 2, 3], np.int8),
    "booleans": np.array([True, False, True]),
}


@pytest.mark.parametrize("axis", AXES.values(), ids=AXES)
def test_coordinates_of_every_kind_are_saved(axis, tmp_path):
    field = xr.DataArray(smooth(12, 3), {"place": axis}, ("sample", "place"), "level")
    plan = quick(field, k=2)
    plan.save(tmp_path / "a.keyhole")
    again = kh.load(tmp_path / "a.keyhole")
    pd.testing.assert_frame_equal(again.sites, plan.sites)
    xr.testing.assert_identical(again.reconstruct([1.0, 2.0]), plan.reconstruct([1.0, 2.0]))


@pytest.fixture(scope="module")
def saved(array_plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], Path]:
    """Write bytes where a plan was saved."""
    path = tmp_path_factory.mktemp("saved") / "plan.keyhole"

    def write(content: bytes) -> Path:
        path.write_bytes(content)
        return path

    return write


@pytest.fixture(scope="module")
def content(array_plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "plan.keyhole"
    array_plan.save(path)
    return path.read_bytes()


@given(data=st.data())
def test_any_changed_byte_is_refused(content, saved, data):
    position = data.draw(st.integers(0, len(content) - 1))
    changed = bytearray(content)
    changed[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(PlanError, match=r"plan.keyhole: "):
        kh.load(saved(bytes(changed)))


@given(data=st.data())
def test_any_truncated_file_is_refused(content, saved, data):
    with pytest.raises(PlanError, match=r"plan.keyhole: "):
        kh.load(saved(content[: data.draw(st.integers(0, len(content) - 1))]))


def test_a_thousand_files_with_one_changed_byte_are_refused(content, saved, rng):
    places, changes = rng.integers(0, len(content), 1000), rng.integers(1, 256, 1000)
    for place, change in zip(places.tolist(), changes.tolist(), strict=True):
        changed = bytearray(content)
        changed[place] ^= change
        with pytest.raises(PlanError, match=r"plan.keyhole: "):
            kh.load(saved(bytes(changed)))


def test_a_file_cut_at_the_edge_of_a_part_is_refused(content, saved):
    """Prefix, header, the table of the arrays, arrays and SHA-256; at each edge, and a byte before and behind it."""
    header = 20 + struct.unpack_from("<Q", content, 12)[0]
    table = header + 8 + struct.unpack_from("<Q", content, header)[0]
    edges = [0, 8, 12, 20, header, header + 8, table, len(content) - 32, len(content)]
    for edge in edges:
        for end in {max(edge - 1, 0), edge, edge + 1} & set(range(len(content))):
            with pytest.raises(PlanError, match=r"plan.keyhole: "):
                kh.load(saved(content[:end]))


@given(more=st.binary(min_size=1, max_size=40))
def test_bytes_after_the_end_are_refused(content, saved, more):
    with pytest.raises(PlanError, match=r"plan.keyhole: .*SHA-256"):
        kh.load(saved(content + more))


def test_every_single_bit_counts_at_the_front(content, saved):
    """The part before the arrays, where a changed byte could steer the reader, bit by bit."""
    for position in range(40):
        for bit in range(8):
            changed = bytearray(content)
            changed[position] ^= 1 << bit
            with pytest.raises(PlanError):
                kh.load(saved(bytes(changed)))


def parts_of_a_plan() -> list[str]:
    headers = [
        "grid",
        "coordinate_types",
        "coordinate_texts",
        "scaling",
        "reconstructor",
        "origin",
        "metadata",
        "metrics",
        "history",
    ]
    arrays = ["sites.index", "sites.gain", "grid.inside", "scaling.baseline", "scaling.scale", "coordinates.row"]
    return [*headers, *arrays, "reconstructor.weights"]


@pytest.mark.parametrize("part", parts_of_a_plan())
def test_a_plan_that_lacks_a_part_is_refused(array_plan, tmp_path, part):
    path = tmp_path / "plan.keyhole"
    array_plan.save(path)
    header, arrays = read_container(path, "plan")
    assert part in header or part in arrays
    write_container(
        path, {k: v for k, v in header.items() if k != part}, {k: v for k, v in arrays.items() if k != part}
    )
    with pytest.raises(PlanError, match=f"{path}: not a plan that this Keyhole understands.*{part.split('.')[-1]}"):
        kh.load(path)


@pytest.mark.parametrize("value", [None, 5, "text"], ids=repr)
@pytest.mark.parametrize(
    "part", ["grid", "coordinate_types", "scaling", "reconstructor", "origin", "metadata", "metrics"]
)
def test_a_plan_whose_part_is_of_the_wrong_sort_is_refused(array_plan, tmp_path, part, value):
    path = tmp_path / "plan.keyhole"
    array_plan.save(path)
    header, arrays = read_container(path, "plan")
    write_container(path, header | {part: value}, arrays)
    with pytest.raises(PlanError, match=f"{path}: not a plan that this Keyhole understands"):
        kh.load(path)


def test_a_plan_with_an_unknown_reconstructor_is_refused(array_plan, tmp_path):
    path = tmp_path / "plan.keyhole"
    array_plan.save(path)
    header, arrays = read_container(path, "plan")
    header["reconstructor"]["name"] = "oracle"
    write_container(path, header, arrays)
    with pytest.raises(PlanError, match="oracle"):
        kh.load(path)


@pytest.mark.parametrize("settings", [5, "text", [1], None], ids=repr)
def test_a_plan_whose_reconstructor_has_no_settings_is_refused(array_plan, tmp_path, settings):
    path = tmp_path / "plan.keyhole"
    array_plan.save(path)
    header, arrays = read_container(path, "plan")
    header["reconstructor"]["settings"] = settings
    write_container(path, header, arrays)
    with pytest.raises(PlanError, match="not a plan that this Keyhole understands"):
        kh.load(path)


def test_a_network_without_end_is_refused_before_it_is_built(tmp_path, rng):
    path = tmp_path / "plan.keyhole"
    kh.select(rng.normal(size=(30, 4)), 2, method="qr", reconstructor="dense", time_limit=1).save(path)
    header, arrays = read_container(path, "plan")
    header["reconstructor"]["settings"]["blocks"] = 10**30
    write_container(path, header, arrays)
    with pytest.raises(PlanError, match="blocks"):
        kh.load(path)


@pytest.mark.parametrize("inner", ["dense", "residual"])
def test_a_network_larger_than_its_weights_takes_no_memory(tmp_path, rng, monkeypatch, inner):
    """Settings within their bounds may declare terabytes; the size is compared before any of it is there."""
    path, places = tmp_path / "plan.keyhole", []
    kh.select(rng.normal(size=(30, 4)), 2, method="qr", reconstructor=inner, time_limit=1).save(path)
    header, arrays = read_container(path, "plan")
    settings = header["reconstructor"]["settings"]
    settings.get("network_state", settings).update({"width": 300})
    write_container(path, header, arrays)
    real = DenseNet.__init__

    def noted(self, *sizes, **named):
        places.append(torch.empty(0).device.type)
        real(self, *sizes, **named)

    monkeypatch.setattr(DenseNet, "__init__", noted)
    with pytest.raises(PlanError, match=r"'blocks.0.0.bias' are of shape \(300,\) by the settings and"):
        kh.load(path)
    assert places == ["meta"]


def test_no_module_can_run_what_a_file_holds():
    """No pickle, no torch.load, no eval: a file is data."""
    source = Path(kh.__file__).parent
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            assert not {"pickle", "joblib", "dill", "cloudpickle", "shelve", "marshal"} & set(names), path
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("torch.load", "torch.save", "eval", "exec"), path
                assert not any(word.arg == "allow_pickle" for word in node.keywords), path


def test_variables_keep_their_order_in_a_file(tmp_path):
    """Values are by channel, and names by variable: in another order a field would have another one's name."""
    field = monthly_field()
    both = kh.read(xr.Dataset({"sst": field, "level": 10 * field}))
    plan = quick(both, k=2)
    plan.save(tmp_path / "plan.keyhole")
    one, again = (each.reconstruct(plan.readings_of(both)) for each in (plan, kh.load(tmp_path / "plan.keyhole")))
    xr.testing.assert_equal(one, again.assign_attrs(one.attrs))
    assert list(again.data_vars) == ["sst", "level"]
