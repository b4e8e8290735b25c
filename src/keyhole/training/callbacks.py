"""Callbacks that write what a training reports: to a table in CSV, or to TensorBoard."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keyhole.core.callbacks import Callback
from keyhole.core.errors import DataError, StorageError
from keyhole.core.extras import check_extra
from keyhole.core.storage import replacing

if TYPE_CHECKING:
    from keyhole.core.run import Event

__all__ = ["CSVLogger", "Callback", "TensorBoardLogger"]

_KEYS = ["stage", "step"]


class CSVLogger(Callback):
    """Write a table with one row for each epoch of each training.

    The columns are ``stage``, ``step`` and the figures of all trainings, empty where a training has none of that name.
    The file is replaced by a complete one after each epoch. In a run that is resumed the rows up to the checkpoint are
    kept.

    Parameters
    ----------
    path
        File to write.

    Examples
    --------
    >>> import tempfile
    >>> import keyhole as kh
    >>> from keyhole.models.reconstructors import Dense
    >>> path = Path(tempfile.mkdtemp(), "training.csv")
    >>> dense = Dense(width=8, train={"steps": 4, "validation_steps": 2})
    >>> plan = kh.select(
    ...     kh.datasets.sst(), k=3, method="qr", reconstructor=dense, refit=False, callbacks=[CSVLogger(path)]
    ... )
    >>> [line.split(",")[:2] for line in path.read_text().splitlines()]
    [['stage', 'step'], ['refit dense', '0'], ['refit dense', '2'], ['refit dense', '4']]
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._own: list[dict[str, Any]] = []
        self._earlier: list[dict[str, Any]] | None = None

    def on_start(self, event: Event) -> None:
        """Keep the rows of a run that is resumed, up to the step from which it goes on."""
        if self._earlier is None:
            self._earlier = self._read() if event.step and self.path.is_file() else []
        self._earlier = [
            row for row in self._earlier if row["stage"] != event.stage or float(row["step"]) <= event.step
        ]

    def on_epoch(self, event: Event) -> None:
        """Write the table with one more row."""
        self._own.append({"stage": event.stage, "step": event.step, **event.figures})
        rows = [*(self._earlier or ()), *self._own]
        columns = list(dict.fromkeys([*_KEYS, *(name for row in rows for name in row)]))
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, columns, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{self.path.parent}: cannot be made: {error.strerror or error}") from error
        with replacing(self.path) as file:
            file.write(text.getvalue().encode())

    def _read(self) -> list[dict[str, Any]]:
        """Return the rows of the file."""
        with self.path.open(newline="") as file:
            table = csv.DictReader(file)
            if not set(_KEYS) <= set(table.fieldnames or ()):
                raise DataError(f"{self.path}: not a table that CSVLogger wrote; name another file")
            return [{name: value for name, value in row.items() if value != ""} for row in table]


class TensorBoardLogger(Callback):
    """Write the figures of each epoch for TensorBoard; ``tensorboard --logdir folder`` shows them.

    Each training is a run of its own, a folder in ``folder`` with its name. It needs ``keyhole[tensorboard]``.

    Parameters
    ----------
    folder
        Folder to write to.

    Raises
    ------
    MissingExtraError
        TensorBoard is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        check_extra("tensorboard")
        self.folder = Path(folder)
        self._writer: Any = None

    def on_start(self, event: Event) -> None:
        """Open a file for the training; figures beyond the step from which it is resumed are purged."""
        from torch.utils.tensorboard import SummaryWriter

        where = self.folder / event.stage.replace(" ", "-")
        purged = event.step + 1 if event.step else None
        try:
            self._writer = SummaryWriter(str(where), purge_step=purged)
        except OSError as error:
            raise StorageError(f"{where}: cannot be written: {error.strerror or error}") from error

    def on_epoch(self, event: Event) -> None:
        """Write the figures."""
        _write(self._writer, event.figures, event.step)

    def on_end(self, event: Event) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _write(writer: Any, figures: Mapping[str, float], step: int) -> None:
    """Write figures by name."""
    for name, value in figures.items():
        writer.add_scalar(name, value, step)
    writer.flush()
