"""The code of the documentation runs, and its links and commands exist."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import keyhole

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = [m.name for m in pkgutil.walk_packages(keyhole.__path__, "keyhole.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_the_pages_runs(page, tmp_path, monkeypatch):
    """Every block of Python, in an empty folder; time limits are a second, enough to see that they run."""
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    text = re.sub(r"time_limit=\d+", "time_limit=1", page.read_text())
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(compile(block, str(page), "exec"), space)


def test_the_examples_for_contributors_run(tmp_path):
    """The files that CONTRIBUTING.md shows make a package with entry points, whose own tests pass."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for name, code in re.findall(r"```python\n# (\S+)\n(.*?)```", text, flags=re.DOTALL):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(code)
    install_entry_points(tmp_path, re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)[0])
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout


def install_entry_points(folder: Path, pyproject: str) -> None:
    """Write the metadata that an installer makes of a package's entry points."""
    groups = tomllib.loads(pyproject)["project"]["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in entries.items()) for group, entries in groups.items()]
    metadata = folder / "my_sensors-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-sensors\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("\n".join(lines))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    """Files that a page links to or shows exist."""
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("name", ["keyhole", *MODULES])
def test_examples_in_docstrings(name):
    """Examples in docstrings give what they show."""
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_every_command_that_the_readme_names_exists():
    """Commands and make targets."""
    from keyhole.cli import app

    text = (ROOT / "README.md").read_text()
    commands = {command.name or command.callback.__name__ for command in app.registered_commands}
    assert set(re.findall(r"^keyhole (\w+)", text, flags=re.MULTILINE)) <= commands
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make (\w+)", text, flags=re.MULTILINE):
        assert f"\n{target}:" in makefile
