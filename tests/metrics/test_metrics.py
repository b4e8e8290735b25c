"""Metrics against a straightforward computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhole.data.sites import Sites
from keyhole.metrics import evaluate, sharpness, squared_error_map


def globe(rows: int, columns: int, valid: np.ndarray | None = None) -> Sites:
    axes = {"lat": 50.0 - 20.0 * np.arange(rows), "lon": np.arange(columns) * 10.0}
    return Sites.build((rows, columns), ("lat", "lon"), axes, valid=valid)


def by_hand(truth, reconstructed, expected, sites) -> dict[str, float]:
    """The same figures, site by site."""
    error = spread = area_error = area_spread = area = 0.0
    count = 0
    for site in range(len(sites)):
        weight = math.cos(math.radians(float(sites.position(site)["lat"])))
        for n in range(truth.shape[0]):
            for c in range(truth.shape[1]):
                where = (n, c, site)
                e, s = (truth[where] - reconstructed[where]) ** 2, (truth[where] - expected[where]) ** 2
                error, spread, count = error + e, spread + s, count + 1
                area_error, area_spread, area = area_error + weight * e, area_spread + weight * s, area + weight
    return {
        "mse": error / count,
        "rmse": math.sqrt(error / count),
        "fvu": error / spread,
        "rmse_area": math.sqrt(area_error / area),
        "fvu_area": area_error / area_spread,
    }


@given(
    seed=st.integers(0, 1000),
    samples=st.integers(1, 4),
    channels=st.integers(1, 2),
    rows=st.integers(1, 4),
    columns=st.integers(1, 4),
)
def test_every_figure_is_what_it_says(seed, samples, channels, rows, columns):
    rng = np.random.default_rng(seed)
    valid = rng.random((rows, columns)) < 0.7
    valid.flat[rng.integers(valid.size)] = True
    sites = globe(rows, columns, valid)
    truth, reconstructed, expected = rng.normal(size=(3, samples, channels, len(sites)))
    scores = evaluate(truth, reconstructed, expected, sites)
    assert scores == pytest.approx(by_hand(truth, reconstructed, expected, sites), rel=1e-9)


def test_channels_of_different_units_are_standardised_before_they_are_pooled(rng):
    """By hand: each error over its channel's scale; and each channel in its own units."""
    truth, reconstructed, expected = rng.normal(size=(3, 4, 2, 6)) * np.array([[1.0], [1e5]])
    scale, sites = np.array([2.0, 5e4]), Sites.plain((2, 3))
    scores = evaluate(truth, reconstructed, expected, sites, scale=scale, names=("t", "p"))
    error, spread = np.square(truth - reconstructed), np.square(truth - expected)
    column = np.square(scale)[:, None]
    assert scores["mse"] == pytest.approx((error / column).mean())
    assert scores["rmse"] == pytest.approx((error / column).mean() ** 0.5)
    assert scores["fvu"] == pytest.approx((error / column).sum() / (spread / column).sum())
    for channel, name in enumerate(("t", "p")):
        assert scores[f"rmse[{name}]"] == pytest.approx(error[:, channel].mean() ** 0.5)
        assert scores[f"fvu[{name}]"] == pytest.approx(error[:, channel].sum() / spread[:, channel].sum())
    plain = evaluate(truth, reconstructed, expected, sites, names=("t", "p"))
    assert plain["rmse"] == pytest.approx(error.mean() ** 0.5)


def test_no_area_figures_without_latitude(rng):
    truth, reconstructed, expected = rng.normal(size=(3, 4, 1, 6))
    assert set(evaluate(truth, reconstructed, expected, Sites.plain((2, 3)))) == {"mse", "rmse", "fvu"}


def test_perfect_is_0_and_what_is_known_anyway_is_1(rng):
    truth, expected = rng.normal(size=(2, 4, 1, 3))
    sites = Sites.plain((3,))
    assert evaluate(truth, truth, expected, sites) == {"mse": 0, "rmse": 0, "fvu": 0}
    assert evaluate(truth, expected, expected, sites)["fvu"] == 1


def test_nothing_to_explain_gives_nan_and_no_warning():
    still = np.ones((2, 1, 3))
    assert math.isnan(evaluate(still, still + 1, still, Sites.plain((3,)))["fvu"])


def test_a_value_that_was_not_reconstructed_spoils_every_figure(rng):
    """NaN inside is a failure of the reconstructor; it must not count as no error."""
    truth, reconstructed, expected = rng.normal(size=(3, 4, 1, 6))
    reconstructed[1, 0, 2] = np.nan
    scores = evaluate(truth, reconstructed, expected, globe(2, 3))
    assert np.isnan(list(scores.values())).all()


def test_single_precision_is_summed_in_double(rng):
    truth = (1e4 + rng.normal(size=(500, 1, 3))).astype(np.float32)
    reconstructed = (1e4 + rng.normal(size=(500, 1, 3))).astype(np.float32)
    exact = np.square(truth.astype(float) - reconstructed).mean()
    assert evaluate(truth, reconstructed, truth + 1, Sites.plain((3,)))["mse"] == pytest.approx(exact, rel=1e-12)


def test_the_error_map_is_over_known_values_and_nan_where_there_are_none(rng):
    truth, reconstructed = rng.normal(size=(2, 5, 2, 3))
    truth[:, :, 1] = truth[:3, 0, 2] = np.nan
    shown = squared_error_map(truth, reconstructed)
    expected = np.nanmean(np.square(truth - reconstructed)[:, :, [0, 2]], axis=(0, 1))
    np.testing.assert_allclose(shown[[0, 2]], expected)
    assert np.isnan(shown[1])


@pytest.mark.parametrize("wrong", [(5, 1, 3), (4, 2, 3), (4, 1, 1)])
def test_shapes_that_differ_are_not_compared(rng, wrong):
    """Broadcasting would give a figure for things that do not match."""
    truth = rng.normal(size=(4, 1, 3))
    with pytest.raises(ValueError, match="shape"):
        squared_error_map(truth, np.zeros(wrong))


def steps_by_hand(x: np.ndarray) -> float:
    """Mean absolute step along each axis of the grid, summed over the axes, cell by cell."""
    total = 0.0
    for axis in range(2, x.ndim):
        steps = []
        for place in np.ndindex(x.shape):
            if place[axis] + 1 < x.shape[axis]:
                following = tuple(i + (a == axis) for a, i in enumerate(place))
                steps.append(abs(x[following] - x[place]))
        total += sum(steps) / len(steps)
    return total


@given(seed=st.integers(0, 1000), grid=st.lists(st.integers(2, 4), min_size=1, max_size=3))
def test_sharpness_is_the_ratio_of_steps_between_neighbours(seed, grid):
    """Along the grid's axes alone: neither samples nor channels are neighbours."""
    truth, reconstructed = np.random.default_rng(seed).normal(size=(2, 3, 2, *grid))
    expected = steps_by_hand(reconstructed) / steps_by_hand(truth)
    assert sharpness(truth, reconstructed) == pytest.approx(expected, rel=1e-9)


def test_sharpness_of_slopes():
    """Slopes 1 and 3 where the truth has 2 and 1: (1 + 3) / (2 + 1), whatever the shape and where they start."""
    rows, columns = np.meshgrid(np.arange(3.0), np.arange(5.0), indexing="ij")
    truth, reconstructed = 2 * rows - columns, 100 - rows + 3 * columns
    assert sharpness(truth[None, None], reconstructed[None, None]) == pytest.approx(4 / 3)


def test_what_is_blurred_is_less_sharp_and_what_is_flat_is_not_at_all(rng):
    truth = rng.normal(size=(4, 1, 6, 6))
    blurred = (truth + np.roll(truth, 1, axis=2) + np.roll(truth, 1, axis=3)) / 3
    assert sharpness(truth, truth) == 1
    assert sharpness(truth, 2 * truth) == pytest.approx(2)
    assert 0.3 < sharpness(truth, blurred) < 0.9
    assert sharpness(truth, np.ones_like(truth)) == 0
