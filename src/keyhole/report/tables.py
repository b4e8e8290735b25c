"""Plans, comparisons and curves as tables for the terminal, and as values for JSON."""

from __future__ import annotations

import html
import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from keyhole.core.text import visible
from keyhole.plan.plan import Plan
from keyhole.report.formatting import (
    choice_text,
    noise_errors,
    noise_warning,
    refit_text,
    share,
    split_text,
    stopped_text,
    variable_units,
    with_error,
)
from keyhole.report.without_sensors import (
    anomalies_text,
    baseline_text,
    baseline_warnings,
    in_metric,
    known_without_sensors,
)
from keyhole.workflow.comparison import Comparison
from keyhole.workflow.curves import Curve

__all__ = ["as_text", "comparison_table", "curve_summary", "curve_table", "plan_page", "plan_summary", "plan_table"]

_MOST_SITES = 30
_MOST_COLUMNS = 10
_WIDTH = 120  # characters of a table as text


def as_text(renderable: RenderableType) -> str:
    """Return a table as plain text, with control characters escaped.

    Parameters
    ----------
    renderable : rich Group
        From `plan_table`, `comparison_table` or `curve_table`.
    """
    console = Console(file=io.StringIO(), width=_WIDTH, color_system=None, force_jupyter=False)
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(visible(line.rstrip()) for line in capture.get().splitlines())


def comparison_table(comparison: Comparison) -> RenderableType:
    """Return a table with one row for each method, the smallest test error first, and which are as good as the best.

    Parameters
    ----------
    comparison : Comparison
        Result of `compare`.

    Returns
    -------
    rich Group
    """
    first = comparison.entries[0].plan
    title = f"{_sites(first)}; errors on {len(comparison.prepared.split.test)} test samples, with standard errors"
    warning = comparison.prepared.split.warning
    caption = Text(_warned(warning)) if warning else None
    table = Table(title=Text(title), title_justify="left", caption=caption, caption_justify="left")
    figures, differences = _shown_scores(first), comparison.differences
    table.add_column("method")
    for heading in (*(figure.heading for figure in figures), "above the best", "selection, s"):
        table.add_column(Text(heading), justify="right")
    for entry, difference in zip(comparison.entries, differences, strict=True):
        scores = entry.plan.metrics["test"]
        apart = with_error(share(difference.value), difference.standard_error, ".1%")
        apart = "-" if entry is comparison.entries[0] else apart
        table.add_row(entry.method, *(_shown(figure, scores) for figure in figures), apart, f"{entry.seconds:.1f}")
    return Group(table, *map(Text, [*_as_good(comparison), *_chosen(comparison), *_without_sensors(first)]))


def _as_good(comparison: Comparison) -> list[str]:
    """Sentence on the methods that are as good as the best, if there are any."""
    pairs = list(zip(comparison.entries, comparison.differences, strict=True))[1:]
    close = [entry.method for entry, difference in pairs if difference.is_small]
    found = f"as good as {comparison.entries[0].method} (within one standard error): {', '.join(close)}"
    return [found] if close else []


def _chosen(comparison: Comparison) -> list[str]:
    """Sentence on the method that is chosen, and by what; of several."""
    by = comparison.chosen_by
    return [f"chosen: {comparison.choice.method}, {choice_text(by)}"] if by else []


def curve_table(curve: Curve) -> RenderableType:
    """Return a table of the test error by number of sites and method.

    Parameters
    ----------
    curve : Curve
        Result of `curve`; with a target error, the smallest K of each method that reaches it follows.

    Returns
    -------
    rich Group
    """
    table = Table()
    for heading in ("sites", *curve.methods):
        table.add_column(heading, justify="right")
    errors = {(row.method, row.k): _with_own_error(row.test, curve.metric, ".4g", ".2g") for row in curve.rows}
    components = _components_by_k(curve)
    if components:
        table.add_column("principal components", justify="right")
    for k in curve.ks:
        row = [errors.get((method, k), "-") for method in curve.methods]
        table.add_row(str(k), *row, *([components.get(k, "-")] if components else []))
    known = baseline_text(curve.rows[-1].test, curve.climatology, metric=curve.metric) if curve.rows else ""
    lines = [Text(f"without sensors: {known}")] if known else []
    smallest = [] if curve.target_error is None else [Text(_smallest_k(curve))]
    warned = [Text(_warned(curve.warning))] if curve.warning else []
    return Group(Text(curve.title), table, *warned, *lines, *smallest)


def _components_by_k(curve: Curve) -> dict[int, str]:
    """Error of as many principal components as there are readings, by number of sites."""
    errors = {row.k: in_metric(row.test, "components", curve.metric) for row in curve.rows}
    return {k: f"{error:.4g}" for k, error in errors.items() if error is not None}


def curve_summary(curve: Curve) -> dict[str, Any]:
    """Return a curve as JSON can hold it.

    Parameters
    ----------
    curve : Curve
        Result of `curve`.

    Returns
    -------
    dict
        ``metric``, ``reconstructor``, ``rows``; with a target error also ``target_error`` and ``smallest_k``; where
        errors on later samples are larger also ``warning``.
    """
    summary = {"metric": curve.metric, "reconstructor": curve.reconstructor, "rows": curve.records()}
    summary |= {"warning": curve.warning} if curve.warning else {}
    if curve.target_error is None:
        return summary
    smallest = {method: curve.smallest_k(method) for method in curve.methods}
    return summary | {"target_error": curve.target_error, "smallest_k": smallest}


def plan_table(plan: Plan) -> RenderableType:
    """Return a table of the sites by rank, followed by errors, constraints, split and method.

    Parameters
    ----------
    plan : Plan
        Any plan.

    Returns
    -------
    rich Group
    """
    table = Table(title=Text(_sites(plan)), title_justify="left")
    table.add_column("rank", justify="right")
    table.add_column("site")
    table.add_column("gain", justify="right")
    sites = plan.sites.head(_MOST_SITES)
    known = bool(np.isfinite(sites["stability"]).any())
    if known:
        table.add_column("stability", justify="right")
    for rank, name, gain, stable in zip(*(sites[one] for one in ("rank", "name", "gain", "stability")), strict=True):
        share = "-" if np.isnan(stable) else f"{stable:.0%}"
        table.add_row(str(rank), Text(name), f"{gain:.2%}", *([share] if known else []))
    if len(plan.names) > _MOST_SITES:
        table.add_row("...", f"and {len(plan.names) - _MOST_SITES} more", "")
    return Group(table, Text(_account(plan)))


def plan_page(plan: Plan) -> str:
    """Return the table and the account of `plan_table` as HTML, for notebooks.

    Parameters
    ----------
    plan : Plan
        Any plan.
    """
    shown = plan.sites.drop(columns="index").to_html(index=False, float_format="{:.4g}".format, max_rows=_MOST_SITES)
    account = "<br>".join(html.escape(visible(line)) for line in _account(plan).splitlines())
    return f"<p><b>{html.escape(visible(_sites(plan)))}</b></p>{shown}<p>{account}</p>"


def plan_summary(plan: Plan) -> dict[str, Any]:
    """Return sites, metrics and metadata of a plan, without model weights, as JSON can hold them.

    Parameters
    ----------
    plan : Plan
        Any plan.

    Returns
    -------
    dict

    Examples
    --------
    >>> import keyhole as kh
    >>> plan = kh.select(kh.datasets.sst(), k=3, method="qr", reconstructor="ridge")
    >>> summary = plan_summary(plan)
    >>> summary["k"], summary["space"]
    (3, {'lat': 36, 'lon': 72})
    """
    sites = plan.sites.to_dict(orient="records")
    target = {} if plan.predictor is None else {"target": {"name": plan.target, "classes": plan.predictor.classes}}
    return {
        "k": len(sites), "sites": sites, "space": _space(plan), **target, "metrics": plan.metrics,
        "metadata": plan.metadata,
    }  # fmt: skip


def _smallest_k(curve: Curve) -> str:
    """Lines on the smallest K of each method that reaches the target error, or on its smallest error."""
    lines = [f"smallest K with validation error at most {curve.target_error:g}:"]
    for method in curve.methods:
        row, best = curve.smallest(method), curve.best(method)
        if row is None:
            least = f"{best.validation[curve.metric]:.4g}"
            lines.append(f"  {method}: not reached; the smallest error is {least}, with {best.k} sites")
        else:
            validation, test = row.validation[curve.metric], row.test[curve.metric]
            lines.append(f"  {method}: {row.k} sites, validation {validation:.4g}, test {test:.4g}")
    return "\n".join(lines)


class _Score(NamedTuple):
    """A score in a column of a table.

    Parameters
    ----------
    heading : str
        Heading of the column.
    name : str
        Name among the plan's metrics.
    form : str
        Format specification.
    """

    heading: str
    name: str
    form: str


def _shown_scores(plan: Plan) -> list[_Score]:
    """Scores to show; the first one ranks plans."""
    if plan.predictor is None:
        each = [
            _Score(f"test RMSE of {name}{_spaced(units)}", f"rmse[{name}]", ".4g")
            for name, units in variable_units(plan.origin.variables, plan.metrics["test"]).items()
        ]
        pooled = _Score(f"test RMSE{_spaced(_error_units(plan))}", "rmse", ".4g")
        return [pooled, *each, _Score("unexplained variance", "fvu", ".1%")]
    field = _Score("field: unexplained variance", "fvu", ".1%")
    if plan.predictor.is_class:
        return [
            _Score(f"{plan.target}: error rate", "target_error", ".1%"),
            _Score("log loss", "target_log_loss", ".3f"),
            field,
        ]
    own = _Score(f"{plan.target}: unexplained variance", "target_fvu", ".1%")
    return [_Score(f"test RMSE of {plan.target}", "target_rmse", ".4g"), own, field]


def _shown(score: _Score, scores: Mapping[str, float]) -> str:
    """A score with its standard error."""
    return _with_own_error(scores, score.name, score.form, ".1%" if score.form.endswith("%") else ".2g")


def _with_own_error(scores: Mapping[str, float], name: str, form: str, error_form: str) -> str:
    """A score with its standard error, if that is known."""
    value = share(scores[name]) if form == ".1%" else format(scores[name], form)
    return with_error(value, scores.get(f"{name}_se", float("nan")), error_form)


def _percent(scores: Mapping[str, float], name: str) -> str:
    """A share with its standard error."""
    return _with_own_error(scores, name, ".1%", ".1%")


def _sites(plan: Plan) -> str:
    """Number of sites, data and target."""
    purpose = "" if plan.target is None else f" to predict {plan.target}"
    return f"{len(plan.names)} sites of {plan.origin.name}{purpose}"


def _account(plan: Plan) -> str:
    """Lines on errors, target, constraints, split, screened columns and method."""
    lines = [
        f"{part}: {_target_scores(plan, scores)}{_field_scores(plan, scores)}" for part, scores in plan.metrics.items()
    ]
    made = plan.metadata
    lines += _without_sensors(plan)
    if plan.predictor is not None:
        kind = f"one of {len(plan.predictor.classes)} classes" if plan.predictor.is_class else "a number"
        lines.append(f"target {plan.target}, {kind}, predicted by {plan.predictor.name}")
    if plan.origin.kind == "field":
        lines.append(f"space: {' x '.join(f'{dim} {n}' for dim, n in _space(plan).items())}")
    lines += [] if plan.sensors is None else [f"sensors: {plan.sensors.counted()}"]
    lines += _constraints(made.get("constraints", {}))
    lines += [anomalies_text(plan)] if anomalies_text(plan) else []
    split = made.get("split") or {}
    lines += [f"split: {split_text(split)}"] if split else []
    lines += [_warned(split["warning"])] if split.get("warning") else []
    lines += [f"fitted to {refit_text(made['refit'], len(plan.names))}"] if made.get("refit") else []
    lines += [stopped_text(made["stopped"])] if made.get("stopped") else []
    lines += _noise(plan)
    lines += _screened_columns(made.get("notes", {}).get("columns", []))
    lines += [f"warning: {sentence}" for sentence in made.get("warnings", [])]
    lines.append(f"made by {made['method']} + {made['reconstructor']}, seed {made['seed']}, {made['date']}")
    return "\n".join(lines)


def _warned(warning: str) -> str:
    """Line on a split whose errors are smaller than those on later samples."""
    return f"warning: {warning}"


def _space(plan: Plan) -> dict[str, int]:
    """Length of each axis of the data."""
    return dict(zip(plan.domain.dims, plan.domain.shape, strict=True))


def _constraints(record: Mapping[str, Any]) -> list[str]:
    """Line on the constraints, if there are any."""
    if not record or not record["asked"]:
        return []
    cost = f", at a cost of {record['cost']:g}" if "cost" in record else ""
    existing = f"; the first {record['existing']} sites are existing ones" if record["existing"] else ""
    return [f"constraints: {', '.join(record['asked'])}{cost}{existing}"]


def _noise(plan: Plan) -> list[str]:
    """Lines on the measurement noise that the search assumed, and on the errors with noise."""
    assumed, scores = plan.metadata.get("assumed_noise"), plan.metrics.get("test", {})
    parts = [] if assumed is None else [f"none was given, and the search assumed {assumed:.0%} of the spread"]
    errors, warning = noise_errors(scores), noise_warning(scores, _error_units(plan))
    if errors:
        listed = ", ".join(f"{level} {error:.4g}" for level, error in errors.items())
        parts.append(f"test RMSE with further noise of {listed}{_spaced(_error_units(plan))}")
    return ([f"noise: {'; '.join(parts)}"] if parts else []) + ([f"warning: {warning}"] if warning else [])


def _screened_columns(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines on the columns that duplicate others or number the rows."""
    lines = [
        f"column {row['column']!r} {row['finding']}" + ("" if row["candidate"] else "; not a candidate")
        for row in found[:_MOST_COLUMNS]
    ]
    return lines + ([f"and {len(found) - _MOST_COLUMNS} more such columns"] if len(found) > _MOST_COLUMNS else [])


def _target_scores(plan: Plan, scores: Mapping[str, float]) -> str:
    """Scores of the target, ahead of those of the field."""
    if plan.predictor is None:
        return ""
    if plan.predictor.is_class:
        wrong = f"error rate {_percent(scores, 'target_error')}"
        return f"{plan.target}: {wrong}, log loss {scores['target_log_loss']:.3f}; field: "
    unexplained = f"unexplained variance {_percent(scores, 'target_fvu')}"
    return f"{plan.target}: RMSE {scores['target_rmse']:.4g}, {unexplained}; field: "


def _field_scores(plan: Plan, scores: Mapping[str, float]) -> str:
    """Scores of the field, by variable where units differ."""
    units = variable_units(plan.origin.variables, scores)
    each = ", ".join(f"{name} {scores[f'rmse[{name}]']:.4g}{_spaced(one)}" for name, one in units.items())
    interval = "coverage of the 90 % prediction interval"
    coverage = f", {interval} {scores['coverage_90']:.1%}" if "coverage_90" in scores else ""
    whole = f"RMSE {scores['rmse']:.4g}{_spaced(_error_units(plan))}{f' ({each})' if each else ''}"
    return f"{whole}, unexplained variance {_shares(plan, scores)}{coverage}"


def _shares(plan: Plan, scores: Mapping[str, float]) -> str:
    """Unexplained variance of the field, and of its anomalies from the calendar; relative L2 error."""
    relative = f", relative L2 error {share(scores['relative_l2'], digits=2)}" if "relative_l2" in scores else ""
    if "fvu_field" not in scores or not plan.scaling.climatology.needs_time:
        return f"{_percent(scores, 'fvu')}{relative}"
    return f"{_percent(scores, 'fvu')} of the anomalies, {share(scores['fvu_field'])} of the field{relative}"


def _without_sensors(plan: Plan) -> list[str]:
    """Lines on what is known of the last part that was scored, without sensors."""
    units = _error_units(plan)
    known = known_without_sensors(plan, units)
    warnings = baseline_warnings([{}, *plan.metrics.values()][-1], units)
    return [f"without sensors: {known}", *warnings] if known else []


def _error_units(plan: Plan) -> str:
    """Units of the plan's errors; plans of early versions do not store them."""
    return str(plan.metadata.get("error_units", plan.origin.units))


def _spaced(units: str) -> str:
    """Units after a space, if there are any."""
    return f" {units}" if units else ""
