"""Plans of format 2: arrays of the shape of the data, where today's hold the valid sites alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

__all__ = ["upgrade"]

_OF_THE_DATA = ("scaling.baseline", "scaling.root")


def upgrade(
    header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Give the header and the arrays of a file of format 2 as format 3 has them.

    Examples
    --------
    >>> import numpy as np
    >>> upgrade({}, {"grid.inside": np.array([True, False]), "scaling.root": np.array([1.0, 2.0])})[1]["scaling.root"]
    array([1.])
    """
    found, valid = dict(arrays), arrays.get("grid.inside")
    if valid is None or valid.dtype != bool:
        return dict(header), found
    for name in _OF_THE_DATA:
        if name in arrays and arrays[name].shape[arrays[name].ndim - valid.ndim :] == valid.shape:
            found[name] = arrays[name][..., valid]
    return dict(header), found
