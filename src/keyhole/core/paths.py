"""Checks of paths: links, pipes and devices, and outputs that would replace inputs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from keyhole.core.errors import SettingsError, StorageError

__all__ = ["check_apart", "check_regular", "check_regular_within", "open_regular", "real_path"]

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

Given = str | Path | Sequence[str | Path] | None


def check_regular(path: Path) -> None:
    """Raise a StorageError if a path is a pipe, a socket or a device: reading from it may block, or never end.

    Parameters
    ----------
    path : Path
        A path that does not exist passes; opening it raises the error.

    Raises
    ------
    StorageError
    """
    try:
        kind = _KINDS.get(stat.S_IFMT(path.stat().st_mode))
    except (OSError, ValueError):
        return
    if kind is not None:
        raise StorageError(f"{path}: is {kind}, not a regular file; write the data to a file and give that")


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading.

    Parameters
    ----------
    path : Path
        A file.

    Returns
    -------
    binary file
        To be closed by the caller.

    Raises
    ------
    StorageError
        If the file does not exist, may not be read, or is a pipe, a socket or a device.
    """
    check_regular(path)
    try:
        return path.open("rb")
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error


def check_regular_within(folder: Path) -> None:
    """Raise a StorageError if a folder, or one below it, holds a pipe, a socket or a device.

    Parameters
    ----------
    folder : Path
        Links to folders are followed, each once.

    Raises
    ------
    StorageError
    """
    seen: set[tuple[int, int]] = set()
    waiting = [folder]
    while waiting:
        place = waiting.pop()
        about = place.stat()
        if (about.st_dev, about.st_ino) in seen:  # a link back to a folder above
            continue
        seen.add((about.st_dev, about.st_ino))
        with os.scandir(place) as entries:
            for entry in entries:
                if entry.is_dir():
                    waiting.append(Path(entry.path))
                elif not entry.is_file():
                    check_regular(Path(entry.path))


def real_path(path: Path) -> Path:
    """Resolve the symbolic links of a path, which need not exist.

    Parameters
    ----------
    path : Path
        A path.

    Returns
    -------
    Path

    Raises
    ------
    StorageError
        If a link leads back to itself.
    """
    found = Path(os.path.realpath(path))
    if found.is_symlink():
        raise StorageError(f"{path}: is a symbolic link that leads back to itself")
    return found


def check_apart(
    inputs: Mapping[str, Given], outputs: Mapping[str, Path | None], *, read_from_folders: Sequence[str] = ()
) -> None:
    """Raise a SettingsError if an output would replace an input or another output, also through links.

    Parameters
    ----------
    inputs : mapping
        What is read, by the name of the argument or option; text that is no path of an existing file passes.
    outputs : mapping
        What is written, by the name of the option.
    read_from_folders : sequence of str
        Extensions of files that are read from a folder: none of these may be written to a folder that is read, and
        nothing may be written to a Zarr store.

    Raises
    ------
    SettingsError

    Examples
    --------
    >>> check_apart({"SOURCE": "data.csv"}, {"--out": Path("plan.keyhole"), "--report": None})
    """
    asked = [(name, Path(path)) for name, path in outputs.items() if path is not None]
    for place, (name, path) in enumerate(asked):
        for other, before in asked[:place]:
            if _is_same(path, before):
                raise SettingsError(f"{name}: {path} is the same file as {other} ({before}); name two different files")
        for source, given in _existing(inputs):
            if _is_same(path, given):
                raise SettingsError(f"{name}: {path} is the same file as {source} ({given}), which it would replace; "
                                    "name another")  # fmt: skip
            if given.is_dir() and _is_part(path, given, read_from_folders):
                raise SettingsError(f"{name}: {path} lies in the folder that is read ({source}, {given}) and would be "
                                    "taken for a part of the data; name a file elsewhere")  # fmt: skip


def _existing(inputs: Mapping[str, Given]) -> Iterator[tuple[str, Path]]:
    """Inputs that exist, with their names."""
    for name, given in inputs.items():
        for one in [given] if isinstance(given, str | Path) else given or []:
            if os.path.lexists(one):
                yield name, Path(one)


def _is_same(path: Path, other: Path) -> bool:
    """Whether two paths lead to the same file."""
    if path.exists() and other.exists():
        return path.samefile(other)
    return os.path.realpath(path) == os.path.realpath(other)


def _is_part(path: Path, folder: Path, suffixes: Sequence[str]) -> bool:
    """Whether a file would become part of the data in a folder."""
    within = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))
    return within and (folder.suffix.lower() == ".zarr" or path.suffix.lower() in suffixes)
