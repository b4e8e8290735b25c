"""Which of the things that a file holds is meant."""

from __future__ import annotations

from collections.abc import Sequence

from keyhole.core.errors import DataError

__all__ = ["one_of"]

_SHOWN = 12


def one_of(fit: Sequence[str], asked: str | None, held: Sequence[str], what: str) -> str:
    """Give the name asked for, or the only one that fits; an error lists the choices otherwise."""
    if asked is not None:
        if asked not in held:
            raise DataError(f"no {what} {asked!r}; there is {_listed(held) or 'none'}")
        return asked
    if not fit:
        raise DataError(f"holds no {what} of numbers on at least two axes; there is {_listed(held) or 'none'}")
    if len(fit) > 1:
        raise DataError(f"holds {len(fit)} {what}s ({_listed(fit)}); name one with variable")
    return fit[0]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
