"""Feature selectors: those of scikit-learn, and of packages that are installed apart."""

from __future__ import annotations

import collections.abc
import contextlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PEERS", "Peer", "Table", "is_installed"]


@dataclass(frozen=True)
class Table:
    """The input of a feature selector.

    Parameters
    ----------
    samples
        Standardised training samples.
    classes
        Class of each sample.
    k
        Number of features to select.
    seed
        Seed of the selector.
    seconds
        Time limit, for selectors that have one.
    """

    samples: NDArray[np.float64]
    classes: NDArray[np.int64]
    k: int
    seed: int
    seconds: float


@dataclass(frozen=True)
class Peer:
    """A feature selector of this or another package.

    Parameters
    ----------
    words
        Its name on the page.
    choose
        Function from a `Table` to the indices of the selected features.
    package
        Package that it needs.
    """

    words: str
    choose: Callable[[Table], NDArray[np.int64]]
    package: str = "sklearn"

    def is_there(self) -> bool:
        """Whether the package is installed.

        Returns
        -------
        bool
            True if it can be imported.
        """
        return is_installed(self.package)


def is_installed(package: str) -> bool:
    """Whether a package can be imported.

    Parameters
    ----------
    package
        Name of the package.

    Returns
    -------
    bool
        True if it is found.
    """
    return importlib.util.find_spec(package) is not None


def _support(selector: Any, table: Table) -> NDArray[np.int64]:
    return np.flatnonzero(selector.fit(table.samples, table.classes).get_support())


def _best(scores: Any, k: int) -> NDArray[np.int64]:
    return np.sort(np.argsort(-np.asarray(scores, np.float64), kind="stable")[:k])


def _keyhole(table: Table) -> NDArray[np.int64]:
    from keyhole.sklearn import KeyholeClassifierSelector

    options: Any = {"time_limit": table.seconds, "random_state": table.seed}
    return _support(KeyholeClassifierSelector(table.k, predictor="linear", **options), table)


def _keyhole_reconstruction(table: Table) -> NDArray[np.int64]:
    from keyhole.sklearn import KeyholeSelector

    options: Any = {"time_limit": table.seconds, "random_state": table.seed}
    return _support(KeyholeSelector(table.k, reconstructor="ridge", **options), table)


def _f_test(table: Table) -> NDArray[np.int64]:
    from sklearn.feature_selection import SelectKBest, f_classif

    with np.errstate(invalid="ignore", divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant columns
        return _support(SelectKBest(f_classif, k=table.k), table)


def _information(table: Table) -> NDArray[np.int64]:
    from sklearn.feature_selection import mutual_info_classif

    return _best(mutual_info_classif(table.samples, table.classes, random_state=table.seed), table.k)


def _forward(table: Table) -> NDArray[np.int64]:
    from sklearn.feature_selection import SequentialFeatureSelector
    from sklearn.naive_bayes import GaussianNB

    return _support(SequentialFeatureSelector(GaussianNB(), n_features_to_select=table.k, cv=2), table)


def _elimination(table: Table) -> NDArray[np.int64]:
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.feature_selection import RFE

    trees = ExtraTreesClassifier(50, random_state=table.seed)
    return _support(RFE(trees, n_features_to_select=table.k, step=0.1), table)


def _forest(table: Table) -> NDArray[np.int64]:
    """The largest importances of one forest."""
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(300, random_state=table.seed).fit(table.samples, table.classes)
    return _best(forest.feature_importances_, table.k)


def _l1(table: Table) -> NDArray[np.int64]:
    """Logistic regression at the strongest L1 penalty that keeps K features; of more, the largest coefficients."""
    from sklearn.linear_model import LogisticRegression

    sizes = np.zeros(table.samples.shape[1])
    for strength in np.logspace(-3, 1, 13):
        model = LogisticRegression(
            l1_ratio=1.0, C=strength, solver="saga", max_iter=200, tol=1e-2, random_state=table.seed
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # not converged to the last digit
            sizes = np.abs(model.fit(table.samples, table.classes).coef_).max(axis=0)
        if np.count_nonzero(sizes) >= table.k:
            break
    return _best(sizes, table.k)


def _fastcan(table: Table) -> NDArray[np.int64]:
    """FastCan on indicators of the classes; nearly dependent columns are refused by it, so the tolerance is wide."""
    from fastcan import FastCan

    indicators = np.eye(int(table.classes.max()) + 1)[table.classes]
    varies = np.flatnonzero(table.samples.std(axis=0) > 0)
    found = FastCan(table.k, tol=1e-6, verbose=0).fit(table.samples[:, varies], indicators)
    return np.sort(varies[found.indices_])


def _lassonet(table: Table) -> NDArray[np.int64]:
    """The penalty at which each feature leaves the network, along the path."""
    from lassonet import LassoNetClassifier

    model = LassoNetClassifier(
        hidden_dims=(100,), n_iters=(1000, 100), path_multiplier=1.05, random_state=table.seed,
        torch_seed=table.seed, verbose=0,
    )  # fmt: skip
    model.path(table.samples.astype(np.float32), table.classes)
    return _best(model.feature_importances_, table.k)


def _stg(table: Table) -> NDArray[np.int64]:
    """The widest open gates after training as in its examples."""
    import torch
    from stg import STG

    torch.manual_seed(table.seed)
    model = STG(
        device="cpu", task_type="classification", input_dim=table.samples.shape[1],
        output_dim=int(table.classes.max()) + 1, hidden_dims=[60, 20], activation="tanh", optimizer="SGD",
        learning_rate=0.1, batch_size=100, feature_selection=True, sigma=0.5, lam=0.5,
    )  # fmt: skip
    with _moved_names():
        model.fit(table.samples, table.classes, nr_epochs=500, verbose=False, shuffle=True)
    return _best(model.get_gates(mode="raw"), table.k)


@contextlib.contextmanager
def _moved_names() -> Iterator[None]:
    """Give back names that Python 3.10 took from `collections`; stg 0.1.2 still looks for them there."""
    names = ("Iterable", "Mapping", "Sequence", "Set")
    for name in names:
        setattr(collections, name, getattr(collections.abc, name))
    try:
        yield
    finally:
        for name in names:
            delattr(collections, name)


PEERS = {
    "keyhole": Peer("`KeyholeClassifierSelector`", _keyhole),
    "keyhole_reconstruction": Peer("`KeyholeSelector`", _keyhole_reconstruction),
    "f_test": Peer("`SelectKBest`, F test", _f_test),
    "information": Peer("`SelectKBest`, mutual information", _information),
    "forward": Peer("`SequentialFeatureSelector`, naive Bayes", _forward),
    "elimination": Peer("`RFE`, extra trees", _elimination),
    "forest": Peer("importances of a random forest", _forest),
    "l1": Peer("logistic regression with L1 penalty", _l1),
    "fastcan": Peer("fastcan", _fastcan, "fastcan"),
    "lassonet": Peer("LassoNet", _lassonet, "lassonet"),
    "stg": Peer("STG", _stg, "stg"),
}
