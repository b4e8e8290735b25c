"""Trials that nothing beats: less error only for more sites, or for more time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from keyhole.workflow.sweeps.worker import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ParetoFront", "fronts", "fronts_figure"]

Cost = Literal["k", "seconds"]


@dataclass(frozen=True)
class ParetoFront:
    """Trials by what they cost, each with less error than all that cost no more."""

    cost: Cost
    trials: Sequence[Trial]


def fronts(trials: Sequence[Trial]) -> tuple[ParetoFront, ParetoFront]:
    """Give the front against the number of sites, and that against time.

    Examples
    --------
    >>> tried = [Trial(i, "qr", "ridge", k, {}, e, e, 1.0) for i, (k, e) in enumerate([(5, 0.5), (9, 0.6), (9, 0.4)])]
    >>> [one.number for one in fronts(tried)[0].trials]
    [0, 2]
    """
    return _front(trials, "k"), _front(trials, "seconds")


def _front(trials: Sequence[Trial], cost: Cost) -> ParetoFront:
    kept: list[Trial] = []
    for one in sorted(trials, key=lambda trial: (getattr(trial, cost), trial.error, trial.number)):
        if not kept or one.error < kept[-1].error:
            kept.append(one)
    return ParetoFront(cost, kept)


def fronts_figure(trials: Sequence[Trial], label: str) -> Figure:
    """Draw all trials, and the fronts as lines: error on validation against K and against seconds."""
    from keyhole.report.style import ACCENT, MUTED, WIDE, colours, heading, new_figure, tidy

    figure = new_figure(WIDE, 3.8)
    methods = list(dict.fromkeys(one.method for one in trials))
    shades = dict(zip(methods, colours(len(methods)), strict=True))
    words = {"k": "sites", "seconds": "seconds"}
    for axes, front in zip(figure.subplots(1, 2), fronts(trials), strict=True):
        for method in methods:
            own = [one for one in trials if one.method == method]
            costs = [getattr(one, front.cost) for one in own]
            axes.plot(costs, [one.error for one in own], "o", color=shades[method], markersize=4, label=method)
        costs = [getattr(one, front.cost) for one in front.trials]
        axes.step(costs, [one.error for one in front.trials], where="post", color=ACCENT, linewidth=1.2, zorder=0)
        axes.set_xscale("log")
        axes.set_xlabel(words[front.cost], color=MUTED)
        axes.set_ylabel(label, color=MUTED)
        heading(axes, f"error against {words[front.cost]}")
        tidy(axes)
    axes.legend(frameon=False)
    return figure
