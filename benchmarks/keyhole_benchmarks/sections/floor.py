"""The default `select` beside the floor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.markdown import table
from keyhole_benchmarks.names import DATA

__all__ = ["floor"]

_HEADER = [
    "data", "samples", "K", "floor", "`select`", "ratio (s.e.)", "RMSE reported (s.e.)", "true RMSE",
    "coverage of 90 % intervals", "seconds",
]  # fmt: skip


def floor(lines: Lines) -> Iterator[str]:
    """Write one row for each set and K.

    Parameters
    ----------
    lines
        Records of the benchmark.

    Yields
    ------
    str
        Lines of Markdown.
    """
    yield from table(_HEADER, [_row(one) for one in sorted(lines, key=lambda one: (one["data"], one["k"]))])


def _row(one: Mapping[str, Any]) -> list[str]:
    found, split = one["metrics"], one["split"]
    error = f" ({found['reported_se']:.2g})" if "reported_se" in found else ""
    return [
        DATA.get(one["data"], one["data"]),
        f"{split['given']} + {split['later']}",
        str(one["k"]),
        f"{found['floor']:.3f}",
        f"{found['error']:.3f}",
        f"{found['ratio']:.3f} ({found['ratio_se']:.3f})",
        f"{found['reported']:.3g}{error}{'' if one['notes']['honest'] else ' †'}",
        f"{found['true']:.3g}",
        f"{100 * found['coverage']:.0f} %",
        f"{found['seconds']:.1f}",
    ]
