"""Kill a training, a sweep or a bench with SIGKILL at random moments, let it go on, and look at what it comes to.

    python scripts/kill_and_resume.py --kills 20
    python scripts/kill_and_resume.py --kills 20 --what all

Exits with 1 unless

- the weights of a killed training have the SHA-256 of one left alone;
- a killed sweep has as many finished trials as were asked for, none of them twice, in a database that is whole;
- a killed bench has every case once, in lines and arrays that can all be read.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

import keyhole as kh

KEYHOLE = [sys.executable, "-m", "keyhole"]
KEYHOLE_BENCH = [sys.executable, "-c", "from keyhole_benchmarks.commands import main; main()"]
LIMIT = 600  # seconds after which a run that nobody kills is taken for hung

TRAINING = [
    *KEYHOLE,
    "select",
    "digits",
    "-k",
    "8",
    "--method",
    "learned",
    "--reconstructor",
    "residual",
    "--save-every",
    "0.05",
]
TRAINING += ["--set", 'train={"steps": 400, "batch_size": 128, "ema_decay": 0}', "--resume"]

TRIALS = 6
STUDY = f"""
source = "digits"
k = [3, 6, 9]
methods = ["greedy", "qr"]
reconstructors = ["ridge"]
trials = {TRIALS}
heartbeat = 1
"""

METHODS, KS = ("greedy", "qr"), (3, 6, 9, 12)
BENCH = [*KEYHOLE_BENCH, "quality", "--data", "sst", "--reconstructors", "ridge"]
BENCH += ["--methods", ",".join(METHODS), "--k", ",".join(map(str, KS))]


@dataclass(frozen=True)
class Subject:
    """What is killed, in a folder of its own.

    ``command`` gives what to run, again and again until it is through; ``traces`` is the pattern of files that tell
    that it is at work, ``seconds`` how long after that it is killed at most; ``result`` says what it came to, or exits
    with what is wrong. ``expected`` is the result that there should be, None for that of a run left alone.
    """

    command: Callable[[Path], list[str]]
    traces: str
    seconds: float
    result: Callable[[Path], str]
    expected: str | None = None


def training_command(folder: Path) -> list[str]:
    """Train into the folder, going on with what is there."""
    return [*TRAINING, "--out", str(folder / "plan.keyhole")]


def weights_digest(folder: Path) -> str:
    """SHA-256 of a plan's sites and of all that its reconstructor learned."""
    plan = kh.load(folder / "plan.keyhole")
    digest = hashlib.sha256(plan.indices.tobytes())
    for name, array in sorted(plan.reconstructor.state()[1].items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()


def sweep_command(folder: Path) -> list[str]:
    """Sweep the study of the folder."""
    path = folder / "study.toml"
    path.write_text(STUDY)
    return [*KEYHOLE, "sweep", str(path)]


def sweep_result(folder: Path) -> str:
    """Count the trials that ended; a trial and those that repeat it after a kill may end once."""
    import optuna

    path = folder / "study.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        words = database.execute("PRAGMA integrity_check").fetchone()[0]
    require(words == "ok", f"{path} is damaged: {words}")
    trials = optuna.load_study(study_name="keyhole", storage=f"sqlite:///{path}").trials
    ended = [one for one in trials if one.state is optuna.trial.TrialState.COMPLETE]
    firsts = [one.system_attrs.get("failed_trial", one.number) for one in ended]
    require(len(ended) == TRIALS, f"{path}: {TRIALS} trials were asked for and {len(ended)} have ended")
    require(len(set(firsts)) == TRIALS, f"{path}: a trial has ended twice; those that ended began as {firsts}")
    own = all(one.user_attrs["trial"]["number"] == one.number for one in ended)
    require(own, f"{path}: a trial holds what another came to")
    return f"{len(ended)} trials, each once"


def bench_command(folder: Path) -> list[str]:
    """Run the cases that the folder does not hold."""
    return [*BENCH, "--results", str(folder)]


def bench_result(folder: Path) -> str:
    """Read every line and every array, and count the cases; of one case the last line counts."""
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    cases = {}
    for line in lines:
        try:
            case = json.loads(line)
        except json.JSONDecodeError:
            sys.exit(f"{folder}: a line is torn: {line!r}")
        cases[case["case_id"]] = case
    found = sorted((one["method"], one["k"]) for one in cases.values() if one["status"] == "ok")
    require(found == sorted(product(METHODS, KS)), f"{folder}: the cases that ended are {found}")
    arrays = {path.stem: read_arrays(path) for path in folder.glob("arrays/*.npz")}
    require(set(arrays) == set(cases), f"{folder}: arrays are of {sorted(arrays)}, lines of {sorted(cases)}")
    return f"{len(cases)} cases, each once"


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Give all arrays of a file, or exit."""
    try:
        with np.load(path) as found:
            return dict(found)
    except Exception as error:  # a torn archive fails in many ways
        sys.exit(f"{path}: cannot be read: {error}")


SUBJECTS = {
    "training": Subject(training_command, "*.state", 5.0, weights_digest),
    "sweep": Subject(sweep_command, "*.db", 2.0, sweep_result, f"{TRIALS} trials, each once"),
    "bench": Subject(bench_command, "*.npz", 0.5, bench_result, f"{len(METHODS) * len(KS)} cases, each once"),
}


def require(holds: bool, otherwise: str) -> None:
    """Exit with a message unless something holds."""
    if not holds:
        sys.exit(otherwise)


def new(folder: Path) -> Path:
    """Make a folder."""
    folder.mkdir()
    return folder


def last_change(folder: Path, traces: str) -> int:
    """When a file of a pattern was last written, in nanoseconds; 0 where there is none."""
    with contextlib.suppress(FileNotFoundError):  # gone since it was listed: look again
        return max((path.stat().st_mtime_ns for path in folder.rglob(traces)), default=0)
    return last_change(folder, traces)


def wait_for_traces(process: subprocess.Popen[bytes], folder: Path, traces: str) -> None:
    """Until a run that was just started writes a file of a pattern, or ends."""
    before = last_change(folder, traces)
    while last_change(folder, traces) == before:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
            return


def killed(subject: Subject, folder: Path, seconds: float) -> bool:
    """Run, and kill so many seconds after work began; gives whether it was killed, and not through before."""
    command = subject.command(folder)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_for_traces(process, folder, subject.traces)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
    _, errors = process.communicate()
    require(process.returncode in (0, -signal.SIGKILL), f"a run failed: {errors.decode()}")
    return process.returncode != 0


def undisturbed(subject: Subject, folder: Path) -> str:
    """Run to the end; gives the result."""
    try:
        done = subprocess.run(subject.command(folder), capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        sys.exit(f"a run did not end within {LIMIT} s: {subject.command(folder)}")
    require(done.returncode == 0, f"a run failed: {done.stderr}")
    return subject.result(folder)


def disturbed(subject: Subject, folder: Path, kills: int, rng: random.Random) -> list[str]:
    """Kill ``kills`` times, going on each time, then run to the end; gives the results of all that came to an end.

    Where one is through before its kill the next begins anew, so that kills fall everywhere.
    """
    results: list[str] = []
    place = new(folder / "0")
    while kills > 0:
        if killed(subject, place, rng.uniform(0.0, subject.seconds)):
            kills -= 1
        else:
            results.append(subject.result(place))
            place = new(folder / str(len(results)))
    return [*results, undisturbed(subject, place)]


def compare(what: str, kills: int, seed: int) -> None:
    """Kill one subject, print the figures, and exit unless all results are the one that there should be."""
    subject = SUBJECTS[what]
    with tempfile.TemporaryDirectory() as name:
        expected = undisturbed(subject, new(Path(name) / "alone")) if subject.expected is None else subject.expected
        results = disturbed(subject, Path(name), kills, random.Random(seed))
    found = ", ".join(sorted(set(results)))
    print(f"{what}: {kills} kills over {len(results)} runs; expected {expected}, found {found}", flush=True)
    require(set(results) == {expected}, f"{what}: a killed run came to something else")


def main() -> None:
    """Kill what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", choices=[*SUBJECTS, "all"], default="training")
    parser.add_argument("--kills", type=int, default=20, help="of each")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for what in SUBJECTS if arguments.what == "all" else [arguments.what]:
        compare(what, arguments.kills, arguments.seed)


if __name__ == "__main__":
    main()
