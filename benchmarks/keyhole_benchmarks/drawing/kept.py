"""What the benchmarks kept, ready to draw: lines of one protocol, and lines with their arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.names import METHODS
from keyhole_benchmarks.records import Store

__all__ = ["Kept", "Line", "kept", "latest"]

Line = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Kept:
    """A line and the arrays that were kept with it."""

    line: Line
    arrays: Mapping[str, NDArray[Any]]

    @property
    def data(self) -> str:
        """Name of the data set."""
        return str(self.line["data"])

    @property
    def method(self) -> str:
        """Name of the method."""
        return str(self.line["method"])

    @property
    def k(self) -> int:
        """How many sites were asked for."""
        return int(self.line["k"])

    @property
    def concentration(self) -> float | None:
        """Share of the count that the K most probable sites hold; None where no mask distribution was trained."""
        found = self.line.get("notes", {}).get("concentration")
        return None if found is None else float(found)


def latest(lines: Iterable[Line]) -> list[Line]:
    """Give the lines that ended well: for each data set those of the protocol with most of them, the last of a kind.

    Lines of two protocols are never drawn as one; a line that was run again with other settings replaces the old one.
    """
    good = Lines(list(lines)).latest()
    sizes = Counter((line["data"], line["protocol"]) for line in good)
    protocols = {data: protocol for (data, protocol), _ in sorted(sizes.items(), key=lambda item: item[1])}
    return [line for line in good if protocols[line["data"]] == line["protocol"]]


def kept(store: Store, *needed: str, seeds: Sequence[int] = ()) -> list[Kept]:
    """Give the lines whose arrays are here and hold all that is needed, methods in the tables' order.

    Of several seeds, all or those named, the first is given; grids of other than two axes are left out.
    """
    order = {name: place for place, name in enumerate((*METHODS, "cgan"))}
    known = [line for line in latest(store.lines()) if line["method"] in order]
    lines = [line for line in known if not seeds or line["seed"] in seeds]
    found: dict[tuple[str, int, str], Kept] = {}
    for line in sorted(lines, key=lambda line: (order[line["method"]], line["seed"])):
        key = line["data"], line["k"], line["method"]
        arrays = None if key in found else store.arrays(line["case_id"])
        if arrays is not None and {"truth", *needed} <= set(arrays) and arrays["truth"].ndim == 4:
            found[key] = Kept(line, arrays)
    return list(found.values())
