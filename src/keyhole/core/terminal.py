"""Text from files, safe to show: names and attributes must not be able to steer the terminal."""

from __future__ import annotations

import re

__all__ = ["visible"]

# C0 and C1 controls but for the line feed and the tab, marks and overrides of writing direction, line and paragraph
# separators, and lone surrogates, which stand for bytes of file names that are no text and cannot be printed.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Write control characters and overrides of writing direction as escapes, as they stand in Python's source.

    Examples
    --------
    >>> visible("\x1b[2Jsea")
    '\\x1b[2Jsea'
    """
    return _UNSAFE.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
