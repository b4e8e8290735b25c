"""Data and histories to report on, small enough for a test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from keyhole.data.origin import SourceInfo
from keyhole.data.samples import Samples
from keyhole.data.sites import Sites
from keyhole.workflow.comparison import Comparison

TAG = "<script>alert(1)</script>"


def field(*, falling: bool = False, turned: bool = False) -> Samples:
    """Five years of months on 6 x 9 cells, more variable to the north, with some land."""
    rng = np.random.default_rng(0)
    latitude, longitude = np.linspace(-50.0, 50.0, 6), np.linspace(0.0, 320.0, 9)
    size = 1 + np.arange(6)[:, np.newaxis] + 0 * longitude
    values = rng.normal(size=(60, 1, 1)) * size + 0.3 * rng.normal(size=(60, 6, 9)) + 10
    values[:, 2:4, 3:5] = np.nan
    if falling:
        latitude, values = latitude[::-1], values[:, ::-1]
    axes = {"lat": latitude, "lon": longitude}
    if turned:
        axes, values = {"lon": longitude, "lat": latitude}, values.transpose(0, 2, 1)
    sites = Sites.build(values.shape[1:], tuple(axes), axes)
    time = np.arange("2001-01", "2006-01", dtype="datetime64[M]").astype("datetime64[ns]")
    origin = SourceInfo("field", sample_dim="time", name="height", attributes={"units": "m"})
    return Samples.build(values[:, np.newaxis], sites, time=time, anomalies="month", origin=origin)


def history() -> list[dict[str, float]]:
    """Figures as a learned selector and a network leave them; the first look has no loss yet."""
    rows = []
    for stage, names in (("select", ("validation", "expected_l0")), ("refit", ("validation",))):
        for step in range(0, 101, 10):
            figures = dict.fromkeys(names, 1.0 + 1 / (1 + step)) | ({"loss": 2.0 / step} if step else {})
            rows.append({"stage": stage, "step": float(step), **figures})
    return rows


def with_history(comparison: Comparison, position: int) -> Comparison:
    """Pretend that one entry was trained."""
    entries = list(comparison.entries)
    plan = replace(entries[position].plan, history=history())
    entries[position] = replace(entries[position], plan=plan)
    return replace(comparison, entries=entries)
