"""What `auto` reaches, beside its goals and classical sites."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.markdown import spread, table
from keyhole_benchmarks.names import DATA, Measure, measure
from keyhole_benchmarks.quality import CLASSICAL, GOALS

__all__ = ["ablation", "by_time", "quality", "short_table"]

_HEADER = (
    "data", "K", "measure", "goal", "auto", "relative to goal", "best classical + ridge", "relative",
    "its sites, relative to the best classical", "reconstructor", "minutes",
)  # fmt: skip
_SHORT = ("data", "K", "measure", "best classical + ridge", "auto", "relative", "minutes")


def quality(lines: Lines) -> Iterator[str]:
    """Write one row for each data set and K, with the longest time limit.

    Parameters
    ----------
    lines
        Records of the benchmark.

    Yields
    ------
    str
        Lines of Markdown.
    """
    yield from table(_HEADER, [_long(place) for place in _places(lines)])


def by_time(lines: Lines) -> Iterator[str]:
    """Write one row for each data set and K that was run with several time limits, one column for each limit.

    Parameters
    ----------
    lines
        Records of the benchmark.

    Yields
    ------
    str
        Lines of Markdown.
    """
    limits = sorted(lines.each("protocol"), key=_seconds)
    rows = []
    for place in _places(lines):
        runs = [place.all_ours.where(protocol=limit) for limit in limits]
        if sum(map(bool, map(len, runs))) > 1:
            rows.append([DATA[place.data], str(place.k), *map(place.share, runs)])
    yield from table(["data", "K", *limits], rows)


def short_table(lines: Lines) -> list[str]:
    """Return the README's table.

    Parameters
    ----------
    lines
        Records of the benchmark.

    Returns
    -------
    list of str
        Lines of Markdown.
    """
    rows = [
        [DATA[place.data], str(place.k), place.what.words, f"{place.ridge:.3f}", f"{place.mean:.3f}",
         f"{place.mean / place.ridge:.2f}", place.minutes(place.ours)]
        for place in _places(lines)
    ]  # fmt: skip
    return table(_SHORT, rows)


@dataclass(frozen=True)
class _Place:
    """Lines of one data set and K: auto's, with the most time and with all, and what the best classical sites leave.

    ``same`` says what auto's sites leave of that with the same reconstructor.
    """

    data: str
    k: int
    ours: Lines
    all_ours: Lines
    ridge: float
    same: str

    @property
    def what(self) -> Measure:
        return measure(self.data)

    @property
    def errors(self) -> list[float]:
        return self.ours.metric(self.what.metric, self.what.factor)

    @property
    def mean(self) -> float:
        return fmean(self.errors)

    def share(self, lines: Lines) -> str:
        if not len(lines):
            return ""
        return f"{fmean(lines.metric(self.what.metric, self.what.factor)) / self.ridge:.3f} ({self.minutes(lines)})"

    def minutes(self, lines: Lines) -> str:
        return f"{max(one['seconds'] for one in lines) / 60:.1f}"


def _places(lines: Lines) -> Iterator[_Place]:
    """Give those whose classical neighbours are there."""
    for data in (name for name in GOALS if name in lines.each("data")):
        for k in sorted(lines.where(data=data).each("k")):
            here, what = lines.where(data=data, k=k), measure(data)
            ours = here.where(method="auto", reconstructor="auto")
            ridge = _least(here, "ridge", what.metric, what.factor)
            if len(ours) and ridge is not None:
                longest = max(ours.each("protocol"), key=_seconds)
                yield _Place(data, k, ours.where(protocol=longest), ours, ridge, _same(here, ours, what))


def _long(place: _Place) -> list[str]:
    goal, mean = GOALS[place.data], place.mean
    wanted = goal.errors[place.k] * place.what.factor if goal.share is None else goal.share * place.ridge
    return [
        DATA[place.data], str(place.k), place.what.words, f"{wanted:.3f}", spread(place.errors), f"{mean / wanted:.3f}",
        f"{place.ridge:.3f}", f"{mean / place.ridge:.3f}", place.same,
        ", ".join(_kinds(place.ours)), place.minutes(place.ours),
    ]  # fmt: skip


def _seconds(limit: str) -> float:
    return float(limit.removesuffix(" s"))


def _same(here: Lines, ours: Lines, what: Measure) -> str:
    """Error of auto's sites as a share of the best classical sites' with the same reconstructor and time to fit it.

    Taken where there is most time for both; the seconds are told where auto itself had more.
    """
    for limit in sorted(ours.each("protocol"), key=_seconds, reverse=True):
        least = _least(here.where(protocol=limit), "auto", what.metric, what.factor)
        if least is not None:
            mean = fmean(ours.where(protocol=limit).metric(what.metric, what.factor))
            longest = max(ours.each("protocol"), key=_seconds)
            return f"{mean / least:.3f}" + ("" if limit == longest else f" ({limit})")
    return ""


def _least(here: Lines, reconstructor: str, metric: str, factor: float) -> float | None:
    """Error of the better of the classical methods."""
    errors = [e for method in CLASSICAL for e in here.where(method=method, reconstructor=reconstructor).metric(metric)]
    return factor * min(errors) if errors else None


def _kinds(lines: Lines) -> list[str]:
    return list(dict.fromkeys(str(one["notes"]["reconstructor"]) for one in lines))


def ablation(lines: Lines) -> Iterator[str]:
    """Write one table for each data set: errors of each variant, and their ratio to all stages with the same seeds.

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
        here, what = lines.where(data=data), measure(data)
        rows = []
        for variant in here.each("method"):
            ours, whole = here.where(method=variant), here.where(method="all stages")
            errors = ours.metric(what.metric, what.factor)
            pairs = [(one, other) for one in ours for other in whole if one["seed"] == other["seed"]]
            totals = [Lines(side).metric(what.metric) for side in zip(*pairs, strict=True)]
            ratio = f"{sum(totals[0]) / sum(totals[1]):.3f}" if totals else ""
            rows.append([variant, spread(errors), ratio, f"{max(one['seconds'] for one in ours) / 60:.1f}"])
        yield from (f"### {DATA.get(data, data)}, K = {here.records[0]['k']}", "")
        yield from table(["variant", what.words, "relative to all stages", "minutes"], rows)
