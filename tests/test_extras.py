"""What one corner needs is an extra; the base install selects sites on arrays, fields and tables."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import keyhole as kh
from keyhole.core.errors import MissingExtraError
from keyhole.core.extras import EXTRAS, check_extra
from keyhole.workflow.sweeps import read_study

PROJECT = Path(__file__).parents[1]
BASE = """
import sys
from pathlib import Path
import numpy as np

for name in {blocked}:
    sys.modules[name] = None  # importing it raises an ImportError
import keyhole as kh
import pandas as pd
import xarray as xr

values = np.random.default_rng(0).normal(size=(40, 3, 4))
xr.DataArray(values, dims=("time", "y", "x"), name="t").to_netcdf("field.nc")
xr.DataArray(values, dims=("time", "y", "x"), name="t").to_dataset().to_zarr("field.zarr")
table = pd.DataFrame(values[:, 0], columns=list("abcd")).assign(kind=["sun", "rain"] * 20)
table.to_csv("table.csv", index=False)
options = dict(k=2, method="greedy", reconstructor="ridge")
plans = [kh.select(source, **options) for source in (values, "field.nc", "field.zarr", table[list("abcd")])]
plans.append(kh.select(kh.read("table.csv", target="kind"), **options))
plans[0].save("plan.keyhole")
kh.load("plan.keyhole").reconstruct(values[0].ravel()[plans[0].indices])
print([plan.k for plan in plans])
"""


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_missing_extra_is_named(monkeypatch, extra):
    """Of each module of each extra."""
    for module in EXTRAS[extra][1]:
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(MissingExtraError, match=rf"{module}, .* pip install 'keyhole\[{extra}\]'"):
                check_extra(extra)


@pytest.mark.parametrize("name", ["a.parquet", "a.grib"])
def test_readers_name_their_extra(monkeypatch, tmp_path, name):
    """Before the file is opened."""
    for module in ("pyarrow", "cfgrib"):
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(MissingExtraError, match="keyhole"):
        kh.read(tmp_path / name)


def test_sweeps_name_their_extra(monkeypatch, tmp_path):
    """Before any work is done."""
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError, match=r"keyhole\[sweeps\]"):
        read_study(tmp_path / "study.toml")


def test_the_base_install_selects_on_arrays_fields_and_tables(tmp_path):
    """Without any extra."""
    blocked = [module for _, modules in EXTRAS.values() for module in modules]
    done = subprocess.run([sys.executable, "-c", BASE.format(blocked=blocked)], cwd=tmp_path, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.stdout.strip() == "[2, 2, 2, 2, 2]", done.stderr


def test_extras_are_those_of_the_project():
    """Each is declared, part of ``all``, and brings what its check looks for."""
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) == {*EXTRAS, "all", "dev"}
    assert extras["all"] == [f"keyhole[{','.join(sorted(EXTRAS))}]"]
    for name, (_, modules) in EXTRAS.items():
        assert {line.split(">")[0] for line in extras[name]} == set(modules)
