"""The selector that tries several and keeps the best."""

from __future__ import annotations

from typing import Any, ClassVar

from keyhole.run import Run
from keyhole.selectors.base import Selection, Selector
from keyhole.selectors.classical import QR, Greedy
from keyhole.selectors.exchange import Exchange
from keyhole.selectors.learned import Learned
from keyhole.selectors.scoring import judge_of
from keyhole.signals import Signals

__all__ = ["Auto"]


class Auto(Selector):
    """Greedy, QR, exchanged and learned sites, judged in closed form on validation: never worse than the classical.

    Parameters
    ----------
    settings
        Those of the learned selector.
    """

    name: ClassVar[str] = "auto"

    def __init__(self, **settings: Any) -> None:
        self.candidates: tuple[Selector, ...] = (Greedy(), QR(), Exchange(), Learned(**settings))

    @property
    def decides(self) -> bool:
        """The best candidate is chosen on validation."""
        return True

    def settings(self) -> dict[str, Any]:
        """Give the settings of each candidate."""
        return {selector.name: selector.settings() for selector in self.candidates}

    def select(self, train: Signals, k: int, *, validation: Signals | None, run: Run) -> Selection:
        """Choose by every candidate and keep the sites that leave least."""
        judge = judge_of(train, train if validation is None else validation, run)
        found = {s.name: s.select(train, k, validation=validation, run=run) for s in self.candidates}
        scores = {name: judge(selection.sites) for name, selection in found.items()}
        best = min(scores, key=scores.__getitem__)
        history = [row for selection in found.values() for row in selection.history]
        return Selection(found[best].sites, history, {"chosen": best, "scores": scores, **found[best].notes})
