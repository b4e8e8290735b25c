"""Cases with their stored arrays, ready to draw, and the records of one protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.names import METHODS
from keyhole_benchmarks.records import Store
from keyhole_benchmarks.table1 import KS
from keyhole_benchmarks.weights import by_resulting_k

__all__ = ["Line", "StoredCase", "latest", "stored_cases"]

Line = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class StoredCase:
    """A record with the arrays of its case.

    Parameters
    ----------
    line
        The record.
    arrays
        Arrays by name.
    """

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
    """Select the successful records of one protocol for each data set, the one with most records.

    Records of two protocols are never drawn as one; a case that was run again with other settings replaces the old one.

    Parameters
    ----------
    lines
        Records.

    Returns
    -------
    list
        The last record of each case.
    """
    good = by_resulting_k(Lines(list(lines)).latest("l0_weight"), KS)
    sizes = Counter((line["data"], line["protocol"]) for line in good)
    protocols = {data: protocol for (data, protocol), _ in sorted(sizes.items(), key=lambda item: item[1])}
    return [line for line in good if protocols[line["data"]] == line["protocol"]]


def stored_cases(store: Store, *needed: str, seeds: Sequence[int] = ()) -> list[StoredCase]:
    """Return the cases whose arrays are stored, methods in the order of the tables.

    Grids of other than two axes are left out.

    Parameters
    ----------
    store
        Records of one benchmark.
    needed
        Names of arrays that a case must have.
    seeds
        Seeds that may be used, the first of which is; empty for all.

    Returns
    -------
    list of StoredCase
        One case for each data set, K and method.
    """
    order = {name: place for place, name in enumerate((*METHODS, "cgan"))}
    known = [line for line in latest(store.lines()) if line["method"] in order]
    lines = [line for line in known if not seeds or line["seed"] in seeds]
    found: dict[tuple[str, int, str], StoredCase] = {}
    for line in sorted(lines, key=lambda line: (order[line["method"]], line["seed"])):
        key = line["data"], line["k"], line["method"]
        arrays = None if key in found else store.arrays(line["case_id"])
        if arrays is not None and {"truth", *needed} <= set(arrays) and arrays["truth"].ndim == 4:
            found[key] = StoredCase(line, arrays)
    return list(found.values())
