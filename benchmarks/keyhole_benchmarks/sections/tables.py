"""What selectors of features reach on tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.markdown import table
from keyhole_benchmarks.names import DATA
from keyhole_benchmarks.peers import PEERS

__all__ = ["standard_error", "tables"]

_OWN = "keyhole"


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
    """Write where `KeyholeClassifierSelector` stands, then one table for each data set, the most accurate first.

    Parameters
    ----------
    lines
        Records of the benchmark. Of each selector, data set and split the latest counts, whatever its time limit, which
        only Keyhole's selectors have.

    Yields
    ------
    str
        Lines of Markdown.
    """
    lines = lines.whatever_protocol()
    yield from (_standing(lines), "")
    for data in lines.each("data"):
        here = lines.where(data=data)
        words = f"K = {here.records[0]['k']}, {len(here.each('seed'))} splits"
        yield from (f"### {DATA.get(data, data)}, {words}", "")
        header = ["selector", "accuracy (s.e.)", "behind the first (s.e.)", "unexplained variance", "seconds (slowest)"]
        ranked = _ranked(here)
        yield from table(header, [_row(here.where(method=name), here.where(method=ranked[0])) for name in ranked])


def _standing(lines: Lines) -> str:
    """On how many tables `KeyholeClassifierSelector` is first or close to it, and its slowest fit."""
    tables, own = lines.each("data"), lines.where(method=_OWN)
    close = []
    for data in tables:
        here = lines.where(data=data)
        mean, error = _behind(here.where(method=_OWN), here.where(method=_ranked(here)[0]))
        close += [DATA.get(data, data)] if mean <= error or mean == 0 else []
    slowest, processor = own.note("choosing_seconds"), own.note("choosing_cpu_seconds")
    of_processor = f", {_seconds(max(processor))} of one processor" if processor else ""
    return (
        f"`KeyholeClassifierSelector` is the first, or within one standard error of it, on {len(close)} of "
        f"{len(tables)} tables ({', '.join(close) or 'none'}); its slowest fit took "
        f"{_seconds(max(slowest))} seconds{of_processor}."
    )


def _behind(own: Lines, first: Lines) -> tuple[float, float]:
    """How far the mean accuracy lies behind the first, and the standard error of the paired difference over splits."""
    by_split = [{one["seed"]: one["metrics"]["accuracy"] for one in lines} for lines in (first, own)]
    differences = [by_split[0][seed] - by_split[1][seed] for seed in by_split[1] if seed in by_split[0]]
    return float(np.mean(differences)), standard_error(differences)


def _ranked(lines: Lines) -> list[str]:
    """Methods, the most accurate first."""
    return sorted(lines.each("method"), key=lambda name: -float(np.mean(lines.where(method=name).metric("accuracy"))))


def _row(lines: Lines, first: Lines) -> list[str]:
    name, accuracy, seconds = lines.records[0]["method"], lines.metric("accuracy"), lines.note("choosing_seconds")
    behind = "" if lines.records == first.records else "{:z.3f} ({:.3f})".format(*_behind(lines, first))
    words = PEERS[name].words
    return [
        f"**{words}**" if name.startswith(_OWN) else words,
        f"{np.mean(accuracy):.3f} ({standard_error(accuracy):.3f})",
        behind,
        f"{np.mean(lines.metric('fvu')):.3f}",
        f"{_seconds(float(np.median(seconds)))} ({_seconds(max(seconds))})",
    ]


def _seconds(count: float) -> str:
    return f"{count:.2g}" if count < 100 else f"{count:.0f}"
