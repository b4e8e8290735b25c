"""The networks of DCGAN: any size, a start at zero, and that they learn; and the ResNet's layout in memory."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import keyhole as kh
from keyhole.core.errors import SettingsError
from keyhole.core.interrupts import Interrupted
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.models.reconstructors import RECONSTRUCTORS, Residual
from keyhole.models.reconstructors.dcgan import DCGANClassifier, DCGANDecoder
from keyhole.models.reconstructors.networks import ResNet
from keyhole.workflow.selection import fit_reconstructor

SIZES = st.integers(4, 80)


def blobs(n=300, size=12, seed=0):
    """One bump a signal, at a random place: not linear in any reading."""
    rng = np.random.default_rng(seed)
    centre = rng.uniform(2, size - 2, (n, 2, 1, 1))
    rows, columns = np.mgrid[:size, :size]
    return np.exp(-((rows - centre[:, 0]) ** 2 + (columns - centre[:, 1]) ** 2) / 12)


@settings(max_examples=25)
@given(height=SIZES, width=SIZES, inputs=st.integers(1, 5), outputs=st.integers(1, 3))
def test_the_decoder_gives_any_size(height, width, inputs, outputs):
    """From a vector to the size asked for; it starts as the constant zero."""
    network = DCGANDecoder(inputs, outputs, (height, width), filters=1)
    made = network(torch.randn(2, inputs))
    assert made.shape == (2, outputs, height, width)
    assert not made.any()


@settings(max_examples=25)
@given(height=SIZES, width=SIZES, inputs=st.integers(1, 3), classes=st.integers(1, 12))
def test_the_classifier_takes_any_size(height, width, inputs, classes):
    """From any number of channels of any size to logits, in which every cell has its say."""
    network = DCGANClassifier(inputs, classes, (height, width), filters=1).eval()
    x = torch.randn(2, inputs, height, width, requires_grad=True)
    logits = network(x)
    assert logits.shape == (2, classes)
    logits.sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum(dim=(0, 1)).all()


@pytest.mark.parametrize(
    ("size", "maps"), [(28, [7, 14, 28]), (64, [4, 8, 16, 32, 64]), (20, [5, 10, 20]), (7, [4, 8]), (4, [2, 4])]
)
def test_the_decoder_doubles_and_the_classifier_halves_from_the_same_map(size, maps):
    """7 to 28 and 4 to 64, as DCGAN does; a size between is rounded up and cropped."""
    seen = []
    decoder, classifier = DCGANDecoder(3, 1, (size, size), filters=2), DCGANClassifier(1, 2, (size, size), filters=2)
    for module in [*decoder.modules(), *classifier.modules()]:
        if isinstance(module, nn.Unflatten | nn.ConvTranspose2d | nn.Conv2d):
            module.register_forward_hook(lambda _, __, made: seen.append(made.shape[-1]))
    classifier(decoder(torch.randn(2, 3)))
    assert seen == maps + maps[-2::-1]


def test_layers_are_those_of_dcgan():
    """4 x 4 kernels with stride 2, filters halved as the map doubles, batch norm between, none behind the head."""
    decoder = DCGANDecoder(20, 3, (64, 64), filters=8)
    up = [module for module in decoder.modules() if isinstance(module, nn.ConvTranspose2d)]
    assert [(m.in_channels, m.out_channels) for m in up] == [(64, 32), (32, 16), (16, 8), (8, 3)]
    assert {(m.kernel_size, m.stride) for m in up} == {((4, 4), (2, 2))}
    assert [m.num_features for m in decoder.modules() if isinstance(m, nn.BatchNorm2d)] == [64, 32, 16, 8]
    classifier = DCGANClassifier(3, 10, (64, 64), filters=8)
    down = [module for module in classifier.modules() if isinstance(module, nn.Conv2d)]
    assert [(m.in_channels, m.out_channels) for m in down] == [(3, 8), (8, 16), (16, 32), (32, 64)]
    assert [m.negative_slope for m in classifier.modules() if isinstance(m, nn.LeakyReLU)] == [0.2] * 4


def test_a_small_decoder_learns():
    """Bumps from readings, far better than ridge: they are not linear in what is read."""
    parts = prepare(kh.read(blobs()), None, seed=0)
    chosen = {"steps": 300, "batch_size": 64, "ema_decay": 0.98, "learning_rate": 1e-2}
    sites, fitted = np.array([39, 44, 99, 104]), RECONSTRUCTORS["dcgan"](filters=8, train=chosen)
    fitted.fit(parts.train, sites, validation=parts.validation, run=Run())
    ridge = fit_reconstructor("ridge", parts, sites, Run())
    readings, truth = parts.validation.readings(sites), parts.validation.values
    errors = [np.square(made.reconstruct(readings) - truth).mean() for made in (fitted, ridge)]
    assert errors[0] < 0.5 * errors[1]


def test_a_small_classifier_learns():
    """Left from right, on signals that it has not seen."""
    values = torch.from_numpy(blobs(n=400)).float().unsqueeze(1)
    right = (values.flatten(1).argmax(dim=1) % 12 >= 6).long()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = DCGANClassifier(1, 2, (12, 12), filters=4)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(values[:300]), right[:300]).backward()
        optimiser.step()
    told = network.eval()(values[300:]).argmax(dim=1)
    assert (told == right[300:]).float().mean() > 0.9


def test_it_works_on_what_ridge_leaves():
    """As the network of the residual reconstructor it starts as ridge and is no worse on validation."""
    parts = prepare(kh.read(blobs()), None, seed=0)
    sites = np.array([27, 32, 40, 75, 80, 104, 111, 116])
    made = Residual("dcgan", filters=4, train={"steps": 100, "batch_size": 64, "ema_decay": 0.9})
    fitted = made.fit(parts.train, sites, validation=parts.validation, run=Run())
    ridge = np.square(parts.validation.targets - fitted.linear.reconstruct(parts.validation.readings(sites))).mean()
    assert fitted.history[0]["validation"] == pytest.approx(ridge, rel=1e-4)
    assert fitted.improvement < 0.9


def test_a_table_is_refused():
    """The error names the reconstructor and says what to do."""
    parts = prepare(kh.read(np.random.default_rng(0).normal(size=(30, 6))), None, seed=0)
    with pytest.raises(SettingsError, match=r"the dcgan reconstructor needs a grid of two axes.*use dense"):
        fit_reconstructor("dcgan", parts, np.array([1, 2]), Run())


@pytest.mark.parametrize("inputs", [1, 2])
def test_the_resnet_keeps_channels_last_inside_and_plain_arrays_outside(inputs):
    """Activations are laid out channels last whatever the number of inputs; weights, gradients and outputs are not."""
    network = ResNet(inputs, 2, filters=4, blocks=1)
    layouts = []
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            module.register_forward_hook(lambda _, __, y: layouts.append(y.stride()[1]))
    made = network(torch.randn(3, inputs, 9, 10))
    made.square().sum().backward()
    assert layouts == [1] * len(layouts)
    assert made.is_contiguous()
    for name, parameter in network.named_parameters():
        assert parameter.is_contiguous(), name
        assert parameter.grad.is_contiguous(), name


@pytest.mark.parametrize(("name", "settings"), [("dcgan", {}), ("resnet", {}), ("resnet", {"n_phases": 4})])
def test_interrupted_and_resumed_is_as_left_alone(tmp_path, name, settings):
    """Stopped by Ctrl-C in the middle and resumed: the same weights and running statistics, bit for bit."""
    parts, sites = prepare(kh.read(blobs(n=60)), None, seed=0), np.array([39, 44, 99, 104])

    def fitted(run):
        made = RECONSTRUCTORS[name](filters=4, train={"steps": 12, "batch_size": 16, "ema_decay": 0.9}, **settings)
        return made.fit(parts.train, sites, validation=parts.validation, run=run).state()[1]

    def stop(event):
        if event.step == 7:
            os.kill(os.getpid(), signal.SIGINT)

    expected = fitted(Run())
    with pytest.raises(Interrupted):
        fitted(Run(folder=tmp_path, callback=stop))
    found = fitted(Run(folder=tmp_path, resume=True))
    for key, array in expected.items():
        np.testing.assert_array_equal(found[key], array)
