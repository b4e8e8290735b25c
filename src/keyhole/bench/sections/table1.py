"""Table 1 beside the paper's, and what its pairs of runs say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from keyhole.bench.lines import Lines
from keyhole.bench.markdown import spread, table
from keyhole.bench.names import DATA, METHODS, measure
from keyhole.bench.table1 import CLASSICAL, OWN, REFIT

__all__ = ["answers", "table1"]

_CONCENTRATED = 0.95
_SAME = 0.02  # ratios nearer to one than this say nothing


def table1(lines: Lines) -> Iterator[str]:
    """One table for each data set and K."""
    for data in lines.each("data"):
        here = lines.where(data=data)
        for k in sorted(here.each("k")):
            yield from _one(here.where(k=k), data, k)


def _one(lines: Lines, data: str, k: int) -> Iterator[str]:
    _, _, words = measure(data)
    seeds = ", ".join(map(str, sorted(lines.each("seed"))))
    yield from ("", f"### {DATA.get(data, data)}, K = {k}", "", f"{words}; seeds {seeds}.", "")
    header = ["method", "published", "as in the paper", "ratio", "our refit", "concentration", "distinct", "seconds"]
    rows = [_row(lines.where(method=method), data) for method in METHODS if len(lines.where(method=method))]
    yield from table(header, rows)


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


def answers(lines: Lines) -> Iterator[str]:
    """The paper's claims, each as the ratio of two methods' errors at equal data, K, seed and network."""
    rows = []
    for question, one, others in _QUESTIONS:
        for network in (OWN, REFIT):
            ratios = list(_ratios(lines, one, others, network))
            if ratios:
                rows.append([question, "as in the paper" if network == OWN else "our refit", *_verdict(ratios)])
    yield from table(["question", "network", "ratio of errors", "lower in", "says"], rows)


_QUESTIONS: list[tuple[str, str, tuple[str, ...]]] = [
    ("correlated against independent: VLN / ILN", "vln", ("iln",)),
    ("correlated against concrete: VLN / SCT", "vln", ("sct",)),
    ("hyper-network: HNet-LN / VLN", "hnet", ("vln",)),
    ("hyper-network against independent: HNet-LN / ILN", "hnet", ("iln",)),
    ("mask laws against CAE: VLN / CAE", "vln", ("cae",)),
    *((f"{METHODS[law]} / better of QR and greedy", law, CLASSICAL) for law in ("cae", "iln", "sct", "vln", "hnet")),
]


def _ratios(lines: Lines, one: str, others: tuple[str, ...], network: str) -> Iterator[float]:
    for record in lines.where(method=one, reconstructor=network):
        rivals = [_rival(lines, record, other, network) for other in others]
        known = [error for error in rivals if error is not None]
        if known:
            yield record["metrics"]["mse"] / min(known)


def _rival(lines: Lines, record: Any, method: str, network: str) -> float | None:
    """Mean squared error of another method in the same place; a classical one has no seed and is fitted a ResNet."""
    place = {"data": record["data"], "k": record["k"], "protocol": record["protocol"], "method": method}
    if method in CLASSICAL:
        found = lines.where(**place, reconstructor="resnet" if network == OWN else network)
    else:
        found = lines.where(**place, seed=record["seed"], reconstructor=network)
    errors = found.metric("mse")
    return errors[0] if errors else None


def _verdict(ratios: Sequence[float]) -> list[str]:
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    lower = sum(ratio < 1 for ratio in ratios)
    words = "better" if mean < 1 - _SAME else "worse" if mean > 1 + _SAME else "no difference"
    sure = "" if lower in (0, len(ratios)) or words == "no difference" else ", not always"
    return [f"{mean:.2f} ({min(ratios):.2f} to {max(ratios):.2f})", f"{lower} of {len(ratios)}", words + sure]
