"""What all readers share: damaged files become errors that name the file, and one of several arrays is chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from keyhole.core.errors import DataError, KeyholeError
from keyhole.core.text import listed

__all__ = ["decoding", "one_of"]

_SHOWN = 12


@contextmanager
def decoding(what: str | Path, problem: str) -> Iterator[None]:
    """Convert whatever a library raises on a damaged or forged file to a DataError.

    The libraries under the readers (numpy, scipy, HDF5, zlib, Pillow, pyarrow, ...) raise errors of many types on such
    files, memory errors included; Keyhole's own errors pass.

    Parameters
    ----------
    what : str or Path
        The file, or the part of it, that is decoded.
    problem : str
        What an error says about it: ``"not a whole .npz file"``.

    Raises
    ------
    DataError

    Examples
    --------
    >>> with decoding("a.txt", "not a number"):
    ...     int("x")
    Traceback (most recent call last):
    keyhole.core.errors.DataError: a.txt: not a number (invalid literal for int() with base 10: 'x')
    """
    try:
        yield
    except KeyholeError:
        raise
    except Exception as error:
        raise DataError(f"{what}: {problem} ({error})") from error


def one_of(candidates: Sequence[str], name: str | None, available: Sequence[str], what: str) -> str:
    """Return the name given, or the only candidate.

    Parameters
    ----------
    candidates : sequence of str
        Names of the arrays that can be samples.
    name : str, optional
        The name given by the user.
    available : sequence of str
        Names of all arrays.
    what : str
        What they are, for messages: ``"array"``, ``"field"``.

    Returns
    -------
    str

    Raises
    ------
    DataError
        If the name does not exist, or there is not exactly one candidate; the message lists the choices.

    Examples
    --------
    >>> one_of(["sst"], None, ["sst", "time"], "field")
    'sst'
    """
    if name is not None:
        if name not in available:
            raise DataError(f"no {what} {name!r}; there is {listed(available, _SHOWN) or 'none'}")
        return name
    if not candidates:
        raise DataError(
            f"holds no {what} of numbers on at least two axes; there is {listed(available, _SHOWN) or 'none'}"
        )
    if len(candidates) > 1:
        raise DataError(
            f"holds {len(candidates)} {what}s ({listed(candidates, _SHOWN)}); name one (variable=, --variable)"
        )
    return candidates[0]
