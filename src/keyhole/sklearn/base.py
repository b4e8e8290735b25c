"""What Keyhole's estimators share: parameters, the fit, and what a selector of scikit-learn gives."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, _fit_context
from sklearn.feature_selection import SelectorMixin
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import check_is_fitted, column_or_1d

from keyhole.core.progress import progress
from keyhole.core.run import Run
from keyhole.data.alignment import on_grid
from keyhole.data.grid import Grid
from keyhole.data.origin import SourceInfo
from keyhole.data.preparation import PreparedSamples, prepare_with
from keyhole.data.samples import Samples
from keyhole.data.scaler import Scaler
from keyhole.data.screening import Finding, exclude, notes, screen, warn_about
from keyhole.data.splits import Split
from keyhole.data.target import Target, TargetKind
from keyhole.placement import SELECTORS, Selection
from keyhole.placement.scorer import Scorer
from keyhole.plan.plan import Plan
from keyhole.sklearn.columns import Columns
from keyhole.workflow.checks import deadline_after
from keyhole.workflow.selection import choose_sites, fit_reconstructor, fit_target, make_plan

__all__ = ["KeyholeBase"]

_VALIDATION = 0.2
_ROUNDING = 1e-6  # share of a column's largest value


class KeyholeBase(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Parameters and fit of all estimators; `KeyholeSelector` says what they mean."""

    target_kind: ClassVar[TargetKind | None] = None
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_features_to_select": [
            None, Interval(Integral, 1, None, closed="left"), Interval(RealNotInt, 0, 1, closed="neither"),
        ],
        "method": [StrOptions(set(SELECTORS))],
        "settings": [dict, None],
        "grid_shape": [tuple, list, None],
        "groups": ["array-like", None],
        "costs": ["array-like", Interval(Real, 0, None, closed="neither"), None],
        "cost_limit": [Interval(Real, 0, None, closed="neither"), None],
        "must_select": ["array-like", None],
        "scale": ["boolean"],
        "missing": [StrOptions({"error", "model"})],
        "stability": [Interval(Integral, 0, None, closed="left")],
        "time_limit": [Interval(Real, 0, None, closed="neither"), None],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "warm_start": ["boolean"],
        "verbose": ["verbose"],
    }  # fmt: skip

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose the features.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``, an array or a frame.
        y
            What is to be told from the features, where the estimator tells something.

        Returns
        -------
        self
        """
        self._columns, values = Columns.of(self, X, self.missing)
        target, seed = self._target(y, len(values)), _seed(self.random_state)
        self._findings = self._screened(values, target)
        warn_about(self._findings)
        before = getattr(self, "plan_", None) if self.warm_start else None
        self.plan_ = self._plan(values, target, seed, before)
        self._describe(self.plan_)
        if self.stability:
            self.stability_ = self._stability(values, target, seed)
        return self

    def _target(self, y: Any, n: int) -> Target | None:
        if self.target_kind is None:
            return None
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        found = Target.of(column_or_1d(y, warn=True), kind=self.target_kind)
        if len(found) != n:
            raise ValueError(f"Found input variables with inconsistent numbers of samples: [{n}, {len(found)}]")
        return found

    def _plan(self, values: NDArray[np.float64], target: Target | None, seed: int, before: Plan | None) -> Plan:
        """Choose features of a table, and fit what rebuilds, or tells, from them."""
        prepared = _prepared(exclude(self._signals(values, target), self._findings), seed)
        prepared = replace(prepared, notes=notes(self._findings))
        selector = SELECTORS.make(self.method, self.settings or {})
        with progress(None if self.verbose else lambda event: None) as tell:
            run = Run(seed=seed, deadline=deadline_after(self.time_limit), callback=tell)
            count = self._count(prepared)
            selection = Selection(prepared.existing) if count == 0 else choose_sites(selector, prepared, count, run)
            if before is not None:
                selection = _better(Selection(before.indices), selection, prepared, run)
            fitted = fit_reconstructor(self._reconstructor(), prepared, selection.sites, run)
            told = fit_target(self._predictor(), prepared, selection.sites, run)
        plan = make_plan(prepared, selection, fitted, selector, run, method=self.method, predictor=told)
        return replace(plan, metrics={"validation": plan.metrics["validation"]})

    def _screened(self, values: NDArray[np.float64], target: Target | None) -> list[Finding]:
        """Columns that are not to be chosen unasked; none of pictures and maps."""
        if self.grid_shape is not None:
            return []
        names = getattr(self, "feature_names_in_", [f"x{place}" for place in range(self.n_features_in_)])
        words = [Finding(str(names[place]), reason) for place, reason in self._columns.left_out.items()]
        owners = self._columns.owners
        return [*words, *screen(self._signals(values, target), lambda site: str(names[owners[site]]))]

    def _reconstructor(self) -> str:
        return str(getattr(self, "reconstructor", "auto"))

    def _predictor(self) -> str:
        return str(getattr(self, "predictor", "auto"))

    def _signals(self, values: NDArray[np.float64], target: Target | None) -> Samples:
        """Give a table as signals, with what the parameters ask of them."""
        shape = (values.shape[1],) if self.grid_shape is None else tuple(int(n) for n in self.grid_shape)
        if int(np.prod(shape)) != values.shape[1]:
            raise ValueError(f"grid_shape={shape}: {int(np.prod(shape))} cells for {values.shape[1]} features")
        signals = Samples.build(
            values.reshape(len(values), 1, *shape), Grid.plain(shape), origin=SourceInfo("array", name="table")
        )
        if self.scale and self.grid_shape is None:
            signals = signals.with_weights(_alike(values))
        return signals.with_target(target).with_constraints(self._constraints(shape))

    def _constraints(self, shape: tuple[int, ...]) -> dict[str, Any]:
        """What the parameters ask of the choice, on the encoded columns."""
        owners = self._columns.owners
        groups = self._columns.groups if self.groups is None else np.asarray(self._by_name("groups"))[owners]
        asked: dict[str, Any] = {}
        if groups is not None:
            asked["groups"] = np.asarray(groups).reshape(shape)
        if self.costs is not None:
            each = np.broadcast_to(np.asarray(self._by_name("costs"), np.float64), self.n_features_in_)
            asked["costs"] = (each / np.maximum(np.bincount(owners, minlength=len(each)), 1))[owners].reshape(shape)
            asked["cost_limit"] = self.cost_limit
        if self.must_select is not None:
            asked["existing"] = [int(place) for place in np.flatnonzero(np.isin(owners, self._musts()))]
        return asked

    def _by_name(self, parameter: str) -> Any:
        """Give a parameter with one value for each feature; one that is labelled by feature in the features' order."""
        names = tuple(str(name) for name in getattr(self, "feature_names_in_", ()))
        grid = Grid.plain((self.n_features_in_,))
        return on_grid(getattr(self, parameter), replace(grid, names=names or None), parameter)

    def _musts(self) -> NDArray[np.int64]:
        """Places of the features that must be among the chosen: given as places, names, or a mask."""
        given = np.asarray(self.must_select)
        if given.dtype == bool:
            given = np.asarray(self._by_name("must_select"))
            if given.shape != (self.n_features_in_,):
                raise ValueError(f"must_select: a mask of {self.n_features_in_} features is needed, not {given.shape}")
            return np.flatnonzero(given)
        if given.dtype.kind in "OUS":
            names = list(getattr(self, "feature_names_in_", []))
            unknown = [name for name in given if name not in names]
            if unknown:
                raise ValueError(f"must_select: {unknown[0]!r} is not a feature")
            return np.unique([names.index(name) for name in given])
        if len(given) and not (given.min() >= 0 and given.max() < self.n_features_in_):
            raise ValueError(f"must_select: features go from 0 to {self.n_features_in_ - 1}")
        return np.unique(given.astype(np.int64))

    def _count(self, prepared: PreparedSamples) -> int | None:
        """How many features, or groups, are to be chosen beside those that must be."""
        if self.cost_limit is not None:
            return None
        constraints = prepared.signals.constraints
        may = prepared.signals.observable if constraints is None else constraints.units()[1]
        most = int(may.sum())
        there = len(self._musts()) if self.must_select is not None else 0
        asked = self.n_features_to_select
        if asked is None:
            count = max(1, self.n_features_in_ // 2)
        elif isinstance(asked, Integral):
            count = int(asked)
        else:
            count = max(1, int(float(asked) * self.n_features_in_))
        if isinstance(asked, Integral) and count < there:
            raise ValueError(f"n_features_to_select={count} is fewer than the {there} features of must_select")
        if count > self.n_features_in_:
            raise ValueError(f"n_features_to_select={count} is more than the {self.n_features_in_} features there are")
        if isinstance(asked, Integral) and count - there > most:
            raise ValueError(
                f"n_features_to_select={count}: {there + most} features are candidates or must be selected"
            )
        return int(max(0 if there else 1, min(count - there, most)))

    def _describe(self, plan: Plan) -> None:
        """Set what a fitted selector has."""
        features = list(dict.fromkeys(self._columns.owners[plan.indices].tolist()))
        self.support_ = np.isin(np.arange(self.n_features_in_), features)
        self.ranking_ = np.full(self.n_features_in_, len(features) + 1, np.int64)
        self.ranking_[features] = np.arange(1, len(features) + 1)
        gains = np.bincount(self._columns.owners[plan.indices], plan.gain, self.n_features_in_)
        self.scores_ = np.where(self.support_, gains, 0.0)

    def _stability(self, values: NDArray[np.float64], target: Target | None, seed: int) -> NDArray[np.float64]:
        """How often each feature is chosen from samples drawn with replacement."""
        from joblib import Parallel, delayed

        rng = np.random.default_rng(seed)
        draws = [rng.integers(len(values), size=len(values)) for _ in range(self.stability)]
        chosen = Parallel(n_jobs=self.n_jobs)(
            delayed(_support)(self, values[rows], None if target is None else target.take(rows), seed) for rows in draws
        )
        return np.asarray(np.mean(chosen, axis=0), np.float64)

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self, "support_")
        return self.support_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "model"
        tags.target_tags.required = self.target_kind is not None
        return tags


def _support(
    estimator: KeyholeBase, values: NDArray[np.float64], target: Target | None, seed: int
) -> NDArray[np.bool_]:
    """Mask of the features chosen from a table."""
    plan = estimator._plan(values, target, seed, None)
    return np.isin(np.arange(estimator.n_features_in_), estimator._columns.owners[plan.indices])


def _prepared(signals: Samples, seed: int) -> PreparedSamples:
    """Split in what chooses and what decides; nothing is held back to judge, which is for whoever calls `score`."""
    order = np.random.default_rng(seed).permutation(len(signals))
    count = max(1, int(np.ceil(_VALIDATION * len(order))))
    split = Split(np.sort(order[count:]), np.sort(order[:count]), np.sort(order[:count]), "random")
    choosing, scaling = (Scaler.fit(signals.take(rows)) for rows in (split.train, split.development))
    return prepare_with(signals, split, choosing, scaling)


def _better(old: Selection, new: Selection, prepared: PreparedSamples, run: Run) -> Selection:
    """Give the better of two choices of as many features, by a closed form on validation."""
    there = prepared.existing
    own, others = np.split(old.sites, [len(there)])
    legal = np.array_equal(own, there) and prepared.signals.observable.ravel()[others].all()
    if len(old.sites) != len(new.sites) or not legal:
        return new
    scorer = Scorer(prepared.train, prepared.validation, run)
    return old if scorer(old.sites) < scorer(new.sites) else new


def _alike(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights under which every column that varies, by more than rounding, counts alike; the others do not count."""
    spread = np.nanstd(values, axis=0)
    varies = spread > _ROUNDING * np.nanmax(np.abs(values), axis=0)
    weights = np.where(varies, 1 / np.square(np.where(varies, spread, 1.0)), 0.0)
    return weights if varies.any() else np.ones(values.shape[1])


def _seed(random_state: Any) -> int:
    if random_state is None:
        return int(np.random.default_rng().integers(2**31))
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(random_state.randint(2**31 - 1))
