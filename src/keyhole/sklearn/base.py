"""Base class of the estimators: parameters, fit, and the interface of scikit-learn's selectors."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, _fit_context
from sklearn.feature_selection import SelectorMixin
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, check_random_state, column_or_1d

from keyhole.core.progress import progress
from keyhole.core.run import Run
from keyhole.data.alignment import align
from keyhole.data.moments import Moments
from keyhole.data.origin import SourceInfo
from keyhole.data.preparation import PreparedSamples, prepare_with, standardise
from keyhole.data.readers.tables import samples_of_table
from keyhole.data.sample_weights import repetitions, row_keys
from keyhole.data.samples import Samples
from keyhole.data.scaler import Scaler
from keyhole.data.screening import Finding, exclude, notes, screen, warn_about
from keyhole.data.sites import Sites
from keyhole.data.target import Target, TargetKind
from keyhole.models.reconstructors import Reconstructor
from keyhole.placement import SELECTORS, Selection, Selector
from keyhole.placement.scorer import Scorer
from keyhole.plan.plan import Plan
from keyhole.sklearn.columns import FEWEST_SAMPLES, fit_columns
from keyhole.sklearn.sample_groups import Labels, held_out, rows_of, sample_groups
from keyhole.workflow.arguments import AUTO, make_parts, make_run
from keyhole.workflow.selection import choose_sites, fit_plan

__all__ = ["KeyholeBase", "SizedSelector"]


@dataclass(eq=False, repr=False)
class KeyholeBase(SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """Parameters, fit and selected features of all estimators; `KeyholeSelector` documents the parameters.

    The fields of the dataclass are the parameters of the estimator: ``__init__`` only assigns them, as scikit-learn
    requires.
    """

    target_kind: ClassVar[TargetKind | None] = None
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "method": [StrOptions(set(SELECTORS)), Selector],
        "settings": [dict, None],
        "grid_shape": [tuple, list, None],
        "feature_groups": ["array-like", None],
        "must_select": ["array-like", None],
        "scale": ["boolean"],
        "missing": [StrOptions({"error", "model"})],
        "time_limit": [Interval(Real, 0, None, closed="neither"), None],
        "random_state": ["random_state"],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
    }

    _: KW_ONLY
    method: str | Selector = AUTO
    settings: Any = None
    grid_shape: Any = None
    feature_groups: Any = None
    must_select: Any = None
    scale: bool = True
    missing: str = "error"
    time_limit: Any = None
    random_state: Any = None
    n_jobs: Any = None
    verbose: int = 0

    def _models(self) -> tuple[str | Reconstructor, str]:
        """Return the reconstructor and the predictor."""
        return AUTO, AUTO

    def _selection_samples(self, values: NDArray[np.float64], target: Target | None) -> Samples:
        """Convert a table to samples with the constraints and loss weights that the parameters define."""
        if self.grid_shape is None:
            samples = samples_of_table(self._columns, values)
            samples = samples if self.scale else samples.with_weights("none")
        else:
            samples = self._images(values)
        return samples.with_target(target).with_constraints(self._constraints())

    def _images(self, values: NDArray[np.float64]) -> Samples:
        """Convert rows that were flattened from images or maps."""
        shape = tuple(int(n) for n in self.grid_shape)
        if int(np.prod(shape)) != values.shape[1]:
            raise ValueError(f"grid_shape={shape}: {int(np.prod(shape))} cells for {values.shape[1]} features")
        origin = SourceInfo("array", name="table")
        return Samples.build(values.reshape(len(values), 1, *shape), Sites.plain(shape), origin=origin)

    def _constraints(self) -> dict[str, Any]:
        """Return the constraints on the features."""
        constraints: dict[str, Any] = {}
        if self.feature_groups is not None:
            constraints["groups"] = self._in_shape(self._by_name("feature_groups"))
        if self.must_select is not None:
            constraints["existing"] = self._must_select().tolist()
        return constraints

    def _in_shape(self, values: Any) -> NDArray[Any]:
        """Values of the features in the shape of the images."""
        return np.asarray(values) if self.grid_shape is None else np.reshape(values, self.grid_shape)

    def _by_name(self, parameter: str) -> Any:
        """Return a parameter with one value for each feature, aligned by name if it is labelled."""
        names = tuple(str(name) for name in getattr(self, "feature_names_in_", ()))
        sites = replace(Sites.plain((self.n_features_in_,)), names=names or None)
        return align(getattr(self, parameter), sites, parameter)

    def _must_select(self) -> NDArray[np.int64]:
        """Return the indices of the features that must be selected, given as indices, names, or a mask."""
        given = np.asarray([] if self.must_select is None else self.must_select)
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

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self, "support_")
        return np.asarray(self.support_, bool)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "model"
        tags.target_tags.required = self.target_kind is not None
        return tags


@dataclass(eq=False, repr=False)
class SizedSelector(KeyholeBase):
    """Estimator that selects a given number of features, or as many as a cost limit allows."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **KeyholeBase._parameter_constraints,
        "n_features_to_select": [
            None, Interval(Integral, 1, None, closed="left"), Interval(RealNotInt, 0, 1, closed="neither"),
        ],
        "costs": ["array-like", Interval(Real, 0, None, closed="neither"), None],
        "cost_limit": [Interval(Real, 0, None, closed="neither"), None],
        "stability": [Interval(Integral, 0, None, closed="left")],
        "warm_start": ["boolean"],
    }  # fmt: skip

    n_features_to_select: Any = None
    _: KW_ONLY
    costs: Any = None
    cost_limit: Any = None
    stability: int = 0
    warm_start: bool = False

    @_fit_context(prefer_skip_nested_validation=True)  # type: ignore[untyped-decorator]
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None) -> Self:
        """Select the features.

        Parameters
        ----------
        X
            ``(n_samples, n_features)``, an array or a frame.
        y
            Target, for estimators that predict one.
        sample_weight
            ``(n_samples,)``, how much each sample counts in fits and scores, as if it were there so many times; whole
            multiples of a common unit are exact (`keyhole.data.sample_weights.repetitions`).
        groups
            ``(n_samples,)``, label of the group of each sample, such as its subject: a group is in the training or in
            the validation part. See `set_fit_request` for routing of both.

        Returns
        -------
        self
        """
        self._columns, values = fit_columns(self, X)
        target, seed = self._target(y, len(values)), self.random_state
        labels = sample_groups(groups, len(values))
        seed = int(seed) if isinstance(seed, Integral) else int(check_random_state(seed).randint(2**31 - 1))
        self._findings = self._screened(values, target)
        warn_about(self._findings)
        rows = _sorted_rows(values, target, sample_weight, seed)
        values, target, labels = values[rows], None if target is None else target.take(rows), rows_of(labels, rows)
        before = getattr(self, "plan_", None) if self.warm_start else None
        self.plan_ = self._plan(values, target, labels, seed, before)
        self._set_selected(self.plan_)
        if self.stability:
            self.stability_ = self._stability(values, target, labels, seed)
        return self

    def _target(self, y: Any, n: int) -> Target | None:
        """Check the target; None for estimators without one."""
        if self.target_kind is None:
            return None
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        found = Target.of(column_or_1d(y, warn=True), kind=self.target_kind)
        if len(found) != n:
            raise ValueError(f"Found input variables with inconsistent numbers of samples: [{n}, {len(found)}]")
        return found

    def _plan(
        self, values: NDArray[np.float64], target: Target | None, groups: Labels, seed: int, before: Plan | None
    ) -> Plan:
        """Select features of a table and fit the models; keep an earlier selection if it is better."""
        samples = exclude(self._selection_samples(values, target), self._findings).with_groups(groups)
        prepared = replace(_split(samples, seed), notes=notes(self._findings))
        parts = make_parts(self.method, *self._models(), self.settings)
        with progress(bars=bool(self.verbose)) as report:
            run = replace(make_run(seed=seed, device=AUTO, time_limit=self.time_limit), callback=report)
            count = self._count(prepared)
            selection = Selection(prepared.existing)
            if count != 0:
                selection = choose_sites(parts.selector, prepared, count, run)
            earlier = None if before is None else prepared.samples.sites.number(before.indices)
            if earlier is not None and _is_better(earlier, selection.sites, prepared, run):
                selection = Selection(earlier)
            return fit_plan(prepared, selection, parts, run)

    def _screened(self, values: NDArray[np.float64], target: Target | None) -> list[Finding]:
        """Return the columns of a table that are excluded unless they must be selected; none of images and maps."""
        return [] if self.grid_shape is not None else screen(self._selection_samples(values, target))

    def _constraints(self) -> dict[str, Any]:
        """Return the constraints on the features, with their costs."""
        constraints = super()._constraints()
        if self.costs is not None:
            each = np.broadcast_to(np.asarray(self._by_name("costs"), np.float64), self.n_features_in_)
            constraints |= {"costs": self._in_shape(each), "cost_limit": self.cost_limit}
        return constraints

    def _count(self, prepared: PreparedSamples) -> int | None:
        """Return how many features, or groups, are selected besides those that must be; None under a cost limit."""
        if self.cost_limit is not None:
            return None
        constraints = prepared.samples.constraints
        candidates = prepared.samples.observable if constraints is None else constraints.units()[1]
        most, given = int(candidates.sum()), len(self._must_select())
        wanted, n_features = self.n_features_to_select, self.n_features_in_
        if not isinstance(wanted, Integral):
            count = max(1, n_features // 2 if wanted is None else int(float(wanted) * n_features))
            return int(max(0 if given else 1, min(count - given, most)))
        count = int(wanted)
        if count < given:
            raise ValueError(f"n_features_to_select={count} is fewer than the {given} features of must_select")
        if count > n_features:
            raise ValueError(f"n_features_to_select={count} is more than the {n_features} features there are")
        if count - given > most:
            raise ValueError(
                f"n_features_to_select={count}: {given + most} features are candidates or must be selected"
            )
        return count - given

    def _set_selected(self, plan: Plan) -> None:
        """Set the attributes of a fitted selector."""
        owners = self._columns.owners[plan.indices]
        features = list(dict.fromkeys(owners.tolist()))
        self.support_ = np.isin(np.arange(self.n_features_in_), features)
        self.ranking_ = np.full(self.n_features_in_, len(features) + 1, np.int64)
        self.ranking_[features] = np.arange(1, len(features) + 1)
        self.scores_ = np.where(self.support_, np.bincount(owners, plan.gain, self.n_features_in_), 0.0)

    def _stability(
        self, values: NDArray[np.float64], target: Target | None, groups: Labels, seed: int
    ) -> NDArray[np.float64]:
        """Return how often each feature is selected from bootstrap samples."""
        from joblib import Parallel, delayed

        rng = np.random.default_rng(seed)
        draws = [np.sort(rng.integers(len(values), size=len(values))) for _ in range(self.stability)]  # still by key
        selected = Parallel(n_jobs=self.n_jobs)(
            delayed(_support)(
                self, values[rows], None if target is None else target.take(rows), rows_of(groups, rows), seed
            )
            for rows in draws
        )
        return np.asarray(np.mean(selected, axis=0), np.float64)


def _support(
    estimator: SizedSelector, values: NDArray[np.float64], target: Target | None, groups: Labels, seed: int
) -> NDArray[np.bool_]:
    """Return the mask of the features selected from a table."""
    plan = estimator._plan(values, target, groups, seed, None)
    return np.isin(np.arange(estimator.n_features_in_), estimator._columns.owners[plan.indices])


def _sorted_rows(
    values: NDArray[np.float64], target: Target | None, sample_weight: Any, seed: int
) -> NDArray[np.int64]:
    """Return the samples, repeated by weight, by random keys, so that the order they were given in does not matter."""
    rows = np.arange(len(values))
    if sample_weight is not None:
        weights = _check_sample_weight(sample_weight, values, dtype=np.float64, ensure_non_negative=True)
        if np.count_nonzero(weights) < FEWEST_SAMPLES:
            raise ValueError(f"sample_weight: at least {FEWEST_SAMPLES} samples need a weight above zero")
        rows = np.repeat(rows, repetitions(weights))
    keys = row_keys(values, seed)[rows]
    return rows[np.lexsort((np.zeros(len(rows)) if target is None else target.values[rows], keys))]


def _split(samples: Samples, seed: int) -> PreparedSamples:
    """Split into training and validation parts; there is no test part, which is for whoever calls ``score``."""
    split = held_out(samples.values.reshape(len(samples), -1), samples.sample_groups, seed)
    if samples.standardise:  # images have one scale
        samples = standardise(samples, Moments.of(samples, split.development)[0])
    choosing, scaling = (Scaler.fit(samples.take(rows)) for rows in (split.train, split.development))
    return prepare_with(samples, split, choosing, scaling)


def _is_better(old: NDArray[np.int64], new: NDArray[np.int64], prepared: PreparedSamples, run: Run) -> bool:
    """Return whether an earlier selection is feasible and has a smaller validation error by a closed form."""
    own, others = np.split(old, [len(prepared.existing)])
    feasible = np.array_equal(own, prepared.existing) and prepared.samples.observable[others].all()
    if len(old) != len(new) or (old < 0).any() or not feasible:
        return False
    scorer = Scorer(prepared.train, prepared.validation, run)
    return bool(scorer(old) < scorer(new))
