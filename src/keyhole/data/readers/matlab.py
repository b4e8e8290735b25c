"""MATLAB files of version 5: one array of the file, samples along its first axis."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from keyhole.core.errors import DataError
from keyhole.core.memory import check_fits
from keyhole.data.readers.arrays import read_array
from keyhole.data.readers.variables import one_of
from keyhole.data.samples import Samples

__all__ = ["read_mat"]

_BYTES = {"int8": 1, "uint8": 1, "logical": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "single": 4}

# Of version 5: codes of compressed elements and of stored numbers, classes of arrays of numbers, and the bit of those
# that are complex.
_COMPRESSED, _STORED = 15, (1, 2, 3, 4, 5, 6, 7, 9, 12, 13)
_CLASSES, _COMPLEX = range(6, 16), 0x0800
_HEAD = 4096  # bytes that hold all that stands before an array's numbers


def read_mat(path: Path, *, variable: str | None = None, channels: int | None = None) -> Samples:
    """Read one array of a .mat file: the one named ``variable``, or the only one of numbers on at least two axes."""
    from scipy.io import loadmat, whosmat

    try:
        listed = whosmat(str(path))
        held = {name: (shape, kind) for name, shape, kind in listed}
        named = [name for name, (shape, kind) in held.items() if _is_numbers(kind) and _axes(shape) >= 2]
        chosen = one_of(named, variable, list(held), "array")
        shape, kind = held[chosen]
        if not _is_numbers(kind):
            raise DataError(f"{path}: {chosen}: of type {kind}; real numbers are needed")
        if len(held) < len(listed):
            raise DataError(f"{path}: two arrays have the same name")
        count = int(np.prod(shape, dtype=object))
        check_fits(count * _BYTES.get(kind, 8), f"{path}: {chosen}")
        _check_numbers(path, chosen, count)
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


def _check_numbers(path: Path, chosen: str, count: int) -> None:
    """Look at what scipy takes on trust: the code of an array's stored numbers, and how many bytes they are.

    With a code that there is not, scipy reads beyond a table of its own, which can end Python.
    """
    with path.open("rb") as file:
        front = file.read(128)
    if 0 in front[:4]:  # version 4, which has no such codes
        return
    order = "<" if front[126:] == b"IM" else ">"
    said = [_said(head, order) for head in _heads(path, order) if _flags(head, order) & 0xFF in _CLASSES]
    complex_, code, size = next(rest for name, *rest in said if name == chosen)
    if complex_:
        raise DataError(f"{path}: {chosen}: complex; real numbers are needed")
    if code not in _STORED or size > 8 * count:
        raise DataError(f"{path}: {chosen}: not a whole array ({count} numbers in {size} bytes of code {code})")


def _heads(path: Path, order: str) -> Iterator[bytes]:
    """Give the first bytes of each element's content, unpacked."""
    with path.open("rb") as file:
        file.seek(128)
        while len(tag := file.read(8)) == 8:
            code, size = struct.unpack(f"{order}II", tag)
            end, head = file.tell() + size, file.read(min(size, _HEAD))
            yield zlib.decompressobj().decompress(head, _HEAD)[8:] if code == _COMPRESSED else head
            file.seek(end)


def _flags(head: bytes, order: str) -> int:
    return int(struct.unpack_from(f"{order}I", head, 8)[0])


def _said(head: bytes, order: str) -> tuple[str, bool, int, int]:
    """Give an array's name, whether it is complex, and code and size of its numbers."""
    _, _, _, place = _part(head, 16, order)  # its shape
    _, size, start, place = _part(head, place, order)
    code, stored, _, _ = _part(head, place, order)
    return head[start : start + size].decode("latin1"), bool(_flags(head, order) & _COMPLEX), code, stored


def _part(head: bytes, place: int, order: str) -> tuple[int, int, int, int]:
    """Give code, size and start of the part at ``place``, and where the next is; a small one is within its own tag."""
    (code,) = struct.unpack_from(f"{order}I", head, place)
    if code >> 16:
        return code & 0xFFFF, code >> 16, place + 4, place + 8
    (size,) = struct.unpack_from(f"{order}I", head, place + 4)
    return code, size, place + 8, place + 8 + size + -size % 8
