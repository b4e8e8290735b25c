"""Meshes of the sphere, and data on them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xarray as xr
from scipy.spatial.transform import Rotation

NORTH = {"standard_name": "latitude", "units": "degrees_north"}
EAST = {"standard_name": "longitude", "units": "degrees_east"}
TIME = pd.date_range("2001-01-01", periods=30, freq="MS")


def sphere_mesh(divisions: int, turn: Rotation | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (points of the unit sphere) and triangles of an octahedron whose edges are halved so many times."""
    nodes = [np.array(node, float) for node in ((1, 0, 0), (0, 1, 0), (-1, 0, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1))]
    faces = [(i, (i + 1) % 4, 4) for i in range(4)] + [((i + 1) % 4, i, 5) for i in range(4)]
    for _ in range(divisions):
        middles: dict[tuple[int, int], int] = {}

        def middle(a: int, b: int, middles=middles) -> int:
            key = (min(a, b), max(a, b))
            if key not in middles:
                point = nodes[a] + nodes[b]
                nodes.append(point / np.linalg.norm(point))
                middles[key] = len(nodes) - 1
            return middles[key]

        parts = [(a, b, c, middle(a, b), middle(b, c), middle(c, a)) for a, b, c in faces]
        faces = [face for a, b, c, x, y, z in parts for face in ((a, x, z), (x, b, y), (z, y, c), (x, y, z))]
    points = np.array(nodes) if turn is None else turn.apply(nodes)
    return points, np.array(faces)


def degrees(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Longitude and latitude."""
    return np.rad2deg(np.arctan2(points[:, 1], points[:, 0])), np.rad2deg(np.arcsin(np.clip(points[:, 2], -1, 1)))


def centres_of(points: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Points of the sphere in the middle of each face."""
    middle = points[faces].mean(axis=1)
    return middle / np.linalg.norm(middle, axis=1, keepdims=True)


def smooth_on(points: np.ndarray) -> np.ndarray:
    """Values of 30 samples at points of the sphere; their mean differs from place to place."""
    rng = np.random.default_rng(0)
    waves = np.sin(points @ rng.normal(size=(3, 8)) * 2 + rng.uniform(0, 6, 8))
    return rng.normal(size=(30, 8)) @ waves.T + 10 + 3 * points[:, 2]


def ugrid(location: str, divisions: int = 2, *, connected: bool = True, turn: Rotation | None = None) -> xr.Dataset:
    """A UGRID file of values on the faces or on the nodes, with land around longitude 0."""
    points, faces = sphere_mesh(divisions, turn)
    longitude, latitude = degrees(points)
    at = points if location == "node" else centres_of(points, faces)
    values = smooth_on(at)
    values[:, at[:, 0] > 0.7] = np.nan
    mesh = {"cf_role": "mesh_topology", "topology_dimension": 2, "node_coordinates": "mesh_x mesh_y"}
    if connected:
        mesh["face_node_connectivity"] = "mesh_faces"
    return xr.Dataset(
        {
            "mesh": ((), 0, mesh),
            "mesh_y": ("node", latitude, NORTH),
            "mesh_x": ("node", longitude, EAST),
            "mesh_faces": (("face", "three"), faces.astype(np.int32), {"start_index": 0}),
            "sst": (("time", location), values, {"mesh": "mesh", "location": location, "units": "degC"}),
        },
        {"time": TIME},
    )


def icon() -> xr.Dataset:
    """Cells as ICON writes them, in radians with vertices, of a region around the date line."""
    points, faces = sphere_mesh(3)
    at = centres_of(points, faces)
    kept = (at[:, 0] < -0.6) & (np.abs(at[:, 2]) < 0.6)
    (longitude, latitude), (around, up) = degrees(points), degrees(at[kept])
    return xr.Dataset(
        {
            "to": (("time", "ncells"), smooth_on(at[kept]), {"units": "K"}),
            "clat_vertices": (("ncells", "vertices"), np.deg2rad(latitude[faces[kept]])),
            "clon_vertices": (("ncells", "vertices"), np.deg2rad(longitude[faces[kept]])),
        },
        {
            "time": TIME,
            "clat": ("ncells", np.deg2rad(up), {**NORTH, "units": "radian", "bounds": "clat_vertices"}),
            "clon": ("ncells", np.deg2rad(around), {**EAST, "units": "radian", "bounds": "clon_vertices"}),
        },
    )
