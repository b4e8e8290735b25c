"""The estimators: features that rebuild all the others, tell a class, or tell a number."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d

from keyhole.data.target import Target, TargetKind
from keyhole.models.predictors import PREDICTORS
from keyhole.models.reconstructors import RECONSTRUCTORS
from keyhole.sklearn.base import KeyholeBase

__all__ = ["KeyholeClassifierSelector", "KeyholeRegressorSelector", "KeyholeSelector"]


class KeyholeSelector(KeyholeBase):
    """Choose the features from which all the others can be rebuilt.

    Parameters
    ----------
    n_features_to_select
        How many, or which share of them; half by default.
    method
        A selector of Keyhole: ``"auto"`` tries several and keeps the best; ``"greedy"`` and ``"qr"`` take seconds.
    reconstructor
        What rebuilds: ``"auto"``, ``"ridge"``, ``"kernel"``, ``"dense"``, ...
    settings
        Settings of the method, by name.
    grid_shape
        Shape of the picture or map that a row was flattened from.
    groups
        A label for each feature: those that share one are chosen together, and count as one.
    costs, cost_limit
        What each feature costs, and what the chosen may cost together, in place of ``n_features_to_select``.
    must_select
        Features that are to be among the chosen, and count as such: places, names, or a mask. The others are chosen
        for what these do not tell.
    scale
        Whether every feature counts alike, whatever its units; not for pictures and maps.
    missing
        ``"model"``: values may be NaN; they count in neither loss nor score.
    stability
        How many times to choose anew from samples drawn with replacement, for ``stability_``.
    time_limit
        Seconds after which learning stops with what it has.
    random_state, n_jobs, verbose
        As everywhere in scikit-learn; jobs are for ``stability``.
    warm_start
        Whether to keep what the last fit chose where that is better.

    Attributes
    ----------
    support_
        Mask of the chosen features.
    ranking_
        Rank of each chosen feature, 1 for the best; one more than the last for all others.
    scores_
        Drop of the validation error when each chosen feature joins those before it, as a share of the variance.
    stability_
        Share of the draws in which each feature was chosen, if asked for.
    plan_
        The plan: what Keyhole's own `select` gives.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, _ = load_iris(return_X_y=True)
    >>> KeyholeSelector(2, method="greedy", reconstructor="ridge", random_state=0).fit(X).get_support().sum()
    np.int64(2)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **KeyholeBase._parameter_constraints,
        "reconstructor": [StrOptions({"auto", *RECONSTRUCTORS})],
    }

    def __init__(
        self, n_features_to_select: Any = None, *, method: str = "auto", reconstructor: str = "auto",
        settings: Any = None, grid_shape: Any = None, groups: Any = None, costs: Any = None, cost_limit: Any = None,
        must_select: Any = None, scale: bool = True, missing: str = "error", stability: int = 0,
        time_limit: Any = None, random_state: Any = None, n_jobs: Any = None, warm_start: bool = False,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        self.n_features_to_select = n_features_to_select
        self.method = method
        self.reconstructor = reconstructor
        self.settings = settings
        self.grid_shape = grid_shape
        self.groups = groups
        self.costs = costs
        self.cost_limit = cost_limit
        self.must_select = must_select
        self.scale = scale
        self.missing = missing
        self.stability = stability
        self.time_limit = time_limit
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.verbose = verbose

    def inverse_transform(self, X: Any) -> NDArray[np.float64]:
        """Rebuild all features from the chosen ones; unlike other selectors, no column is filled with zeros.

        Parameters
        ----------
        X
            ``(n_samples, n_selected_features)``, as `transform` gives them.

        Returns
        -------
        array
            ``(n_samples, n_features)``; columns of words are not rebuilt: give numbers alone.
        """
        check_is_fitted(self, "plan_")
        finite: Any = "allow-nan" if self.missing == "model" else True
        chosen = check_array(X, dtype=np.float64, ensure_all_finite=finite)
        if chosen.shape[1] != int(self.support_.sum()):
            raise ValueError(f"X has {chosen.shape[1]} features, and {int(self.support_.sum())} were selected")
        if not self._columns.numeric:
            raise ValueError("a table with columns of words is not rebuilt from its numbers; use reconstruct")
        places = np.flatnonzero(self.support_)
        readings = chosen[:, np.searchsorted(places, self.plan_.indices)]
        reconstructed = self.plan_.reconstruct_array(readings[:, :, np.newaxis], None)
        return np.asarray(reconstructed.reshape(len(chosen), -1), np.float64)

    def reconstruct(self, X: Any) -> NDArray[np.float64]:
        """Rebuild all features of whole samples from the chosen ones; of words, a flag for each."""
        check_is_fitted(self, "plan_")
        values = self._columns.encode(self, X)
        reconstructed = self.plan_.reconstruct_array(values[:, self.plan_.indices][:, :, np.newaxis], None)
        return np.asarray(reconstructed.reshape(len(values), -1), np.float64)

    def score(self, X: Any, y: Any = None) -> float:
        """Give the negative mean squared error of what is rebuilt."""
        return -float(np.nanmean(np.square(self._columns.encode(self, X) - self.reconstruct(X))))


class _Telling(KeyholeBase):
    """What selectors that tell a target share."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **KeyholeBase._parameter_constraints,
        "predictor": [StrOptions({"auto", *PREDICTORS})],
    }

    def __init__(
        self, n_features_to_select: Any = None, *, method: str = "auto", predictor: str = "auto",
        settings: Any = None, grid_shape: Any = None, groups: Any = None, costs: Any = None, cost_limit: Any = None,
        must_select: Any = None, scale: bool = True, missing: str = "error", stability: int = 0,
        time_limit: Any = None, random_state: Any = None, n_jobs: Any = None, warm_start: bool = False,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        self.n_features_to_select = n_features_to_select
        self.method = method
        self.predictor = predictor
        self.settings = settings
        self.grid_shape = grid_shape
        self.groups = groups
        self.costs = costs
        self.cost_limit = cost_limit
        self.must_select = must_select
        self.scale = scale
        self.missing = missing
        self.stability = stability
        self.time_limit = time_limit
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.verbose = verbose

    def _reconstructor(self) -> str:
        return "ridge"

    def _told(self, X: Any) -> NDArray[np.float64]:
        """Tell probabilities, or numbers, from whole samples."""
        check_is_fitted(self, "plan_")
        values = self._columns.encode(self, X)
        return self.plan_.tell(values[:, self.plan_.indices][:, :, np.newaxis], None)


class KeyholeClassifierSelector(ClassifierMixin, _Telling):  # type: ignore[misc]
    """Choose the features from which a class can be told.

    Parameters and attributes are those of `KeyholeSelector`, with ``predictor`` (``"auto"``, ``"linear"``,
    ``"network"``) in place of ``reconstructor``.
    """

    target_kind: ClassVar[TargetKind | None] = "class"

    def _target(self, y: Any, n: int) -> Target | None:
        """Take note of the classes as they were given; the plan has their names, in the same order."""
        if y is not None:
            labels = column_or_1d(y)
            assert_all_finite(labels, input_name="y")
            check_classification_targets(labels)
            self.classes_ = np.unique(labels)
            if len(self.classes_) == 1:
                raise ValueError(f"y has one class alone, {self.classes_[0]!r}; at least two classes are needed")
        return super()._target(y, n)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # By default half of the features are chosen, and no one of the two that scikit-learn scores classifiers by
        # separates its three classes.
        tags.classifier_tags.poor_score = self.n_features_to_select is None
        return tags

    def predict(self, X: Any) -> NDArray[Any]:
        """Tell the class of each sample."""
        told = self._told(X)
        return np.asarray(self.classes_[told.argmax(axis=1)])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Tell how likely each class is."""
        return self._told(X)


class KeyholeRegressorSelector(RegressorMixin, _Telling):  # type: ignore[misc]
    """Choose the features from which a number can be told.

    Parameters and attributes are those of `KeyholeSelector`, with ``predictor`` (``"auto"``, ``"linear"``,
    ``"network"``) in place of ``reconstructor``.
    """

    target_kind: ClassVar[TargetKind | None] = "number"

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Tell the number of each sample."""
        return self._told(X)
