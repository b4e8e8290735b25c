"""What is known without sensors, in words: errors of baselines, and warnings where sensors add nothing to them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from keyhole.data.climatology import Climatology
from keyhole.metrics.baselines import BASELINES
from keyhole.plan.plan import Plan
from keyhole.report.formatting import share

__all__ = [
    "anomalies_text",
    "baseline_text",
    "baseline_warnings",
    "in_metric",
    "known_without_sensors",
    "target_without_sensors",
]

_WORDS = {
    "mean": "mean",
    "calendar": "calendar",
    "persistence": "persistence",
    "interpolation": "interpolation in time",
}
_ALONE = {"mean": "the mean", "calendar": "the calendar", "persistence": "the sample before (persistence)"}
_NOTHING_TO_SAY = ("", "as asked", "samples have no dates")


def in_metric(scores: Mapping[str, float], name: str, metric: str = "rmse") -> float | None:
    """Return the error of a baseline in another metric.

    Parameters
    ----------
    scores : mapping
        Metrics of one part of a plan.
    name : str
        One of `keyhole.metrics.baselines.BASELINES`.
    metric : {"rmse", "mse", "fvu"}
        Name of a metric of the whole field, or of the target, of which the mean (the most frequent class) is known.

    Returns
    -------
    float or None
        None where it is not known.

    Examples
    --------
    >>> in_metric({"baseline_rmse[mean]": 2.0, "baseline_rmse[climatology]": 4.0}, "mean", "fvu")
    0.25
    """
    if metric.startswith("target_"):
        return scores.get(f"baseline_{metric}") if name == "mean" else None
    rmse, climatology = scores.get(f"baseline_rmse[{name}]"), scores.get("baseline_rmse[climatology]")
    if rmse is None or metric == "rmse":
        return rmse
    if metric == "mse":
        return rmse**2
    return (rmse / climatology) ** 2 if metric == "fvu" and climatology else None


def baseline_text(
    scores: Mapping[str, float], climatology: Climatology, *, metric: str = "rmse", units: str = "", components: int = 0
) -> str:
    """Return the errors of what is known without sensors; empty if none is known.

    Parameters
    ----------
    scores : mapping
        Metrics of one part of a plan.
    climatology : Climatology
        Of the plan.
    metric : {"rmse", "mse", "fvu"}
        Metric to name.
    units : str
        Units of ``"rmse"``.
    components : int
        Number of principal components, to name their error as well.

    Examples
    --------
    >>> scores = {"baseline_rmse[mean]": 1.2, "baseline_rmse[climatology]": 0.6, "baseline_rmse[components]": 0.3}
    >>> baseline_text(scores, Climatology("month"), units="K", components=25)
    'mean 1.2 K, monthly climatology 0.6 K; 25 principal components 0.3 K'
    """
    words = dict(_WORDS)
    if climatology.needs_time:
        words["climatology"] = climatology.text
    if metric in ("target_error", "target_log_loss"):
        words["mean"] = "most frequent class" if metric == "target_error" else "shares of the classes"
    if climatology.kind == "harmonics":
        del words["calendar"]
    errors = {name: in_metric(scores, name, metric) for name in BASELINES}
    shown = {name: _shown(error, metric, units) for name, error in errors.items() if error is not None}
    found = ", ".join(f"{words[name]} {error}" for name, error in shown.items() if name in words)
    if components and "components" in shown:
        found += f"; {components} principal component{'s' * (components != 1)} {shown['components']}"
    return found


def known_without_sensors(plan: Plan, units: str) -> str:
    """Return the errors of what is known of the last part of a plan that was scored; see `baseline_text`."""
    scores: Mapping[str, float] = [{}, *plan.metrics.values()][-1]
    count, of_target = plan.k * plan.reading_channels, target_without_sensors(scores)
    known = baseline_text(scores, plan.scaling.climatology, units=units, components=count)
    known = f"{plan.target}: {of_target}; field: {known}" if of_target else known
    if known and "memory" in plan.metadata:
        return f"{known} (principal components are left out, since the data stay in their file)"
    return known


def baseline_warnings(scores: Mapping[str, float], units: str = "") -> list[str]:
    """Return a sentence for each baseline that is as good as the sensors, but for the best alone where several are.

    Examples
    --------
    >>> baseline_warnings({"rmse": 0.5, "baseline_rmse[mean]": 0.9, "baseline_rmse[calendar]": 0.4}, "K")
    ['warning: the calendar alone is as good as the sensors: RMSE 0.4 K, with sensors 0.5 K']
    """
    of_target = _target_warnings(scores)
    if of_target or "target_error" in scores or "target_rmse" in scores:
        return of_target  # the target is what the sites are for
    errors = {name: scores[key] for name in _ALONE if (key := f"baseline_rmse[{name}]") in scores}
    name = min(errors, key=errors.__getitem__, default="")
    if not name or errors[name] > scores["rmse"]:
        return []
    alone, both = (_shown(error, "rmse", units) for error in (errors[name], scores["rmse"]))
    return [f"warning: {_ALONE[name]} alone is as good as the sensors: RMSE {alone}, with sensors {both}"]


def _target_warnings(scores: Mapping[str, float]) -> list[str]:
    """Sentence where the target is known as well without sensors."""
    known = (
        ("target_error", "the most frequent class", "error rate", share),
        ("target_rmse", "the mean of the target", "RMSE", "{:.3g}".format),
    )
    for name, alone, error, shown in known:
        if name in scores and scores.get(f"baseline_{name}", math.inf) <= scores[name]:
            without, both = shown(scores[f"baseline_{name}"]), shown(scores[name])
            return [f"warning: {alone} alone is as good as the sensors: {error} {without}, with sensors {both}"]
    return []


def target_without_sensors(scores: Mapping[str, float]) -> str:
    """Return what is known of a target without sensors; empty without a target, and of older plans.

    Examples
    --------
    >>> target_without_sensors({"baseline_target_error": 0.6, "baseline_target_log_loss": 1.05})
    'most frequent class, error rate 60.0%, log loss 1.050'
    """
    if "baseline_target_error" in scores:
        log_loss = scores.get("baseline_target_log_loss")
        rate = f"most frequent class, error rate {share(scores['baseline_target_error'])}"
        return rate if log_loss is None else f"{rate}, log loss {log_loss:.3f}"
    return f"mean {scores['baseline_target_rmse']:.3g}" if "baseline_target_rmse" in scores else ""


def anomalies_text(plan: Plan) -> str:
    """Return what was subtracted from the samples, and why; empty if there was no choice, or in older plans."""
    record = plan.metadata.get("anomalies", {})
    reason = record.get("reason", "")
    climatology = plan.scaling.climatology
    if climatology.needs_time and reason:
        article = "" if climatology.kind == "harmonics" else "the "
        return f"anomalies from {article}{climatology.text}, {reason}"
    return "" if reason in _NOTHING_TO_SAY else f"deviations from the mean: {reason}"


def _shown(error: float, metric: str, units: str) -> str:
    """An error with its units; a share in percent."""
    if metric in ("fvu", "target_error"):
        return share(error)
    return f"{error:.3g}" + (f" {units}" if units and metric == "rmse" else "")
