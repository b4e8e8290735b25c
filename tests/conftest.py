"""What the tests share: small signals of every kind, plans made from them, and the command line in this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

import keyhole as kh
from keyhole import Plan

# The same examples in every run; `pytest --hypothesis-profile=explore` looks for new ones.
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=40, database=None)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("steady")


@dataclass(frozen=True)
class Outcome:
    """What a command gave: exit code, standard output, standard error."""

    code: int
    out: str
    err: str


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that starts anew for each test."""
    return np.random.default_rng(7)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command line in this process, as the `keyhole` script does."""
    from keyhole.cli import main

    def run(*arguments: Any) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["keyhole", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        seen = capsys.readouterr()
        return Outcome(code, seen.out, seen.err)

    return run


@pytest.fixture
def data_folder() -> Path:
    """The folder of the benchmark data, or a skip."""
    root = os.environ.get("KEYHOLE_DATA")
    if not root:
        pytest.skip("KEYHOLE_DATA is not set: the benchmark data are not here")
    return Path(root)


def smooth(samples: int, *grid: int, seed: int = 0) -> np.ndarray:
    """Signals of three modes and a little noise, which a few sites rebuild well."""
    rng = np.random.default_rng(seed)
    modes = rng.normal(size=(3, *grid))
    return np.tensordot(rng.normal(size=(samples, 3)), modes, axes=1) + 0.01 * rng.normal(size=(samples, *grid))


def monthly_field(months: int = 60) -> Any:
    """A DataArray of monthly temperatures with a yearly cycle and two cells of land."""
    import pandas as pd
    import xarray as xr

    values = smooth(months, 4, 5) + 10 * np.cos(2 * np.pi * np.arange(months) / 12)[:, None, None] + 15
    values[:, 0, 1] = values[:, 3, 4] = np.nan
    axes = {
        "time": pd.date_range("2000-01-01", periods=months, freq="MS"),
        "lat": ("lat", np.linspace(60.0, -60.0, 4), {"units": "degrees_north"}),
        "lon": ("lon", np.arange(0.0, 360.0, 72.0), {"units": "degrees_east"}),
    }
    attributes = {"units": "degC", "long_name": "temperature", "valid_range": np.array([-5.0, 40.0])}
    return xr.DataArray(values.astype(np.float32), axes, ("time", "lat", "lon"), "sst", attributes)


def quick(source: Any, k: int = 3, **options: Any) -> Plan:
    """A plan without training."""
    return kh.select(source, k, method="qr", reconstructor="ridge", **options)


@pytest.fixture(scope="session")
def array_plan() -> Plan:
    """A plan of a bare 2-D grid."""
    return quick(smooth(40, 4, 5))


@pytest.fixture(scope="session")
def channel_plan() -> Plan:
    """A plan of images whose two channels come last."""
    return quick(kh.read(smooth(40, 4, 5, 2), channels=-1))


@pytest.fixture(scope="session")
def field_plan() -> Plan:
    """A plan on anomalies by month of a field with land."""
    return quick(kh.read(monthly_field()).anomalies("month"))


@pytest.fixture(scope="session")
def table_plan() -> Plan:
    """A plan of a table whose columns have names."""
    import pandas as pd

    return quick(pd.DataFrame(smooth(40, 6), columns=list("abcdef")))
