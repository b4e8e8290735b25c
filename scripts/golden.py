"""The golden record: what small cases of every part give today, to be held against what they give after a change.

``python scripts/golden.py`` runs all cases and prints where they differ from ``tests/golden/record.json`` (exit code 1
if any does). ``--write`` makes the record anew; it may change only with a line in CHANGELOG.md that says why.
``--write-plans`` makes the plan files of format 1 in ``tests/golden/format1``, which must load for ever: it is there to
show how they were made, and for parts that have none yet. Those in ``tests/golden/format2`` were made likewise.

A case is data: what goes in by name, and the arguments of one call. Where arguments change their names, they change
here, and the record stays. A ``closed form`` must choose the same sites and leave the same errors; of a ``search``,
which draws at random or trains, only the score must be the same, nearly, and its sites legal.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import keyhole as kh
from keyhole.data import Sensors

FOLDER = Path(__file__).parents[1] / "tests" / "golden"
RECORD, PLANS = FOLDER / "record.json", FOLDER / "format4"
CLOSED, SEARCH = "closed form", "search"
SAME, NEARLY = 1e-6, 2e-3  # relative difference of an error that a closed form, and a search, may show
KEPT = ("mse", "fvu", "target_mse", "target_fvu", "target_error", "target_log_loss")
JUDGED = ("target_log_loss", "target_fvu", "fvu")  # the first that a case has is its score
measured = partial(kh.select, refit=False)  # errors and sites of one and the same plan
QUICK = {"steps": 12, "batch_size": 16, "ema_decay": 0.0}


# Data


def smooth(n: int, shape: tuple[int, ...], *, seed: int, rank: int = 8, noise: float = 0.05) -> NDArray[np.float64]:
    """Samples of smooth modes whose variances fall by half from one to the next, and a little noise."""
    rng = np.random.default_rng(seed)
    axes = np.meshgrid(*(np.linspace(0, 1, size) for size in shape), indexing="ij")
    modes = np.stack([
        np.prod([np.cos(np.pi * rng.integers(0, 4) * axis + rng.uniform(0, np.pi)) for axis in axes], axis=0)
        for _ in range(rank)
    ])  # fmt: skip
    sizes = 0.5 ** (np.arange(rank) / 2)
    values = np.tensordot(rng.normal(size=(n, rank)) * sizes, modes, axes=1)
    return np.asarray(values + noise * rng.normal(size=values.shape))


def in_time(values: NDArray[Any], **axes: Any) -> Any:
    """Give samples, one a month, as a labelled field."""
    import xarray as xr

    time = (np.datetime64("1990-01", "M") + np.arange(len(values))).astype("datetime64[ns]")
    return xr.DataArray(values.astype(np.float32), {"time": time, **axes}, ("time", *axes), "value")


def line(size: int) -> NDArray[np.float64]:
    """Coordinates of an axis without a place on the globe."""
    return np.arange(float(size))


@cache
def field() -> Any:
    """On a plane, without land."""
    return in_time(smooth(90, (6, 7), seed=1), y=line(6), x=line(7))


@cache
def globe() -> Any:
    """On latitude and longitude, with land and a yearly cycle."""
    values = smooth(96, (6, 8), seed=2) + 8 * np.cos(2 * np.pi * np.arange(96) / 12)[:, None, None] + 15
    values[:, 1, 2] = values[:, 4, 5] = np.nan
    return in_time(values, lat=np.linspace(-50.0, 50.0, 6), lon=np.arange(0.0, 360.0, 45.0))


@cache
def few() -> Any:
    """So few samples of so many cells that covariances are best localised."""
    return in_time(smooth(40, (7, 9), seed=3, rank=12, noise=0.3), y=line(7), x=line(9))


@cache
def column() -> Any:
    """With depth: sensors that come together."""
    return in_time(smooth(80, (3, 4, 4), seed=4), depth=np.array([0.0, 10.0, 50.0]), y=line(4), x=line(4))


@cache
def incomplete() -> Any:
    """With values that are missing in some samples."""
    made = field().copy(deep=True)
    gone = np.random.default_rng(5).uniform(size=made.shape) < 0.08
    return made.where(~gone)


@cache
def curved() -> Any:
    """Cells that follow the causes, the first row, up and down: no linear estimate serves."""
    rng = np.random.default_rng(6)
    causes = rng.uniform(-2, 2, (160, 6))
    values = np.sin(1.5 * causes @ rng.normal(size=(6, 30))) + 0.05 * rng.normal(size=(160, 30))
    values[:, :6] = causes
    return in_time(values.reshape(160, 5, 6), y=line(5), x=line(6))


@cache
def two_channels() -> Any:
    """Two fields on one grid, the second partly a copy of the first."""
    import xarray as xr

    first, second = smooth(80, (5, 6), seed=7), smooth(80, (5, 6), seed=8)
    axes = {"y": line(5), "x": line(6)}
    return xr.Dataset({"u": in_time(first, **axes), "v": in_time(30 * (second + 0.5 * first), **axes)})


def with_channels() -> Any:
    """Both of them read, as channels of a site."""
    return kh.read(two_channels(), variable=["u", "v"])


def with_channels_apart() -> Any:
    """Both of them read, as sites of their own."""
    return with_channels().channels_apart()


def monthly_anomalies() -> Any:
    """What is left of the globe without its yearly cycle."""
    return kh.read(globe()).anomalies("month")


@cache
def array() -> NDArray[np.float32]:
    """A bare array: samples that do not follow each other in time."""
    return smooth(90, (6, 6), seed=9).astype(np.float32)


@cache
def graph() -> Any:
    """On a ring of nodes, few samples: what is said of one is nearly said of its neighbours."""
    ring = np.roll(np.eye(24), 1, axis=1)
    rng = np.random.default_rng(14)
    waves = np.cos(2 * np.pi * np.outer(np.arange(1, 5), np.arange(24)) / 24 + rng.uniform(0, 6, (4, 1)))
    values = rng.normal(size=(40, 4)) @ waves + 0.5 * rng.normal(size=(40, 24))
    return kh.read(values, graph=ring + ring.T)


def table(kind: str) -> Any:
    """A frame of columns, and one more to be predicted from them: a class or a number."""
    import pandas as pd

    rng = np.random.default_rng(10)
    values = rng.normal(size=(150, 5)) @ rng.normal(size=(5, 14)) + 0.3 * rng.normal(size=(150, 14))
    score = values[:, 3] - values[:, 8] + 0.3 * np.abs(values[:, 5]) + 0.2 * rng.normal(size=150)
    frame = pd.DataFrame(values, columns=[f"c{i:02d}" for i in range(14)])
    answer = np.select([score > 0.8, score < -0.8], ["high", "low"], "middle") if kind == "class" else score
    return frame.assign(answer=answer)


DATA: dict[str, Callable[[], Any]] = {
    "field": field,
    "globe": globe,
    "few": few,
    "column": column,
    "incomplete": incomplete,
    "curved": curved,
    "channels": with_channels,
    "channels apart": with_channels_apart,
    "anomalies": monthly_anomalies,
    "array": array,
    "classes": lambda: table("class"),
    "numbers": lambda: table("number"),
    "graph": graph,
    "sst": lambda: kh.datasets.sst(),
}


def between_cells() -> Sensors:
    """Moorings on and between the cells of the globe."""
    rng = np.random.default_rng(5)
    return Sensors.at({"lat": rng.uniform(-60, 60, 12), "lon": rng.uniform(0, 360, 12)}, noise=0.0)


# Cases: what to do, with what, and the arguments of the call

RIDGE = {"method": "greedy", "reconstructor": "ridge"}


def case(
    data: str, k: int | None, kind: str = CLOSED, do: str = "select", *, tolerance: float | None = None, **options: Any
) -> dict[str, Any]:
    """Give a case: one call, on data by their name; on the globe of deviations from the mean unless it says more."""
    if data == "globe":
        options = {"anomalies": "none", **options}
    tolerance = tolerance or (SAME if kind == CLOSED else NEARLY)
    return {"data": data, "k": k, "kind": kind, "tolerance": tolerance, "do": do, "options": options}


def _selectors() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every selector, those that train with few steps."""
    sparse = ("lasso", "group_lasso", "sparse_group_lasso", "exclusive_lasso", "self_representation")
    for name in ("greedy", "qr", "variance", "laplacian", "mcfs", *sparse, "linear_autoencoder"):
        yield name, case("field", 5, method=name, reconstructor="ridge")
    for name in ("exchange", "random"):
        yield name, case("few", 6, method=name, reconstructor="ridge")
    yield (
        "kernel_exchange",
        case("curved", 4, SEARCH, method="kernel_exchange", reconstructor="kernel", settings={"n_restarts": 2}),
    )
    for name in ("learned", "iln", "vln", "hnet", "sct", "simplex", "cgan"):
        alone = {"warm_start": "none"} if name in ("iln", "vln", "sct", "simplex") else {}
        settings = {"train": {**QUICK, "steps": 40} if alone else QUICK, "n_masks": 8, **alone}
        yield name, case("field", 5, SEARCH, method=name, reconstructor="ridge", settings=settings)
    # From the sites of greedy selection: a cold start goes by the eigenvectors, which vary by processor.
    settings = {"train": {**QUICK, "steps": 40}, "n_masks": 8}
    yield "graph_vln", case("graph", 4, SEARCH, method="graph_vln", reconstructor="ridge", settings=settings)
    for name in ("cae", "cae_distinct", "aefs"):
        yield name, case("field", 5, SEARCH, method=name, reconstructor="ridge", settings={"train": QUICK})
    settings = {"train": QUICK, "n_masks": 4}
    yield "auto", case("field", 5, SEARCH, method="auto", reconstructor="ridge", settings=settings)
    for name in ("relevance", "forest"):
        kind = CLOSED if name == "relevance" else SEARCH
        yield name, case("classes", 3, kind, method=name, predictor="linear", target="answer")


def _reconstructors() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every reconstructor, networks with few steps."""
    for name, data in (("ridge", "array"), ("optimal_interpolation", "few"), ("kernel", "curved")):
        yield f"reconstructor {name}", case(data, 5, method="qr", reconstructor=name)
    yield "reconstructor graph_ridge", case("graph", 4, method="greedy", reconstructor="graph_ridge")
    small: dict[str, dict[str, Any]] = {
        "dense": {"width": 16, "blocks": 1},
        "dense_conv": {"width": 16, "blocks": 1, "filters": 4, "layers": 1},
        "resnet": {"filters": 4, "blocks": 1},
        "dcgan": {"filters": 4},
        "generative_prior": {"n_latent": 4, "width": 16, "blocks": 1, "n_steps": 50},
        "residual": {"width": 16, "blocks": 1},
        "ensemble": {"members": 2, "width": 16, "blocks": 1},
    }
    for name, settings in small.items():
        network = {"name": name, "settings": {**settings, "train": {**QUICK, "steps": 40}}}
        yield f"reconstructor {name}", case("curved", 5, SEARCH, "network", method="qr", network=network)
    yield "no time for networks", case("curved", 5, method="auto", reconstructor="auto", time_limit=1e-9)


def _constraints() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every rule that sites keep to."""
    price = 1 + np.arange(42).reshape(6, 7) % 5
    costs = field()[0].drop_vars("time").copy(data=price.astype(float))
    rules: dict[str, tuple[str, int | None, dict[str, Any]]] = {
        "allowed region": ("globe", 4, {"allowed": {"lat": (-30, 30)}, "forbidden": {"lon": (80, 140)}}),
        "least distance": ("globe", 4, {"min_distance": 4000}),
        "cost limit": ("field", None, {"costs": costs, "cost_limit": 9}),
        "groups": ("column", 3, {"groups": "depth"}),
        "existing sites": ("field", 3, {"existing": [3, 20]}),
    }
    for name, (data, k, constraints) in rules.items():
        yield name, case(data, k, constraints=constraints, **RIDGE)
    yield (
        "exchange at a distance",  # with 4 sites all processors tried end in one optimum, with 5 they do not
        case("few", 4, method="exchange", reconstructor="ridge", constraints={"min_distance": 3}),
    )


def _circumstances() -> Iterator[tuple[str, dict[str, Any]]]:
    """What data may be like, and what may be asked of them."""
    weights = field()[0].drop_vars("time").copy(data=np.linspace(0.1, 2.0, 42).reshape(6, 7))
    # Imputation goes on until it changes little: how little depends on the processor.
    yield "missing values", case("incomplete", 4, missing="model", tolerance=NEARLY, **RIDGE)
    yield "measurement noise", case("field", 4, SEARCH, noise=0.4, **RIDGE)
    yield "failures", case("field", 5, failures=1, **RIDGE)
    yield "loss weights", case("field", 4, weights=weights, **RIDGE)
    yield "weights by area", case("globe", 4, weights="area", **RIDGE)
    yield "no weights", case("globe", 4, weights="none", **RIDGE)
    yield "several channels", case("channels", 4, **RIDGE)
    yield "channels apart", case("channels apart", 5, **RIDGE)
    yield "sensors between cells", case("globe", 3, sensors=between_cells(), **RIDGE)
    kinds = {"buoy": Sensors.every_site(noise=0.5, cost=1), "float": Sensors.every_site(noise=0.05, cost=3)}
    yield "kinds of sensors", case("globe", 4, SEARCH, sensors=kinds, constraints={"cost_limit": 8}, **RIDGE)
    yield "anomalies by month", case("anomalies", 4, method="qr", reconstructor="optimal_interpolation")
    yield "anomalies by the calendar", case("globe", 4, anomalies="auto", **RIDGE)
    yield "no bands", case("field", 4, intervals=False, **RIDGE)
    yield "sea-surface temperature", case("sst", 8, method="qr", reconstructor="ridge")
    yield "sea-surface temperature, greedy", case("sst", 6, method="greedy", reconstructor="optimal_interpolation")
    yield "fitted to all samples", case("sst", 6, refit=True, **RIDGE)
    yield "class", case("classes", 3, method="relevance", predictor="linear", target="answer")
    yield "number", case("numbers", 3, method="relevance", predictor="linear", target="answer")
    predictor = {"name": "network", "settings": {"width": 16, "blocks": 1, "train": {**QUICK, "steps": 60}}}
    network = {"name": "ridge", "settings": {}}
    options = {"method": "relevance", "target": "answer", "network": network, "predictor": predictor}
    yield "number by a network", case("numbers", 3, SEARCH, "network", **options)


def _commands() -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything but `select`."""
    yield "stored in zarr", case("globe", 5, do="stored", file="zarr", method="greedy")
    yield "stored in netcdf", case("globe", 5, do="stored", file="nc", method="auto")
    yield "extend", case("field", 2, do="extend", first=3, **RIDGE)
    yield "drop", case("field", 2, do="drop", first=5, **RIDGE)
    yield "curve", case("globe", None, do="curve", ks=[2, 4], methods=["greedy", "qr"], reconstructor="ridge")
    yield (
        "compare",
        case("few", 4, do="compare", methods=["greedy", "qr", "variance"], reconstructor="optimal_interpolation"),
    )


CASES: dict[str, dict[str, Any]] = {
    **dict(_selectors()),
    **dict(_reconstructors()),
    **dict(_constraints()),
    **dict(_circumstances()),
    **dict(_commands()),
}


# What runs them: all that knows how Keyhole is called


def samples_of(data: Any) -> int:
    """Give the number of samples."""
    return len(data.time) if hasattr(data, "data_vars") else len(data)


def split_of(n: int) -> Any:
    """Cut samples in blocks, by their numbers: nothing is left to what is usual."""
    from keyhole.data.splits import Split

    first, second = int(0.6 * n), int(0.8 * n)
    return Split.given(range(first), range(second, n), list(range(first, second)))


def select(data: Any, k: int | None, **options: Any) -> list[dict[str, Any]]:
    """One plan by `select`."""
    return [_of_plan(measured(data, k, split=split_of(samples_of(data)), **options))]


def network(data: Any, k: int, **options: Any) -> list[dict[str, Any]]:
    """One plan with a reconstructor or predictor whose settings are given."""
    return [_of_plan(plan_with_network(data, k, **options))]


def plan_with_network(
    data: Any, k: int, *, method: str, network: Mapping[str, Any], predictor: Mapping[str, Any] | None = None,
    target: str | None = None,
) -> kh.Plan:  # fmt: skip
    """Give a plan as `select` makes it, with settings of what is trained."""
    models = {"reconstructor": network, "predictor": predictor or {"name": "auto", "settings": {}}}
    settings = {f"{part}.{name}": v for part, model in models.items() for name, v in model["settings"].items()}
    return measured(
        data, k, method=method, reconstructor=network["name"], predictor=models["predictor"]["name"],
        settings=settings, target=target, split=split_of(len(kh.read(data, target=target))),
    )  # fmt: skip


def stored(data: Any, k: int, *, file: str, **options: Any) -> list[dict[str, Any]]:
    """One plan of a field that stays in its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"field.{file}"
        if file == "zarr":
            chunks = {str(data.name): {"chunks": (10, *data.shape[1:])}}
            data.to_dataset().to_zarr(path, consolidated=False, encoding=chunks)
        else:
            data.to_netcdf(path)
        options = {"reconstructor": "ridge", "split": split_of(samples_of(data)), **options}
        return [_of_plan(measured(path, k, memory=int(2.9 * data.nbytes), **options))]


def extend(data: Any, k: int, *, first: int, **options: Any) -> list[dict[str, Any]]:
    """A plan, and one with more sites."""
    plan = measured(data, first, split=split_of(samples_of(data)), **options)
    return [_of_plan(kh.extend(plan, data, k, refit=False, split=split_of(samples_of(data)), **options))]


def drop(data: Any, k: int, *, first: int, **options: Any) -> list[dict[str, Any]]:
    """A plan, and one with fewer sites."""
    plan = measured(data, first, split=split_of(samples_of(data)), **options)
    return [_of_plan(kh.drop(plan, data, k, reconstructor=options["reconstructor"], refit=False))]


def curve(data: Any, k: None, *, ks: list[int], methods: list[str], **options: Any) -> list[dict[str, Any]]:
    """Every row of a curve."""
    found = kh.curve(data, ks, methods, split=split_of(samples_of(data)), **options)
    return [_of_result(one.sites, options["reconstructor"], one.validation, one.test) for one in found.rows]


def compare(data: Any, k: int, *, methods: list[str], reconstructor: str) -> list[dict[str, Any]]:
    """The plan of every method, in the order in which they were named."""
    from keyhole.workflow.comparison import compare as run

    found = run(data, k, methods, reconstructor=reconstructor, split=split_of(samples_of(data)))
    return [_of_plan(one.plan) for one in sorted(found.entries, key=lambda one: methods.index(one.method))]


RUNNERS: dict[str, Callable[..., list[dict[str, Any]]]] = {
    "select": select,
    "network": network,
    "stored": stored,
    "extend": extend,
    "drop": drop,
    "curve": curve,
    "compare": compare,
}


def _of_plan(plan: kh.Plan) -> dict[str, Any]:
    if (plan.numbers < 0).any():
        raise ValueError(f"sites {plan.indices.tolist()}: some are where there are no values")
    return _of_result(plan.indices, plan.reconstructor.name, plan.metrics["validation"], plan.metrics["test"])


def _of_result(
    sites: NDArray[np.int64], reconstructor: str, validation: Mapping[str, float], test: Mapping[str, float]
) -> dict[str, Any]:
    parts = {"validation": validation, "test": test}
    errors = {part: {name: float(scores[name]) for name in KEPT if name in scores} for part, scores in parts.items()}
    return {"sites": [int(site) for site in sites], "reconstructor": reconstructor, **errors}


def run_case(name: str) -> dict[str, Any]:
    """Run a case, and give what the record holds of it."""
    asked = CASES[name]
    results = RUNNERS[asked["do"]](DATA[asked["data"]](), asked["k"], **asked["options"])
    told = {name: asked[name] for name in ("data", "k", "kind", "tolerance")}
    return {**told, "results": results}


# Comparison


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say in what a case differs from its record; nothing where it does not."""
    found = [f"{name} {now[name]}, recorded {then[name]}" for name in ("data", "k", "kind") if then[name] != now[name]]
    if len(then["results"]) != len(now["results"]):
        return [*found, f"{len(now['results'])} results where there were {len(then['results'])}"]
    for number, (one, other) in enumerate(zip(then["results"], now["results"], strict=True)):
        kind = _of_closed_form if then["kind"] == CLOSED else _of_search
        found += [f"result {number}: {words}" for words in kind(one, other, then["tolerance"])]
    return found


def _of_closed_form(then: Mapping[str, Any], now: Mapping[str, Any], tolerance: float) -> Iterator[str]:
    for name in ("sites", "reconstructor"):
        if then[name] != now[name]:
            yield f"{name} {now[name]}, recorded {then[name]}"
    for part in ("validation", "test"):
        for name in then[part]:
            yield from _beyond(tolerance, f"{part} {name}", then[part][name], now[part].get(name, np.nan))


def _of_search(then: Mapping[str, Any], now: Mapping[str, Any], tolerance: float) -> Iterator[str]:
    if then["reconstructor"] != now["reconstructor"]:
        yield f"reconstructor {now['reconstructor']}, recorded {then['reconstructor']}"
    if len(now["sites"]) != len(then["sites"]) or len(set(now["sites"])) < len(now["sites"]):
        yield f"sites {now['sites']}: {len(then['sites'])} distinct ones are needed"
    score = next(name for name in JUDGED if name in then["validation"])
    for part in ("validation", "test"):
        yield from _beyond(tolerance, f"{part} {score}", then[part][score], now[part].get(score, np.nan))


def _beyond(tolerance: float, what: str, then: float, now: float) -> Iterator[str]:
    if not abs(now - then) <= tolerance * abs(then):
        yield f"{what} {now:.9g}, recorded {then:.9g}"


# Plans, in the format that was written when they were made


def _small_network(name: str, **settings: Any) -> dict[str, Any]:
    return {"name": name, "settings": {"width": 8, "blocks": 1, "train": {**QUICK, "steps": 60}, **settings}}


def small_plans() -> dict[str, Callable[[], kh.Plan]]:
    """Plans of every kind of reconstructor and predictor, on tiny grids."""

    def plain(data: Any, k: int, **options: Any) -> kh.Plan:
        return measured(data, k, split=split_of(samples_of(data)), **options)

    def with_network(network: Mapping[str, Any]) -> kh.Plan:
        return plan_with_network(bent, 3, method="qr", network=network)

    tiny = in_time(smooth(60, (3, 4), seed=11), y=line(3), x=line(4))
    bent = in_time(np.sin(2 * smooth(60, (3, 4), seed=12)), y=line(3), x=line(4))
    by_network = {"network": _small_network("ridge"), "predictor": _small_network("network")}
    by_network["network"]["settings"] = {}
    prior = {"width": 8, "blocks": 1, "n_latent": 2, "n_restarts": 1, "n_steps": 20, "train": QUICK}
    return {
        "ridge": lambda: plain(tiny, 3, **RIDGE),
        "array": lambda: plain(tiny.values, 3, **RIDGE),
        "anomalies": lambda: plain(monthly_anomalies(), 3, method="qr", reconstructor="ridge"),
        "optimal_interpolation": lambda: plain(tiny, 3, method="qr", reconstructor="optimal_interpolation"),
        "kernel": lambda: plain(bent, 3, method="qr", reconstructor="kernel"),
        "channels": lambda: plain(with_channels(), 2, **RIDGE),
        "dense": lambda: with_network(_small_network("dense")),
        "dense_conv": lambda: with_network(_small_network("dense_conv", filters=4, layers=1)),
        "resnet": lambda: with_network({"name": "resnet", "settings": {"filters": 2, "blocks": 1, "train": QUICK}}),
        "dcgan": lambda: with_network({"name": "dcgan", "settings": {"filters": 2, "train": QUICK}}),
        "residual": lambda: with_network(_small_network("residual")),
        "generative_prior": lambda: with_network({"name": "generative_prior", "settings": prior}),
        "ensemble": lambda: with_network(_small_network("ensemble", members=2)),
        "class": lambda: plain(table("class"), 3, method="relevance", predictor="linear", target="answer"),
        "number": lambda: plan_with_network(table("number"), 3, method="relevance", target="answer", **by_network),
    }


def readings_for(plan: kh.Plan) -> dict[str, Any]:
    """Give three readings of each site, in the units of the plan, and a time for each."""
    rng = np.random.default_rng(13)
    channels = len(plan.scaling.scale)
    values = rng.normal(size=(3, plan.k, channels)) * np.asarray(plan.scaling.scale).reshape(-1)[:channels]
    time = ["2001-01-01", "2001-04-01", "2001-08-01"] if plan.scaling.climatology.needs_time else None
    return {"readings": np.round(values, 3).tolist(), "time": time}


def answers_of(plan: kh.Plan, given: Mapping[str, Any]) -> dict[str, Any]:
    """Give what a plan makes of readings: all that a file must still give when it is loaded."""
    readings, time = np.array(given["readings"]), given["time"]
    time = None if time is None else np.array(time, "datetime64[ns]")
    made: dict[str, Any] = {"sites": [int(site) for site in plan.indices], "names": list(plan.sites["name"])}
    made["reconstruction"] = _numbers(plan.reconstruct(readings, time=time))
    if plan.intervals is not None:
        band = plan.reconstruct(readings, time=time, interval=0.9)
        made["low"], made["high"] = _numbers(band[1]), _numbers(band[2])
    if plan.predictor is not None:
        predicted = np.asarray(plan.predict(readings, time=time))
        made["prediction"] = predicted.tolist()
    return made


def _numbers(reconstructed: Any) -> list[float | None]:
    """Give some of the values, evenly spaced, whatever kind of object they are in; None where there is none."""
    parts = (
        [np.asarray(reconstructed[name]) for name in reconstructed]
        if hasattr(reconstructed, "data_vars")
        else [np.asarray(reconstructed)]
    )
    flat = np.concatenate([part.ravel() for part in parts]).astype(float)
    return [None if np.isnan(value) else float(value) for value in flat[:: max(1, len(flat) // 40)]]


def write_plans() -> None:
    """Write those that are there in no format, and beside each what it must give."""
    PLANS.mkdir(parents=True, exist_ok=True)
    for name, make in small_plans().items():
        path = PLANS / f"{name}.keyhole"
        if any(FOLDER.glob(f"format*/{path.name}")):
            continue
        plan = make()
        plan.save(path)
        given = readings_for(plan)
        path.with_suffix(".json").write_text(
            json.dumps({**given, "expected": answers_of(plan, given)}, indent=1) + "\n"
        )
        print(f"{path.name}: {path.stat().st_size / 1000:.1f} kB")


def write_record(names: Sequence[str]) -> None:
    """Run some cases, or all, and keep what they give."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    then = json.loads(RECORD.read_text()) if names else {}
    results = {name: run_case(name) if name in names or not names else then[name] for name in CASES}
    rows = [f" {json.dumps(name)}: {json.dumps(result)}" for name, result in results.items()]
    RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def compare_with_record() -> int:
    """Run all cases and print where they differ; give the exit code."""
    record = json.loads(RECORD.read_text())
    found = [f"{name}: not in the record" for name in CASES.keys() - record.keys()]
    found += [f"{name}: no such case" for name in record.keys() - CASES.keys()]
    for name in [name for name in CASES if name in record]:
        found += [f"{name}: {words}" for words in differences(record[name], run_case(name))]
    print("\n".join(found) if found else f"all {len(CASES)} cases are as recorded")
    return int(bool(found))


def main() -> int:
    """Write the record or the plans, or compare."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--write", nargs="*", metavar="CASE", help="make the record anew, of these cases or of all")
    parser.add_argument("--write-plans", action="store_true", help="make the plan files that are not there")
    asked = parser.parse_args()
    if asked.write is not None:
        write_record(asked.write)
    if asked.write_plans:
        write_plans()
    return 0 if asked.write is not None or asked.write_plans else compare_with_record()


if __name__ == "__main__":
    sys.exit(main())
