"""Commands that select sites: demo, select, compare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keyhole.cli.bundles import command
from keyhole.cli.constraint_options import CostOptions, ExistingOptions, RegionOptions, constraints_of
from keyhole.cli.options import (
    InputOptions,
    Json,
    Methods,
    Out,
    Refit,
    RunOptions,
    SensorOptions,
    SettingOptions,
    SizeOptions,
    Sources,
    TargetOptions,
    WeightOptions,
    method_names,
)
from keyhole.cli.output import check_outputs, say, show_comparison, show_plan, texts_of
from keyhole.core.errors import StorageError
from keyhole.core.interrupts import stoppable
from keyhole.core.processes import is_first

if TYPE_CHECKING:
    from keyhole.data.samples import Samples
    from keyhole.data.splits import SplitLike
    from keyhole.plan.plan import Plan

__all__ = ["compare", "demo", "select"]


@command
def demo(
    out: Path = Path("demo"),
    k: Annotated[int, typer.Option("-k", "--sites")] = 25,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Place 25 buoys to observe sea-surface temperature: compare four selectors and write a report.

    Parameters
    ----------
    out
        Folder to write the report and the plan to.
    k
        Number of sites to select.
    seed
        Random seed.
    """
    from keyhole.data import datasets
    from keyhole.plan.files import make_folder
    from keyhole.report import write_report
    from keyhole.report.formatting import choice_text
    from keyhole.workflow import compare

    plan, report = out / "buoys.keyhole", out / "report.html"
    check_outputs({}, {"the plan": plan, "the report": report}, writable=False)
    make_folder(out)
    with stoppable(say):
        comparison = compare(datasets.sst(), k, ["learned", "greedy", "qr", "random"], seed=seed, intervals=True)
    comparison.choice.plan.save(plan)
    write_report(comparison, report)
    show_comparison(comparison, as_json)
    say(f"plan   {plan} ({comparison.choice.method}, {choice_text(comparison.chosen_by)})")
    say(f"report {report}")


@command
def select(
    source: Sources,
    *,
    cost: CostOptions,
    method: str = "auto",
    reconstructor: str = "auto",
    settings: SettingOptions,
    out: Out = Path("plan.keyhole"),
    report: Path | None = None,
    as_json: Json = False,
    failures: Annotated[int, typer.Option(min=0)] = 0,
    intervals: Annotated[bool, typer.Option("--intervals/--no-intervals")] = True,
    refit: Refit = None,
    run: RunOptions,
    precision: str = "auto",
    compiled: Annotated[bool, typer.Option("--compile")] = False,
    size: SizeOptions,
    resume: Annotated[bool | None, typer.Option("--resume/--anew")] = None,
    save_every: float = 15.0,
    region: RegionOptions,
    existing: ExistingOptions,
    weighting: WeightOptions,
    sensing: SensorOptions,
    target: TargetOptions,
    inputs: InputOptions,
) -> None:
    """Select K sites of a field, image set, array or table, fit a reconstructor to them, and save the plan.

    Parameters
    ----------
    method
        Selector: auto (best of several on validation), greedy, qr, exchange, learned or a mask distribution (vln, hnet,
        iln, sct, graph_vln), lasso, cae, ...: see docs/methods.md.
    reconstructor
        Model that reconstructs the field: auto (best on validation), ridge, optimal_interpolation, kernel, dense,
        dense_conv, resnet, dcgan, residual, ensemble.
    failures
        Number of sensors that may fail: minimise the mean error over random failures.
    intervals
        Calibrate prediction intervals.
    precision
        Precision of training: auto, 32-true or bf16-mixed.
    compiled
        Compile networks (torch.compile) before training.
    report
        HTML report to write.
    resume
        Resume the unfinished run of this plan file, or start anew.
    save_every
        Seconds between checkpoints of unfinished training.
    """
    from keyhole.training.checkpoint import clear_states
    from keyhole.workflow import select as run_selection

    check_outputs(
        {"SOURCE": source, **texts_of(region, existing, cost, weighting, sensing)}, {"--out": out, "--report": report}
    )
    constraints = constraints_of(region, existing, cost)
    folder = out.with_name(out.name + ".checkpoint")
    if resume is None and folder.exists():
        raise StorageError(f"{folder}: contains an unfinished run; --resume continues it, --anew discards it")
    options: dict[str, Any] = {
        "method": method, "reconstructor": reconstructor, "settings": settings.values(), "intervals": intervals,
        "refit": refit,
        "precision": precision, "compiled": compiled, "checkpoint": folder, "resume": bool(resume),
        "save_every": save_every, **run.arguments(),
    }  # fmt: skip
    with size.connected():
        samples = sensing.apply(weighting.apply(inputs.read_samples(source, target, memory=size.memory)))
        samples = samples.with_constraints(constraints)
        plan = run_selection(samples, cost.k, predictor=target.predictor, failures=failures, **options)
    if not is_first():
        return
    plan.save(out)
    clear_states(folder)
    if report is not None:
        _write_report(plan, samples, options["split"], run.seed, report)
    show_plan(plan, as_json)
    say(f"plan   {out}" + (f"\nreport {report}" if report else ""))


@command
def compare(
    source: Sources,
    *,
    cost: CostOptions,
    methods: Methods = "learned,greedy,qr,variance,random",
    reconstructor: str = "ridge",
    settings: SettingOptions,
    figure: Path | None = None,
    report: Path | None = None,
    as_json: Json = False,
    run: RunOptions,
    size: SizeOptions,
    region: RegionOptions,
    existing: ExistingOptions,
    weighting: WeightOptions,
    sensing: SensorOptions,
    target: TargetOptions,
    inputs: InputOptions,
) -> None:
    """Compare selectors at the same K with the same split and reconstructor.

    Parameters
    ----------
    reconstructor
        Reconstructor fitted to the sites of every method.
    figure
        Figure to write: .png, .svg or .pdf.
    report
        HTML report to write.
    """
    from keyhole.report import comparison_figure, save_figure, write_report
    from keyhole.workflow import compare as run_comparison

    inputs_given = {"SOURCE": source, **texts_of(region, existing, cost, weighting, sensing)}
    check_outputs(inputs_given, {"--figure": figure, "--report": report})
    constraints = constraints_of(region, existing, cost)
    with size.connected():
        samples = sensing.apply(weighting.apply(inputs.read_samples(source, target, memory=size.memory)))
        samples = samples.with_constraints(constraints)
        comparison = run_comparison(
            samples, cost.k, method_names(methods, samples), reconstructor=reconstructor, predictor=target.predictor,
            settings=settings.values(), **run.arguments(),
        )  # fmt: skip
    if figure is not None:
        save_figure(comparison_figure(comparison), figure)
    if report is not None:
        write_report(comparison, report)
    show_comparison(comparison, as_json)


def _write_report(plan: Plan, samples: Samples, split: SplitLike, seed: int, path: Path) -> None:
    """Write the report of a plan; of samples that stay in their file, with as many as fit in memory."""
    from keyhole.data.preparation import prepare, split_of
    from keyhole.report import write_report
    from keyhole.workflow.comparison import single

    parts = split_of(samples, split, seed)
    if samples.memory is not None:
        samples, parts = samples.subset(), parts.every(samples.subset_step)
    write_report(single(plan, prepare(samples, parts, seed)), path)
