"""Screening of tables: columns that duplicate others or number the rows are excluded from the candidates."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, KeyholeWarning
from keyhole.core.text import listed
from keyhole.data.samples import Samples

__all__ = ["Finding", "exclude", "notes", "screen", "warn_about"]

_FEWEST_ROWS = 10  # fewer whole numbers may well be in order by design
_LEAST_DENSITY = 0.5  # share of the numbers between the first and the last that occur: parts of a table have gaps
_SHOWN = 5
_BLOCK = 2**21  # values at a time


@dataclass(frozen=True)
class Finding:
    """A reason not to select a column.

    Parameters
    ----------
    column : str
        Its name.
    finding : str
        What was found, as the end of a sentence that begins with the column.
    sites : tuple of int
        Flat grid indices of its sites.
    candidate : bool
        Whether it remains a candidate.
    reconstructed : bool
        Whether it is reconstructed and counts in the error.
    """

    column: str
    finding: str
    sites: tuple[int, ...] = ()
    candidate: bool = False
    reconstructed: bool = True

    @property
    def outcome(self) -> str:
        """What becomes of it: a candidate, excluded from these, or left out, as it has no sites."""
        return "candidate" if self.candidate else "excluded" if self.sites else "left out"


def screen(samples: Samples, name: Callable[[int], str] | None = None) -> list[Finding]:
    """Find columns that number the rows, and columns that duplicate others; existing sites are never excluded.

    Whole numbers that increase, or decrease, with every row are a row number if at least half of the numbers in their
    range occur; otherwise they are reported only, as they may be a measurement by which the table is sorted. Of columns
    with the same values an existing one is kept, else the cheapest, else the first. A 0/1 indicator and its complement
    are duplicates, and so are groups with the same members.

    Parameters
    ----------
    samples : Samples
        A table: one site for each column.
    name : callable, optional
        Returns the name of a site, given its flat index; None: the grid's own name.

    Returns
    -------
    list of Finding
    """
    if samples.sensors is not None:  # the user's own, not the columns
        return []
    named, in_order = name or _name_of(samples), _in_order(samples)
    numbered = [_numbered(unit, samples, named) for unit in _units(samples) if len(unit) == 1 and in_order[unit[0]]]
    found = [one for one in numbered if one is not None]
    columns = samples.origin.columns
    left_out = [] if columns is None else [Finding(one.name, one.left_out) for one in columns.left_out]
    return [*left_out, *found, *_copies(samples, named, {site for one in found for site in one.sites})]


def _name_of(samples: Samples) -> Callable[[int], str]:
    """Name of the column that a site is of."""
    columns = samples.origin.columns
    if columns is None:
        return samples.sites.name
    owners = columns.owners[samples.sites.index]
    return lambda site: columns.columns[int(owners[site])].name


def exclude(samples: Samples, findings: Sequence[Finding]) -> Samples:
    """Exclude the columns of the findings from the candidates; row numbers become invalid sites.

    Parameters
    ----------
    samples : Samples
        A table.
    findings : sequence of Finding
        Result of `screen`.

    Returns
    -------
    Samples

    Raises
    ------
    DataError
        If no column is left.
    """
    out = [site for one in findings if not one.candidate for site in one.sites]
    if not out:
        return samples
    keep, constraints = np.ones(len(samples.sites), bool), samples.constraints
    keep[[site for one in findings if not one.reconstructed for site in one.sites]] = False
    if not keep.any():
        raise DataError("all columns number the rows; there is nothing to choose or reconstruct")
    candidates = (samples.observable if constraints is None else constraints.before).copy()
    candidates[out] = False
    left = replace(samples, observable=candidates, constraints=None)
    left = left if constraints is None else left.with_constraints(constraints.asked)
    return left if keep.all() else left.restrict(keep)


def warn_about(findings: Sequence[Finding]) -> None:
    """Report all findings in one KeyholeWarning."""
    if not findings:
        return
    consequences = {
        "left out": "left out (must_select= of an estimator takes it)",
        "excluded": "no candidate unless named as existing (existing=, --existing, must_select=)",
        "candidate": "still a candidate; leave it out of the table if it only names the rows",
    }
    groups = {outcome: [one for one in findings if one.outcome == outcome] for outcome in consequences}
    parts = [_sentence(group, consequences[outcome]) for outcome, group in groups.items() if group]
    warnings.warn("; ".join(parts), KeyholeWarning, stacklevel=3)


def notes(findings: Sequence[Finding]) -> dict[str, Any]:
    """Return the findings as a plan's record stores them; empty without findings."""
    rows = [{"column": one.column, "finding": one.finding, "candidate": one.candidate} for one in findings]
    return {"columns": rows} if rows else {}


def _sentence(findings: Sequence[Finding], consequence: str) -> str:
    """Findings and their consequence as one sentence."""
    return f"{listed([f'column {one.column!r} {one.finding}' for one in findings], _SHOWN)}: {consequence}"


def _units(samples: Samples) -> list[NDArray[np.int64]]:
    """Sites of each candidate, a column or a group of columns; the cheapest first."""
    grouping = None if samples.constraints is None else samples.constraints.grouping
    if grouping is None:
        units = [np.array([site]) for site in np.flatnonzero(samples.observable)]
    else:
        units = [grouping.members(int(unit)) for unit in np.flatnonzero(grouping.observable)]
    costs = None if samples.constraints is None else samples.constraints.rules.costs
    return units if costs is None else sorted(units, key=lambda unit: float(costs[unit].sum()))


def _in_order(samples: Samples) -> NDArray[np.bool_]:
    """Sites that hold strictly monotonic whole numbers in the first rows, to examine further."""
    if samples.channels > 1 or len(samples) < _FEWEST_ROWS:
        return np.zeros(len(samples.sites), bool)
    first = samples.values[:_FEWEST_ROWS, 0]
    steps = np.diff(first, axis=0)
    return np.asarray((first == np.round(first)).all(axis=0) & ((steps > 0).all(axis=0) | (steps < 0).all(axis=0)))


def _numbered(unit: NDArray[np.int64], samples: Samples, name: Callable[[int], str]) -> Finding | None:
    """Finding about a column that numbers the rows, or may do so."""
    column = samples.values[:, 0, unit[0]].astype(np.float64)
    steps = np.diff(column)
    if not ((steps > 0).all() or (steps < 0).all()) or (column != np.round(column)).any():
        return None
    site, length = int(unit[0]), abs(column[-1] - column[0]) + 1
    if len(column) < _LEAST_DENSITY * length:
        says = f"holds whole numbers that only {'grow' if steps[0] > 0 else 'shrink'}, and may number the rows"
        return Finding(name(site), says, (site,), candidate=True)
    return Finding(name(site), "numbers the rows", (site,), reconstructed=False)


def _copies(samples: Samples, name: Callable[[int], str], excluded: set[int]) -> Iterator[Finding]:
    """Find candidates that duplicate an existing site or an earlier candidate."""
    existing = dict[str, list[int]]()
    for site in samples.existing.tolist():
        existing.setdefault(name(site), []).append(site)  # a column of classes has several
    digests = _digests(samples)
    kept = {_members(digests, sites): sites[0] for sites in existing.values()}
    for unit in _units(samples):
        sites = tuple(int(site) for site in unit)
        members = _members(digests, sites)
        if not members or excluded & set(sites):
            continue
        of = kept.setdefault(members, sites[0])
        if of != sites[0]:
            yield Finding(name(sites[0]), f"has the same values as {name(of)!r}", sites)


def _members(digests: Mapping[int, bytes], sites: Sequence[int]) -> frozenset[bytes]:
    """Digests of the columns of a candidate, without constant ones."""
    return frozenset(digests[site] for site in sites if site in digests)


def _digests(samples: Samples) -> dict[int, bytes]:
    """Hash of the values of each site, equal for an indicator and its complement; none for constant sites."""
    flat = samples.values
    found, rows = dict[int, bytes](), len(samples) * samples.channels
    columns = max(1, _BLOCK // rows)
    for start in range(0, flat.shape[2], columns):
        block = _canonical(flat[:, :, start : start + columns].reshape(rows, -1).astype(np.float64))
        bits = np.ascontiguousarray(block.T).view(np.uint64)
        for place in np.flatnonzero((bits != bits[:, :1]).any(axis=1)):
            found[start + int(place)] = hashlib.sha256(bits[place]).digest()
    return found


def _canonical(block: NDArray[np.float64]) -> NDArray[np.float64]:
    """Columns with one representation of zero and NaN, and indicators whose first known value is 0."""
    known = ~np.isnan(block)
    flags = ((block == 0) | (block == 1) | ~known).all(axis=0)
    first = block[known.argmax(axis=0), np.arange(block.shape[1])]
    turned = np.where(flags & (first == 1), 1 - block, block) + 0.0
    return np.where(known, turned, np.nan)
