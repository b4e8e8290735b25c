"""`keyhole select --scheduler` runs passes through the data on the workers of a dask cluster."""

from __future__ import annotations

import pytest

from example_data import monthly_field
from keyhole import workflow
from keyhole.core.executors import active_executor

distributed = pytest.importorskip("distributed")

OPTIONS = ("-k", 2, "--method", "greedy", "--reconstructor", "ridge")


@pytest.fixture
def source(tmp_path):
    """A field in a file."""
    monthly_field().to_netcdf(tmp_path / "field.nc")
    return tmp_path / "field.nc"


def test_the_workers_of_a_scheduler_are_used(command, source, monkeypatch):
    """While the command runs."""
    seen, select = [], workflow.select

    def spy(*arguments, **options):
        seen.append(type(active_executor()).__name__)
        return select(*arguments, **options)

    monkeypatch.setattr(workflow, "select", spy)
    out = source.with_name("plan.keyhole")
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster:
        done = command("select", source, *OPTIONS, "--out", out, "--scheduler", cluster.scheduler_address)
        assert done.code == 0, done.err
        assert "distributed" not in done.err
    assert seen == ["Dask"]
    assert type(active_executor()).__name__ == "Serial"


def test_a_scheduler_that_does_not_answer_is_a_sentence(command, source):
    """Before anything is read."""
    done = command("select", source, *OPTIONS, "--scheduler", "nowhere")
    assert done.code == 2
    assert done.err.startswith("keyhole: scheduler='nowhere': no dask scheduler answers there")
    assert "Traceback" not in done.err
