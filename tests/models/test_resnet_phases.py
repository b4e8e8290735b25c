"""The ResNet off the lattice of its strides: random shifts in training, a mean over the phases in evaluation."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

import keyhole as kh
from example_data import smooth
from keyhole.core.run import Run
from keyhole.models.reconstructors import RECONSTRUCTORS
from keyhole.models.reconstructors.networks import ResNet

SHIFTS = [(row, column) for row in range(4) for column in range(4)]


def resnet(n_phases, *, blocks=1):
    """A small network, the same whatever its phases, whose last layer is not zero."""
    torch.manual_seed(0)
    network = ResNet(1, 1, filters=2, blocks=blocks, n_phases=n_phases).double()
    torch.nn.init.normal_(network.head.weight)
    return network


def on_canvas(x, row, column, size):
    """The grid on a canvas of zeros, its corner at a row and column."""
    height, width = x.shape[-2:]
    return functional.pad(x, (column, size - width - column, row, size - height - row))


def moved(x, row, column):
    """What is at a place comes to stand so many rows and columns further on; the rest is zero."""
    return functional.pad(x, (column, -column, row, -row))


@pytest.mark.parametrize(("n_phases", "shifts"), [(1, SHIFTS[:1]), (4, [(0, 0), (0, 2), (2, 0), (2, 2)]), (16, SHIFTS)])
def test_evaluation_is_the_mean_over_the_phases(n_phases, shifts):
    """By hand: the grid on a canvas, the network without phases, and the output cut out again."""
    network, plain = resnet(n_phases).eval(), resnet(0).eval()
    x = torch.randn(2, 1, 10, 11, dtype=torch.float64)
    outputs = [
        plain(on_canvas(x, row, column, 16))[..., row : row + 10, column : column + 11] for row, column in shifts
    ]
    torch.testing.assert_close(network(x), torch.stack(outputs).mean(0))


def test_the_mean_over_all_phases_moves_with_its_input():
    """Away from the borders, for any shift; without phases for multiples of the strides alone."""
    x = torch.randn(1, 1, 72, 72, dtype=torch.float64)
    network, plain, inner = resnet(16).eval(), resnet(0).eval(), (..., slice(28, 44), slice(28, 44))
    with torch.no_grad():
        for shift in ((1, 0), (0, 3), (2, 1)):
            torch.testing.assert_close(network(moved(x, *shift))[inner], moved(network(x), *shift)[inner])
            difference = plain(moved(x, *shift))[inner] - moved(plain(x), *shift)[inner]
            assert difference.abs().max() > 1e-3
        torch.testing.assert_close(plain(moved(x, 4, 8))[inner], moved(plain(x), 4, 8)[inner])


def test_training_draws_a_shift_from_the_generator():
    """One for the batch, all of the 16 in turn, from the generator that is given and no other."""
    network, plain = resnet(1, blocks=0).train(), resnet(0, blocks=0).train()
    x, generator = torch.randn(2, 1, 8, 8, dtype=torch.float64), torch.Generator().manual_seed(0)
    with torch.no_grad():
        expected = {shift: plain(on_canvas(x, *shift, 12)) for shift in SHIFTS}
        before, found = torch.get_rng_state(), set()
        for _ in range(150):
            output = network(x, generator)
            same = [
                (row, column)
                for (row, column), canvas in expected.items()
                if torch.allclose(output, canvas[..., row : row + 8, column : column + 8])
            ]
            assert len(same) == 1
            found.add(same[0])
    assert found == set(SHIFTS)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("n_phases", [1, 4, 16])
@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (8, 12), (13, 9)])
def test_any_size_keeps_its_size(n_phases, shape):
    """The canvas is padded and cut off again."""
    network = resnet(n_phases)
    x = torch.randn(2, 1, *shape, dtype=torch.float64)
    assert network.train()(x).shape == network.eval()(x).shape == x.shape


def test_the_reconstructor_is_the_same_each_time_and_when_restored():
    """Its shifts are drawn from the run's seed; the number of phases is part of its state."""
    samples, sites = kh.read(smooth(60, 6, 7)).as_scaled(), np.array([3, 8, 20, 37])
    train, readings = {"steps": 6, "batch_size": 8, "ema_decay": 0.0}, samples.readings(sites)

    def fitted(n_phases):
        made = RECONSTRUCTORS["resnet"](filters=2, blocks=1, train=train, n_phases=n_phases)
        return made.fit(samples, sites, validation=None, run=Run())

    one, other, without = (fitted(n_phases) for n_phases in (4, 4, 0))
    expected = one.reconstruct(readings)
    np.testing.assert_array_equal(other.reconstruct(readings), expected)
    assert np.abs(without.reconstruct(readings) - expected).max() > 1e-4
    restored = type(one).restore(*one.state(), samples.sites, sites)
    np.testing.assert_array_equal(restored.reconstruct(readings), expected)


def test_plans_from_before_have_no_phases():
    """Neither a plan's network nor one that is made without asking is shifted."""
    assert RECONSTRUCTORS["resnet"]().settings()["n_phases"] == 0
