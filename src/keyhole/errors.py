"""Errors and warnings of Keyhole, all subclasses of `KeyholeError` or `KeyholeWarning`.

Examples
--------
>>> import keyhole as kh
>>> try:
...     kh.select(kh.datasets.sst(), k=0)
... except kh.errors.InfeasibleError as error:
...     print(error)
k=0 is infeasible: between 1 and 1732 observable sites can be selected
"""

from keyhole.core.errors import (
    DataError,
    InfeasibleError,
    KeyholeError,
    KeyholeWarning,
    MissingExtraError,
    OutOfMemoryError,
    PlanError,
    ReadingsWarning,
    SettingsError,
    StorageError,
    TrainingError,
)

__all__ = [
    "DataError",
    "InfeasibleError",
    "KeyholeError",
    "KeyholeWarning",
    "MissingExtraError",
    "OutOfMemoryError",
    "PlanError",
    "ReadingsWarning",
    "SettingsError",
    "StorageError",
    "TrainingError",
]
