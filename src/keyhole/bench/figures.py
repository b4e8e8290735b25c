"""Which runs the figures show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from keyhole.bench import cgan, table1
from keyhole.bench.published import METHODS
from keyhole.bench.runner import Job

__all__ = ["prerequisites"]

# Data and K of the samples that are drawn; the laws' averages and covariance are of MNIST at 30, as in the paper.
_SAMPLES = (("mnist", 20), ("mnist", 30), ("ipsl", 50), ("ncep", 200), ("celeba", 200))


def prerequisites(protocol: str, results: Path) -> Iterator[tuple[str, Iterator[Job]]]:
    """Give the jobs whose arrays are drawn, by the bench that they belong to."""
    for data, k in _SAMPLES:
        yield "table1", table1.jobs(protocol, (data,), METHODS, (k,), (0,))
    yield "cgan", cgan.jobs(protocol, tuple(cgan.KS), cgan.METHODS, (), (0,))
