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

from keyhole.core.errors import DataError, StorageError
from keyhole.core.memory import check_fits
from keyhole.core.paths import check_regular
from keyhole.data.grid import Grid
from keyhole.data.origin import SourceInfo
from keyhole.data.readers.variables import one_of
from keyhole.data.samples import Samples

__all__ = ["load_npy", "read_array", "read_npy", "read_npz"]

_MOST_AXES = 63  # numpy holds one more, which is that of the channels
_MOST_HEADER = 1 << 14  # bytes of the header of a .npy array; numpy takes fewer
_MOST_BYTES = 1 << 80  # that are told apart: a length that is made up may be more than a float holds


def read_array(source: ArrayLike, *, channels: int | None = None, name: str = "signals") -> Samples:
    """Take an array ``(N, *grid)``; ``channels`` names the axis that holds channels, if one does."""
    array = _plain(source, name)
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
    """Read samples from a .npy file."""
    return read_array(load_npy(path), channels=channels, name=path.stem)


def load_npy(path: Path) -> NDArray[Any]:
    """Load the array of a .npy file."""
    with _open(path) as file:
        return _read_member(file, os.fstat(file.fileno()).st_size, str(path))


def read_npz(path: Path, *, variable: str | None = None, channels: int | None = None) -> Samples:
    """Read one array from a .npz file: the one named ``variable``, or the only one."""
    with _open(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
                member = one_of(names, variable, names, "array")
                size = archive.getinfo(f"{member}.npy").file_size
                with archive.open(f"{member}.npy") as stream:
                    array = _read_member(stream, size, f"{path}: {member}")
        except DataError:
            raise
        except Exception as error:  # whatever zipfile, and what unpacks for it, raise on files that are made up
            raise DataError(f"{path}: not a whole .npz file ({error})") from error
    return read_array(array, channels=channels, name=member)


def _open(path: Path) -> IO[bytes]:
    check_regular(path)
    try:
        return path.open("rb")
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error


def _read_member(file: IO[bytes], size: int, what: str) -> NDArray[Any]:
    """Read one .npy stream of up to ``size`` bytes, after what it declares was compared with that and with memory."""
    try:
        shape, fortran, dtype = _header(file)
    except Exception as error:  # numpy, and Python's own parser under it, raise much on headers that are made up
        raise DataError(f"{what}: not a whole .npy array ({error})") from error
    if dtype.kind not in "biuf":
        raise DataError(f"{what}: holds {'Python objects' if dtype.hasobject else dtype}; real numbers are needed")
    if any(n < 0 for n in shape):
        raise DataError(f"{what}: not a whole .npy array (its header declares the shape {shape})")
    declared = min(int(np.prod(shape, dtype=object)) * dtype.itemsize, _MOST_BYTES)
    check_fits(declared, what)
    content = bytearray(declared if declared <= size else 0)
    if declared > size or _fill(file, content) != declared:
        raise DataError(f"{what}: cut short, its header declares {declared} bytes")
    try:
        return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")
    except (ValueError, TypeError) as error:
        raise DataError(f"{what}: not a whole .npy array ({error})") from error


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, order and type; of a header that says it is long only the front, where numpy would read it all."""
    first = npy.read_magic(file) == (1, 0)
    said = file.read(2 if first else 4)
    head = io.BytesIO(said + file.read(min(int.from_bytes(said, "little"), _MOST_HEADER)))
    return npy.read_array_header_1_0(head) if first else npy.read_array_header_2_0(head)


def _plain(source: ArrayLike, name: str) -> NDArray[Any]:
    """Give an array; what is masked becomes NaN."""
    if isinstance(source, np.ma.MaskedArray):
        return np.ma.filled(source.astype(np.result_type(source.dtype, np.float32)), np.nan)
    try:
        return np.asarray(source)
    except ValueError as error:
        raise DataError(f"{name}: rows of different length ({error})") from error


def _fill(file: IO[bytes], content: bytearray) -> int:
    view, done = memoryview(content), 0
    while done < len(view):
        part = file.read(min(len(view) - done, 1 << 24))
        if not part:
            break
        view[done : done + len(part)] = part
        done += len(part)
    return done
