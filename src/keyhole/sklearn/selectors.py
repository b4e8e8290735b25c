"""Estimators: features from which all others can be reconstructed, or a class or number predicted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import assert_all_finite
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_array, check_is_fitted, column_or_1d

from keyhole.data.target import Target, TargetKind
from keyhole.models.predictors import PREDICTORS
from keyhole.models.reconstructors import RECONSTRUCTORS, Reconstructor
from keyhole.sklearn.base import KeyholeBase, SizedSelector
from keyhole.sklearn.columns import encode
from keyhole.workflow.arguments import AUTO

__all__ = ["KeyholeClassifierSelector", "KeyholeRegressorSelector", "KeyholeSelector", "ReconstructingSelector"]


@dataclass(eq=False, repr=False, kw_only=True)
class ReconstructingSelector(KeyholeBase):
    """Base class of the estimators that reconstruct all features from the selected ones."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **KeyholeBase._parameter_constraints,
        "reconstructor": [StrOptions({AUTO, *RECONSTRUCTORS}), Reconstructor],
    }

    reconstructor: str | Reconstructor = AUTO

    def _models(self) -> tuple[str | Reconstructor, str]:
        return self.reconstructor, AUTO

    def inverse_transform(self, X: Any) -> NDArray[np.float64]:
        """Reconstruct all features from the selected ones; unlike other selectors, no column is filled with zeros.

        Parameters
        ----------
        X
            ``(n_samples, n_selected_features)``, as ``transform`` returns them.

        Returns
        -------
        array
            ``(n_samples, n_features)``; only for tables whose columns are all numbers.
        """
        check_is_fitted(self, "plan_")
        finite: Any = "allow-nan" if self.missing == "model" else True
        selected = check_array(X, dtype=np.float64, ensure_all_finite=finite)
        if selected.shape[1] != int(self.support_.sum()):
            raise ValueError(f"X has {selected.shape[1]} features, and {int(self.support_.sum())} were selected")
        if not self._columns.is_plain:
            raise ValueError("a table with columns of words is not rebuilt from its numbers; use reconstruct")
        order = np.searchsorted(np.flatnonzero(self.support_), self.plan_.indices)
        return self._reconstructed(selected[:, order])

    def reconstruct(self, X: Any) -> NDArray[np.float64]:
        """Reconstruct all features of whole samples from the selected ones.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``; only the selected features are used.

        Returns
        -------
        array
            ``(n_samples, n_encoded)``, one column for each number and for each category of a column of words.
        """
        check_is_fitted(self, "plan_")
        return self._reconstructed(encode(self, X)[:, self.plan_.indices])

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the negative mean squared error of the reconstruction.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``.
        y
            Ignored.
        sample_weight
            ``(n_samples,)``, weights of the mean.
        """
        check_is_fitted(self, "plan_")
        values = encode(self, X)
        squares = np.square(values - self._reconstructed(values[:, self.plan_.indices]))
        weights = _check_sample_weight(sample_weight, values, dtype=np.float64, ensure_non_negative=True)
        each = np.where(np.isnan(squares), 0.0, weights[:, np.newaxis])
        return -float(np.nansum(each * squares) / each.sum())

    def _reconstructed(self, readings: NDArray[np.float64]) -> NDArray[np.float64]:
        """Reconstruct from readings ``(n, K)`` in rank order."""
        reconstructed = self.plan_.reconstruct_array(readings[:, :, np.newaxis], None)
        return np.asarray(self.plan_.domain.to_grid(reconstructed).reshape(len(readings), -1), np.float64)


@dataclass(eq=False, repr=False)
class KeyholeSelector(ReconstructingSelector, SizedSelector):
    """Select the features from which all others can be reconstructed.

    Parameters
    ----------
    n_features_to_select
        Number of features, or their share; half by default.
    method
        Selector: ``"auto"`` tries several and keeps the best on validation; ``"greedy"`` and ``"qr"`` take seconds.
    reconstructor
        Model that reconstructs: ``"auto"``, ``"ridge"``, ``"kernel"``, ``"dense"``, ...; or an object, such as a
        `keyhole.models.reconstructors.ModuleReconstructor` for a network of your own.
    settings
        Settings of the method by name, and of the model with a prefix: ``{"reconstructor.width": 512}``.
    grid_shape
        Shape of the image or map that each row was flattened from.
    feature_groups
        Label of each feature: those that share one are selected together, and count as one.
    costs, cost_limit
        Cost of each feature, and the largest total cost, in place of ``n_features_to_select``.
    must_select
        Features that must be selected, and are counted: indices, names, or a mask. The others are selected for what
        these do not explain.
    scale
        Whether every feature has the same weight, whatever its units; not for images and maps.
    missing
        ``"model"``: values may be NaN, which are left out of loss and score.
    stability
        Number of bootstrap selections, for ``stability_``.
    time_limit
        Time limit in seconds; training stops with the best model so far.
    random_state, n_jobs, verbose
        As in all of scikit-learn; jobs are for ``stability``.
    warm_start
        Whether to keep the last fit's selection if it is better.

    Attributes
    ----------
    support_
        Mask of the selected features.
    ranking_
        Rank of each selected feature, 1 for the best; one more than the last for all others.
    scores_
        Reduction of the validation error by each selected feature given those before, as a fraction of the variance.
    stability_
        Share of the bootstrap selections that each feature is part of, if ``stability`` is set.
    plan_
        The plan, as `keyhole.select` returns it.
    n_features_in_, feature_names_in_
        As in all of scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, _ = load_iris(return_X_y=True)
    >>> KeyholeSelector(2, method="greedy", reconstructor="ridge", random_state=0).fit(X).get_support().sum()
    np.int64(2)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SizedSelector._parameter_constraints,
        **ReconstructingSelector._parameter_constraints,
    }


@dataclass(eq=False, repr=False)
class _PredictingSelector(SizedSelector):
    """Base class of the estimators that predict a target from the selected features."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **SizedSelector._parameter_constraints,
        "predictor": [StrOptions({AUTO, *PREDICTORS})],
    }

    predictor: str = field(default=AUTO, kw_only=True)

    def _models(self) -> tuple[str, str]:
        return "ridge", self.predictor

    def _predicted(self, X: Any) -> NDArray[np.float64]:
        """Predict probabilities, or numbers, from whole samples."""
        check_is_fitted(self, "plan_")
        readings = encode(self, X)[:, self.plan_.indices]
        return self.plan_.predict_array(readings[:, :, np.newaxis], None)


@dataclass(eq=False, repr=False)
class KeyholeClassifierSelector(ClassifierMixin, _PredictingSelector):  # type: ignore[misc]
    """Select the features from which a class is predicted best.

    Parameters and attributes are those of `KeyholeSelector`, with ``predictor`` (``"auto"``, ``"linear"``,
    ``"network"``) in place of ``reconstructor``.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = KeyholeClassifierSelector(2, method="greedy", predictor="linear", random_state=0).fit(X, y)
    >>> selector.predict(X).shape
    (150,)
    """

    target_kind: ClassVar[TargetKind | None] = "class"

    def _target(self, y: Any, n: int) -> Target | None:
        """Note the classes as they were given; the plan has their names, in the same order."""
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
        # By default half of the features are selected, and none of the two that scikit-learn scores classifiers by
        # separates its three classes.
        tags.classifier_tags.poor_score = self.n_features_to_select is None
        return tags

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the class of each sample ``(n_samples, n_features)``; only the selected features are used."""
        probabilities = self._predicted(X)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Predict the probability of each class, ``(n_samples, n_classes)``."""
        return self._predicted(X)


@dataclass(eq=False, repr=False)
class KeyholeRegressorSelector(RegressorMixin, _PredictingSelector):  # type: ignore[misc]
    """Select the features from which a number is predicted best.

    Parameters and attributes are those of `KeyholeSelector`, with ``predictor`` (``"auto"``, ``"linear"``,
    ``"network"``) in place of ``reconstructor``.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> KeyholeRegressorSelector(3, method="greedy", predictor="linear", random_state=0).fit(X, y).predict(X).shape
    (442,)
    """

    target_kind: ClassVar[TargetKind | None] = "number"

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Predict the number of each sample ``(n_samples, n_features)``; only the selected features are used."""
        return self._predicted(X)
