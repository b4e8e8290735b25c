"""Readers of tables (DataFrames, CSV, Parquet): a sample is a row, a column one site or more, or the target."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError
from keyhole.core.paths import open_regular
from keyhole.core.text import listed
from keyhole.data.dates import parse_dates
from keyhole.data.origin import SourceInfo, clock_of
from keyhole.data.readers.files import decoding
from keyhole.data.sample_labels import INDEX, Coordinates
from keyhole.data.samples import Samples
from keyhole.data.sites import Sites
from keyhole.data.table_columns import TableColumns
from keyhole.data.target import Target, TargetKind, looks_like_classes

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "TIME",
    "check_columns",
    "index_by_time",
    "load_csv",
    "load_values",
    "position_of",
    "read_csv",
    "read_frame",
    "read_parquet",
    "samples_of_table",
]

TIME = "time"
_ENCODING = "utf-8-sig"
_SHOWN = 5


def read_frame(
    frame: pd.DataFrame, *, target: str | None = None, target_kind: TargetKind | None = None,
    groups: str | None = None, columns: TableColumns | None = None, name: str = "table",
) -> Samples:  # fmt: skip
    """Read samples from a DataFrame.

    Parameters
    ----------
    frame : DataFrame
        Columns of numbers, words or dates, see `TableColumns`. A column of dates that is named ``time``, an index of
        dates, or one of numbers or durations that is named ``time``, gives the times.
    target : str, optional
        The column to predict from the others, of any type.
    target_kind : {"class", "number"}, optional
        Classification or regression; None: inferred by `Target.of`.
    groups : str, optional
        A column that names the group of each row, of any type: a coordinate of the samples instead of a site. So is the
        index, if it holds no times.
    columns : TableColumns, optional
        How the columns are encoded, such as those of a plan; None: by what they hold.
    name : str
        Name of the data.

    Returns
    -------
    Samples

    Raises
    ------
    DataError
        If names are not unique, ``time`` holds no dates, or a word stands among numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> samples = read_frame(pd.DataFrame({"a": [1, 2, 4], "b": [0.5, 1, 2], "kind": list("xyx")}), target="kind")
    >>> samples.sites.names, samples.target.classes
    (('a', 'b'), ('x', 'y'))
    """
    coordinates = _index_coordinates(frame)
    if groups is not None and groups in frame.columns and groups != target:
        coordinates[groups] = frame[groups].to_numpy()
        frame = frame.drop(columns=groups)
    if TIME in frame.columns and target != TIME and frame[TIME].dtype.kind not in "biuf":
        frame = frame.copy(deep=False)
        index_by_time(frame, TIME)
    if target is None:
        if target_kind is not None:
            raise SettingsError(
                f"target_kind={target_kind!r} has no meaning without a target; give one, or leave it out"
            )
        return _samples(frame, name, coordinates, columns)
    position = position_of([str(column) for column in frame.columns], target)
    column = Target.of(frame.iloc[:, position], name=target, kind=target_kind)
    others = frame.drop(columns=frame.columns[position])
    return _samples(others, name, coordinates, columns).with_target(column)


def read_csv(
    path: Path, *, target: str | None = None, target_kind: TargetKind | None = None, groups: str | None = None,
    columns: TableColumns | None = None,
) -> Samples:  # fmt: skip
    """Read samples from a CSV file.

    Parameters
    ----------
    path : Path
        The first row names the columns; a column named ``time`` gives the times. Words are kept as they are written,
        so that only an empty field is missing.
    target, target_kind, groups, columns
        As for `read_frame`.

    Returns
    -------
    Samples
    """
    frame = load_csv(path, whole=True, words=True)
    if any(column.startswith("Unnamed: ") for column in frame.columns):  # row numbers would be a site like any other
        raise DataError("a column has no name; name it or leave it out (pandas: to_csv(index=False))")
    if target is not None and target in frame.columns:
        frame[target] = _typed(_text_columns(path, [target])[target], target, target_kind)
    if groups is not None and groups in frame.columns:
        frame[groups] = _text_columns(path, [groups])[groups]
    if TIME in frame.columns and target != TIME:
        index_by_time(frame, TIME)
    return read_frame(frame, target=target, target_kind=target_kind, groups=groups, columns=columns, name=path.stem)


def read_parquet(
    path: Path, *, target: str | None = None, target_kind: TargetKind | None = None, groups: str | None = None,
    columns: TableColumns | None = None,
) -> Samples:  # fmt: skip
    """Read samples from a Parquet file.

    Parameters
    ----------
    path : Path
        A column named ``time``, or an index of timestamps, gives the times.
    target, target_kind, groups, columns
        As for `read_frame`.

    Returns
    -------
    Samples
    """
    from keyhole.data.readers.parquet import load_parquet

    frame = load_parquet(path, target, groups)
    return read_frame(frame, target=target, target_kind=target_kind, groups=groups, columns=columns, name=path.stem)


def load_csv(path: Path, *, whole: bool = False, words: bool = False) -> pd.DataFrame:
    """Load a CSV file whose first row names the columns.

    Parameters
    ----------
    path : Path
        A CSV file.
    whole : bool
        Whether rows that are shorter than the header are an error; longer ones always are.
    words : bool
        Whether words are kept as they are written, so that only an empty field is missing, and ``NA`` is a word.

    Returns
    -------
    DataFrame

    Raises
    ------
    DataError
        If a row has another length than the header, or two columns have the same name, which pandas would rename.
    StorageError
        If the file cannot be opened.
    """
    import pandas as pd

    open_regular(path).close()
    with decoding(path, "cannot be read as CSV"):
        names = Counter(_check_rows(path, whole=whole))
        repeated = sorted(name for name, count in names.items() if count > 1)
        if repeated:
            raise DataError(f"{path}: column {repeated[0]!r} stands more than once")
        frame = pd.read_csv(path, encoding=_ENCODING, index_col=False)
        return _with_words(frame, path) if words else frame


def load_values(path: Path) -> Any:
    """Load one value for each site, such as its cost, from a CSV file.

    Parameters
    ----------
    path : Path
        The last column holds the values, the others the sites: a column ``name``, or one for each coordinate.

    Returns
    -------
    dict or Series
        By site name, or by coordinate.

    Raises
    ------
    DataError
        If there are fewer than two columns, or a site occurs twice.
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


def samples_of_table(
    columns: TableColumns, values: NDArray[Any], *, time: NDArray[Any] | None = None, name: str = "table"
) -> Samples:
    """Make samples of an encoded table, whose columns count alike, whatever their units, and words as one column.

    Parameters
    ----------
    columns : TableColumns
        The columns, and how they are encoded.
    values : ndarray of shape (n, encoded)
        What `TableColumns.encode` returns.
    time : ndarray of shape (n,), optional
        Time of each row.
    name : str
        Name of the data.

    Returns
    -------
    Samples
    """
    names = tuple(columns.names)
    check_columns(names, [])
    sites = Sites.build((len(names),), ("column",), {"column": np.arange(len(names))}, names=names)
    origin = SourceInfo("table", name=name, clock=clock_of(time), columns=None if columns.is_plain else columns)
    samples = Samples.build(values[:, np.newaxis], sites, time=time, origin=origin)
    return samples.with_weights("variance").with_constraints(None)


def index_by_time(frame: pd.DataFrame, column: str) -> None:
    """Make a column of dates the index of a frame, in place; raise a DataError if they are not dates."""
    import pandas as pd

    try:
        frame.index = pd.DatetimeIndex(parse_dates(frame.pop(column)))
    except (ValueError, TypeError) as error:
        raise DataError(f"{column}: not dates ({error}); write them as 2023-02-01, or rename the column") from error


def check_columns(names: Sequence[str], others: Sequence[str]) -> None:
    """Raise a DataError if names of columns repeat, or if there are ``others`` that are not used."""
    if others:
        shown = ", ".join(others[:_SHOWN])
        raise DataError(f"columns that are not numbers, words or dates: {shown}; leave them out or encode them")
    if len(set(names)) < len(names):
        raise DataError("two columns have the same name; a site's name must be its own")


def position_of(names: Sequence[str], target: str) -> int:
    """Return the position of the target among the names of columns; raise a DataError unless it occurs once."""
    if names.count(target) == 1:
        return names.index(target)
    if target in names:
        raise DataError(f"target: {names.count(target)} columns are called {target!r}")
    raise DataError(f"target: no column {target!r}; there are {listed(names, _SHOWN) or 'none'}")


def _check_rows(path: Path, *, whole: bool) -> list[str]:
    """Return the header; raise a ValueError with the line of a row whose values would be read into other columns."""
    header: list[str] = []
    for line, row in _rows(path):
        header = header or row
        if len(row) > len(header) or (whole and len(row) < len(header)):
            more = "more" if len(row) > len(header) else "fewer"
            raise ValueError(f"line {line} has {more} values than the header has names: {len(row)}, not {len(header)}")
    return header


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each row with the number of its first line; blank lines are skipped, as in pandas."""
    with path.open(newline="", encoding=_ENCODING) as file:
        reader, line = csv.reader(file), 1
        for row in reader:
            if len(row) > 1 or "".join(row).strip():
                yield line, row
            line = reader.line_num + 1


def _text_columns(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    """Read some columns as text; pandas would take words like None for missing values."""
    import pandas as pd

    return pd.read_csv(path, encoding=_ENCODING, usecols=list(columns), dtype=str, keep_default_na=False)


def _with_words(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Return a frame with columns of words as they stand in the file, where only an empty field is missing."""
    import pandas as pd

    kinds = {name: pd.api.types.infer_dtype(frame[name], skipna=True) for name in frame.columns}
    words = [name for name, kind in kinds.items() if kind in ("string", "mixed", "mixed-integer")]
    if not words:
        return frame
    texts = _text_columns(path, words)
    return frame.assign(**{name: texts[name].mask(texts[name].str.strip() == "") for name in words})


def _typed(texts: pd.Series[Any], name: str, kind: TargetKind | None) -> pd.Series[Any]:
    """Convert a target's column to numbers if all are numbers; an empty field is missing."""
    import pandas as pd

    known = texts.mask(texts.str.strip() == "")
    numbers = pd.to_numeric(known, errors="coerce")
    others = known[numbers.isna() & known.notna()]
    if others.empty:
        return numbers
    parsed = numbers.dropna()
    if kind is None and len(parsed) > len(others) and not looks_like_classes(parsed):
        raise DataError(
            f"target {name!r}: {others.iloc[0]!r} stands among numbers; leave such samples out, "
            "or give the kind 'class' if the numbers are names too"
        )
    return known


def _index_coordinates(frame: pd.DataFrame) -> dict[str, NDArray[Any]]:
    """Return the labels in the index of a frame, or in its levels, by name, unless they are times."""
    import pandas as pd

    if _index_time(frame) is not None:
        return {}
    if not isinstance(frame.index, pd.MultiIndex):
        return {str(frame.index.name or INDEX): frame.index.to_numpy()}
    levels = {name: frame.index.get_level_values(i) for i, name in enumerate(frame.index.names)}
    return {str(name): labels.to_numpy() for name, labels in levels.items() if name}


def _samples(frame: pd.DataFrame, name: str, coordinates: Coordinates, columns: TableColumns | None) -> Samples:
    """Samples of the columns of a frame, encoded anew or as given."""
    names = [str(column) for column in frame.columns]
    check_columns(names, [])
    if columns is not None:
        absent = [column.name for column in columns.columns if column.name not in names]
        if absent:
            raise DataError(f"the table lacks {listed(list(map(repr, absent)), _SHOWN)}, which the plan was made with")
        frame = frame.iloc[:, [names.index(column.name) for column in columns.columns]]
    columns = columns or TableColumns.of(frame)
    made = samples_of_table(columns, columns.encode(frame), time=_index_time(frame), name=name)
    return replace(made, coordinates=coordinates)


def _index_time(frame: pd.DataFrame) -> NDArray[Any] | None:
    """Times in the index, if it holds dates or is named ``time``."""
    import pandas as pd

    if isinstance(frame.index, pd.DatetimeIndex):
        return frame.index.to_numpy("datetime64[ns]")
    index = frame.index.to_numpy()
    return index if frame.index.name == TIME and index.dtype.kind in "miuf" else None
