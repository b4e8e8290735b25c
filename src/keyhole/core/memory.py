"""Memory: parse and format sizes, query free memory, and explain out-of-memory errors."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from keyhole.core.cgroups import free_in_cgroups
from keyhole.core.errors import DataError, OutOfMemoryError, SettingsError

__all__ = [
    "check_fits",
    "default_limit",
    "explain_out_of_memory",
    "format_size",
    "free_memory",
    "memory_limit",
    "parse_size",
]

_UNITS = {"": 1, "b": 1, "bytes": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


def parse_size(text: str | int) -> int:
    """Parse a size in bytes.

    Parameters
    ----------
    text : str or int
        A number with an optional unit, decimal (kB, MB, GB, TB) or binary (KiB, MiB, GiB, TiB).

    Returns
    -------
    int

    Raises
    ------
    SettingsError
        If it is not a size of at least one byte.

    Examples
    --------
    >>> parse_size("2GiB"), parse_size("500 MB"), parse_size(1024)
    (2147483648, 500000000, 1024)
    """
    found = _SIZE.fullmatch(str(text).lower().strip())
    unit = None if found is None else _UNITS.get(found[2])
    if found is None or unit is None or float(found[1]) * unit < 1:
        raise SettingsError(f"memory={text!r}: a size is needed, such as 2GiB or 500MB")
    return int(float(found[1]) * unit)


def format_size(count: float) -> str:
    """Format a number of bytes with a binary unit.

    Examples
    --------
    >>> format_size(3 * 2**29), format_size(5 * 2**20), format_size(5 * 2**10)
    ('1.5 GiB', '5 MiB', '5 KiB')
    """
    if count >= 2**30:
        return f"{count / 2**30:.1f} GiB"
    return f"{count / 2**20:.0f} MiB" if count >= 2**20 else f"{count / 2**10:.0f} KiB"


def check_fits(declared: int, what: str) -> None:
    """Raise a DataError if a declared size exceeds the free memory.

    Parameters
    ----------
    declared : int
        Bytes.
    what : str
        File or variable that declares them.

    Raises
    ------
    DataError

    Examples
    --------
    >>> check_fits(1000, "a small file")
    """
    free = free_memory()
    if declared > free:
        raise DataError(
            f"{what} declares {format_size(declared)}, and {format_size(free)} of memory are free; go through a NetCDF "
            "or Zarr field some samples at a time (--memory), take a part of it, or coarsen it first"
        )


def free_memory(root: Path = Path("/")) -> int:
    """Return the free memory in bytes, whatever limits it.

    Parameters
    ----------
    root : Path
        Folder that holds ``proc`` and ``sys``.

    Returns
    -------
    int
        What Linux reports as available (MemAvailable), else all physical memory; at most what the control groups of
        this process leave, by which containers, batch systems and services limit memory.
    """
    free = _available(root)
    limited = free_in_cgroups(root)
    return free if limited is None else min(free, limited)


def _available(root: Path) -> int:
    """Available memory of the machine."""
    try:
        for line in (root / "proc/meminfo").read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_limit(memory: str | int | None = None) -> int:
    """Return the memory limit of a run in bytes.

    Parameters
    ----------
    memory : str or int, optional
        As for `parse_size`. None: `default_limit` of the memory that is free now.

    Returns
    -------
    int

    Raises
    ------
    SettingsError
        If it is not a size of at least one byte.

    Examples
    --------
    >>> memory_limit("2GiB")
    2147483648
    """
    return default_limit(free_memory()) if memory is None else parse_size(memory)


def default_limit(free: int) -> int:
    """Return the memory limit where the user gives none: half of what is free, and at least 1 MiB.

    The other half is for other programs, the file cache, and the copies that libraries make.

    Parameters
    ----------
    free : int
        Free memory in bytes.

    Returns
    -------
    int

    Examples
    --------
    >>> default_limit(2**34) == 2**33
    True
    """
    return max(free // 2, 2**20)


@contextlib.contextmanager
def explain_out_of_memory(what: str, remedy: str) -> Iterator[None]:
    """Convert out-of-memory errors of NumPy and torch to an `OutOfMemoryError` with a remedy.

    Parameters
    ----------
    what : str
        What was attempted, at the start of the message.
    remedy : str
        Which setting to lower, at its end.
    """
    try:
        yield
    except OutOfMemoryError:
        raise
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not _is_of_memory(error):
            raise
        found = re.search(r"allocate (\d+(?:\.\d*)?)\s*([KMGT]iB|bytes)", str(error))
        needed = "more" if found is None else f"{format_size(float(found[1]) * _UNITS[found[2].lower()])} more"
        free = format_size(free_memory())
        raise OutOfMemoryError(
            f"{what}: not enough memory; {needed} was needed and {free} are free: {remedy}"
        ) from error


def _is_of_memory(error: RuntimeError) -> bool:
    """Whether a RuntimeError of torch reports a lack of memory; not every device has an exception for it."""
    return "out of memory" in str(error) or "can't allocate memory" in str(error)
