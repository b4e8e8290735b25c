"""The smaller tables of the results page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from keyhole.bench.ill_posed import halve
from keyhole.bench.lines import Lines
from keyhole.bench.markdown import table
from keyhole.bench.names import DATA, METHODS
from keyhole.bench.published import CLASSIFICATION
from keyhole.bench.published import METHODS as PAPER

__all__ = ["cgan", "l1", "table2", "weights"]


def table2(lines: Lines) -> Iterator[str]:
    """Classification error, percent, least and mean of five trainings, beside the paper's."""
    for k in sorted(lines.each("k")):
        yield from ("", f"### K = {k}", "")
        rows = [_classified(one, k) for one in lines.where(k=k, data="mnist")]
        yield from table(["method", "published least / mean, %", "least, %", "mean, %", "seconds"], rows)


def _classified(one: Mapping[str, Any], k: int) -> list[str]:
    method, metrics = one["method"], one["metrics"]
    known = CLASSIFICATION[k][PAPER.index(method)] if method in PAPER and k in CLASSIFICATION else None
    return [
        METHODS[method],
        "" if known is None else f"{known[0]:.2f} / {known[1]:.2f}",
        f"{100 * metrics['least_error']:.2f}",
        f"{100 * metrics['mean_error']:.2f}",
        f"{one['seconds']:.0f}",
    ]


def weights(lines: Lines) -> Iterator[str]:
    """What comes out of each weight."""
    header = ["law", "weight", "expected L0", "count", "K", "MSE x 1e-2", "concentration", "interior modes"]
    rows = [
        [
            METHODS.get(one["method"], one["method"]),
            f"{one['settings']['selector']['penalty']:g}",
            f"{one['notes']['expected_l0']:.0f}",
            f"{one['notes']['count']:.1f}",
            f"{one['k_distinct']} ({one['reconstructor'].split()[-1]})",
            f"{100 * one['metrics']['mse']:.3f}",
            f"{one['notes']['concentration']:.2f}",
            f"{one['notes']['interior_modes']:.2f}",
        ]
        for one in lines
    ]
    yield from table(header, rows)


def cgan(lines: Lines) -> Iterator[str]:
    """Error and sharpness of both objectives."""
    header = ["data", "K", "objective", "MSE x 1e-2", "sharpness", "concentration", "seconds"]
    rows = [
        [
            DATA.get(one["data"], one["data"]),
            str(one["k"]),
            "GAN + L1" if one["method"] == "cgan" else "squared error",
            f"{100 * one['metrics']['mse']:.3f}",
            f"{one['metrics']['sharpness']:.2f}",
            f"{one['notes']['concentration']:.2f}",
            f"{one['seconds']:.0f}",
        ]
        for one in lines
    ]
    yield from table(header, rows)


def l1() -> Iterator[str]:
    """The halving of masks, computed afresh: it needs no data."""
    rows = [[f"{row.times}", f"{row.error:.5f}", f"{row.l1:.5f}", f"{row.shown:.5f}"] for row in halve(4)]
    yield from table(["halved", "error", "l1 a site", "sites that show"], rows)
