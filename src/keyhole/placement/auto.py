"""The selector that tries several, one after the other, and keeps the best."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.core.run import Run
from keyhole.data.samples import Samples
from keyhole.placement.base import Selection, Selector
from keyhole.placement.baselines.supervised import Forest, Relevance
from keyhole.placement.classical import QR, Greedy
from keyhole.placement.exchange import Exchange
from keyhole.placement.kernel_exchange import KernelExchange
from keyhole.placement.learned import Learned
from keyhole.placement.network_comparison import compare_by_network
from keyhole.placement.scorer import ClosedFormScorer, Scorer, TargetScorer, is_nonlinear

__all__ = ["STAGES", "Auto"]

STAGES = ("greedy", "qr", "exchange", "learned", "kernel_exchange")
STAGES_FOR_A_TARGET = ("relevance", "forest", "learned")
_CLASSICAL = STAGES[:2]
# Stages in closed form: to choose once more, when all is decided, takes seconds.
_CLOSED: dict[str, Callable[[], Selector]] = {
    "greedy": Greedy, "qr": QR, "exchange": Exchange, "relevance": Relevance, "forest": Forest,
}  # fmt: skip
# Stages that are gone through even when the time is over, so that the outcome is never worse.
_AT_ONCE = (*_CLASSICAL, "relevance")
# In a series any other must beat the best of those by this much, for it may have had no time for the latest samples.
_WORTH = 0.99
# Stages that choose the same from the same samples, and nearly so from a few more.
_STEADY = ("greedy", "qr", "relevance", "forest")
# A closed form that took less than this share of the search, or these seconds, may choose once more when time is up.
_LITTLE, _MOMENT = 0.1, 10.0
# Share of its time that a stage needs to choose once more; exchanges go on from the sites they found.
_AGAIN = {"exchange": 0.25}
# Share of the time left that a stage may take, where there is a limit; what the last one leaves is for the race.
_SHARES = {"exchange": 0.6, "learned": 0.2, "kernel_exchange": 0.6}
# Times the least score up to which a set of sites is raced, and how many are.
_NEARLY, _MOST_RACED = 1.01, 4


class Auto(Selector):
    """Classical sites first, then the searches that may better them, each kept only if validation says so.

    Greedy and QR choose; exchanges under a fading covariance, the learned law, and swaps from what each of them chose
    go on from there. A closed form, linear or not, judges on validation, so the outcome is never worse there than the
    classical. Where it is not linear, and samples are no series, the sets that are nearly best are raced by short
    trainings of a network. In a series the stage that was best chooses once more with the validation samples, which are
    the latest; elsewhere one in closed form does, as the classical methods do by themselves. For a target, forward
    selection and a forest take the place of what rebuilds. Each stage leaves a row in the history: what its sites
    leave, what the best leave by then, and how long it took. Beyond the classical, a stage that would begin after the
    deadline is left out.

    Parameters
    ----------
    stages
        Which of `STAGES` to go through, as names or as text with commas; greedy or QR must be among them.
    settings
        Those of the learned selector.
    """

    name: ClassVar[str] = "auto"
    supervised: ClassVar[bool] = True

    def __init__(self, stages: Sequence[str] | str = STAGES, **settings: Any) -> None:
        self.stages = _checked(stages)
        self.learned = Learned(**settings)

    @property
    def requires_validation(self) -> bool:
        """The best sites are chosen on validation."""
        return True

    def settings(self) -> dict[str, Any]:
        """Give the stages, and the settings of the learned one."""
        return {"stages": list(self.stages), **self.learned.settings()}

    def incompatibility(self, signals: Samples) -> str | None:
        """Tell what the learned selector has against the signals."""
        return self.learned.incompatibility(signals) if "learned" in self.stages else None

    def select(self, train: Samples, k: int, *, validation: Samples | None, run: Run) -> Selection:
        """Go through the stages and keep the sites that leave least."""
        kind = ClosedFormScorer if train.target is None else TargetScorer
        scorer = kind(train, train if validation is None else validation, run)
        trail = _Trail(scorer, _WORTH if train.is_series else 1.0)
        for stage in self._stages(train):
            if trail.found and stage not in _AT_ONCE and run.seconds_left() <= 0:
                continue
            started = time.monotonic()
            found = self._stage(stage, trail, train, k, validation, run.share(_SHARES.get(stage, 1.0)))
            trail.note(stage, found, time.monotonic() - started)
        chosen, sites = trail.best, trail.found[trail.best].sites
        if validation is not None and not train.is_series and is_nonlinear(scorer):
            chosen, sites = trail.race(train, validation, run)
        notes = {**trail.found[chosen].notes, "chosen": chosen, "scores": trail.scores}
        return Selection(sites, trail.history, notes)

    def refit(self, found: Selection, development: Samples, run: Run) -> Selection:
        """Let the best stage choose once more, if time is left: any in a series, else one that has no chance in it.

        In a series validation samples are the latest, and worth more than that these very sites were judged; elsewhere
        they are as good as others, and a search by chance may end where it is worse. A closed form that took little
        time always chooses once more.
        """
        stage, k = found.notes["chosen"], len(found.sites)
        took = {row["by"]: float(row["seconds"]) for row in found.history if "by" in row}
        if not development.is_series and stage not in _STEADY:
            return found
        quick = stage in _CLOSED and took[stage] < max(_LITTLE * sum(took.values()), _MOMENT)
        if not quick and run.seconds_left() < _AGAIN.get(stage, 1.0) * took[stage]:
            return found
        if stage == "kernel_exchange":
            once_more = KernelExchange().improve(development, [found.sites], run)
        elif stage == "exchange":
            once_more = Exchange().improve(development, found.sites, run)
        else:
            once_more = self._selector(stage).select(development, k, validation=None, run=replace(run, repeat=1))
        return replace(found, sites=once_more.sites)

    def _stages(self, train: Samples) -> Iterator[str]:
        """Give the stages for these signals: a target has its own, but for the law, which serves both."""
        if train.target is None:
            return iter(self.stages)
        return (stage for stage in STAGES_FOR_A_TARGET if stage != "learned" or "learned" in self.stages)

    def _stage(
        self, stage: str, trail: _Trail, train: Samples, k: int, validation: Samples | None, run: Run
    ) -> Selection:
        if stage == "kernel_exchange":
            return KernelExchange().improve(train, trail.starts(), run)
        return self._selector(stage).select(train, k, validation=validation, run=run)

    def _selector(self, stage: str) -> Selector:
        return self.learned if stage == "learned" else _CLOSED[stage]()


class _Trail:
    """What each stage found and what it was worth."""

    def __init__(self, scorer: Scorer, worth: float) -> None:
        self.scorer, self.worth = scorer, worth
        self.found: dict[str, Selection] = {}
        self.scores: dict[str, float] = {}
        self.history: list[dict[str, Any]] = []
        self._known: dict[frozenset[int], float] = {}

    @property
    def best(self) -> str:
        """Stage whose sites leave least; in a series a closed form, unless another leaves clearly less."""
        least = min(self.scores, key=self.scores.__getitem__)
        closed = min((stage for stage in self.scores if stage in _CLOSED), key=self.scores.__getitem__)
        return least if self.scores[least] < self.worth * self.scores[closed] else closed

    def race(self, train: Samples, validation: Samples, run: Run) -> tuple[str, NDArray[np.int64]]:
        """Give the stage and the sites that win a race of the best sets; those of the best stage if there is no race.

        What judges stages is a closed form, which tells sets apart that differ by more than a percent. Its word stands
        where networks leave more than it does.
        """
        sets, started = self._nearly_best(), time.monotonic()
        left = compare_by_network([sites for _, sites in sets], train, validation, run) or []
        for (stage, _), one in zip(sets, left, strict=False):
            seconds = round((time.monotonic() - started) / len(left), 2)
            self.history.append({"stage": "race", "by": stage, "left": one, "best": min(left), "seconds": seconds})
        if min(left, default=np.inf) > min(self.scores.values()):
            return self.best, self.found[self.best].sites
        return sets[int(np.argmin(left))]

    def _nearly_best(self) -> list[tuple[str, NDArray[np.int64]]]:
        """Sets worth a race, each once, with their stages: those of the best stages, then others that these found."""
        order = sorted(self.scores, key=self.scores.__getitem__)
        near = [stage for stage in order if self.scores[stage] <= _NEARLY * self.scores[order[0]]]
        sets = [(stage, self.found[stage].sites) for stage in near]
        sets += [(stage, sites) for stage in near for sites in self.found[stage].others]
        distinct = dict[frozenset[int], tuple[str, NDArray[np.int64]]]()
        for stage, sites in sets:
            distinct.setdefault(frozenset(sites.tolist()), (stage, sites))
        return list(distinct.values())[:_MOST_RACED]

    def starts(self) -> list[NDArray[np.int64]]:
        """Sites to swap from: those of every stage, each set once, the best first."""
        order = sorted(self.scores, key=self.scores.__getitem__)
        distinct = {frozenset(self.found[stage].sites.tolist()): self.found[stage].sites for stage in order}
        return list(distinct.values())

    def note(self, stage: str, found: Selection, seconds: float) -> None:
        """Judge the sites of a stage and write its row."""
        self.found[stage], self.scores[stage] = found, self._score(found.sites)
        self.history += found.history
        row = {"left": self.scores[stage], "best": min(self.scores.values()), "seconds": round(seconds, 2)}
        self.history.append({"stage": "search", "by": stage, **row})

    def _score(self, sites: NDArray[np.int64]) -> float:
        """Judge sites, once: stages may end where others did."""
        key = frozenset(sites.tolist())
        if key not in self._known:
            self._known[key] = self.scorer(sites)
        return self._known[key]


def _checked(given: Sequence[str] | str) -> tuple[str, ...]:
    stages = given.split(",") if isinstance(given, str) else given
    unknown = [stage for stage in stages if stage not in STAGES]
    if unknown:
        raise SettingsError(f"stages: {unknown[0]!r} is not known; there are {', '.join(STAGES)}")
    if not set(stages) & set(_CLASSICAL):
        raise SettingsError("stages: greedy or qr must be among them, so that the outcome is never worse")
    return tuple(stage for stage in STAGES if stage in stages)
