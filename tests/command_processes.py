"""Command lines in processes of their own, forked from one that has imported all that they need.

They are killed, interrupted and waited for as any process is; what they do not do is import PyTorch each time.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import sys
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "torch",
        "torch.distributed",
        "lightning_fabric",
        "optuna",
        "sqlalchemy",
        "pandas",
        "xarray",
        "keyhole.cli",
        "keyhole.data.datasets",
        "keyhole.models.reconstructors",
        "keyhole.placement",
        "keyhole.report.figures",
        "keyhole.report.tables",
        "keyhole.training.loop",
        "keyhole.workflow.selection",
        "keyhole.workflow.sweeps",
    ]
)


def _run(main: str, folder: Path, arguments: list[str], variables: dict[str, str], out: Path, errors: Path) -> None:
    """Be a command, `keyhole` or `keyhole-bench`, in a folder, with what it prints in files."""
    os.chdir(folder)
    os.environ.update(variables)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, path in ((1, out), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["keyhole", *arguments]
    import torch

    torch.set_num_threads(1)
    importlib.import_module(main).main()


@dataclass(frozen=True)
class Launched:
    """A command that runs, and the files that hold what it prints."""

    process: BaseProcess
    out: Path
    errors: Path

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self.process.pid is not None
        os.kill(self.process.pid, number)

    def wait_for(self, folder: Path, pattern: str) -> None:
        """Until a file of a pattern is written in a folder, or the command ends."""
        before = _last_change(folder, pattern)
        while _last_change(folder, pattern) == before and self.process.is_alive():
            self.process.join(0.02)

    def wait_for_message(self, text: str) -> None:
        """Until it has printed a text among its messages, or ends."""
        while text not in self.errors.read_text() and self.process.is_alive():
            self.process.join(0.02)

    def end(self) -> int | None:
        """Exit code, once it has ended by itself; that of a signal is negative."""
        self.process.join()
        return self.process.exitcode


def _last_change(folder: Path, pattern: str) -> int:
    changes = [0]
    for path in folder.rglob(pattern):
        try:
            changes.append(path.stat().st_mtime_ns)
        except FileNotFoundError:  # gone since it was listed
            continue
    return max(changes)


def launch(folder: Path, messages: Path, *arguments: object, main: str = "keyhole.cli", **variables: str) -> Launched:
    """Start the command of a module in a folder; what it prints goes to files beside ``messages``."""
    out, errors = messages.with_suffix(".out"), messages.with_suffix(".err")
    errors.write_text("")
    run = (main, folder, [str(one) for one in arguments], variables, out, errors)
    process = CONTEXT.Process(target=_run, args=run)
    process.start()
    return Launched(process, out, errors)
