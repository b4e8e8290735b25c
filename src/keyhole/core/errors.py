"""The errors a user can meet. Each message says what is wrong, where, and what to do."""

from __future__ import annotations

__all__ = [
    "DataError",
    "InfeasibleError",
    "KeyholeError",
    "KeyholeWarning",
    "OutOfMemoryError",
    "PlanError",
    "ReadingsWarning",
    "SettingsError",
    "StorageError",
    "TrainingError",
]


class KeyholeError(Exception):
    """Base of every error that Keyhole raises on purpose."""


class KeyholeWarning(UserWarning):
    """Something that a user should know and that does not stop the work; the message says what to do about it."""


class DataError(KeyholeError, ValueError):
    """The signals cannot be used: empty, constant, not finite, of the wrong shape, unreadable."""


class InfeasibleError(KeyholeError, ValueError):
    """The number of sites asked for cannot be had."""


class SettingsError(KeyholeError, ValueError):
    """A setting has an unknown name or a value that it does not take."""


class PlanError(KeyholeError, ValueError):
    """A plan cannot be used as asked: wrong readings, missing time, a file that is not a plan."""


class StorageError(KeyholeError, OSError):
    """A file could not be written or read: no such folder, no permission, no space."""


class TrainingError(KeyholeError, RuntimeError):
    """Training cannot go on: the loss is not finite, or a checkpoint belongs to another run."""


class ReadingsWarning(KeyholeWarning):
    """A reading is far from all that its site showed in training: a broken sensor, a fill value, or another unit."""


class OutOfMemoryError(KeyholeError, MemoryError):
    """There is not enough memory; the message says what was needed, what is free, and which setting to lower."""
