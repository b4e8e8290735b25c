"""Codes of missing values that nobody declared are pointed out, and ordinary data are not."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import keyhole as kh
from example_data import smooth
from keyhole.data.preparation import prepare
from keyhole.errors import KeyholeWarning


def with_code(value, count=5, dtype=np.float64):
    """Return fields in which some values at two sites are a code."""
    values = (15 + 5 * smooth(60, 4, 5)).astype(dtype)
    values[:count, 1, 2] = values[7, 3, 3] = value
    return values


def said_of(data, **options) -> str:
    """Return the warning that the preparation of data gives; empty if none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        samples = kh.read(data, **options)
        prepare(samples, (np.arange(len(samples) - 15), np.arange(len(samples) - 15, len(samples))), 0)
    texts = [str(one.message) for one in caught if issubclass(one.category, KeyholeWarning)]
    return " ".join(text for text in texts if text.startswith("values:"))


@pytest.mark.parametrize("value", [-9999.0, -999.9, 999.0, 1e20, -32768.0, 9.96921e36, -123456.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_code_in_fields_is_pointed_out(value, dtype):
    values = with_code(value, dtype=dtype)
    said = said_of(values)
    assert f"{values[0, 1, 2]:g} stands 6 times at 2 sites, far from all others" in said
    assert "_FillValue" in said
    assert "missing='model'" in said


def test_a_field_keeps_its_values():
    """No guess: the code stays what it was read as."""
    with pytest.warns(KeyholeWarning, match="-9999 stands [0-9] times"):
        plan = kh.select(
            xr.DataArray(with_code(-9999), dims=("time", "y", "x")),
            k=2,
            method="qr",
            reconstructor="ridge",
            split="random",
        )
    assert float(plan.scaling.scale[0]) > 100


def test_columns_of_a_table_have_ranges_of_their_own():
    """Pressure in pascals hides no temperature of -9999; a column of nothing else is found too."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"p": 1e5 + 500 * rng.normal(size=60), "t": rng.normal(size=60), "none": np.full(60, -9999.0)})
    table.loc[[3, 9, 11], "t"] = -9999.0
    said = said_of(table)
    assert re.search(
        "-9999 stands [45][0-9] times in 't', 'none', far from all others", said
    )  # of the training samples


def test_two_codes_do_not_hide_each_other():
    values = with_code(-9999.0)
    values[20:24, 0, 0] = 1e20
    said = said_of(values)
    assert "-9999 stands 6 times" in said
    assert "1e+20 stands 4 times at 1 sites" in said


def test_variables_are_examined_apart_and_named():
    dims = ("sample", "y", "x")
    data = xr.Dataset({"t": (dims, with_code(-9999.0)), "p": (dims, 1e5 + 100 * smooth(60, 4, 5, seed=2))})
    assert "-9999 stands 6 times in 't'" in said_of(data)


def test_a_code_beside_missing_values():
    values = with_code(-999.0)
    values[30:33, 0, 1] = np.nan
    assert "-999 stands 6 times" in said_of(values, missing="model")


def rain(rng):
    """Mostly none, else exponential, in tenths of a millimetre."""
    return np.round(rng.exponential(5.0, (200, 4, 5)) * (rng.uniform(size=(200, 4, 5)) < 0.1), 1)


ORDINARY = {
    "black and white images": lambda rng: rng.choice([0.0, 255.0], (60, 6, 6)),
    "grey images": lambda rng: np.clip(rng.normal(0, 200, (60, 6, 6)).round(), 0, 255),
    "saturated sensors": lambda rng: np.minimum(rng.lognormal(5, 2, (80, 4, 5)), 4095.0),
    "clipped at both ends": lambda rng: np.clip(rng.normal(0, 30000, (80, 4, 5)).round(), -32768, 32767),
    "rain": rain,
    "rare storms": lambda rng: rain(rng) ** 3,
    "counts": lambda rng: rng.poisson(0.05, (200, 4, 5)).astype(float),
    "flags": lambda rng: pd.DataFrame(rng.integers(0, 2, (60, 6)).astype(float)),
    "ratings": lambda rng: pd.DataFrame(rng.integers(1, 6, (60, 6)).astype(float)),
    "one-hot": lambda rng: pd.DataFrame(np.eye(6)[rng.integers(0, 6, 60)]),
    "columns of different units": lambda rng: pd.DataFrame(rng.normal(size=(60, 4)) * [1, 1e3, 1e6, 1e20]),
    "numbers up to 999": lambda rng: pd.DataFrame(rng.integers(0, 1000, (500, 3)).astype(float)),
    "dense plasma": lambda rng: rng.lognormal(41, 2, (60, 4, 5)),
    "one outlier": lambda rng: np.where(np.arange(1200).reshape(60, 20) == 77, 1e5, rng.normal(size=(60, 20))),
    "mixed sites": lambda rng: rng.normal(size=(60, 4, 5)) * np.logspace(-6, 3, 20).reshape(4, 5),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_data_are_left_alone(name):
    assert said_of(ORDINARY[name](np.random.default_rng(0))) == ""


def test_fields_in_their_file_are_examined_in_part(tmp_path):
    values = with_code(-9999.0).astype(np.float32)
    time = np.datetime64("2000-01-01", "ns") + np.arange(60) * np.timedelta64(1, "D")
    xr.DataArray(values, {"time": time}, ("time", "y", "x"), "v").to_netcdf(tmp_path / "v.nc")
    assert "-9999 stands" in said_of(tmp_path / "v.nc", memory=10_000)
