"""Memory that the control groups (cgroups) of this process leave: limits of containers, batch systems and services."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

__all__ = ["free_in_cgroups"]


class _Version(NamedTuple):
    """Where a version of cgroups keeps memory limits, and how its files are called."""

    mount: str
    limits: tuple[str, ...]
    usage: str
    caches: tuple[str, ...]  # lines of memory.stat: pages of files, which the kernel gives up before anything else


_V1 = _Version(
    "sys/fs/cgroup/memory", ("memory.limit_in_bytes",), "memory.usage_in_bytes",
    ("total_active_file", "total_inactive_file"),
)  # fmt: skip
_V2 = _Version("sys/fs/cgroup", ("memory.max", "memory.high"), "memory.current", ("active_file", "inactive_file"))


def free_in_cgroups(root: Path = Path("/")) -> int | None:
    """Return the bytes that are left by the tightest of the groups that this process is in.

    Groups are nested, and each of them may have a limit. Cached files count as free, as they do in MemAvailable of
    ``/proc/meminfo``: a process that has read a large file would otherwise seem to have used up its memory.

    Parameters
    ----------
    root : Path
        Folder that holds ``proc`` and ``sys``.

    Returns
    -------
    int or None
        None if there is no limit, or no cgroups. At least 0.

    References
    ----------
    Linux kernel documentation, "Control Group v2", section Memory, and "Memory Resource Controller" (version 1).
    """
    left = [
        max(0, limit - _used(folder, version))
        for version, folder in _groups(root)
        for limit in (_number(folder / name) for name in version.limits)
        if limit is not None
    ]
    return min(left, default=None)


def _groups(root: Path) -> Iterator[tuple[_Version, Path]]:
    """Folders of the groups that control the memory of this process, from its own to the topmost."""
    try:
        lines = (root / "proc/self/cgroup").read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        version = _V2 if number == "0" else _V1 if "memory" in controllers.split(",") else None
        if version is None:
            continue
        own = PurePosixPath(path.lstrip("/"))
        if ".." in own.parts:  # a group that cannot be seen from within the container
            own = PurePosixPath()
        for group in (own, *own.parents) if own.parts else (own,):
            yield version, root / version.mount / group


def _used(folder: Path, version: _Version) -> int:
    """Bytes in use by a group, without cached files."""
    try:
        lines = [line.split() for line in (folder / "memory.stat").read_text().splitlines()]
    except OSError:
        lines = []
    cached = sum(int(line[1]) for line in lines if len(line) == 2 and line[0] in version.caches)
    return max(0, (_number(folder / version.usage) or 0) - cached)


def _number(path: Path) -> int | None:
    """Number in a file; None if it is ``max`` or there is none."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
