"""The target: a class or a number for each sample, predicted from the readings in place of the field."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError
from keyhole.data.labels import times_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Target", "TargetKind", "looks_like_classes"]

TargetKind = Literal["class", "number"]

# Whole numbers are class codes if at most this many differ, and fewer than this share of the number of samples.
_MOST_CODES = 20
_SHARE_OF_CODES = 0.2
# Whole numbers up to here are exact in double precision.
_MOST_EXACT = 2.0**53


@dataclass(frozen=True, eq=False)
class Target:
    """One class or one number for each sample, to be predicted from the readings.

    Parameters
    ----------
    name : str
        The column's name, or ``"target"``.
    values : ndarray of shape (N,)
        int64 class codes, positions in ``classes``; or float64 numbers.
    classes : tuple of str
        Names of the classes; empty for a number.
    time : ndarray of datetime64, shape (N,), optional
        Time of each value, by which it is aligned to samples that have times.

    Examples
    --------
    >>> target = Target.of(["sun", "rain", "sun"], name="weather")
    >>> target.values, target.classes
    (array([1, 0, 1]), ('rain', 'sun'))
    """

    name: str
    values: NDArray[np.int64] | NDArray[np.float64]
    classes: tuple[str, ...] = ()
    time: NDArray[np.datetime64] | None = None

    @classmethod
    def of(cls, values: Any, *, name: str = "target", kind: TargetKind | None = None) -> Target:
        """Make a target from a column, array or list.

        Text, booleans and categories are classes. Whole numbers (also as 1.0) are classes if they take at most 20
        different values, and fewer than a fifth of the number of samples. Everything else is a number. ``kind``
        overrides this.

        Parameters
        ----------
        values : array-like of shape (N,)
            Without missing values; a Series or DataArray with a time index is aligned by time later.
        name : str
            Name for messages and the record.
        kind : {"class", "number"}, optional
            Classification or regression; None: inferred.

        Returns
        -------
        Target

        Raises
        ------
        DataError
            If values are missing, infinite or constant, or each class occurs once only.

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
        """Whether the target is a class (classification) rather than a number (regression)."""
        return bool(self.classes)

    def take(self, indices: NDArray[np.int64]) -> Target:
        """Return the target of a subset of the samples."""
        return replace(self, values=self.values[indices], time=None if self.time is None else self.time[indices])

    def join(self, other: Target) -> Target:
        """Return the target of these samples, then that of others, without times."""
        return replace(self, values=np.concatenate([self.values, other.values]), time=None)


def _one_axis(values: Any, name: str) -> Any:
    """A 1-D column that pandas can take; missing values of a list stay as they are."""
    column = values if hasattr(values, "ndim") else np.asarray(values, dtype=object)
    if column.ndim != 1:
        raise DataError(f"target {name!r}: one value for each sample is needed, not shape {column.shape}")
    return column


def _check_known(column: pd.Series[Any], name: str) -> None:
    """Raise a DataError if the column is empty, of an unsuitable type, or has missing or infinite values."""
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
    """Return whether a column without missing values holds classes, by the rule of `Target.of`.

    Parameters
    ----------
    column : Series
        Without missing values.

    Returns
    -------
    bool

    Examples
    --------
    >>> import pandas as pd
    >>> looks_like_classes(pd.Series([0, 1] * 20)), looks_like_classes(pd.Series([0.5, 1.5] * 20))
    (True, False)
    """
    import pandas as pd

    if not pd.api.types.is_numeric_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype):
        return True
    distinct = column.nunique()
    few = distinct <= _MOST_CODES and distinct < _SHARE_OF_CODES * len(column)
    return few and pd.api.types.is_integer_dtype(_whole(column).dtype)


def _whole(column: pd.Series[Any]) -> pd.Series[Any]:
    """Floats as integers if all of them are whole; any other column unchanged."""
    import pandas as pd

    if not pd.api.types.is_float_dtype(column.dtype):
        return column
    values = column.to_numpy(np.float64)
    whole = (values == np.floor(values)).all() and (np.abs(values) <= _MOST_EXACT).all()
    return column.astype(np.int64) if whole else column


def _classes(column: pd.Series[Any], name: str) -> Target:
    """Target of a column of classes."""
    import pandas as pd

    column = _whole(column)  # the names are 1 and 2, not 1.0 and 2.0
    if column.dtype == object:  # what pandas cannot sort, such as texts beside numbers
        column = column.astype(str)
    categories = column.astype("category") if not isinstance(column.dtype, pd.CategoricalDtype) else column
    categories = categories.cat.remove_unused_categories()
    names = tuple(str(category) for category in categories.cat.categories)
    if len(names) == 1:
        raise DataError(f"target {name!r}: it is constant, every sample is {names[0]!r}; there is nothing to predict")
    if len(names) == len(column):
        raise DataError(
            f"target {name!r}: {len(names)} classes in {len(column)} samples, each occurs once; "
            "take another column, or kind 'number' if it is one"
        )
    return Target(name, categories.cat.codes.to_numpy().astype(np.int64), names)


def _numbers(column: pd.Series[Any], name: str) -> Target:
    """Target of a column of numbers."""
    try:
        values = column.to_numpy(dtype=np.float64)
    except (ValueError, TypeError) as error:
        raise DataError(f"target {name!r}: not numbers ({error}); predict it as classes (kind='class')") from error
    if not np.isfinite(values).all():
        raise DataError(f"target {name!r}: {int((~np.isfinite(values)).sum())} values are missing or infinite")
    if not (values != values[0]).any():
        raise DataError(f"target {name!r}: it is constant, every sample is {values[0]:g}; there is nothing to predict")
    return Target(name, values)
