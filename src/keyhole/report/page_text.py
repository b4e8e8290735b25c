"""Text and tables of the HTML page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from keyhole.data.samples import Samples
from keyhole.plan.plan import Plan
from keyhole.report.formatting import (
    noise_errors,
    noise_warning,
    number,
    percent,
    plain,
    quantity,
    refit_text,
    shorten,
    split_text,
    variable_units,
)
from keyhole.report.report_data import ReportData
from keyhole.report.without_sensors import anomalies_text, baseline_warnings, known_without_sensors
from keyhole.workflow.calibration import interval_warnings
from keyhole.workflow.comparison import Comparison, Difference, Entry

__all__ = ["intervals", "metadata", "methods", "noise", "result", "sites", "trained"]

# Attributes that describe the data; others may be long and of no use to a reader.
_ATTRIBUTES = ("long_name", "source", "units")
_MOST, _MOST_ATTRIBUTE = 2000, 200


def result(data: ReportData) -> str:
    """Return the result in one sentence.

    Parameters
    ----------
    data : ReportData
        Data of the report.

    Returns
    -------
    str
    """
    plan, scores = data.plan, data.plan.metrics["test"]
    k = len(plan.names)
    count = f"{k} site{'s' * (k != 1)} reconstruct{'s' * (k == 1)}"
    error = _with_own_error(scores, "rmse", data.units)
    units = variable_units(plan.origin.variables, scores)
    parts = ", ".join(f"{name} {quantity(scores[f'rmse[{name}]'], unit)}" for name, unit in units.items())
    error += f" ({parts})" if parts else ""
    warnings = "".join(f" {one[0].upper()}{one[1:]}." for one in baseline_warnings(scores, data.units))
    without = known_without_sensors(plan, data.units)
    error_name = "Errors" if plan.predictor is not None else "RMSE"
    known = warnings + (f" {error_name} without sensors: {without}." if without else "")
    return (
        f"{_target_sentence(plan)}"
        f"{count} {plan.origin.name} with a test RMSE of {error}; {_explained(plan, scores)}.{known}"
        f"{_noise_sentence(data)}{_refit_sentence(data)}"
    )


def methods(comparison: Comparison) -> list[dict[str, Any]]:
    """Return the rows of the table of methods.

    Parameters
    ----------
    comparison : Comparison
        Its entries have the smallest test error first.

    Returns
    -------
    list of dict
        ``chosen`` marks the plan that the page is about; ``difference`` is that of the test error from the best.
    """
    choice = comparison.choice
    units = comparison.prepared.samples.origin.error_units
    return [
        {
            "method": entry.method,
            "reconstructor": entry.plan.reconstructor.name,
            "target": _target_cell(entry.plan),
            "rmse": _with_own_error(entry.plan.metrics["test"], "rmse", units),
            "fvu": _share(entry.plan.metrics["test"], "fvu"),
            "difference": _difference(difference, is_best=entry is comparison.entries[0]),
            "seconds": _seconds(entry.seconds),
            "chosen": entry is choice,
        }
        for entry, difference in zip(comparison.entries, comparison.differences, strict=True)
    ]


def _difference(difference: Difference, *, is_best: bool) -> str:
    """Difference of a method from the best, in words where it is small."""
    if is_best:
        return "best"
    error = difference.standard_error
    shown = f"{difference.value:.1%}{f' ± {error:.1%}' if math.isfinite(error) else ''}"
    return f"{shown}, as good as the best" if difference.is_small else shown


def sites(data: ReportData) -> list[dict[str, Any]]:
    """Return the rows of the table of sites.

    Parameters
    ----------
    data : ReportData
        Data of the report.

    Returns
    -------
    list of dict
        By rank; ``share`` is the gain in percent of the largest gain.
    """
    table = data.to_use.sites
    wanted = ("rank", "index", "name", "gain", "stability", "existing")
    rows = zip(*(table[column] for column in wanted), strict=True)
    most = max(float(table["gain"].max()), 1e-12)
    return [
        {
            "rank": rank,
            "name": name,
            "place": [index] if data.to_use.origin.columns else [plain(value) for value in _place(data, rank - 1)],
            "gain": f"{gain * 100:z.2f}".replace("-", "\N{MINUS SIGN}"),
            "stability": "" if np.isnan(stable) else f"{stable:.0%}",
            "share": round(100 * max(float(gain), 0.0) / most),
            "existing": existing,
        }
        for rank, index, name, gain, stable, existing in rows
    ]


def _place(data: ReportData, position: int) -> list[Any]:
    """Coordinates of a site of the plan, or of a sensor, which may lie between sites."""
    plan, domain = data.to_use, data.domain
    own = {} if plan.sensors is None else plan.sensors.coordinates
    if set(domain.location) <= set(own):
        return [own[name][position] for name in domain.location]
    return list(domain.position(int(plan.numbers[position])).values())


def intervals(data: ReportData) -> str:
    """Return coverage and mean width of the 90 % prediction interval as a sentence."""
    scores = data.plan.metrics["test"]
    if "coverage_90" not in scores:
        return "This plan has no prediction intervals."
    wide = quantity(scores["width_90"], data.units)
    warned = "".join(f" Warning: {sentence}." for sentence in interval_warnings(data.plan.metrics))
    return (
        f"The 90 % prediction interval covers {percent(scores['coverage_90'])} of the true test values; its mean width "
        f"is {wide}.{warned}"
    )


def noise(data: ReportData) -> list[dict[str, str]]:
    """Return the rows of the table of errors with measurement noise; none of plans of earlier versions."""
    errors = noise_errors(data.plan.metrics["test"])
    return [{"level": level, "rmse": quantity(error, data.units)} for level, error in errors.items()]


def trained(comparison: Comparison) -> Entry | None:
    """Return the chosen entry if it was trained by gradient descent, else the best that was, or None."""
    entries = (comparison.choice, *comparison.entries)
    return next((entry for entry in entries if any("step" in row for row in entry.plan.history)), None)


def metadata(data: ReportData) -> dict[str, str]:
    """Return how the plan was made.

    Parameters
    ----------
    data : ReportData
        Data of the report.

    Returns
    -------
    dict of str to str
        Text by heading; unknown entries are omitted.
    """
    record, samples_ = dict(data.to_use.metadata), data.prepared.samples
    source = dict(record.pop("data", {}))
    attributes = samples_.origin.attributes
    entries = {
        "data": source.get("name", samples_.origin.name),
        **{_heading(name): shorten(plain(attributes.get(name, "")), _MOST_ATTRIBUTE) for name in _ATTRIBUTES},
        "samples": _samples(samples_),
        "space": _space(data),
        "baseline": data.plan.scaling.climatology.text,
        "anomalies": anomalies_text(data.plan),
        "split": split_text(data.prepared.split.sizes()),
        "method": record.pop("method", None),
        "settings": record.pop("settings", None) or "none",
        "reconstructor": record.pop("reconstructor", None),
        "seed": record.pop("seed", None),
        "total seconds": record.pop("seconds", None),
        "test errors": _scores(data.plan.metrics.get("test", {})),
        "validation errors": _scores(data.plan.metrics.get("validation", {})),
        "versions": record.pop("versions", None),
        "date": record.pop("date", None),
        "SHA-256 of the data": source.get("fingerprint"),
    }
    for shown in ("split", "anomalies"):
        record.pop(shown, None)
    assumed = record.pop("assumed_noise", None)
    entries["noise assumed by the search"] = None if assumed is None else f"{percent(assumed)} of the spread"
    refit = record.pop("refit", None)
    entries["fitted to"] = refit_text(refit, len(data.to_use.names)) if refit else None
    entries |= {_heading(name): value for name, value in record.items()}
    return {name: shorten(plain(value), _MOST) for name, value in entries.items() if value not in (None, "", {}, [])}


def _refit_sentence(data: ReportData) -> str:
    """Sentence on what was measured, where the plan to use was fitted to the test part too."""
    if data.final is None or not data.final.metadata.get("refit", {}).get("samples"):
        return ""
    fitted = refit_text(data.final.metadata["refit"], len(data.final.names))
    return (
        f" Errors, error maps and reconstructions are of sites and models that had not seen the test part; the sites "
        f"listed and drawn by rank are those to use, fitted to {fitted}."
    )


def _with_own_error(scores: Mapping[str, float], name: str, units: str) -> str:
    """A metric with its standard error, if that is known, and its units."""
    error = scores.get(f"{name}_se", float("nan"))
    return f"{number(scores[name])}{f' ± {number(error)}' if math.isfinite(error) else ''} {units}".strip()


def _share(scores: Mapping[str, float], name: str) -> str:
    """A share in percent with its standard error, if that is known."""
    error = scores.get(f"{name}_se", float("nan"))
    return percent(scores[name]) + (f" ± {percent(error)}" if math.isfinite(error) else "")


def _noise_sentence(data: ReportData) -> str:
    """Sentence where little measurement noise doubles the error."""
    warning = noise_warning(data.plan.metrics["test"], data.units)
    return f" Note: {warning}." if warning else ""


def _explained(plan: Plan, scores: Mapping[str, float]) -> str:
    """Share of the variance that is explained, as a clause; of the anomalies, and of the field."""
    fvu = scores["fvu"]
    if not np.isfinite(fvu):
        return "the test part does not vary, so there is no variance to explain"
    if fvu > 1:
        return "they explain no variance: the baseline alone has a smaller error"
    share = _share(scores, "fvu")
    if "fvu_field" not in scores or not plan.scaling.climatology.needs_time:
        return f"{share} of the variance is unexplained, {percent(1 - fvu)} explained"
    of_field = percent(scores["fvu_field"])
    return f"{share} of the variance of the anomalies is unexplained, {of_field} of that of the field"


def _target_sentence(plan: Plan) -> str:
    """Sentence on the prediction of the target, if there is one."""
    if plan.predictor is None:
        return ""
    scores = plan.metrics["test"]
    if plan.predictor.is_class:
        return f"The misclassification rate of {plan.target} on test is {_share(scores, 'target_error')}. "
    unexplained = f"{_share(scores, 'target_fvu')} unexplained variance"
    return f"The test RMSE of {plan.target} is {_with_own_error(scores, 'target_rmse', '')}, with {unexplained}. "


def _target_cell(plan: Plan) -> str:
    """Error of the target on test, for the table of methods; empty without a target."""
    if plan.predictor is None:
        return ""
    scores = plan.metrics["test"]
    return _share(scores, "target_error") if plan.predictor.is_class else _with_own_error(scores, "target_rmse", "")


def _seconds(seconds: float) -> str:
    """Format a duration."""
    if seconds < 0.01:
        return "< 0.01"
    return f"{seconds:.2f}" if seconds < 10 else f"{seconds:.0f}"


def _heading(name: str) -> str:
    """Heading of a metadata entry."""
    return name.replace("_", " ")


def _samples(signals: Samples) -> str:
    """Number of samples, and their first and last time."""
    if signals.time is None:
        return str(len(signals))
    return f"{len(signals)}, {plain(signals.time.min())} to {plain(signals.time.max())}"


def _space(data: ReportData) -> str:
    """Shape of the data, and numbers of valid and observable sites."""
    domain = data.domain
    axes = " × ".join(f"{dim} {n}" for n, dim in zip(domain.shape, domain.dims, strict=True))
    channels = f", {data.channels} channels" if data.channels > 1 else ""
    observable = int(data.prepared.samples.observable.sum())
    return f"{axes}{channels}; {len(domain)} valid sites, {observable} observable"


def _scores(scores: Mapping[str, float]) -> str:
    """Metrics of one part."""
    return ", ".join(f"{name} {number(value)}" for name, value in scores.items())
