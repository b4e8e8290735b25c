"""What the documentation shows runs, and what it says is there is there."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import keyhole

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MODULES = [m.name for m in pkgutil.walk_packages(keyhole.__path__, "keyhole.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_in_the_pages_runs(page, tmp_path, monkeypatch):
    """Every block of Python, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL):
        exec(compile(block, str(page), "exec"), space)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
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
