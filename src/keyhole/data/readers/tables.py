"""Readers of pandas DataFrames, CSV and Parquet: a sample is a row, a site a column; one column may be the target."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError, StorageError
from keyhole.core.paths import check_regular
from keyhole.data.grid import Grid
from keyhole.data.origin import SourceInfo, clock_of
from keyhole.data.samples import Samples
from keyhole.data.target import Target, TargetKind, looks_like_classes

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "TIME",
    "check_numbers",
    "index_by_time",
    "load_csv",
    "load_values",
    "parse_dates",
    "place_of",
    "read_csv",
    "read_frame",
    "read_parquet",
]

TIME = "time"
_ENCODING = "utf-8-sig"
_SHOWN = 5


def read_frame(
    frame: pd.DataFrame, *, target: str | None = None, target_kind: TargetKind | None = None, name: str = "table"
) -> Samples:
    """Take a frame of numbers; its index gives the samples' times, and a column of any kind the target.

    An index of dates is time, and so is one of numbers or durations that is called ``time``.
    """
    if target is None:
        if target_kind is not None:
            raise SettingsError(
                f"target_kind={target_kind!r} has no meaning without a target; give one, or leave it out"
            )
        return _samples(frame, name)
    place = _place(frame, target)
    column = Target.of(frame.iloc[:, place], name=target, kind=target_kind)
    return _samples(frame.drop(columns=frame.columns[place]), name).with_target(column)


def read_csv(path: Path, *, target: str | None = None, target_kind: TargetKind | None = None) -> Samples:
    """Read a CSV file whose first row names the columns; a column called ``time`` gives the samples' times."""
    frame = load_csv(path, whole=True)
    if any(column.startswith("Unnamed: ") for column in frame.columns):  # row numbers would be a site like any other
        raise DataError("a column has no name; name it or leave it out (pandas: to_csv(index=False))")
    if target is not None and target in frame.columns:
        frame[target] = _typed(_fields(path, target), target, target_kind)
    if TIME in frame.columns:
        index_by_time(frame, TIME)
    return read_frame(frame, target=target, target_kind=target_kind, name=path.stem)


def read_parquet(path: Path, *, target: str | None = None, target_kind: TargetKind | None = None) -> Samples:
    """Read a Parquet file; a column called ``time``, or an index of times, gives the samples' times.

    What its footer declares is looked at before anything is read: values that repeat take next to nothing in the file.
    """
    from keyhole.data.readers.parquet import load_parquet

    return read_frame(load_parquet(path, target), target=target, target_kind=target_kind, name=path.stem)


def index_by_time(frame: pd.DataFrame, column: str) -> None:
    """Make a column of dates the index of a frame."""
    import pandas as pd

    try:
        frame.index = pd.DatetimeIndex(parse_dates(frame.pop(column)))
    except (ValueError, TypeError) as error:
        raise DataError(f"{column}: not dates ({error}); write them as 2023-02-01, or rename the column") from error


def load_csv(path: Path, *, whole: bool = False) -> pd.DataFrame:
    """Load a CSV file whose first row names the columns; no row may be longer, nor shorter if they are to be whole."""
    import pandas as pd

    check_regular(path)
    try:
        _check_header(_check_rows(path, whole=whole), path)
        frame = pd.read_csv(path, encoding=_ENCODING, index_col=False)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except DataError:
        raise
    except (ValueError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read as CSV ({error})") from error
    return frame


def load_values(path: Path) -> Any:
    """Load one value for each site from a CSV file whose last column holds it, and the others say where it is.

    A column ``name`` gives a mapping by site name; any others a Series by coordinate.
    """
    frame = load_csv(path, whole=True)
    if frame.shape[1] < 2 or frame.empty:
        raise DataError(f"{path}: a column of site names, or one for each coordinate, and one of values are needed")
    *where, last = frame.columns
    if frame.duplicated(where).any():
        twice = frame[frame.duplicated(where)].iloc[0]
        raise DataError(f"{path}: {', '.join(f'{name} {twice[name]}' for name in where)} stands more than once")
    if "name" in where:
        return dict(zip(frame["name"].astype(str), frame[last], strict=True))
    return frame.set_index(where[0] if len(where) == 1 else where)[last]


def _check_header(header: list[str], path: Path) -> None:
    """Refuse a name that stands more than once: pandas would rename it."""
    repeated = sorted(name for name, times in Counter(header).items() if times > 1)
    if repeated:
        raise DataError(f"{path}: column {repeated[0]!r} stands more than once")


def parse_dates(values: Any) -> NDArray[np.datetime64]:
    """Turn ISO 8601 dates into UTC without a zone; a ValueError or TypeError where they are none."""
    import pandas as pd

    column = np.atleast_1d(np.asarray(values))
    if column.ndim > 1 or column.dtype.kind in "biufc":  # pandas would take numbers as nanoseconds since 1970
        raise TypeError(f"{column.dtype} of shape {column.shape}")
    return pd.to_datetime(column, format="ISO8601", utc=True).tz_localize(None).to_numpy("datetime64[ns]")


def _check_rows(path: Path, *, whole: bool) -> list[str]:
    """Give the names in the header; a ValueError names the line of a row whose values would go to other columns."""
    header: list[str] = []
    for line, row in _rows(path):
        header = header or row
        if len(row) > len(header) or (whole and len(row) < len(header)):
            more = "more" if len(row) > len(header) else "fewer"
            raise ValueError(f"line {line} has {more} values than the header has names: {len(row)}, not {len(header)}")
    return header


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows of a CSV file, each with the line that it begins on; blank lines are left out, as pandas does."""
    with path.open(newline="", encoding=_ENCODING) as file:
        reader, line = csv.reader(file), 1
        for row in reader:
            if len(row) > 1 or "".join(row).strip():
                yield line, row
            line = reader.line_num + 1


def _fields(path: Path, column: str) -> pd.Series[Any]:
    """Texts of one column as they stand: pandas takes words like None for missing."""
    import pandas as pd

    return pd.read_csv(path, encoding=_ENCODING, usecols=[column], dtype=str, keep_default_na=False)[column]


def _typed(texts: pd.Series[Any], name: str, kind: TargetKind | None) -> pd.Series[Any]:
    """Give the target's fields as numbers if all of them are, else as the texts they are; an empty one is missing."""
    import pandas as pd

    known = texts.mask(texts.str.strip() == "")
    numbers = pd.to_numeric(known, errors="coerce")
    words = known[numbers.isna() & known.notna()]
    if words.empty:
        return numbers
    parsed = numbers.dropna()
    if kind is None and len(parsed) > len(words) and not looks_like_classes(parsed):
        raise DataError(
            f"target {name!r}: {words.iloc[0]!r} stands among numbers; leave such samples out, "
            "or give the kind 'class' if the numbers are names too"
        )
    return known


def _samples(frame: pd.DataFrame, name: str) -> Samples:
    import pandas as pd

    check_numbers([str(column) for column, kind in frame.dtypes.items() if not pd.api.types.is_numeric_dtype(kind)])
    names = tuple(str(column) for column in frame.columns)
    if len(set(names)) < len(names):
        raise DataError("two columns have the same name; a site's name must be its own")
    grid = Grid((len(names),), ("column",), {"column": np.arange(len(names))}, np.ones(len(names), bool), names)
    time = _index_time(frame)
    values = frame.to_numpy()
    if values.dtype == object:  # kinds of numbers that numpy does not join
        values = frame.to_numpy(float, na_value=np.nan)
    return Samples.build(
        values[:, np.newaxis], grid, time=time, origin=SourceInfo("table", name=name, clock=clock_of(time))
    )


def _index_time(frame: pd.DataFrame) -> NDArray[Any] | None:
    """Times that the index gives, if it does."""
    import pandas as pd

    if isinstance(frame.index, pd.DatetimeIndex):
        return frame.index.to_numpy("datetime64[ns]")
    found = frame.index.to_numpy()
    return found if frame.index.name == TIME and found.dtype.kind in "miuf" else None


def check_numbers(others: Sequence[str]) -> None:
    """Raise a DataError that names columns that are not numbers, if there are such."""
    if others:
        raise DataError(f"columns that are not numbers: {', '.join(others[:_SHOWN])}; leave them out or encode them")


def _place(frame: pd.DataFrame, target: str) -> int:
    """Position of the target's column."""
    return place_of([str(column) for column in frame.columns], target)


def place_of(names: Sequence[str], target: str) -> int:
    """Position of the target among the names of columns."""
    if names.count(target) == 1:
        return names.index(target)
    if target in names:
        raise DataError(f"target: {names.count(target)} columns are called {target!r}")
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    raise DataError(f"target: no column {target!r}; there are {shown or 'none'}")
