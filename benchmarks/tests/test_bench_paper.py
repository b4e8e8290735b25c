"""The protocol `paper` is the paper's loop: step for step that of a plain loop, in nothing but torch."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from keyhole.core.run import Run
from keyhole.placement.learned import Learned
from keyhole_benchmarks import table1, table2
from keyhole_benchmarks.data import load
from keyhole_benchmarks.lattice import line_share, parity_share
from keyhole_benchmarks.lines import Lines
from keyhole_benchmarks.protocols import PROTOCOLS, protocol_of
from keyhole_benchmarks.records import Store, record
from keyhole_benchmarks.weights import by_resulting_k

STEPS, BATCH, SAMPLES, WEIGHT = 10, 16, 120, 0.3
GAMMA, ETA = -0.1, 1.1
EDGE = math.log(-GAMMA / ETA)


@pytest.fixture
def short(monkeypatch):
    """The paper's protocol for MNIST, cut to ten steps, in double precision so that rounding does not grow."""
    cut = replace(
        protocol_of("paper", "mnist"), name="short", samples=SAMPLES, batch=BATCH, steps=STEPS, cae_steps=STEPS,
        precision="64-true", weights=(WEIGHT,),
    )  # fmt: skip
    monkeypatch.setitem(PROTOCOLS, "short", {"": cut})
    return cut


def normal_cdf(x):
    """Phi."""
    return (1 + torch.erf(x / math.sqrt(2))) / 2


class ILN:
    """Independent logit-normal masks: u = mu + sigma z."""

    temperature = 0.3

    def __init__(self, sites, generator):
        self.mu = torch.zeros(sites, dtype=torch.float64, requires_grad=True)
        self.log_sigma = torch.full((sites,), 0.855, dtype=torch.float64).log().requires_grad_()
        self.parameters = {"mu": self.mu, "log_sigma": self.log_sigma}

    def draw(self, count, generator):
        sigma = self.log_sigma.exp()
        logits = self.mu + sigma * torch.randn(count, len(self.mu), generator=generator, dtype=torch.float64)
        return logits, 1 - normal_cdf((self.temperature * EDGE - self.mu) / sigma)

    def marginals(self):
        return normal_cdf(self.mu / self.log_sigma.exp())


class VLN:
    """Correlated logit-normal masks: u = W z + b, with z of dimension 16."""

    temperature = 0.3

    def __init__(self, sites, generator):
        uniform = 2 * torch.rand(sites, 16, generator=generator).double() - 1
        self.weight = (0.855 * uniform / uniform.norm(dim=1, keepdim=True)).requires_grad_()
        self.bias = torch.zeros(sites, dtype=torch.float64, requires_grad=True)
        self.parameters = {"weight": self.weight, "bias": self.bias}

    def draw(self, count, generator):
        logits = torch.randn(count, 16, generator=generator, dtype=torch.float64) @ self.weight.T + self.bias
        return logits, 1 - normal_cdf((self.temperature * EDGE - self.bias) / self.weight.norm(dim=1))

    def marginals(self):
        return normal_cdf(self.bias / self.weight.norm(dim=1))


class SCT:
    """Binary concrete masks."""

    temperature = 2 / 3

    def __init__(self, sites, generator):
        self.log_alpha = torch.zeros(sites, dtype=torch.float64, requires_grad=True)
        self.parameters = {"log_alpha": self.log_alpha}

    def draw(self, count, generator):
        v = torch.rand(count, len(self.log_alpha), generator=generator, dtype=torch.float64)
        logits = self.log_alpha + v.log() - (-v).log1p()
        return logits, torch.sigmoid(self.log_alpha - self.temperature * EDGE)

    def marginals(self):
        return torch.sigmoid(self.log_alpha)


class Block(nn.Module):
    """Residual block of pix2pix."""

    def __init__(self, width):
        super().__init__()
        layers = []
        for last in (False, True):
            layers += [nn.ReflectionPad2d(1), nn.Conv2d(width, width, 3, bias=False), nn.BatchNorm2d(width)]
            layers += [] if last else [nn.ReLU()]
        self.body = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.body(x)


def generator_network():
    """The ResNet generator of pix2pix with two blocks and 16 filters, from one channel to one, without its tanh."""
    last = nn.Conv2d(16, 1, 7)
    down = [
        nn.Conv2d(1, 16, 7, bias=False),
        nn.Conv2d(16, 32, 3, 2, 1, bias=False),
        nn.Conv2d(32, 64, 3, 2, 1, bias=False),
    ]
    up = [nn.ConvTranspose2d(2 * n, n, 3, 2, 1, output_padding=1, bias=False) for n in (32, 16)]
    norms = [nn.BatchNorm2d(n) for n in (16, 32, 64, 32, 16)]
    layers = [nn.ReflectionPad2d(3)]
    for convolution, norm in zip(down, norms[:3], strict=True):
        layers += [convolution, norm, nn.ReLU()]
    layers += [Block(64), Block(64)]
    for convolution, norm in zip(up, norms[3:], strict=True):
        layers += [convolution, norm, nn.ReLU()]
    return nn.Sequential(*layers, nn.ReflectionPad2d(3), last)


def plain_loop(law, network, images, generator, weight):
    """The paper's loop: mean squared error behind soft masks, plus weight times the share of sites that are open."""
    trained = [*network.parameters(), *law.parameters.values()]
    optimiser = torch.optim.Adam(trained, lr=2e-4, betas=(0.9, 0.99))
    losses, order, sites = [], torch.empty(0, dtype=torch.int64), images[0].numel()
    for _ in range(STEPS):
        if len(order) < BATCH:
            order = torch.randperm(len(images), generator=generator)
        x, order = images[order[:BATCH]], order[BATCH:]
        logits, is_open = law.draw(BATCH, generator)
        y = torch.sigmoid(logits / law.temperature)
        masks = ((ETA - GAMMA) * y + GAMMA).clamp(0, 1).reshape(x.shape)
        loss = (network(masks * x) - x).square().mean() + weight * is_open.sum() / sites
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(("name", "kind"), [("iln", ILN), ("vln", VLN), ("sct", SCT)])
def test_the_protocol_is_the_papers_loop_step_for_step(short, name, kind):
    """Ten steps over the end of an epoch: the same losses, parameters of the distribution and weights."""
    (job,) = table1.jobs("short", ["digits"], [name], [20], [0])
    data, run, losses = load("digits", SAMPLES), Run(seed=0, precision="64-true"), []
    images = torch.from_numpy(data.domain.to_grid(data.plain.development.values)).double()
    law = kind(images[0].numel(), torch.Generator().manual_seed(run.seed_of("law")))

    def follow(event):
        losses.append(event.figures["loss"])

    settings, development = job.cases[0].settings["selector"], data.plain.development
    still = settings | {"mask_learning_rate": 1e-30, "train": NO_STEP}
    start, _ = Learned(distribution=name, **still).learn(development, 1, run)
    network = generator_network().double()
    copy_network(start.objective.decoder.network, network)
    for key, parameter in law.parameters.items():
        given = getattr(start.distribution, key).detach()
        np.testing.assert_allclose(parameter.detach(), given, atol=1e-3)  # where P(S = 0) = P(S = 1) = 0.2
        parameter.data.copy_(given)
    task, _ = Learned(distribution=name, **settings).learn(development, 1, replace(run, callback=follow))

    noise = torch.Generator().manual_seed(run.seed_of(f"learn {name}: batches and masks"))
    expected = plain_loop(law, network, images, noise, WEIGHT)
    np.testing.assert_allclose(losses, expected, atol=1e-6)
    for key, parameter in law.parameters.items():
        np.testing.assert_allclose(getattr(task.distribution, key).detach(), parameter.detach(), atol=1e-6)
    ours, theirs = convolutions(task.objective.decoder.network), convolutions(network)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), atol=1e-6)
    ranked = law.marginals().argsort(descending=True, stable=True)
    assert task.distribution.top(5).tolist() == ranked[:5].tolist()


# Learning rates and clipping under which one step changes nothing: what is left is the start.
NO_STEP = {"steps": 1, "batch_size": BATCH, "learning_rate": 1e-30, "weight_decay": 0.0, "ema_decay": 0.0}


def convolutions(network):
    """Weights and biases of the convolutions and norms, in the order of the forward pass."""
    return [
        parameter
        for module in network.modules()
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.BatchNorm2d)
        for parameter in module.parameters()
    ]


def copy_network(source, target):
    """Copy all weights, from one network to another with the same layers."""
    for one, other in zip(convolutions(source), convolutions(target), strict=True):
        assert one.shape == other.shape
        other.data.copy_(one)


def test_table_1_takes_its_k_from_the_weights(short, bench_command, tmp_path):
    """A line for each rounding and network, without a K of its own; the page has them where their K is."""
    words = ["--data", "digits", "--methods", "iln", "--k", "5", "--seeds", "0", "--protocol", "short"]
    outcome = bench_command("table1", *words, "--weights", "0.2", "--results", tmp_path)
    assert outcome.code == 0, outcome.err
    lines = Store(tmp_path, "table1").lines()
    assert [one["settings"]["selector"]["l0_weight"] for one in lines] == [0.2] * 4
    assert {one["reconstructor"].split(",")[0] for one in lines} == {"own", "residual"}
    assert all(one["k"] == 0 and one["k_distinct"] % 10 == 0 for one in lines)
    assert all(line_share(one) == one["notes"]["parity_share"] for one in lines)
    shown = bench_command("show", "--results", tmp_path, "--out", tmp_path / "results.md")
    assert shown.code == 0, shown.err
    page = (tmp_path / "results.md").read_text()
    assert {f"### digits, K = {one['k_distinct']}" for one in lines} <= set(page.splitlines())


def test_table_2_takes_the_masks_that_the_weights_led_to(short, tmp_path):
    """Of K that came out; a K to which no weight led is left out."""
    (found,) = table1.jobs("short", ["digits"], ["iln"], [10], [0])
    words, store = {"metrics": {}, "costs": {}, "split": {}, "k_distinct": 10}, Store(tmp_path, "table1")
    store.append([record(found.cases[0], notes={"sites": list(range(10)), "count": 12.0}, **words)])
    (job,) = table2.jobs("short", "digits", ["iln"], [10, 20], [0], store)
    assert job.cases[0].k == 10
    assert job.cases[0].settings["sites"] == list(range(10))


def test_weights_are_for_the_paper_alone(bench_command, tmp_path):
    """A protocol that is asked for a K does not take them."""
    words = ["--data", "digits", "--k", "5", "--weights", "0.1", "--results", tmp_path]
    outcome = bench_command("table1", *words)
    assert outcome.code == 2
    assert "weights" in outcome.err


def test_of_weights_with_the_same_k_that_of_the_nearest_count_stands():
    """Whatever its error; K that the table does not have are left out, lines with a K of their own stay."""

    def line(k, count, error, reconstructor="own, K rounded down", asked=0):
        place = {"data": "mnist", "protocol": "paper", "method": "vln", "seed": 0, "reconstructor": reconstructor}
        return place | {"k": asked, "k_distinct": k, "notes": {"count": count}, "metrics": {"mse": error}}

    lines = [
        line(20, 28.0, 0.1), line(20, 21.0, 0.3), line(20, 12.0, 0.2, "own, K rounded up"), line(40, 41.0, 0.1),
        line(20, 21.0, 0.4, "residual, K rounded down"), line(20, 20.0, 0.5, "own", asked=20),
    ]  # fmt: skip
    found = by_resulting_k(Lines(lines), {"mnist": (20, 30)})
    assert [(one["k"], one["reconstructor"], one["metrics"]["mse"]) for one in found] == [
        (20, "own", 0.5), (20, "own", 0.3), (20, "residual", 0.4),
    ]  # fmt: skip


def test_the_commonest_parity():
    """Against counting; None without two axes; old lines tell it by their sites."""
    assert parity_share([0, 2, 56, 3], (28, 28)) == 0.75
    assert parity_share(range(784), (28, 28)) == 0.25
    assert parity_share([1, 3], (9,)) is None
    old = {"data": "mnist", "notes": {"sites": [0, 2, 56, 29]}}
    assert line_share(old) == 0.75
    assert line_share({"data": "digits", "notes": {"sites": [0]}}) is None
    assert line_share({"data": "mnist", "notes": {}}) is None


def test_shifted_is_small_off_the_lattice():
    """Nothing but the phases of the ResNet differs, behind masks and on fixed sites."""
    for data in ("mnist", "ncep", "ipsl"):
        small, shifted = protocol_of("small", data), protocol_of("shifted", data)
        assert replace(shifted, name="small", phases=0) == small
        assert shifted.distribution("vln", 100)["n_phases"] == shifted.resnet(100)["n_phases"] == 16


def test_the_paper_has_no_safeguards():
    """Only a weight, of a grid that is the paper's, and a constant learning rate."""
    paper = protocol_of("paper", "mnist")
    settings = paper.distribution("vln", 60_000)
    plain = {"budget": "penalty", "masks": "soft", "polarise": False, "warm_start": "none", "n_phases": 0}
    assert {name: settings[name] for name in plain} == plain
    assert settings["train"]["schedule"] == "constant"
    assert settings["n_masks"] == settings["train"]["batch_size"] == 256
    assert (paper.weights[0], paper.weights[1], paper.weights[-1]) == (0.01, 0.04, 1.0)
