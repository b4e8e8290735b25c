"""The wheel holds all that is needed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import keyhole as kh

ROOT = Path(__file__).parents[1]


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True)


def test_the_wheel_runs_the_demos_first_step_in_an_empty_environment(tmp_path):
    """Built and installed where nothing else of Keyhole is, it places buoys on its embedded field.

    The dependencies are those of this environment, lent by a path file, so that no network is needed; Keyhole itself
    comes from the wheel alone, since path files of a lent folder are not followed.
    """
    run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, ROOT)
    wheel = next(tmp_path.glob("keyhole-*.whl"))
    assert {name.split("/")[0].split("-")[0] for name in zipfile.ZipFile(wheel).namelist()} == {"keyhole"}
    home = tmp_path / "empty"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel)
    packages = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib"))
    where = run(python, "-c", "import keyhole; print(keyhole.__file__)").stdout
    assert str(home) in where
    options = ["-k", "5", "--method", "qr", "--reconstructor", "ridge", "--out", tmp_path / "buoys.keyhole"]
    run(home / "bin" / "keyhole", "select", "sst", *options, "--report", tmp_path / "report.html")
    assert kh.load(tmp_path / "buoys.keyhole").k == 5
    assert (tmp_path / "report.html").stat().st_size > 10_000
