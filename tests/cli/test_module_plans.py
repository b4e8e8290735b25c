"""Plans with a network of the user's own on the command line, which has no way to be given it."""

from __future__ import annotations

import numpy as np
import pytest

import keyhole as kh
from keyhole.models.reconstructors import ModuleReconstructor
from own_modules import QUICK, FromReadings, field


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with such a plan, its data and readings."""
    monkeypatch.chdir(tmp_path)
    network = ModuleReconstructor(FromReadings, name="mine", train=QUICK)
    plan = kh.select(field(), 3, method="qr", reconstructor=network)
    plan.save("plan.keyhole")
    np.save("readings.npy", np.zeros((2, 3)))
    np.save("data.npy", np.random.default_rng(0).normal(size=(60, 4, 6)))
    return plan


def test_info_and_sites_need_no_network(folder, command):
    """They show the record and the sites."""
    shown = command("info", "plan.keyhole")
    assert shown.code == 0, shown.err
    assert "made by qr + mine" in shown.out
    assert command("info", "plan.keyhole", "--json").code == 0
    assert command("sites", "plan.keyhole").out.splitlines()[0].startswith("rank,index,name")
    done = command("select", "data.npy", "-k", 1, "--method", "qr", "--reconstructor", "ridge", "--out", "new.keyhole",
                   "--existing", "plan.keyhole")  # fmt: skip
    assert done.code == 0, done.err
    assert list(kh.load("new.keyhole").sites["name"][:3]) == folder.names


@pytest.mark.parametrize(
    "arguments",
    [
        ("reconstruct", "plan.keyhole", "readings.npy", "--out", "out.npy"),
        ("extend", "plan.keyhole", "data.npy", "-k", 1),
        ("drop", "plan.keyhole", "data.npy", "-k", 1),
        ("refit", "plan.keyhole", "data.npy"),
    ],
)
def test_what_needs_the_network_is_refused(folder, command, arguments):
    """In one sentence that shows how it is given in Python, with the exit code of data."""
    done = command(*arguments)
    assert (done.code, done.out) == (1, "")
    assert "a network of the user's own, 'mine'" in done.err
    assert "kh.load('plan.keyhole', models={'mine': MyModule})" in done.err
    assert "Traceback" not in done.err


def test_a_module_has_no_name_to_select_with(folder, command):
    """It is given in Python."""
    done = command("select", "data.npy", "-k", 2, "--method", "qr", "--reconstructor", "mine")
    assert done.code == 2
    assert "'mine' is not known" in done.err
