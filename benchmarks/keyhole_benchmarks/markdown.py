"""Words and tables of the results page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["spread", "table"]


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a Markdown table.

    Parameters
    ----------
    header
        Titles of the columns.
    rows
        Cells of each row.

    Returns
    -------
    list of str
        Lines of the table, the last of them empty.

    Examples
    --------
    >>> table(["method", "error"], [["qr", "0.5"]])
    ['| method | error |', '|---|---|', '| qr | 0.5 |', '']
    """
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def spread(values: Sequence[float], form: str = ".3f") -> str:
    """Return the mean of some values, and their range where there are several.

    Parameters
    ----------
    values
        The values.
    form
        Format of a number.

    Returns
    -------
    str
        Empty where there are no values.

    Examples
    --------
    >>> spread([1.0, 2.0, 3.0], ".1f"), spread([0.25]), spread([])
    ('2.0 (1.0 to 3.0)', '0.250', '')
    """
    if not values:
        return ""
    mean = format(sum(values) / len(values), form)
    return mean if len(values) == 1 else f"{mean} ({min(values):{form}} to {max(values):{form}})"
