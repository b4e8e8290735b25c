"""Plans and comparisons as tables for a terminal, and as plain values for machines."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from keyhole.comparison import Comparison
from keyhole.plan import Plan

__all__ = ["comparison_table", "plan_summary", "plan_table"]

_MOST_SITES = 30


def comparison_table(comparison: Comparison) -> RenderableType:
    """One row for each method, the best first."""
    first = comparison.entries[0].plan
    units = f" {first.origin.units}" if first.origin.units else ""
    split = comparison.prepared.split
    title = f"{first.k} sites of {first.origin.name}; judged on {len(split.test)} samples that no method saw"
    table = Table(title=title, title_justify="left")
    table.add_column("method")
    for name in (f"test RMSE{units}", "variance left", "against best", "choice, s"):
        table.add_column(name, justify="right")
    best = first.metrics["test"]["rmse"]
    for entry in comparison.entries:
        scores = entry.plan.metrics["test"]
        ratio = f"{scores['rmse'] / best:.3f}" if best > 0 else "-"
        table.add_row(entry.method, f"{scores['rmse']:.4g}", f"{scores['fvu']:.1%}", ratio, f"{entry.seconds:.1f}")
    return table


def plan_table(plan: Plan) -> RenderableType:
    """The sites in rank order, then the errors and how the plan was made."""
    table = Table(title=f"{plan.k} sites of {plan.origin.name}", title_justify="left")
    table.add_column("rank", justify="right")
    table.add_column("site")
    table.add_column("gain", justify="right")
    for rank, (name, gain) in enumerate(zip(plan.names[:_MOST_SITES], plan.gain, strict=False), start=1):
        table.add_row(str(rank), Text(name), f"{gain:.2%}")
    if plan.k > _MOST_SITES:
        table.add_row("...", f"and {plan.k - _MOST_SITES} more", "")
    return Group(table, Text(_account(plan)))


def plan_summary(plan: Plan) -> dict[str, Any]:
    """Everything about a plan but its weights, as JSON can hold it."""
    sites = plan.sites.to_dict(orient="records")
    return {"k": plan.k, "sites": sites, "metrics": plan.metrics, "made": plan.made}


def _account(plan: Plan) -> str:
    units = f" {plan.origin.units}" if plan.origin.units else ""
    lines = [
        f"{part}: RMSE {scores['rmse']:.4g}{units}, {scores['fvu']:.1%} of the variance left"
        for part, scores in plan.metrics.items()
    ]
    made = plan.made
    lines.append(f"made by {made['method']} + {made['reconstructor']}, seed {made['seed']}, {made['date']}")
    return "\n".join(lines)
