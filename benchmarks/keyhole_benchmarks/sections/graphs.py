"""Selectors and reconstructors on a water network."""

from __future__ import annotations

from collections.abc import Iterator

from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.markdown import spread, table
from keyhole_benchmarks.names import METHODS

__all__ = ["graphs"]


def graphs(lines: Lines) -> Iterator[str]:
    """Write a table of reconstructors at greedy's sites, and one of selectors, by measured hours and K.

    Parameters
    ----------
    lines
        Records of the benchmark.

    Yields
    ------
    str
        Lines of Markdown.
    """
    hours, reconstructors = lines.each("protocol"), lines.each("reconstructor")
    yield from ("Reconstructors, at greedy's sites:", "")
    greedy = lines.where(method="greedy")
    rows = [
        [
            count,
            str(k),
            *(spread(greedy.where(protocol=count, k=k, reconstructor=one).metric("fvu")) for one in reconstructors),
        ]
        for count in hours
        for k in sorted(greedy.each("k"))
    ]
    yield from table(["measured", "K", *(f"`{one}`" for one in reconstructors)], rows)
    for k in sorted({one["k"] for one in lines if one["method"] != "greedy"}):
        here = lines.where(k=k, reconstructor="ridge")
        rows = [
            [
                METHODS.get(method, f"`{method}`"),
                *(spread(here.where(method=method, protocol=count).metric("fvu")) for count in hours),
            ]
            for method in here.each("method")
        ]
        yield from (f"Selectors, K = {k}, reconstructed by ridge (mean and range over seeds):", "")
        yield from table(["selector", *hours], rows)
