"""Fixtures of all tests: plans of every kind of data, and the command line in this process."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import settings

import keyhole as kh
from command_line import Outcome, in_process
from example_data import monthly_field, quick, smooth

if TYPE_CHECKING:
    from keyhole import Plan

# The same examples in every run; `pytest --hypothesis-profile=explore` looks for new ones.
settings.register_profile("steady", derandomize=True, deadline=None, max_examples=40, database=None)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("steady")


@pytest.fixture(autouse=True, scope="session")
def _interrupts() -> None:
    """A shell without job control lets what it starts in the background ignore Ctrl-C; tests of it need it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Tiny tensors gain nothing from threads and lose much where the cores are busy."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture
def rng() -> np.random.Generator:
    """A generator that starts anew for each test."""
    return np.random.default_rng(7)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command line in this process, as the `keyhole` script does."""
    from keyhole.cli import main

    return in_process(main, "keyhole", monkeypatch, capsys)


@pytest.fixture
def data_folder() -> Path:
    """The folder of the benchmark data, or a skip."""
    root = os.environ.get("KEYHOLE_DATA")
    if not root:
        pytest.skip("KEYHOLE_DATA is not set: the benchmark data are not here")
    return Path(root)


@pytest.fixture(scope="session")
def array_plan() -> Plan:
    """A plan of a bare 2-D grid."""
    return quick(smooth(40, 4, 5))


@pytest.fixture(scope="session")
def channel_plan() -> Plan:
    """A plan of images whose two channels come last."""
    return quick(kh.read(smooth(40, 4, 5, 2), channels=-1))


@pytest.fixture(scope="session")
def field_plan() -> Plan:
    """A plan on anomalies by month of a field with land."""
    return quick(kh.read(monthly_field()).anomalies("month"))


@pytest.fixture(scope="session")
def table_plan() -> Plan:
    """A plan of a table whose columns have names."""
    import pandas as pd

    return quick(pd.DataFrame(smooth(40, 6), columns=list("abcdef")))
