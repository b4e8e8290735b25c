"""Packages use only packages above them, heavy dependencies stay in theirs, and importing stays light."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import keyhole

ROOT = Path(keyhole.__file__).parent
PROJECT = Path(__file__).parents[1]

# From the top: each may use those above it. The same order stands in docs/architecture.md.
PACKAGES = [
    "core", "errors", "data", "metrics", "masks", "training", "models", "placement", "plan", "workflow", "report",
    "sklearn", "xarray", "cli",
]  # fmt: skip

# What points up, and is imported inside a function: where, and at what.
UPWARD = {
    "plan/plan.py": {"report", "workflow"},  # Plan.plot draws, Plan.refit fits, a plan prints as its summary
    "workflow/comparison.py": {"report"},  # a comparison prints as its table
    "workflow/curves.py": {"report"},  # Curve.plot draws, a curve prints as its table
    "workflow/sweeps/pareto.py": {"report"},  # fronts_figure draws
}

# Heavy dependencies and the packages that may import them at the top of a module.
HEAVY = {
    "torch": {"masks", "training", "models", "placement", "workflow"},
    "matplotlib": {"report"},
    "jinja2": {"report"},
    "xarray": set(),
    "pandas": set(),
    "sklearn": {"sklearn"},
    "lightning_fabric": set(),
    "rich": {"core", "report"},
}

# What masks may be made of: torch, the core, and what both of them stand on.
OF_MASKS = {"keyhole.core", "keyhole.masks", "torch", "numpy", "scipy"}

# Packages whose import has another name.
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn"}


def package_of(path: Path) -> str:
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


@cache
def used_modules(path: Path, top_only: bool = False) -> tuple[str, ...]:
    """Modules that a file imports, parsed once for all tests."""
    return tuple(imports(ast.parse(path.read_text()), top_only))


def modules() -> list[Path]:
    """Files of all packages."""
    above = (ROOT / "__init__.py", ROOT / "__main__.py")
    return [path for path in sorted(ROOT.rglob("*.py")) if path not in above]


def test_every_package_is_listed():
    """A new package gets its place in the order."""
    assert {package_of(path) for path in modules()} == set(PACKAGES)


def test_few_names_stand_at_the_top():
    """What most users need; the rest is in the packages."""
    assert len(keyhole.__all__) <= 14


def test_packages_use_only_packages_above_them():
    """Masks do not know selectors, nothing knows the command line; what points up is listed by name."""
    breaches = []
    for path in modules():
        own, name = PACKAGES.index(package_of(path)), path.relative_to(ROOT).as_posix()
        for used in (used.split(".")[1] for used in used_modules(path) if used.startswith("keyhole.")):
            if used in PACKAGES and PACKAGES.index(used) > own and used not in UPWARD.get(name, ()):
                breaches.append(f"{name} uses {used}")
    assert not breaches


def test_nothing_uses_the_benchmarks():
    """They are a package of their own: neither Keyhole nor its tests import them."""
    paths = [*ROOT.rglob("*.py"), *(PROJECT / "tests").rglob("*.py")]
    assert not [path for path in paths for name in used_modules(path) if name.split(".")[0] == "keyhole_benchmarks"]


def test_masks_are_made_of_torch_and_the_core_alone():
    """People with their own PyTorch loop need nothing else of Keyhole."""
    used = {name for path in modules() if package_of(path) == "masks" for name in used_modules(path)}
    known = {name for name in used if name.split(".")[0] not in sys.stdlib_module_names}
    assert not {name for name in known if not any(re.match(rf"{one}(\.|$)", name) for one in OF_MASKS)}


def test_heavy_dependencies_stay_in_their_packages():
    """Elsewhere they are imported inside functions, when used."""
    breaches = []
    for path in modules():
        for name in used_modules(path, top_only=True):
            top = name.split(".")[0]
            if top in HEAVY and package_of(path) not in HEAVY[top]:
                breaches.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not breaches


def test_fabric_stays_behind_one_package():
    """Only the training loop knows lightning-fabric."""
    users = {package_of(path) for path in modules() if any("lightning" in name for name in used_modules(path))}
    assert users == {"training"}


def test_private_modules_are_used_by_their_package_alone():
    """A module whose name begins with an underscore is the inside of its package."""
    breaches = []
    for path in modules():
        for name in used_modules(path):
            parts = name.split(".")
            private = next((i for i, part in enumerate(parts) if part.startswith("_")), None)
            if parts[0] == "keyhole" and private is not None:
                home = ROOT.joinpath(*parts[1:private])
                if not path.is_relative_to(home):
                    breaches.append(f"{path.relative_to(ROOT)} uses {name}")
    assert not breaches


def run(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


# What one fresh interpreter runs, one after the other; a test looks at what each of them has loaded.
STEPS = {
    "keyhole": "import keyhole; dir(keyhole); keyhole.KeyholeError",
    "help": "keyhole.cli.app(['--help'], standalone_mode=False)",
    "comparison": "import keyhole.workflow.comparison",
    "report": "import keyhole.report",
}
LOADING = """
import contextlib, io, json, sys
import keyhole.cli
loaded = {}
for name, code in json.loads(sys.argv[1]).items():
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        exec(code)
    loaded[name] = sorted(sys.modules)
sys.stdout.write(json.dumps(loaded))
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """Modules that an interpreter holds after each step."""
    return json.loads(run(LOADING, json.dumps(STEPS)))


@pytest.mark.parametrize("step", ["keyhole", "help"])
def test_import_and_help_load_nothing_heavy(loaded, step):
    """`import keyhole` and the command line's help load neither torch nor pandas nor matplotlib."""
    assert not ({*HEAVY, "scipy", "netCDF4"} - {"rich"}) & set(loaded[step])


def test_matplotlib_waits_for_the_report(loaded):
    """And pyplot is never loaded."""
    assert "matplotlib" not in loaded["comparison"]
    assert "matplotlib.pyplot" not in loaded["report"]


def test_a_closed_form_plan_needs_no_torch(tmp_path):
    """It is loaded, and reconstructs, without the seconds that torch takes to import."""
    plan = keyhole.select(keyhole.datasets.sst(), k=3, method="qr", reconstructor="ridge")
    plan.save(tmp_path / "plan.keyhole")
    code = f"import sys, keyhole; plan = keyhole.load({str(tmp_path / 'plan.keyhole')!r})"
    code += "; plan.reconstruct([20.0, 10.0, 5.0], time='2020-01-01'); print('torch' in sys.modules)"
    assert run(code) == "False"


def test_closed_form_selectors_need_no_torch():
    """Nor does the local search, whatever it asks."""
    code = "import sys; from keyhole.placement import QR, Exchange, Greedy, KernelExchange"
    assert run(code + "; print('torch' in sys.modules)") == "False"


def test_every_import_is_declared():
    """What is not in the standard library stands in pyproject.toml, as a dependency or in an extra."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = [lines for name, lines in project["optional-dependencies"].items() if name != "dev"]
    lines = [*project["dependencies"], *(line for extra in extras for line in extra)]
    declared = {canonical(re.split(r"[<>=!~\[; ]", line)[0]) for line in lines}
    used = {name.split(".")[0] for path in ROOT.rglob("*.py") for name in used_modules(path)}
    others = used - {"keyhole"} - set(sys.stdlib_module_names)
    assert {name for name in others if canonical(DISTRIBUTIONS.get(name, name)) not in declared} == set()


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_order_in_the_docs_is_the_order_here():
    """docs/architecture.md lists the packages as this test holds them."""
    text = (PROJECT / "docs" / "architecture.md").read_text()
    listed = [
        line.split()[0].rstrip("/")
        for line in text.split("```packages")[1].split("```")[0].splitlines()
        if line and not line.startswith(" ")
    ]
    assert listed == PACKAGES
