"""Feed files that libFuzzer makes up to the readers; only a KeyholeError may come of them.

    python scripts/fuzz.py plan --seconds 150

Targets are plan, npz, mat and settings. The first input that raises anything else, takes too long or takes too much
memory is saved as fuzz-TARGET-... in the folder this is run from, and ends it with an error; given with --again, it is
tried alone. The inputs that led somewhere new stay in a folder that is told at the start. Needs atheris (pip install
atheris), which is no dependency of Keyhole.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import importlib
import io
import json
import struct
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import atheris
except ImportError:
    sys.exit("atheris is not installed, and nothing else guides a fuzzer through Python code: pip install atheris")

import numpy as np
import pandas as pd

# What the fuzzer follows: Keyhole, and what takes files apart for it.
with atheris.instrument_imports(include=["keyhole", "numpy", "tomllib", "zipfile"]):
    import tomllib  # noqa: F401
    import zipfile

    import scipy.io
    from numpy.lib import _format_impl, format

    for module in (zipfile, _format_impl, format):  # which are loaded already
        importlib.reload(module)

    import keyhole as kh
    import keyhole.core.settings
    import keyhole.core.storage
    import keyhole.data.readers
    import keyhole.plan.plan
    import keyhole.workflow.sweeps.study

from rich.console import Console
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from keyhole.core.errors import KeyholeError
from keyhole.core.settings import Settings, parse
from keyhole.core.storage import MAGIC, VERSION
from keyhole.report.tables import plan_summary, plan_table
from keyhole.workflow.sweeps.study import StudyFile, read_study

RAW, SEALED, EDITS = b"\x00", b"\x01", b"\x02"  # first byte of an input: how the rest becomes a file
VALUES = [None, True, -1, 0, 0.5, 2, 300_000_000, 10**30, float("nan"), float("inf"), "", "V300000000", "month", [], {}]
VALUES += [[1, "a", None], {"a": [1]}, "\ud800"]
MEMORY = 3000  # MiB
LONGEST = 20_000  # bytes of one input
PATIENCE = 20  # seconds for one input
WORDS = ["null", "true", "NaN", "-1", "1e999", "[]", "{}", '""', "0", "99999999999999999999", '"<f8"', '"datetime64"']
WORDS += ["KEYHOLE\0", "PK\3\4", "PK\1\2", "PK\5\6", "\x93NUMPY", "'shape'", "(-1,)", "MATLAB 5.0", "[[", "a.b=1"]


@dataclass(frozen=True)
class Target:
    """Inputs to begin with, how an input becomes a file, the file's name, and what reads it."""

    seeds: list[bytes]
    content: Callable[[bytes], bytes]
    name: Callable[[bytes], str]
    read: Callable[[Path], object]


def samples(*grid: int) -> np.ndarray:
    """Signals that a plan can be made of."""
    rng = np.random.default_rng(0)
    return np.tensordot(rng.normal(size=(60, 3)), rng.normal(size=(3, *grid)), axes=1)


def saved_plans(folder: Path) -> list[bytes]:
    """Files of small plans: of arrays, of a table with a target, of a field by month with two channels, of networks."""
    import xarray as xr

    table = pd.DataFrame(samples(5), columns=list("abcde")).assign(kind=["x", "y"] * 30)
    axes = {"time": pd.date_range("2000-01-01", periods=60, freq="MS"), "lat": [0.0, 10.0], "place": ["p", "q"]}
    field = xr.DataArray(samples(2, 2), axes, ("time", "lat", "place"), "sst")
    signals = [kh.read(samples(2, 3)), kh.read(table, target="kind")]
    signals.append(kh.read(xr.Dataset({"a": field, "b": field**2})).anomalies("month"))
    kinds = ["optimal_interpolation", "ridge", "ridge", "kernel", "dense", "residual", "dense_conv"]
    signals += [signals[0], kh.read(samples(5)), signals[0], kh.read(samples(4, 4))]
    files = []
    for number, (one, kind) in enumerate(zip(signals, kinds, strict=True)):
        path = folder / f"{number}.keyhole"
        kh.select(one, 2, method="qr", reconstructor=kind, time_limit=2).save(path)
        files.append(path.read_bytes())
    return files


def sealed(content: bytes) -> bytes:
    """Close a plan's content with the SHA-256 that belongs to it."""
    return content + hashlib.sha256(content).digest()


def parts(file: bytes) -> tuple[bytes, bytes]:
    """Header and arrays of a plan's file."""
    start = 20 + struct.unpack_from("<Q", file, 12)[0]
    return file[20:start], file[start:-32]


def nodes(tree: Any) -> list[tuple[Any, Any]]:
    """Every value of a JSON tree, as what holds it and its name there."""
    pairs = list(tree.items()) if isinstance(tree, dict) else list(enumerate(tree)) if isinstance(tree, list) else []
    return [(tree, name) for name, _ in pairs] + [node for _, value in pairs for node in nodes(value)]


def edited(file: bytes, edits: bytes) -> bytes:
    """Change values of a plan's header, or numbers, shapes and types of its arrays: four bytes for each change."""
    header, arrays = json.loads(parts(file)[0]), dict(load_arrays(parts(file)[1]))
    for place, other, change, more in zip(*[iter(edits)] * 4, strict=False):
        if change < 2 * len(VALUES):
            found = nodes(header)
            holder, name = found[(256 * place + other) % len(found)]
            holder[name] = copy.deepcopy(VALUES[change % len(VALUES)])
            continue
        name = sorted(arrays)[place % len(arrays)]
        arrays[name] = _edited(np.array(arrays[name]), other, change, more)
    text, body = json.dumps(header).encode(), save_arrays(arrays)
    return sealed(struct.pack("<8sIQ", MAGIC, VERSION, len(text)) + text + body)


def _edited(array: np.ndarray, place: int, change: int, value: int) -> np.ndarray:
    """Change one number, the shape or the type of an array."""
    if change % 3 == 0:
        return np.ascontiguousarray(array.astype(["f2", "f4", "f8", "i1", "i8", "u8", "?", "c8"][value % 8]))
    if change % 3 == 1:
        shapes = [array[:1], array[:0], array.ravel(), array[None]] if array.ndim else [array[None]]
        return np.ascontiguousarray(shapes[value % len(shapes)])
    if array.size:
        numbers = [0, -1, 1, 7, 100] + ([np.nan, np.inf, -np.inf, 1e4, -1e4] if array.dtype.kind == "f" else [])
        array.reshape(-1)[place % array.size] = np.array(numbers[value % len(numbers)]).astype(array.dtype)
    return array


def plan_target(folder: Path) -> Target:
    """Plans: a whole file, content or a header that is sealed rightly, or a real plan with a few changes, sealed."""
    files = saved_plans(folder)

    def content(given: bytes) -> bytes:
        if given[:1] == RAW:
            return given[1:]
        if given[:1] == SEALED:
            return sealed(given[1:])
        if given[:1] == EDITS:
            return edited(files[given[1] % len(files)] if given[1:] else files[0], given[2:])
        header = given[1:]
        arrays = parts(files[given[0] % len(files)])[1]
        return sealed(struct.pack("<8sIQ", MAGIC, VERSION, len(header)) + header + arrays)

    headers = [bytes([3 * len(files) + place]) + parts(file)[0] for place, file in enumerate(files)]
    headers += [EDITS + bytes([place, 1, 2, 3, 4, 5, 6, 97, 8]) for place in range(len(files))]
    small = [file for file in files if len(file) < LONGEST]
    seeds = [RAW + file for file in small] + [SEALED + file[:-32] for file in small] + headers
    return Target(seeds, content, lambda _: "a.keyhole", used)


def used(path: Path) -> None:
    """Do with a plan what users do: show it, rebuild with an interval, predict, and save it again."""
    plan = kh.load(path)
    Console(file=io.StringIO()).print(plan_table(plan))
    json.dumps(plan_summary(plan), default=str)
    scaling = plan.scaling
    readings = np.repeat(scaling.baseline[:1, :, plan.numbers], 2, axis=0)
    readings = np.array(readings.transpose(0, 2, 1), float)
    readings[1, 0] = np.nan
    given: dict[str, Any] = {"time": ["2001-01-15", "2001-07-15"]}
    given |= {"covariates": np.zeros((2, scaling.columns.shape[1]))} if scaling.columns.size else {}
    ends = plan.reconstruct(readings, **given, interval=None if plan.intervals is None else 0.9)
    for part in [ends] if plan.intervals is None else ends:
        arrays = list(part.values()) if hasattr(part, "data_vars") else [part]
        found = sum(int(np.isfinite(np.asarray(array)).sum()) for array in arrays)
        if found != 2 * len(scaling.scale) * len(plan.domain):
            raise ArithmeticError(f"{found} numbers are finite")
    if plan.predictor is not None:
        plan.predict(readings)
    plan.save(path.with_name("again.keyhole"))
    kh.load(path.with_name("again.keyhole"))


def npz_target(_: Path) -> Target:
    """Archives of numpy: a whole file, or an array that is put into an archive rightly."""
    seeds = []
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, a=samples(2, 3).astype(np.float32)[:4])
        seeds.append(RAW + file.getvalue())
    for array in (samples(3)[:4], np.asfortranarray(samples(3)[:4].astype(">i2")), np.array([["a"], ["b"]])):
        file = io.BytesIO()
        np.save(file, array)
        seeds.append(SEALED + file.getvalue())

    def content(given: bytes) -> bytes:
        if given[:1] == RAW:
            return given[1:]
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("a.npy", given[1:])
        return file.getvalue()

    return Target(seeds, content, lambda _: "a.npz", kh.read)


def mat_target(_: Path) -> Target:
    """MATLAB files."""
    seeds = []
    for compressed in (False, True):
        for held in ({"X": samples(3)[:4]}, {"X": samples(2, 2)[:3].astype("int16"), "note": "text", "s": {"x": 1}}):
            file = io.BytesIO()
            scipy.io.savemat(file, held, do_compression=compressed)
            seeds.append(file.getvalue())
    return Target(seeds, bytes, lambda _: "a.mat", kh.read)


STUDY = b"""source = "data.npz"
k = [4, 8]
methods = ["greedy"]
trials = 3
time_limit = 1.5
[settings.greedy]
components = {low = 10, high = 1e2, whole = true, log = true}
[settings.swap]
tries = {choices = [1, "a", true]}
"""


def settings_target(_: Path) -> Target:
    """JSON for the settings of every stage, and studies in TOML."""
    kinds = [
        kind for kind in vars(keyhole.core.settings).values() if isinstance(kind, type) and issubclass(kind, Settings)
    ]
    kinds = [*kinds, StudyFile]

    def read(path: Path) -> object:
        if path.suffix == ".toml":
            return read_study(path)
        given = path.read_bytes()
        try:
            values = json.loads(given[1:])
        except (ValueError, RecursionError):  # no JSON: for whoever reads it to say
            return None
        return parse(kinds[given[0] % len(kinds)], values) if isinstance(values, dict) else None

    seeds = [RAW + STUDY]
    for place, kind in enumerate(kinds[:-1]):
        values: dict[str, Any] = kind().model_dump(mode="json")
        values |= {"train": {"steps": 10, "schedule": "constant"}} if "train" in values else {}
        seeds.append(SEALED + bytes([place]) + json.dumps(values).encode())
    return Target(seeds, lambda given: given[1:], lambda given: "a.toml" if given[:1] == RAW else "a.json", read)


TARGETS = {"plan": plan_target, "npz": npz_target, "mat": mat_target, "settings": settings_target}


def escaped(word: str) -> str:
    """Write a word as libFuzzer's dictionaries have it."""
    return "".join(rf"\x{byte:02x}" for byte in word.encode("latin1"))


def one_input(target: Target, folder: Path) -> Callable[[bytes], None]:
    """Give what tries one input."""

    def attempt(given: bytes) -> None:
        path = folder / target.name(given)
        path.write_bytes(target.content(given or RAW))
        with contextlib.suppress(KeyholeError):
            target.read(path)

    return attempt


def options(arguments: argparse.Namespace, corpus: Path, words: Path) -> list[str]:
    """Give libFuzzer its options."""
    if arguments.again:
        return [sys.argv[0], str(arguments.again)]
    return [
        sys.argv[0],
        f"-max_total_time={arguments.seconds}",
        f"-seed={arguments.seed}",
        f"-artifact_prefix=fuzz-{arguments.target}-",
        f"-dict={words}",
        f"-rss_limit_mb={MEMORY}",
        f"-timeout={PATIENCE}",
        f"-max_len={LONGEST}",
        "-print_final_stats=1",
        str(corpus),
    ]


def main() -> None:
    """Fuzz one target."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", type=Path, help="an input that was saved, to be tried alone")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="keyhole-fuzz-", dir=memory if memory.is_dir() else None))
    target = TARGETS[arguments.target](folder)
    corpus, words = folder / "corpus", folder / "words"
    corpus.mkdir()
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed{number}").write_bytes(seed)
    words.write_text("".join(f'"{escaped(word)}"\n' for word in WORDS))
    print(f"{len(target.seeds)} inputs to begin with, of up to {max(map(len, target.seeds))} bytes, in {folder}")
    atheris.Setup(options(arguments, corpus, words), one_input(target, folder))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
