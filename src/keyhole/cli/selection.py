"""Commands that select sites: demo, select, compare."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keyhole.cli.constraints import CostOptions, ExistingOptions, RegionOptions, WeightOptions, constraints_of
from keyhole.cli.inputs import InputOptions, TargetOptions, method_names, split_kind
from keyhole.cli.option_bundles import expand_bundles
from keyhole.cli.options import (
    Device,
    Json,
    K,
    Method,
    Methods,
    Precision,
    ReconstructorOption,
    Seed,
    SetOption,
    Source,
    SplitKind,
    TimeLimit,
)
from keyhole.cli.output import check_apart, check_suffix, check_writable, say, show_comparison, show_plan, texts_of
from keyhole.core.errors import StorageError
from keyhole.core.interrupts import stoppable
from keyhole.core.processes import is_first

if TYPE_CHECKING:
    from keyhole.data.samples import Samples
    from keyhole.data.splits import SplitLike
    from keyhole.plan.plan import Plan
    from keyhole.workflow.comparison import Comparison
    from keyhole.workflow.stored import Store

__all__ = ["compare", "demo", "select"]


def demo(
    out: Annotated[Path, typer.Option(help="Folder to write the report and the plan to.")] = Path("demo"),
    k: K = 25,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Place 25 buoys to observe sea-surface temperature: compare four selectors and write a report."""
    from keyhole.data import datasets
    from keyhole.report import write_report
    from keyhole.workflow.comparison import compare

    check_apart({}, {"the plan": out / "buoys.keyhole", "the report": out / "report.html"})
    _make_folder(out)
    with stoppable(say):
        comparison = compare(datasets.sst(), k, ["learned", "greedy", "qr", "random"], seed=seed, intervals=True)
    comparison.choice.plan.save(out / "buoys.keyhole")
    write_report(comparison, out / "report.html")
    show_comparison(comparison, as_json)
    say(f"plan   {out / 'buoys.keyhole'} ({comparison.choice.method}, the best on validation)")
    say(f"report {out / 'report.html'}")


@expand_bundles
def select(
    source: Source,
    cost: CostOptions,
    region: RegionOptions,
    existing: ExistingOptions,
    weighting: WeightOptions,
    target: TargetOptions,
    inputs: InputOptions,
    out: Annotated[Path, typer.Option(help="Plan file to write (.keyhole).")] = Path("plan.keyhole"),
    failures: Annotated[
        int, typer.Option(min=0, help="Number of sensors that may fail: minimise the mean error over random failures.")
    ] = 0,
    intervals: Annotated[
        bool, typer.Option("--intervals/--no-intervals", help="Hold out samples to calibrate prediction intervals.")
    ] = True,
    memory: Annotated[
        str | None,
        typer.Option(help="Memory limit, such as 2GiB: process a NetCDF or Zarr field in chunks of samples."),
    ] = None,
    method: Method = "auto",
    reconstructor: ReconstructorOption = "auto",
    setting: SetOption = None,
    split: SplitKind = "auto",
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    device: Device = "auto",
    precision: Precision = "auto",
    compiled: Annotated[
        bool, typer.Option("--compile", help="Compile networks (torch.compile) before training.")
    ] = False,
    report: Annotated[Path | None, typer.Option(help="HTML report to write.")] = None,
    resume: Annotated[
        bool | None,
        typer.Option("--resume/--anew", help="Resume the unfinished run of this plan file, or start anew."),
    ] = None,
    save_every: Annotated[float, typer.Option(help="Seconds between checkpoints of unfinished training.")] = 15.0,
    as_json: Json = False,
) -> None:
    """Select K sites of a field, image set, array or table, fit a reconstructor to them, and save the plan."""
    from keyhole.training.checkpoint import clear_states
    from keyhole.workflow import selection as pipeline
    from keyhole.workflow import stored

    check_apart({"SOURCE": source, **texts_of(region, existing, cost, weighting)}, {"--out": out, "--report": report})
    constraints = constraints_of(region, existing, cost)
    check_writable(out, report)
    folder = out.with_name(out.name + ".checkpoint")
    if resume is None and folder.exists():
        raise StorageError(f"{folder}: contains an unfinished run; --resume continues it, --anew discards it")
    options: dict[str, Any] = {
        "method": method, "reconstructor": reconstructor, "settings": _settings(setting or []),
        "time_limit": time_limit, "seed": seed, "device": device, "precision": precision, "compiled": compiled,
        "split": split_kind(split),
        "checkpoint": folder, "resume": bool(resume), "save_every": save_every, "intervals": intervals,
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        if memory is None:
            data: Any = weighting.apply(inputs.read_samples(source, target)).with_constraints(constraints)
            work = partial(pipeline.select, data, cost.k, predictor=target.predictor, failures=failures, **options)
        else:
            _check_plain(target, weighting, failures)
            data = weighting.apply(stack.enter_context(inputs.open_store(source, memory))).with_constraints(constraints)
            work = partial(stored.select_stored, data, cost.k, **options)
        with stoppable(say):
            plan = work()
        if not is_first():
            return
        plan.save(out)
        clear_states(folder)
        if report is not None:
            _report(plan, data, split_kind(split), seed, report)
    show_plan(plan, as_json)
    say(f"plan   {out}" + (f"\nreport {report}" if report else ""))


@expand_bundles
def compare(
    source: Source,
    cost: CostOptions,
    region: RegionOptions,
    existing: ExistingOptions,
    weighting: WeightOptions,
    target: TargetOptions,
    inputs: InputOptions,
    methods: Methods = "learned,greedy,qr,variance,random",
    reconstructor: Annotated[str, typer.Option(help="Reconstructor fitted to the sites of every method.")] = "ridge",
    split: SplitKind = "auto",
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    device: Device = "auto",
    figure: Annotated[Path | None, typer.Option(help="Figure to write: .png, .svg or .pdf.")] = None,
    report: Annotated[Path | None, typer.Option(help="HTML report to write.")] = None,
    as_json: Json = False,
) -> None:
    """Compare selectors at the same K with the same split and reconstructor."""
    from keyhole.workflow.comparison import compare as run_comparison

    check_apart(
        {"SOURCE": source, **texts_of(region, existing, cost, weighting)}, {"--figure": figure, "--report": report}
    )
    constraints = constraints_of(region, existing, cost)
    samples = weighting.apply(inputs.read_samples(source, target)).with_constraints(constraints)
    check_writable(figure, report)
    check_suffix(figure, "--figure", ".png", ".svg", ".pdf")
    names = method_names(methods, samples)
    with stoppable(say):
        comparison = run_comparison(
            samples, cost.k, names, reconstructor=reconstructor, predictor=target.predictor, time_limit=time_limit,
            split=split_kind(split), seed=seed, device=device,
        )  # fmt: skip
    _draw(comparison, figure, report)
    show_comparison(comparison, as_json)


def _settings(pairs: list[str]) -> dict[str, Any]:
    """Parse name=value pairs; values are parsed as JSON where possible, else kept as text."""
    settings = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found:
            raise typer.BadParameter(f"{pair!r}: expected name=value", param_hint="--set")
        try:
            settings[name] = json.loads(value)
        except json.JSONDecodeError:
            settings[name] = value
    return settings


def _make_folder(folder: Path) -> None:
    from keyhole.plan.files import make_folder

    make_folder(folder)


def _check_plain(target: TargetOptions, weighting: WeightOptions, failures: int) -> None:
    """Refuse options that need all samples in memory."""
    given = {"--target": target.target is not None, "--failures": failures > 0, "--noise": weighting.noise is not None}
    for option in (name for name, is_set in given.items() if is_set):
        raise typer.BadParameter("cannot be combined with --memory", param_hint=option)


def _report(plan: Plan, data: Samples | Store, split: SplitLike, seed: int, path: Path) -> None:
    from keyhole.data.preparation import prepare
    from keyhole.report import write_report
    from keyhole.workflow.comparison import single
    from keyhole.workflow.stored import Store, samples_of

    calibrate_intervals = "calibration" in plan.metadata["split"]
    if isinstance(data, Store):
        data, split = samples_of(data, seed, calibrate_intervals=calibrate_intervals, split=split)
    write_report(single(plan, prepare(data, split, seed, calibrate_intervals=calibrate_intervals)), path)


def _draw(comparison: Comparison, figure: Path | None, report: Path | None) -> None:
    if figure is not None:
        from keyhole.report import comparison_figure, save_figure

        save_figure(comparison_figure(comparison), figure)
    if report is not None:
        from keyhole.report import write_report

        write_report(comparison, report)
