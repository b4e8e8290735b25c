"""Commands that choose sites: demo, select, compare."""

from __future__ import annotations

import contextlib
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keyhole.cli.constraints import Counting, Kept, Price, Where, constraints_of
from keyhole.cli.options import (
    Device,
    Json,
    K,
    Method,
    Methods,
    Precision,
    Rebuilder,
    Seed,
    SetOption,
    Source,
    SplitKind,
    TimeLimit,
)
from keyhole.cli.output import check_apart, check_suffix, check_writable, say, show_comparison, show_plan, texts_of
from keyhole.cli.source import Reading, Target, method_names, split_kind
from keyhole.cli.spread import spread
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
    out: Annotated[Path, typer.Option(help="Folder for the report and the plan.")] = Path("demo"),
    k: K = 25,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Place 25 buoys on sea-surface temperature: learned, greedy, QR and random, with a report."""
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


@spread
def select(
    source: Source,
    price: Price,
    where: Where,
    kept: Kept,
    counting: Counting,
    target: Target,
    reading: Reading,
    out: Annotated[Path, typer.Option(help="Plan file to write.")] = Path("plan.keyhole"),
    failures: Annotated[int, typer.Option(min=0, help="How many sites may fail: make the mean error then least.")] = 0,
    intervals: Annotated[
        bool, typer.Option("--intervals/--no-intervals", help="Hold samples back to calibrate bands on.")
    ] = True,
    memory: Annotated[
        str | None,
        typer.Option(help="Memory that the work may take, such as 2GiB: the field is read some samples at a time."),
    ] = None,
    method: Method = "auto",
    reconstructor: Rebuilder = "auto",
    setting: SetOption = None,
    split: SplitKind = "auto",
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    device: Device = "auto",
    precision: Precision = "auto",
    compiled: Annotated[bool, typer.Option("--compile", help="Compile networks before they are trained.")] = False,
    report: Annotated[Path | None, typer.Option(help="HTML page to write.")] = None,
    resume: Annotated[
        bool | None,
        typer.Option("--resume/--anew", help="Go on with the unfinished run of this plan file, or replace it."),
    ] = None,
    save_every: Annotated[float, typer.Option(help="Seconds between saves of unfinished training.")] = 15.0,
    as_json: Json = False,
) -> None:
    """Choose K sites of a field, of images, of an array or of a table, and save the plan."""
    from keyhole.training.checkpoint import clear_states
    from keyhole.workflow import selection as pipeline
    from keyhole.workflow import stored

    check_apart({"SOURCE": source, **texts_of(where, kept, price, counting)}, {"--out": out, "--report": report})
    asked = constraints_of(where, kept, price)
    check_writable(out, report)
    folder = out.with_name(out.name + ".checkpoint")
    if resume is None and folder.exists():
        raise StorageError(f"{folder}: holds an unfinished run; --resume goes on with it, --anew replaces it")
    options: dict[str, Any] = {
        "method": method, "reconstructor": reconstructor, "settings": _settings(setting or []),
        "time_limit": time_limit, "seed": seed, "device": device, "precision": precision, "compiled": compiled,
        "split": split_kind(split),
        "checkpoint": folder, "resume": bool(resume), "save_every": save_every, "intervals": intervals,
    }  # fmt: skip
    with contextlib.ExitStack() as stack:
        if memory is None:
            data: Any = counting.of(reading.signals(source, target)).with_constraints(asked)
            work = partial(pipeline.select, data, price.k, predictor=target.predictor, failures=failures, **options)
        else:
            _check_plain(target, counting, failures)
            data = counting.of(stack.enter_context(reading.store(source, memory))).with_constraints(asked)
            work = partial(stored.select_stored, data, price.k, **options)
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


@spread
def compare(
    source: Source,
    price: Price,
    where: Where,
    kept: Kept,
    counting: Counting,
    target: Target,
    reading: Reading,
    methods: Methods = "learned,greedy,qr,variance,random",
    reconstructor: Annotated[str, typer.Option(help="The reconstructor that all methods share.")] = "ridge",
    split: SplitKind = "auto",
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    device: Device = "auto",
    figure: Annotated[Path | None, typer.Option(help="Figure to write, .png, .svg or .pdf.")] = None,
    report: Annotated[Path | None, typer.Option(help="HTML page to write.")] = None,
    as_json: Json = False,
) -> None:
    """Compare methods at the same K with the same reconstructor: one table, one figure."""
    from keyhole.workflow.comparison import compare as run_comparison

    check_apart({"SOURCE": source, **texts_of(where, kept, price, counting)}, {"--figure": figure, "--report": report})
    asked = constraints_of(where, kept, price)
    signals = counting.of(reading.signals(source, target)).with_constraints(asked)
    check_writable(figure, report)
    check_suffix(figure, "--figure", ".png", ".svg", ".pdf")
    names = method_names(methods, signals)
    with stoppable(say):
        comparison = run_comparison(
            signals, price.k, names, reconstructor=reconstructor, predictor=target.predictor, time_limit=time_limit,
            split=split_kind(split), seed=seed, device=device,
        )  # fmt: skip
    _draw(comparison, figure, report)
    show_comparison(comparison, as_json)


def _settings(pairs: list[str]) -> dict[str, Any]:
    """Turn name=value pairs into settings; values are JSON where they can be, text where not."""
    settings = {}
    for pair in pairs:
        name, found, value = pair.partition("=")
        if not found:
            raise typer.BadParameter(f"{pair!r}: name=value is needed", param_hint="--set")
        try:
            settings[name] = json.loads(value)
        except json.JSONDecodeError:
            settings[name] = value
    return settings


def _make_folder(folder: Path) -> None:
    from keyhole.plan.files import make_folder

    make_folder(folder)


def _check_plain(target: Target, counting: Counting, failures: int) -> None:
    """Refuse what needs all samples in memory."""
    asked = {"--target": target.target is not None, "--failures": failures > 0, "--noise": counting.noise is not None}
    for option in (name for name, given in asked.items() if given):
        raise typer.BadParameter("needs the data in memory; leave out --memory", param_hint=option)


def _report(plan: Plan, data: Samples | Store, asked: SplitLike, seed: int, path: Path) -> None:
    from keyhole.data.preparation import prepare
    from keyhole.report import write_report
    from keyhole.workflow.comparison import single
    from keyhole.workflow.stored import Store, samples_of

    calibrate_intervals = "calibration" in plan.metadata["split"]
    if isinstance(data, Store):
        data, asked = samples_of(data, seed, calibrate_intervals=calibrate_intervals, split=asked)
    write_report(single(plan, prepare(data, asked, seed, calibrate_intervals=calibrate_intervals)), path)


def _draw(comparison: Comparison, figure: Path | None, report: Path | None) -> None:
    if figure is not None:
        from keyhole.report import comparison_figure, save_figure

        save_figure(comparison_figure(comparison), figure)
    if report is not None:
        from keyhole.report import write_report

        write_report(comparison, report)
