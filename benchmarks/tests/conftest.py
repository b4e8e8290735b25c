"""Fixtures of the benchmarks' tests; `tests` is on the path, for what both suites share."""

from __future__ import annotations

import signal
from collections.abc import Callable

import numpy as np
import pytest

from command_line import Outcome, in_process
from keyhole_benchmarks.commands import main


@pytest.fixture(autouse=True, scope="session")
def _interrupts() -> None:
    """Take SIGINT, which a shell without job control has set to be ignored in what it starts in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Use one thread: small tensors gain nothing from more."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator with the same seed for each test."""
    return np.random.default_rng(7)


@pytest.fixture
def bench_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the benchmarks' command line in this process, as the `keyhole-bench` script does."""
    return in_process(main, "keyhole-bench", monkeypatch, capsys)
