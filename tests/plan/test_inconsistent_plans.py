"""Plans whose checksum is right and whose content is made up: refused when loaded, or whole in use."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from rich.console import Console
from safetensors.numpy import save

import keyhole as kh
from example_data import little_memory, monthly_field, quick, smooth
from keyhole import Plan
from keyhole.core.run import Run
from keyhole.core.storage import MAGIC, VERSION, read_container, write_container
from keyhole.data import Sensors
from keyhole.data.coordinates import Auxiliary
from keyhole.data.graph_metric import GraphMetric
from keyhole.data.mesh import Mesh
from keyhole.data.metric import NoMetric
from keyhole.data.origin import SourceInfo
from keyhole.data.preparation import prepare
from keyhole.data.samples import Samples
from keyhole.data.sites import Sites
from keyhole.errors import DataError, PlanError
from keyhole.models.reconstructors import RECONSTRUCTORS
from keyhole.placement import SELECTORS, Selection
from keyhole.plan.files import write_reconstruction
from keyhole.report.tables import plan_summary, plan_table
from keyhole.workflow.selection import make_plan

TRAIN = {"steps": 1, "validation_steps": 1, "batch_size": 8}
SETTINGS: dict[str, dict[str, Any]] = {
    "ridge": {},
    "optimal_interpolation": {},
    "kernel": {},
    "dense": {"width": 4, "blocks": 1, "train": TRAIN},
    "dense_conv": {"width": 4, "blocks": 1, "filters": 2, "layers": 1, "train": TRAIN},
    "resnet": {"filters": 2, "blocks": 1, "train": TRAIN},
    "dcgan": {"filters": 2, "train": TRAIN},
    "generative_prior": {"n_latent": 2, "width": 4, "blocks": 1, "n_steps": 2, "n_restarts": 2, "train": TRAIN},
    "residual": {"width": 4, "blocks": 1, "train": TRAIN},
    "ensemble": {"members": 2, "width": 4, "blocks": 1, "train": TRAIN},
}
TARGETS = {"class": "linear", "number": "linear", "network": "network"}
FIELDS = ("field", "dataset", "constrained")
GEOMETRIES = ("stations", "graph", "mesh", "sensors")
KINDS = [*SETTINGS, *TARGETS, *FIELDS, *GEOMETRIES]
MOST_ARRAYS = 8
# Of these plans every part is changed; of the others what is theirs alone, since the rest is stored in the same way.
WHOLE = ("class", "dataset")
OWN = {
    **dict.fromkeys(SETTINGS, ("reconstructor",)),
    **dict.fromkeys(TARGETS, ("predictor",)),
    "ridge": ("reconstructor", "scaling"),
    "field": ("reconstructor", "scaling"),
    "constrained": ("constraints", "scaling"),
    **dict.fromkeys(GEOMETRIES, ("grid", "coordinate_types", "coordinate_texts", "coordinates", "graph", "mesh")),
    "sensors": ("sensors",),
}


def of_reconstructor(name: str) -> Plan:
    """A small plan with this reconstructor; clipped values, so that networks have limits."""
    parts = prepare(kh.read(np.maximum(smooth(60, 4, 5), 0)), None, 0)
    sites, run = np.array([3, 11]), Run()
    fitted = RECONSTRUCTORS[name](**SETTINGS[name]).fit(parts.train, sites, validation=parts.validation, run=run)
    return make_plan(parts, Selection(sites), fitted, SELECTORS["qr"](), run, method="qr", intervals=True)


def of_target(kind: str) -> Plan:
    """A small plan of a table with a target."""
    table = pd.DataFrame(smooth(60, 5), columns=list("abcde"))
    column = table["a"] * 2 if kind == "number" else np.where(table["a"] > 0, "x", "y")
    options: Any = {"method": "qr", "reconstructor": "ridge", "predictor": TARGETS[kind], "time_limit": 1}
    return kh.select(table.assign(aim=column), 2, target="aim", **options)


def of_field(kind: str) -> Plan:
    """A small plan of a field by month with land, of a Dataset with two variables, or with constraints and groups."""
    field = monthly_field()
    if kind == "constrained":
        groups = np.arange(20).reshape(4, 5) // 2
        known = kh.read(field.astype(float)).with_covariates("year", columns=np.arange(60.0))
        return quick(known, k=1, constraints={"groups": groups})
    if kind == "field":
        return quick(kh.read(field).anomalies("month"), k=2)
    field["lon"].attrs, plain = {}, field.drop_attrs(deep=False)
    both = xr.Dataset({"sst": field, "salt": plain**2}, attrs={"title": "two"})
    return quick(kh.read(both), k=2)


def of_geometry(kind: str) -> Plan:
    """A small plan of stations with positions and areas, of the nodes of a graph, of faces, or of sensors."""
    values = smooth(60, 12)
    if kind == "sensors":
        labelled = kh.read(smooth(60, 4, 5, 2), channels=-1).channels_apart()
        where = {"channel": ["channel 0", "channel 1"], "row": [0.5, 1], "column": [2.5, 3]}
        between = Sensors.at(where, noise=0.1, cost=1, kind=["x", "y"])
        return quick(labelled.with_sensors(between), k=2)
    if kind == "mesh":
        samples = kh.read(values)
        faces = np.array([[i, i + 1, 13] for i in range(12)])
        mesh = Mesh("column", "face", faces, np.append(np.arange(13.0), 6.0), np.append(np.zeros(13), 5.0))
        return quick(replace(samples, sites=replace(samples.sites, mesh=mesh)), k=2)
    if kind == "graph":
        samples = kh.read(values)
        lengths = np.diag(np.arange(1.0, 13.0), 1)
        metric = GraphMetric(lengths + lengths.T).take(np.arange(1, 13))
        return quick(replace(samples, sites=replace(samples.sites, metric=metric)), k=2)
    places = {
        "lat": np.linspace(-60, 60, 12), "lon": np.arange(12) * 30.0, "depth": np.arange(12.0),
        "basin": list("aabbccddeeff"),
    }  # fmt: skip
    auxiliary = {name: Auxiliary(("station",), np.array(one)) for name, one in places.items()}
    sites = Sites.build(
        (12,), ("station",), {"station": np.arange(12)}, auxiliary=auxiliary, names=tuple("ABCDEFGHIJKL"),
        roles={"latitude": "lat", "longitude": "lon", "vertical": "depth"}, cell_area=np.ones(12), vertical_scale=2.0,
    )  # fmt: skip
    return quick(Samples.build(values[:, np.newaxis], sites, origin=SourceInfo("field", name="level")), k=2)


def made(kind: str) -> Plan:
    if kind in SETTINGS:
        return of_reconstructor(kind)
    if kind in GEOMETRIES:
        return of_geometry(kind)
    return of_target(kind) if kind in TARGETS else of_field(kind)


class Content(NamedTuple):
    """Where a plan is saved, its header and arrays, and which parts are to be changed, if not all."""

    path: Path
    header: dict[str, Any]
    arrays: dict[str, np.ndarray]
    parts: tuple[str, ...] | None

    def places(self) -> list[tuple]:
        """Where the values of the header are that may be changed; what nobody reads is left out."""
        found = [
            place
            for place in nodes(self.header)
            if not {"versions", "data", "split", "history", "validation", "train"} & set(place[:-1])
        ]
        return [place for place in found if self.parts is None or set(self.parts) & set(place)]

    def names(self) -> list[str]:
        """Names of the arrays that may be changed, some of those of a network."""
        found = sorted(name for name in self.arrays if self.parts is None or name.split(".")[0] in self.parts)
        return found[:: 1 if self.parts is None else -(-len(found) // MOST_ARRAYS)]

    def refused(self, header: dict[str, Any], arrays: dict[str, Any], what: str, *, netcdf: bool = False) -> bool:
        """Whether this is refused; anything but a PlanError or finite results fails."""
        text = json.dumps(header).encode()
        whole = struct.pack("<8sIQ", MAGIC, VERSION, len(text)) + text
        try:
            whole += save({name: np.asarray(array, order="C") for name, array in arrays.items()})
        except (ValueError, KeyError):  # no such type can be saved at all
            return True
        self.path.write_bytes(whole + hashlib.sha256(whole).digest())
        try:
            use(self.path, netcdf=netcdf)
        except (PlanError, DataError):  # the latter where NetCDF does not take a name
            return True
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        return False


@pytest.fixture(scope="module", params=KINDS)
def content(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Content:
    """A saved plan of each kind."""
    path = tmp_path_factory.mktemp(request.param) / "plan.keyhole"
    made(request.param).save(path)
    return Content(path, *read_container(path, "plan"), OWN[request.param] if request.param not in WHOLE else None)


def use(path: Path, *, netcdf: bool = False) -> None:
    """Do what users do with a plan; whatever comes out is finite."""
    plan = kh.load(path)
    Console(file=io.StringIO()).print(plan_table(plan))
    json.dumps(plan_summary(plan), default=str)
    assert len(plan.sites) == plan.k
    if not isinstance(plan.domain.metric, NoMetric):
        plan.domain.metric.distances(plan.numbers, plan.numbers)
    readings = np.zeros((2, plan.k, plan.reading_channels))
    if plan.sensors is None:
        readings += plan.scaling.baseline[0].T[plan.numbers]
    else:
        readings[:, :, 0] += plan.sensors.operator @ plan.scaling.baseline[0].ravel()
    readings[1, 0] = np.nan
    given: Any = {"time": ["2001-01-15", "2001-07-15"]}
    given |= {"covariates": np.zeros((2, plan.scaling.columns.shape[1]))} if plan.scaling.columns.size else {}
    ends = plan.reconstruct(readings, **given, interval=0.9 if plan.intervals else None)
    for part in ends if plan.intervals else [ends]:
        arrays = part.values() if isinstance(part, xr.Dataset) else [part]
        for array in map(np.asarray, arrays):
            positions = len(plan.domain) if plan.origin.kind == "table" else plan.domain.size
            assert np.isfinite(array).sum() * positions == array.size * len(plan.domain)
    if netcdf and not plan.scaling.columns.size:
        write_reconstruction(plan, readings, path.parent / "rebuilt.nc", given["time"])
    if plan.predictor is not None:
        told = plan.predict(readings)
        assert told.dtype.kind == "U" or np.isfinite(told).all()
    plan.save(path.parent / "again.keyhole")


def nodes(tree: Any, above: tuple = ()) -> Iterator[tuple]:
    """Where each value of a JSON tree is; of long lists the first."""
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree[:1]) if isinstance(tree, list) else ()
    for name, value in pairs:
        yield (*above, name)
        yield from nodes(value, (*above, name))


def changed(tree: Any, place: tuple, change: Callable[[Any, Any], None]) -> Any:
    whole = copy.deepcopy(tree)
    inner = whole
    for name in place[:-1]:
        inner = inner[name]
    change(inner, place[-1])
    return whole


VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "minus one": -1,
    "zero": 0,
    "fraction": 0.5,
    "huge": 10**30,
    "large": 300_000_000,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "empty text": "",
    "text": "V300000000",
    "surrogate": "\ud800",
    "empty list": [],
    "list": [1, "a", None],
    "empty object": {},
    "object": {"a": [1]},
}


def test_the_plan_itself_is_whole(content):
    assert not content.refused(content.header, content.arrays, "nothing changed")


def test_a_header_that_lacks_something_is_refused_or_whole(content):
    for place in content.places():
        less = changed(content.header, place, lambda inner, name: inner.pop(name))
        content.refused(less, content.arrays, f"no {place}")


@pytest.mark.parametrize("value", VALUES)
def test_a_header_with_another_value_anywhere_is_refused_or_whole(content, value):
    for place in content.places():
        other = changed(content.header, place, lambda inner, name: inner.__setitem__(name, VALUES[value]))
        written = place[0] == "origin" and value in ("huge", "list", "empty text")
        content.refused(other, content.arrays, f"{place} = {VALUES[value]!r}", netcdf=written)


def with_first(value: Any) -> Callable[[np.ndarray], np.ndarray]:
    def change(array: np.ndarray) -> np.ndarray:
        array = np.array(array)
        array[(0,) * array.ndim] = value
        return array

    return change


CHANGES: dict[str, Callable[[np.ndarray], Any]] = {
    "NaN": with_first(np.nan),
    "infinite": with_first(np.inf),
    "minus infinite": with_first(-np.inf),
    "negative": with_first(-7),
    "huge": lambda array: np.full_like(array, np.finfo(array.dtype).max if array.dtype.kind == "f" else 100),
    "zero": np.zeros_like,
    "minus one": lambda array: np.full_like(array, -1),
    "empty": lambda array: array[:0] if array.ndim else np.zeros(0, array.dtype),
    "shorter": lambda array: array[:-1] if array.ndim else np.zeros(0, array.dtype),
    "longer": lambda array: np.concatenate([array, array]) if array.ndim else np.zeros(2, array.dtype),
    "narrower": lambda array: array[..., :-1] if array.ndim else np.zeros(0, array.dtype),
    "wider": lambda array: np.concatenate([array, array], axis=-1) if array.ndim else np.zeros(2, array.dtype),
    "flat": np.ravel,
    "one axis more": lambda array: array[np.newaxis],
    "a number": lambda array: np.array(0, array.dtype),
    "boolean": lambda array: array.astype(bool),
    "complex": lambda array: array.astype(np.complex64),
    "half": lambda array: array.astype(np.float16),
    "double": lambda array: array.astype(np.float64),
    "small integers": lambda array: array.astype(np.int8),
    "large integers": lambda array: array.astype(np.uint64),
    "missing": lambda _: None,
}


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast", "ignore:overflow encountered in cast")
@pytest.mark.filterwarnings("ignore:Casting complex values", "ignore::keyhole.errors.ReadingsWarning")
@pytest.mark.parametrize("change", CHANGES)
def test_a_plan_with_another_array_is_refused_or_whole(content, change):
    for name in content.names():
        try:
            found = CHANGES[change](content.arrays[name])
        except (ValueError, OverflowError, IndexError):  # NaN is no integer, and some arrays are empty
            continue
        arrays = {**content.arrays, name: found}
        arrays = {one: array for one, array in arrays.items() if array is not None}
        content.refused(content.header, arrays, f"{change} {name}")


def test_a_plan_with_an_array_more_is_refused_or_whole(content):
    for name in {name.split(".")[0] for name in content.arrays} | {""}:
        content.refused(content.header, {**content.arrays, f"{name}.more": np.zeros(3)}, f"{name}.more")


# One by one: what is refused, and how it is told ------------------------------------------------------------------


REFUSED: dict[str, tuple[Callable[[dict, dict], None], str]] = {
    "a site beyond the grid": (lambda h, a: a.update({"sites.index": np.array([3, 20])}), "site 20"),
    "a site before the grid": (lambda h, a: a.update({"sites.index": np.array([-1, 3])}), "site -1"),
    "a site on land": (lambda h, a: a.update({"sites.index": np.array([1, 3])}), "site 1"),
    "a site twice": (lambda h, a: a.update({"sites.index": np.array([3, 3])}), "more than once"),
    "sites between cells": (lambda h, a: a.update({"sites.index": np.array([3.0, 4.0])}), "sites.index.*float64"),
    "no site": (lambda h, a: a.update({"sites.index": np.zeros(0, np.int64)}), "no site"),
    "no cell": (lambda h, a: a.update({"grid.inside": np.zeros((4, 5), bool)}), "grid.inside"),
    "a scale of zero": (lambda h, a: a.update({"scaling.scale": np.zeros(1)}), "scaling.scale.*positive"),
    "a weight that is NaN": (lambda h, a: a["reconstructor.weights"].__setitem__((0, 0), np.nan), "weights.*finite"),
    "a negative shape": (lambda h, a: h["grid"].update({"shape": [-4, 5]}), "grid.shape"),
    "another shape": (lambda h, a: h["grid"].update({"shape": [5, 4]}), r"grid.inside.*\(4, 5\)"),
    "a giant shape": (lambda h, a: h["grid"].update({"shape": [2**40, 2**40]}), "grid.inside"),
    "a model of a package that is not there": (
        lambda h, a: h["reconstructor"].update({"name": "theirs"}), "'theirs' is not known; install the package"
    ),
    "no record": (lambda h, a: h.update({"metadata": {}}), "metadata.method"),
    "giant coordinates": (lambda h, a: h["coordinate_types"].update({"lat": "V300000000"}), "lat.*V300000000"),
    "objects": (lambda h, a: h["coordinate_types"].update({"lat": "O"}), "lat"),
    "a calendar of its own": (lambda h, a: h["origin"].update({"calendar": "mayan"}), "origin.calendar"),
    "samples along a grid's axis": (lambda h, a: h["origin"].update({"sample_dim": "lat"}), "'lat'"),
    "errors without a name": (lambda h, a: h["metrics"].update({"test": {}}), "metrics.test"),
    "more neighbours than samples": (lambda h, a: h["intervals"].update({"neighbours": 10**9}), "neighbours|readings"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_is_reported(tmp_path, case):
    change, message = REFUSED[case]
    path = tmp_path / "plan.keyhole"
    quick(kh.read(monthly_field()).anomalies("month"), k=2).save(path)
    header, arrays = read_container(path, "plan")
    arrays = {name: np.array(array) for name, array in arrays.items()}
    change(header, arrays)
    write_container(path, header, arrays)
    told = f"plan.keyhole: not a plan that this Keyhole understands .*{message}"
    with pytest.raises(PlanError, match=told), little_memory():
        kh.load(path)


def test_texts_are_as_wide_as_the_longest_whatever_is_declared(tmp_path):
    field = xr.DataArray(smooth(12, 3), {"place": list("abc")}, ("sample", "place"), "level")
    path = tmp_path / "plan.keyhole"
    quick(field, k=2, intervals=False).save(path)
    header, arrays = read_container(path, "plan")
    header["coordinate_types"]["place"] = "<U300000000"
    write_container(path, header, arrays)
    with little_memory():
        assert kh.load(path).domain.axes["place"].dtype == "<U1"


def test_long_texts_take_no_more_memory_than_the_file(tmp_path):
    """Texts of an axis are kept as wide as the longest: one long among many short ones would take their product."""
    field = xr.DataArray(smooth(12, 3000), {"place": np.arange(3000).astype(str)}, ("sample", "place"), "level")
    path = tmp_path / "plan.keyhole"
    quick(field, k=2, intervals=False).save(path)
    header, arrays = read_container(path, "plan")
    header["coordinate_texts"]["place"][0] = "x" * 1_000_000
    write_container(path, header, arrays)
    with pytest.raises(PlanError, match="place"), little_memory():
        kh.load(path)
