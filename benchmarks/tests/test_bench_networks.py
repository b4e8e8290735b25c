"""The benchmark of networks: constraints, prediction intervals, failures."""

from __future__ import annotations

import pytest

from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.networks import N_SITES, VARIANTS, jobs
from keyhole_benchmarks.records import Store
from keyhole_benchmarks.runner import run_jobs
from keyhole_benchmarks.sections import networks


def test_variants_are_run_and_shown(tmp_path, monkeypatch):
    """A line for each, with what it costs, whether bands hold, and the error by sites lost."""
    monkeypatch.setitem(N_SITES, "sst", 6)
    store = Store(tmp_path, "networks")
    chosen = ("none", "1000 km apart", "QR's sites", "by cost")
    assert run_jobs(jobs(("sst",), chosen, (0,)), store, device="cpu", say=lambda _: None) == 4
    lines = Lines(store.lines())
    assert lines.where(method="1000 km apart").records[0]["notes"]["constraint_metadata"] == ["min_distance=1000"]
    for one in lines:
        assert one["metrics"]["coverage_90"] == pytest.approx(0.9, abs=0.1)
        assert len(one["notes"]["by_failures"]) == min(one["k_distinct"], 11)
    page = "\n".join(networks(lines.latest()))
    assert "### SST, K = 6" in page
    assert "| 1000 km apart | 6 |" in page
    assert "RMSE, QR (worst)" in page


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_can_be_prepared(variant):
    """Constraints that can be kept on the embedded field, or on pictures."""
    place = "digits" if VARIANTS[variant].on == "pictures" else "sst"
    (job,) = jobs((place,), (variant,), (0,))
    assert job.cases[0].method == variant


def test_pictures_have_no_latitude():
    """Variants of the globe are left out for them."""
    names = [job.cases[0].method for job in jobs(("digits",), tuple(VARIANTS), (0,))]
    assert "residual network" in names
    assert "30 S to 30 N" not in names


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setitem(N_SITES, "digits", 6)
