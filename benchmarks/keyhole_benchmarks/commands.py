"""The command line of the benchmarks, `keyhole-bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keyhole.core.paths import check_apart
from keyhole.core.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from keyhole_benchmarks.peers import Peer
    from keyhole_benchmarks.runner import Job
    from keyhole_benchmarks.speed import SpeedTest

__all__ = ["app", "main"]

app = typer.Typer(no_args_is_help=True, help="The paper's tables and figures, and ours: one case, one JSON line.")

Results = Annotated[Path, typer.Option(help="Folder of the JSON lines.")]
Scale = Annotated[
    str, typer.Option(help="paper: its own scale, for a GPU; small: for two cores; shifted: small, off the lattice.")
]
Weights = Annotated[
    str, typer.Option(help="Of the expected L0, where it makes K; comma-separated, the protocol's by default.")
]
Names = Annotated[str, typer.Option(help="Comma-separated; all that the table has by default.")]
Ks = Annotated[str, typer.Option("--k", "-k", help="Comma-separated; the paper's by default.")]
Seeds = Annotated[str, typer.Option(help="Comma-separated.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Limit = Annotated[float, typer.Option(min=0.1, help="Seconds for a case, on this machine.")]
_RESULTS = Path("benchmarks/results")
_PRIVATE = Path("benchmarks/private")


@app.command()
def table1(
    data: Names = "mnist,ipsl,ncep,celeba",
    methods: Names = "",
    k: Ks = "",
    seeds: Seeds = "0,1,2",
    protocol: Scale = "small",
    weights: Weights = "",
    results: Results = _RESULTS,
    device: Device = "auto",
) -> None:
    """Reconstruction error of the paper's systems, QR and greedy with the same networks, and linear measurements."""
    from keyhole.data.datasets import DATASETS
    from keyhole_benchmarks import table1 as bench

    chosen = _chosen(methods, (*bench.METHODS, bench.REFERENCE))
    _check("data", _names(data), tuple(DATASETS))
    asked = (_names(data), chosen, _numbers(k), _numbers(seeds), _decimals(weights))
    _run("table1", bench.jobs(protocol, *asked), results, device)


@app.command()
def table2(
    data: Annotated[str, typer.Option(help="A data set with labels.")] = "mnist",
    methods: Names = "",
    k: Ks = "",
    seeds: Seeds = "0,1,2",
    protocol: Scale = "small",
    results: Results = _RESULTS,
    device: Device = "auto",
) -> None:
    """Classification error from the pixels that Table 1's methods selected: least and mean of 5 trainings."""
    from keyhole.data.datasets import LABELS
    from keyhole_benchmarks import table2 as bench
    from keyhole_benchmarks.records import Store

    chosen = _chosen(methods, bench.METHODS)
    _check("data", (data,), tuple(LABELS))
    asked = (protocol, data, chosen, _numbers(k), _numbers(seeds))
    _run("table1", bench.prerequisites(*asked), results, device)
    _run("table2", bench.jobs(*asked, Store(results, "table1")), results, device)


@app.command()
def cgan(
    data: Names = "mnist,celeba",
    methods: Names = "",
    k: Ks = "",
    seeds: Seeds = "0",
    protocol: Scale = "small",
    results: Results = _RESULTS,
    device: Device = "auto",
) -> None:
    """Sites and generator trained as a conditional GAN, beside squared error."""
    from keyhole.data.datasets import DATASETS
    from keyhole_benchmarks import cgan as bench

    chosen = _chosen(methods, bench.METHODS)
    _check("data", _names(data), tuple(DATASETS))
    _run("cgan", bench.jobs(protocol, _names(data), chosen, _numbers(k), _numbers(seeds)), results, device)


@app.command()
def weights(
    data: Annotated[str, typer.Option(help="A data set.")] = "mnist",
    methods: Names = "vln,iln,sct",
    seeds: Seeds = "0",
    protocol: Scale = "small",
    weights: Weights = "",
    polarise: Annotated[
        bool, typer.Option(help="Keep masks from interior modes and marginals from 0 and 1; the paper's are not.")
    ] = True,
    results: Results = _RESULTS,
    device: Device = "auto",
) -> None:
    """Sweep the weight of the penalty, as the paper does, and round the number of sites to tens."""
    from keyhole.masks import MASK_DISTRIBUTIONS
    from keyhole_benchmarks import weights as bench

    _check("methods", _names(methods), tuple(MASK_DISTRIBUTIONS))
    asked = (_names(methods), _decimals(weights), _numbers(seeds))
    _run("weights", bench.jobs(protocol, data, *asked, polarise=polarise), results, device)


@app.command()
def steps(
    data: Annotated[str, typer.Option(help="A data set.")] = "ipsl",
    methods: Names = "",
    k: Ks = "20",
    seeds: Seeds = "0",
    steps: Annotated[str, typer.Option(help="Comma-separated; each method's own grid by default.")] = "",
    protocol: Scale = "small",
    results: Results = _RESULTS,
    device: Device = "auto",
) -> None:
    """Grid of learning rates for each mask distribution, scored on the validation part, for the small protocol."""
    from keyhole.data.datasets import DATASETS
    from keyhole_benchmarks import steps as bench

    chosen = _chosen(methods, bench.METHODS)
    _check("data", (data,), tuple(DATASETS))
    jobs = bench.jobs(protocol, data, chosen, _numbers(k), _numbers(seeds), _decimals(steps))
    _run("steps", jobs, results, device)


@app.command()
def quality(
    data: Names = "mnist,ipsl,oisst,ncep,celeba,isolet,coil20,sst",
    methods: Names = "",
    reconstructors: Names = "",
    k: Ks = "",
    seeds: Seeds = "0",
    limit: Limit = 1200.0,
    results: Results = _RESULTS,
    device: Device = "auto",
) -> None:
    """Error of auto in a given time, beside its goals and classical sites."""
    from keyhole_benchmarks import quality as bench

    chosen = _chosen(methods, bench.METHODS)
    fitted = _chosen(reconstructors, bench.RECONSTRUCTORS, "reconstructors")
    _check("data", _names(data), tuple(bench.GOALS))
    _run("quality", bench.jobs(_names(data), chosen, fitted, _numbers(k), _numbers(seeds), limit), results, device)


@app.command()
def ablation(
    data: Names = "mnist,ipsl",
    variants: Names = "",
    seeds: Seeds = "0",
    limit: Limit = 1200.0,
    results: Results = _RESULTS,
    device: Device = "auto",
) -> None:
    """Ablation of auto: one stage is left out at a time, and each mask distribution replaces the search."""
    from keyhole_benchmarks import ablation as bench

    chosen = _chosen(variants, tuple(bench.VARIANTS))
    _check("data", _names(data), tuple(bench.N_SITES))
    _run("ablation", bench.jobs(_names(data), chosen, _numbers(seeds), limit), results, device)


@app.command()
def networks(
    data: Names = "sst,ipsl,oisst,ncep,mnist",
    variants: Names = "",
    seeds: Seeds = "0",
    results: Results = _RESULTS,
    device: Device = "auto",
) -> None:
    """Cost of constraints, noise, missing values and failures, and coverage of prediction intervals."""
    from keyhole_benchmarks import networks as bench

    chosen = _chosen(variants, tuple(bench.VARIANTS), "variants")
    _check("data", _names(data), tuple(bench.N_SITES))
    _run("networks", bench.jobs(_names(data), chosen, _numbers(seeds)), results, device)


@app.command()
def graphs(
    hours: Annotated[str, typer.Option(help="Measured hours, comma-separated.")] = "24,48,384",
    methods: Names = "",
    reconstructors: Names = "",
    k: Ks = "",
    seeds: Seeds = "0,1,2",
    results: Results = _RESULTS,
    device: Device = "cpu",
) -> None:
    """Sensors on the embedded water network, with its graph and without."""
    from keyhole_benchmarks import graphs as bench

    chosen = _chosen(methods, bench.METHODS)
    fitted = _chosen(reconstructors, bench.RECONSTRUCTORS, "reconstructors")
    jobs = bench.jobs(_numbers(hours), chosen, fitted, _numbers(k), _numbers(seeds))
    _run("graphs", jobs, results, device)


@app.command()
def floor(
    data: Names = "",
    k: Ks = "",
    seeds: Seeds = "0",
    results: Results = _RESULTS,
    device: Device = "cpu",
) -> None:
    """The default select beside PCA, QR and ridge, on samples later than both have seen."""
    from keyhole_benchmarks import floor as bench
    from keyhole_benchmarks.floor_sets import FLOOR_SETS

    chosen = _chosen(data, tuple(FLOOR_SETS), "data")
    _run("floor", bench.jobs(chosen, _numbers(k), _numbers(seeds)), results, device)


@app.command()
def tables(
    data: Names = "breast_cancer,digits,isolet,coil20,madelon",
    methods: Names = "",
    seeds: Annotated[str, typer.Option(help="Numbers of the splits, comma-separated.")] = "0,1,2,3,4",
    limit: Limit = 60.0,
    processor: Annotated[
        bool, typer.Option("--processor", help="Count time limits in seconds of the processor, on a shared machine.")
    ] = False,
    results: Results = _RESULTS,
    device: Device = "auto",
) -> None:
    """Feature selection for classification: Keyhole beside scikit-learn and other packages."""
    from keyhole_benchmarks import tables as bench
    from keyhole_benchmarks.peers import PEERS

    chosen = _chosen(methods, tuple(PEERS))
    _check("data", _names(data), tuple(bench.N_SITES))
    there = [name for name in chosen if _is_there(name, PEERS[name])]
    _run("tables", bench.jobs(_names(data), there, _numbers(seeds), limit, by_processor=processor), results, device)


@app.command()
def speed(
    tasks: Annotated[str, typer.Option(help="Comma-separated; all by default.")] = "",
    seeds: Seeds = "0",
    results: Results = _RESULTS,
    device: Device = "cpu",
) -> None:
    """Time and memory, as ratios in one run."""
    from keyhole_benchmarks.speed import SPEED_TESTS, jobs

    chosen = _chosen(tasks, tuple(SPEED_TESTS), "tasks")
    installed = [name for name in chosen if _is_there(name, SPEED_TESTS[name])]
    _run("speed", jobs(installed, _numbers(seeds)), results, device)


@app.command()
def gradients(
    methods: Names = "",
    repetitions: Annotated[int, typer.Option(min=2, help="Estimates of each gradient.")] = 4000,
    seeds: Seeds = "0,1,2",
    results: Results = _RESULTS,
    device: Device = "cpu",
) -> None:
    """Bias and variance of gradient estimators of mask distributions, beside the gradient by enumeration."""
    from keyhole_benchmarks import gradients as bench

    chosen = _chosen(methods, tuple(bench.ESTIMATORS))
    _run("gradients", bench.jobs(chosen, repetitions, _numbers(seeds)), results, device)


@app.command()
def examples(
    names: Annotated[str, typer.Option(help="Comma-separated; all by default.")] = "",
    methods: Names = "",
    seeds: Seeds = "0,1,2",
    steps: Annotated[float, typer.Option(min=0.001, help="Factor of the steps of all trainings.")] = 1.0,
    results: Results = _RESULTS,
    device: Device = "cpu",
) -> None:
    """Sites learned through a decoder and a loss of one's own, beside classical sites with the same decoder."""
    from keyhole_benchmarks import examples as bench

    chosen = _chosen(methods, bench.METHODS)
    tasks = _chosen(names, tuple(bench.EXAMPLES), "names")
    _run("examples", bench.jobs(tasks, chosen, _numbers(seeds), steps), results, device)


@app.command()
def l1() -> None:
    """Show that an l1 penalty on masks has no minimum, unlike the expected L0."""
    from keyhole_benchmarks.ill_posed import halve

    typer.echo("halved  error     l1        shown sites")
    for row in halve():
        typer.echo(f"{row.times:>6}  {row.error:.6f}  {row.l1:.6f}  {row.shown:.6f}")


@app.command()
def cost(
    samples: Annotated[int, typer.Option(min=1, help="Samples of the field.")] = 100_000,
    sites: Annotated[int, typer.Option(min=1, help="Sites of the field, of one channel in single precision.")] = 10**7,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Sensors to select.")] = 50,
    chunk: Annotated[int, typer.Option(min=1, help="Samples that are stored together.")] = 10,
    shuffled: Annotated[bool, typer.Option("--shuffled", help="Parts drawn at random.")] = False,
) -> None:
    """Estimate what greedy selection and ridge cost on a field that stays in its file."""
    from keyhole_benchmarks.cost import estimate

    found, gib = estimate(samples, sites, k, chunk=chunk, shuffled=shuffled), 2**30
    for what, amount in (
        ("data", f"{4 * samples * sites / gib:.1f} GiB"),
        ("passes", f"{found.passes:.1f}"),
        ("read", f"{found.passes * 4 * samples * sites / gib:.1f} GiB"),
        ("memory of the process that selects", f"{found.memory / gib:.1f} GiB"),
        ("memory of a dask worker", f"{found.worker / gib:.1f} GiB"),
        ("received by each worker", f"{found.received / gib:.1f} GiB"),
        ("sent by all workers", f"{found.sent / gib:.1f} GiB in {found.messages} messages"),
        ("operations", f"{found.operations:.2g}"),
    ):
        _echo(f"{what:<36}{amount}")


@app.command()
def figures(
    data: Names = "mnist,ipsl,ncep,celeba",
    methods: Names = "",
    k: Ks = "",
    seeds: Seeds = "0",
    protocol: Scale = "small",
    results: Results = _RESULTS,
    out: Annotated[Path, typer.Option(help="Folder for the pictures, PNG and SVG.")] = Path("docs/images/paper"),
    private: Annotated[Path, typer.Option(help="Folder for pictures that may not be published (CelebA).")] = _PRIVATE,
    device: Device = "auto",
) -> None:
    """Draw the paper's figures, after training the cases they show that have not been run."""
    from keyhole.data.datasets import DATASETS
    from keyhole_benchmarks import figures as bench
    from keyhole_benchmarks.drawing import draw_all

    chosen = _chosen(methods, bench.METHODS)
    _check("data", _names(data), tuple(DATASETS))
    for name, jobs in bench.prerequisites(protocol, _names(data), chosen, _numbers(k), _numbers(seeds)):
        _run(name, jobs, results, device, to_draw=True)
    for path in draw_all(results, out, private, seeds=_numbers(seeds)):
        _echo(path)


@app.command()
def learned(
    data: Names = "", methods: Names = "", k: Ks = "", seeds: Seeds = "0,1,2", results: Results = _RESULTS,
    device: Device = "auto",
) -> None:  # fmt: skip
    """Learned masks of exactly K sites beside classical and local search, for fields and classes, with one refit."""
    from keyhole_benchmarks import learned as bench

    names, chosen = _chosen(data, tuple(bench.KS), "data"), _chosen(methods, tuple(bench.METHODS))
    _run("learned", bench.jobs(names, chosen, _numbers(k), _numbers(seeds)), results, device)


@app.command()
def show(
    results: Results = _RESULTS,
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("docs/results.md"),
    readme: Annotated[Path | None, typer.Option(help="A README whose table is to be renewed.")] = None,
) -> None:
    """Write the results page, Markdown and SVG, from the JSON lines alone."""
    from keyhole_benchmarks.page import write_page

    check_apart({"--results": results}, {"--out": out, "--readme": readme}, read_from_folders=(".jsonl",))
    for path in write_page(results, out, readme):
        _echo(path)


def _run(bench: str, jobs: Iterable[Job], results: Path, device: str, *, to_draw: bool = False) -> None:
    from keyhole.core.interrupts import stoppable
    from keyhole_benchmarks.records import Store
    from keyhole_benchmarks.runner import run_jobs

    store = Store(results, bench)
    with stoppable(_warn):
        added = run_jobs(jobs, store, device=device, say=_echo, to_draw=to_draw)
    _echo(f"{added} lines added to {store.path}" if added else f"{store.path} holds every case already")


def _is_there(name: str, one: Peer | SpeedTest) -> bool:
    """Whether a package is installed; says so where it is not."""
    if not one.is_there():
        _warn(f"{name} is left out: it needs pip install 'keyhole-benchmarks[peers]'")
    return one.is_there()


def _warn(message: str) -> None:
    typer.echo(visible(message), err=True)


def _echo(text: object) -> None:
    typer.echo(visible(str(text)))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _chosen(given: str, known: tuple[str, ...], option: str = "methods") -> tuple[str, ...]:
    """Methods, or the like, that an option names; all of them where it names none."""
    chosen = _names(given) or known
    _check(option, chosen, known)
    return chosen


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(name) for name in _names(text))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: whole numbers, separated by commas, are needed") from error


def _decimals(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(name) for name in _names(text))
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: numbers, separated by commas, are needed") from error


def _check(option: str, given: tuple[str, ...], known: tuple[str, ...]) -> None:
    for name in given:
        if name not in known:
            raise typer.BadParameter(f"{name!r}: there are {', '.join(known)}", param_hint=f"--{option}")


def main() -> None:
    """Run `keyhole-bench`."""
    from keyhole.cli import run

    run(app)
