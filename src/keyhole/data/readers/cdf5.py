"""Length that the header of a CDF-5 file (NetCDF's classic format with 64-bit sizes) declares."""

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
    """Where a variable begins, and bytes of it, or of one record of it."""

    begin: int
    size: int
    has_records: bool


def check_cdf5(path: Path) -> None:
    """Raise a DataError where a CDF-5 file is shorter than its header declares: the library would read zeros."""
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
    """Bytes that the file must have for all of its values."""
    records = _number(file)
    lengths = [_dimension(file) for _ in range(_count(file, _DIMENSIONS, size))]
    _skip_attributes(file, size)
    variables = [_variable(file, lengths, size) for _ in range(_count(file, _VARIABLES, size))]
    ends = [file.tell(), *(one.begin + one.size for one in variables if not one.has_records)]
    own = [one for one in variables if one.has_records]
    if records > 0:  # -1: it is being written, and is as long as it is
        step = sum(_padded(one.size) for one in own) if len(own) > 1 else sum(one.size for one in own)
        ends += [one.begin + (records - 1) * step + one.size for one in own]
    return max(ends)


def _variable(file: IO[bytes], lengths: list[int], size: int) -> _Variable:
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
    _skip(file, _number(file))
    return _number(file)


def _skip_attributes(file: IO[bytes], size: int) -> None:
    for _ in range(_count(file, _ATTRIBUTES, size)):
        _skip(file, _number(file))
        width = _SIZES[_tag(file)]
        _skip(file, _number(file) * width)


def _count(file: IO[bytes], tag: int, size: int) -> int:
    """Length of a list; one that is absent has the tag 0. A list cannot have more entries than the file has bytes."""
    found, count = _tag(file), _number(file)
    if found not in (0, tag) or (found == 0 and count) or not 0 <= count <= size:
        raise KeyError(found)
    return count


def _skip(file: IO[bytes], size: int) -> None:
    if size < 0:
        raise IndexError(size)
    file.seek(_padded(size), 1)


def _padded(size: int) -> int:
    return size + -size % 4


def _tag(file: IO[bytes]) -> int:
    return int(struct.unpack(">i", file.read(4))[0])


def _number(file: IO[bytes]) -> int:
    return int(struct.unpack(">q", file.read(8))[0])
