"""How many features are enough: the fewest within one standard error of the best."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context, clone
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing

from keyhole.sklearn.columns import Columns
from keyhole.sklearn.selectors import KeyholeSelector

__all__ = ["KeyholeSelectorCV"]

_CANDIDATES = 8


class KeyholeSelectorCV(KeyholeSelector):
    """Choose as few features as rebuild all the others within one standard error of the best number of them.

    Parameters
    ----------
    candidates
        Numbers of features to try; by default eight, from one, or the number of ``must_select``, to
        half of them, each a constant times the one before.
    cv
        Folds, as everywhere in scikit-learn.
    method, reconstructor, settings, grid_shape, groups, must_select, scale, missing, time_limit, random_state, verbose
        Those of `KeyholeSelector`; the time limit is for each fit.
    n_jobs
        How many fits at once.

    Attributes
    ----------
    n_features_to_select_
        The number chosen.
    cv_results_
        ``n_features``, ``mean_score`` (negative mean squared error over the folds) and ``standard_error``.

    The others are those of `KeyholeSelector`.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **{
            name: kinds
            for name, kinds in KeyholeSelector._parameter_constraints.items()
            if name not in ("n_features_to_select", "costs", "cost_limit", "stability", "warm_start")
        },
        "candidates": ["array-like", None],
        "cv": ["cv_object"],
    }

    def __init__(
        self, candidates: Any = None, *, cv: Any = 5, method: str = "auto", reconstructor: str = "auto",
        settings: Any = None, grid_shape: Any = None, groups: Any = None, must_select: Any = None, scale: bool = True,
        missing: str = "error", time_limit: Any = None, random_state: Any = None, n_jobs: Any = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.candidates = candidates
        self.cv = cv
        self.method = method
        self.reconstructor = reconstructor
        self.settings = settings
        self.grid_shape = grid_shape
        self.groups = groups
        self.must_select = must_select
        self.scale = scale
        self.missing = missing
        self.time_limit = time_limit
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None) -> Self:
        """Try each number of features on every fold, then choose on all samples."""
        from joblib import Parallel, delayed

        self._columns, values = Columns.of(self, X, self.missing)
        tried = self._tried()
        folds = list(check_cv(self.cv).split(values))
        table = X if hasattr(X, "columns") else values
        jobs = [(count, fold) for count in tried for fold in folds]
        scores = Parallel(n_jobs=self.n_jobs)(delayed(_score)(self._one(count), table, *fold) for count, fold in jobs)
        by_fold = np.array(scores).reshape(len(tried), len(folds))
        mean, error = by_fold.mean(axis=1), by_fold.std(axis=1, ddof=1) / np.sqrt(len(folds))
        best = int(mean.argmax())
        self.n_features_to_select_ = int(tried[int(np.flatnonzero(mean >= mean[best] - error[best])[0])])
        self.cv_results_ = {"n_features": tried, "mean_score": mean, "standard_error": error}
        chosen = self._one(self.n_features_to_select_).fit(X)
        for name in ("plan_", "support_", "ranking_", "scores_"):
            setattr(self, name, getattr(chosen, name))
        return self

    def _tried(self) -> NDArray[np.int64]:
        least = 1 if self.must_select is None else max(1, len(self._musts()))
        if self.candidates is None:
            most = max(least, self.n_features_in_ // 2)
            return np.unique(np.round(np.geomspace(least, most, _CANDIDATES)).astype(np.int64))
        tried = np.unique(np.asarray(self.candidates, np.int64))
        if not len(tried) or tried[0] < least or tried[-1] > self.n_features_in_:
            raise ValueError(
                f"candidates={self.candidates!r}: numbers from {least} to {self.n_features_in_} are needed"
            )
        return tried

    def _one(self, count: int) -> KeyholeSelector:
        """Give a selector of so many features with the same settings."""
        names = set(KeyholeSelector._get_param_names()) & set(self._get_param_names()) - {"n_jobs"}
        return KeyholeSelector(int(count), **{name: clone(getattr(self, name), safe=False) for name in names})


def _score(selector: KeyholeSelector, table: Any, train: NDArray[np.int64], test: NDArray[np.int64]) -> float:
    return float(selector.fit(_safe_indexing(table, train)).score(_safe_indexing(table, test)))
