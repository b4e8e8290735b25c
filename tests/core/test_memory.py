"""What is free, by whatever limits it; out-of-memory errors state what was needed, what is free, and what to reduce."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import keyhole as kh
from keyhole.core.errors import OutOfMemoryError, SettingsError
from keyhole.core.memory import default_limit, explain_out_of_memory, free_memory, memory_limit
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


AVAILABLE = 8000 * 1024
MIB = 2**20


def machine(root, cgroup, files=None):
    """A folder as Linux presents a machine with 8000 KiB available."""
    given = {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n", "proc/self/cgroup": cgroup} | (files or {})
    for name, text in given.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))
    return root


def v2(folder, limit, current=0, **stat):
    """Files of a group of version 2."""
    lines = "".join(f"{name} {value}\n" for name, value in stat.items())
    files = {"memory.max": limit, "memory.current": current, "memory.stat": lines}
    return {f"sys/fs/cgroup{folder}/{name}": value for name, value in files.items()}


def v1(folder, limit, usage=0, **stat):
    """Files of a group of version 1."""
    lines = "".join(f"total_{name} {value}\n{name} 0\n" for name, value in stat.items())
    files = {"memory.limit_in_bytes": limit, "memory.usage_in_bytes": usage, "memory.stat": lines}
    return {f"sys/fs/cgroup/memory{folder}/{name}": value for name, value in files.items()}


NONE = 9223372036854771712  # no limit, in version 1
LEFT = {
    "no limit": ("0::/\n", v2("", "max", MIB), AVAILABLE),
    "limit": ("0::/\n", v2("", 3 * MIB, MIB), 2 * MIB),
    "limit above what is available": ("0::/\n", v2("", 30 * MIB, MIB), AVAILABLE),
    "used up": ("0::/\n", v2("", 3 * MIB, 4 * MIB), 0),
    "cached files": ("0::/\n", v2("", 4 * MIB, 3 * MIB, anon=MIB, active_file=MIB, inactive_file=MIB), 3 * MIB),
    "own group": ("0::/user/job\n", v2("/user/job", 2 * MIB) | v2("/user", "max"), 2 * MIB),
    "group above": ("0::/user/job\n", v2("/user/job", 4 * MIB) | v2("/user", 5 * MIB, 4 * MIB), MIB),
    "throttled": ("0::/job\n", v2("/job", "max") | {"sys/fs/cgroup/job/memory.high": MIB}, MIB),
    "group out of sight": ("0::/../job\n", v2("", 2 * MIB), 2 * MIB),
    "colons in the name": ("0::/a:b:c\n", v2("/a:b:c", 2 * MIB), 2 * MIB),
    "version 1": ("9:cpu:/\n4:memory:/job\n0::/\n", v1("", NONE) | v1("/job", 3 * MIB, 2 * MIB), MIB),
    "version 1, no limit": ("4:memory:/\n", v1("", NONE), AVAILABLE),
    "version 1, path of the host": ("4:cpu,memory:/docker/12ab\n", v1("", 3 * MIB, MIB), 2 * MIB),
    "version 1, cached files": ("4:memory:/\n", v1("", 3 * MIB, 2 * MIB, inactive_file=MIB), 2 * MIB),
    "another controller": ("4:cpu:/job\n", v1("/job", MIB), AVAILABLE),
    "damaged": ("nonsense\n0::/\n", {"sys/fs/cgroup/memory.max": "nonsense"}, AVAILABLE),
}


@pytest.mark.parametrize("case", LEFT)
def test_the_tightest_limit_says_what_is_free(tmp_path, case):
    cgroup, files, expected = LEFT[case]
    assert free_memory(machine(tmp_path, cgroup, files)) == expected


def test_without_cgroups_the_machine_says_what_is_free(tmp_path):
    """Or the operating system, where there is no /proc."""
    physical = free_memory(tmp_path)
    machine(tmp_path, "0::/\n")
    (tmp_path / "proc/self/cgroup").unlink()
    assert free_memory(tmp_path) == AVAILABLE
    assert 0 < free_memory() <= physical


@pytest.mark.parametrize(("given", "expected"), [("2GiB", 2**31), (1000, 1000)])
def test_a_memory_limit_is_what_was_given(given, expected):
    assert memory_limit(given) == expected


@pytest.mark.parametrize("given", [0, "", "2 apples", -1, "half"])
def test_a_memory_limit_is_a_size(given):
    with pytest.raises(SettingsError, match="a size is needed"):
        memory_limit(given)


def test_half_of_what_is_free_is_the_default():
    assert default_limit(10 * MIB) == 5 * MIB
    assert default_limit(0) == MIB
    assert MIB <= memory_limit() < free_memory(root=Path("/nowhere"))
