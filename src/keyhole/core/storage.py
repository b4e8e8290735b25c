"""Files that are whole or refused: a JSON header, arrays, and a SHA-256 of everything before it.

Layout, little endian: 8 bytes of magic, a version (u32), the header's length (u64), the header (JSON, UTF-8), the
arrays (safetensors), and 32 bytes of SHA-256 over all that. No code is stored and none is run to read it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import struct
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from keyhole.core.errors import PlanError, StorageError
from keyhole.core.paths import open_regular, real_path

__all__ = ["array_of", "check_numbers", "count_of", "number_of", "read_container", "replacing", "write_container"]

MAGIC = b"KEYHOLE\x00"
VERSION = 4
_PREFIX = struct.Struct("<8sIQ")
_DIGEST = 32

Arrays = Mapping[str, NDArray[Any]]


def write_container(path: Path, header: Mapping[str, Any], arrays: Arrays) -> None:
    """Write header and arrays to a file, atomically: an existing file is replaced only when the new one is complete.

    Parameters
    ----------
    path : Path
        File to write.
    header : mapping
        JSON-serialisable; its ``"kind"`` is checked on reading.
    arrays : mapping of str to ndarray
        Stored as safetensors.

    Raises
    ------
    StorageError
        If the file cannot be written.
    """
    text = json.dumps(header, allow_nan=True).encode()
    body = save_arrays({name: np.asarray(array, order="C") for name, array in arrays.items()})
    head = _PREFIX.pack(MAGIC, VERSION, len(text)) + text
    digest = hashlib.sha256(head)
    digest.update(body)
    with replacing(path) as file:
        for part in (head, body, digest.digest()):
            file.write(part)


def read_container(path: Path, kind: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read header and arrays.

    Parameters
    ----------
    path : Path
        File to read.
    kind : str
        Required value of the header's ``"kind"``.

    Returns
    -------
    header : dict
        Its ``"format"`` is the format version of the file.
    arrays : dict of str to ndarray

    Raises
    ------
    PlanError
        If the file is damaged, truncated, of another kind, or of a newer format.
    StorageError
        If the file cannot be read.
    """
    blob = _checked_bytes(path)
    _, version, length = _PREFIX.unpack_from(blob)
    start = _PREFIX.size + length
    try:
        header = json.loads(bytes(blob[_PREFIX.size : start]))
        json.dumps(header, ensure_ascii=False).encode()  # a ValueError where a text holds what no terminal can print
        arrays = load_arrays(bytes(blob[start : len(blob) - _DIGEST]))
    except (ValueError, KeyError, SafetensorError, RecursionError) as error:
        raise PlanError(f"{path}: the file is not a whole Keyhole file ({error})") from error
    if not isinstance(header, dict) or header.get("kind") != kind:
        found = header.get("kind") if isinstance(header, dict) else None
        raise PlanError(f"{path}: holds a {found or 'thing without a kind'}, not a {kind}")
    return {**header, "format": version}, arrays


def array_of(arrays: Arrays, name: str, shape: tuple[int | None, ...], kinds: str = "f") -> NDArray[Any]:
    """Return an array that a file must hold, after checking type and shape.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        Arrays of the file.
    name : str
        Name of the array.
    shape : tuple of int or None
        Required length of each axis; None: any.
    kinds : str
        Accepted kinds of NumPy data types: ``"f"`` for floating, ``"iu"`` for integers.

    Raises
    ------
    PlanError
        If the array is missing or does not match.
    """
    if name not in arrays:
        raise PlanError(f"the array {name!r} is missing")
    array = arrays[name]
    if array.dtype.kind not in kinds:
        raise PlanError(f"the array {name!r} is of type {array.dtype}")
    if array.ndim != len(shape) or any(n not in (None, found) for n, found in zip(shape, array.shape, strict=True)):
        wanted = ", ".join("any" if n is None else str(n) for n in shape)
        raise PlanError(f"the array {name!r} has the shape {array.shape} where ({wanted}) is needed")
    return array


def check_numbers(name: str, array: NDArray[Any], *, nan: bool = False, infinite: bool = False) -> None:
    """Raise a PlanError unless an array holds finite real numbers.

    Parameters
    ----------
    name : str
        Name of the array, for the message.
    array : ndarray
        The array.
    nan, infinite : bool
        Whether NaN or infinity are allowed.

    Raises
    ------
    PlanError
    """
    if array.dtype.kind not in "biuf":
        raise PlanError(f"the array {name!r} is of type {array.dtype}")
    if array.dtype.kind != "f":
        return
    if (not nan and np.isnan(array).any()) or (not infinite and np.isinf(array).any()):
        raise PlanError(f"the array {name!r} holds numbers that are not finite")


def number_of(settings: Mapping[str, Any], name: str) -> float:
    """Return a number that a file's settings must hold.

    Parameters
    ----------
    settings : mapping
        Settings in the file.
    name : str
        Name of the number; it may be infinite, but not NaN.

    Returns
    -------
    float

    Raises
    ------
    PlanError
    """
    value = settings.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise PlanError(f"the setting {name!r}: a number is needed, not {value!r}")
    return value


def count_of(settings: Mapping[str, Any], name: str) -> int:
    """Return a non-negative integer that a file's settings must hold.

    Parameters
    ----------
    settings : mapping
        Settings in the file.
    name : str
        Name of the integer.

    Returns
    -------
    int

    Raises
    ------
    PlanError

    Examples
    --------
    >>> count_of({"channels": 2}, "channels")
    2
    """
    value = settings.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise PlanError(f"the setting {name!r}: a whole number from zero on is needed, not {value!r}")
    return value


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file in the same folder that replaces a file when the block succeeds.

    Symbolic links are followed, and an existing file keeps its permissions.

    Parameters
    ----------
    path : Path
        File to write.

    Yields
    ------
    binary file

    Raises
    ------
    StorageError
        If writing fails (no folder, no permission, no space); the existing file is then unchanged.
    """
    path = Path(path)
    target = real_path(path)
    temporary: str | None = None
    if path.exists() and not path.is_file():  # replacing /dev/null would break the machine
        raise StorageError(f"{path}: cannot be written: it is not a file")
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _set_permissions(Path(temporary), target)
        Path(temporary).replace(target)
        temporary = None
        _sync_folder(target.parent)
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)


def _checked_bytes(path: Path) -> memoryview:
    """Content of a file whose prefix and SHA-256 are correct."""
    with open_regular(Path(path)) as file:
        _check_prefix(path, file.read(_PREFIX.size), os.fstat(file.fileno()).st_size)
        file.seek(0)
        blob = memoryview(file.read())
    if hashlib.sha256(blob[:-_DIGEST]).digest() != blob[-_DIGEST:]:
        raise PlanError(f"{path}: the file is damaged or cut short; its SHA-256 does not match its content")
    return blob


def _check_prefix(path: Path, prefix: bytes, size: int) -> None:
    """Refuse a file that is not a Keyhole file by its first bytes, before reading the rest."""
    if size == 0:
        raise PlanError(f"{path}: the file is empty")
    if size < _PREFIX.size + _DIGEST or prefix[:8] != MAGIC:
        raise PlanError(f"{path}: not a Keyhole file, or cut short before its first bytes were whole")
    _, version, length = _PREFIX.unpack(prefix)
    if version > VERSION:
        raise PlanError(
            f"{path}: written in format {version}, and this Keyhole reads up to {VERSION}; install a newer Keyhole"
        )
    if version < 1 or length > size - _PREFIX.size - _DIGEST:
        raise PlanError(f"{path}: the file is damaged or cut short; its header does not fit in it")


def _set_permissions(temporary: Path, target: Path) -> None:
    """Give a file the owner and permissions of the one that it replaces, or those of a new file."""
    if not target.exists():
        temporary.chmod(0o666 & ~_umask())
        return
    old = target.stat()
    with contextlib.suppress(OSError):  # only root may give a file to its former owner
        os.chown(temporary, old.st_uid, old.st_gid)
    temporary.chmod(stat.S_IMODE(old.st_mode) & 0o777)


def _umask() -> int:
    """The process's umask."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    """Write the entry of a new file to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
