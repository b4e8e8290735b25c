"""Text and tables of the report page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from keyhole.data.samples import Samples
from keyhole.plan.plan import Plan
from keyhole.report.findings import ReportData
from keyhole.report.words import number, percent, plain, quantity, shorten
from keyhole.workflow.comparison import Comparison, Entry

__all__ = ["intervals", "metadata", "methods", "result", "samples", "sites", "spread_of_errors", "trained"]

# Attributes that describe the data; others may be long and of no use to a reader.
_ATTRIBUTES = ("long_name", "source", "units")
_MOST, _MOST_ATTRIBUTE = 2000, 200


def result(findings: ReportData) -> str:
    """Return the result in one sentence."""
    plan, scores = findings.plan, findings.plan.metrics["test"]
    count = f"{plan.k} site{'s' * (plan.k != 1)} reconstruct{'s' * (plan.k == 1)}"
    error = quantity(scores["rmse"], findings.units)
    each = [
        quantity(scores[f"rmse[{name}]"], str(said.get("units", ""))) for name, said in plan.origin.variables.items()
    ]
    parts = ", ".join(f"{name} {one}" for name, one in zip(plan.origin.variables, each, strict=True))
    error += f" ({parts})" if parts else ""
    return (
        f"{count} {plan.origin.name} with a test RMSE of {error}; {_explained(scores['fvu'])}.{_target_sentence(plan)}"
    )


def methods(comparison: Comparison) -> list[dict[str, Any]]:
    """Return a row for each entry, the smallest test error first; the plan of the page is ``chosen``."""
    choice = comparison.choice
    units = comparison.prepared.signals.origin.error_units
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


def sites(findings: ReportData) -> list[dict[str, Any]]:
    """Return a row for each site, by rank; ``share`` is the gain in percent of the largest gain, for a bar."""
    plan, grid = findings.plan, findings.grid
    most = max(float(np.max(plan.gain)), 1e-12)
    return [
        {
            "rank": rank,
            "name": grid.name(int(index)),
            "place": [plain(value) for value in grid.position(int(index)).values()],
            "gain": f"{gain * 100:z.2f}".replace("-", "\N{MINUS SIGN}"),
            "share": round(100 * max(float(gain), 0.0) / most),
            "existing": rank <= plan.metadata.get("constraints", {}).get("existing", 0),
        }
        for rank, (index, gain) in enumerate(zip(plan.indices, plan.gain, strict=True), start=1)
    ]


def samples(findings: ReportData) -> str:
    """Return the RMSE of the best, median and worst test sample, for grids that cannot be drawn."""
    picks = [f"{one.label} {one.when}, {quantity(one.rmse, findings.units)}" for one in findings.picks]
    return f"RMSE of test samples: {'; '.join(picks)}."


def spread_of_errors(findings: ReportData) -> str:
    """Return the range of the RMSE over cells, for grids that cannot be drawn."""
    errors = findings.error_map[findings.grid.inside]
    low, middle, high = (quantity(float(one), findings.units) for one in np.percentile(errors, (0, 50, 100)))
    return f"The RMSE of a cell over all test samples ranges from {low} to {high}, with a median of {middle}."


def intervals(findings: ReportData) -> str:
    """Return coverage and mean width of the 90 % prediction interval."""
    scores = findings.plan.metrics["test"]
    if "coverage_90" not in scores:
        return "No samples were held out for calibration, so there are no prediction intervals."
    wide = quantity(scores["width_90"], findings.units)
    return (
        f"The 90 % prediction interval covers {percent(scores['coverage_90'])} of the true test values; its mean width "
        f"is {wide}."
    )


def trained(comparison: Comparison) -> Entry | None:
    """Return the chosen entry if it was trained by gradient descent, else the best that was, or None."""
    return next((entry for entry in (comparison.choice, *comparison.entries) if entry.plan.history), None)


def metadata(findings: ReportData) -> dict[str, str]:
    """Return how the plan was made, by heading; unknown entries are omitted."""
    record, signals = dict(findings.plan.metadata), findings.prepared.signals
    data = dict(record.pop("data", {}))
    facts = {
        "data": data.get("name", signals.origin.name),
        **{_heading(name): _attribute(signals, name) for name in _ATTRIBUTES},
        "samples": _samples(signals),
        "grid": _grid(findings),
        "baseline": "climatology, one field for each month" if signals.cycle else "mean of each cell",
        "split": _split(findings),
        "method": record.pop("method", None),
        "settings": record.pop("settings", None) or "none",
        "reconstructor": record.pop("reconstructor", None),
        "seed": record.pop("seed", None),
        "total seconds": record.pop("seconds", None),
        "test errors": _scores(findings.plan.metrics.get("test", {})),
        "validation errors": _scores(findings.plan.metrics.get("validation", {})),
        "versions": record.pop("versions", None),
        "date": record.pop("date", None),
        "SHA-256 of the data": data.get("fingerprint"),
    }
    record.pop("split", None)
    facts |= {_heading(name): value for name, value in record.items()}
    return {name: shorten(plain(value), _MOST) for name, value in facts.items() if value not in (None, "", {}, [])}


def _explained(fvu: float) -> str:
    if not np.isfinite(fvu):
        return "the test part does not vary, so there is no variance to explain"
    if fvu > 1:
        return "they explain no variance: the baseline alone has a smaller error"
    return f"{percent(fvu)} of the variance is unexplained, {percent(1 - fvu)} explained"


def _target_sentence(plan: Plan) -> str:
    """Return a sentence on the prediction of the target, if there is one."""
    if plan.predictor is None:
        return ""
    scores = plan.metrics["test"]
    if plan.predictor.is_class:
        return f" The misclassification rate of {plan.target} on test is {percent(scores['target_error'])}."
    unexplained = f"{percent(scores['target_fvu'])} unexplained variance"
    return f" The test RMSE of {plan.target} is {number(scores['target_rmse'])}, with {unexplained}."


def _seconds(seconds: float) -> str:
    if seconds < 0.01:
        return "< 0.01"
    return f"{seconds:.2f}" if seconds < 10 else f"{seconds:.0f}"


def _attribute(signals: Samples, name: str) -> str:
    return shorten(plain(signals.origin.attributes.get(name, "")), _MOST_ATTRIBUTE)


def _heading(name: str) -> str:
    return name.replace("_", " ")


def _samples(signals: Samples) -> str:
    if signals.time is None:
        return str(len(signals))
    return f"{len(signals)}, {plain(signals.time.min())} to {plain(signals.time.max())}"


def _grid(findings: ReportData) -> str:
    grid = findings.grid
    axes = " × ".join(f"{dim} {n}" for n, dim in zip(grid.shape, grid.dims, strict=True))
    channels = f", {findings.channels} channels" if findings.channels > 1 else ""
    observable = int(findings.prepared.signals.observable.sum())
    return f"{axes}{channels}; {len(grid.cells)} valid cells, {observable} observable"


def _split(findings: ReportData) -> str:
    split = findings.prepared.split
    parts = {"train": split.train, "validation": split.validation, "test": split.test}
    parts |= {"calibration": split.calibration} if len(split.calibration) else {}
    why = f" ({split.reason})" if split.reason else ""
    return f"{split.kind}{why}: {', '.join(f'{len(part)} {name}' for name, part in parts.items())}"


def _scores(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {number(value)}" for name, value in scores.items())
