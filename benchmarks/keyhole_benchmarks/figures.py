"""The runs that the figures show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from keyhole_benchmarks import cgan, table1
from keyhole_benchmarks.published import METHODS
from keyhole_benchmarks.runner import Job

__all__ = ["KS", "METHODS", "prerequisites"]

# Of the samples that are drawn; averages of masks and covariance are of MNIST at 30, as in the paper.
KS = {"mnist": (20, 30), "ipsl": (50,), "ncep": (200,), "celeba": (200,)}


def prerequisites(
    protocol: str, data: Sequence[str], methods: Sequence[str], ks: Sequence[int], seeds: Sequence[int]
) -> Iterator[tuple[str, Iterator[Job]]]:
    """Return the jobs whose arrays the figures show.

    Parameters
    ----------
    protocol
        Name of the protocol.
    data
        Names of data sets.
    methods
        Names of methods of Table 1.
    ks
        Numbers of sites; empty for those of the figures.
    seeds
        Seeds of the runs.

    Yields
    ------
    tuple
        Name of a benchmark, and its jobs.
    """
    for name in data:
        yield "table1", table1.jobs(protocol, (name,), methods, ks or KS.get(name, ()), seeds)
    faces_and_digits = [name for name in data if name in cgan.KS]
    yield "cgan", cgan.jobs(protocol, faces_and_digits, cgan.METHODS, (), seeds)
