"""Commands that modify an existing network: extend, drop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keyhole.cli.constraints import CostOptions, RegionOptions, WeightOptions, constraints_of
from keyhole.cli.inputs import InputOptions, TargetOptions, split_kind
from keyhole.cli.option_bundles import expand_bundles
from keyhole.cli.options import (
    Device,
    Json,
    Method,
    OtherReconstructorOption,
    PlanFile,
    Seed,
    Source,
    SplitKind,
    TimeLimit,
)
from keyhole.cli.output import check_apart, check_writable, say, show_plan, texts_of
from keyhole.core.interrupts import stoppable

if TYPE_CHECKING:
    from keyhole.data.samples import Samples
    from keyhole.plan.plan import Plan

__all__ = ["drop", "extend"]

Out = Annotated[Path, typer.Option(help="Plan file to write (.keyhole).")]


@expand_bundles
def extend(
    plan: PlanFile,
    source: Source,
    cost: CostOptions,
    region: RegionOptions,
    weighting: WeightOptions,
    inputs: InputOptions,
    out: Out = Path("extended.keyhole"),
    method: Method = "auto",
    reconstructor: OtherReconstructorOption = None,
    split: SplitKind = "auto",
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Select K further sites for the existing network of a plan."""
    from keyhole.plan.file_format import load
    from keyhole.workflow.changes import extend as run_extend

    check_apart({"PLAN": plan, "SOURCE": source, **texts_of(region, cost, weighting)}, {"--out": out})
    constraints = constraints_of(region, cost)
    check_writable(out)
    before = load(plan)
    samples = weighting.apply(_read_samples(before, source, inputs))
    other = {} if reconstructor is None else {"reconstructor": reconstructor}
    with stoppable(say):
        made = run_extend(
            before, samples, cost.k, constraints=constraints, method=method, split=split_kind(split),
            time_limit=time_limit, seed=seed, device=device, **other,
        )  # fmt: skip
    _deliver(made, out, as_json)


@expand_bundles
def drop(
    plan: PlanFile,
    source: Source,
    k: Annotated[int, typer.Option("-k", "--sites", help="Number of sites to drop.")],
    weighting: WeightOptions,
    inputs: InputOptions,
    out: Out = Path("reduced.keyhole"),
    reconstructor: OtherReconstructorOption = None,
    split: SplitKind = "auto",
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Drop the K sites of a plan whose loss increases the error least, and refit."""
    from keyhole.plan.file_format import load
    from keyhole.workflow.changes import drop as run_drop

    check_apart({"PLAN": plan, "SOURCE": source, **texts_of(weighting)}, {"--out": out})
    check_writable(out)
    before = load(plan)
    samples = weighting.apply(_read_samples(before, source, inputs))
    with stoppable(say):
        made = run_drop(
            before, samples, k, reconstructor=reconstructor, split=split_kind(split), time_limit=time_limit, seed=seed,
            device=device,
        )  # fmt: skip
    of = "" if made.target is None else f" of {made.target}"
    for row in made.metadata["notes"]["dropped"]:
        say(f"dropped {row['site']}: unexplained variance{of} is then {row['left']:.1%}")
    _deliver(made, out, as_json)


def _read_samples(plan: Plan, source: list[str], inputs: InputOptions) -> Samples:
    """Read samples as those of the plan were: with its target and its treatment of missing values."""
    if plan.metadata.get("missing") == "model":
        inputs = replace(inputs, missing="model")
    if plan.predictor is None:
        return inputs.read_samples(source, hint=False)
    kind = "class" if plan.predictor.is_class else "number"
    return inputs.read_samples(source, TargetOptions(plan.predictor.target, kind), hint=False)


def _deliver(plan: Plan, out: Path, as_json: bool) -> None:
    plan.save(out)
    show_plan(plan, as_json)
    say(f"plan   {out}")
