"""Commands that change a network that exists: extend, drop."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keyhole.cli.constraints import Counting, Price, Where, constraints_of
from keyhole.cli.options import Device, Json, Method, OtherRebuilder, PlanFile, Seed, Source, SplitKind, TimeLimit
from keyhole.cli.output import check_apart, check_writable, say, show_plan, texts_of
from keyhole.cli.source import Reading, Target, split_kind
from keyhole.cli.spread import spread
from keyhole.core.interrupts import stoppable

if TYPE_CHECKING:
    from keyhole.data.samples import Samples
    from keyhole.plan.plan import Plan

__all__ = ["drop", "extend"]

Out = Annotated[Path, typer.Option(help="Plan file to write.")]


@spread
def extend(
    plan: PlanFile,
    source: Source,
    price: Price,
    where: Where,
    counting: Counting,
    reading: Reading,
    out: Out = Path("extended.keyhole"),
    method: Method = "auto",
    reconstructor: OtherRebuilder = None,
    split: SplitKind = "auto",
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Choose K more sites for the network of a plan."""
    from keyhole.plan.plan import load
    from keyhole.workflow.changes import extend as run_extend

    check_apart({"PLAN": plan, "SOURCE": source, **texts_of(where, price, counting)}, {"--out": out})
    asked = constraints_of(where, price)
    check_writable(out)
    before = load(plan)
    signals = counting.of(_signals(before, source, reading))
    other = {} if reconstructor is None else {"reconstructor": reconstructor}
    with stoppable(say):
        made = run_extend(
            before, signals, price.k, constraints=asked, method=method, split=split_kind(split), time_limit=time_limit,
            seed=seed, device=device, **other,
        )  # fmt: skip
    _deliver(made, out, as_json)


@spread
def drop(
    plan: PlanFile,
    source: Source,
    k: Annotated[int, typer.Option("-k", "--sites", help="How many sites to leave out.")],
    counting: Counting,
    reading: Reading,
    out: Out = Path("reduced.keyhole"),
    reconstructor: OtherRebuilder = None,
    split: SplitKind = "auto",
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Leave out the K sites of a plan that would be missed least."""
    from keyhole.plan.plan import load
    from keyhole.workflow.changes import drop as run_drop

    check_apart({"PLAN": plan, "SOURCE": source, **texts_of(counting)}, {"--out": out})
    check_writable(out)
    before = load(plan)
    signals = counting.of(_signals(before, source, reading))
    with stoppable(say):
        made = run_drop(
            before, signals, k, reconstructor=reconstructor, split=split_kind(split), time_limit=time_limit, seed=seed,
            device=device,
        )  # fmt: skip
    of = "the variance" if made.target is None else f"the variance of {made.target}"
    for row in made.metadata["notes"]["dropped"]:
        say(f"dropped {row['site']}, after which {row['left']:.1%} of {of} is left")
    _deliver(made, out, as_json)


def _signals(plan: Plan, source: list[str], reading: Reading) -> Samples:
    """Read what a plan is to be changed by: with its target, and with missing values treated as they were."""
    if plan.metadata.get("missing") == "model":
        reading = replace(reading, missing="model")
    if plan.predictor is None:
        return reading.signals(source, hint=False)
    kind = "class" if plan.predictor.is_class else "number"
    return reading.signals(source, Target(plan.predictor.target, kind), hint=False)


def _deliver(plan: Plan, out: Path, as_json: bool) -> None:
    plan.save(out)
    show_plan(plan, as_json)
    say(f"plan   {out}")
