"""Make the embedded water network: where the water of each junction comes from, hour by hour for twenty days.

    python scripts/make_water.py src/keyhole/data/water.npz

Network: ``scripts/net3.inp``, example network 3 of EPANET, a program of the United States Environmental Protection
Agency (public domain; this copy is from github.com/OpenWaterAnalytics/EPANET, MIT licence). It follows the system of
the North Marin Water District, California: 92 junctions, 3 tanks, a river, a lake, 117 pipes and 2 pumps, with
demands and their patterns over a day.

Flow, at each full hour: what flows into a junction less what flows out of it is its demand; along a pipe the head
falls by the formula of Hazen and Williams, `h = 4.727 L C^-1.852 d^-4.871 q^1.852` in feet and cubic feet per second;
a pump adds `h0 - B q^C`, through the three points of its curve. Newton's method solves for heads and flows together
(Todini and Pilati, 1988). In the hour the tanks fill or empty by these flows. The controls of the file hold: pump 10
runs from 1 to 15 o'clock, pump 335 by the level of tank 1.

Demand of a junction: its base demand, by the pattern of the hour, by a factor of the day for all junctions
(log-normal, 15 %), by a factor of its own (log-normal, 40 %, autocorrelation 0.8 from hour to hour).

Transport: the share of lake water moves with the flow through sections of pipe of at most 200 feet, in steps of a
minute, by the implicit upwind scheme; it mixes completely in junctions and tanks. The first five days are left out.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

SOURCE = Path(__file__).parent / "net3.inp"
DAYS, BEFORE, SEED = 20, 5, 0
HOUR, TIME_STEP, SECTION = 3600.0, 60.0, 200.0  # seconds, and feet
OF_THE_DAY, OF_A_JUNCTION, AUTOCORRELATION = 0.15, 0.40, 0.8
STEP = 0.5  # per cent, of the stored values
FOOT, FLOW = 0.3048, 0.002228  # metres; cubic feet per second in a gallon per minute
CLOSED = 1e8  # head that a unit of flow through a closed link would cost

Numbers = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Network:
    """Nodes and links in feet and cubic feet per second; junctions first, then tanks, then reservoirs."""

    nodes: tuple[str, ...]
    junctions: int
    tanks: int
    heads: Numbers  # (tanks + reservoirs,), at the start
    bottom: Numbers  # (tanks,), and their levels and areas
    least: Numbers
    most: Numbers
    area: Numbers
    demand: Numbers  # (junctions, 24)
    positions: Numbers  # (nodes, 2)
    links: tuple[str, ...]
    ends: NDArray[np.int64]  # (links, 2)
    length: Numbers  # of pipes, 0 of pumps
    bore: Numbers  # area of their cross-section
    resistance: Numbers  # of pipes
    pump: Numbers  # (links, 3): h0, B, C; 0 of pipes

    @property
    def incidence(self) -> Numbers:
        """1 where a link ends, -1 where it begins, (nodes, links)."""
        matrix = np.zeros((len(self.nodes), len(self.links)))
        matrix[self.ends[:, 0], np.arange(len(self.links))] = -1
        matrix[self.ends[:, 1], np.arange(len(self.links))] = 1
        return matrix


def sections(path: Path) -> dict[str, list[list[str]]]:
    """The lines of each section of an EPANET file, as words."""
    found: dict[str, list[list[str]]] = {}
    for line in path.read_text().splitlines():
        words = line.split(";")[0].split()
        if words and words[0].startswith("["):
            rows = found.setdefault(words[0].strip("[]"), [])
        elif words:
            rows.append(words)
    return found


def load(path: Path = SOURCE) -> Network:
    """Read the network."""
    file = sections(path)
    junctions, tanks, reservoirs = file["JUNCTIONS"], file["TANKS"], file["RESERVOIRS"]
    nodes = tuple(row[0] for row in (*junctions, *tanks, *reservoirs))
    number = {name: place for place, name in enumerate(nodes)}
    places = {row[0]: row[1:] for row in file["COORDINATES"]}
    pipes, pumps = file["PIPES"], file["PUMPS"]
    bottom, first, least, most, across = np.array([[float(word) for word in row[1:6]] for row in tanks]).T
    length, inches, rough = np.array([[float(word) for word in row[3:6]] for row in pipes]).T
    loss = 4.727 * length * rough**-1.852 * (inches / 12) ** -4.871
    none = np.zeros(len(pumps))
    return Network(
        nodes, len(junctions), len(tanks),
        np.concatenate([bottom + first, [float(row[1]) for row in reservoirs]]), bottom, least, most,
        np.pi / 4 * across**2, _demands(file), np.array([[float(word) for word in places[name]] for name in nodes]),
        tuple(row[0] for row in (*pipes, *pumps)),
        np.array([[number[row[1]], number[row[2]]] for row in (*pipes, *pumps)]),
        np.concatenate([length, none]), np.concatenate([np.pi / 4 * (inches / 12) ** 2, none]),
        np.concatenate([loss, none]),
        np.concatenate([np.zeros((len(pipes), 3)), [_curve(file["CURVES"], row[4]) for row in pumps]]),
    )  # fmt: skip


def _demands(file: dict[str, list[list[str]]]) -> Numbers:
    """Demand of each junction at each hour of the day."""
    patterns: dict[str, list[float]] = {}
    for name, *values in file["PATTERNS"]:
        patterns.setdefault(name, []).extend(map(float, values))
    rows = [[float(row[2]) * np.array(patterns[row[3] if len(row) > 3 else "1"])] for row in file["JUNCTIONS"]]
    return FLOW * np.concatenate(rows)


def _curve(rows: list[list[str]], name: str) -> tuple[float, float, float]:
    """The pump curve `h0 - B q^C` through three points, of which the first is at flow 0."""
    (_, h0), (q1, h1), (q2, h2) = [(FLOW * float(row[1]), float(row[2])) for row in rows if row[0] == name]
    power = np.log((h0 - h2) / (h0 - h1)) / np.log(q2 / q1)
    return h0, (h0 - h1) / q1**power, power


def losses(network: Network, flows: Numbers, is_open: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """Fall of the head along each link, and its derivative by the flow."""
    size = np.maximum(np.abs(flows), 1e-6)
    fall, slope = network.resistance * size**0.852 * flows, 1.852 * network.resistance * size**0.852
    h0, factor, power = network.pump.T
    runs = (h0 > 0) & is_open
    forward = np.maximum(flows[runs], 1e-6)
    fall[runs] = factor[runs] * forward ** power[runs] - h0[runs]
    slope[runs] = factor[runs] * power[runs] * forward ** (power[runs] - 1)
    backward = runs & (flows < 0)  # a valve in the pump lets nothing back
    fall[backward] += CLOSED * flows[backward]
    slope[backward] = CLOSED
    return np.where(is_open, fall, CLOSED * flows), np.maximum(np.where(is_open, slope, CLOSED), 1e-6)


def solve(
    network: Network, demand: Numbers, fixed: Numbers, is_open: NDArray[np.bool_], flows: Numbers
) -> tuple[Numbers, Numbers]:
    """Heads of all nodes and flows of all links, from a guess of the flows."""
    matrix = network.incidence
    free, held = matrix[: network.junctions], matrix[network.junctions :]
    for _ in range(200):
        fall, slope = losses(network, flows, is_open)
        conductance = 1 / slope
        # Along a link: fall + slope * change = -(incidence' heads). At a junction: free (flows + change) = demand.
        right = flows - conductance * (fall + held.T @ fixed)
        heads = np.linalg.solve((free * conductance) @ free.T, free @ right - demand)
        change = right - conductance * (free.T @ heads) - flows
        flows = flows + change
        if np.abs(change).sum() < 1e-8 * max(np.abs(flows).sum(), 1):
            return np.concatenate([heads, fixed]), flows
    raise RuntimeError(f"no solution in 200 steps; the last changed the flows by {np.abs(change).sum():g}")


def factors(network: Network, hours: int, rng: np.random.Generator) -> Numbers:
    """Random factors of the demands, ``(hours, junctions)``, whose mean is 1."""
    of_the_day = np.repeat(np.exp(OF_THE_DAY * rng.normal(size=hours // 24) - OF_THE_DAY**2 / 2), 24)
    noise = rng.normal(size=(hours, network.junctions))
    for hour in range(1, hours):
        noise[hour] = AUTOCORRELATION * noise[hour - 1] + np.sqrt(1 - AUTOCORRELATION**2) * noise[hour]
    return of_the_day[:, np.newaxis] * np.exp(OF_A_JUNCTION * noise - OF_A_JUNCTION**2 / 2)


def flows_of(network: Network, days: int, seed: int) -> tuple[Numbers, Numbers]:
    """Flows of all links, ``(24 days, links)``, and volumes of the tanks at each hour."""
    factor = factors(network, 24 * days, np.random.default_rng(seed))
    link = {name: place for place, name in enumerate(network.links)}
    is_open, fixed, flows = np.ones(len(network.links), bool), network.heads.copy(), np.ones(len(network.links))
    is_open[link["330"]] = False
    incidence, found, volumes = network.incidence, [], []
    level, tank = fixed[: network.tanks], slice(network.junctions, network.junctions + network.tanks)
    for hour in range(24 * days):
        is_open[link["10"]] = 1 <= hour % 24 < 15
        if level[0] - network.bottom[0] < 17.1:
            is_open[[link["335"], link["330"]]] = True, False
        elif level[0] - network.bottom[0] > 19.1:
            is_open[[link["335"], link["330"]]] = False, True
        _, flows = solve(network, factor[hour] * network.demand[:, hour % 24], fixed, is_open, flows)
        found.append(flows)
        volumes.append(network.area * (level - network.bottom))
        level += HOUR * (incidence[tank] @ flows) / network.area
        np.clip(level, network.bottom + network.least, network.bottom + network.most, out=level)
    return np.array(found), np.array(volumes)


@dataclass(frozen=True, eq=False)
class Volumes:
    """Nodes, then the sections of all pipes one after the other: what holds water of one composition."""

    network: Network
    first: NDArray[np.int64]  # of each link: its first section, and how many it has
    count: NDArray[np.int64]
    volume: Numbers  # of each section of a link

    @classmethod
    def of(cls, network: Network) -> Volumes:
        """Cut pipes into sections; pumps hold nothing."""
        count = np.ceil(network.length / SECTION).astype(np.int64)
        first = len(network.nodes) + np.cumsum(count) - count
        return cls(network, first, count, network.bore * network.length / np.maximum(count, 1))

    def chains(self, flows: Numbers) -> tuple[NDArray[np.int64], ...]:
        """Upstream, downstream and flow of every passage between two of them."""
        up, down, through = [], [], []
        for link, (flow, ends) in enumerate(zip(flows, self.network.ends, strict=True)):
            sections = self.first[link] + np.arange(self.count[link])
            chain = np.concatenate([ends[:1], sections, ends[1:]])
            chain = chain if flow >= 0 else chain[::-1]
            up.append(chain[:-1])
            down.append(chain[1:])
            through.append(np.full(len(chain) - 1, abs(flow)))
        return np.concatenate(up), np.concatenate(down), np.concatenate(through)

    def step(self, flows: Numbers, tanks: Numbers) -> tuple[object, Numbers]:
        """The linear system of a time step, factorised, and the volume that each of them brings from before."""
        from scipy.sparse import coo_array
        from scipy.sparse.linalg import splu

        up, down, through = self.chains(flows)
        size, junctions = len(self.network.nodes) + self.count.sum(), self.network.junctions
        held = np.zeros(size)
        held[junctions : junctions + len(tanks)] = tanks
        held[junctions + len(tanks) : len(self.network.nodes)] = 1.0  # lake and river: as they are
        held[len(self.network.nodes) :] = np.repeat(self.volume, self.count)
        is_source = np.zeros(size, bool)
        is_source[junctions + len(tanks) : len(self.network.nodes)] = True
        through = np.where(is_source[down], 0.0, TIME_STEP * through)
        diagonal = held + np.bincount(down, through, size)
        still = diagonal < 1e-9  # a junction that nothing flows through stays as it is
        held[still], diagonal[still] = 1.0, 1.0
        every = np.arange(size)
        index = np.concatenate([every, down]), np.concatenate([every, up])
        matrix = coo_array((np.concatenate([diagonal, -through]), index), shape=(size, size)).tocsc()
        return splu(matrix), held


def simulate(network: Network, days: int = DAYS, seed: int = SEED) -> Numbers:
    """Percentage of lake water in junctions and tanks at each hour, ``(24 days, junctions + tanks)``."""
    every, parts = flows_of(network, BEFORE + days, seed), Volumes.of(network)
    share = np.zeros(len(network.nodes) + parts.count.sum())
    share[network.nodes.index("Lake")] = 100.0
    found = []
    for flows, tanks in zip(*every, strict=True):
        found.append(share[: network.junctions + network.tanks].copy())
        system, held = parts.step(flows, tanks)
        for _ in range(round(HOUR / TIME_STEP)):
            share = system.solve(held * share)
    return np.array(found[24 * BEFORE :])


def main() -> None:
    """Simulate and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    target, network = parser.parse_args().target, load()
    share = simulate(network)
    packed = np.round(share / STEP).astype(np.uint8)
    np.savez_compressed(
        target, share=packed, nodes=np.array(network.nodes), positions=network.positions.astype(np.float32),
        links=np.array(network.links), ends=network.ends.astype(np.int16),
        length=(FOOT * network.length).astype(np.float32),
    )  # fmt: skip
    print(f"{target}: {packed.shape}, {share.std(axis=0).mean():.1f} % in time, {target.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
