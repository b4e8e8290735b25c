"""What selectors of features reach on tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.markdown import table
from keyhole_benchmarks.names import DATA
from keyhole_benchmarks.peers import PEERS

__all__ = ["standard_error", "tables"]


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of the mean.

    Parameters
    ----------
    values
        The values.

    Returns
    -------
    float
        NaN for a single value.

    Examples
    --------
    >>> standard_error([1.0, 2.0, 3.0])
    0.5773502691896258
    """
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def tables(lines: Lines) -> Iterator[str]:
    """Write one table for each data set, the most accurate selector first.

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
        words = f"K = {here.records[0]['k']}, {len(here.each('seed'))} splits"
        yield from (f"### {DATA.get(data, data)}, {words}", "")
        header = ["selector", "accuracy (s.e.)", "unexplained variance", "seconds to select"]
        yield from table(header, [_row(here.where(method=name), name) for name in _ranked(here)])


def _ranked(lines: Lines) -> list[str]:
    """Methods, the most accurate first."""
    return sorted(lines.each("method"), key=lambda name: -float(np.mean(lines.where(method=name).metric("accuracy"))))


def _row(lines: Lines, name: str) -> list[str]:
    accuracy, seconds = lines.metric("accuracy"), lines.note("choosing_seconds")
    text = f"{np.mean(accuracy):.3f} ({standard_error(accuracy):.3f})"
    words = PEERS[name].words
    if name.startswith("keyhole"):
        words = f"**{words}**"
    return [words, text, f"{np.mean(lines.metric('fvu')):.3f}", _seconds(float(np.median(seconds)))]


def _seconds(count: float) -> str:
    return f"{count:.2g}" if count < 100 else f"{count:.0f}"
