"""Text and tables of the HTML page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from keyhole.data.samples import Samples
from keyhole.plan.plan import Plan
from keyhole.report.formatting import number, percent, plain, quantity, shorten, split_text, variable_units
from keyhole.report.report_data import ReportData
from keyhole.workflow.calibration import interval_warnings
from keyhole.workflow.comparison import Comparison, Entry

__all__ = ["intervals", "metadata", "methods", "result", "sites", "trained"]

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
    count = f"{plan.k} site{'s' * (plan.k != 1)} reconstruct{'s' * (plan.k == 1)}"
    error = quantity(scores["rmse"], data.units)
    units = variable_units(plan.origin.variables, scores)
    parts = ", ".join(f"{name} {quantity(scores[f'rmse[{name}]'], unit)}" for name, unit in units.items())
    error += f" ({parts})" if parts else ""
    return (
        f"{count} {plan.origin.name} with a test RMSE of {error}; {_explained(scores['fvu'])}.{_target_sentence(plan)}"
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
        ``chosen`` marks the plan that the page is about.
    """
    choice = comparison.choice
    units = comparison.prepared.samples.origin.error_units
    return [
        {
            "method": entry.method,
            "reconstructor": entry.plan.reconstructor.name,
            "rmse": quantity(entry.plan.metrics["test"]["rmse"], units),
            "fvu": percent(entry.plan.metrics["test"]["fvu"]),
            "seconds": _seconds(entry.seconds),
            "chosen": entry is choice,
        }
        for entry in comparison.entries
    ]


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
    plan, names = data.plan, data.plan.names
    most = max(float(np.max(plan.gain)), 1e-12)
    return [
        {
            "rank": rank,
            "name": names[rank - 1],
            "place": [plain(value) for value in _place(data, rank - 1)],
            "gain": f"{gain * 100:z.2f}".replace("-", "\N{MINUS SIGN}"),
            "share": round(100 * max(float(gain), 0.0) / most),
            "existing": rank <= plan.metadata.get("constraints", {}).get("existing", 0),
        }
        for rank, gain in enumerate(plan.gain, start=1)
    ]


def _place(data: ReportData, position: int) -> list[Any]:
    """Coordinates of a site of the plan, or of a sensor, which may lie between sites."""
    plan, domain = data.plan, data.domain
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


def trained(comparison: Comparison) -> Entry | None:
    """Return the chosen entry if it was trained by gradient descent, else the best that was, or None."""
    return next((entry for entry in (comparison.choice, *comparison.entries) if entry.plan.history), None)


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
    record, samples_ = dict(data.plan.metadata), data.prepared.samples
    source = dict(record.pop("data", {}))
    attributes = samples_.origin.attributes
    entries = {
        "data": source.get("name", samples_.origin.name),
        **{_heading(name): shorten(plain(attributes.get(name, "")), _MOST_ATTRIBUTE) for name in _ATTRIBUTES},
        "samples": _samples(samples_),
        "space": _space(data),
        "baseline": "climatology, one field for each month" if samples_.cycle else "mean of each site",
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
    record.pop("split", None)
    entries |= {_heading(name): value for name, value in record.items()}
    return {name: shorten(plain(value), _MOST) for name, value in entries.items() if value not in (None, "", {}, [])}


def _explained(fvu: float) -> str:
    """Share of the variance that is explained, as a clause."""
    if not np.isfinite(fvu):
        return "the test part does not vary, so there is no variance to explain"
    if fvu > 1:
        return "they explain no variance: the baseline alone has a smaller error"
    return f"{percent(fvu)} of the variance is unexplained, {percent(1 - fvu)} explained"


def _target_sentence(plan: Plan) -> str:
    """Sentence on the prediction of the target, if there is one."""
    if plan.predictor is None:
        return ""
    scores = plan.metrics["test"]
    if plan.predictor.is_class:
        return f" The misclassification rate of {plan.target} on test is {percent(scores['target_error'])}."
    unexplained = f"{percent(scores['target_fvu'])} unexplained variance"
    return f" The test RMSE of {plan.target} is {number(scores['target_rmse'])}, with {unexplained}."


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
