"""What `auto` reaches, beside its goals and classical sites."""

from __future__ import annotations

from collections.abc import Iterator

from keyhole.bench.lines import Lines
from keyhole.bench.markdown import spread, table
from keyhole.bench.names import DATA, measure
from keyhole.bench.quality import CLASSICAL, GOALS

__all__ = ["ablation", "quality"]

_HEADER = (
    "data", "K", "measure", "goal", "auto", "of the goal", "best classical + ridge", "of that",
    "its sites, of the best classical", "rebuilt by", "minutes",
)  # fmt: skip


def quality(lines: Lines) -> Iterator[str]:
    """One row for each data set and K; "its sites" have the same reconstructor as the classical ones."""
    rows: list[list[str]] = []
    for data in lines.each("data"):
        for k in sorted(lines.where(data=data).each("k")):
            rows += _row(lines.where(data=data, k=k), data, k)
    yield from table(_HEADER, rows)


def _row(here: Lines, data: str, k: int) -> Iterator[list[str]]:
    """Give the row, if its classical neighbours are there."""
    what = measure(data)
    ours = here.where(method="auto", reconstructor="auto")
    found = ours.metric(what.metric, what.factor)
    ridge, same = (_least(here, reconstructor, what.metric, what.factor) for reconstructor in ("ridge", "auto"))
    if not found or ridge is None or same is None:
        return
    mean, goal = sum(found) / len(found), GOALS[data]
    wanted = goal.errors[k] * what.factor if goal.share is None else goal.share * ridge
    yield [
        DATA.get(data, data), str(k), what.words, f"{wanted:.3f}", spread(found), f"{mean / wanted:.3f}",
        f"{ridge:.3f}", f"{mean / ridge:.3f}", f"{mean / same:.3f}", ", ".join(_kinds(ours)),
        f"{max(one['seconds'] for one in ours) / 60:.0f}",
    ]  # fmt: skip


def _least(here: Lines, reconstructor: str, metric: str, factor: float) -> float | None:
    """Error of the better of the classical methods."""
    errors = [e for method in CLASSICAL for e in here.where(method=method, reconstructor=reconstructor).metric(metric)]
    return factor * min(errors) if errors else None


def _kinds(lines: Lines) -> list[str]:
    return list(dict.fromkeys(str(one["notes"]["reconstructor"]) for one in lines))


def ablation(lines: Lines) -> Iterator[str]:
    """One table for each data set: what each variant leaves, and its ratio to all stages."""
    for data in lines.each("data"):
        here, what = lines.where(data=data), measure(data)
        whole = here.where(method="all stages").metric(what.metric, what.factor)
        rows = []
        for variant in here.each("method"):
            errors = here.where(method=variant).metric(what.metric, what.factor)
            ratio = f"{sum(errors) / len(errors) / (sum(whole) / len(whole)):.3f}" if whole else ""
            seconds = max(one["seconds"] for one in here.where(method=variant))
            rows.append([variant, spread(errors), ratio, f"{seconds / 60:.1f}"])
        yield from (f"### {DATA.get(data, data)}, K = {here.records[0]['k']}", "")
        yield from table(["variant", what.words, "of all stages", "minutes"], rows)
