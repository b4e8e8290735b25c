"""Kill a training run with SIGKILL at random moments, resume it, and compare with a run left alone.

    python scripts/kill_and_resume.py --kills 20

Exits with 1 unless the weights of both final plans have the same SHA-256.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import keyhole as kh

COMMAND = [sys.executable, "-m", "keyhole", "select", "digits", "-k", "8", "--method", "learned"]
COMMAND += ["--reconstructor", "residual", "--save-every", "0.05"]
COMMAND += ["--set", 'train={"steps": 400, "batch": 128, "average": 0}']


def weights_digest(path: Path) -> str:
    """SHA-256 of a plan's sites and of all that its reconstructor learned."""
    plan = kh.load(path)
    digest = hashlib.sha256(plan.indices.tobytes())
    for name, array in sorted(plan.reconstructor.state()[1].items()):
        digest.update(name.encode() + array.tobytes())
    return digest.hexdigest()


def undisturbed(out: Path) -> float:
    """Run to the end; gives the seconds it took."""
    started = time.monotonic()
    subprocess.run([*COMMAND, "--out", str(out)], check=True, capture_output=True)
    return time.monotonic() - started


def wait_for_state(process: subprocess.Popen[bytes], out: Path) -> None:
    """Until training has saved something, so that there is something to resume."""
    folder = out.with_name(out.name + ".checkpoint")
    while not list(folder.glob("*.state")):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.02)
            return


def disturbed(out: Path, kills: int, seconds: float, rng: random.Random) -> int:
    """Kill ``kills`` times, resuming each time, then run to the end; gives how many runs ended in between.

    A run that ends before its kill is looked at and begun anew, so that kills fall everywhere.
    """
    hits = ended = 0
    while hits < kills:
        process = subprocess.Popen(
            [*COMMAND, "--out", str(out), "--resume"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        wait_for_state(process, out)
        try:
            process.wait(rng.uniform(0.0, 0.5) * seconds)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            hits += 1
        _, errors = process.communicate()
        if process.returncode not in (0, -signal.SIGKILL):
            sys.exit(f"a resumed run failed: {errors.decode()}")
        if out.exists() and hits < kills:
            out.rename(out.with_suffix(f".{ended}"))
            ended += 1
    subprocess.run([*COMMAND, "--out", str(out), "--resume"], check=True, capture_output=True)
    return ended


def main() -> None:
    """Compare both runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        alone, killed = Path(folder) / "alone.keyhole", Path(folder) / "killed.keyhole"
        seconds = undisturbed(alone)
        ended = disturbed(killed, arguments.kills, seconds, random.Random(arguments.seed))
        resumed = {weights_digest(path) for path in Path(folder).glob("killed.*") if path.is_file()}
        expected = weights_digest(alone)
    print(f"{arguments.kills} kills over {ended + 1} runs; undisturbed {expected}, resumed {', '.join(resumed)}")
    sys.exit(resumed != {expected})


if __name__ == "__main__":
    main()
