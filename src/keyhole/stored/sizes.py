"""Sizes as people write them: 2GiB, 500 MB."""

from __future__ import annotations

import re

from keyhole.errors import SettingsError

__all__ = ["size_of", "size_words"]

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


def size_of(text: str | int) -> int:
    """Give bytes of a size.

    Examples
    --------
    >>> size_of("2GiB"), size_of("500 MB"), size_of(1024)
    (2147483648, 500000000, 1024)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", str(text).lower())
    size = None if found is None else _UNITS.get(found[2])
    if found is None or size is None or float(found[1]) * size < 1:
        raise SettingsError(f"memory={text!r}: a size is needed, such as 2GiB or 500MB")
    return int(float(found[1]) * size)


def size_words(count: float) -> str:
    """Write a number of bytes.

    Examples
    --------
    >>> size_words(3 * 2**29), size_words(5 * 2**20), size_words(5 * 2**10)
    ('1.5 GiB', '5 MiB', '5 KiB')
    """
    if count >= 2**30:
        return f"{count / 2**30:.1f} GiB"
    return f"{count / 2**20:.0f} MiB" if count >= 2**20 else f"{count / 2**10:.0f} KiB"
