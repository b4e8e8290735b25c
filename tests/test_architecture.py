"""Rooms use only rooms above them, heavy dependencies stay in theirs, and importing stays light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import keyhole

ROOT = Path(keyhole.__file__).parent

# From the top: each may use those above it. The same order stands in docs/architecture.md.
ROOMS = [
    "errors", "paths", "terminal", "memory", "grid", "align", "split", "settings", "target", "context", "constraints",
    "weights", "gaps", "origin", "values", "source", "signals", "series", "screening", "scaling", "preparation",
    "metrics", "storage", "processes", "run", "progress", "interrupts", "readers", "datasets", "components",
    "covariance", "checkpoint", "training", "laws", "budget", "objectives", "collapse", "reconstructors", "predictors",
    "views", "selectors", "checks", "readings", "export", "bands", "affine", "schema", "plan", "places",
    "uncertainty", "pipeline", "stored", "changes", "comparison", "files", "report", "curves", "accessor",
    "tables", "sklearn", "sweeps", "bench", "cli",
]  # fmt: skip

# Heavy dependencies and the rooms that may import them at the top of a module.
HEAVY = {
    "torch": {
        "bench",
        "budget",
        "checkpoint",
        "collapse",
        "laws",
        "objectives",
        "predictors",
        "reconstructors",
        "selectors",
        "stored",
        "training",
    },
    "matplotlib": {"bench", "report"},
    "jinja2": {"report"},
    "xarray": set(),
    "pandas": set(),
    "sklearn": {"sklearn"},
    "lightning_fabric": set(),
    "rich": {"progress", "tables"},
}


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(tree: ast.AST, top_only: bool):
    """Modules that a tree imports; those under TYPE_CHECKING do not count."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ([f"keyhole.{a.name}" for a in node.names] if node.module == "keyhole" else [node.module])
        elif not (top_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            yield from imports(node, top_only)


def modules():
    return [
        (path, ast.parse(path.read_text()))
        for path in sorted(ROOT.rglob("*.py"))
        if path.parent != ROOT or path.name not in ("__init__.py", "__main__.py")
    ]


def test_every_room_is_listed():
    """A new room gets its place in the order."""
    assert {room_of(path) for path, _ in modules()} == set(ROOMS)


def test_rooms_use_only_rooms_above_them():
    """Laws do not know selectors, nothing knows the command line."""
    breaches = []
    for path, tree in modules():
        own = ROOMS.index(room_of(path))
        for name in imports(tree, top_only=False):
            parts = name.split(".")
            if parts[0] == "keyhole" and len(parts) > 1 and parts[1] in ROOMS and ROOMS.index(parts[1]) > own:
                breaches.append(f"{path.relative_to(ROOT)} uses {name}")
    assert not breaches


def test_heavy_dependencies_stay_in_their_rooms():
    """Elsewhere they are imported inside functions, when used."""
    breaches = []
    for path, tree in modules():
        for name in imports(tree, top_only=True):
            top = name.split(".")[0]
            if top in HEAVY and room_of(path) not in HEAVY[top]:
                breaches.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not breaches


def test_fabric_stays_behind_one_module():
    """Only the training loop knows lightning-fabric."""
    users = {room_of(path) for path, tree in modules() if any("lightning" in n for n in imports(tree, top_only=False))}
    assert users == {"training"}


def test_import_and_help_load_nothing_heavy():
    """`import keyhole` and the command line's help load neither torch nor pandas nor matplotlib."""
    heavy = ("torch", "pandas", "xarray", "matplotlib", "scipy")
    code = f"import sys, keyhole, keyhole.cli; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_the_order_in_the_docs_is_the_order_here():
    """docs/architecture.md lists the rooms as this test holds them."""
    text = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
    listed = [
        line.split()[0].removesuffix(".py").rstrip("/")
        for line in text.split("```rooms")[1].split("```")[0].splitlines()
        if line and not line.startswith(" ")
    ]
    assert listed == ROOMS


# Distributions whose modules are called otherwise.
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn", "pysensors": "python-sensors"}


def test_every_import_is_declared():
    """What is not in the standard library stands in pyproject.toml, as a dependency or in an extra."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = [lines for name, lines in project["optional-dependencies"].items() if name != "dev"]
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    declared = {canonical(re.split(r"[<>=!~\[; ]", line)[0]) for line in lines}
    used = {
        name.split(".")[0]
        for path in ROOT.rglob("*.py")
        for name in imports(ast.parse(path.read_text()), top_only=False)
    }
    others = used - {"keyhole"} - set(sys.stdlib_module_names)
    assert {name for name in others if canonical(DISTRIBUTIONS.get(name, name)) not in declared} == set()


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
