"""Supervised selectors: sites that predict a target, by forward selection or extra trees."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from keyhole.core.run import Event, Run
from keyhole.data.samples import Samples
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.models.predictors import target_of
from keyhole.placement.base import Selection, Selector, complete, subsample
from keyhole.placement.candidates import FeasibleCandidates
from keyhole.placement.settings import ForestSettings, SupervisedSettings

__all__ = ["Forest", "Relevance", "extra_trees"]

_MIN_SCALE = 1e-6
_RIDGE = 1e-3  # share of a column's sum of squares, against nearly collinear columns


class _SupervisedSelector(Selector):
    """Base of the selectors that need a target; existing sites are observed in addition to the selected ones."""

    supervised: ClassVar[bool] = True
    settings_class: ClassVar[type[SupervisedSettings]] = SupervisedSettings
    options: SupervisedSettings

    def incompatibility(self, samples: Samples | ScaledSamples) -> str | None:
        """Require a target."""
        return None if samples.target is not None else "it selects sites to predict a target, and there is none"


class Relevance(_SupervisedSelector):
    """Forward selection for linear regression on the target (orthogonal matching pursuit).

    With the target as one column, or one indicator for each class, standardised, and `q_j` the residual of site `j`
    given the sites selected before and the existing ones, the gain is :math:`|Y' q_j|^2 / (|q_j|^2 + a |x_j|^2)`.
    `Forest` also finds sites that are informative only in combination.

    References
    ----------
    Tropp & Gilbert (2007). Signal recovery from random measurements via orthogonal matching pursuit. IEEE Trans.
    Inform. Theory 53.

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.data.target import Target
    >>> values = np.random.default_rng(0).normal(size=(100, 5))
    >>> samples = kh.read(values).with_target(Target.of(values[:, 3] + 0.5 * values[:, 1])).as_scaled()
    >>> Relevance().select(samples, 2, validation=None, run=Run()).sites.tolist()
    [3, 1]
    """

    name: ClassVar[str] = "relevance"
    takes_sensors: ClassVar[bool] = True
    nested: ClassVar[bool] = True

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Select ``k`` sites; O(samples x sites) for each."""
        subset = subsample(train, self.options.max_samples, run, "samples to tell by")
        observable = np.flatnonzero(subset.observable)
        residual, targets = _residual_readings(subset, observable)[:, len(subset.existing) :], _target_columns(subset)
        ridge, candidates = _RIDGE * len(residual), FeasibleCandidates(subset, observable, k)
        while (best := candidates.add_best(_gains(residual, targets, ridge), 0.0)) is not None:
            _project_out(residual, best, ridge)
        return Selection(complete(candidates.sites, k, train))


class Forest(_SupervisedSelector):
    """Recursive feature elimination by the importances of extra trees.

    In each round the least important 30 % of the sites are eliminated, until K remain. Trees find interactions that
    linear forward selection (`Relevance`) does not.

    References
    ----------
    Geurts, Ernst & Wehenkel (2006). Extremely randomized trees. Machine Learning 63.
    Guyon, Weston, Barnhill & Vapnik (2002). Gene selection for cancer classification. Machine Learning 46.

    Examples
    --------
    >>> import keyhole as kh
    >>> from keyhole.data.target import Target
    >>> values = np.random.default_rng(0).normal(size=(100, 5))
    >>> target = Target.of(values[:, 3] * values[:, 1] > 0)  # neither predicts it alone
    >>> samples = kh.read(values).with_target(target).as_scaled()
    >>> sorted(Forest(n_trees=100).select(samples, 2, validation=None, run=Run()).sites.tolist())
    [1, 3]
    """

    name: ClassVar[str] = "forest"
    takes_sensors: ClassVar[bool] = True
    settings_class: ClassVar[type[ForestSettings]] = ForestSettings
    options: ForestSettings

    def select(self, train: ScaledSamples, k: int, *, validation: ScaledSamples | None, run: Run) -> Selection:
        """Eliminate sites until ``k`` remain."""
        subset = subsample(train, self.options.max_samples, run, "samples to tell by")
        kept = np.flatnonzero(subset.observable)
        count = min(k, len(kept))
        importances = np.zeros(0)
        while True:
            importances = _importances(subset, kept, self.options.n_trees, run)
            order = np.argsort(-importances, kind="stable")
            if len(kept) <= count or run.seconds_left() <= 0:
                break
            kept = kept[order[: max(count, int(self.options.kept_share * len(kept)))]]
            run.tell(Event("eliminate sites", count, len(kept)))
        return Selection(complete(kept[order], k, train))


def extra_trees(samples: ScaledSamples, trees: int, seed: int) -> Any:
    """Create an untrained ensemble of extremely randomised trees for the kind of target.

    Parameters
    ----------
    samples
        ScaledSamples with a target, a class or a number.
    trees
        Number of trees.
    seed
        Random seed.

    Returns
    -------
    sklearn.ensemble.ExtraTreesClassifier or sklearn.ensemble.ExtraTreesRegressor
        The estimator.
    """
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    kind = ExtraTreesClassifier if target_of(samples).is_class else ExtraTreesRegressor
    return kind(trees, max_features="sqrt", min_samples_leaf=1, random_state=seed % 2**32)


def _importances(samples: ScaledSamples, sites: NDArray[np.int64], n_trees: int, run: Run) -> NDArray[np.float64]:
    """Importance of each site for extra trees that also observe the existing sites.

    Residuals given the existing sites are used, as trees would split by near copies of existing sites.
    """
    existing = samples.existing
    readings = _residual_readings(samples, sites) if len(existing) else samples.readings(sites)
    forest = extra_trees(samples, n_trees, run.seed_of("forest"))
    forest.fit(readings.reshape(len(readings), -1), target_of(samples).values)
    return np.asarray(forest.feature_importances_.reshape(readings.shape[1:]).sum(axis=1), np.float64)[len(existing) :]


def _standard(readings: NDArray[Any]) -> NDArray[np.float64]:
    """Standardised columns; constant ones are zero."""
    centred = readings - readings.mean(axis=0, dtype=np.float64)
    spread = centred.std(axis=0)
    return np.asarray(centred / np.where(spread > _MIN_SCALE * max(float(spread.max()), 1e-300), spread, np.inf))


def _target_columns(samples: ScaledSamples) -> NDArray[np.float64]:
    """Target as standardised columns."""
    target = target_of(samples)
    columns = np.eye(len(target.classes))[target.values] if target.is_class else target.values[:, np.newaxis]
    return _standard(columns.astype(np.float64))


def _residual_readings(samples: ScaledSamples, sites: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standardised readings of the existing sites, then linear residuals of the other sites given them."""
    existing = samples.existing
    residual = _standard(samples.readings(np.concatenate([existing, sites])))
    original = residual[:, : len(existing)].copy()
    for position in range(len(existing)):
        _project_out(residual, position, _RIDGE * len(residual))
    residual[:, : len(existing)] = original
    return residual


def _project_out(residual: NDArray[np.float64], position: int, ridge: float) -> None:
    """Project the readings of one site out of those of all sites, in place."""
    for channel in range(residual.shape[2]):
        column = residual[:, position, channel]
        size = float(column @ column)
        if size > ridge * _MIN_SCALE:
            direction = column / np.sqrt(size)
            residual -= np.multiply.outer(direction, np.tensordot(direction, residual, axes=1))


def _gains(residual: NDArray[np.float64], targets: NDArray[np.float64], ridge: float) -> NDArray[np.float64]:
    explained = np.square(np.einsum("nmc,nt->mct", residual, targets, optimize=True)).sum(axis=2)
    return np.asarray((explained / (np.square(residual).sum(axis=0) + ridge)).sum(axis=1))
