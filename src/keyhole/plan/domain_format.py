"""The sites of a plan's data as parts of its file: a header and arrays, checked before they are used."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import PlanError
from keyhole.core.storage import Arrays, array_of
from keyhole.data.coordinates import Auxiliary
from keyhole.data.graph_metric import GraphMetric
from keyhole.data.mesh import Mesh
from keyhole.data.sites import Sites
from keyhole.plan.schema import Header

__all__ = ["domain_state", "restore_domain"]

_NUMBERS = re.compile(r"[<>=|]?(bool|int|uint|float|[biuf])\d{0,2}")
_TIMES = re.compile(r"[<>=]?(datetime64|timedelta64|[Mm]8)(\[\d{0,6}[A-Za-z]{1,2}\])?")
_TEXTS = re.compile(r"[<>=]?U\d{1,12}")
_LARGEST_TEXTS = 2**26  # bytes of a coordinate of texts, each as wide as the longest, that need no further reason
_WIDER_THAN_WRITTEN = 64  # times as many bytes as characters: beyond that, one long text makes many short ones wide
_GRAPH, _MESH = "graph.", "mesh."


def domain_state(domain: Sites) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the parts of the header and the arrays from which `restore_domain` recovers the sites."""
    coordinates = {dim: np.asarray(domain.axes[dim]) for dim in domain.dims}
    coordinates |= {name: np.asarray(one.values) for name, one in domain.auxiliary.items()}
    texts = {name: one for name, one in coordinates.items() if one.dtype.kind == "U"}
    header = {
        "grid": {
            "shape": domain.shape,
            "dims": domain.dims,
            "names": _names_of(domain),
            "auxiliary": {name: one.dims for name, one in domain.auxiliary.items()},
            "roles": dict(domain.roles),
            "vertical_scale": domain.vertical_scale,
            "unit": domain.metric.unit,
            "mesh": None if domain.mesh is None else {"dim": domain.mesh.dim, "location": domain.mesh.location},
        },
        "coordinate_types": {name: str(one.dtype) for name, one in coordinates.items()},
        "coordinate_texts": {name: one.ravel().tolist() for name, one in texts.items()},
    }
    valid = np.zeros(domain.size, bool)
    valid[domain.index] = True
    arrays = {"grid.inside": valid.reshape(domain.shape)}
    arrays |= {f"coordinates.{name}": _numbers(one) for name, one in coordinates.items() if name not in texts}
    if domain.cell_area is not None:
        arrays["grid.area"] = domain.cell_area
    if domain.mesh is not None:
        arrays |= {f"{_MESH}{name}": getattr(domain.mesh, name) for name in ("faces", "x", "y")}
    if isinstance(domain.metric, GraphMetric):
        arrays |= {f"{_GRAPH}{name}": array for name, array in domain.metric.state().items()}
    return header, arrays


def _names_of(domain: Sites) -> list[str] | None:
    """Names of all positions in the data, empty where no site is valid."""
    if domain.names is None:
        return None
    names = np.full(domain.size, "", dtype=object)
    names[domain.index] = domain.names
    return [str(name) for name in names]


def _numbers(coordinate: NDArray[Any]) -> NDArray[Any]:
    """Return dates as integers of their unit, since safetensors holds no dates."""
    if coordinate.dtype.kind in "mM":
        return coordinate.astype(np.int64)
    if coordinate.dtype.kind not in "biuf":
        raise PlanError(f"coordinates of type {coordinate.dtype} cannot be saved; use numbers, dates or texts")
    return coordinate


def restore_domain(header: Header, arrays: Arrays) -> Sites:
    """Return the sites that `domain_state` described.

    Raises
    ------
    PlanError
        If shape, coordinates, names, roles or areas are inconsistent, or of types that are not listed.
    """
    part = header.grid
    shape, dims = tuple(part.shape), tuple(part.dims)
    valid = array_of(arrays, "grid.inside", shape, "b")
    if not valid.any():
        raise PlanError("the array 'grid.inside' has no valid site")
    if len(dims) != len(shape) or len(set(dims)) < len(dims):
        raise PlanError(f"header: grid.dims: {len(shape)} different names are needed, not {list(dims)}")
    axes = {dim: _coordinate(header, arrays, dim, (n,)) for dim, n in zip(dims, shape, strict=True)}
    auxiliary = {name: _auxiliary(header, arrays, name, axes) for name in part.auxiliary}
    area = array_of(arrays, "grid.area", (int(valid.sum()),)) if "grid.area" in arrays else None
    if area is not None and not ((area >= 0).all() and area.any()):
        raise PlanError("the array 'grid.area' holds areas below zero, or none above")
    _check_roles(header, {**axes, **{name: one.values for name, one in auxiliary.items()}})
    domain = Sites.build(
        shape, dims, axes, valid=valid, auxiliary=auxiliary, names=_checked_names(header, valid),
        roles=None if part.roles is None else dict(part.roles), vertical_scale=part.vertical_scale,
        mesh=_mesh(header, arrays, dict(zip(dims, shape, strict=True))),
    )  # fmt: skip
    domain = replace(domain, cell_area=None if area is None else area.astype(np.float64))
    if f"{_GRAPH}lengths.data" not in arrays:
        return domain
    metric = GraphMetric.restore({name.removeprefix(_GRAPH): array for name, array in arrays.items()}, part.unit)
    if len(metric) != len(domain):
        raise PlanError(f"the graph has {len(metric)} nodes for {len(domain)} sites")
    return replace(domain, metric=metric)


def _mesh(header: Header, arrays: Arrays, sizes: dict[str, int]) -> Mesh | None:
    """Return the mesh, whose faces or nodes are as many as the data are long, and whose faces have nodes that exist."""
    part = header.grid.mesh
    if part is None:
        return None
    faces = array_of(arrays, f"{_MESH}faces", (None, None), "i")
    x = array_of(arrays, f"{_MESH}x", (None,))
    y = array_of(arrays, f"{_MESH}y", x.shape)
    count = len(faces) if part.location == "face" else len(x)
    if sizes.get(part.dim) != count:
        raise PlanError(f"header: grid.mesh: {count} {part.location}s do not lie along {part.dim!r}")
    if not faces.size or faces.shape[1] < 3 or faces.min() < -1 or faces.max() >= len(x):
        raise PlanError(f"the array '{_MESH}faces' holds faces without three nodes, or nodes that do not exist")
    return Mesh(part.dim, part.location, faces.astype(np.int64), x.astype(np.float64), y.astype(np.float64))


def _checked_names(header: Header, valid: NDArray[np.bool_]) -> tuple[str, ...] | None:
    """Return the names of all positions, which differ where sites are valid."""
    names = header.grid.names
    if names is None:
        return None
    own = [name for name, there in zip(names, valid.ravel(), strict=False) if there]
    if len(names) != valid.size or len(set(own)) < len(own):
        raise PlanError(f"header: grid.names: {valid.size} different names are needed")
    return tuple(names)


def _auxiliary(header: Header, arrays: Arrays, name: str, axes: dict[str, NDArray[Any]]) -> Auxiliary:
    """Return an auxiliary coordinate, which varies along axes of the data."""
    dims = tuple(header.grid.auxiliary[name])
    if name in axes or not dims or len(set(dims)) < len(dims) or not set(dims) <= set(axes):
        raise PlanError(
            f"header: grid.auxiliary.{name}: it needs a name of its own, and axes of the data, not {list(dims)}"
        )
    return Auxiliary(dims, _coordinate(header, arrays, name, tuple(len(axes[dim]) for dim in dims)))


def _check_roles(header: Header, coordinates: dict[str, NDArray[Any]]) -> None:
    """Raise a PlanError unless the coordinates that have a role are there, and numbers."""
    for role, name in (header.grid.roles or {}).items():
        if name not in coordinates or coordinates[name].dtype.kind not in "biuf":
            raise PlanError(f"header: grid.roles.{role}: {name!r} is no coordinate of numbers")


def _coordinate(header: Header, arrays: Arrays, name: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a coordinate; the type that is declared is never more than what the file holds."""
    kind = header.coordinate_types.get(name, "")
    if name in header.coordinate_texts:
        if not _TEXTS.fullmatch(kind):
            raise PlanError(f"header: coordinate_types.{name}: {kind!r} is no type of texts")
        return _texts(header.coordinate_texts[name], name, shape)
    found = array_of(arrays, f"coordinates.{name}", shape, "biuf")
    of_times = _TIMES.fullmatch(kind) is not None
    if not of_times and not _NUMBERS.fullmatch(kind):
        raise PlanError(f"header: coordinate_types.{name}: {kind!r} is no type that coordinates are saved with")
    declared = np.dtype(kind)
    if found.dtype != (np.dtype(np.int64) if of_times else declared.newbyteorder("=")):
        raise PlanError(f"the array 'coordinates.{name}' is of type {found.dtype}, and the header says {kind}")
    return found.astype(declared)


def _texts(texts: list[str], name: str, shape: tuple[int, ...]) -> NDArray[np.str_]:
    """Return a coordinate of texts, unless one is so long that the array would be far larger than the file."""
    count = math.prod(shape)
    if len(texts) != count:
        raise PlanError(f"header: coordinate_texts.{name}: {count} are needed, and there are {len(texts)}")
    lengths = [len(text) for text in texts]
    if 4 * count * max(lengths) > max(_LARGEST_TEXTS, _WIDER_THAN_WRITTEN * sum(lengths)):
        raise PlanError(f"header: coordinate_texts.{name}: one of {max(lengths)} characters is longer than all others")
    return np.array(texts, str).reshape(shape)
