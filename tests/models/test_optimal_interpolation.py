"""Optimal interpolation and the exchange algorithm, against straightforward computations."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import keyhole as kh
from example_data import stops_after
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.data.sites import Sites
from keyhole.models.reconstructors import OptimalInterpolation, Ridge
from keyhole.models.reconstructors.optimal_interpolation import LENGTH_SCALES, STRENGTHS, longest_sufficient
from keyhole.placement import SELECTORS
from keyhole.placement.exchange import Exchange
from keyhole.placement.posterior_covariance import Covariance, PosteriorCovariance
from keyhole.placement.settings import CovarianceLimits
from large_fields import large_field, unexplained_variance


def smooth(n, cells=24, length=0.15, channels=1, seed=0):
    """Samples of a Gaussian field on a line, whose covariance really fades."""
    rng = np.random.default_rng(seed)
    places = np.linspace(0, 1, cells)
    covariance = np.exp(-np.abs(places[:, None] - places) / length) + 1e-6 * np.eye(cells)
    values = rng.normal(size=(n, channels, cells)) @ np.linalg.cholesky(covariance).T
    return kh.read(values, channels=1).as_scaled()


def left_out(data, sites, length, share):
    """Error of kriging when each of five blocks is really left out, all from its definition."""
    readings = data.readings(sites).reshape(len(data), -1).astype(float)
    targets = data.targets.reshape(len(data), -1).astype(float)
    metric, cells, error = data.sites.metric, np.arange(len(data.sites)), 0.0
    block = np.arange(len(data)) * 5 // len(data)
    for number in range(5):
        kept = block != number
        r, x = readings[kept], targets[kept]
        own = r.T @ r / kept.sum() * metric.taper(sites, sites, length)
        cross = r.T @ x / kept.sum() * metric.taper(sites, cells, length)
        weights = np.linalg.solve(own + share * np.trace(own) / len(own) * np.eye(len(own)), cross)
        error += np.square(targets[~kept] - readings[~kept] @ weights).sum()
    return error


def test_length_and_strength_are_the_best_over_blocks_left_out():
    """The quick sums over eigenvectors say the same as leaving the blocks out."""
    data, sites = smooth(25), np.array([2, 9, 15, 21])
    chosen = OptimalInterpolation().fit(data, sites, validation=data, run=Run()).chosen
    errors = np.array([[left_out(data, sites, length, share) for share in STRENGTHS[::4]] for length in LENGTH_SCALES])
    assert chosen["length"] == LENGTH_SCALES[longest_sufficient(errors.min(axis=1))]
    assert chosen["length"] < np.inf
    here = left_out(data, sites, chosen["length"], chosen["strength"])
    assert here <= 1.0001 * errors[LENGTH_SCALES.index(chosen["length"])].min()


def test_few_samples_of_a_local_field_are_reconstructed_better_than_by_ridge():
    """What kriging is for."""
    data, new, sites = smooth(20), smooth(400, seed=1), np.array([2, 9, 15, 21])
    errors = {}
    for kind in (Ridge, OptimalInterpolation):
        fitted = kind().fit(data, sites, validation=data, run=Run())
        errors[kind.name] = np.square(new.values - fitted.reconstruct(new.readings(sites))).mean()
    assert errors["optimal_interpolation"] < 0.97 * errors["ridge"]


def test_with_many_samples_optimal_interpolation_is_ridge():
    """A field tied across the grid, well sampled, is left as it is."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 12)) + 0.1 * rng.normal(size=(500, 12))
    data, sites = kh.read(values - values.mean(axis=0)).as_scaled(), np.array([0, 4, 7])
    kriging, ridge = (kind().fit(data, sites, validation=data, run=Run()) for kind in (OptimalInterpolation, Ridge))
    assert kriging.chosen["length"] == np.inf
    readings = data.readings(sites)
    np.testing.assert_allclose(kriging.reconstruct(readings), ridge.reconstruct(readings), atol=0.02)


def test_constant_sites_do_no_harm():
    """A reading that never varies says nothing, and breaks nothing."""
    data = smooth(30)
    values = data.values.copy()
    values[:, :, 5] = 1.0
    flat = kh.read(values, channels=1).as_scaled()
    fitted = OptimalInterpolation().fit(flat, np.array([5]), validation=flat, run=Run())
    assert np.isfinite(fitted.weights).all()


@pytest.mark.parametrize("length", [0.1, 1.0, np.inf])
def test_a_localised_covariance_is_a_covariance(length):
    """No negative eigenvalue, on the line and on the sphere."""
    axes = {"lat": np.linspace(-80, 80, 5), "lon": np.arange(0.0, 360, 60)}
    for sites in (Sites.build((5, 6), ("lat", "lon"), axes), Sites.plain((30,))):
        samples = np.random.default_rng(0).normal(size=(4, 30))
        faded = samples.T @ samples * sites.metric.taper(np.arange(30), np.arange(30), length)
        assert np.linalg.eigvalsh(faded.astype(float)).min() > -1e-5


def test_the_taper_is_near_where_the_globe_is():
    """Across the date line and around a pole; plain data are counted along their longest axis, depth in its extent."""
    axes = {"lat": np.array([-89.0, 0.0, 89.0]), "lon": np.array([0.0, 179.0, 181.0])}
    globe = Sites.build((3, 3), ("lat", "lon"), axes).metric
    np.testing.assert_allclose(globe.taper(4, 5, 1.0), np.exp(-np.deg2rad(2)), rtol=1e-4)
    assert globe.taper(6, 7, 1.0) > np.exp(-np.deg2rad(2.1))
    plain = Sites.plain((3, 5)).metric
    np.testing.assert_allclose(plain.taper(0, [4, 14], 1.0), np.exp([[-1, -np.hypot(1, 0.5)]]), rtol=1e-6)
    axes = {"depth": np.array([0, 9]), "lat": axes["lat"][:1], "lon": axes["lon"]}
    deep = Sites.build((2, 1, 3), ("depth", "lat", "lon"), axes).metric
    np.testing.assert_allclose(deep.taper([0, 1, 2], [3, 4, 5], 1.0).diagonal(), np.exp(-1), rtol=1e-6)


def posterior(covariance: Covariance, picks):
    """Error left by some sites, from the definition, with everything dense."""
    channels = covariance.readings.shape[2]
    readings = covariance.readings.astype(float).reshape(len(covariance.readings), -1)
    targets = covariance.targets.astype(float)
    sites, taper = np.repeat(covariance.candidates, channels), covariance.metric.taper
    own = readings.T @ readings * taper(sites, sites, covariance.length)
    cross = targets.T @ readings * taper(covariance.located, sites, covariance.length)
    total = np.square(targets).sum()
    if not len(picks):
        return total
    chosen = np.concatenate([np.arange(pick * channels, (pick + 1) * channels) for pick in picks])
    matrix = own[np.ix_(chosen, chosen)] + np.diag(covariance.noise.ravel()[chosen])
    return total - np.trace(cross[:, chosen] @ np.linalg.solve(matrix, cross[:, chosen].T))


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("length", [0.3, np.inf])
def test_gains_are_what_the_definition_says(channels, length):
    """After picks, drops and replacements, for every candidate."""
    data = smooth(15, cells=8, channels=channels)
    covariance = Covariance.of(data, length, 0.01, np.random.default_rng(0))
    remainder = PosteriorCovariance(covariance)
    for step, pick in enumerate((1, 6, 3)):
        before = posterior(covariance, remainder.selected)
        expected = [before - posterior(covariance, [*remainder.selected, j]) for j in range(8)]
        free = [j for j in range(8) if j not in remainder.selected]
        np.testing.assert_allclose(remainder.gains()[free], np.array(expected)[free], rtol=2e-3, atol=1e-4)
        remainder.add(pick)
        assert len(remainder.selected) == step + 1
    for place, pick in ((0, 5), (1, 3), (0, 0)):
        kept = remainder.selected[:place] + remainder.selected[place + 1 :]
        expected = [posterior(covariance, kept) - posterior(covariance, [*kept, j]) for j in range(8)]
        free = [j for j in range(8) if j not in kept]
        np.testing.assert_allclose(remainder.gains_without(place)[free], np.array(expected)[free], rtol=2e-3, atol=1e-4)
        other = remainder.copy()
        remainder.replace(place, pick)
        assert remainder.selected == [*kept, pick]
        for one in (remainder, other):  # what happens to one leaves its copy as it was
            expected_left = posterior(covariance, []) - posterior(covariance, one.selected)
            assert one.explained() == pytest.approx(expected_left, rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_rounding_does_not_add_up_over_many_changes(seed):
    """With little noise, after hundreds of replacements at random, gains are still what the definition says."""
    rng = np.random.default_rng(seed)
    data = smooth(15, cells=12)
    covariance = Covariance.of(data, np.inf, 1e-3, rng)
    remainder = PosteriorCovariance(covariance)
    for pick in range(6):
        remainder.add(pick)
    for _ in range(300):
        free = [j for j in range(12) if j not in remainder.selected]
        remainder.replace(int(rng.integers(6)), int(rng.choice(free)))
    kept = remainder.selected[1:]
    expected = np.array([posterior(covariance, kept) - posterior(covariance, [*kept, j]) for j in range(12)])
    free = [j for j in range(12) if j not in kept]
    np.testing.assert_allclose(
        remainder.gains_without(0)[free], expected[free], rtol=0.1, atol=2e-3 * expected[free].max()
    )


def test_no_exchange_of_one_site_helps_any_more():
    """What comes out cannot be bettered by one site, and is near the best of all sets."""
    data = smooth(40, cells=10)
    selection = SELECTORS["exchange"]().select(data, 3, validation=None, run=Run())
    covariance = Covariance.of(data, selection.notes["length"], selection.notes["noise"], np.random.default_rng(0))
    error = posterior(covariance, selection.sites)
    swapped = [
        [*np.delete(selection.sites, place), other]
        for place in range(3) for other in range(10) if other not in selection.sites
    ]  # fmt: skip
    assert error <= 1.001 * min(posterior(covariance, picks) for picks in swapped)
    assert error <= 1.001 * min(posterior(covariance, picks) for picks in itertools.combinations(range(10), 3))


def test_restarts_leave_no_more_than_exchanges_alone():
    data = smooth(60, cells=40)
    restarted = Exchange().select(data, 6, validation=None, run=Run())
    alone = Exchange(n_restarts=0).select(data, 6, validation=None, run=Run())
    assert (restarted.notes["restarts"], alone.notes["restarts"]) == (8, 0)
    covariance = Covariance.of(data, alone.notes["length"], alone.notes["noise"], np.random.default_rng(0))
    assert posterior(covariance, restarted.sites) <= 1.0001 * posterior(covariance, alone.sites)


def test_exchanges_go_on_from_sites_that_are_there():
    """Where nothing can be bettered they stay; poor ones are bettered about as far as from nothing."""
    data, poor = smooth(60, cells=40), np.arange(6)
    found = Exchange().select(data, 6, validation=None, run=Run())
    assert set(Exchange().improve(data, found.sites, Run()).sites.tolist()) == set(found.sites.tolist())
    whole = Covariance.of(data, found.notes["length"], found.notes["noise"], np.random.default_rng(0))
    bettered = Exchange().improve(data, poor, Run()).sites
    assert posterior(whole, found.sites) < 0.6 * posterior(whole, poor)
    assert posterior(whole, bettered) < 1.02 * posterior(whole, found.sites)


@pytest.mark.parametrize(("n", "seed", "k"), [(30, 4, 6), (30, 11, 4), (60, 6, 4), (60, 2, 8)])
@pytest.mark.parametrize("looks", [0, 1, 2, 3, 5])
def test_exchanges_cut_short_leave_no_more_than_greedy(n, seed, k, looks):
    """By the covariance that they go by, from its definition, wherever the time limit cuts in."""
    data = smooth(n, seed=seed)
    greedy = SELECTORS["greedy"]().select(data, k, validation=None, run=Run()).sites
    found = SELECTORS["exchange"]().select(data, k, validation=None, run=stops_after(looks))
    covariance = Covariance.of(data, found.notes["length"], found.notes["noise"], np.random.default_rng(0))
    assert len(set(found.sites.tolist())) == k
    assert posterior(covariance, found.sites) <= (1 + 1e-6) * posterior(covariance, greedy)


def test_exchanges_in_a_hurry_are_scored_by_all_cells():
    """What they see of a large grid is a sample of its cells, and sites near those look better than they are."""
    data = large_field(150, 300)
    greedy = SELECTORS["greedy"]().select(data, 4, validation=None, run=Run()).sites
    found = SELECTORS["exchange"]().select(data, 4, validation=None, run=Run(deadline=0.0))
    assert unexplained_variance(data, found.notes, found.sites) <= unexplained_variance(data, found.notes, greedy)


def test_few_sites_of_many_cells_have_few_directions():
    """Columns have no more directions than there are of them, and more would take gigabytes."""
    data = large_field(150, 300)
    among = np.zeros(len(data.sites), bool)
    among[::150] = True
    data = replace(data, observable=among)
    assert Covariance.of(data, 0.5, 0.01, np.random.default_rng(0)).cross.shape == (300, 300, 1)


def short_of_memory(directions):
    return CovarianceLimits(max_size=1, min_directions=directions, numbers_per_second=600)


@pytest.mark.parametrize("channels", [1, 2])
def test_directions_stand_for_cells_where_memory_is_short(channels):
    """Sums over the cells of products of columns, which is all that is asked, are as they were."""
    data = smooth(60, cells=60, channels=channels)
    whole = Covariance.of(data, 0.5, 0.01, np.random.default_rng(0)).cross
    limits = short_of_memory(40 * channels)
    few = Covariance.of(data, 0.5, 0.01, np.random.default_rng(0), limits=limits).cross
    assert (len(whole), len(few)) == (60 * channels, 40 * channels)
    expected = np.einsum("tmc,tnd->mcnd", whole, whole)
    np.testing.assert_allclose(np.einsum("tmc,tnd->mcnd", few, few), expected, atol=1e-3 * expected.max())


def test_fewer_cells_are_seen_where_time_is_short():
    """As many as there is time for, but never less than memory holds anyway."""
    data = smooth(60, cells=60)
    parts = data, 0.5, 0.01, np.random.default_rng(0)
    assert Covariance.of(*parts, seconds=-1.0).targets.shape == (60, 60)
    for seconds, cells in ((-1.0, 12), (2.0, 20), (10.0, 60), (np.inf, 60)):
        covariance = Covariance.of(*parts, seconds=seconds, limits=short_of_memory(12))
        assert covariance.targets.shape == (60, cells)
        assert len(covariance.cross) == 12


def test_sites_found_by_directions_leave_as_little():
    """By a sample of as many cells they left 12 % more: a site near a cell that counts looked better than it is."""
    data = smooth(60, cells=60)
    best = SELECTORS["exchange"]().select(data, 5, validation=None, run=Run())
    whole = Covariance.of(data, best.notes["length"], best.notes["noise"], np.random.default_rng(0))
    few = Exchange(limits=short_of_memory(12)).select(data, 5, validation=None, run=Run())
    assert posterior(whole, few.sites) < 1.01 * posterior(whole, best.sites)


def seasonal(n, seed=0):
    """A field whose far half follows its near half with the season's sign; noise elsewhere."""
    rng = np.random.default_rng(seed)
    time = np.arange("1950-01", "2100-01", dtype="datetime64[M]")[:n].astype("datetime64[ns]")
    turn = 2 * np.pi * (np.arange(n) % 12) / 12
    cause = rng.normal(size=n)
    values = np.stack([cause, 0.1 * rng.normal(size=n), cause * np.cos(turn), cause * np.cos(turn)], axis=1)
    return replace(kh.read(values), time=time)


def test_what_a_reading_says_may_change_over_the_year():
    """Products with the time of year rebuild what no plain linear map can."""
    data, sites = prepare(seasonal(600).with_covariates("year"), None, 0), np.array([0])
    errors = {}
    for kind in (Ridge, OptimalInterpolation):
        fitted = kind().fit(data.train, sites, validation=data.validation, run=Run())
        left = data.validation.values - fitted.reconstruct(data.validation.readings(sites), data.validation.covariates)
        errors[kind.name] = np.square(left).mean()
    assert errors["optimal_interpolation"] < 0.2 * errors["ridge"]


def test_means_may_depend_on_columns_of_context():
    """A column that moves the field, and no site that tells of it."""
    rng = np.random.default_rng(0)
    column = rng.normal(size=300)
    values = np.stack([2 * rng.normal(size=300), column + 0.01 * rng.normal(size=300)], axis=1)
    signals = kh.read(values).with_covariates(columns=column)
    plan = kh.select(signals, 1, method="variance", reconstructor="optimal_interpolation")
    other = 1 - int(plan.indices[0])
    assert plan.reconstructor.chosen["means"] == 1
    readings = values[:5, plan.indices]
    np.testing.assert_allclose(plan.reconstruct(readings, covariates=column[:5])[:, other], values[:5, other], atol=0.1)
    with pytest.raises(kh.errors.PlanError, match="0 columns, the plan has 1"):
        plan.reconstruct(readings)


def test_what_context_does_may_be_taken_over_from_other_sites():
    """Length and strength are chosen anew: for the same sites the outcome is the same."""
    data, sites = prepare(seasonal(600).with_covariates("year"), None, 0), np.array([0])
    parts = {"validation": data.validation, "run": Run()}
    first = OptimalInterpolation().fit(data.train, sites, **parts)
    assert first.chosen["share"] > 0
    given = {name: first.chosen[name] for name in ("share", "means")}
    assert OptimalInterpolation(**given).fit(data.train, sites, **parts).chosen == first.chosen
    other = OptimalInterpolation(**given).fit(data.train, np.array([1]), **parts)
    assert other.chosen["share"] == first.chosen["share"]
    assert other.chosen["strength"] != first.chosen["strength"]
