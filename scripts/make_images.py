"""Make the pictures of the documentation.

python scripts/make_images.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xarray as xr
from scipy.spatial import ConvexHull

import keyhole as kh
from keyhole.report import ReportData, save_figure, sites_figure
from keyhole.workflow.comparison import compare

IMAGES = Path(__file__).parents[1] / "docs" / "images"
NODES = 2000


def main() -> None:
    """Draw 25 buoys, chosen by greedy, on the embedded field and on a mesh, and 10 sensors on a water network."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    buoys = compare(kh.datasets.sst(), 25, ["greedy"])
    sensors = compare(kh.datasets.water(), 10, ["exchange"], reconstructor="optimal_interpolation")
    for name, comparison in {"sites": buoys, "water": sensors}.items():
        save_figure(sites_figure(ReportData.of(comparison)), IMAGES / f"{name}.png")
    plan = kh.select(on_mesh(kh.datasets.sst()), 25, method="greedy", reconstructor="ridge")
    save_figure(plan.plot(), IMAGES / "mesh.png")
    for name in ("sites.png", "water.png", "mesh.png"):
        print(f"wrote {IMAGES / name}")


def on_mesh(field: kh.Samples) -> xr.Dataset:
    """Put a field on the faces of a mesh of the sphere, each with the value of the cell that it lies in."""
    step = np.arange(NODES) + 0.5
    height, turn = 1 - 2 * step / NODES, np.pi * (1 + 5**0.5) * step  # a spiral of evenly spaced nodes
    nodes = np.stack([np.sqrt(1 - height**2) * np.cos(turn), np.sqrt(1 - height**2) * np.sin(turn), height], axis=1)
    faces = ConvexHull(nodes).simplices
    (longitude, latitude), (around, up) = degrees(nodes), degrees(nodes[faces].mean(axis=1))
    axes = {name: field.sites.axes[name] for name in ("lat", "lon")}
    grid = xr.DataArray(field.sites.to_grid(field.values[:, 0]), {"time": field.time, **axes}, ("time", "lat", "lon"))
    at = {"lat": xr.DataArray(up, dims="face"), "lon": xr.DataArray(around % 360, dims="face")}
    values = grid.sel(at, method="nearest").drop_vars(["lat", "lon"])
    mesh = {"cf_role": "mesh_topology", "topology_dimension": 2, "node_coordinates": "x y",
            "face_node_connectivity": "faces"}  # fmt: skip
    return xr.Dataset(
        {
            "mesh": ((), 0, mesh),
            "x": ("node", longitude, {"standard_name": "longitude", "units": "degrees_east"}),
            "y": ("node", latitude, {"standard_name": "latitude", "units": "degrees_north"}),
            "faces": (("face", "corner"), faces, {"start_index": 0}),
            "sst": values.assign_attrs(mesh="mesh", location="face", units="degC"),
        }
    )


def degrees(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Longitude and latitude of points."""
    return np.rad2deg(np.arctan2(points[:, 1], points[:, 0])), np.rad2deg(
        np.arctan2(points[:, 2], np.hypot(points[:, 0], points[:, 1]))
    )


if __name__ == "__main__":
    main()
