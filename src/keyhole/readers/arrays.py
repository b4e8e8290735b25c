"""Arrays: numpy arrays in memory, .npy and .npz files."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from keyhole.errors import DataError, StorageError
from keyhole.grid import Grid
from keyhole.memory import check_fits
from keyhole.origin import Origin
from keyhole.readers.choice import one_of
from keyhole.signals import Signals

__all__ = ["load_npy", "read_array", "read_npy", "read_npz"]


def read_array(source: ArrayLike, *, channels: int | None = None, name: str = "signals") -> Signals:
    """Take an array ``(N, *grid)``; ``channels`` names the axis that holds channels, if one does."""
    array = _plain(source, name)
    if array.ndim < 2:
        raise DataError(f"{name}: an array of shape {array.shape}; (samples, *grid) is needed, at least two axes")
    if channels is None:
        values = array[:, np.newaxis]
    else:
        if array.ndim < 3 or not -array.ndim <= channels < array.ndim or channels % array.ndim == 0:
            raise DataError(f"channels={channels} is not an axis that can hold channels in shape {array.shape}")
        channels = channels % array.ndim
        values = np.moveaxis(array, channels, 1)
    origin = Origin("array", channel_axis=channels, name=name)
    return Signals.build(values, Grid.plain(values.shape[2:]), origin=origin)


def read_npy(path: Path, *, channels: int | None = None) -> Signals:
    """Read signals from a .npy file."""
    return read_array(load_npy(path), channels=channels, name=path.stem)


def load_npy(path: Path) -> NDArray[Any]:
    """Load the array of a .npy file."""
    with _open(path) as file:
        return _read_member(file, str(path))


def read_npz(path: Path, *, variable: str | None = None, channels: int | None = None) -> Signals:
    """Read one array from a .npz file: the one named ``variable``, or the only one."""
    with _open(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
                member = one_of(names, variable, names, "array")
                with archive.open(f"{member}.npy") as stream:
                    array = _read_member(stream, f"{path}: {member}")
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError) as error:
            raise DataError(f"{path}: not a whole .npz file ({error})") from error
    return read_array(array, channels=channels, name=member)


def _open(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error


def _read_member(file: IO[bytes], what: str) -> NDArray[Any]:
    """Read one .npy stream, after its declared size was compared with memory; objects are refused."""
    try:
        version = npy.read_magic(file)
        reader = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = reader(file)
    except (ValueError, TypeError, TokenError, OSError) as error:
        raise DataError(f"{what}: not a whole .npy array ({error})") from error
    if dtype.kind not in "biuf":
        raise DataError(f"{what}: holds {'Python objects' if dtype.hasobject else dtype}; real numbers are needed")
    if any(n < 0 for n in shape):
        raise DataError(f"{what}: not a whole .npy array (its header declares the shape {shape})")
    declared = int(np.prod(shape, dtype=object)) * dtype.itemsize
    check_fits(declared, what)
    content = bytearray(declared)
    if _fill(file, content) != declared:
        raise DataError(f"{what}: cut short, its header declares {declared} bytes")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


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
