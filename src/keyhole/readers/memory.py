"""Does it fit? Declared sizes are compared with memory before anything is allocated."""

from __future__ import annotations

import os

from keyhole.errors import DataError

__all__ = ["check_fits"]


def check_fits(declared: int, what: str) -> None:
    """Raise a DataError if ``declared`` bytes are more than the memory that is free."""
    free = _free_memory()
    if declared > free:
        raise DataError(
            f"{what} declares {_size(declared)}, and {_size(free)} of memory are free; "
            "take a part of it, or coarsen it first"
        )


def _free_memory() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:  # noqa: PTH123 (a pseudo file)
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
