"""Where the sites of a field lie, as the CF and UGRID conventions say it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import KeyholeWarning
from keyhole.data.areas import area_of_polygons
from keyhole.data.coordinates import Auxiliary, Role, is_latitude, is_longitude, is_radian
from keyhole.data.mesh import Mesh
from keyhole.data.sites import Sites

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["is_position", "sites_of_field"]

_CF_NAMES: Mapping[Role, str] = {"latitude": "latitude", "longitude": "longitude", "vertical": "vertical"}
_CF_AXES: Mapping[Role, str] = {"vertical": "Z", "x": "X", "y": "Y"}


def sites_of_field(
    array: xr.DataArray, dims: Sequence[str], dataset: xr.Dataset | None = None, *, vertical_scale: float | None = None
) -> Sites:
    """Return the sites of a field along some of its dimensions.

    Latitude, longitude and the vertical coordinate are found by standard name, units, axis and the usual names, on
    regular and curvilinear grids, lists of cells (ICON, UGRID), stations and profiles; radians are converted to
    degrees. Cell areas come from the cell measures, from the bounds of latitude and longitude, or from the mesh, whose
    faces are kept for maps. Stations go by their identifiers.

    Parameters
    ----------
    array
        The field, with its coordinates.
    dims
        Its spatial dimensions, in the order wanted.
    dataset
        What it was taken from, which holds bounds, cell measures and the mesh.
    vertical_scale
        See `Sites.build`.

    Returns
    -------
    Sites
        All of them; which are valid is known from the values.

    References
    ----------
    .. [1] CF Metadata Conventions 1.11, sections 4, 5, 7 and 9.
    .. [2] UGRID Conventions 1.0.
    """
    around = _with_positions(_with_mesh(array, dataset), array, dims, dataset)
    shape = tuple(int(array.sizes[dim]) for dim in dims)
    axes = {dim: _axis(array, dim) for dim in dims}
    auxiliary = {
        str(name): Auxiliary(tuple(str(dim) for dim in one.dims), _plain(np.asarray(one.values)))
        for name, one in around.coords.items()
        if one.ndim and name not in dims and set(one.dims) <= set(dims) and one.dtype.kind in "biufUSO"
    }
    roles = _roles(around, dims)
    for role in ("latitude", "longitude"):
        name = roles.get(role)
        if name is not None and is_radian(around[name].attrs):
            axes, auxiliary = _in_degrees(name, axes, auxiliary)
    names = _identifiers(axes, roles, dataset, dims)
    area = _cell_area(array, around, dataset, roles, dims)
    return Sites.build(
        shape, tuple(dims), axes, auxiliary={name: one for name, one in auxiliary.items() if _is_plain(one.values)},
        roles=roles, names=names, cell_area=area, vertical_scale=vertical_scale,
        mesh=_faces_on_paper(array, around, dataset, roles, dims),
    )  # fmt: skip


def _axis(array: xr.DataArray, dim: str) -> NDArray[Any]:
    """The coordinate along a dimension; positions where it has none."""
    axis = np.asarray(array[dim].values) if dim in array.coords else np.arange(array.sizes[dim])
    if axis.dtype.kind == "O":  # texts, dates of other calendars
        return np.array([str(label) for label in axis.tolist()])
    return axis.astype(str) if axis.dtype.kind in "ST" else axis


def _plain(values: NDArray[Any]) -> NDArray[Any]:
    """Texts as files hold them, bytes or objects, as numpy's; all else unchanged."""
    if values.dtype.kind in "SO" and all(isinstance(one, str | bytes) for one in values.flat):
        return np.array([_text(one) for one in values.flat], np.str_).reshape(values.shape)
    return values


def _is_plain(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "biufU"


def _roles(around: xr.Dataset, dims: Sequence[str]) -> dict[Role, str]:
    """Which coordinates are latitude, longitude, vertical, and the x and y of a projection."""
    import cf_xarray  # noqa: F401 - registers Dataset.cf

    named, axes = around.cf.coordinates, around.cf.axes
    roles: dict[Role, str] = {}
    for role, name in _CF_NAMES.items():
        candidates = [*named.get(name, []), *(axes.get("Z", []) if role == "vertical" else [])]
        usual = {"latitude": is_latitude, "longitude": is_longitude}.get(role)
        candidates += [str(one) for one in around.coords if usual is not None and usual(str(one))]
        fitting = [str(one) for one in candidates if _lies_along(around[one], dims)]
        if fitting:
            roles[role] = fitting[0]
    if "latitude" in roles and "longitude" in roles:
        return roles
    for role in ("x", "y"):
        fitting = [str(one) for one in axes.get(_CF_AXES[role], []) if _lies_along(around[one], dims)]
        if fitting:
            roles[role] = fitting[0]
    return roles if {"x", "y"} & set(roles) else {**_points(around, dims), **roles}


def _points(around: xr.Dataset, dims: Sequence[str]) -> dict[Role, str]:
    """Coordinates that are called x, y and z and say no more, such as the nodes of a mesh have them."""
    named = {str(one).lower(): str(one) for one in around.coords if one not in dims and _lies_along(around[one], dims)}
    usual: dict[Role, str] = {"x": "x", "y": "y", "vertical": "z"}
    return {role: named[name] for role, name in usual.items() if name in named} if {"x", "y"} <= set(named) else {}


def _with_positions(
    around: xr.Dataset, array: xr.DataArray, dims: Sequence[str], dataset: xr.Dataset | None
) -> xr.Dataset:
    """The coordinates with latitude and longitude from variables beside the field, or repeated for each sample."""
    if set(_roles(around, dims)) >= {"latitude", "longitude"}:
        return around
    beside = {} if dataset is None else {name: one for name, one in dataset.data_vars.items() if name != array.name}
    for name, one in {**beside, **around.coords}.items():
        repeated = [dim for dim in one.dims if dim not in dims]
        if not is_position(one) or one.ndim == len(repeated) or not set(one.dims) <= set(array.dims):
            continue
        first, last = (one.variable.isel(dict.fromkeys(repeated, end)) for end in (0, -1))
        if repeated and not np.array_equal(first.values, last.values, equal_nan=True):
            warnings.warn(
                f"{array.name}: its coordinate {name} changes along {repeated[0]}, so it is no position of the sites",
                KeyholeWarning,
                stacklevel=2,
            )
            continue
        around = around.drop_vars([name], errors="ignore").assign_coords({name: first})
    return around


def is_position(one: xr.DataArray) -> bool:
    """Whether a variable is latitude or longitude, by its standard name, its units or the usual names."""
    said, name = one.attrs, str(one.name)
    units = str(said.get("units", "")).lower().replace("_", "").replace("degrees", "degree")
    return (
        is_latitude(name)
        or is_longitude(name)
        or said.get("standard_name") in ("latitude", "longitude")
        or units in ("degreenorth", "degreen", "degreeeast", "degreee")
    )


def _lies_along(one: xr.DataArray, dims: Sequence[str]) -> bool:
    """Whether a coordinate is numbers that vary along spatial dimensions alone."""
    return one.ndim > 0 and set(one.dims) <= set(dims) and one.dtype.kind in "iuf"


def _in_degrees(
    name: str, axes: Mapping[str, NDArray[Any]], auxiliary: Mapping[str, Auxiliary]
) -> tuple[dict[str, NDArray[Any]], dict[str, Auxiliary]]:
    """Convert one coordinate from radians."""
    if name in auxiliary:
        dims, values = auxiliary[name]
        return dict(axes), {**auxiliary, name: Auxiliary(dims, np.rad2deg(values))}
    return {**axes, name: np.rad2deg(axes[name])}, dict(auxiliary)


def _identifiers(
    axes: Mapping[str, NDArray[Any]], roles: Mapping[Role, str], dataset: xr.Dataset | None, dims: Sequence[str]
) -> tuple[str, ...] | None:
    """Names of stations, if they differ: a variable whose role is to identify them, or the texts along their axis."""
    if len(dims) != 1:
        return None
    for one in () if dataset is None else dataset.variables.values():
        if str(one.attrs.get("cf_role", "")).endswith("_id") and one.dims == tuple(dims):
            labels = tuple(_text(label) for label in np.asarray(one.values).tolist())
            return labels if len(set(labels)) == len(labels) else None
    labels = tuple(str(label) for label in axes[dims[0]])
    is_named = axes[dims[0]].dtype.kind == "U" and set(roles) >= {"latitude", "longitude"}
    return labels if is_named and len(set(labels)) == len(labels) else None


def _text(label: Any) -> str:
    return (label.decode("utf-8", "replace") if isinstance(label, bytes) else str(label)).strip()


def _cell_area(
    array: xr.DataArray, around: xr.Dataset, dataset: xr.Dataset | None, roles: Mapping[Role, str], dims: Sequence[str]
) -> NDArray[np.float64] | None:
    """Area of each cell, of the shape of the data: as measured, by the mesh, or by the bounds of the coordinates."""
    if dataset is None:
        return None
    found = _measured(array, dataset)
    found = found if found is not None else _of_mesh(array, dataset)
    if found is None and "latitude" in roles and "longitude" in roles:
        found = _of_bounds(around, dataset, roles)
    if found is None or not set(found.dims) <= set(dims):
        return None
    template = array.isel({dim: 0 for dim in array.dims if dim not in dims}, drop=True).transpose(*dims)
    whole = np.array(found.broadcast_like(template).transpose(*dims).values, np.float64)
    valid = np.isfinite(whole) & (whole >= 0)
    return np.where(valid, whole, 0.0) if valid.any() else None


def _measured(array: xr.DataArray, dataset: xr.Dataset) -> xr.DataArray | None:
    """The variable that holds the cells' areas, as ``cell_measures = "area: areacella"`` names it."""
    said = str(array.attrs.get("cell_measures", array.encoding.get("cell_measures", ""))).replace(":", " ").split()
    measures = dict(zip(said[::2], said[1::2], strict=False))
    name = measures.get("area")
    return dataset[name] if name in dataset.variables else None


def _of_bounds(around: xr.Dataset, dataset: xr.Dataset, roles: Mapping[Role, str]) -> xr.DataArray | None:
    """Areas by the bounds: between parallels and meridians on a regular grid, else of the polygons of the vertices."""
    import xarray as xr

    up, along = (_bounds(around[roles[role]], dataset) for role in ("latitude", "longitude"))
    if up is None or along is None:
        return None
    if around[roles["latitude"]].dims != around[roles["longitude"]].dims:
        if up.shape[-1] != 2 or along.shape[-1] != 2:
            return None
        height = np.abs(np.diff(np.sin(np.deg2rad(up.values)), axis=-1)[..., 0])
        width = np.abs(np.diff(along.values, axis=-1)[..., 0])
        rows = xr.DataArray(height, dims=up.dims[:-1])
        return rows * xr.DataArray(width, dims=along.dims[:-1])
    if up.shape[-1] < 3 or up.shape != along.shape:
        return None
    return xr.DataArray(area_of_polygons(up.values, along.values), dims=up.dims[:-1])


def _bounds(coordinate: xr.DataArray, dataset: xr.Dataset) -> xr.DataArray | None:
    """The bounds of a coordinate in degrees, with the vertices along the last dimension."""
    name = coordinate.attrs.get("bounds", coordinate.encoding.get("bounds"))
    if name is None or name not in dataset.variables:
        return None
    bounds = dataset[name].transpose(*coordinate.dims, ...)
    if bounds.ndim != coordinate.ndim + 1:
        return None
    radian = is_radian(bounds.attrs) or ("units" not in bounds.attrs and is_radian(coordinate.attrs))
    return np.rad2deg(bounds) if radian else bounds  # type: ignore[no-any-return]


def _mesh(array: xr.DataArray, dataset: xr.Dataset | None) -> xr.DataArray | None:
    """The variable that describes the mesh of a field, by the UGRID conventions."""
    name = array.attrs.get("mesh", array.encoding.get("mesh"))
    return None if dataset is None or name is None or name not in dataset.variables else dataset[name]


def _with_mesh(array: xr.DataArray, dataset: xr.Dataset | None) -> xr.Dataset:
    """The coordinates of a field, with those that its mesh names."""
    coordinates = array.coords.to_dataset()
    mesh = _mesh(array, dataset)
    if mesh is None or dataset is None:
        return coordinates
    location = str(array.attrs.get("location", array.encoding.get("location", "node")))
    names = [name for name in str(mesh.attrs.get(f"{location}_coordinates", "")).split() if name in dataset.variables]
    if not names and location in ("face", "edge"):
        return coordinates.assign_coords(_centres(mesh, dataset, location))
    return coordinates.assign_coords({name: dataset[name] for name in names})


def _faces(mesh: xr.DataArray, dataset: xr.Dataset, location: str = "face") -> tuple[NDArray[np.int64], str] | None:
    """The nodes of each face ``(faces, most corners)``, -1 where a face has fewer, and the dimension; so for edges."""
    name = mesh.attrs.get(f"{location}_node_connectivity")
    if name is None or name not in dataset.variables:
        return None
    table = dataset[name]
    dim = str(mesh.attrs.get(f"{location}_dimension", table.dims[0]))
    nodes = np.asarray(table.transpose(dim, ...).values)
    start = int(table.attrs.get("start_index", 0))
    missing = ~np.isfinite(nodes) if nodes.dtype.kind == "f" else np.zeros(nodes.shape, bool)
    fill = table.attrs.get("_FillValue", table.encoding.get("_FillValue"))
    missing |= (nodes == fill) if fill is not None else (nodes < start)
    return np.where(missing, -1, np.where(missing, 0, nodes).astype(np.int64) - start), dim


def _node_coordinates(mesh: xr.DataArray, dataset: xr.Dataset) -> dict[str, tuple[str, NDArray[np.float64]]]:
    """Longitude and latitude of the nodes in degrees, each with the name of its variable."""
    found = {}
    for name in str(mesh.attrs.get("node_coordinates", "")).split():
        if name not in dataset.variables:
            continue
        one = dataset[name]
        said = f"{one.attrs.get('standard_name', '')} {one.attrs.get('units', '')}".lower()
        role = (
            "latitude"
            if "latitude" in said or "north" in said
            else "longitude"
            if "longi" in said or "east" in said
            else name
        )
        values = np.asarray(one.values, np.float64)
        found[role] = (name, np.rad2deg(values) if is_radian(one.attrs) else values)
    return found


def _corners(values: NDArray[np.float64], faces: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.where(faces < 0, np.nan, values[faces])


def _centres(mesh: xr.DataArray, dataset: xr.Dataset, location: str) -> dict[str, Any]:
    """Centres of the faces or edges, the mean of their nodes, where the mesh does not give them."""
    from keyhole.data.metric import on_sphere

    found, nodes = _faces(mesh, dataset, location), _node_coordinates(mesh, dataset)
    if found is None or len(nodes) < 2:
        return {}
    faces, dim = found
    if set(nodes) >= {"latitude", "longitude"}:
        points = on_sphere(nodes["latitude"][1], nodes["longitude"][1])
        x, y, z = (np.nanmean(_corners(points[:, axis], faces), axis=1) for axis in range(3))
        latitude, longitude = np.rad2deg(np.arctan2(z, np.hypot(x, y))), np.rad2deg(np.arctan2(y, x))
        return {
            "lat": (dim, latitude, {"standard_name": "latitude", "units": "degrees_north"}),
            "lon": (dim, longitude, {"standard_name": "longitude", "units": "degrees_east"}),
        }
    return {
        name: (dim, np.nanmean(_corners(values, faces), axis=1), {"axis": axis})
        for (name, values), axis in zip(nodes.values(), "XY", strict=False)
    }


def _of_mesh(array: xr.DataArray, dataset: xr.Dataset) -> xr.DataArray | None:
    """Areas of the faces of a mesh; of a node, a share of each face around it."""
    import xarray as xr

    mesh = _mesh(array, dataset)
    found = None if mesh is None else _faces(mesh, dataset)
    if mesh is None or found is None:
        return None
    faces, dim = found
    nodes = _node_coordinates(mesh, dataset)
    if set(nodes) >= {"latitude", "longitude"}:
        area = area_of_polygons(*(_corners(nodes[role][1], faces) for role in ("latitude", "longitude")))
    elif len(nodes) >= 2:
        x, y = (_corners(values, faces) for _, values in list(nodes.values())[:2])
        area = _area_in_plane(x, y)
    else:
        return None
    if str(array.attrs.get("location", "node")) == "face":
        return xr.DataArray(area, dims=(dim,))
    count = np.maximum((faces >= 0).sum(axis=1, keepdims=True), 1)
    shares = np.broadcast_to(area[:, np.newaxis] / count, faces.shape)[faces >= 0]
    name, values = next(iter(nodes.values()))
    return xr.DataArray(np.bincount(faces[faces >= 0], shares, len(values)), dims=dataset[name].dims)


def _faces_on_paper(
    array: xr.DataArray, around: xr.Dataset, dataset: xr.Dataset | None, roles: Mapping[Role, str], dims: Sequence[str]
) -> Mesh | None:
    """The faces of the mesh on which a field lies: as UGRID lists them, or by the bounds of its cells."""
    if dataset is None:
        return None
    geographic = {"latitude", "longitude"} <= set(roles)
    found = _listed_faces(array, dataset, geographic=geographic)
    if found is None and geographic:
        found = _bounded_cells(around, dataset, roles)
    return found if found is not None and found.dim in dims and len(found.faces) else None


def _listed_faces(array: xr.DataArray, dataset: xr.Dataset, *, geographic: bool) -> Mesh | None:
    """The faces that the mesh of a field lists, with nodes in the coordinates that the field has."""
    mesh = _mesh(array, dataset)
    found = None if mesh is None else _faces(mesh, dataset)
    location = str(array.attrs.get("location", array.encoding.get("location", "node")))
    if mesh is None or found is None or location not in ("face", "node"):
        return None
    faces, dim = found
    nodes = _node_coordinates(mesh, dataset)
    if geographic != (set(nodes) >= {"latitude", "longitude"}) or len(nodes) < 2:
        return None
    (name, x), (_, y) = (nodes["longitude"], nodes["latitude"]) if geographic else list(nodes.values())[:2]
    if location == "face":
        return Mesh(dim, "face", faces, x, y)
    return Mesh(str(dataset[name].dims[0]), "node", faces, x, y)


def _bounded_cells(around: xr.Dataset, dataset: xr.Dataset, roles: Mapping[Role, str]) -> Mesh | None:
    """The cells of a list, as ICON's, by the vertices of each: neighbours share none of their nodes."""
    centre = around[roles["latitude"]]
    up, along = (_bounds(around[roles[role]], dataset) for role in ("latitude", "longitude"))
    if centre.ndim != 1 or up is None or along is None or up.shape[-1] < 3 or up.shape != along.shape:
        return None
    latitude, longitude = (np.array(one.values, np.float64) for one in (up, along))
    missing = ~(np.isfinite(latitude) & np.isfinite(longitude))
    faces = np.where(missing, -1, np.arange(latitude.size).reshape(latitude.shape))
    latitude[missing] = longitude[missing] = 0.0
    return Mesh(str(centre.dims[0]), "face", faces, longitude.ravel(), latitude.ravel())


def _area_in_plane(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Areas of polygons by the shoelace formula; missing corners are put onto the first."""
    x, y = (np.where(np.isnan(one), one[:, :1], one) for one in (x, y))
    return np.asarray(np.abs((x * np.roll(y, -1, axis=1) - np.roll(x, -1, axis=1) * y).sum(axis=1)) / 2)
