"""Pareto fronts of a sweep: error against the number of sites, and against time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from keyhole.workflow.sweeps.trials import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ParetoFront", "fronts", "fronts_figure"]

Cost = Literal["k", "seconds"]
_COSTS: dict[Cost, str] = {"k": "sites", "seconds": "seconds"}


@dataclass(frozen=True)
class ParetoFront:
    """Trials by ascending cost, each with a smaller error than all that cost no more.

    Parameters
    ----------
    cost
        Field of the trials that is the cost: ``"k"`` or ``"seconds"``.
    trials
        Trials on the front.
    """

    cost: Cost
    trials: Sequence[Trial]


def fronts(trials: Sequence[Trial]) -> tuple[ParetoFront, ParetoFront]:
    """Return the Pareto fronts against the number of sites and against time.

    Parameters
    ----------
    trials
        Ended trials.

    Examples
    --------
    >>> tried = [Trial(i, "qr", "ridge", k, {}, e, e, 1.0) for i, (k, e) in enumerate([(5, 0.5), (9, 0.6), (9, 0.4)])]
    >>> [one.number for one in fronts(tried)[0].trials]
    [0, 2]
    """
    return _front(trials, "k"), _front(trials, "seconds")


def _front(trials: Sequence[Trial], cost: Cost) -> ParetoFront:
    """Return the trials that no other dominates."""
    kept: list[Trial] = []
    for one in sorted(trials, key=lambda trial: (getattr(trial, cost), trial.error, trial.number)):
        if not kept or one.error < kept[-1].error:
            kept.append(one)
    return ParetoFront(cost, kept)


def fronts_figure(trials: Sequence[Trial], label: str, *, warning: str = "") -> Figure:
    """Draw all trials and the Pareto fronts: validation error against K and against seconds.

    Parameters
    ----------
    trials
        Ended trials.
    label
        Label of the error axis.
    warning
        Warning to write below.
    """
    from keyhole.report.style import ACCENT, MUTED, WIDE, caution, colours, heading, new_figure, tidy

    figure = new_figure(WIDE, 3.8)
    methods = list(dict.fromkeys(one.method for one in trials))
    shades = dict(zip(methods, colours(len(methods)), strict=True))
    for axes, front in zip(figure.subplots(1, 2), fronts(trials), strict=True):
        for method in methods:
            own = [one for one in trials if one.method == method]
            costs = [getattr(one, front.cost) for one in own]
            axes.plot(costs, [one.error for one in own], "o", color=shades[method], markersize=4, label=method)
        costs = [getattr(one, front.cost) for one in front.trials]
        axes.step(costs, [one.error for one in front.trials], where="post", color=ACCENT, linewidth=1.2, zorder=0)
        axes.set_xscale("log")
        axes.set_xlabel(_COSTS[front.cost], color=MUTED)
        axes.set_ylabel(label, color=MUTED)
        heading(axes, f"error against {_COSTS[front.cost]}")
        tidy(axes)
    axes.legend(frameon=False)
    caution(figure, warning)
    return figure
