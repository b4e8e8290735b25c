"""MATLAB files of version 5: one array of the file, samples along its first axis."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from keyhole.errors import DataError
from keyhole.memory import check_fits
from keyhole.readers.arrays import read_array
from keyhole.readers.choice import one_of
from keyhole.signals import Signals

__all__ = ["read_mat"]

_BYTES = {"int8": 1, "uint8": 1, "logical": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "single": 4}


def read_mat(path: Path, *, variable: str | None = None, channels: int | None = None) -> Signals:
    """Read one array of a .mat file: the one named ``variable``, or the only one of numbers on at least two axes."""
    from scipy.io import loadmat, whosmat

    try:
        held = {name: (shape, kind) for name, shape, kind in whosmat(str(path))}
        named = [name for name, (shape, kind) in held.items() if _is_numbers(kind) and _axes(shape) >= 2]
        chosen = one_of(named, variable, list(held), "array")
        shape, kind = held[chosen]
        check_fits(int(np.prod(shape, dtype=object)) * _BYTES.get(kind, 8), f"{path}: {chosen}")
        array = np.asarray(loadmat(str(path), variable_names=[chosen])[chosen])
    except NotImplementedError as error:
        raise DataError(f"{path}: a MATLAB 7.3 file; save it with -v7, or as NetCDF") from error
    except DataError:
        raise
    except Exception as error:  # whatever scipy raises on files that are damaged or made up
        raise DataError(f"{path}: cannot be read as a MATLAB file ({error})") from error
    return read_array(array, channels=channels, name=chosen)


def _is_numbers(kind: str) -> bool:
    return kind == "double" or kind in _BYTES


def _axes(shape: tuple[int, ...]) -> int:
    return sum(length > 1 for length in shape)
