"""How often a site would be selected again."""

from __future__ import annotations

import numpy as np
import pytest

import keyhole as kh
from example_data import quick
from keyhole.placement.stability import stability


def of(values: np.ndarray, sites: list[int], **rules) -> np.ndarray:
    samples = kh.read(values.astype(np.float32))
    samples = samples.with_constraints(rules) if rules else samples
    return stability(samples.as_scaled(), np.array(sites))


def test_sites_that_stand_out_are_stable_and_equals_are_not(rng):
    """Two sites have by far the most variance; the third of K is one of ten that are alike."""
    values = rng.normal(size=(200, 12)) * np.r_[9.0, 7.0, np.ones(10)]
    found = of(values, [0, 1, 5])
    np.testing.assert_array_equal(found[:2], 1)
    assert found[2] < 0.5


def test_a_site_is_as_stable_as_its_copies(rng):
    """Whichever of three nearly equal sites is selected."""
    cause = rng.normal(size=(200, 1))
    copies = 5 * cause + 0.3 * rng.normal(size=(200, 3))
    found = [of(np.column_stack([copies, rng.normal(size=(200, 5))]), [site]) for site in range(3)]
    assert found == [1, 1, 1]


def test_memory_makes_sites_less_stable(rng):
    """A few slow swings decide which of ten equal sites varied most; as independent samples they would seem many."""
    walk = rng.normal(size=(300, 10)).cumsum(axis=0)
    best = int(walk.var(axis=0).argmax())
    samples = kh.read(walk.astype(np.float32))
    series, independent = (
        stability(kh.data.preparation.prepare(samples, split, 0).development, np.array([best]))[0]
        for split in ("blocks", "random")
    )
    assert series <= independent


def test_constraints_hold_in_the_resampled_selections(rng):
    """The second most variable site is beside the first: it is never selected with it."""
    values = rng.normal(size=(200, 8)) * [9.0, 7.0, 1, 1, 1, 5.0, 1, 1]
    free, apart = of(values, [0, 5]), of(values, [0, 5], min_distance=3)
    assert free[1] < 0.5
    np.testing.assert_array_equal(apart, 1)


def test_existing_sites_have_none_and_count_as_observed(rng):
    cause = rng.normal(size=(200, 1))
    values = np.column_stack([9 * cause + 0.1 * rng.normal(size=(200, 3)), rng.normal(size=(200, 3)) * [3.0, 2.0, 1.0]])
    found = of(values, [0, 3], existing=[0])
    assert np.isnan(found[0])
    assert found[1] == 1


def test_groups_targets_and_stored_values_have_none(rng):
    values = rng.normal(size=(60, 4))
    assert np.isnan(of(values, [0, 1], groups=[0, 0, 1, 1])).all()
    target = kh.data.target.Target.of(values[:, 0])
    assert np.isnan(stability(kh.read(values).with_target(target).as_scaled(), np.array([0]))).all()


def test_a_plan_keeps_it(tmp_path, rng):
    plan = quick(rng.normal(size=(80, 6)) * [9, 1, 1, 1, 1, 1], k=2)
    plan.save(tmp_path / "plan.keyhole")
    again = kh.load(tmp_path / "plan.keyhole")
    np.testing.assert_array_equal(again.sites["stability"], plan.sites["stability"])
    assert plan.sites["stability"].between(0, 1).all()


@pytest.mark.parametrize("channels", [1, 2])
def test_all_samples_give_the_greedy_sites(channels, rng):
    """The search is that of greedy selection: sites it selects from ever more samples are stable."""
    factors = rng.normal(size=(3000, 4)) * [8, 4, 2, 1]
    values = factors @ rng.normal(size=(4, 9 * channels)) + 0.05 * rng.normal(size=(3000, 9 * channels))
    samples = kh.read(values.reshape(3000, channels, 9).astype(np.float32), channels=1).as_scaled()
    from keyhole.core.run import Run
    from keyhole.placement import SELECTORS

    sites = SELECTORS["greedy"]().select(samples, 2, validation=None, run=Run()).sites
    found = stability(samples, sites)
    assert found.min() > 0.7


@pytest.mark.parametrize("channels", [1, 2])
def test_nothing_is_left_to_explain(channels, rng):
    """All sites are selected, copies and constant ones among them: no warning of rounding."""
    values = np.repeat(rng.normal(size=(60, channels, 3)), 2, axis=2)
    values[:, :, 5] = 1.0
    samples = kh.read(values.astype(np.float32), channels=1).as_scaled()
    found = stability(samples, np.arange(6))
    assert ((found >= 0) & (found <= 1)).all()
