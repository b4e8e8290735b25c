"""Truncation check for CDF-5 files, the classic NetCDF format with 64-bit sizes."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import IO, NamedTuple

from keyhole.core.errors import DataError

__all__ = ["check_cdf5"]

_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}  # bytes of a value, by type
_DIMENSIONS, _VARIABLES, _ATTRIBUTES = 10, 11, 12  # tags of the lists


class _Variable(NamedTuple):
    """Offset of a variable, and bytes of all its values, or of one record of them."""

    begin: int
    size: int
    has_records: bool


def check_cdf5(path: Path) -> None:
    """Raise a DataError if a CDF-5 file is shorter than its header declares; the NetCDF library would read zeros.

    Parameters
    ----------
    path : Path
        A file whose first bytes are ``CDF`` and 5.

    References
    ----------
    Unidata, NetCDF file format specifications, "The 64-bit data format" (CDF-5).
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(4)
        try:
            declared = _declared(file, size)
        except (struct.error, KeyError, IndexError) as error:
            raise DataError(f"{path}: not a whole NetCDF file (its header ends early or is damaged)") from error
    if declared > size:
        raise DataError(f"{path}: cut short, its header declares {declared} bytes and it has {size}")


def _declared(file: IO[bytes], size: int) -> int:
    """Length of the file by its header: the end of the last value."""
    records = _number(file)
    lengths = [_dimension(file) for _ in range(_count(file, _DIMENSIONS, size))]
    _skip_attributes(file, size)
    variables = [_variable(file, lengths, size) for _ in range(_count(file, _VARIABLES, size))]
    ends = [file.tell(), *(one.begin + one.size for one in variables if not one.has_records)]
    own = [one for one in variables if one.has_records]
    if records > 0:  # -1: still being written
        step = sum(_padded(one.size) for one in own) if len(own) > 1 else sum(one.size for one in own)
        ends += [one.begin + (records - 1) * step + one.size for one in own]
    return max(ends)


def _variable(file: IO[bytes], lengths: list[int], size: int) -> _Variable:
    """Read the header of one variable."""
    _skip(file, _number(file))  # its name
    axes = _number(file)
    if axes > size:
        raise IndexError(axes)
    shape = [lengths[_number(file)] for _ in range(axes)]
    _skip_attributes(file, size)
    width = _SIZES[_tag(file)]
    _number(file)  # its size, which follows from the shape
    has_records = bool(shape) and shape[0] == 0
    return _Variable(_number(file), math.prod(shape[1:] if has_records else shape) * width, has_records)


def _dimension(file: IO[bytes]) -> int:
    """Read the length of one dimension; 0 for the record dimension."""
    _skip(file, _number(file))
    return _number(file)


def _skip_attributes(file: IO[bytes], size: int) -> None:
    """Skip a list of attributes."""
    for _ in range(_count(file, _ATTRIBUTES, size)):
        _skip(file, _number(file))
        width = _SIZES[_tag(file)]
        _skip(file, _number(file) * width)


def _count(file: IO[bytes], tag: int, size: int) -> int:
    """Read the length of a list, at most the file's size; an absent list has the tag 0."""
    found, count = _tag(file), _number(file)
    if found not in (0, tag) or (found == 0 and count) or not 0 <= count <= size:
        raise KeyError(found)
    return count


def _skip(file: IO[bytes], size: int) -> None:
    """Skip bytes and their padding."""
    if size < 0:
        raise IndexError(size)
    file.seek(_padded(size), 1)


def _padded(size: int) -> int:
    """Round up to a multiple of 4."""
    return size + -size % 4


def _tag(file: IO[bytes]) -> int:
    """Read a 32-bit integer."""
    return int(struct.unpack(">i", file.read(4))[0])


def _number(file: IO[bytes]) -> int:
    """Read a 64-bit integer."""
    return int(struct.unpack(">q", file.read(8))[0])
