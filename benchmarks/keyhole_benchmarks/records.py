"""Records: one JSON line for each case, appended when the case ends and read back to make tables and figures."""

from __future__ import annotations

import json
import math
import os
import platform
import resource
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from keyhole_benchmarks.identity import identify

__all__ = ["Case", "Costs", "Meter", "Store", "code_in_use", "record"]

Costs = dict[str, float]

_SCHEMA = 1
# Settings, parts and variants that older lines call by other names.
_RENAMED = {
    "average": "ema_decay",
    "bands": "intervals",
    "batch": "batch_size",
    "candidates": "n_candidates",
    "clip": "gradient_clip",
    "components": "n_components",
    "detail": "dense_conv",
    "draws": "n_masks",
    "fall": "k_anneal",
    "kriging": "optimal_interpolation",
    "latent": "rank",
    "latent_rate": "latent_learning_rate",
    "law": "distribution",
    "law_rate": "mask_learning_rate",
    "overlap": "overlap_weight",
    "penalty": "l0_weight",
    "rate": "learning_rate",
    "row_rate": "selector_learning_rate",
    "swaps": "kernel_exchange",
    "validations": "validation_steps",
    "waves": "n_frequencies",
    "without the law": "without learned masks",
    "without swaps": "without kernel exchange",
    "one network without waves": "one network without periodic embedding",
    "the law's best of 64 samples": "best of 64 sampled masks",
    "a network rebuilds": "residual network",
    "a fifth there already": "a fifth of the sites existing",
    "a region, 700 km, one there": "region + 700 km + existing site",
    "all cells alike": "equal loss weights",
    "keyhole_rebuilding": "keyhole_reconstruction",
    "vln and swaps": "vln and kernel exchange",
    "iln and swaps": "iln and kernel exchange",
    "hnet and swaps": "hnet and kernel exchange",
    "sct and swaps": "sct and kernel exchange",
}
_NOT_A_SETTING = {"budget"}  # whose values keep their names
_CODE = ("src", "benchmarks/keyhole_benchmarks", "pyproject.toml")
_PACKAGES = ("keyhole", "torch", "numpy", "scikit-learn")


@dataclass(frozen=True)
class Case:
    """What defines one record: two cases with the same identity are the same case.

    Parameters
    ----------
    bench, data, protocol, method, reconstructor
        Names.
    k
        Number of sites; 0 where a method finds the number itself.
    seed
        Seed of the run.
    settings
        What the protocol gives to the method (``"selector"``) and the reconstructor (``"reconstructor"``), and anything
        else that sets the case apart. Settings that have their default value do not count for the identity.
    """

    bench: str
    data: str
    protocol: str
    method: str
    reconstructor: str
    k: int
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    def words(self) -> dict[str, Any]:
        """Return the fields by name, in the order of the record.

        Returns
        -------
        dict
            Values by field.
        """
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @property
    def case_id(self) -> str:
        """The identity of the case, see `identity.identify`."""
        return identify(self.words())


class Store:
    """The records of one benchmark, ``<folder>/<bench>.jsonl``.

    Lines are appended whole and flushed to the disk, so that what was measured survives a crash; a truncated last line
    is ignored when read and cut off by the next append. Lines are never rewritten: names that have changed since are
    translated, and the identity of the case is computed anew, when they are read.

    Parameters
    ----------
    folder
        Folder of the file.
    bench
        Name of the benchmark.
    """

    def __init__(self, folder: Path, bench: str) -> None:
        self.path = folder / f"{bench}.jsonl"

    def lines(self) -> list[dict[str, Any]]:
        """Return the records by today's names, the last of each case.

        Returns
        -------
        list of dict
            Records.
        """
        found: dict[str, dict[str, Any]] = {}
        for _, record in self._read():
            found.pop(record["case_id"], None)  # the last one also comes last
            found[record["case_id"]] = record
        return list(found.values())

    def done(self) -> set[str]:
        """Return the identities of the cases that need not be run again.

        Returns
        -------
        set of str
            Identities.
        """
        return {record["case_id"] for record in self.lines() if record["status"] == "ok"}

    def _read(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Give each record with the identity that was written with it."""
        for text in self.path.read_text().splitlines() if self.path.exists() else []:
            with suppress(json.JSONDecodeError, TypeError, KeyError):  # truncated, or no record
                written = json.loads(text)
                yield written["case_id"], _by_todays_names(written)

    def append(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records to the file.

        Parameters
        ----------
        records
            The records.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(_plain(record), allow_nan=False) + "\n" for record in records)
        with self.path.open("ab+") as file:
            _mend(file)
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())

    def keep_arrays(self, case: Case, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Write the arrays of a case, for figures, in one step.

        Parameters
        ----------
        case
            The case.
        arrays
            Arrays by name; nothing is written where there are none.
        """
        if arrays:
            folder = self.path.parent / "arrays"
            folder.mkdir(parents=True, exist_ok=True)
            part = folder / f"{case.case_id}.part.npz"
            np.savez_compressed(part, **dict(arrays))  # type: ignore[arg-type]
            part.replace(folder / f"{case.case_id}.npz")

    def arrays(self, case_id: str) -> dict[str, NDArray[Any]] | None:
        """Return the stored arrays of a case.

        Parameters
        ----------
        case_id
            Identity of the case.

        Returns
        -------
        dict or None
            None where there are none here (the case may have been run elsewhere).
        """
        written = (name for name, record in self._read() if record["case_id"] == case_id)
        for name in (case_id, *written):
            path = self.path.parent / "arrays" / f"{name}.npz"
            if path.exists():
                with np.load(path) as found:
                    return dict(found)
        return None


class Meter:
    """Measures wall time, processor time and peak memory of a case, from its construction on.

    Parameters
    ----------
    before
        Costs of earlier parts of the case, which are added.
    """

    def __init__(self, before: Costs | None = None) -> None:
        with suppress(OSError):  # Linux forgets the peak so far
            Path("/proc/self/clear_refs").write_text("5")
        self._before = before or {"seconds": 0.0, "cpu_seconds": 0.0, "peak_mib": 0}
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def costs(self) -> Costs:
        """Return the costs so far.

        Returns
        -------
        dict
            ``seconds``, ``cpu_seconds`` and ``peak_mib``.
        """
        return {
            "seconds": round(self._before["seconds"] + time.monotonic() - self._wall, 2),
            "cpu_seconds": round(self._before["cpu_seconds"] + time.process_time() - self._cpu, 2),
            "peak_mib": max(self._before["peak_mib"], _peak_mib()),
        }


def record(
    case: Case, *, metrics: Mapping[str, float], costs: Mapping[str, float], k_distinct: int,
    split: Mapping[str, Any], notes: Mapping[str, Any], published: float | None = None, comparable: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return the record of a case that succeeded.

    Parameters
    ----------
    case
        The case.
    metrics
        Errors by name.
    costs
        Costs by name, see `Meter`.
    k_distinct
        Number of distinct sites.
    split
        Sizes of the parts.
    notes
        Further results.
    published
        The paper's value.
    comparable
        Whether the paper's value is of the same data and scale.

    Returns
    -------
    dict
        Fields of the JSON line.
    """
    import torch

    return {
        "schema": _SCHEMA,
        "case_id": case.case_id,
        **case.words(),
        "split": dict(split),
        "k_distinct": k_distinct,
        "status": "ok",
        "metrics": dict(metrics),
        "notes": dict(notes),
        "published": published,
        "comparable": comparable,
        **costs,
        "threads": torch.get_num_threads(),
        "processor": _processor(),
        **code_in_use(),
        "versions": {name: version(name) for name in _PACKAGES} | {"python": platform.python_version()},
        "date": datetime.now(UTC).date().isoformat(),
    }


def _by_todays_names(record: dict[str, Any]) -> dict[str, Any]:
    """Give a record by the names that settings, parts and variants have today, with today's identity of its case."""
    names = ("protocol", "method", "reconstructor", "settings")
    renamed = {**record, **{name: _renamed(record[name]) for name in names}}
    if "reconstructor" in record.get("notes", {}):
        renamed["notes"] = {**record["notes"], "reconstructor": _renamed(record["notes"]["reconstructor"])}
    return {**renamed, "case_id": identify(renamed)}


def _renamed(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            _RENAMED.get(name, name): one if name in _NOT_A_SETTING else _renamed(one) for name, one in value.items()
        }
    if isinstance(value, list):
        return [_renamed(one) for one in value]
    return _RENAMED.get(value, value) if isinstance(value, str) else value


def _processor() -> str:
    """Name the instructions that networks run on: within a time limit they decide what is learned."""
    import torch

    from keyhole.training.loop import supports_bf16

    return torch.backends.cpu.get_cpu_capability() + (" with bf16" if supports_bf16("cpu") else "")


def _mend(file: IO[bytes]) -> None:
    """Cut a torn last line off a file of lines; a whole one that only lacks its end gets it."""
    file.seek(0)
    *whole, last = file.read().split(b"\n")
    try:
        json.loads(last or b"null")
    except ValueError:
        file.truncate(sum(len(one) + 1 for one in whole))
    else:
        file.write(b"\n" if last else b"")


def _peak_mib() -> int:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@cache
def code_in_use() -> dict[str, Any]:
    """Return the commit of the checkout that runs, and whether it was changed.

    Read once: a commit that is made while cases run is not what runs.

    Returns
    -------
    dict
        ``commit`` and ``dirty``, both None where the code is installed from a package.
    """
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return {"commit": None, "dirty": None}
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", *_CODE)
    return {"commit": _git(root, "rev-parse", "HEAD"), "dirty": bool(changed)}


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout.strip()


def _plain(value: Any) -> Any:
    """Numbers that JSON does not know become null, numpy's become Python's."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
