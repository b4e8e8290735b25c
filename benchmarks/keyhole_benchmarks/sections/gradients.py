"""Bias, standard deviation and direction of gradient estimators."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from keyhole_benchmarks.gradients import DISTRIBUTIONS, ESTIMATORS, STATES
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.markdown import table
from keyhole_benchmarks.names import METHODS

__all__ = ["gradients"]

_OBJECTIVES = {"exact": "Masks of exactly K sites:", "count": "Zero-temperature masks, any number of sites:"}


def gradients(lines: Lines) -> Iterator[str]:
    """Write a table of estimators for each objective, by distribution and state.

    Parameters
    ----------
    lines
        Records of the benchmark.

    Yields
    ------
    str
        Lines of Markdown.
    """
    columns = list(product(DISTRIBUTIONS, STATES))
    for objective, words in _OBJECTIVES.items():
        rows = [
            [one.words, *(_cell(lines.where(method=name, protocol=which, data=state)) for which, state in columns)]
            for name, one in ESTIMATORS.items()
            if one.objective == objective
        ]
        yield from (words, "")
        yield from table(["estimator", *(f"{METHODS[which]}, {state}" for which, state in columns)], rows)


def _cell(lines: Lines) -> str:
    """Write means over seeds."""
    figures = [lines.metric(name) for name in ("bias", "deviation", "cosine")]
    return " / ".join(f"{sum(values) / len(values):.2f}" for values in figures if values)
