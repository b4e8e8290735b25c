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
    import keyhole.plan
    import keyhole.readers
    import keyhole.settings
    import keyhole.storage
    import keyhole.sweeps.study

from keyhole.errors import KeyholeError
from keyhole.settings import Settings, parse
from keyhole.storage import MAGIC, VERSION
from keyhole.sweeps.study import StudyFile, read_study

RAW, SEALED = b"\x00", b"\x01"  # first byte of an input: how the rest becomes a file
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
    return np.tensordot(rng.normal(size=(40, 3)), rng.normal(size=(3, *grid)), axes=1)


def saved_plans(folder: Path) -> list[bytes]:
    """Files of small plans: of an array, of a table with a target, and of a field by month with two channels."""
    import xarray as xr

    table = pd.DataFrame(samples(5), columns=list("abcde")).assign(kind=["x", "y"] * 20)
    axes = {"time": pd.date_range("2000-01-01", periods=40, freq="MS"), "lat": [0.0, 10.0], "place": ["p", "q"]}
    field = xr.DataArray(samples(2, 2), axes, ("time", "lat", "place"), "sst")
    signals = [kh.read(samples(2, 3)), kh.read(table, target="kind")]
    signals.append(kh.read(xr.Dataset({"a": field, "b": field**2})).anomalies("month"))
    files = []
    for number, one in enumerate(signals):
        path = folder / f"{number}.keyhole"
        kh.select(one, 2, method="qr", reconstructor="kriging" if number == 0 else "ridge").save(path)
        files.append(path.read_bytes())
    return files


def sealed(content: bytes) -> bytes:
    """Close a plan's content with the SHA-256 that belongs to it."""
    return content + hashlib.sha256(content).digest()


def parts(file: bytes) -> tuple[bytes, bytes]:
    """Header and arrays of a plan's file."""
    start = 20 + struct.unpack_from("<Q", file, 12)[0]
    return file[20:start], file[start:-32]


def plan_target(folder: Path) -> Target:
    """Plans: a whole file, content that is sealed rightly, or a header that is sealed with the arrays of a real one."""
    files = saved_plans(folder)

    def content(given: bytes) -> bytes:
        if given[:1] == RAW:
            return given[1:]
        if given[:1] == SEALED:
            return sealed(given[1:])
        header = given[1:]
        arrays = parts(files[given[0] % len(files)])[1]
        return sealed(struct.pack("<8sIQ", MAGIC, VERSION, len(header)) + header + arrays)

    headers = [bytes([len(files) + place]) + parts(file)[0] for place, file in enumerate(files)]
    small = [file for file in files if len(file) < LONGEST]
    seeds = [RAW + file for file in small] + [SEALED + file[:-32] for file in small] + headers
    return Target(seeds, content, lambda _: "a.keyhole", kh.load)


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
    kinds = [kind for kind in vars(keyhole.settings).values() if isinstance(kind, type) and issubclass(kind, Settings)]
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
