"""Sites learned through a decoder and a loss of one's own, beside classical sites."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from keyhole_benchmarks.examples import LEARNED
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.markdown import table

__all__ = ["difference", "examples"]

_TITLES = {"edges": "Edges", "class": "Class", "flow": "Flow"}
_WORDS = {
    "relevance": "forward selection", "kernel_exchange": "kernel exchange", "cold": "learned, cold start",
    "warm": "learned, warm start", "local_search": "the same, then local search",
}  # fmt: skip
_ERRORS = {"loss": "loss", "mse": "squared error", "divergence": "squared divergence", "wrong": "wrong classes"}


def examples(lines: Lines) -> Iterator[str]:
    """Write a table of selectors for each example.

    Parameters
    ----------
    lines
        Records of the benchmark.

    Yields
    ------
    str
        Lines of Markdown.
    """
    for name in (one for one in _TITLES if one in lines.each("protocol")):
        here = lines.where(protocol=name)
        classical = [one for one in here.each("method") if one not in LEARNED]
        best = min(classical, key=lambda method: np.mean(here.where(method=method).metric("loss")), default=None)
        errors = [one for one in _ERRORS if here.metric(one)]
        k, seeds = here.each("k")[0], len(here.each("seed"))
        yield from (f"{_TITLES[name]}, K = {k}, mean and range over {seeds} seeds:", "")
        rows = [
            [
                _WORDS.get(method, method),
                *(_spread(here.where(method=method).metric(error)) for error in errors),
                "best" if method == best else _written(difference(here, method, best)),
            ]
            for method in here.each("method")
        ]
        yield from table(["sites", *(_ERRORS[one] for one in errors), "loss - best classical"], rows)


def difference(lines: Lines, method: str, reference: str | None) -> tuple[float, float] | None:
    """Return the mean difference of two methods' losses over common seeds, and its standard error.

    Parameters
    ----------
    lines
        Records of one example.
    method, reference
        Names of methods.

    Returns
    -------
    tuple of float or None
        None with fewer than two common seeds.
    """
    losses = [{one["seed"]: one["metrics"]["loss"] for one in lines.where(method=name)} for name in (method, reference)]
    paired = [losses[0][seed] - losses[1][seed] for seed in losses[0].keys() & losses[1].keys()]
    if len(paired) < 2:
        return None
    return float(np.mean(paired)), float(np.std(paired, ddof=1) / len(paired) ** 0.5)


def _spread(values: list[float]) -> str:
    return f"{np.mean(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def _written(found: tuple[float, float] | None) -> str:
    return "" if found is None else f"{found[0]:+.2g} ± {found[1]:.1g}"
