"""The command lines that the pages show run, in the order of the page, on files as the pages name them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from sklearn.datasets import load_breast_cancer
from typer.testing import CliRunner

import keyhole as kh
from keyhole.cli import app

ROOT = Path(__file__).parents[1]
STUDY = 'source = "sst"\nk = [3, 5]\ntrials = 2\n'
# These get a time limit that is enough to see that they run.
LIMITED = ("select", "compare", "extend", "drop")


def commands(page: Path) -> list[list[str]]:
    """Give the command lines of a page, without those of the benchmarks."""
    found = re.findall(r"^keyhole (.+?)(?:\s+#.*)?$", page.read_text(), flags=re.MULTILINE)
    return [words for words in map(shlex.split, found) if words[0] != "bench"]


PAGES = [page for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if commands(page)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with the files that the pages name."""
    monkeypatch.chdir(tmp_path)
    coarse_sea().to_netcdf("sst.nc")
    Path("data").mkdir()
    for part, name in enumerate(("2001.nc", "2002.nc", "2003.nc")):
        coarse_sea()[40 * part : 40 * (part + 1)].to_netcdf(name)
        Path("data", name).symlink_to(Path(name).absolute())
    pd.DataFrame({"lat": [-52.5, -42.5], "lon": [2.5, 92.5]}).to_csv("moorings.csv", index=False)
    table = load_breast_cancer(as_frame=True)
    table.data.assign(diagnosis=table.target_names[table.target]).to_csv("patients.csv", index=False)
    network = kh.datasets.water_network()
    network.share.to_csv("hours.csv")
    network.pipes.to_csv("pipes.csv", index=False)
    Path("study.toml").write_text(STUDY)
    np.save("prices.npy", np.full(kh.datasets.sst().sites.shape, 10.0))
    return tmp_path


def coarse_sea() -> xr.DataArray:
    """Ten years of the embedded sea at every third row and column."""
    sea = kh.datasets.sst()
    axes = {"time": sea.time, **sea.sites.axes}
    whole = xr.DataArray(sea.sites.to_grid(sea.values)[:, 0], axes, ("time", "lat", "lon"), "sst", {"units": "degC"})
    return whole[-120:, ::2, ::3]


def write_readings(plan: kh.Plan) -> None:
    """Three readings at the sites of a plan."""
    usual = [15.0] * plan.k if plan.ranges is None else plan.ranges.mean(axis=(0, 2))
    frame = pd.DataFrame([usual] * 3, columns=plan.names)
    if plan.scaling.climatology.needs_time:
        frame.insert(0, "time", ["2023-02-01", "2023-03-01", "2023-04-01"])
    frame.to_csv("readings.csv", index=False)


@pytest.fixture
def scheduler():
    """Address of a dask scheduler with a worker."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster:
        yield cluster.scheduler_address


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_pages_run(page, folder, request):
    for words in commands(page):
        if "--scheduler" in words:
            words[words.index("--scheduler") + 1] = request.getfixturevalue("scheduler")
        if words[0] in ("reconstruct", "predict"):
            write_readings(kh.load(words[1]))
        limit = ["--time-limit", "0.2"] if words[0] in LIMITED else []
        done = CliRunner().invoke(app, [*words, *limit])
        assert done.exit_code == 0, (words, done.output, done.exception)
        for option in ("--out", "--report", "--figure", "--plot"):
            if option in words:
                assert (folder / words[words.index(option) + 1]).stat().st_size > 0
