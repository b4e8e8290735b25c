"""Interior modes against the density itself, on a fine grid."""

from __future__ import annotations

import math

import pytest
import torch
from mask_helpers import make_distribution, seeded

from keyhole.masks.modes import concrete_modes, logit_normal_modes

LOWER, UPPER = math.log(0.1 / 1.1), math.log(1.1 / 0.1)
MASK = torch.linspace(0, 1, 20_001).double()
LOGIT = torch.logit((MASK + 0.1) / 1.2)
JACOBIAN = -torch.nn.functional.logsigmoid(LOGIT) - torch.nn.functional.logsigmoid(-LOGIT)


def peaks_inside(log_density):
    """Whether any inner point of the grid of masks is above both neighbours."""
    inner = log_density[:, 1:-1]
    return ((inner > log_density[:, :-2]) & (inner > log_density[:, 2:])).any(1)


@pytest.mark.parametrize(("gamma", "eta"), [(-0.1, 1.1), (-0.1, 3.0), (-2.5, 1.05)])
def test_logit_normal_modes_are_those_of_the_density(gamma, eta):
    """Random locations and spreads: one mode, two, or none inside; also where the stretch is lopsided."""
    logit = torch.logit((MASK - gamma) / (eta - gamma))
    jacobian = -torch.nn.functional.logsigmoid(logit) - torch.nn.functional.logsigmoid(-logit)
    location = 8 * torch.rand(600, generator=seeded(1)).double() - 4
    spread = 0.2 + 3.3 * torch.rand(600, generator=seeded(2)).double()
    spread[:200] = 1.4 + 0.1 * torch.rand(200, generator=seeded(3)).double()
    location[:200] /= 100  # where one mode becomes two, close to the centre
    log_density = -((logit - location[:, None]) / spread[:, None]).square() / 2 + jacobian
    found = logit_normal_modes(location, spread, float(logit[0]), float(logit[-1]))
    assert torch.equal(found, peaks_inside(log_density))
    assert 0.1 < found.double().mean() < 0.9


def test_logit_normal_modes_at_the_centre():
    """Centred distributions: a mode at one half until `s^2 = 2`, then two that leave through the clip."""
    spread = torch.tensor([0.5, 1.0, 1.4, 1.5, 1.6, 1.7, 1.8, 2.85]).double()
    found = logit_normal_modes(torch.zeros(8).double(), spread, LOWER, UPPER)
    log_density = -(LOGIT / spread[:, None]).square() / 2 + JACOBIAN
    assert torch.equal(found, peaks_inside(log_density))
    assert found.tolist() == [True, True, True, True, True, False, False, False]


@pytest.mark.parametrize("temperature", [0.3, 2 / 3, 1.0, 1.2, 2.0, 5.0])
def test_concrete_modes_are_those_of_the_density(temperature):
    """None up to temperature 1; above it, where the density says."""
    log_alpha = 40 * torch.rand(200, generator=seeded(3)).double() - 20
    t = temperature * LOGIT - log_alpha[:, None]
    log_density = torch.nn.functional.logsigmoid(t) + torch.nn.functional.logsigmoid(-t) + JACOBIAN
    found = concrete_modes(log_alpha, temperature, LOWER, UPPER)
    if temperature <= 1:
        assert not found.any()
    else:
        assert torch.equal(found, peaks_inside(log_density))
        assert found.any()
        assert not found.all()


def test_distributions_divide_by_their_temperature():
    """A distribution's modes are those of its logits after temperature, per site."""
    distribution = make_distribution("iln", torch.ones(3, dtype=torch.bool), temperature=0.5)
    with torch.no_grad():
        distribution.mu.copy_(torch.tensor([0.0, 0.0, 0.4]))
        distribution.log_sigma.copy_(torch.tensor([0.25, 2.0, 0.25]).log())
    expected = logit_normal_modes(torch.tensor([0.0, 0.0, 0.8]), torch.tensor([0.5, 4.0, 0.5]), LOWER, UPPER)
    assert distribution.interior_modes().tolist() == expected.tolist() == [True, False, True]


@pytest.mark.parametrize("name", ["iln", "vln", "graph_vln", "sct"])
def test_distributions_start_without_interior_modes(name):
    """The paper's condition on the starting point holds at the default temperature."""
    assert not make_distribution(name).interior_modes().any()
