"""Commands that modify an existing network: extend, drop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keyhole.cli.bundles import command
from keyhole.cli.constraint_options import CostOptions, RegionOptions, constraints_of
from keyhole.cli.options import (
    InputOptions,
    Json,
    Out,
    PlanFile,
    Refit,
    RunOptions,
    SensorOptions,
    SettingOptions,
    SizeOptions,
    Sources,
    WeightOptions,
)
from keyhole.cli.output import check_outputs, say, show_plan, texts_of

if TYPE_CHECKING:
    from keyhole.plan.plan import Plan

__all__ = ["drop", "extend", "refit"]


@command
def extend(
    plan: PlanFile,
    source: Sources,
    *,
    cost: CostOptions,
    method: str = "auto",
    reconstructor: str | None = None,
    settings: SettingOptions,
    out: Out = Path("extended.keyhole"),
    as_json: Json = False,
    refit: Refit = None,
    run: RunOptions,
    size: SizeOptions,
    region: RegionOptions,
    weighting: WeightOptions,
    sensing: SensorOptions,
    inputs: InputOptions,
) -> None:
    """Select K further sites for the existing network of a plan.

    Parameters
    ----------
    method
        Selector of the new sites, as in select.
    reconstructor
        Reconstructor to fit; by default the plan's kind and settings.
    """
    from keyhole.plan import load
    from keyhole.workflow import extend as run_extend

    check_outputs({"PLAN": plan, "SOURCE": source, **texts_of(region, cost, weighting, sensing)}, {"--out": out})
    constraints = constraints_of(region, cost)
    before = load(plan)
    options: dict[str, Any] = {"method": method, "settings": settings.values(), "refit": refit, **run.arguments()}
    options |= {} if reconstructor is None else {"reconstructor": reconstructor}
    with size.connected():
        samples = sensing.apply(weighting.apply(inputs.read_like(before, source, memory=size.memory)))
        made = run_extend(before, samples, cost.k, constraints=constraints, **options)
    _deliver(made, out, as_json)


@command
def drop(
    plan: PlanFile,
    source: Sources,
    *,
    k: Annotated[int, typer.Option("-k", "--sites")],
    reconstructor: str | None = None,
    out: Out = Path("reduced.keyhole"),
    as_json: Json = False,
    refit: Refit = None,
    run: RunOptions,
    size: SizeOptions,
    weighting: WeightOptions,
    inputs: InputOptions,
) -> None:
    """Drop the K sites of a plan whose loss increases the error least, and refit.

    Parameters
    ----------
    k
        Number of sites to drop.
    reconstructor
        Reconstructor to fit; by default the plan's kind and settings.
    """
    from keyhole.plan import load
    from keyhole.workflow import drop as run_drop

    check_outputs({"PLAN": plan, "SOURCE": source, **texts_of(weighting)}, {"--out": out})
    before = load(plan)
    with size.connected():
        samples = weighting.apply(inputs.read_like(before, source, memory=size.memory))
        made = run_drop(before, samples, k, reconstructor=reconstructor, refit=refit, **run.arguments())
    of = "" if made.target is None else f" of {made.target}"
    for row in made.metadata["notes"]["dropped"]:
        say(f"dropped {row['site']}: unexplained variance{of} is then {row['fvu']:.1%}")
    _deliver(made, out, as_json)


@command
def refit(
    plan: PlanFile,
    source: Sources,
    *,
    out: Out = Path("refitted.keyhole"),
    as_json: Json = False,
    run: RunOptions,
    size: SizeOptions,
    weighting: WeightOptions,
    inputs: InputOptions,
) -> None:
    """Fit the models of a plan to new data, at the same sites."""
    from keyhole.plan import load

    check_outputs({"PLAN": plan, "SOURCE": source, **texts_of(weighting)}, {"--out": out})
    before = load(plan)
    with size.connected():
        samples = weighting.apply(inputs.read_like(before, source, memory=size.memory))
        made = before.refit(samples, **run.arguments())
    _deliver(made, out, as_json)


def _deliver(plan: Plan, out: Path, as_json: bool) -> None:
    """Save a plan and print it."""
    plan.save(out)
    show_plan(plan, as_json)
    say(f"plan   {out}")
