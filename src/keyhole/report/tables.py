"""Plans, comparisons and curves as tables for the terminal, and as values for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from keyhole.plan.plan import Plan
from keyhole.report.formatting import split_text, variable_units
from keyhole.workflow.comparison import Comparison
from keyhole.workflow.curves import Curve

__all__ = ["comparison_table", "curve_summary", "curve_table", "plan_summary", "plan_table"]

_MOST_SITES = 30
_MOST_COLUMNS = 10


def comparison_table(comparison: Comparison) -> RenderableType:
    """Return a table with one row for each method, the smallest test error first.

    Parameters
    ----------
    comparison : Comparison
        Result of `compare`.

    Returns
    -------
    rich Table
    """
    first = comparison.entries[0].plan
    title = f"{_sites(first)}; errors on {len(comparison.prepared.split.test)} test samples"
    table = Table(title=Text(title), title_justify="left")
    figures = _shown_scores(first)
    table.add_column("method")
    for heading in (*(figure.heading for figure in figures), "relative to best", "selection, s"):
        table.add_column(Text(heading), justify="right")
    best = first.metrics["test"][figures[0].name]
    for entry in comparison.entries:
        scores = entry.plan.metrics["test"]
        ratio = f"{scores[figures[0].name] / best:.3f}" if best > 0 else "-"
        shown = [f"{scores[figure.name]:{figure.form}}" for figure in figures]
        table.add_row(entry.method, *shown, ratio, f"{entry.seconds:.1f}")
    return table


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
    errors = {(row.method, row.k): f"{row.test[curve.metric]:.4g}" for row in curve.rows}
    for k in curve.ks:
        table.add_row(str(k), *(errors.get((method, k), "-") for method in curve.methods))
    smallest = [] if curve.target_error is None else [Text(_smallest_k(curve))]
    return Group(Text(curve.title), table, *smallest)


def curve_summary(curve: Curve) -> dict[str, Any]:
    """Return a curve as JSON can hold it.

    Parameters
    ----------
    curve : Curve
        Result of `curve`.

    Returns
    -------
    dict
        ``metric``, ``reconstructor``, ``rows``; with a target error also ``target_error`` and ``smallest_k``.
    """
    summary = {"metric": curve.metric, "reconstructor": curve.reconstructor, "rows": curve.records()}
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
    for rank, (name, gain) in enumerate(zip(plan.names[:_MOST_SITES], plan.gain, strict=False), start=1):
        table.add_row(str(rank), Text(name), f"{gain:.2%}")
    if plan.k > _MOST_SITES:
        table.add_row("...", f"and {plan.k - _MOST_SITES} more", "")
    return Group(table, Text(_account(plan)))


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
        "k": plan.k, "sites": sites, "space": _space(plan), **target, "metrics": plan.metrics,
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


def _sites(plan: Plan) -> str:
    """Number of sites, data and target."""
    purpose = "" if plan.target is None else f" to predict {plan.target}"
    return f"{plan.k} sites of {plan.origin.name}{purpose}"


def _account(plan: Plan) -> str:
    """Lines on errors, target, constraints, split, screened columns and method."""
    lines = [
        f"{part}: {_target_scores(plan, scores)}{_field_scores(plan, scores)}" for part, scores in plan.metrics.items()
    ]
    made = plan.metadata
    if plan.predictor is not None:
        kind = f"one of {len(plan.predictor.classes)} classes" if plan.predictor.is_class else "a number"
        lines.append(f"target {plan.target}, {kind}, predicted by {plan.predictor.name}")
    if plan.origin.kind == "field":
        lines.append(f"space: {' x '.join(f'{dim} {n}' for dim, n in _space(plan).items())}")
    lines += [] if plan.sensors is None else [f"sensors: {plan.sensors.counted()}"]
    lines += _constraints(made.get("constraints", {}))
    lines += [f"split: {split_text(made['split'])}"] if made.get("split") else []
    lines += _screened_columns(made.get("notes", {}).get("columns", []))
    lines += [f"warning: {sentence}" for sentence in made.get("warnings", [])]
    lines.append(f"made by {made['method']} + {made['reconstructor']}, seed {made['seed']}, {made['date']}")
    return "\n".join(lines)


def _space(plan: Plan) -> dict[str, int]:
    """Length of each axis of the data."""
    return dict(zip(plan.domain.dims, plan.domain.shape, strict=True))


def _constraints(record: Mapping[str, Any]) -> list[str]:
    """Line on the constraints, if there are any."""
    if not record:
        return []
    cost = f", at a cost of {record['cost']:g}" if "cost" in record else ""
    existing = f"; the first {record['existing']} sites are existing ones" if record["existing"] else ""
    return [f"constraints: {', '.join(record['asked'])}{cost}{existing}"]


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
        return (
            f"{plan.target}: error rate {scores['target_error']:.1%}, log loss {scores['target_log_loss']:.3f}; field: "
        )
    unexplained = f"unexplained variance {scores['target_fvu']:.1%}"
    return f"{plan.target}: RMSE {scores['target_rmse']:.4g}, {unexplained}; field: "


def _field_scores(plan: Plan, scores: Mapping[str, float]) -> str:
    """Scores of the field, by variable where units differ."""
    units = variable_units(plan.origin.variables, scores)
    each = ", ".join(f"{name} {scores[f'rmse[{name}]']:.4g}{_spaced(one)}" for name, one in units.items())
    interval = "coverage of the 90 % prediction interval"
    coverage = f", {interval} {scores['coverage_90']:.1%}" if "coverage_90" in scores else ""
    whole = f"RMSE {scores['rmse']:.4g}{_spaced(_error_units(plan))}{f' ({each})' if each else ''}"
    return f"{whole}, unexplained variance {scores['fvu']:.1%}{coverage}"


def _error_units(plan: Plan) -> str:
    """Units of the plan's errors; plans of early versions do not store them."""
    return str(plan.metadata.get("error_units", plan.origin.units))


def _spaced(units: str) -> str:
    """Units after a space, if there are any."""
    return f" {units}" if units else ""
