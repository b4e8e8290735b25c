"""What the page says in words and tables."""

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

# Attributes of the data that say what they are; others may be long and of no use to a reader.
_TOLD = ("long_name", "source", "units")
_MOST, _MOST_TOLD = 2000, 200


def result(findings: ReportData) -> str:
    """Give the result in one sentence."""
    plan, scores = findings.plan, findings.plan.metrics["test"]
    count = f"{plan.k} site{'s' * (plan.k != 1)} rebuild{'s' * (plan.k == 1)}"
    error = quantity(scores["rmse"], findings.units)
    each = [
        quantity(scores[f"rmse[{name}]"], str(said.get("units", ""))) for name, said in plan.origin.variables.items()
    ]
    parts = ", ".join(f"{name} {one}" for name, one in zip(plan.origin.variables, each, strict=True))
    error += f" ({parts})" if parts else ""
    return f"{count} {plan.origin.name} with a test RMSE of {error}; {_explained(scores['fvu'])}.{_told_of(plan)}"


def methods(comparison: Comparison) -> list[dict[str, Any]]:
    """Give a row for each entry, the best on test first; the plan that the page is about is ``chosen``."""
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
    """Give a row for each site, by rank; ``share`` is the gain as a share of the greatest, for a bar."""
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
    """Say how well the picks were rebuilt, for grids whose samples cannot be drawn."""
    picks = [f"{one.label} {one.when}, {quantity(one.rmse, findings.units)}" for one in findings.picks]
    return f"RMSE of test samples: {'; '.join(picks)}."


def spread_of_errors(findings: ReportData) -> str:
    """Say how the error differs from cell to cell, for grids whose cells cannot be drawn."""
    errors = findings.error_map[findings.grid.inside]
    low, middle, high = (quantity(float(one), findings.units) for one in np.percentile(errors, (0, 50, 100)))
    return (
        f"The RMSE of a cell over all test samples is between {low} and {high}; half of the cells are below {middle}."
    )


def intervals(findings: ReportData) -> str:
    """Say how wide the band is and how often the truth lay within, where there is one."""
    scores = findings.plan.metrics["test"]
    if "coverage_90" not in scores:
        return "No samples were held back to calibrate a band on, so how far off it may be is not told."
    wide = quantity(scores["width_90"], findings.units)
    return (
        f"{percent(scores['coverage_90'])} of the truths of the test part lie within a band made to hold 90 %; it is "
        f"{wide} wide on average."
    )


def trained(comparison: Comparison) -> Entry | None:
    """Give the chosen entry if it was trained by gradient, else the best that was, if any."""
    return next((entry for entry in (comparison.choice, *comparison.entries) if entry.plan.history), None)


def metadata(findings: ReportData) -> dict[str, str]:
    """Say how the plan was made, by heading; what is not known is left out."""
    record, signals = dict(findings.plan.metadata), findings.prepared.signals
    data = dict(record.pop("data", {}))
    facts = {
        "data": data.get("name", signals.origin.name),
        **{_heading(name): _told(signals, name) for name in _TOLD},
        "samples": _samples(signals),
        "grid": _grid(findings),
        "baseline": "climatology, one field for each month" if signals.cycle else "mean of each cell",
        "split": _split(findings),
        "method": record.pop("method", None),
        "settings": record.pop("settings", None) or "none",
        "reconstructor": record.pop("reconstructor", None),
        "seed": record.pop("seed", None),
        "seconds in all": record.pop("seconds", None),
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
        return "they explain no variance: guessing the baseline would have a smaller error"
    return f"{percent(fvu)} of the variance is left unexplained, {percent(1 - fvu)} explained"


def _told_of(plan: Plan) -> str:
    """Say how well the target is told, if there is one."""
    if plan.predictor is None:
        return ""
    scores, who = plan.metrics["test"], "They tell" if plan.k != 1 else "It tells"
    if plan.predictor.is_class:
        return f" {who} {plan.target} wrongly in {percent(scores['target_error'])} of the test samples."
    left = f"{percent(scores['target_fvu'])} of its variance left"
    return f" {who} {plan.target} with a test RMSE of {number(scores['target_rmse'])}, {left}."


def _seconds(seconds: float) -> str:
    if seconds < 0.01:
        return "< 0.01"
    return f"{seconds:.2f}" if seconds < 10 else f"{seconds:.0f}"


def _told(signals: Samples, name: str) -> str:
    return shorten(plain(signals.origin.attributes.get(name, "")), _MOST_TOLD)


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
    return f"{axes}{channels}; {len(grid.cells)} cells inside, {observable} observable"


def _split(findings: ReportData) -> str:
    split = findings.prepared.split
    parts = {"train": split.train, "validation": split.validation, "test": split.test}
    parts |= {"calibration": split.calibration} if len(split.calibration) else {}
    why = f" ({split.reason})" if split.reason else ""
    return f"{split.kind}{why}: {', '.join(f'{len(part)} {name}' for name, part in parts.items())}"


def _scores(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {number(value)}" for name, value in scores.items())
