"""Text for messages: safe to show on a terminal, and lists that stay short."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["listed", "visible"]

# C0 and C1 controls but for the line feed and the tab, marks and overrides of writing direction, line and paragraph
# separators, and lone surrogates, which stand for bytes of file names that are no text and cannot be printed.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Replace control characters and overrides of writing direction by escapes, as in Python's source.

    Names and attributes come from files, and must not be able to control the terminal.

    Parameters
    ----------
    text : str
        Any text.

    Returns
    -------
    str

    Examples
    --------
    >>> visible("\x1b[2Jsea")
    '\\x1b[2Jsea'
    """
    return _UNSAFE.sub(_escaped, text)


def listed(texts: Sequence[str], limit: int) -> str:
    """Join texts by commas, and give the number of those beyond a limit.

    Parameters
    ----------
    texts : sequence of str
        Texts, such as names.
    limit : int
        Number of texts that are shown.

    Returns
    -------
    str

    Examples
    --------
    >>> listed(["a", "b", "c", "d"], 2)
    'a, b and 2 more'
    """
    return ", ".join(texts[:limit]) + (f" and {len(texts) - limit} more" if len(texts) > limit else "")


def _escaped(found: re.Match[str]) -> str:
    """Return the escape sequence of one character."""
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
