"""Out-of-memory errors state what was needed, what is free, and what to reduce."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import keyhole as kh
from keyhole.core.errors import OutOfMemoryError
from keyhole.core.memory import explain_out_of_memory
from keyhole.placement.learned import JointTask

HUGE = 2**47


def numpys() -> None:
    np.ones(HUGE // 8)


def torchs() -> None:
    torch.empty(HUGE // 4)


@pytest.mark.parametrize("ask", [numpys, torchs])
def test_what_was_needed_is_told_with_what_is_free_and_what_helps(ask):
    says = r"a thing: .* 131072\.0 GiB more was needed and .*B are free: less of it"
    with pytest.raises(OutOfMemoryError, match=says), explain_out_of_memory("a thing", "less of it"):
        ask()


def test_any_other_error_is_left_alone():
    with pytest.raises(RuntimeError, match="another"), explain_out_of_memory("a thing", "less of it"):
        raise RuntimeError("another trouble")


def test_training_names_its_stage_and_the_batch(monkeypatch):
    monkeypatch.setattr(JointTask, "forward", lambda *_: torchs())
    values = np.random.default_rng(0).standard_normal((40, 4, 5))
    with pytest.raises(OutOfMemoryError, match=r"learn vln: .*lower the batch"):
        kh.select(values, 3, method="vln", reconstructor="ridge")
