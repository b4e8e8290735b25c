"""What Table 1's pairs of runs say about the paper's claims."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.markdown import table
from keyhole_benchmarks.names import DATA, METHODS
from keyhole_benchmarks.published import METHODS as PAPER
from keyhole_benchmarks.table1 import CLASSICAL, REFIT, RESNET
from keyhole_benchmarks.weights import OWN

__all__ = ["answers"]

_SETTLED = 0.8  # concentration below which no sites had been selected
_ENOUGH = 3  # pairs of a data set, for its mean to count beside others that have as many
_SAME = 0.02  # mean ratios nearer to one than this say nothing
_PAIRS = (
    ("correlated against independent", "vln", "iln"),
    ("correlated against concrete", "vln", "sct"),
    ("hyper-network against one distribution for all", "hnet", "vln"),
    ("hyper-network against independent", "hnet", "iln"),
    ("mask distributions against CAE", "vln", "cae"),
    *(("learned against classical sites", distribution, other) for distribution in PAPER for other in CLASSICAL),
)
_NETWORKS = {OWN: "as in the paper", REFIT: "our refit"}


def answers(lines: Lines) -> Iterator[str]:
    """Write the paper's claims as ratios of two methods' errors at equal data, K, seed and network.

    Parameters
    ----------
    lines
        Records of Table 1.

    Yields
    ------
    str
        Lines of Markdown.
    """
    here = _complete(lines)
    data = here.each("data")
    here = Lines([one for one in here if one["notes"].get("concentration", 1.0) >= _SETTLED])
    if not data:
        yield "No data and K has lines of all methods yet."
        return
    rows = []
    for question, one, other in _PAIRS:
        for network, words in _NETWORKS.items():
            ratios = {name: list(_ratios(here.where(data=name), one, other, network)) for name in data}
            if any(ratios.values()):
                title = f"{question}: {METHODS[one]} / {METHODS[other]}"
                rows.append(
                    [title, words, *map(_cell, ratios.values()), _verdict([one for one in ratios.values() if one])]
                )
    yield from table(["ratio of errors", "network", *(DATA.get(name, name) for name in data), "result"], rows)


def _complete(lines: Lines) -> Lines:
    """Keep the data and K that all of the paper's methods have, so that all rows are of the same places."""
    return Lines([one for one in lines if set(PAPER) <= set(lines.where(data=one["data"], k=one["k"]).each("method"))])


def _ratios(lines: Lines, one: str, other: str, network: str) -> Iterator[float]:
    for record in lines.where(method=one, reconstructor=network):
        rival = _rival(lines, record, other, network)
        if rival is not None:
            yield record["metrics"]["mse"] / rival


def _rival(lines: Lines, record: Mapping[str, Any], method: str, network: str) -> float | None:
    """Mean squared error of another method in the same place; a classical one has no seed and is fitted a ResNet."""
    found = lines.where(k=record["k"], method=method)
    if method in CLASSICAL:
        found = found.where(reconstructor=RESNET if network == OWN else network)
    else:
        found = found.where(seed=record["seed"], reconstructor=network)
    errors = found.metric("mse")
    return errors[0] if errors else None


def _mean(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _cell(ratios: Sequence[float]) -> str:
    if not ratios:
        return ""
    lower = sum(ratio < 1 for ratio in ratios)
    return f"{_mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}), lower in {lower} of {len(ratios)}"


def _verdict(ratios: Sequence[Sequence[float]]) -> str:
    """Put the data sets' means into one word, of those that have several pairs if there are any."""
    enough = [one for one in ratios if len(one) >= _ENOUGH] or ratios
    means = [_mean(one) for one in enough]
    better, worse = min(means) < 1 - _SAME, max(means) > 1 + _SAME
    if better and worse:
        return "depends on the data"
    return "better" if better else "worse" if worse else "no difference"
