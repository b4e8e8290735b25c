"""Weights of samples: in fits, scores and folds, as repetitions, and routed by scikit-learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline

import sklearn
from keyhole.data.sample_weights import repetitions, row_keys, validation_count
from keyhole.sklearn import KeyholeClassifierSelector, KeyholeRegressorSelector, KeyholeSelector, KeyholeSelectorCV

LINEAR = {"method": "relevance", "predictor": "linear", "random_state": 0}


def two_kinds(n: int = 120):
    """Half of the samples are told by the first column, the others by the second; the third says which half."""
    rng = np.random.default_rng(0)
    X, first = rng.normal(size=(n, 4)), np.arange(n) < n // 2
    return X, np.where(first, X[:, 0], X[:, 1]), first


@pytest.mark.parametrize("column", [0, 1])
def test_what_weighs_most_is_selected_for(column):
    X, y, first = two_kinds()
    weights = np.where(first == (column == 0), 1.0, 0.0)
    assert KeyholeRegressorSelector(1, **LINEAR).fit(X, y, sample_weight=weights).support_[column]


def test_the_reconstruction_goes_by_the_weights():
    """Two of four columns are copies of others, each among its own half of the samples."""
    rng = np.random.default_rng(0)
    X, first = rng.normal(size=(200, 3)), np.arange(200) < 100
    X[:, 2] = np.where(first, X[:, 0], X[:, 1])
    selector = KeyholeSelector(2, method="greedy", reconstructor="ridge", random_state=0, must_select=[0, 1])
    for half in (first, ~first):
        fitted = selector.fit(X, sample_weight=half.astype(float))
        assert fitted.score(X, sample_weight=half) > -1e-3
        assert fitted.score(X, sample_weight=~half) < -0.3
        assert fitted.score(X) == pytest.approx(np.mean([fitted.score(X[part]) for part in (first, ~first)]))


@pytest.mark.parametrize("kind", [KeyholeClassifierSelector, KeyholeRegressorSelector])
def test_samples_may_come_in_any_order_and_as_often_as_they_weigh(kind):
    X, y, _ = two_kinds(60)
    y = y > 0 if kind is KeyholeClassifierSelector else y
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 4, size=60)
    weighted = kind(2, **LINEAR).fit(X, y, sample_weight=weights / 2)
    rows = rng.permutation(np.repeat(np.arange(60), weights))
    repeated = kind(2, **LINEAR).fit(X[rows], y[rows])
    np.testing.assert_array_equal(weighted.support_, repeated.support_)
    np.testing.assert_array_equal(weighted.predict(X), repeated.predict(X))


def test_weights_may_be_of_any_size():
    """Whole multiples of a unit exactly; others to a tenth of their mean, without a sample too many."""
    np.testing.assert_array_equal(repetitions(np.array([3.0, 6.0, 0.0, 3.0])), [1, 2, 0, 1])
    np.testing.assert_array_equal(repetitions(np.full(7, 0.3)), np.ones(7))
    weights = np.random.default_rng(0).uniform(0.5, 1.5, size=400)
    counts = repetitions(weights)
    assert counts.sum() == 5 * 400
    assert np.abs(counts / 5 - weights / weights.mean()).max() <= 0.2


def test_copies_of_a_sample_are_in_one_part():
    values = np.random.default_rng(0).normal(size=(50, 3)).repeat(4, axis=0)
    keys = np.sort(row_keys(values, 0))
    count = validation_count(keys, 0.2)
    assert count == 40
    assert not set(keys[:count]) & set(keys[count:])
    assert validation_count(np.zeros(10, np.uint64), 0.2) == 2


def test_folds_are_weighted():
    """Samples without weight count in no fit and in no score, whatever they are."""
    rng = np.random.default_rng(0)
    X, there = rng.normal(size=(120, 6)) @ rng.normal(size=(6, 6)), np.arange(120) % 2 == 0
    other = np.where(there[:, np.newaxis], X, 100 * rng.normal(size=X.shape))
    fold = np.arange(120) % 3
    whole, half = (
        [(np.flatnonzero(one != k), np.flatnonzero(one == k)) for k in range(3)] for one in (fold, fold[there])
    )
    options = {"method": "greedy", "reconstructor": "ridge", "random_state": 0}
    weighted = KeyholeSelectorCV([1, 2, 4], cv=whole, **options).fit(other, sample_weight=there)
    alone = KeyholeSelectorCV([1, 2, 4], cv=half, **options).fit(X[there])
    np.testing.assert_allclose(weighted.cv_results_["mean_score"], alone.cv_results_["mean_score"])
    np.testing.assert_array_equal(weighted.support_, alone.support_)


def test_groups_stay_whole_with_weights():
    X, y, _ = two_kinds()
    fitted = KeyholeRegressorSelector(1, **LINEAR)
    fitted.fit(X, y, sample_weight=np.arange(120) % 3, groups=np.arange(120) // 10)
    assert fitted.plan_.metadata["split"]["kind"] == "groups"


def test_weights_are_routed_by_metadata_routing():
    X, y, first = two_kinds()
    selector, folds = KeyholeClassifierSelector(1, **LINEAR), StratifiedKFold(2, shuffle=True, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = selector.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        pipe = make_pipeline(routed, LogisticRegression().set_fit_request(sample_weight=False))
        pipe.fit(X, y > 0, sample_weight=(~first).astype(float))
        assert pipe[0].support_[1]
        scores = cross_validate(routed, X, y > 0, cv=folds, params={"sample_weight": first.astype(float)})
    assert np.isfinite(scores["test_score"]).all()


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (np.ones(3), "sample_weight.shape"),
        (-np.ones(120), "Negative values in data passed to `sample_weight`"),
        (np.r_[1.0, np.zeros(119)], "at least 4 samples need a weight above zero"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights, says):
    X, y, _ = two_kinds()
    with pytest.raises(ValueError, match=says):
        KeyholeRegressorSelector(1, **LINEAR).fit(X, y, sample_weight=weights)


def test_tables_of_words_have_weights_too():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"word": rng.choice(list("abc"), 90), "a": rng.normal(size=90), "b": rng.normal(size=90)})
    y = np.where(np.arange(90) < 45, frame["word"] == "a", frame["a"] > 0)
    for half, name in ((np.arange(90) < 45, "word"), (np.arange(90) >= 45, "a")):
        fitted = KeyholeClassifierSelector(1, **LINEAR).fit(frame, y, sample_weight=half.astype(float))
        assert fitted.get_feature_names_out().tolist() == [name]
