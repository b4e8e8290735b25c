"""Keyhole: which few points must I observe so that I can rebuild the whole?

>>> import keyhole as kh
>>> field = kh.datasets.sst()
>>> plan = kh.select(field, k=25, method="qr", reconstructor="ridge")
>>> len(plan.sites)
25
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from keyhole.accessor import register as register_accessor
from keyhole.errors import (
    BudgetError,
    DataError,
    KeyholeError,
    KeyholeWarning,
    PlanError,
    ReadingsWarning,
    SettingsError,
    StorageError,
    TrainingError,
)

# OpenMP threads that spin while they wait make training tens of times slower as soon as anything else uses a core.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:
    from keyhole import datasets as datasets
    from keyhole.changes import drop as drop
    from keyhole.changes import extend as extend
    from keyhole.constraints import Constraints as Constraints
    from keyhole.curves import Curve as Curve
    from keyhole.curves import curve as curve
    from keyhole.pipeline import select as select
    from keyhole.plan import Plan as Plan
    from keyhole.plan import load as load
    from keyhole.readers import read as read
    from keyhole.split import Split as Split
    from keyhole.stored import open_store as open_store
    from keyhole.stored import select_stored as select_stored

__all__ = [
    "BudgetError",
    "Constraints",
    "Curve",
    "DataError",
    "KeyholeError",
    "KeyholeWarning",
    "Plan",
    "PlanError",
    "ReadingsWarning",
    "SettingsError",
    "Split",
    "StorageError",
    "TrainingError",
    "curve",
    "datasets",
    "drop",
    "extend",
    "load",
    "open_store",
    "read",
    "select",
    "select_stored",
]

register_accessor()

# Loaded when first used, so that `import keyhole` stays quick.
_LAZY = {
    "Constraints": "constraints",
    "Curve": "curves",
    "Plan": "plan",
    "Split": "split",
    "curve": "curves",
    "drop": "changes",
    "extend": "changes",
    "load": "plan",
    "open_store": "stored",
    "read": "readers",
    "select": "pipeline",
    "select_stored": "stored",
}


def __getattr__(name: str) -> Any:
    if name == "datasets":
        return import_module("keyhole.datasets")
    if name in _LAZY:
        return getattr(import_module(f"keyhole.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'keyhole' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
