"""Cost of constraints, noise, missing values and failures, and coverage of prediction intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.markdown import table
from keyhole_benchmarks.names import DATA

__all__ = ["networks"]

_LOST = (0, 1, 2, 3, 5, 10)


def networks(lines: Lines) -> Iterator[str]:
    """Write two tables for each data set: errors and coverage by variant, and errors by the number of failing sites.

    Parameters
    ----------
    lines
        Records of the benchmark.

    Yields
    ------
    str
        Lines of Markdown.
    """
    for data in lines.each("data"):
        here = lines.where(data=data)
        plain = here.where(method="none").metric("fvu_area") or here.where(method="none").metric("fvu")
        yield from (f"### {DATA.get(data, data)}, K = {here.records[0]['k']}", "")
        header = [
            "constraint",
            "sites",
            "unexplained variance, by area",
            "relative",
            "coverage (90 %)",
            "by region",
        ]
        yield from table(header, [_row(one, plain[0] if plain else None) for one in here])
        shown = [one for one in here if one["method"] in ("none", "QR's sites", "two may fail")]
        yield from table(["failing sites", *map(str, _LOST)], [_lost(one) for one in shown])


def _row(one: Mapping[str, Any], plain: float | None) -> list[str]:
    scores = one["metrics"]
    error = scores.get("fvu_area", scores["fvu"])
    regions = ", ".join(f"{name} {share:.2f}" for name, share in one["notes"]["coverage_by_region"].items())
    ratio = "" if plain is None else f"{error / plain:.3f}"
    return [one["method"], str(one["k_distinct"]), f"{error:.3f}", ratio, f"{scores['coverage_90']:.3f}", regions]


def _lost(one: Mapping[str, Any]) -> list[str]:
    name = {"none": "greedy", "two may fail": "greedy, two may fail"}.get(one["method"], "QR")
    mean, worst = one["notes"]["by_failures"], one["notes"]["worst_by_failures"]
    return [f"RMSE, {name} (worst)", *(f"{mean[n]:.3f} ({worst[n]:.3f})" for n in _LOST if n < len(mean))]
