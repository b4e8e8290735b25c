"""Commands that change a network that exists: extend, drop."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from keyhole.cli.constraints import (
    Allow,
    CostLimit,
    Costs,
    Distance,
    Forbid,
    Noise,
    Weights,
    check_budget,
    constraints_of,
    counted,
)
from keyhole.cli.options import (
    Anomalies,
    AnyK,
    At,
    Channels,
    ContextOption,
    Device,
    GroupOption,
    Json,
    Method,
    PlanFile,
    Rebuilder,
    Samples,
    Seed,
    Source,
    TimeLimit,
    Variable,
)
from keyhole.cli.output import check_writable, say, show_plan
from keyhole.cli.source import read_source
from keyhole.interrupts import stoppable

__all__ = ["drop", "extend"]

Out = Annotated[Path, typer.Option(help="Plan file to write.")]


def extend(
    plan: PlanFile,
    source: Source,
    k: AnyK = None,
    out: Out = Path("extended.keyhole"),
    allow: Allow = None,
    forbid: Forbid = None,
    distance: Distance = None,
    costs: Costs = None,
    cost_limit: CostLimit = None,
    weights: Weights = None,
    noise: Noise = None,
    method: Method = "auto",
    reconstructor: Rebuilder = "auto",
    variable: Variable = None,
    group: GroupOption = None,
    samples: Samples = None,
    at: At = None,
    channels: Channels = None,
    anomalies: Anomalies = None,
    context: ContextOption = None,
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Choose K more sites for the network of a plan."""
    from keyhole.changes import extend as run_extend
    from keyhole.plan import load

    check_budget(k, cost_limit)
    check_writable(out)
    asked = constraints_of(allow, forbid, None, distance, costs, cost_limit, None)
    signals = read_source(
        source, variable=variable, group=group, samples=samples, at=at, channels=channels, size=None, colour=None,
        anomalies=anomalies, context=context, target=None, target_kind="auto",
    )  # fmt: skip
    with stoppable(say):
        made = run_extend(
            load(plan), counted(signals, weights, noise), k, constraints=asked, method=method,
            reconstructor=reconstructor, time_limit=time_limit, seed=seed, device=device,
        )  # fmt: skip
    made.save(out)
    show_plan(made, as_json)
    say(f"plan   {out}")


def drop(
    plan: PlanFile,
    source: Source,
    k: Annotated[int, typer.Option("-k", "--sites", help="How many sites to leave out.")],
    out: Out = Path("reduced.keyhole"),
    reconstructor: Rebuilder = "auto",
    variable: Variable = None,
    group: GroupOption = None,
    samples: Samples = None,
    at: At = None,
    channels: Channels = None,
    anomalies: Anomalies = None,
    context: ContextOption = None,
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Leave out the K sites of a plan that would be missed least."""
    from keyhole.changes import drop as run_drop
    from keyhole.plan import load

    check_writable(out)
    signals = read_source(
        source, variable=variable, group=group, samples=samples, at=at, channels=channels, size=None, colour=None,
        anomalies=anomalies, context=context, target=None, target_kind="auto",
    )  # fmt: skip
    with stoppable(say):
        made = run_drop(
            load(plan), signals, k, reconstructor=reconstructor, time_limit=time_limit, seed=seed, device=device
        )
    made.save(out)
    show_plan(made, as_json)
    for row in made.made["notes"]["dropped"]:
        say(f"dropped {row['site']}, after which {row['left']:.1%} of the variance is left")
    say(f"plan   {out}")
