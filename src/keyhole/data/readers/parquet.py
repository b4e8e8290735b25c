"""Parquet files: the declared schema and sizes decide what is read, and whether."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keyhole.core.errors import DataError
from keyhole.core.extras import check_extra
from keyhole.core.memory import check_fits
from keyhole.core.paths import open_regular
from keyhole.data.readers.files import decoding
from keyhole.data.readers.tables import TIME, check_columns, index_by_time, position_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["load_parquet"]

_LONGEST = 1000  # bytes of a text: dates, words and names of classes are short


def load_parquet(path: Path, target: str | None = None, groups: str | None = None) -> pd.DataFrame:
    """Load the columns of numbers, words and dates, and the times as the index.

    Columns of other types are refused by the schema, and the declared sizes are compared with the free memory, before
    any value is read: repeated values take next to nothing in the file. An index that is not of times is not read.

    Parameters
    ----------
    path : Path
        A Parquet file.
    target : str, optional
        Name of the target's column.
    groups : str, optional
        Name of the column of groups, if it is one.

    Returns
    -------
    DataFrame

    Raises
    ------
    DataError
        If the file is damaged, has columns of other types, or exceeds the free memory.
    MissingExtraError
        If pyarrow is not installed.
    """
    check_extra("parquet")
    from pyarrow import parquet, types

    open_regular(path).close()
    with decoding(path, "cannot be read as Parquet"):
        schema = parquet.read_schema(path)
        index = _index_columns(schema)
        time = index[0] if len(index) == 1 and types.is_timestamp(schema.field(index[0]).type) else None
        names = [name for name in schema.names if name not in index]
        _check_types(schema, names, target, groups)
        texts = [name for name in names if _is_text(schema.field(name).type)]
        with parquet.ParquetFile(path, read_dictionary=texts) as file:
            _check_size(file.metadata, schema, path)
            table = file.read(columns=names if time is None else [*names, time])
        for name in (name for name in names if not _is_number(schema.field(name).type)):
            _check_texts(table.column(name), name)
        times = None if time is None else table.column(time).to_pandas()
        frame: pd.DataFrame = table.select(names).to_pandas(split_blocks=True)
        frame = frame.astype(dict.fromkeys(texts, object))
        if times is not None and TIME not in frame.columns:
            frame = frame.assign(**{TIME: times.to_numpy()})
        if TIME in frame.columns:
            index_by_time(frame, TIME)
    return frame


def _index_columns(schema: Any) -> list[str]:
    """Names of the columns to which pandas wrote its index."""
    stored = (schema.pandas_metadata or {}).get("index_columns", [])
    return [name for name in stored if isinstance(name, str) and name in schema.names]


def _check_types(schema: Any, names: Sequence[str], target: str | None, groups: str | None) -> None:
    """Raise a DataError for columns that are neither numbers, words nor dates."""
    if target is not None:
        position_of(names, target)
        kind = schema.field(target).type
        if not (_is_number(kind) or _is_text(kind) or _is_category(kind)):
            raise DataError(f"target {target!r}: of type {kind}; classes or real numbers are needed")
    kind = schema.field(groups).type if groups in names else None
    if kind is not None and not (_is_number(kind) or _is_text(kind) or _is_category(kind) or _is_date(kind)):
        raise DataError(f"groups {groups!r}: of type {kind}; numbers, texts or dates are needed")
    check_columns(names, [])
    time = schema.field(TIME).type if TIME in names else None
    if time is not None and not (_is_date(time) or _is_text(time)):
        raise DataError(f"{TIME}: not dates ({time}); write them as 2023-02-01, or rename the column")
    kinds = {name: schema.field(name).type for name in names if name not in (TIME, target, groups)}
    known = (_is_number, _is_text, _is_category, _is_date)
    check_columns(names, [f"{name} ({kind})" for name, kind in kinds.items() if not any(one(kind) for one in known)])


def _check_size(footer: Any, schema: Any, path: Path) -> None:
    """Compare the size of the declared rows, once as columns and once as one array, with the free memory."""
    widths = [max(1, kind.bit_width // 8) if _is_number(kind) else 8 for kind in schema.types]
    check_fits(int(footer.num_rows) * (sum(widths) + len(widths) * max(widths, default=0)), str(path))
    groups = (footer.row_group(number) for number in range(footer.num_row_groups))
    packed = sum(int(group.column(i).total_uncompressed_size) for group in groups for i in range(group.num_columns))
    check_fits(packed, str(path))


def _check_texts(column: Any, name: str) -> None:
    """Raise a DataError for texts too long for words; read as a dictionary, each is held once."""
    from pyarrow import compute

    for part in column.chunks:
        if _is_category(part.type) and _is_text(part.type.value_type) and len(part.dictionary):
            longest = compute.max(compute.binary_length(part.dictionary)).as_py() or 0
            if longest > _LONGEST:
                raise DataError(f"{name}: a text of {longest} bytes; words have at most {_LONGEST}")


def _is_number(kind: Any) -> bool:
    """Whether a type is numeric or boolean."""
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_text(kind: Any) -> bool:
    """Whether a type is text."""
    from pyarrow import types

    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_category(kind: Any) -> bool:
    """Whether a type is a dictionary of texts or numbers."""
    from pyarrow import types

    return bool(types.is_dictionary(kind)) and (_is_text(kind.value_type) or _is_number(kind.value_type))


def _is_date(kind: Any) -> bool:
    """Whether a type is a timestamp or a date."""
    from pyarrow import types

    return bool(types.is_timestamp(kind) or types.is_date(kind))
