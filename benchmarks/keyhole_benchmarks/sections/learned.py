"""What learned masks of exactly K sites reach, beside classical and local search."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from keyhole_benchmarks.learned import METHODS
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.markdown import table
from keyhole_benchmarks.names import DATA
from keyhole_benchmarks.sections.tables import standard_error

__all__ = ["learned"]

_CLASSICAL = ("qr", "greedy", "relevance", "forest")


def learned(lines: Lines) -> Iterator[str]:
    """Write one table for each task and K, with the error relative to that of the best classical method.

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
        for k in sorted(lines.where(data=data).each("k")):
            here = lines.where(data=data, k=k)
            metric = "error" if data.endswith(" classes") else "fvu"
            words = "share of test samples classified wrongly" if metric == "error" else "unexplained variance"
            yield from (f"### {DATA.get(data, data)}, K = {k}: {words}", "")
            errors = {
                name: _by_seed(here.where(method=name), metric) for name in METHODS if name in here.each("method")
            }
            classical = [name for name in _CLASSICAL if name in errors]
            best = min(classical, key=lambda name: float(np.mean([*errors[name].values()])), default=None)
            reference = {} if best is None else errors[best]
            header = ["sites by", "error (s.e.)", "relative to the best classical (s.e.)", "processor seconds"]
            yield from table(header, [_row(name, errors[name], reference, here.where(method=name)) for name in errors])
            yield ""


def _by_seed(lines: Lines, metric: str) -> dict[int, float]:
    return {line["seed"]: line["metrics"][metric] for line in lines}


def _row(name: str, errors: dict[int, float], reference: dict[int, float], lines: Lines) -> list[str]:
    values = [*errors.values()]
    ratios = [errors[seed] / reference[seed] for seed in errors if seed in reference]
    seconds = np.mean([line["cpu_seconds"] for line in lines])
    return [METHODS[name].words, _with_error(values), _with_error(ratios), f"{seconds:.0f}"]


def _with_error(values: list[float]) -> str:
    """Write a mean with its standard error, if there are several values."""
    if not values:
        return ""
    mean = f"{np.mean(values):.4f}"
    return f"{mean} ({standard_error(values):.4f})" if len(values) > 1 else mean
