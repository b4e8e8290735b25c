"""The embedded water network and the physics of the script that made it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from keyhole.data import datasets
from keyhole.data.graph_metric import GraphMetric

# Heads in feet at midnight that EPANET 2.0.12 reports for the file as it is.
REPORTED = {
    "10": 145.52, "15": 125.81, "20": 158.00, "35": 145.74, "40": 145.00, "50": 140.00, "60": 209.01, "601": 302.45,
    "61": 302.45, "101": 145.52, "103": 145.49, "105": 146.83, "107": 146.82, "109": 145.49, "111": 146.11,
}  # fmt: skip


@pytest.fixture(scope="module")
def script():
    path = Path(__file__).parents[2] / "scripts" / "make_water.py"
    found = importlib.util.spec_from_file_location("make_water", path)
    module = importlib.util.module_from_spec(found)
    sys.modules["make_water"] = module
    found.loader.exec_module(module)
    yield module
    del sys.modules["make_water"]


@pytest.fixture(scope="module")
def midnight(script):
    """Heads and flows of the file's own demands, with the pump at the lake and the bypass closed."""
    network = script.load()
    is_open = ~np.isin(network.links, ["10", "330"])
    guess = np.ones(len(network.links))
    return network, *script.solve(network, network.demand[:, 0], network.heads, is_open, guess)


def test_heads_are_those_of_epanet(midnight):
    network, heads, _ = midnight
    found = {name: heads[network.nodes.index(name)] for name in REPORTED}
    assert found == pytest.approx(REPORTED, abs=0.01)


def test_what_flows_in_is_what_flows_out_and_what_is_used(midnight):
    network, _, flows = midnight
    balance = (network.incidence @ flows)[: network.junctions]
    np.testing.assert_allclose(balance, network.demand[:, 0], atol=1e-6)


def test_lake_water_is_neither_made_nor_lost(script, midnight):
    """In one step: what tanks and pipes hold, and what was used, is what was there and what came from the lake."""
    network, _, flows = midnight
    flows = flows.copy()
    parts = script.Volumes.of(network)
    rng = np.random.default_rng(0)
    share = rng.uniform(0, 100, len(network.nodes) + parts.count.sum())
    tanks = network.area * (network.heads[: network.tanks] - network.bottom)
    system, held = parts.step(flows, tanks)
    after = system.solve(held * share)
    assert after.min() >= 0
    assert after.max() <= 100
    stored = slice(len(network.nodes), None)
    volume = np.repeat(parts.volume, parts.count)
    sources = slice(network.junctions + network.tanks, len(network.nodes))
    came = -(network.incidence @ flows)[sources] @ after[sources]
    used = network.demand[:, 0] @ after[: network.junctions]
    tank = slice(network.junctions, network.junctions + network.tanks)
    into = (network.incidence @ flows)[tank]
    gained = (tanks + script.TIME_STEP * into) @ after[tank] - tanks @ share[tank]
    gained += volume @ (after[stored] - share[stored])
    assert gained == pytest.approx(script.TIME_STEP * (came - used), rel=1e-6)


def test_the_embedded_values_are_what_the_script_makes(script):
    network = script.load()
    made = np.round(script.simulate(network) / script.STEP)
    embedded = datasets.water_network()
    np.testing.assert_allclose(made * script.STEP, embedded.share, atol=script.STEP)
    assert tuple(embedded.nodes.index) == network.nodes


def test_shares_are_per_cent_and_hourly():
    samples = datasets.water()
    assert (len(samples), samples.channels, samples.sites.shape) == (480, 1, (95,))
    assert samples.values.min() == 0
    assert samples.values.max() == 100
    assert (np.diff(samples.time) == np.timedelta64(1, "h")).all()
    assert (samples.origin.name, samples.origin.units) == ("lake water", "%")
    assert len(samples.split.test) == 96


def test_distances_are_along_the_pipes():
    """Pipe 101 from junction 10 to 101 is 14200 feet long; river and lake connect though they are no sites."""
    sites = datasets.water().sites
    assert isinstance(sites.metric, GraphMetric)
    ends = [sites.names.index(name) for name in ("10", "101")]
    assert sites.metric.distances(ends[0], ends[1])[0, 0] == pytest.approx(14200 * 0.3048, rel=1e-5)
    assert sites.metric.adjacency().shape == (97, 97)
