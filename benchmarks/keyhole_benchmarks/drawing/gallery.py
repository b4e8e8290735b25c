"""All figures that records and arrays allow, as files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from keyhole_benchmarks.drawing.charts import charted, table1_chart
from keyhole_benchmarks.drawing.densities import densities
from keyhole_benchmarks.drawing.distributions import averages, covariance
from keyhole_benchmarks.drawing.features import features_figure
from keyhole_benchmarks.drawing.samples import gan_against_squared, samples
from keyhole_benchmarks.drawing.stored_cases import Line, StoredCase, stored_cases
from keyhole_benchmarks.drawing.style import save
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.names import DATA
from keyhole_benchmarks.records import Store

__all__ = ["PRIVATE", "draw_all", "draw_chart", "draw_features"]

PRIVATE = frozenset({"celeba"})  # whose terms forbid to publish faces
_DISTRIBUTIONS = ("iln", "sct", "vln", "hnet")
_PAPER_K = 30  # of the paper's figures of mask distributions


class _Picture(NamedTuple):
    """A figure, what its files are called, and whether they must not be published."""

    name: str
    private: bool
    figure: Figure


def draw_all(store_folder: Path, out: Path, private: Path, *, seeds: Sequence[int] = ()) -> list[Path]:
    """Draw every figure that the records and arrays in a folder allow.

    Samples of a data set of `PRIVATE` go to ``private``, all else to ``out``. Figures without their data are left out.

    Parameters
    ----------
    store_folder
        Folder of the records.
    out
        Folder of the figures.
    private
        Folder of the figures that must not be published.
    seeds
        Seeds that may be shown, the first of which is; empty for all.

    Returns
    -------
    list of Path
        Files written, PNG and SVG of each figure.
    """
    table, gan = Store(store_folder, "table1"), Store(store_folder, "cgan")
    paths = save(densities(), out, "densities")
    paths += draw_chart(table.lines(), out)
    for pictures in (_distributions(table, seeds), _samples(table, seeds), _gans(gan, seeds)):
        for picture in pictures:
            paths += save(picture.figure, private if picture.private else out, picture.name)
    return paths


def draw_chart(lines: Iterable[Line], out: Path) -> list[Path]:
    """Draw Table 1 from its records alone.

    Parameters
    ----------
    lines
        Records of Table 1.
    out
        Folder of the figure.

    Returns
    -------
    list of Path
        Files written.
    """
    known = charted(lines)
    return save(table1_chart(known), out, "table1") if known else []


def draw_features(lines: Lines, out: Path) -> list[Path]:
    """Draw the comparison of feature selectors for each data set of the benchmark of tables.

    Parameters
    ----------
    lines
        Records of that benchmark.
    out
        Folder of the figures.

    Returns
    -------
    list of Path
        Files written.
    """
    return [path for data in lines.each("data") for path in save(features_figure(lines.where(data=data)), out, data)]


def _distributions(store: Store, seeds: Sequence[int]) -> Iterator[_Picture]:
    """Average masks and covariance on MNIST, at the paper's K if that was run."""
    rows = [
        row
        for row in stored_cases(store, "average", "sites", seeds=seeds)
        if row.data == "mnist" and row.method in _DISTRIBUTIONS
    ]
    at: dict[int, list[StoredCase]] = defaultdict(list)
    for row in rows:
        at[row.k].append(row)
    for k in sorted(at, key=lambda k: (len(at[k]) < len(_DISTRIBUTIONS), k != _PAPER_K, k))[:1]:
        yield _Picture("averages", False, averages(sorted(at[k], key=lambda row: _DISTRIBUTIONS.index(row.method))))
    correlated = [row for row in rows if row.method == "vln" and _covers_the_grid(row)]
    for row in sorted(correlated, key=lambda row: (row.k != _PAPER_K, row.k))[:1]:
        yield _Picture("covariance", False, covariance(row.arrays))


def _covers_the_grid(row: StoredCase) -> bool:
    return "covariance" in row.arrays and len(row.arrays["covariance"]) == row.arrays["average"].size


def _samples(store: Store, seeds: Sequence[int]) -> Iterator[_Picture]:
    rows = sorted(
        stored_cases(store, "truth", "reconstructed", "sites", seeds=seeds), key=lambda row: (row.data, row.k)
    )
    for (data, k), group in groupby(rows, key=lambda row: (row.data, row.k)):
        title = f"{DATA.get(data, data)}, K = {k}"
        yield _Picture(f"samples-{data}-{k}", data in PRIVATE, samples(list(group), title))


def _gans(store: Store, seeds: Sequence[int]) -> Iterator[_Picture]:
    """One figure a data set, at the first K at which both objectives were run."""
    by_data: dict[str, dict[tuple[str, int], StoredCase]] = defaultdict(dict)
    for row in stored_cases(store, "truth", "reconstructed", "sites", seeds=seeds):
        by_data[row.data][row.method, row.k] = row
    for data, rows in by_data.items():
        both = [k for method, k in sorted(rows) if method == "cgan" and ("vln", k) in rows]
        for k in both[:1]:
            yield _Picture(f"cgan-{data}", data in PRIVATE, gan_against_squared(rows["cgan", k], rows["vln", k]))
