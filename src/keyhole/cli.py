"""The command line: parse, call, print. Heavy modules are imported inside commands, so that help is quick."""

from __future__ import annotations

import contextlib
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from keyhole.errors import KeyholeError, SettingsError, StorageError

if TYPE_CHECKING:
    from keyhole.comparison import Comparison
    from keyhole.plan import Plan
    from keyhole.signals import Signals

__all__ = ["app", "main"]

app = typer.Typer(
    help="Choose the few points to observe so that the whole can be rebuilt from them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Source = Annotated[
    str, typer.Argument(help="A .npy, .npz or NetCDF file, or a data set: sst, digits, mnist, celeba, ipsl, ncep.")
]
K = Annotated[int, typer.Option("-k", "--sites", help="How many sites to choose.")]
Variable = Annotated[str | None, typer.Option(help="Variable of the file, where it holds several.")]
Channels = Annotated[int | None, typer.Option(help="Axis of the array that holds channels, if one does.")]
Anomalies = Annotated[
    str | None, typer.Option(help="'month': work on anomalies from the monthly climatology; 'none': from the mean.")
]
Method = Annotated[str, typer.Option(help="auto, learned, vln, hnet, iln, sct, simplex, greedy, qr, variance, random.")]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", help="Setting of the method, name=value; may be repeated.")
]
TimeLimit = Annotated[float | None, typer.Option(help="Seconds that learning may take.")]
Seed = Annotated[int, typer.Option(min=0, help="Same seed, same machine and threads: same result.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the report and the plan.")] = Path("demo"),
    k: K = 25,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Place 25 buoys on sea-surface temperature: learned, greedy, QR and random, with a report."""
    from keyhole import datasets
    from keyhole.comparison import compare
    from keyhole.report import write_report

    _make_folder(out)
    with _stoppable():
        comparison = compare(datasets.sst(), k, ["learned", "greedy", "qr", "random"], seed=seed)
    comparison.choice.plan.save(out / "buoys.keyhole")
    write_report(comparison, out / "report.html")
    _show_comparison(comparison, as_json)
    _say(f"plan   {out / 'buoys.keyhole'} ({comparison.choice.method}, the best on validation)")
    _say(f"report {out / 'report.html'}")


@app.command()
def select(
    source: Source,
    k: K,
    out: Annotated[Path, typer.Option(help="Plan file to write.")] = Path("plan.keyhole"),
    method: Method = "auto",
    reconstructor: Annotated[str, typer.Option(help="auto, ridge, dense, resnet, residual.")] = "auto",
    setting: SetOption = None,
    variable: Variable = None,
    channels: Channels = None,
    anomalies: Anomalies = None,
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    device: Device = "auto",
    precision: Annotated[str, typer.Option(help="32-true, or bf16-mixed.")] = "32-true",
    report: Annotated[Path | None, typer.Option(help="HTML page to write.")] = None,
    resume: Annotated[
        bool | None,
        typer.Option("--resume/--anew", help="Go on with the unfinished run of this plan file, or replace it."),
    ] = None,
    save_every: Annotated[float, typer.Option(help="Seconds between saves of unfinished training.")] = 15.0,
    as_json: Json = False,
) -> None:
    """Choose K sites of a field, of images or of an array, and save the plan."""
    from keyhole import pipeline
    from keyhole.checkpoint import clear_states

    signals = _read(source, variable, channels, anomalies)
    _check_writable(out, report)
    folder = out.with_name(out.name + ".checkpoint")
    if resume is None and folder.exists():
        raise StorageError(f"{folder}: holds an unfinished run; --resume goes on with it, --anew replaces it")
    with _stoppable():
        plan = pipeline.select(
            signals, k, method=method, reconstructor=reconstructor, settings=_settings(setting or []),
            time_limit=time_limit, seed=seed, device=device, precision=precision, checkpoint=folder,
            resume=bool(resume), save_every=save_every,
        )  # fmt: skip
    plan.save(out)
    clear_states(folder)
    if report is not None:
        _report(plan, signals, seed, report)
    _show_plan(plan, as_json)
    _say(f"plan   {out}" + (f"\nreport {report}" if report else ""))


@app.command()
def reconstruct(
    plan: Annotated[Path, typer.Argument(help="Plan file.")],
    readings: Annotated[
        Path, typer.Argument(help="CSV (an optional time column, then site names) or .npy in rank order.")
    ],
    out: Annotated[Path, typer.Option(help="File to write: .nc, .npy or .csv.")],
    time: Annotated[
        list[str] | None, typer.Option(help="Time of a reading, once for each, where the file holds none.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Rebuild whole signals from readings at the sites of a plan."""
    from keyhole.files import read_readings, write_rebuilt
    from keyhole.plan import load

    rebuilt = write_rebuilt(load(plan), read_readings(readings), out, time or None)
    if as_json:
        _print_json({"out": str(out), "shape": list(rebuilt)})
    else:
        _say(f"{rebuilt[0]} rebuilt, shape {rebuilt}: {out}")


@app.command()
def compare(
    source: Source,
    k: K,
    methods: Annotated[
        str, typer.Option(help="Methods, with commas between; 'all' for every one.")
    ] = "learned,greedy,qr,variance,random",
    reconstructor: Annotated[str, typer.Option(help="The reconstructor that all methods share.")] = "ridge",
    variable: Variable = None,
    channels: Channels = None,
    anomalies: Anomalies = None,
    time_limit: TimeLimit = None,
    seed: Seed = 0,
    device: Device = "auto",
    figure: Annotated[Path | None, typer.Option(help="Figure to write, .png or .svg.")] = None,
    report: Annotated[Path | None, typer.Option(help="HTML page to write.")] = None,
    as_json: Json = False,
) -> None:
    """Compare methods at the same K with the same reconstructor: one table, one figure."""
    from keyhole.comparison import compare as run_comparison
    from keyhole.selectors import SELECTORS

    signals = _read(source, variable, channels, anomalies)
    _check_writable(figure, report)
    if figure is not None and figure.suffix not in (".png", ".svg"):
        raise typer.BadParameter(f"{figure}: a .png or .svg is needed", param_hint="--figure")
    names = list(SELECTORS) if methods == "all" else [name.strip() for name in methods.split(",")]
    with _stoppable():
        comparison = run_comparison(
            signals, k, names, reconstructor=reconstructor, time_limit=time_limit, seed=seed, device=device,
        )  # fmt: skip
    _draw(comparison, figure, report)
    _show_comparison(comparison, as_json)


@app.command()
def info(plan: Annotated[Path, typer.Argument(help="Plan file.")], as_json: Json = False) -> None:
    """Show the sites of a plan and how it was made."""
    from keyhole.plan import load

    _show_plan(load(plan), as_json)


def main() -> None:
    """Run the command line: exit 0 when done, 1 for data errors, 2 for usage, 130 and 143 when stopped."""
    try:
        app()
    except SettingsError as error:
        _fail(str(error), 2)
    except KeyholeError as error:
        _fail(str(error), 1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        _fail(str(error), 1)
    except MemoryError as error:
        _fail(f"not enough memory ({error})", 1)


def _read(source: str, variable: str | None, channels: int | None, anomalies: str | None) -> Signals:
    from keyhole import datasets
    from keyhole.readers import read

    if anomalies not in (None, "month", "none"):
        raise typer.BadParameter(f"{anomalies!r}: month or none", param_hint="--anomalies")
    named = source in datasets.DATASETS
    for option, value in (("--variable", variable), ("--channels", channels)):
        if named and value is not None:
            raise typer.BadParameter(f"has no meaning for the data set {source}", param_hint=option)
    signals = datasets.load(source) if named else read(source, variable=variable, channels=channels)
    if anomalies is not None:
        return signals.anomalies("month" if anomalies == "month" else None)
    if signals.cycle is None and _is_monthly(signals):
        _say("the samples are months: --anomalies month would take their seasonal cycle as known")
    return signals


def _is_monthly(signals: Signals) -> bool:
    """Whether samples are a month apart, for three years or more."""
    import numpy as np

    if signals.time is None or len(signals) < 36:
        return False
    days = np.diff(signals.time) / np.timedelta64(1, "D")
    return bool(27 <= np.median(days) <= 32)


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


def _check_writable(*paths: Path | None) -> None:
    """Fail before the work, not after it, where a result cannot be written."""
    from keyhole.files import check_writable

    for path in paths:
        if path is not None:
            check_writable(path)


def _make_folder(folder: Path) -> None:
    from keyhole.files import make_folder

    make_folder(folder)


def _report(plan: Plan, signals: Signals, seed: int, path: Path) -> None:
    from keyhole.comparison import single
    from keyhole.pipeline import prepare
    from keyhole.report import write_report

    write_report(single(plan, prepare(signals, None, seed)), path)


def _draw(comparison: Comparison, figure: Path | None, report: Path | None) -> None:
    if figure is not None:
        from keyhole.report import comparison_figure, save_figure

        save_figure(comparison_figure(comparison), figure)
    if report is not None:
        from keyhole.report import write_report

        write_report(comparison, report)


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Let a run that is stopped say what it kept, and exit with 130 or 143."""
    from keyhole.interrupts import Interrupted

    try:
        yield
    except Interrupted as stop:
        _say(f"keyhole: {stop}")
        raise typer.Exit(128 + stop.signum) from stop


def _show_comparison(comparison: Comparison, as_json: bool) -> None:
    from keyhole.tables import comparison_table

    if as_json:
        _print_json(comparison.rows())
    else:
        _print(comparison_table(comparison))


def _show_plan(plan: Plan, as_json: bool) -> None:
    from keyhole.tables import plan_summary, plan_table

    if as_json:
        _print_json(plan_summary(plan))
    else:
        _print(plan_table(plan))


def _print(renderable: Any) -> None:
    from rich.console import Console

    Console().print(renderable)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(_strict(value), indent=2, default=str, allow_nan=False))


def _strict(value: Any) -> Any:
    """Put null for numbers that JSON does not know: NaN and the infinities."""
    if isinstance(value, Mapping):
        return {key: _strict(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _say(message: str) -> None:
    typer.echo(message, err=True)


def _fail(message: str, code: int) -> None:
    typer.echo(f"keyhole: {message}", err=True)
    sys.exit(code)


if __name__ == "__main__":
    main()
