"""Selection among sensors that are not one at each site: positions, kinds of instruments, and their costs."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest

import keyhole as kh
from example_data import monthly_field, smooth
from keyhole.core.run import Run
from keyhole.data import Sensors
from keyhole.data.constraints import PlacementRules
from keyhole.data.scaled_samples import ScaledSamples
from keyhole.errors import InfeasibleError, SettingsError
from keyhole.placement import SELECTORS
from keyhole.placement.low_rank_covariance import LowRankCovariance
from keyhole.placement.posterior_covariance import Covariance, PosteriorCovariance

ABLE = [name for name in SELECTORS if SELECTORS[name]().takes_sensors]
FOR_A_TARGET = ("relevance", "forest")
BETWEEN = Sensors.at({"row": [0.5, 2.0, 1.3, 3.0, 0.1], "column": [0.5, 3.0, 2.6, 1.0, 3.9]}, noise=[0.1, 0, 0.5, 0, 1])


def chain(n: int = 3000, m: int = 5) -> np.ndarray:
    """Samples of a chain of cells, correlated with their neighbours."""
    covariance = np.exp(-np.abs(np.subtract.outer(np.arange(m), np.arange(m))) / 2)
    return np.random.default_rng(0).normal(size=(n, m)) @ np.linalg.cholesky(covariance).T


def unexplained(covariance: np.ndarray, rows: np.ndarray, noise: np.ndarray) -> float:
    """Trace of the posterior covariance given readings ``rows @ x`` with noise variances."""
    cross = covariance @ rows.T
    return float(np.trace(covariance) - np.trace(cross @ np.linalg.solve(rows @ cross + np.diag(noise), cross.T)))


# As on sites where sensors are at sites -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["greedy", "qr", "exchange", "variance", "kernel_exchange", "auto"])
@pytest.mark.parametrize("how", ["every site", "linear", "nearest"])
def test_sensors_on_cells_are_selected_as_sites_are(method, how):
    field = monthly_field(80)  # with noise at each site: without it rounding decides on the strength of regularisation
    samples = kh.read(field + 0.1 * np.random.default_rng(1).normal(size=field.shape)).anomalies("month")
    columns = {name: samples.sites.coordinate(name) for name in samples.sites.location}
    sensors = Sensors.every_site() if how == "every site" else Sensors.at(columns, interpolation=how)
    options: Any = {"k": 3, "method": method, "reconstructor": "optimal_interpolation", "settings": {}}
    if method == "auto":
        options["settings"] = {"stages": "greedy,qr,exchange,kernel_exchange"}
    usual, other = kh.select(samples, **options), kh.select(samples, sensors=sensors, **options)
    np.testing.assert_array_equal(usual.numbers, other.numbers)
    for part, scores in usual.metrics.items():
        assert other.metrics[part] == pytest.approx(scores, rel=2e-5), part
    np.testing.assert_allclose(usual.gain, other.gain, atol=1e-7)


def test_with_noise_and_weights_too():
    """The noise of the data is that of sensors which have none of their own, with the same draws."""
    samples = kh.read(smooth(80, 4, 5)).with_weights({"row": (0, 2)}).with_noise(0.2)
    usual = kh.select(samples, 3, method="exchange", reconstructor="ridge")
    other = kh.select(samples, 3, method="exchange", reconstructor="ridge", sensors=Sensors.every_site())
    np.testing.assert_array_equal(usual.indices, other.indices)
    assert other.metrics["test"] == pytest.approx(usual.metrics["test"], rel=2e-5)


# Gains against the definition -----------------------------------------------------------------------------------------


def observed(sensors: Any, weights: Any = None) -> tuple[ScaledSamples, np.ndarray, np.ndarray, np.ndarray]:
    """Samples, the covariance of their targets, rows of the sensors over targets, and variances of their noise."""
    samples = kh.read(np.random.default_rng(2).normal(size=(60, 4, 5)) + 2 * smooth(60, 4, 5))
    samples = samples if weights is None else samples.with_weights(weights)
    scaled = samples.with_sensors(sensors).as_scaled()
    targets = scaled.targets.reshape(60, -1).astype(np.float64)
    root = np.ones(20) if scaled.root is None else scaled.root
    rows = scaled.sensors.operator.toarray() / root
    return scaled, np.cov(targets.T, bias=True), rows, np.square(scaled.sensors.noise_of(None))


@pytest.mark.parametrize("weights", [None, {"row": (0, 1)}])
def test_gains_of_greedy_are_those_of_the_gaussian(weights):
    scaled, covariance, rows, noise = observed(BETWEEN, weights)
    explained = LowRankCovariance.of(scaled, 60).explained()  # all components: nothing is left unresolved
    chosen = list[int]()
    for step in (3, 0, 2):
        before = unexplained(covariance, rows[chosen], noise[chosen])
        others = [number for number in range(5) if number not in chosen]
        gains = [before - unexplained(covariance, rows[[*chosen, j]], noise[[*chosen, j]]) for j in others]
        np.testing.assert_allclose(explained.gains()[others], gains, rtol=1e-3)
        explained.observe(step)
        chosen.append(step)


@pytest.mark.parametrize("order", [(4, 24, 5), (24, 4, 25), (7, 40, 41)])
def test_what_components_leave_is_conditioned_on_too(order):
    """Two sensors in a cell, or with a corner in common, share what the components do not resolve."""
    between = Sensors.at({"row": [1.5, 1.0], "column": [2.5, 2.2]}, noise=0.4, kind="between")
    kinds = [Sensors.every_site(noise=0.5), Sensors.every_site(noise=0.3), between]
    scaled, _, rows, noise = observed(kinds)
    covariance = LowRankCovariance.of(scaled, 3)
    explained = covariance.explained()
    basis = covariance.basis.reshape(20, 3).astype(float)
    whole = (basis * covariance.variances) @ basis.T
    beyond = scaled.targets[:, 0].var(axis=0) - np.diag(whole)
    assert beyond.min() > 0.5
    whole += np.diag(beyond)
    chosen = list[int]()
    for number in order:
        before = unexplained(whole, rows[chosen], noise[chosen])
        gains = [before - unexplained(whole, rows[[*chosen, j]], noise[[*chosen, j]]) for j in range(42)]
        np.testing.assert_allclose(explained.gains(), gains, rtol=1e-3, atol=1e-3)
        explained.observe(number)
        chosen.append(number)


@pytest.mark.parametrize("weights", [None, {"row": (0, 1)}])
def test_gains_of_the_exchange_are_those_of_the_gaussian(weights):
    scaled, covariance, rows, noise = observed(BETWEEN, weights)
    posterior = PosteriorCovariance(Covariance.of(scaled, np.inf, 0.05, np.random.default_rng(0)))
    added = posterior.covariance.noise[:, 0]
    readings = np.diag(rows @ covariance @ rows.T)
    np.testing.assert_allclose(added, noise + 0.05 * readings.mean(), rtol=1e-4)
    for number in (3, 0, 2):
        chosen = list(posterior.selected)
        before = unexplained(covariance, rows[chosen], added[chosen])
        gain = before - unexplained(covariance, rows[[*chosen, number]], added[[*chosen, number]])
        assert posterior.gains()[number] == pytest.approx(gain, rel=1e-3)
        posterior.add(number)
    assert posterior.explained() == pytest.approx(
        np.trace(covariance) - unexplained(covariance, rows[[3, 0, 2]], added[[3, 0, 2]]), rel=1e-4
    )


# Two kinds of instruments -------------------------------------------------------------------------------------------

KINDS = {"cheap": Sensors.every_site(noise=1.0, cost=1.0), "dear": Sensors.every_site(noise=0.1, cost=3.0)}
NOISE, COST = np.repeat([1.0, 0.01], 5), np.repeat([1.0, 3.0], 5)


@pytest.mark.parametrize(("k", "limit"), [(None, 6.0), (3, 7.0), (4, 8.0), (2, None), (5, 15.0)])
def test_cheap_or_dear_as_brute_force_says(k, limit):
    values = chain()
    covariance, rows = np.cov(values.T), np.vstack([np.eye(5), np.eye(5)])

    def error(chosen: Any) -> float:
        return unexplained(covariance, rows[list(chosen)], NOISE[list(chosen)])

    sets = (chosen for count in ([k] if k else range(1, 7)) for chosen in combinations(range(10), count))
    best = min(error(chosen) for chosen in sets if limit is None or COST[list(chosen)].sum() <= limit)
    constraints = None if limit is None else {"cost_limit": limit}
    plan = kh.select(
        values, k, sensors=KINDS, constraints=constraints, method="exchange", reconstructor="ridge", split="random"
    )
    assert error(plan.indices) <= 1.01 * best
    assert limit is None or plan.sites["cost"].sum() <= limit
    assert k is None or len(set(plan.indices.tolist())) == plan.k == k


@pytest.mark.parametrize("method", [name for name in ABLE if name not in FOR_A_TARGET])
def test_every_selector_that_takes_sensors_keeps_k_and_the_limit(method):
    plan = kh.select(
        smooth(60, 3, 4), 4, sensors=KINDS, constraints={"cost_limit": 8}, method=method, reconstructor="ridge"
    )
    assert plan.k == len(set(plan.indices.tolist())) == 4
    assert plan.sites["cost"].sum() <= 8
    assert set(plan.sites["kind"]) <= {"cheap", "dear"}


@pytest.mark.parametrize("method", FOR_A_TARGET)
def test_for_a_target_the_good_instruments_are_taken(method):
    table = pd.DataFrame(smooth(300, 5), columns=list("abcde"))
    table["sum"] = table["a"] + table["c"]
    kinds = {"noisy": Sensors.every_site(noise=3.0), "good": Sensors.every_site(noise=0.01)}
    plan = kh.select(table, 2, target="sum", sensors=kinds, method=method, predictor="linear")
    assert set(plan.sites["kind"]) == {"good"}


@pytest.mark.parametrize("method", ["learned", "lasso", "cae", "laplacian"])
def test_other_selectors_say_what_they_need(method):
    with pytest.raises(SettingsError, match="needs a sensor at each site"):
        kh.select(smooth(40, 4, 5), 2, sensors=BETWEEN, method=method)


# Constraints ----------------------------------------------------------------------------------------------------------


def test_constraints_are_about_the_sensors():
    field = kh.datasets.sst()
    moorings = Sensors.at(
        {"lat": [0.0, 1.0, 40.0, -30.0], "lon": [180.0, 181.0, 190.0, 200.0]}, names=list("abcd"), noise=0.1
    )
    options: Any = {"sensors": moorings, "method": "greedy", "reconstructor": "ridge"}
    apart = kh.select(field, 3, constraints={"min_distance": 500}, **options)
    assert not {"a", "b"} <= set(apart.names)
    north = kh.select(field, 3, constraints={"allowed": {"lat": (-1, 90)}}, **options)
    assert set(north.names) == {"a", "b", "c"}
    kept = kh.select(field, 1, constraints={"existing": ["d"]}, **options)
    assert kept.names[0] == "d"
    assert kept.sites["existing"].tolist() == [True, False]
    with pytest.raises(InfeasibleError, match="without min_distance"):
        kh.select(field, 4, constraints={"min_distance": 500}, **options)


def test_two_sensors_in_one_place_are_told_apart_by_name():
    samples = kh.datasets.sst().with_sensors({"old": Sensors.every_site(noise=1.0), "new": Sensors.every_site()})
    first = kh.select(samples, 2, method="greedy", reconstructor="ridge")
    again = samples.with_constraints({"existing": first.sites})
    assert [again.sensors.names[number] for number in again.existing] == first.names


@pytest.mark.parametrize(
    ("sensors", "constraints", "said"),
    [
        (BETWEEN, {"cost_limit": 3}, "has no cost"),
        (KINDS, {"cost_limit": 3, "costs": 1.0}, "one place"),
        (BETWEEN, {"groups": [0, 0, 1, 1, 1]}, "sensors cannot"),
        (BETWEEN, {"existing": ["nobody"]}, "nobody"),
    ],
)
def test_constraints_that_do_not_fit_sensors_are_refused(sensors, constraints, said):
    with pytest.raises(SettingsError, match=said):
        kh.select(
            smooth(40, 4, 5), None if "cost_limit" in constraints else 2, sensors=sensors, constraints=constraints
        )


def test_the_next_sensor_leaves_enough_for_the_cheapest_others():
    """A candidate is feasible exactly if some completion to K candidates is within the limit."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        costs, k = rng.integers(1, 6, 7).astype(float), int(rng.integers(1, 5))
        limit = float(rng.integers(k, 4 * k + 1))
        feasible = PlacementRules(7, costs=costs, limit=limit, count=k).feasible_set(np.ones(7, bool))
        while len(feasible.selected) < k:
            spent = feasible.selected
            rest = [one for one in range(7) if one not in spent]
            possible = {
                first
                for others in combinations(rest, k - len(spent))
                if costs[[*spent, *others]].sum() <= limit
                for first in others
            }
            assert set(np.flatnonzero(feasible.mask)) == possible
            if not possible:
                break
            feasible.add(int(rng.choice(sorted(possible))))


# The rest of the house ------------------------------------------------------------------------------------------------


def test_failures_are_hardened_against():
    plan = kh.select(smooth(80, 4, 5), 3, sensors=BETWEEN, method="greedy", reconstructor="ridge", failures=1)
    notes = plan.metadata["notes"]
    assert notes["unexplained_after"] <= notes["unexplained_before"] + 1e-9
    assert set(notes["worst"]) <= set(plan.indices.tolist())


def test_unavailable_sensors_are_avoided():
    kinds = {"rarely": Sensors.every_site(availability=0.2), "noisy": Sensors.every_site(noise=0.3)}
    plan = kh.select(smooth(80, 4, 5), 2, sensors=kinds, method="greedy", reconstructor="ridge")
    assert set(plan.sites["kind"]) == {"noisy"}


def test_missing_values_and_sensors_go_together():
    values = smooth(200, 4, 5)
    values[np.random.default_rng(0).random(values.shape) < 0.02] = np.nan
    plan = kh.select(values, 3, sensors=BETWEEN, method="exchange", reconstructor="ridge", missing="model")
    assert plan.metrics["test"]["fvu"] < 0.3


def test_fields_of_several_channels_are_observed_by_sensors_of_one():
    values = smooth(100, 4, 5, 2)
    values[..., 1] *= 100
    samples = kh.read(values, channels=-1)
    kinds = {"u": Sensors.every_site(variable=0), "v": Sensors.every_site(variable=1)}
    plan = kh.select(samples, 3, sensors=kinds, method="greedy", reconstructor="ridge")
    assert plan.metrics["test"]["fvu"] < 0.01
    assert plan.reconstruct(values[:2].transpose(0, 3, 1, 2).reshape(2, -1)[:, plan.indices]).shape == (2, 4, 5, 2)
    with pytest.raises(SettingsError, match="all 2 channels"):
        kh.select(samples, 3, sensors=kinds, method="greedy", reconstructor="dense")


def test_networks_are_trained_on_readings_between_cells():
    train = {"steps": 5, "validation_steps": 5, "batch_size": 16}
    for name in ("dense", "dense_conv", "residual"):
        from keyhole.models.reconstructors import RECONSTRUCTORS

        made = RECONSTRUCTORS[name](width=8, train=train)
        plan = kh.select(smooth(60, 4, 5), 2, sensors=BETWEEN, method="greedy", reconstructor=made)
        assert plan.reconstruct([[0.1, 0.2]]).shape == (1, 4, 5)
    with pytest.raises(SettingsError, match="placed on the grid"):
        kh.select(smooth(60, 4, 5), 2, sensors=BETWEEN, method="greedy", reconstructor="resnet")


def test_workflows_take_samples_with_sensors():
    samples = kh.read(smooth(80, 4, 5)).with_sensors(BETWEEN)
    compared = kh.compare(samples, 2, ["greedy", "qr", "random"])
    assert all(entry.plan.sensors is not None for entry in compared.entries)
    curve = kh.curve(samples, [1, 2, 3], ["greedy", "exchange"])
    assert len(curve.rows) == 6


def test_a_ranking_among_sensors_is_the_same_twice():
    run = Run()
    samples = kh.read(smooth(80, 4, 5)).with_sensors(BETWEEN).as_scaled()
    found = [SELECTORS["greedy"]().select(samples, 4, validation=None, run=run).sites.tolist() for _ in range(2)]
    assert found[0] == found[1]
