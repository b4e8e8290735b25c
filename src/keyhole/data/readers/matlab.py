"""Reader of MATLAB files of version 5."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from keyhole.core.errors import DataError
from keyhole.core.memory import check_fits
from keyhole.data.readers.arrays import read_array
from keyhole.data.readers.files import decoding, one_of
from keyhole.data.samples import Samples

__all__ = ["read_mat"]

# Bytes of a value, by the class of numeric arrays.
_BYTES = {
    "int8": 1, "uint8": 1, "logical": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "single": 4, "double": 8,
}  # fmt: skip

# Of version 5: codes of compressed elements and of stored numbers, classes of arrays of numbers, and the bit of those
# that are complex.
_COMPRESSED, _STORED = 15, (1, 2, 3, 4, 5, 6, 7, 9, 12, 13)
_CLASSES, _COMPLEX = range(6, 16), 0x0800
_HEAD = 4096  # bytes that hold all that stands before an array's numbers


def read_mat(path: Path, *, variable: str | None = None, channels: int | None = None) -> Samples:
    """Read samples from one array of a MATLAB file of version 5.

    Parameters
    ----------
    path : Path
        A .mat file, saved with ``-v7`` or earlier.
    variable : str, optional
        Name of the array; None: the only numeric one with at least two axes.
    channels : int, optional
        As for `read_array`.

    Returns
    -------
    Samples

    Raises
    ------
    DataError
        If the file is damaged or of version 7.3, the array is ambiguous, not real, or exceeds the free memory.
    """
    from scipy.io import loadmat, whosmat

    with decoding(path, "cannot be read as a MATLAB file"):
        try:
            listed = whosmat(str(path))
        except NotImplementedError as error:
            raise DataError(f"{path}: a MATLAB 7.3 file; save it with -v7, or as NetCDF") from error
        available = {name: (shape, kind) for name, shape, kind in listed}
        arrays = [
            name for name, (shape, kind) in available.items() if kind in _BYTES and sum(n > 1 for n in shape) >= 2
        ]
        name = one_of(arrays, variable, list(available), "array")
        shape, kind = available[name]
        if kind not in _BYTES:
            raise DataError(f"{path}: {name}: of type {kind}; real numbers are needed")
        if len(available) < len(listed):
            raise DataError(f"{path}: two arrays have the same name")
        count = int(np.prod(shape, dtype=object))
        check_fits(count * _BYTES[kind], f"{path}: {name}")
        _check_stored_numbers(path, name, count)
        array = np.asarray(loadmat(str(path), variable_names=[name])[name])
    return read_array(array, channels=channels, name=name)


def _check_stored_numbers(path: Path, name: str, count: int) -> None:
    """Check what scipy trusts: the type code of an array's stored numbers, and how many bytes they take.

    With an invalid code scipy reads beyond a table of its own, which can crash Python.
    """
    with path.open("rb") as file:
        front = file.read(128)
    if 0 in front[:4]:  # version 4, which has no such codes
        return
    order = "<" if front[126:] == b"IM" else ">"
    arrays = [_array_header(head, order) for head in _heads(path, order) if _flags(head, order) & 0xFF in _CLASSES]
    is_complex, code, size = next(rest for found, *rest in arrays if found == name)
    if is_complex:
        raise DataError(f"{path}: {name}: complex; real numbers are needed")
    if code not in _STORED or size > 8 * count:
        raise DataError(f"{path}: {name}: not a whole array ({count} numbers in {size} bytes of code {code})")


def _heads(path: Path, order: str) -> Iterator[bytes]:
    """Yield the first bytes of each element's content, decompressed."""
    with path.open("rb") as file:
        file.seek(128)
        while len(tag := file.read(8)) == 8:
            code, size = struct.unpack(f"{order}II", tag)
            end, head = file.tell() + size, file.read(min(size, _HEAD))
            yield zlib.decompressobj().decompress(head, _HEAD)[8:] if code == _COMPRESSED else head
            file.seek(end)


def _flags(head: bytes, order: str) -> int:
    """Class and flags of an array."""
    return int(struct.unpack_from(f"{order}I", head, 8)[0])


def _array_header(head: bytes, order: str) -> tuple[str, bool, int, int]:
    """Name of an array, whether it is complex, and type code and size of its numbers."""
    _, _, _, place = _part(head, 16, order)  # its shape
    _, size, start, place = _part(head, place, order)
    code, stored, _, _ = _part(head, place, order)
    return head[start : start + size].decode("latin1"), bool(_flags(head, order) & _COMPLEX), code, stored


def _part(head: bytes, place: int, order: str) -> tuple[int, int, int, int]:
    """Code, size and start of the part at ``place``, and where the next begins; a small one is within its own tag."""
    (code,) = struct.unpack_from(f"{order}I", head, place)
    if code >> 16:
        return code & 0xFFFF, code >> 16, place + 4, place + 8
    (size,) = struct.unpack_from(f"{order}I", head, place + 4)
    return code, size, place + 8, place + 8 + size + -size % 8
