"""Selectors with the same reconstructor, side by side."""

from __future__ import annotations

from collections.abc import Iterator

from keyhole.bench.lines import Lines
from keyhole.bench.markdown import spread, table

__all__ = ["selectors", "short_table"]

# Linear rows measured by independent code.
_REFERENCE = {
    ("ipsl", 20, "ridge"): ("fvu", {"qr": 0.401, "greedy": 0.379}),
    ("ipsl", 50, "ridge"): ("fvu", {"qr": 0.215, "greedy": 0.212}),
    ("mnist", 20, "ridge"): ("mse", {"qr": 3.37e-2, "greedy": 3.34e-2}),
}
_SHORT = ("learned", "greedy", "qr", "random")


def selectors(lines: Lines) -> Iterator[str]:
    """One table for each data set, K and reconstructor, the best method first."""
    for (data, k, reconstructor), here in _groups(lines):
        yield from ("", f"### {data}, K = {k}, {reconstructor}", "")
        methods = sorted(here.each("method"), key=lambda method: _mean(here.where(method=method)))
        header = ["method", "test RMSE", "variance left", "seconds", "concentration"]
        yield from table(header, [[method, *_cells(here.where(method=method))] for method in methods])
        metric, known = _REFERENCE.get((data, k, reconstructor), ("", {}))
        for method, value in known.items():
            if not len(here.where(method=method)):
                continue
            ours = _mean(here.where(method=method), metric)
            yield f"`{method}` against independent code: {metric} {ours:.4f} / {value:.4f} = {ours / value:.3f}.\n"


def short_table(lines: Lines) -> list[str]:
    """The README's table: the share of variance left, by data and method."""
    rows = []
    for (data, k, reconstructor), here in _groups(lines):
        found = [here.where(method=method) for method in _SHORT]
        rows.append([f"{data}, K = {k}, {reconstructor}", *(f"{_mean(one):.3f}" if len(one) else "" for one in found)])
    return table(["variance left on test", *_SHORT], rows)


def _groups(lines: Lines) -> Iterator[tuple[tuple[str, int, str], Lines]]:
    places = dict.fromkeys((one["data"], one["k"], one["reconstructor"]) for one in lines)
    for data, k, reconstructor in places:
        yield (data, k, reconstructor), lines.where(data=data, k=k, reconstructor=reconstructor)


def _mean(lines: Lines, metric: str = "fvu") -> float:
    values = lines.metric(metric)
    return sum(values) / len(values)


def _cells(lines: Lines) -> list[str]:
    return [
        spread(lines.metric("rmse"), ".4f"),
        spread(lines.metric("fvu"), ".4f"),
        f"{max(one['seconds'] for one in lines):.0f}",
        spread(lines.note("concentration"), ".2f"),
    ]
