"""Table 1 beside the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from keyhole_benchmarks.lattice import line_share
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.markdown import spread, table
from keyhole_benchmarks.names import DATA, METHODS, REFERENCES, measure
from keyhole_benchmarks.table1 import REFIT
from keyhole_benchmarks.texts import LINEAR_MEASUREMENTS
from keyhole_benchmarks.weights import OWN

__all__ = ["table1"]

_CONCENTRATED = 0.95


def table1(lines: Lines) -> Iterator[str]:
    """Write one table for each data set and K.

    Parameters
    ----------
    lines
        Records of Table 1.

    Yields
    ------
    str
        Lines of Markdown.
    """
    for data in lines.each("data"):
        here = lines.where(data=data)
        for k in sorted(here.each("k")):
            yield from _one(here.where(k=k), data, k)


def _one(lines: Lines, data: str, k: int) -> Iterator[str]:
    _, _, words = measure(data)
    seeds = ", ".join(map(str, sorted(lines.each("seed"))))
    yield from ("", f"### {DATA.get(data, data)}, K = {k}", "", f"{words}; seeds {seeds}.", "")
    names = ("method", "published", "as in the paper", "ratio", "our refit", "concentration", "parity", "distinct")
    header = [*names, "seconds"]
    rows = [_row(lines.where(method=method), data) for method in METHODS if len(lines.where(method=method))]
    references = [_reference(lines.where(method=name), data) for name in REFERENCES if len(lines.where(method=name))]
    yield from table(header, rows + references)
    if references:
        yield from (LINEAR_MEASUREMENTS, "")


def _reference(lines: Lines, data: str) -> list[str]:
    """A row without sites: the error, where the refits are, and the time."""
    metric, factor, _ = measure(data)
    seconds = max(one["seconds"] for one in lines)
    name, error = REFERENCES[lines.records[0]["method"]], spread(lines.metric(metric, factor))
    return [f"{name} (reference)", "", "", "", error, "", "", "", f"{seconds:.0f}"]


def _row(lines: Lines, data: str) -> list[str]:
    metric, factor, _ = measure(data)
    first, refit = _but_refit(lines), lines.where(reconstructor=REFIT)
    ours = first.metric(metric, factor)
    concentration = first.note("concentration")
    apart = bool(concentration) and min(concentration) < _CONCENTRATED
    return [
        METHODS[first.records[0]["method"]] + (" †" if apart else ""),
        _published(first),
        spread(ours) + (" (ResNet on fixed sites)" if first.records[0]["reconstructor"] != OWN else ""),
        _ratio(first, ours),
        spread(refit.metric(metric, factor)),
        spread(concentration, ".2f"),
        spread([share for share in map(line_share, first) if share is not None], ".2f"),
        spread([float(one["k_distinct"]) for one in first], ".0f"),
        f"{max(one['seconds'] for one in first):.0f}",
    ]


def _but_refit(lines: Lines) -> Lines:
    return Lines([one for one in lines if one["reconstructor"] != REFIT])


def _published(lines: Lines) -> str:
    value = lines.records[0]["published"]
    if value is None:
        return ""
    return f"{100 * value:.2f}" + ("" if lines.records[0]["comparable"] else " (not comparable)")


def _ratio(lines: Lines, ours: Sequence[float]) -> str:
    first = lines.records[0]
    return f"{sum(ours) / len(ours) / (100 * first['published']):.2f}" if first["comparable"] else ""
