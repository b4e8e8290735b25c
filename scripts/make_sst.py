"""Make the embedded sea-surface temperature from NOAA's OI SST v2 monthly means on a 2.5 degree grid.

    python scripts/make_sst.py oisst_monthly/test_input_oisst_data.nc src/keyhole/data/sst.npz

Source: NOAA Optimum Interpolation SST v2, monthly means, public domain. The 73 x 144 cells, centred on multiples of
2.5 degrees, become 36 x 72 cells of 5 degrees: each value is the area-weighted mean of the sea that overlaps it, and a
cell is sea if at least half of its area is sea in every month.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import xarray as xr

FILL, STEP = -32768, 0.01


def overlap(coarse: np.ndarray, fine: np.ndarray) -> np.ndarray:
    """Length of the overlap of each coarse interval with each fine one; both are arrays of edges (n, 2)."""
    low = np.maximum(coarse[:, None, 0], fine[None, :, 0])
    high = np.minimum(coarse[:, None, 1], fine[None, :, 1])
    return np.clip(high - low, 0, None)


def edges(centres: np.ndarray, width: float) -> np.ndarray:
    """Edges (n, 2) of cells of one width."""
    return np.stack([centres - width / 2, centres + width / 2], axis=1)


def latitude_weights(coarse: np.ndarray, fine: np.ndarray) -> np.ndarray:
    """Overlap in sin(latitude), which is proportional to area."""

    def to_sine(bounds: np.ndarray) -> np.ndarray:
        return np.sin(np.deg2rad(np.clip(bounds, -90, 90)))

    return overlap(to_sine(edges(coarse, 5)), to_sine(edges(fine, 2.5)))


def longitude_weights(coarse: np.ndarray, fine: np.ndarray) -> np.ndarray:
    """Overlap in degrees, round the globe."""
    return sum(overlap(edges(coarse, 5), edges(fine + turn, 2.5)) for turn in (0, 360))


def coarsen(field: xr.DataArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give (months, 36, 72) with NaN on land, latitude and longitude."""
    latitude, longitude = np.arange(87.5, -90, -5), np.arange(2.5, 360, 5)
    rows = latitude_weights(latitude, field.lat.values.astype(float))
    columns = longitude_weights(longitude, field.lon.values.astype(float))
    sea = np.isfinite(field.values)
    weight = np.einsum("ai,tij,bj->tab", rows, sea.astype(float), columns, optimize=True)
    total = np.einsum("ai,tij,bj->tab", rows, np.nan_to_num(field.values.astype(float)), columns, optimize=True)
    whole = rows.sum(1)[:, None] * columns.sum(1)[None, :]
    is_sea = (weight / whole >= 0.5 - 1e-9).all(axis=0)
    return np.where(is_sea, total / np.where(weight > 0, weight, 1), np.nan), latitude, longitude


def main() -> None:
    """Read, coarsen, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    field = xr.open_dataset(arguments.source)["sst"]
    values, latitude, longitude = coarsen(field)
    packed = np.where(np.isnan(values), FILL, np.round(values / STEP)).astype(np.int16)
    np.savez_compressed(
        arguments.target,
        sst=packed,
        latitude=latitude.astype(np.float32),
        longitude=longitude.astype(np.float32),
        time=field.time.values.astype("datetime64[D]").astype(np.int32),
        land=np.isnan(values).all(axis=0),
    )
    print(
        f"{arguments.target}: {packed.shape}, {int((packed[0] != FILL).sum())} sea cells, "
        f"{arguments.target.stat().st_size / 1e6:.2f} MB"
    )


if __name__ == "__main__":
    main()
