"""Classical selectors against independent implementations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.linalg import eigh
from scipy.linalg import qr as scipy_qr

import keyhole as kh
from keyhole.core.run import Run
from keyhole.models import principal_components as components
from keyhole.models.principal_components import principal_components
from keyhole.placement.classical import QR, Greedy, Random, Variance
from keyhole.placement.explained_variance import ExplainedVariance


def field(n=60, shape=(4, 5), channels=1, seed=0, rank=8):
    rng = np.random.default_rng(seed)
    size = channels * int(np.prod(shape))
    values = rng.normal(size=(n, rank)) * np.linspace(3, 0.5, rank) @ rng.normal(size=(rank, size))
    values += 0.05 * rng.normal(size=(n, size))
    return kh.read(values.reshape(n, channels, *shape), channels=1).as_scaled()


def choose(selector, signals, k):
    return selector.select(signals, k, validation=None, run=Run()).sites


def explained(covariance, sites):
    """Trace that observing the sites removes from the covariance."""
    part = covariance[np.ix_(sites, sites)]
    return np.trace(covariance[:, sites] @ np.linalg.solve(part, covariance[sites]))


def test_components_are_those_of_the_covariance():
    """Variances are eigenvalues of the covariance, on either side of the Gram matrix."""
    for n in (10, 60):
        signals = field(n=n)
        components = principal_components(signals, 5)
        packed = signals.targets[:, 0].astype(float)
        eigenvalues = np.linalg.eigvalsh(np.cov(packed.T, bias=True))[::-1]
        np.testing.assert_allclose(components.variances, eigenvalues[: len(components.variances)], rtol=1e-6)
        basis = components.basis[0]
        np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), atol=1e-6)


def test_components_of_the_same_samples_are_made_once(monkeypatch):
    """Who asks for fewer has the first of them; who asks for more has them made anew."""
    signals, made = field(n=60), []
    monkeypatch.setattr(components, "eigh", lambda *given, **more: made.append(1) or eigh(*given, **more))
    many, few = principal_components(signals, 8), principal_components(signals, 5)
    assert len(made) == 1
    np.testing.assert_array_equal(few.variances, many.variances[:5])
    np.testing.assert_array_equal(few.basis, many.basis[:, :, :5])
    assert len(principal_components(signals, 9).variances) == 9
    assert len(made) == 2


def test_qr_picks_the_pivots_of_scipy():
    """One channel: the same pivots as LAPACK's column-pivoted QR of the principal basis."""
    signals = field()
    basis = principal_components(signals, 6).basis[0]
    pivots = scipy_qr(basis.T, pivoting=True, mode="economic")[2][:6]
    assert choose(QR(), signals, 6).tolist() == pivots.tolist()


def test_greedy_picks_what_the_covariance_says():
    """Each pick is the site that removes most from the full covariance."""
    signals = field()
    covariance = np.cov(signals.targets[:, 0].astype(float).T, bias=True)
    picks: list[int] = []
    for _ in range(6):
        left = [j for j in range(len(covariance)) if j not in picks]
        picks.append(max(left, key=lambda j: explained(covariance, [*picks, j])))
    assert choose(Greedy(), signals, 6).tolist() == picks


def test_greedy_with_channels_counts_all_values_of_a_site():
    """Two channels: each pick removes most when both values of the site are observed."""
    signals = field(channels=2, shape=(6,))
    covariance = np.cov(signals.targets.reshape(len(signals), -1).astype(float).T, bias=True)
    picks: list[int] = []
    for _ in range(3):
        left = [j for j in range(6) if j not in picks]
        picks.append(max(left, key=lambda j: explained(covariance, [i + 6 * c for i in [*picks, j] for c in (0, 1)])))
    assert choose(Greedy(), signals, 3).tolist() == picks


@pytest.mark.parametrize("channels", [1, 2])
def test_greedy_with_few_components_knows_how_much_they_do_not_hold(channels):
    """Picks are those of the covariance of low rank with the variance that it lacks on its diagonal."""
    signals = field(channels=channels, shape=(12,))
    packed = signals.targets.reshape(len(signals), -1).astype(float)
    whole = np.cov(packed.T, bias=True)
    variances, basis = np.linalg.eigh(whole)
    low = basis[:, -2:] * variances[-2:] @ basis[:, -2:].T
    covariance, picks = low + np.diag(np.diag(whole - low)), list[int]()
    for _ in range(5):
        left = [j for j in range(12) if j not in picks]
        among = [[i + 12 * c for i in [*picks, j] for c in range(channels)] for j in left]
        picks.append(left[int(np.argmax([explained(covariance, sites) for sites in among]))])
    assert choose(Greedy(n_components=2), signals, 5).tolist() == picks


def test_greedy_is_near_the_best_subset():
    """On a toy, greedy explains at least 95 % of what the best of all subsets explains."""
    signals = field(shape=(10,))
    covariance = np.cov(signals.targets[:, 0].astype(float).T, bias=True)
    best = max(explained(covariance, list(subset)) for subset in itertools.combinations(range(10), 3))
    assert explained(covariance, choose(Greedy(), signals, 3)) > 0.95 * best


def test_variance_ranks_by_variance():
    """The most variable site comes first."""
    signals = field()
    spread = signals.targets[:, 0].var(axis=0)
    assert choose(Variance(), signals, 20).tolist() == np.argsort(-spread, kind="stable").tolist()


def test_random_depends_on_the_seed_alone():
    """Same seed, same sites; other seed, others."""
    signals = field()
    runs = [Random().select(signals, 10, validation=None, run=Run(seed=s)).sites.tolist() for s in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("selector", [QR(), Greedy()])
def test_more_sites_than_the_rank_are_completed(selector):
    """Data of rank two still give as many distinct sites as asked for."""
    rng = np.random.default_rng(0)
    signals = kh.read(rng.normal(size=(30, 2)) @ rng.normal(size=(2, 12))).as_scaled()
    sites = choose(selector, signals, 9)
    assert len(set(sites.tolist())) == 9


def exact_gains(rows, matrix):
    """Variance that each site would remove, straightforwardly."""
    gains = []
    for here in rows.astype(float).transpose(1, 0, 2):
        gains.append(np.trace(np.linalg.pinv(here @ matrix @ here.T, rcond=1e-8) @ here @ matrix @ matrix @ here.T))
    return np.array(gains)


@pytest.mark.parametrize("precision", [np.float32, np.float64])
@pytest.mark.parametrize("channels", [1, 5])
def test_what_sites_would_explain_is_kept_up_to_date(channels, precision):
    """After several picks, and where channels say nearly the same."""
    rng = np.random.default_rng(0)
    base, apart = rng.normal(size=(1, 60, 12)), rng.normal(size=(channels, 60, 12))
    rows, variances = (base + 1e-3 * apart).astype(precision), np.logspace(0, -2, 12)
    left, matrix = (
        ExplainedVariance(rows, variances, np.zeros((channels, 60)), np.zeros((channels, 60))),
        np.diag(variances),
    )
    others = np.delete(np.arange(60), [3, 17, 40])
    for site in (3, 17, 40):
        np.testing.assert_allclose(left.gains()[others], exact_gains(rows, matrix)[others], rtol=2e-3, atol=1e-4)
        left.observe(site)
        here = rows[:, site].astype(float)
        matrix = matrix - matrix @ here.T @ np.linalg.pinv(here @ matrix @ here.T, rcond=1e-8) @ here @ matrix
