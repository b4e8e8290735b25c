"""Exceptions and warnings. Each message states what is wrong, where, and what to do."""

from __future__ import annotations

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


class KeyholeError(Exception):
    """Base class of all errors that Keyhole raises deliberately.

    Examples
    --------
    >>> issubclass(DataError, KeyholeError), issubclass(DataError, ValueError)
    (True, True)
    """


class KeyholeWarning(UserWarning):
    """Something that a user should know and that does not stop the run; the message says what to do."""


class DataError(KeyholeError, ValueError):
    """The data cannot be used: empty, constant, not finite, of the wrong shape, or unreadable."""


class InfeasibleError(KeyholeError, ValueError):
    """The requested number of sites is infeasible under the constraints."""


class SettingsError(KeyholeError, ValueError):
    """A setting has an unknown name or an invalid value."""


class PlanError(KeyholeError, ValueError):
    """A plan cannot be used as requested: wrong readings, missing time, or a file that is not a plan."""


class StorageError(KeyholeError, OSError):
    """A file could not be written or read: no such folder, no permission, no space."""


class TrainingError(KeyholeError, RuntimeError):
    """Training cannot continue: the loss is not finite, or a checkpoint belongs to another run."""


class ReadingsWarning(KeyholeWarning):
    """A reading is far outside the range of its site in training: a broken sensor, a fill value, another unit."""


class MissingExtraError(KeyholeError, ImportError):
    """A package that this part of Keyhole needs is not installed; the message names the extra to install."""


class OutOfMemoryError(KeyholeError, MemoryError):
    """Not enough memory; the message states what was needed, what is free, and which setting to lower."""
