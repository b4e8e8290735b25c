"""The command line: every command on every kind of data, exit codes, and no traceback for a user's mistake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from PIL import Image
from typer.testing import CliRunner

import keyhole as kh
from example_data import monthly_field, smooth
from keyhole.cli import app

QUICK = ("--method", "qr", "--reconstructor", "ridge")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with data of every kind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KEYHOLE_DATA", raising=False)
    np.save("plain.npy", smooth(40, 4, 5))
    np.save("channels.npy", smooth(40, 4, 5, 2))
    np.savez("many.npz", first=smooth(40, 4, 5), second=smooth(40, 6))
    monthly_field().to_netcdf("field.nc")
    return tmp_path


def test_help_names_every_command():
    shown = CliRunner().invoke(app, ["--help"])
    assert shown.exit_code == 0
    for name in ("demo", "select", "reconstruct", "compare", "info"):
        assert name in shown.output
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0


# What works ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        ("plain.npy",),
        ("channels.npy", "--channels", "-1"),
        ("many.npz", "--variable", "second"),
        ("field.nc",),
        ("field.nc", "--variable", "sst", "--anomalies", "month"),
        ("digits",),
        ("sst", "--anomalies", "none"),
    ],
    ids=" ".join,
)
def test_select_saves_a_plan_of_every_kind_of_data(folder, command, source):
    done = command("select", *source, "-k", 3, *QUICK, "--out", "a.keyhole", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["k"] == 3
    assert [site["rank"] for site in told["sites"]] == [1, 2, 3]
    plan = kh.load(folder / "a.keyhole")
    assert [site["index"] for site in told["sites"]] == plan.indices.tolist()
    assert told["metrics"] == plan.metrics
    assert (plan.scaling.climatology.kind == "month") == ("month" in source)
    assert "a.keyhole" in done.err


def test_select_shows_sites_and_errors_to_people(folder, command):
    done = command("select", "field.nc", "-k", 3, *QUICK)
    assert done.code == 0
    assert "3 sites of sst" in done.out
    assert "test: RMSE" in done.out
    assert "degC" in done.out
    assert "made by qr + ridge, seed 0" in done.out
    assert sorted(p.name for p in folder.glob("*plan*")) == ["plan.keyhole"]


def test_select_is_the_same_for_the_same_seed(folder, command):
    options = ("--method", "random", "--reconstructor", "ridge", "--json")
    told = [json.loads(command("select", "plain.npy", "-k", 4, *options, "--seed", s).out) for s in (1, 1, 2)]
    chosen = [[site["index"] for site in one["sites"]] for one in told]
    assert chosen[0] == chosen[1] != chosen[2]


def test_info_reports_what_select_reported(folder, command):
    made = command("select", "plain.npy", "-k", 3, *QUICK, "--json")
    assert json.loads(command("info", "plan.keyhole", "--json").out) == json.loads(made.out)
    assert "3 sites of plain" in command("info", "plan.keyhole").out


def test_settings_reach_the_method(folder, command):
    done = command("select", "plain.npy", "-k", 2, "--method", "greedy", "--reconstructor", "ridge",
                   "--set", "n_components=5", "--json")  # fmt: skip
    assert done.code == 0, done.err
    assert json.loads(done.out)["metadata"]["settings"] == {"n_components": 5}


def test_netcdf_to_plan_to_readings_to_netcdf(folder, command):
    assert command("select", "field.nc", "-k", 4, *QUICK, "--anomalies", "month").code == 0
    plan, field = kh.load("plan.keyhole"), monthly_field()
    frame = pd.DataFrame(field.values.reshape(60, -1)[-3:, plan.indices], columns=plan.names)
    frame.assign(time=field.time.values[-3:]).to_csv("readings.csv", index=False)
    done = command("reconstruct", "plan.keyhole", "readings.csv", "--out", "out.nc", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {"out": "out.nc", "shape": [3, 4, 5]}
    with xr.open_dataset("out.nc") as out:
        assert out["sst"].attrs["units"] == "degC"
        np.testing.assert_array_equal(out.time, field.time[-3:])
        np.testing.assert_allclose(out["sst"], field[-3:], atol=0.5)


def test_readings_that_no_site_ever_showed_are_warned_of(folder, command):
    """A sentence on standard error, without the code; the file is written, and standard output is as ever."""
    command("select", "plain.npy", "-k", 3, *QUICK)
    np.save("readings.npy", np.array([[0.0, 999.0, 0.0]]))
    done = command("reconstruct", "plan.keyhole", "readings.npy", "--out", "out.npy", "--json")
    assert done.code == 0
    assert json.loads(done.out) == {"out": "out.npy", "shape": [1, *np.load("plain.npy").shape[1:]]}
    assert done.err.startswith(f"keyhole: warning: readings: site {kh.load('plan.keyhole').names[1]!r} reads 999 where")
    assert done.err.count("\n") == 1


def test_outliers_are_dropped_or_trusted_if_asked(folder, command):
    """As `plan.reconstruct` treats them, with the same file as from a missing reading."""
    command("select", "plain.npy", "-k", 3, *QUICK)
    np.save("readings.npy", np.array([[0.0, 999.0, 0.0]]))
    np.save("missing.npy", np.array([[0.0, np.nan, 0.0]]))
    done = command("reconstruct", "plan.keyhole", "readings.npy", "--out", "out.npy", "--outliers", "drop")
    assert "1 of 3 readings, at 1 of 3 sites, are dropped as missing" in done.err
    command("reconstruct", "plan.keyhole", "missing.npy", "--out", "imputed.npy")
    np.testing.assert_array_equal(np.load("out.npy"), np.load("imputed.npy"))
    done = command("reconstruct", "plan.keyhole", "readings.npy", "--out", "out.npy", "--outliers", "trust")
    assert "warning" not in done.err


def test_a_result_that_is_not_finite_is_an_error(folder, command):
    command("select", "plain.npy", "-k", 3, *QUICK)
    np.save("readings.npy", np.array([[0.0, 1e300, 0.0]]))
    done = command("reconstruct", "plan.keyhole", "readings.npy", "--out", "out.npy")
    assert done.code == 1
    assert "not finite" in done.err
    assert not Path("out.npy").exists()


@pytest.mark.parametrize("out", ["out.npy", "out.csv", "out.nc"])
def test_reconstruct_writes_by_the_suffix(folder, command, out):
    command("select", "plain.npy", "-k", 3, *QUICK)
    np.save("readings.npy", np.ones((2, 3)))
    done = command("reconstruct", "plan.keyhole", "readings.npy", "--out", out)
    assert done.code == 0
    assert f"2 samples reconstructed, shape (2, 4, 5): {out}" in done.err
    assert done.out == ""
    assert (folder / out).stat().st_size > 0


def test_the_mean_over_a_region_is_written_with_its_interval(folder, command):
    command("select", "plain.npy", "-k", 3, *QUICK)
    np.save("readings.npy", np.ones((2, 3)))
    asked = ("reconstruct", "plan.keyhole", "readings.npy", "--region", "row=0..1")
    done = command(*asked, "--out", "region.csv", "--interval", 0.8)
    assert done.code == 0, done.err
    table = pd.read_csv("region.csv", index_col="sample")
    expected = kh.load("plan.keyhole").interval({"row": (0, 1)}, np.ones((2, 3)), level=0.8)
    pd.testing.assert_frame_equal(table, expected, check_index_type=False)
    refused = command(*asked, "--out", "region.nc")
    assert refused.code == 1
    assert "are written as .csv" in refused.err


def test_compare_gives_one_row_for_each_method_best_first(folder, command):
    done = command("compare", "plain.npy", "-k", 3, "--methods", "random, qr,variance", "--json")
    assert done.code == 0, done.err
    rows = json.loads(done.out)
    assert {row["method"] for row in rows} == {"qr", "random", "variance"}
    errors = [row["test_mse"] for row in rows]
    assert errors == sorted(errors)


def test_compare_shows_a_table(folder, command):
    done = command("compare", "field.nc", "-k", 3, "--methods", "qr,variance")
    assert done.code == 0, done.err
    assert "3 sites of sst; errors on 12 test samples" in done.out
    assert "variance" in done.out


def test_a_folder_of_the_name_of_a_data_set_does_not_hide_it(folder, command):
    (folder / "digits").mkdir()
    assert command("select", "digits", "-k", 2, *QUICK).code == 0


def test_json_is_json_even_where_a_figure_is_not_a_number(folder, command):
    """The test part never changes, so there is no variance to explain."""
    values = np.zeros((40, 3))
    values[:20] = np.resize([1.0, -1.0], 20)[:, None]
    time = pd.date_range("2000-01-01", periods=40)
    xr.DataArray(values, {"time": time}, ("time", "x"), "still").to_netcdf("still.nc")
    done = command("select", "still.nc", "-k", 1, *QUICK, "--json")
    assert done.code == 0, done.err

    def refuse(word: str):
        raise AssertionError(word)

    assert json.loads(done.out, parse_constant=refuse)["metrics"]["test"]["fvu"] is None


# What is wrong with how it was called: 2 ----------------------------------------------------------------------------

USAGE = {
    "no command": ((), ""),
    "unknown command": (("place", "plain.npy"), "place"),
    "unknown option": (("select", "plain.npy", "-k", "3", "--fast"), "--fast"),
    "no source": (("select", "-k", "3"), "source"),
    "no K": (("select", "plain.npy"), "-k"),
    "K of a fraction": (("select", "plain.npy", "-k", "2.5"), "-k"),
    "K in words": (("select", "plain.npy", "-k", "many"), "-k"),
    "negative seed": (("select", "plain.npy", "-k", "3", "--seed", "-1"), "--seed"),
    "unknown cycle": (("select", "field.nc", "-k", "3", "--anomalies", "day"), "auto, none, month, harmonics"),
    "setting without a value": (("select", "plain.npy", "-k", "3", "--set", "components"), "name=value"),
    "unknown setting": (("select", "plain.npy", "-k", "3", "--method", "qr", "--set", "depth=3"), "has no setting"),
    "unknown method": (("select", "plain.npy", "-k", "3", "--method", "magic"), "'magic' is not known; there are"),
    "unknown reconstructor": (
        ("select", "plain.npy", "-k", "3", "--method", "qr", "--reconstructor", "magic"),
        "'magic' is not known; there are",
    ),
    "unknown method to compare": (("compare", "plain.npy", "-k", "3", "--methods", "qr,magic"), "'magic'"),
    "no method to compare": (("compare", "plain.npy", "-k", "3", "--methods", ""), "method"),
    "no output": (("reconstruct", "plan.keyhole", "readings.csv"), "--out"),
    "option for a named set": (("select", "digits", "-k", "3", "--variable", "x"), "--variable"),
    "channels of a named set": (("select", "digits", "-k", "3", "--channels", "1"), "--channels"),
    "time limit of 0": (("select", "plain.npy", "-k", "3", "--method", "qr", "--time-limit", "0"), "time_limit"),
}


@pytest.mark.parametrize(("arguments", "says"), USAGE.values(), ids=USAGE)
def test_a_wrong_call_exits_with_2(folder, command, arguments, says):
    done = command(*arguments)
    assert done.code == 2, done
    assert says.lower() in done.err.lower()
    assert "Traceback" not in done.err
    assert not (folder / "plan.keyhole").exists()


# What is wrong with the data: 1 -------------------------------------------------------------------------------------

DATA = {
    "missing file": (("select", "none.npy", "-k", "3"), "none.npy: no such file"),
    "unknown type": (("select", "table.xlsx", "-k", "3"), "table.xlsx: files of type .xlsx are not read"),
    "unknown name": (("select", "iris", "-k", "3"), "iris"),
    "named set that is elsewhere": (("select", "mnist", "-k", "3"), "set KEYHOLE_DATA to a folder"),
    "K of 0": (("select", "plain.npy", "-k", "0"), "k=0 is infeasible: between 1 and 20 observable sites"),
    "K of too many": (("select", "plain.npy", "-k", "21"), "k=21 is infeasible: between 1 and 20 observable sites"),
    "several arrays": (("select", "many.npz", "-k", "3"), "name one (variable="),
    "no such variable": (("select", "field.nc", "-k", "3", "--variable", "air"), "no field 'air'"),
    "no such axis": (("select", "plain.npy", "-k", "3", "--channels", "9"), "channels=9 is not an axis"),
    "anomalies without time": (("select", "plain.npy", "-k", "3", "--anomalies", "month"), "need a time"),
    "missing folder": (("select", "plain.npy", "-k", "3", "--out", "no/plan.keyhole"), "no: no such folder"),
    "folder for a file": (("select", "plain.npy", "-k", "3", "--out", "."), "is a folder; name a file"),
    "report in a missing folder": (("select", "plain.npy", "-k", "3", "--report", "no/r.html"), "no: no such folder"),
    "missing plan": (("info", "none.keyhole"), "none.keyhole: cannot be read"),
    "plan that is none": (("info", "plain.npy"), "plain.npy: not a Keyhole file"),
    "empty plan": (("info", "empty.keyhole"), "empty.keyhole: the file is empty"),
    "missing readings": (("reconstruct", "good.keyhole", "none.csv", "--out", "o.nc"), "none.csv: no such file"),
    "readings of a wrong type": (("reconstruct", "good.keyhole", "field.nc", "--out", "o.nc"), "readings are .csv or"),
    "readings that do not fit": (("reconstruct", "good.keyhole", "plain.npy", "--out", "o.nc"), "takes (3,) or (N, 3)"),
    "readings without names": (("reconstruct", "good.keyhole", "bad.csv", "--out", "o.nc"), "no column for site"),
    "output of a wrong type": (("reconstruct", "good.keyhole", "three.npy", "--out", "o.png"), ".nc, .npy or .csv"),
    "output in a missing folder": (("reconstruct", "good.keyhole", "three.npy", "--out", "no/o.nc"), "no/o.nc: cannot"),
    "compare a missing file": (("compare", "none.npy", "-k", "3"), "none.npy: no such file"),
    "figure in a missing folder": (("compare", "plain.npy", "-k", "3", "--figure", "no/f.png"), "no: no such folder"),
    "demo under a file": (("demo", "--out", "plain.npy/demo"), "cannot be created"),
}


@pytest.mark.parametrize(("arguments", "says"), DATA.values(), ids=DATA)
def test_wrong_data_exit_with_1(folder, command, array_plan, arguments, says):
    array_plan.save("good.keyhole")
    np.save("three.npy", np.ones(3))
    Path("bad.csv").write_text("a,b,c\n1,2,3\n")
    Path("empty.keyhole").touch()
    before = sorted(folder.iterdir())
    if arguments[0] == "select":
        arguments = (*arguments, *QUICK)
    done = command(*arguments)
    assert done.code == 1, done
    assert done.err.startswith("keyhole: ")
    assert says in done.err
    assert "Traceback" not in done.err
    assert done.out == ""
    assert sorted(folder.iterdir()) == before


def test_what_the_system_refuses_is_reported_without_a_traceback(folder, command, monkeypatch):
    """An error that no reader expected, such as a disk that fails."""
    from keyhole.data import readers

    def broken(*_args, **_kwargs):
        raise OSError(5, "Input/output error", "plain.npy")

    monkeypatch.setattr(readers, "read", broken)
    done = command("select", "plain.npy", "-k", 3, *QUICK)
    assert done.code == 1
    assert done.err.startswith("keyhole: ")
    assert "Input/output error" in done.err


def test_memory_that_runs_out_is_reported_without_a_traceback(folder, command, monkeypatch):
    from keyhole import workflow

    def greedy(*_args, **_kwargs):
        raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr(workflow, "select", greedy)
    done = command("select", "plain.npy", "-k", 3, *QUICK)
    assert done.code == 1
    assert done.err.startswith("keyhole: not enough memory")


def test_a_full_disk_leaves_the_last_good_plan(folder, command, monkeypatch):
    assert command("select", "plain.npy", "-k", 3, *QUICK).code == 0
    good = Path("plan.keyhole").read_bytes()

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = command("select", "plain.npy", "-k", 4, *QUICK)
    assert done.code == 1
    assert "plan.keyhole: cannot be written: No space left on device" in done.err
    assert Path("plan.keyhole").read_bytes() == good


# As a process of its own --------------------------------------------------------------------------------------------


def test_python_m_keyhole_makes_a_plan(folder):
    run = [sys.executable, "-m", "keyhole", "select", "plain.npy", "-k", "3", *QUICK, "--json"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["k"] == 3
    assert (folder / "plan.keyhole").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("info", "plain.npy"), 1, "keyhole: plain.npy: not a Keyhole file"),
        (("select", "none.nc", "-k", "3"), 1, "keyhole: none.nc: no such file"),
        (("select", "plain.npy", "-k", "few"), 2, "-k"),
        (("reconstruct", "plan.keyhole", "r.csv", "--out", "o.nc"), 1, "plan.keyhole: cannot be read"),
    ],
)
def test_a_mistake_ends_without_a_traceback(folder, command, arguments, code, says):
    done = command(*arguments)
    assert done.code == code
    assert says in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_a_reader_that_goes_away_is_no_error_to_shout_about(folder, array_plan):
    """`keyhole info plan | head -1` closes the pipe early."""
    array_plan.save("plan.keyhole")
    reading, writing = os.pipe()
    os.close(reading)
    run = [sys.executable, "-m", "keyhole", "info", "plan.keyhole", "--json"]
    try:
        done = subprocess.run(run, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    ("options", "kind"), [((), "harmonics"), (("--anomalies", "none"), "none"), (("--anomalies", "month"), "month")]
)
def test_the_season_is_removed_unless_other_anomalies_are_named(command, tmp_path, options, kind):
    monthly_field().to_netcdf(tmp_path / "field.nc")
    quick_options = ("--method", "qr", "--reconstructor", "ridge", "--out", tmp_path / "plan.keyhole")
    assert command("select", tmp_path / "field.nc", "-k", 3, *quick_options, *options).code == 0
    assert kh.load(tmp_path / "plan.keyhole").metadata["anomalies"]["kind"] == kind


def test_context_is_named_or_refused(tmp_path, command, monkeypatch):
    """The year where anomalies are by month, none where none is asked for, and an error that names what there is."""
    monkeypatch.chdir(tmp_path)
    quick = ("select", "sst", "-k", 3, "--method", "qr", "--reconstructor", "optimal_interpolation")
    for words, periods in (
        ((), ("year",)),
        (("--covariates", "none"), ()),
        (("--covariates", "day,year"), ("year", "day")),
    ):
        done = command(*quick, *words, "--out", "plan.keyhole")
        assert done.code == 0, done.err
        assert kh.load("plan.keyhole").scaling.periods == periods
    wrong = command(*quick, "--covariates", "week")
    assert wrong.code == 2
    assert "year, day" in wrong.err
    timeless = command("select", "digits", "-k", 3, "--method", "qr", "--covariates", "year")
    assert timeless.code == 1
    assert "needs a time" in timeless.err


def test_constraints_on_the_command_line(folder, command):
    """Boxes, masks, labels, costs, sites of a plan and of a table."""
    np.save("mask.npy", np.arange(20).reshape(4, 5) < 12)
    np.save("labels.npy", np.arange(20).reshape(4, 5) // 5)
    np.save("costs.npy", np.full((4, 5), 2.0))
    Path("there.csv").write_text("row,column\n0,0\n3,4\n")

    def sites(*words):
        done = command("select", "plain.npy", *QUICK, *words, "--out", "plan.keyhole")
        assert done.code == 0, done.err
        return kh.load("plan.keyhole").indices.tolist()

    assert all(site % 5 in (1, 2) for site in sites("-k", 3, "--allow", "column=1..2"))
    assert all(site // 5 >= 2 for site in sites("-k", 3, "--allow", "row=2..", "--forbid", "column=4"))
    assert all(site < 12 for site in sites("-k", 3, "--allow", "mask.npy"))
    assert sites("-k", 2, "--existing", "there.csv", "--existing", "row=1 column=1")[:3] == [0, 19, 6]
    Path("plan.keyhole").rename("older.keyhole")
    assert len(sites("-k", 2, "--existing", "older.keyhole")) == 7
    assert len(sites("--costs", "costs.npy", "--cost-limit", 7)) == 3
    assert len(sites("--costs", 3, "--cost-limit", 7)) == 2
    assert len(sites("-k", 2, "--groups", "labels.npy")) == 10
    assert len(sites("-k", 2, "--groups", "row")) == 8
    assert len(sites("-k", 3, "--min-distance", 2)) == 3
    table = command("compare", "plain.npy", "-k", 3, "--min-distance", 2, "--methods", "qr,variance", "--json")
    assert [row["k"] for row in json.loads(table.out)] == [3, 3]


def test_sites_for_other_tools(folder, command):
    """CSV to standard output, or a file by its ending."""
    assert command("select", "field.nc", "-k", 3, *QUICK, "--out", "plan.keyhole").code == 0
    assert command("sites", "plan.keyhole").out.splitlines()[0].startswith("rank,index,name,lat,lon,gain,stability")
    assert command("sites", "plan.keyhole", "--out", "sites.geojson").code == 0
    assert len(json.loads(Path("sites.geojson").read_text())["features"]) == 3
    assert command("sites", "plan.keyhole", "--out", "sites.shp").code == 1


def test_dimensions_that_are_no_space_are_named(folder, command):
    """Members are refused, with the options that choose; one that nobody knows is said to be space."""
    field = monthly_field()
    for dim in ("member", "band"):
        xr.concat([field, field + 5], dim).transpose("time", ...).to_dataset(name="t").to_netcdf(f"{dim}.nc")
    refused = command("select", "member.nc", "-k", 3, *QUICK)
    assert refused.code == 1
    assert "--at member=..." in refused.err
    warned = command("select", "band.nc", "-k", 3, *QUICK)
    assert warned.code == 0
    assert "keyhole: warning: t: its dimension 'band' (2) is taken as space" in warned.err
    assert "space: band 2 x lat 4 x lon 5" in warned.out


def test_files_of_labelled_values_are_aligned(folder, command):
    """NetCDF upside down, CSV by site name or by coordinates; labels that do not fit are refused."""
    field = monthly_field().fillna(0.0)
    field.to_netcdf("field.nc")
    flipped = field[0].sortby("lat").drop_vars("time")
    (flipped * 0 + 1).where(flipped.lat > 0, 0).to_netcdf("north.nc")
    ((flipped.lat < 0) | (flipped.lon < 0)).rename("south").to_netcdf("south.nc")
    prices = (flipped * 0 + 1).where(flipped.lat > 0, 50.0).rename("price")
    prices.to_netcdf("prices.nc")
    prices.to_series().reset_index().to_csv("prices.csv", index=False)
    (flipped * 0 + 0.1).rename("noise").to_netcdf("noise.nc")
    for options in (
        ("-k", 3, "--allow", "north.nc"), ("-k", 3, "--forbid", "south.nc"),
        ("--costs", "prices.nc", "--cost-limit", 4), ("--costs", "prices.csv", "--cost-limit", 4),
    ):  # fmt: skip
        done = command(
            "select", "field.nc", *options, "--noise", "noise.nc", "--weights", "prices.nc", *QUICK, "--json"
        )
        assert done.code == 0, done.err
        assert all(site["lat"] > 0 for site in json.loads(done.out)["sites"])
    prices.assign_coords(lat=prices.lat + 1).to_netcdf("shifted.nc")
    refused = command("select", "field.nc", "--costs", "shifted.nc", "--cost-limit", 4, *QUICK)
    assert refused.code == 2
    assert "costs: no value at lat=" in refused.err
    pd.DataFrame(smooth(30, 3), columns=list("abc")).to_csv("table.csv", index=False)
    Path("costs.csv").write_text("name,cost\nc,9\nb,9\na,1\n")
    done = command("select", "table.csv", "--costs", "costs.csv", "--cost-limit", 2, *QUICK, "--json")
    assert [site["name"] for site in json.loads(done.out)["sites"]] == ["a"]
    Path("bad.csv").write_text("cost\n9\n")
    Path("twice.csv").write_text("name,cost\na,9\na,1\nb,1\nc,1\n")
    for name in ("bad.csv", "twice.csv", "none.csv", "none.nc", "table.csv.nc"):
        assert command("select", "table.csv", "--costs", name, "--cost-limit", 2, *QUICK).code == 1


def test_longitudes_go_over_the_date_line(folder, command):
    """As the page says, however the data write them."""
    field = monthly_field().fillna(0.0)
    field.assign_coords(lon=(field.lon + 180) % 360 - 180).sortby("lon").to_netcdf("west.nc")
    field.to_netcdf("east.nc")
    for name in ("west.nc", "east.nc"):
        done = command("select", name, "-k", 3, *QUICK, "--allow", "lon=140..-140", "--json")
        assert done.code == 0, done.err
        assert {site["lon"] % 360 for site in json.loads(done.out)["sites"]} <= {144.0, 216.0}


def test_what_to_read_is_chosen_by_options(folder, command):
    """Several variables, a level, images of one size."""
    from PIL import Image

    field = monthly_field()
    levels = xr.concat([field, field + 5], "level").assign_coords(level=[1000, 500])
    xr.Dataset({"t": levels, "u": 2 * levels}).to_netcdf("levels.nc")
    done = command(
        "select", "levels.nc", "-k", 3, *QUICK, "--variable", "t,u", "--at", "level=480", "--out", "a.keyhole"
    )
    assert done.code == 0, done.err
    assert list(kh.load("a.keyhole").origin.variables) == ["t", "u"]
    Path("set").mkdir()
    for seed in range(12):
        pixels = np.random.default_rng(seed).integers(0, 255, (6 + seed % 2, 8)).astype(np.uint8)
        Image.fromarray(pixels).save(f"set/{seed}.png")
    assert command("select", "set", "-k", 3, *QUICK, "--out", "b.keyhole").code == 1
    assert command("select", "set", "-k", 3, *QUICK, "--size", "5x4", "--out", "b.keyhole").code == 0
    assert kh.load("b.keyhole").domain.shape == (5, 4)
    for words in (("--at", "level"), ("--size", "big"), ("--allow", "row=x")):
        assert command("select", "levels.nc", "-k", 3, *words).code == 2


def test_extend_and_drop_read_as_select_does(tmp_path: Path) -> None:
    """A plan of images at another size is extended and reduced with the same options that it was made with."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i in range(60):
        Image.fromarray(rng.integers(0, 255, (12, 12), dtype=np.uint8)).save(folder / f"{i:02}.png")
    asked = ["--size", "6", "--reconstructor", "ridge"]

    def run(*arguments: str) -> int:
        return CliRunner().invoke(app, list(arguments)).exit_code

    plan, more, less = (str(tmp_path / f"{name}.keyhole") for name in ("plan", "more", "less"))
    assert run("select", str(folder), "-k", "4", "--method", "qr", "--out", plan, *asked) == 0
    assert run("extend", plan, str(folder), "-k", "2", "--method", "qr", "--out", more, *asked) == 0
    assert run("drop", plan, str(folder), "-k", "2", "--out", less, *asked) == 0
    assert (kh.load(more).k, kh.load(less).k) == (6, 2)


# What must not reach the terminal -----------------------------------------------------------------------------------

EVIL = ["\x1b[2J\x1b]0;owned\x07a", "b\u202egpj", "\x9b31mc", "d\x7f", "e\r"]
UNSAFE = set("\x1b\x07\x9b\x7f\r\u202e")


@pytest.fixture
def evil(folder: Path) -> Path:
    """A table whose columns are named to steer a terminal."""
    pd.DataFrame(smooth(40, len(EVIL)), columns=EVIL).to_parquet("evil.parquet")
    return folder / "evil.parquet"


def test_names_do_not_steer_the_terminal(evil, command):
    for arguments in (
        ("select", evil, "-k", 5, *QUICK),
        ("info", "plan.keyhole"),
        ("curve", evil, "-k", "1,2", "--methods", "qr,variance"),
        ("compare", evil, "-k", 2, "--methods", "qr,variance"),
        ("drop", "plan.keyhole", evil, "-k", 1, "--reconstructor", "ridge"),
    ):
        done = command(*arguments)
        assert done.code == 0, done.err
        assert not UNSAFE & set(done.out + done.err), arguments
    assert r"\x1b[2J\x1b]0;owned" in command("info", "plan.keyhole").out


def test_machines_get_names_as_they_are(evil, command):
    """JSON escapes what a terminal would act on; CSV that goes to a file or a pipe is exact."""
    made = command("select", evil, "-k", 5, *QUICK, "--json")
    assert not UNSAFE & set(made.out)
    assert {site["name"] for site in json.loads(made.out)["sites"]} == set(EVIL)
    listed = command("sites", "plan.keyhole")
    assert "\x1b[2J" in listed.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", "\x1b[2Jx.keyhole"),
        ("select", "\x1b[2J.foo", "-k", 3),
        ("select", "evil.parquet", "-k", 3, "--target", "\x1b[2J"),
        ("compare", "plain.npy", "-k", 3, "--figure", "\x1b[2J.foo"),
        ("select", "plain.npy", "-k", 3, "--\x1b[2J"),
        ("\x1b[2J",),
        ("info", os.fsdecode(b"\xff.keyhole")),
    ],
)
def test_errors_do_not_steer_the_terminal(evil, command, arguments):
    done = command(*arguments)
    assert done.code in (1, 2)
    assert not UNSAFE & set(done.err)
    assert "\\x" in done.err.replace("\\u", "\\x")


@pytest.mark.filterwarnings("always::UserWarning")
def test_a_warning_does_not_steer_the_terminal(command, monkeypatch):
    """A library's warning may quote a name of the file."""
    monkeypatch.setattr("keyhole.plan.load_without_modules", lambda path: warnings.warn(str(path), stacklevel=1))
    monkeypatch.setattr("keyhole.cli.apply.show_plan", lambda *_: None)
    done = command("info", "\x1b[2J")
    assert r"UserWarning: \x1b[2J" in done.err
    assert "\x1b" not in done.err


def test_the_version_is_reported(command):
    from importlib.metadata import version

    done = command("--version")
    assert (done.code, done.out) == (0, f"keyhole {version('keyhole')}\n")


# What must not be replaced ------------------------------------------------------------------------------------------

SAME = {
    "the data": ("select", "plain.npy", "-k", 3, "--out", "plain.npy"),
    "the data by another name": ("select", "plain.npy", "-k", 3, "--out", "./sub/../plain.npy"),
    "the data behind a link": ("select", "plain.npy", "-k", 3, "--out", "soft.npy"),
    "the data with two names": ("select", "plain.npy", "-k", 3, "--out", "hard.npy"),
    "the data as a link": ("select", "soft.npy", "-k", 3, "--report", "plain.npy"),
    "the data within memory": ("select", "field.nc", "-k", 3, "--memory", "1GiB", "--out", "field.nc"),
    "plan and report": ("select", "plain.npy", "-k", 3, "--out", "new", "--report", "new"),
    "plan and report behind a link": ("select", "plain.npy", "-k", 3, "--out", "dangling", "--report", "nothing"),
    "costs": ("select", "plain.npy", "-k", 3, "--costs", "costs.npy", "--out", "costs.npy"),
    "noise": ("select", "plain.npy", "-k", 3, "--noise", "costs.npy", "--out", "costs.npy"),
    "weights": ("select", "plain.npy", "-k", 3, "--weights", "costs.npy", "--out", "costs.npy"),
    "groups": ("select", "plain.npy", "-k", 3, "--groups", "costs.npy", "--out", "costs.npy"),
    "a region": ("select", "plain.npy", "-k", 3, "--allow", "costs.npy", "--out", "costs.npy"),
    "a forbidden region": ("select", "plain.npy", "-k", 3, "--forbid", "costs.npy", "--out", "costs.npy"),
    "sites that exist": ("select", "plain.npy", "-k", 2, "--existing", "good.keyhole", "--out", "good.keyhole"),
    "data of a comparison": ("compare", "images", "-k", 3, "--figure", "images/0.png"),
    "a new image among the data": ("compare", "images", "-k", 3, "--figure", "images/new.png"),
    "a part of a store": ("compare", "field.zarr", "-k", 3, "--figure", "field.zarr/new.png"),
    "figure and report": ("compare", "plain.npy", "-k", 3, "--figure", "f.png", "--report", "f.png"),
    "data of a curve": ("curve", "table.csv", "-k", "2", "--out", "table.csv"),
    "the plan to extend": ("extend", "good.keyhole", "plain.npy", "-k", 1, "--out", "good.keyhole"),
    "the data to extend with": ("extend", "good.keyhole", "plain.npy", "-k", 1, "--out", "plain.npy"),
    "the plan to reduce": ("drop", "good.keyhole", "plain.npy", "-k", 1, "--out", "good.keyhole"),
    "the data to reduce with": ("drop", "good.keyhole", "plain.npy", "-k", 1, "--out", "plain.npy"),
    "readings": ("reconstruct", "good.keyhole", "three.npy", "--out", "three.npy"),
    "a plan to reconstruct with": ("reconstruct", "good.npy", "three.npy", "--out", "good.npy"),
    "readings to predict from": ("predict", "good.keyhole", "table.csv", "--out", "table.csv"),
    "the plan of sites": ("sites", "good.csv", "--out", "good.csv"),
    "a study": ("sweep", "study.svg", "--figure", "study.svg"),
    "data of a study": ("sweep", "study.toml", "--figure", "images/0.png"),
}


@pytest.mark.parametrize("arguments", SAME.values(), ids=SAME)
def test_what_is_read_is_not_replaced_nor_one_result_by_another(folder, command, array_plan, arguments):
    for name in ("good.keyhole", "good.npy", "good.csv"):
        array_plan.save(name)
    np.save("three.npy", np.ones(3))
    np.save("costs.npy", np.ones((4, 5)))
    Path("soft.npy").symlink_to("plain.npy")
    Path("hard.npy").hardlink_to("plain.npy")
    Path("dangling").symlink_to("nothing")
    pd.DataFrame(smooth(20, 4), columns=list("abcd")).to_csv("table.csv", index=False)
    for name in ("images", "field.zarr", "lines", "sub"):
        Path(name).mkdir()
    for n in range(3):
        Image.fromarray(np.full((4, 4), 80 * n, np.uint8)).save(f"images/{n}.png")
    Path("lines/table1.jsonl").write_text("{}\n")
    for name in ("study.toml", "study.svg"):
        Path(name).write_text('source = "images"\nk = [2]\ntrials = 1\n')
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    done = command(*arguments)
    assert done.code == 2, done
    assert "same file as" in done.err or "lies in the folder that is read" in done.err
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_results_may_lie_beside_the_data_and_replace_older_ones(folder, command):
    """A name of a data set is no path, even where a plan is called so."""
    Path("images").mkdir()
    for n in range(9):
        Image.fromarray(np.random.default_rng(n).integers(0, 255, (4, 4), np.uint8)).save(f"images/{n}.png")
    for _ in range(2):
        assert command("select", "images", "-k", 2, *QUICK, "--out", "images/plan.keyhole").code == 0
        assert command("select", "digits", "-k", 2, *QUICK, "--out", "digits").code == 0


# Several files ------------------------------------------------------------------------------------------------------


def test_several_netcdf_files_are_one_source(folder, command):
    parts = folder / "parts"
    parts.mkdir()
    for n in range(5):
        monthly_field()[12 * n : 12 * (n + 1)].to_netcdf(parts / f"{n}.nc")
    whole = json.loads(command("select", "field.nc", "-k", 3, *QUICK, "--json").out)["sites"]
    for source in (["parts"], ["parts/*.nc"], sorted(parts.iterdir())):
        done = command("select", *source, "-k", 3, *QUICK, "--json")
        assert done.code == 0, done.err
        assert json.loads(done.out)["sites"] == whole
    assert command("compare", *sorted(parts.iterdir()), "-k", 3, "--methods", "qr,random").code == 0
    assert command("curve", "parts", "-k", "3", "--methods", "qr").code == 0
    assert command("extend", "plan.keyhole", *sorted(parts.iterdir()), "-k", 1, *QUICK).code == 0
    assert command("drop", "plan.keyhole", "parts", "-k", 1, "--reconstructor", "ridge").code == 0
    refused = command("select", *sorted(parts.iterdir()), "-k", 3, "--out", "parts/2.nc")
    assert (refused.code, "same file as SOURCE" in refused.err) == (2, True)
    refused = command("select", "parts/*.nc", "-k", 3, "--out", "parts/2.nc")
    assert (refused.code, "same file as SOURCE" in refused.err) == (2, True)
