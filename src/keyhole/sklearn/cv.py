"""The smallest number of features that is as good as the best, by cross-validation."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context, clone
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_sample_weight

from keyhole.sklearn.columns import fit_columns
from keyhole.sklearn.sample_groups import Labels, rows_of, sample_groups
from keyhole.sklearn.selectors import KeyholeSelector, ReconstructingSelector

__all__ = ["KeyholeSelectorCV"]

_CANDIDATES = 8


@dataclass(eq=False, repr=False)
class KeyholeSelectorCV(ReconstructingSelector):
    """Select the fewest features whose reconstruction error is within one standard error of the smallest.

    Parameters
    ----------
    candidates
        Numbers of features to try; by default eight in geometric progression, from one, or the number of
        ``must_select``, to half of them.
    cv
        Folds, as in all of scikit-learn.
    method, reconstructor, settings, grid_shape, feature_groups, must_select, scale, missing, time_limit, random_state,
    verbose
        Those of `KeyholeSelector`; the time limit is for each fit.
    n_jobs
        Number of fits at once.

    Attributes
    ----------
    n_features_to_select_
        The number of features selected.
    cv_results_
        ``n_features``, ``mean_score`` (negative mean squared error over the folds) and ``standard_error``.

    The others are those of `KeyholeSelector`.

    References
    ----------
    Hastie, Tibshirani & Friedman (2009). The Elements of Statistical Learning, section 7.10 (one-standard-error rule).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, _ = load_iris(return_X_y=True)
    >>> selector = KeyholeSelectorCV([1, 2, 3], cv=3, method="greedy", reconstructor="ridge", random_state=0)
    >>> 1 <= selector.fit(X).n_features_to_select_ <= 3
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **ReconstructingSelector._parameter_constraints,
        "candidates": ["array-like", None],
        "cv": ["cv_object"],
    }

    candidates: Any = None
    _: KW_ONLY
    cv: Any = 5

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Score each number of features by cross-validation, then select on all samples.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``, an array or a frame.
        y
            Ignored.
        sample_weight
            ``(n_samples,)``, how much each sample counts in fits and scores.
        groups
            ``(n_samples,)``, label of the group of each sample, which ``cv`` (such as ``GroupKFold()``) and every fit
            take into account.

        Returns
        -------
        self
        """
        from joblib import Parallel, delayed

        self._columns, values = fit_columns(self, X)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, values, dtype=np.float64)
        tried = self._candidates()
        labels = sample_groups(groups, len(values))
        folds = list(check_cv(self.cv).split(values, groups=labels))
        table = X if hasattr(X, "columns") else values
        jobs = [(count, fold) for count in tried for fold in folds]
        scores = Parallel(n_jobs=self.n_jobs)(
            delayed(_score)(self._one(count), table, weights, labels, *fold) for count, fold in jobs
        )
        by_fold = np.array(scores).reshape(len(tried), len(folds))
        mean, error = by_fold.mean(axis=1), by_fold.std(axis=1, ddof=1) / np.sqrt(len(folds))
        best = int(mean.argmax())
        self.n_features_to_select_ = int(tried[int(np.flatnonzero(mean >= mean[best] - error[best])[0])])
        self.cv_results_ = {"n_features": tried, "mean_score": mean, "standard_error": error}
        selected = self._one(self.n_features_to_select_).fit(X, sample_weight=weights, groups=labels)
        for name in ("plan_", "support_", "ranking_", "scores_"):
            setattr(self, name, getattr(selected, name))
        return self

    def _candidates(self) -> NDArray[np.int64]:
        """Return the numbers of features to try, in ascending order."""
        least = 1 if self.must_select is None else max(1, len(self._must_select()))
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
        """Return a selector of so many features with the same parameters."""
        names = set(KeyholeSelector._get_param_names()) & set(self._get_param_names()) - {"n_jobs"}
        return KeyholeSelector(int(count), **{name: clone(getattr(self, name), safe=False) for name in names})


def _score(
    selector: KeyholeSelector, table: Any, weights: Labels, groups: Labels, train: NDArray[np.int64],
    test: NDArray[np.int64],
) -> float:  # fmt: skip
    """Fit on one part of a table and score on another."""
    of_train = {"sample_weight": rows_of(weights, train), "groups": rows_of(groups, train)}
    fitted = selector.fit(_safe_indexing(table, train), **of_train)
    return float(fitted.score(_safe_indexing(table, test), sample_weight=rows_of(weights, test)))
