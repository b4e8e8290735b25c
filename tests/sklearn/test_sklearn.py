"""Keyhole where scikit-learn's own selectors stand: its checks, pipelines, searches, and tables as people have them."""

from __future__ import annotations

import io

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine, make_blobs
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks

from keyhole.sklearn import (
    KeyholeClassifierSelector,
    KeyholeRegressorSelector,
    KeyholeSelector,
    KeyholeSelectorCV,
)
from sklearn import config_context

QUICK = {"method": "greedy", "random_state": 0}
EACH = [
    KeyholeSelector(reconstructor="ridge", **QUICK),
    KeyholeClassifierSelector(predictor="linear", method="relevance", random_state=0),
    KeyholeRegressorSelector(predictor="linear", method="relevance", random_state=0),
    KeyholeSelectorCV(reconstructor="ridge", cv=2, **QUICK),
]
MORE = [
    "check_dataframe_column_names_consistency",
    "check_transformer_get_feature_names_out",
    "check_transformer_get_feature_names_out_pandas",
    "check_set_output_transform",
    "check_set_output_transform_pandas",
    "check_global_output_transform_pandas",
    "check_set_output_transform_polars",
    "check_global_set_output_transform_polars",
    "check_param_validation",
    "check_n_features_in_after_fitting",
    "check_parameters_default_constructible",
]


@estimator_checks.parametrize_with_checks(EACH)
def test_every_check_of_scikit_learn(estimator, check):
    """Without one that is expected to fail."""
    check(estimator)


@pytest.mark.filterwarnings("ignore:X does not have valid", "ignore:X has feature names")
@pytest.mark.parametrize("estimator", EACH, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("name", MORE)
def test_checks_that_are_not_among_them(estimator, name):
    """Names of features, frames in and out, parameters that make no sense."""
    getattr(estimator_checks, name)(type(estimator).__name__, clone(estimator))


def quick(count=5, **options) -> KeyholeSelector:
    return KeyholeSelector(count, reconstructor="ridge", **(QUICK | options))


@pytest.fixture(scope="module")
def cancer():
    return load_breast_cancer(return_X_y=True)


def test_chosen_features_reconstruct_the_others(cancer):
    """Better than chance, in the units of the table; what is transformed can be turned back."""
    X, _ = cancer
    selector = quick().fit(X)
    assert selector.get_support().sum() == 5
    assert sorted(selector.ranking_)[:5] == [1, 2, 3, 4, 5]
    assert (selector.scores_ > 0).sum() >= 4
    np.testing.assert_array_equal(selector.transform(X), X[:, selector.support_])
    reconstructed = selector.inverse_transform(selector.transform(X))
    np.testing.assert_allclose(reconstructed, selector.reconstruct(X))
    left = np.square(X - reconstructed).sum(axis=0) / np.square(X - X.mean(axis=0)).sum(axis=0)
    assert np.median(left) < 0.45
    assert selector.score(X) == pytest.approx(-np.square(X - reconstructed).mean())


def test_features_count_alike_whatever_their_units():
    """A column in other units is no more worth rebuilding."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 8)) + 0.1 * rng.normal(size=(200, 8))
    other = X * np.array([1, 1e6, 1, 1, 1e-6, 1, 1, 1])
    np.testing.assert_array_equal(quick(3).fit(X).support_, quick(3).fit(other).support_)


def test_in_pipelines_searches_and_column_transformers(cancer):
    """As any other selector."""
    X, y = cancer
    pipe = make_pipeline(StandardScaler(), quick(4), LogisticRegression())
    assert cross_val_score(pipe, X, y, cv=3).mean() > 0.85
    search = GridSearchCV(pipe, {"keyholeselector__n_features_to_select": [2, 0.3]}, cv=2).fit(X, y)
    assert search.best_params_["keyholeselector__n_features_to_select"] in (2, 0.3)
    both = ColumnTransformer([("few", quick(2), slice(0, 10)), ("rest", "drop", slice(10, 30))]).fit(X)
    assert both.transform(X).shape == (569, 2)


def test_a_fitted_selector_goes_through_joblib(cancer):
    """In memory, with its plan."""
    selector, held = quick().fit(cancer[0]), io.BytesIO()
    joblib.dump(selector, held)
    held.seek(0)
    again = joblib.load(held)
    np.testing.assert_array_equal(again.reconstruct(cancer[0]), selector.reconstruct(cancer[0]))


def test_classes_and_numbers_are_predicted():
    """From a few features nearly as well as from all."""
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    names = np.array(["bad", "good"])[y]
    settings = {"train": {"steps": 200, "batch_size": 32, "ema_decay": 0.0}}
    learned = {"predictor": "linear", "method": "learned", "settings": settings, "random_state": 0}
    told = KeyholeClassifierSelector(4, **learned).fit(X, names)
    assert told.score(X, names) > 0.9
    assert set(told.predict(X)) == {"bad", "good"}
    np.testing.assert_allclose(told.predict_proba(X).sum(axis=1), 1)
    X, y = load_diabetes(return_X_y=True)
    assert KeyholeRegressorSelector(4, **learned).fit(X, y).score(X, y) > 0.35


def test_groups_costs_and_required_features(cancer):
    """Features that come together, cost, or are there already."""
    X, _ = cancer
    labels = np.arange(30) // 3
    grouped = quick(2, feature_groups=labels).fit(X)
    assert grouped.support_.sum() == 6
    assert len(set(labels[grouped.support_])) == 2
    paid = quick(costs=np.where(np.arange(30) < 15, 1.0, 10.0), cost_limit=4).fit(X)
    assert paid.support_[:15].sum() == 4
    assert not paid.support_[15:].any()
    for must in ([7, 9], np.isin(np.arange(30), [7, 9])):
        kept = quick(4, must_select=must).fit(X)
        assert kept.support_[[7, 9]].all()
        assert kept.support_.sum() == 4
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(30)])
    assert quick(3, must_select=["c3"]).fit(frame).support_[3]
    for wrong in ([30], ["z"]):
        with pytest.raises(ValueError, match="must_select"):
            quick(3, must_select=wrong).fit(frame)
    with pytest.raises(ValueError, match="more than the 30"):
        quick(31).fit(X)


def of_subjects(each=20) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ten subjects, each with features and a number of its own, which say nothing of those of another."""
    rng = np.random.default_rng(0)
    subjects = np.repeat(np.arange(10), each)
    X = rng.normal(size=(10, 12))[subjects] + 0.01 * rng.normal(size=(10 * each, 12))
    return X, rng.normal(size=10)[subjects], subjects


def test_samples_of_a_group_are_on_one_side_of_the_validation():
    """So that the validation error is that of a new subject."""
    X, y, subjects = of_subjects()
    selector = KeyholeRegressorSelector(9, predictor="linear", method="relevance", random_state=0)
    drawn = clone(selector).fit(X, y).plan_
    whole = clone(selector).fit(X, y, groups=subjects).plan_
    assert drawn.metrics["validation"]["target_fvu"] < 0.1
    assert whole.metrics["validation"]["target_fvu"] > 0.5
    assert whole.metadata["split"] == {"train": 160, "validation": 40, "test": 0, "kind": "groups"}
    assert 0 < quick(3, stability=3).fit(X, groups=subjects).stability_.sum() <= 12
    with pytest.raises(ValueError, match="one group"):
        selector.fit(X, y, groups=np.zeros(200))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        selector.fit(X, y, groups=subjects[:5])


def test_groups_are_routed_and_reach_the_folds():
    """`set_fit_request(groups=True)` in a pipeline, and `GroupKFold` in `KeyholeSelectorCV`."""
    X, y, subjects = of_subjects()
    with config_context(enable_metadata_routing=True):
        selector = KeyholeSelector(3, reconstructor="ridge", **QUICK).set_fit_request(groups=True)
        pipe = make_pipeline(StandardScaler(), selector, LinearRegression()).fit(X, y, groups=subjects)
    assert pipe[1].plan_.metadata["split"]["kind"] == "groups"
    found = KeyholeSelectorCV([2, 4], cv=GroupKFold(5), reconstructor="ridge", **QUICK).fit(X, groups=subjects)
    assert found.plan_.metadata["split"]["kind"] == "groups"
    with pytest.raises(ValueError, match="groups"):
        KeyholeSelectorCV([2, 4], cv=GroupKFold(5), reconstructor="ridge", **QUICK).fit(X)


def mixed(n=200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=n)
    size = rng.normal(size=n)
    return pd.DataFrame(
        {
            "colour": pd.Categorical(np.array(["red", "green", "blue"])[kind]),
            "shape": np.array(["round", "square", "round"])[kind],
            "size": size,
            "weight": 3 * size + 0.1 * rng.normal(size=n),
            "flag": kind == 2,
            "noise": rng.normal(size=n),
        }
    )


def test_words_are_chosen_as_whole_columns():
    """Words, categories, flags and numbers in one table; what comes out are the columns that went in."""
    frame = mixed()
    selector = quick(3).set_output(transform="pandas").fit(frame)
    out = selector.transform(frame)
    assert out.shape == (200, 3)
    assert "colour" in out.columns  # tells shape and flag
    pd.testing.assert_frame_equal(out, frame[list(out.columns)])
    assert selector.reconstruct(frame).shape == (200, 9)
    with pytest.raises(ValueError, match="columns of words"):
        selector.inverse_transform(np.zeros((2, 3)))


def test_missing_values_are_worked_with_where_asked():
    """In numbers and in words; refused otherwise."""
    frame = mixed()
    frame.loc[::7, "size"] = np.nan
    frame.loc[::9, "colour"] = None
    with pytest.raises(ValueError, match="NaN"):
        quick(3).fit(frame)
    selector = quick(3, missing="model").fit(frame)
    assert selector.support_.sum() == 3
    assert np.isfinite(selector.reconstruct(frame)).all()
    numbers = np.random.default_rng(1).normal(size=(80, 6))
    numbers[np.random.default_rng(0).uniform(size=(80, 6)) < 0.1] = np.nan
    assert quick(2, missing="model").fit(numbers).transform(numbers).shape == (80, 2)


def test_polars_in_and_out():
    """A frame of polars with words."""
    polars = pytest.importorskip("polars")
    frame = polars.from_pandas(mixed().drop(columns="colour"))
    out = quick(2).set_output(transform="polars").fit(frame).transform(frame)
    assert isinstance(out, polars.DataFrame)
    assert out.shape == (200, 2)


def test_wide_tables_need_no_matrix_of_columns_by_columns():
    """10000 columns of 200 rows: 800 MB such a matrix would be."""
    import tracemalloc

    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5)) @ rng.normal(size=(5, 10_000)) + 0.1 * rng.normal(size=(200, 10_000))
    tracemalloc.start()
    selector = quick(10).fit(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert selector.support_.sum() == 10
    assert peak < 500e6


def test_stability_is_how_often_a_feature_is_chosen():
    """Certain where it is the only one of its kind, shared between twins."""
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 150))
    X = np.column_stack([first, first + 1e-3 * rng.normal(size=150), 3 * second, 0.01 * rng.normal(size=150)])
    selector = quick(2, stability=8, scale=False).fit(X)
    assert selector.stability_.sum() == pytest.approx(2)
    assert selector.stability_[2] == 1
    assert selector.stability_[3] == 0


def test_a_warm_start_keeps_what_was_better(cancer):
    """The second fit is no worse than the first."""
    X, _ = cancer
    selector = quick(5, warm_start=True).fit(X)
    first = selector.support_.copy()
    selector.set_params(method="random").fit(X)
    np.testing.assert_array_equal(selector.support_, first)


def test_the_fewest_within_one_standard_error(cancer):
    """By the scores of every number tried."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 12)) + 0.05 * rng.normal(size=(300, 12))
    found = KeyholeSelectorCV([1, 2, 3, 4, 6], reconstructor="ridge", cv=4, **QUICK).fit(X)
    scores, errors = found.cv_results_["mean_score"], found.cv_results_["standard_error"]
    enough = found.cv_results_["n_features"][scores >= scores.max() - errors[scores.argmax()]]
    assert found.n_features_to_select_ == enough.min()
    assert found.get_support().sum() == found.n_features_to_select_
    assert found.cv_results_["n_features"].tolist() == [1, 2, 3, 4, 6]
    assert found.cv_results_["mean_score"][0] < found.cv_results_["mean_score"][2]
    with pytest.raises(ValueError, match="candidates"):
        KeyholeSelectorCV([0, 2], **QUICK).fit(X)


def test_pictures_by_their_shape():
    """Flattened digits are pictures again; a shape that does not fit is refused."""
    from sklearn.datasets import load_digits

    X, _ = load_digits(return_X_y=True)
    assert quick(6, grid_shape=(8, 8)).fit(X).plan_.domain.shape == (8, 8)
    with pytest.raises(ValueError, match="grid_shape"):
        quick(6, grid_shape=(8, 9)).fit(X)


@pytest.mark.parametrize("method", ["auto", "relevance", "greedy"])
def test_required_features_are_kept_where_something_is_predicted(method):
    """They count as chosen, come first, and the others are chosen beside them."""
    X, y = load_wine(return_X_y=True, as_frame=True)
    settings = {"train": {"steps": 20, "batch_size": 16, "ema_decay": 0.0}} if method in ("auto", "learned") else None
    told = KeyholeClassifierSelector(
        3, must_select=["ash"], method=method, predictor="linear", settings=settings, random_state=0
    ).fit(X, y)
    assert told.support_.sum() == 3
    assert told.ranking_[list(X.columns).index("ash")] == 1
    assert told.plan_.sites["existing"].tolist() == [True, False, False]
    assert told.predict(X).shape == y.shape


def test_required_features_alone_are_a_choice(cancer):
    """As many as are asked for: none is added; fewer than they are is an error."""
    X, _ = cancer
    assert np.flatnonzero(quick(2, must_select=[7, 9]).fit(X).support_).tolist() == [7, 9]
    assert quick(2, must_select=[7, 7]).fit(X).support_.sum() == 2
    with pytest.raises(ValueError, match=r"n_features_to_select=1.*must_select"):
        quick(1, must_select=[7, 9]).fit(X)
    with pytest.raises(ValueError, match="must_select"):
        quick(2, must_select=[True, False]).fit(X)


def test_a_warm_start_keeps_required_sites(cancer):
    """What the last fit chose is no choice where it lacks one of them."""
    X, _ = cancer
    selector = quick(3, warm_start=True).fit(X)
    missing = int(np.flatnonzero(~selector.support_)[0])
    assert selector.set_params(must_select=[missing]).fit(X).support_[missing]


def test_how_many_with_required_features():
    """Folds keep names and whole columns; fewer than the musts are not tried."""
    found = KeyholeSelectorCV(must_select=["size", "colour"], reconstructor="ridge", cv=2, **QUICK).fit(mixed())
    assert found.support_[[0, 2]].all()
    assert found.cv_results_["n_features"].min() == 2
    with pytest.raises(ValueError, match="from 2 to 6"):
        KeyholeSelectorCV([1, 3], must_select=["size", "colour"], reconstructor="ridge", cv=2, **QUICK).fit(mixed())


def test_scikit_learn_knows_classifiers_and_regressors(cancer):
    """So that folds are stratified: iris is sorted by class, and plain folds hold a class apart."""
    told = KeyholeClassifierSelector(2, method="relevance", predictor="linear", random_state=0)
    number = KeyholeRegressorSelector(2, method="relevance", predictor="linear", random_state=0)
    assert is_classifier(told)
    assert is_regressor(number)
    assert not is_classifier(quick())
    X, y = make_blobs(n_samples=300, random_state=0)  # what scikit-learn's own checks score classifiers by
    assert told.fit(X, y).score(X, y) > 0.83
    X, y = load_iris(return_X_y=True)
    assert cross_val_score(told, X, y, cv=3).min() > 0.7
    search = GridSearchCV(
        make_pipeline(StandardScaler(), told), {"keyholeclassifierselector__n_features_to_select": [1, 2]}
    )
    assert search.fit(X, y).score(X, y) > 0.7
    assert cross_val_score(told, X, y, cv=3, scoring="roc_auc_ovr").min() > 0.8
    both = make_pipeline(told, LogisticRegression(max_iter=500))
    assert cross_val_score(both, X, y).mean() > 0.9
    X, y = load_diabetes(return_X_y=True)
    assert cross_val_score(number, X, y, cv=3, scoring="r2").mean() > 0.2


@pytest.mark.parametrize("y", [[10, 9, 2], [True, False, True], [1.0, 3.0, 2.0], ["b", "a", "c"]], ids=str)
def test_classes_are_as_they_were_given(y):
    """Sorted by value and of their own type, with a column of probabilities for each in that order."""
    rng = np.random.default_rng(0)
    code = rng.integers(3, size=90)
    told = KeyholeClassifierSelector(1, method="relevance", predictor="linear", random_state=0)
    labels = np.array(y)[code]
    told.fit(np.eye(3)[code] + 0.1 * rng.normal(size=(90, 3)), labels)
    np.testing.assert_array_equal(told.classes_, np.unique(labels))
    assert told.classes_.dtype == labels.dtype
    X = np.eye(3)[code]
    np.testing.assert_array_equal(told.classes_[told.predict_proba(X).argmax(axis=1)], told.predict(X))
