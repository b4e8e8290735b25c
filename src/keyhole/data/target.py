"""The target: what is to be told from the sites where it is not the signal itself, a class or a number."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError
from keyhole.data.alignment import times_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Target", "TargetKind", "looks_like_classes"]

TargetKind = Literal["class", "number"]

# Whole numbers are codes of classes if they are few: at most so many, and fewer than such a share of the samples.
_MOST_CODES = 20
_SHARE_OF_CODES = 0.2
# Whole numbers up to here are exact in double precision.
_MOST_EXACT = 2.0**53


@dataclass(frozen=True, eq=False)
class Target:
    """One class or one number for each sample.

    Parameters
    ----------
    name
        What it is called: the column's name, or ``"target"``.
    values
        ``(N,)``: int64 codes, positions in ``classes``; or float64 numbers.
    classes
        Names of the classes; empty where the target is a number.
    time
        Time of each value, where it was labelled with times; samples that have times take theirs by them.
    """

    name: str
    values: NDArray[np.int64] | NDArray[np.float64]
    classes: tuple[str, ...] = ()
    time: NDArray[np.datetime64] | None = None

    @classmethod
    def of(cls, values: Any, *, name: str = "target", kind: TargetKind | None = None) -> Target:
        """Make a target of a column, array or list.

        Text, booleans and categories are classes; whole numbers, also as 1.0, are if at most 20 different ones occur,
        and fewer than a fifth of the samples; all else are numbers. ``kind`` overrules this.

        Examples
        --------
        >>> Target.of(["sun", "rain", "sun"]).classes
        ('rain', 'sun')
        >>> Target.of([0.5, 1.5, 2.5]).is_class
        False
        """
        import pandas as pd

        if kind not in (None, "class", "number"):
            raise SettingsError(f"target {name!r}: kind={kind!r}: 'class', 'number' or None is needed")
        column = pd.Series(_one_axis(values, name)).reset_index(drop=True).infer_objects()
        _check_known(column, name)
        classes = looks_like_classes(column) if kind is None else kind == "class"
        return replace(_classes(column, name) if classes else _numbers(column, name), time=times_of(values))

    def __len__(self) -> int:
        return len(self.values)

    @property
    def is_class(self) -> bool:
        """Whether it is a class, not a number."""
        return bool(self.classes)

    def take(self, indices: NDArray[np.int64]) -> Target:
        """Give the target of some of the samples."""
        return replace(self, values=self.values[indices], time=None if self.time is None else self.time[indices])


def _one_axis(values: Any, name: str) -> Any:
    """Give what pandas can take as one column; a list keeps what is missing in it as it is."""
    column = values if hasattr(values, "ndim") else np.asarray(values, dtype=object)
    if column.ndim != 1:
        raise DataError(f"target {name!r}: one value for each sample is needed, not shape {column.shape}")
    return column


def _check_known(column: pd.Series[Any], name: str) -> None:
    import pandas as pd

    if len(column) == 0:
        raise DataError(f"target {name!r}: it is empty")
    if column.dtype.kind in "cmM":
        raise DataError(f"target {name!r}: of type {column.dtype}; classes or real numbers are needed")
    missing = int(column.isna().sum())
    if missing:
        raise DataError(f"target {name!r}: missing in {missing} of {len(column)} samples; leave such samples out")
    infinite = int(np.isinf(column.to_numpy(float)).sum()) if pd.api.types.is_float_dtype(column.dtype) else 0
    if infinite:
        raise DataError(f"target {name!r}: infinite in {infinite} of {len(column)} samples; leave such samples out")


def looks_like_classes(column: pd.Series[Any]) -> bool:
    """Whether a column without missing values holds classes, as far as can be guessed."""
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        return True
    distinct = column.nunique()
    few = distinct <= _MOST_CODES and distinct < _SHARE_OF_CODES * len(column)
    return few and pd.api.types.is_integer_dtype(_whole(column).dtype)


def _whole(column: pd.Series[Any]) -> pd.Series[Any]:
    """Give floats as integers if all of them are whole; any other column as it is."""
    import pandas as pd

    if not pd.api.types.is_float_dtype(column.dtype):
        return column
    values = column.to_numpy(np.float64)
    whole = (values == np.floor(values)).all() and (np.abs(values) <= _MOST_EXACT).all()
    return column.astype(np.int64) if whole else column


def _classes(column: pd.Series[Any], name: str) -> Target:
    import pandas as pd

    column = _whole(column)  # the names are 1 and 2, not 1.0 and 2.0
    if column.dtype == object:  # what pandas cannot sort, such as texts beside numbers
        column = column.astype(str)
    categories = column.astype("category") if not isinstance(column.dtype, pd.CategoricalDtype) else column
    categories = categories.cat.remove_unused_categories()
    names = tuple(str(category) for category in categories.cat.categories)
    if len(names) == 1:
        raise DataError(f"target {name!r}: it never varies, every sample is {names[0]!r}; there is nothing to tell")
    if len(names) == len(column):
        raise DataError(
            f"target {name!r}: {len(names)} classes in {len(column)} samples, none is there twice; "
            "take another column, or kind 'number' if it is one"
        )
    return Target(name, categories.cat.codes.to_numpy().astype(np.int64), names)


def _numbers(column: pd.Series[Any], name: str) -> Target:
    try:
        values = column.to_numpy(dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise DataError(f"target {name!r}: not numbers ({error}); it can be told as classes") from error
    if not np.isfinite(values).all():
        raise DataError(f"target {name!r}: {int((~np.isfinite(values)).sum())} values are missing or infinite")
    if not (values != values[0]).any():
        raise DataError(f"target {name!r}: it never varies, every sample is {values[0]:g}; there is nothing to tell")
    return Target(name, values)
