"""Readers of NumPy arrays, .npy and .npz files."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from keyhole.core.errors import DataError
from keyhole.core.memory import check_fits
from keyhole.core.paths import open_regular
from keyhole.data.grid import Grid
from keyhole.data.origin import SourceInfo
from keyhole.data.readers.files import decoding, one_of
from keyhole.data.samples import Samples

__all__ = ["load_npy", "read_array", "read_npy", "read_npz"]

_MOST_AXES = 63  # numpy holds one more, which is that of the channels
_MOST_HEADER = 1 << 14  # bytes of the header of a .npy array; numpy accepts fewer
_MOST_BYTES = 1 << 80  # a forged length may be more than a float holds
_PART = 1 << 24  # bytes that are read at a time


def read_array(source: ArrayLike, *, channels: int | None = None, name: str = "signals") -> Samples:
    """Read samples from an array.

    Parameters
    ----------
    source : array-like of shape (N, *grid)
        Real numbers; masked values count as missing.
    channels : int, optional
        The axis that holds channels; None: one channel, without an axis.
    name : str
        Name of the data.

    Returns
    -------
    Samples

    Raises
    ------
    DataError
        If the array has fewer than two axes, or ``channels`` is not one of them.

    Examples
    --------
    >>> read_array(np.random.default_rng(0).normal(size=(5, 2, 3, 4)), channels=1).values.shape
    (5, 2, 3, 4)
    """
    array = _unmasked(source, name)
    if array.ndim < 2:
        raise DataError(f"{name}: an array of shape {array.shape}; (samples, *grid) is needed, at least two axes")
    if array.ndim > _MOST_AXES:
        raise DataError(f"{name}: an array of {array.ndim} axes; there may be {_MOST_AXES}")
    if channels is None:
        values = array[:, np.newaxis]
    else:
        if array.ndim < 3 or not -array.ndim <= channels < array.ndim or channels % array.ndim == 0:
            raise DataError(f"channels={channels} is not an axis that can hold channels in shape {array.shape}")
        channels = channels % array.ndim
        values = np.moveaxis(array, channels, 1)
    origin = SourceInfo("array", channel_axis=channels, name=name)
    return Samples.build(values, Grid.plain(values.shape[2:]), origin=origin)


def read_npy(path: Path, *, channels: int | None = None) -> Samples:
    """Read samples from a .npy file; see `read_array`."""
    return read_array(load_npy(path), channels=channels, name=path.stem)


def load_npy(path: Path) -> NDArray[Any]:
    """Load the array of a .npy file.

    Parameters
    ----------
    path : Path
        A .npy file.

    Returns
    -------
    ndarray
        Of real numbers.

    Raises
    ------
    DataError
        If the file is damaged or truncated, holds anything but real numbers, or exceeds the free memory.
    StorageError
        If it cannot be opened.
    """
    with open_regular(path) as file:
        return _load_stream(file, os.fstat(file.fileno()).st_size, str(path))


def read_npz(path: Path, *, variable: str | None = None, channels: int | None = None) -> Samples:
    """Read samples from one array of a .npz file.

    Parameters
    ----------
    path : Path
        A .npz file.
    variable : str, optional
        Name of the array; None: the only one.
    channels : int, optional
        As for `read_array`.

    Returns
    -------
    Samples
    """
    with open_regular(path) as file, decoding(path, "not a whole .npz file"), zipfile.ZipFile(file) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        member = one_of(names, variable, names, "array")
        size = archive.getinfo(f"{member}.npy").file_size
        with archive.open(f"{member}.npy") as stream:
            array = _load_stream(stream, size, f"{path}: {member}")
    return read_array(array, channels=channels, name=member)


def _load_stream(file: IO[bytes], size: int, what: str) -> NDArray[Any]:
    """Load a .npy stream of at most ``size`` bytes, after comparing what its header declares with that and with memory.

    In place of `numpy.load`, which trusts the header.
    """
    damaged = "not a whole .npy array"
    with decoding(what, damaged):
        shape, fortran, dtype = _header(file)
    if dtype.kind not in "biuf":
        raise DataError(f"{what}: holds {'Python objects' if dtype.hasobject else dtype}; real numbers are needed")
    if any(n < 0 for n in shape):
        raise DataError(f"{what}: {damaged} (its header declares the shape {shape})")
    declared = min(int(np.prod(shape, dtype=object)) * dtype.itemsize, _MOST_BYTES)
    check_fits(declared, what)
    content = bytearray(declared if declared <= size else 0)
    if declared > size or _fill(file, content) != declared:
        raise DataError(f"{what}: cut short, its header declares {declared} bytes")
    with decoding(what, damaged):
        return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order and type; of a header that declares a great length only the front, which numpy would read."""
    first = npy.read_magic(file) == (1, 0)
    length = file.read(2 if first else 4)
    head = io.BytesIO(length + file.read(min(int.from_bytes(length, "little"), _MOST_HEADER)))
    return npy.read_array_header_1_0(head) if first else npy.read_array_header_2_0(head)


def _unmasked(source: ArrayLike, name: str) -> NDArray[Any]:
    """Convert to an array with NaN in place of masked values."""
    if isinstance(source, np.ma.MaskedArray):
        return np.ma.filled(source.astype(np.result_type(source.dtype, np.float32)), np.nan)
    try:
        return np.asarray(source)
    except ValueError as error:
        raise DataError(f"{name}: rows of different length ({error})") from error


def _fill(file: IO[bytes], content: bytearray) -> int:
    """Read into a buffer until it is full or the file ends, and return the number of bytes."""
    view, done = memoryview(content), 0
    while part := file.read(min(len(view) - done, _PART)):
        view[done : done + len(part)] = part
        done += len(part)
    return done
