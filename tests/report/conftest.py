"""Small comparisons to report on, each made once."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from report_examples import TAG, field

import keyhole as kh
from keyhole.workflow.comparison import Comparison, compare


@pytest.fixture(scope="session")
def map_comparison() -> Comparison:
    return compare(field(), 4, ["qr", "greedy", "random"])


@pytest.fixture(scope="session")
def table_comparison() -> Comparison:
    rng = np.random.default_rng(1)
    columns = [TAG, r"price in $\frac$", "名前", *(f"c{i}" for i in range(7))]
    mixed = rng.normal(size=(50, 3)) @ rng.normal(size=(3, 10)) + 0.3 * rng.normal(size=(50, 10))
    return compare(pd.DataFrame(mixed, columns=columns), 9, ["qr"])


@pytest.fixture(scope="session")
def colour_comparison() -> Comparison:
    images = np.random.default_rng(2).random((40, 6, 5, 3))
    return compare(kh.read(images, channels=-1), 3, ["greedy", "random"])


@pytest.fixture(scope="session")
def cube_comparison() -> Comparison:
    return compare(np.random.default_rng(3).normal(size=(40, 3, 4, 5)), 3, ["variance", "random"])
