"""Whether selected sites lie on a lattice, as those that are learned with a network of strides may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["line_share", "parity_share"]

# Grids of the data of Table 1, for lines from before the share was recorded.
_GRIDS = {"mnist": (28, 28), "ipsl": (20, 20), "ncep": (73, 144), "celeba": (64, 64)}


def parity_share(positions: Sequence[int], shape: tuple[int, ...]) -> float | None:
    """Return the share of sites with the commonest parity of row and column.

    A quarter to a third for many sites that are spread evenly, 1 where all of them have even rows and odd columns, say.
    A few sites are above a quarter by chance alone.

    Parameters
    ----------
    positions
        Positions of the sites in the grid, in C order.
    shape
        Shape of the grid.

    Returns
    -------
    float or None
        None where the grid does not have two axes.

    Examples
    --------
    >>> parity_share([0, 2, 8, 5], (3, 4))
    0.75
    """
    if len(shape) != 2:
        return None
    rows, columns = np.unravel_index(np.asarray(positions, dtype=np.int64), shape)
    return float(np.bincount(2 * (rows % 2) + columns % 2).max() / len(rows))


def line_share(line: Mapping[str, Any]) -> float | None:
    """Return the share that a line of Table 1 holds, or that follows from the sites that it holds.

    Parameters
    ----------
    line
        The record.

    Returns
    -------
    float or None
        None where the line has no sites, or its grid is not known.
    """
    notes = line["notes"]
    if "parity_share" in notes or "sites" not in notes or line["data"] not in _GRIDS:
        share: float | None = notes.get("parity_share")
        return share
    return parity_share(notes["sites"], _GRIDS[line["data"]])
