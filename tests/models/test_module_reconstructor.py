"""Networks of the user's own: shapes, land, missing values, losses, resuming, and plans that hold their weights."""

from __future__ import annotations

import json
import os
import pickle
import signal
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import keyhole as kh
from example_data import little_memory
from keyhole.core.errors import DataError, SettingsError, TrainingError
from keyhole.core.interrupts import Interrupted
from keyhole.core.run import Run
from keyhole.core.storage import read_container, write_container
from keyhole.data.preparation import prepare
from keyhole.models.reconstructors import ModuleReconstructor
from keyhole.placement import Selector
from own_modules import QUICK, Copied, FromGrid, FromReadings, absolute, field, first_rows, last_rows

SITES = np.array([3, 8, 14])


class NoSelector(Selector):
    """Fails if it is asked for sites."""

    name = "none"

    def select(self, train, k, *, validation, run):
        raise AssertionError("sites were selected before the shapes were checked")


def fitted(network, samples=None, run=None):
    data = prepare(field() if samples is None else samples, None, seed=0)
    return network.clone().fit(data.train, SITES, validation=data.validation, run=run or Run()), data


def weights(made):
    return {name: tensor.clone() for name, tensor in made.trained.state_dict().items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("linear", [None, "ridge"])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("inputs", ["readings", "grid"])
def test_shape_and_round_trip(inputs, channels, linear):
    """What is reconstructed has a value for each channel and valid site, and survives state and restore."""
    module = FromGrid(channels) if inputs == "grid" else FromReadings(3 * channels, 20 * channels)
    network = ModuleReconstructor(module, inputs=inputs, linear=linear, train=QUICK)
    made, data = fitted(network, field(channels=channels))
    readings = data.validation.readings(SITES)
    reconstructed = made.reconstruct(readings)
    assert reconstructed.shape == (len(data.validation), channels, 20)
    assert made.takes(3, channels, 0)
    assert not made.takes(4, channels, 0)
    again = ModuleReconstructor.restore(*made.state(), data.samples.sites, SITES, model=module)
    np.testing.assert_array_equal(again.reconstruct(readings), reconstructed)


@pytest.mark.parametrize("shape", ["sites", "channels and sites", "grid"])
def test_outputs_may_be_of_the_sites_or_of_the_grid(shape):
    """The same module in all three forms gives the same reconstruction."""
    outputs = {"sites": (20,), "channels and sites": (1, 20), "grid": (1, 4, 6)}[shape]
    torch.manual_seed(0)
    first, last = nn.Linear(3, 20), nn.Linear(20, int(np.prod(outputs)), bias=False)
    with torch.no_grad():
        valid = np.arange(24).reshape(4, 6)[:, :-1].ravel() if shape == "grid" else np.arange(20)
        last.weight.zero_()[torch.from_numpy(valid), torch.arange(20)] = 1.0
    module = nn.Sequential(first, last, nn.Unflatten(1, outputs))
    last.requires_grad_(False)
    made, data = fitted(ModuleReconstructor(module, train=QUICK))
    expected, _ = fitted(ModuleReconstructor(nn.Sequential(first), train=QUICK, name="sequential"))
    readings = data.validation.readings(SITES)
    np.testing.assert_allclose(made.reconstruct(readings), expected.reconstruct(readings), rtol=1e-4, atol=1e-5)


def test_the_grid_is_zero_where_nothing_is_observed():
    """With the mask as the last channel; values stand where their sites are."""
    made, data = fitted(ModuleReconstructor(Copied(), inputs="grid", train=QUICK))
    readings = data.validation.readings(SITES)[:2]
    made.reconstruct(readings)
    seen, at = made.trained.seen.flatten(2), data.samples.sites.index[SITES]
    np.testing.assert_array_equal(np.flatnonzero(seen[0, 1]), at)
    np.testing.assert_array_equal(seen[:, 0, at], readings[..., 0])
    assert int((seen[:, 0] != 0).sum()) == 6


def test_the_module_works_in_units_of_the_readings_whatever_the_weights():
    """What is observed comes back as it was, though areas weight the loss."""
    data = kh.datasets.sst()
    network = ModuleReconstructor(Copied, inputs="grid", train={"steps": 1, "learning_rate": 1e-9})
    plan = kh.select(data, 3, method="qr", reconstructor=network)
    last = data.take(np.arange(400, 494))
    found = plan.reconstruct(last.readings(plan.indices), time=last.time, outliers="trust")
    reconstructed = np.asarray(found).reshape(len(last), -1)[:, plan.indices]
    np.testing.assert_allclose(reconstructed, last.readings(plan.indices)[..., 0], rtol=1e-4)


def test_a_bare_module_is_a_reconstructor_and_a_class_is_seeded():
    """The weights of an instance are where training starts; those of a class follow from the seed."""
    plan = kh.select(field(), 3, method="qr", reconstructor=FromReadings(), refit=False)
    assert plan.reconstructor.name == plan.metadata["reconstructor"] == "from_readings"
    network = ModuleReconstructor(FromReadings, train=QUICK)
    first, again, other = (weights(fitted(network, run=Run(seed=seed))[0]) for seed in (0, 0, 1))
    assert_same(first, again)
    assert not torch.equal(first["layers.0.weight"], other["layers.0.weight"])
    given = FromReadings()
    before = {name: tensor.clone() for name, tensor in given.state_dict().items()}
    fitted(ModuleReconstructor(given, train=QUICK))
    assert_same(before, given.state_dict())


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (FromReadings(4), r"fails for \(2, 3\), which is a batch of readings \(3 sites, 1 channel\) \(Runt"),
        (FromReadings(3, 24), r"returns \(2, 24\) for \(2, 3\).* needed is \(2, 20\) .* or \(2, 1, 4, 6\)"),
        (ModuleReconstructor(FromGrid(2), inputs="grid"), r"expected input\[2, 2, 4, 6\] to have 3 channels"),
        (ModuleReconstructor(FromReadings(), loss=lambda a, b: a), r"the loss '<lambda>' returns .* \(2, 1, 4, 6\)"),
        (nn.Unflatten(1, (1, 3)), r"returns \(2, 1, 3\)"),
        (ModuleReconstructor(lambda: nn.Sequential(FromReadings().requires_grad_(False))), "no parameters to train"),
        (ModuleReconstructor(FromReadings().layers[0].__class__, name="a"), "makes no module without arguments"),
        (5, "or a torch.nn.Module"),
    ],
)  # fmt: skip
def test_shapes_are_checked_before_sites_are_selected(network, message):
    """The sentence says what came and what is needed."""
    with pytest.raises(SettingsError, match=message):
        kh.select(field(), 3, method=NoSelector(), reconstructor=network)


def test_existing_sites_count():
    """The module takes all readings."""
    constraints = {"existing": [2, 9]}
    network = ModuleReconstructor(FromReadings(3), train=QUICK)
    plan = kh.select(field(), 1, method="qr", reconstructor=network, constraints=constraints)
    assert plan.k == 3
    with pytest.raises(SettingsError, match="5 sites"):
        kh.select(field(), 3, method=NoSelector(), reconstructor=network, constraints=constraints)


@pytest.mark.parametrize("name", ["ridge", "auto", "module", "a/b", "", 3])
def test_names_that_mean_something_else_are_refused(name):
    """Those of Keyhole's own, and those that cannot stand in the name of a file."""
    with pytest.raises(SettingsError, match="name="):
        ModuleReconstructor(FromReadings(), name=name)


def test_lazy_layers_take_the_sizes_of_the_data():
    """So one module serves a curve of several K."""
    lazy = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(20))
    curve = kh.curve(field(), [2, 3], ["qr"], reconstructor=ModuleReconstructor(lazy, train=QUICK))
    assert [row["reconstructor"] for row in curve.records()] == ["sequential", "sequential"]
    with pytest.raises(SettingsError, match="4 sites"):
        kh.curve(field(), [3, 4], [NoSelector()], reconstructor=FromReadings(3))


def test_covariates_follow_if_they_are_asked_for():
    """As further inputs, and as constant channels."""
    data = kh.datasets.sst()
    lazy = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 1732))
    for inputs, module, size in (("readings", lazy, 5), ("grid", nn.LazyConv2d(1, 1), 4)):
        network = ModuleReconstructor(module, inputs=inputs, with_covariates=True, train=QUICK)
        plan = kh.select(data, 3, method="qr", reconstructor=network, refit=False)
        first = plan.reconstructor.trained[0] if inputs == "readings" else plan.reconstructor.trained
        assert first.weight.shape[1] == size


def test_missing_values_do_not_count():
    """Neither for the mean squared error nor for a loss of one's own, which sees zeros there, and where they are."""
    values = field().values.copy()
    gaps = np.random.default_rng(1).random(values.shape) < 0.2
    values[gaps] = np.nan
    whole = np.full((60, 1, 4, 6), np.nan)
    whole[..., :-1] = values.reshape(60, 1, 4, 5)
    shares = []

    def known_only(reconstruction, truth, known):
        assert not truth.isnan().any()
        assert truth[known == 0].abs().max() == reconstruction[known == 0].abs().max() == 0
        shares.append(float(known.mean()))
        return (reconstruction - truth).square().sum() / known.sum()

    samples = kh.read(whole, channels=1, missing="model")
    errors = []
    for loss in (None, known_only):
        torch.manual_seed(0)
        made, _ = fitted(ModuleReconstructor(FromReadings(), loss=loss, train=QUICK), samples)
        errors.append([row["validation"] for row in made.history])
    np.testing.assert_allclose(*errors, rtol=1e-4)
    assert 0.5 < np.mean(shares) < 0.8  # of the grid: a sixth is land, a fifth of the rest is missing


@pytest.mark.parametrize("loss", [None, absolute, nn.HuberLoss(), partial(nn.functional.huber_loss, delta=0.5)])
def test_it_learns(loss):
    """Unexplained variance falls well below one."""
    torch.manual_seed(0)
    settings = {"steps": 150, "batch_size": 32, "learning_rate": 1e-2, "ema_decay": 0.9}
    module = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 20))
    network = ModuleReconstructor(module, loss=loss, train=settings)
    plan = kh.select(field(300), 3, method="qr", reconstructor=network, refit=False, intervals=False)
    assert plan.metrics["test"]["fvu"] < 0.3


def test_a_loss_on_a_region_lowers_the_error_there():
    """And not elsewhere."""
    errors = {}
    for loss in (first_rows, last_rows):
        torch.manual_seed(0)
        network = ModuleReconstructor(nn.Linear(3, 20), loss=loss, train=QUICK | {"steps": 200, "learning_rate": 1e-2})
        made, data = fitted(network)
        left = data.validation.targets - made.reconstruct(data.validation.readings(SITES))
        squares = np.square(left).reshape(-1, 4, 5).mean((0, 2))
        errors[loss] = squares[:2].mean(), squares[2:].mean()
    assert errors[first_rows][0] < 0.5 * errors[last_rows][0]
    assert errors[last_rows][1] < 0.5 * errors[first_rows][1]


def test_a_loss_may_ask_for_the_mask_and_the_weights():
    """The mask is that of the sites; with the weights the house's own loss can be written."""
    masks = []

    def weighted(reconstruction, truth, *, mask, weights):
        masks.append(mask)
        assert mask.shape == (len(truth), 1, 36, 72)
        return (weights * (reconstruction - truth).square()).sum() / len(truth) / int((weights > 0).sum())

    errors = []
    for loss in (None, weighted):
        torch.manual_seed(0)
        network = ModuleReconstructor(nn.Linear(3, 1732), loss=loss, train=QUICK)
        plan = kh.select(kh.datasets.sst(), 3, method="qr", reconstructor=network, refit=False)
        errors.append([row["validation"] for row in plan.history])
    np.testing.assert_allclose(*errors, rtol=1e-4)
    np.testing.assert_array_equal(np.flatnonzero(masks[-1][0]), np.sort(plan.indices))


class Scaled(nn.Module):
    """A loss with a weight, which falls without end if it is trained."""

    def __init__(self):
        super().__init__()
        self.scale, self.drop = nn.Parameter(torch.ones(())), nn.Dropout(0.9)

    def forward(self, reconstruction, truth):
        return self.scale * self.drop(reconstruction - truth).square().mean()


@pytest.mark.parametrize("train_loss", [False, True])
def test_the_weights_of_a_loss_are_trained_if_that_is_asked_for(train_loss):
    """By default they stay, and the loss is in evaluation mode."""
    torch.manual_seed(0)
    own, plain = (
        ModuleReconstructor(FromReadings(), loss=loss, train_loss=train, train=QUICK)
        for loss, train in ((Scaled(), train_loss), (nn.MSELoss(), False))
    )
    plain.module = own.module
    (one, _), (other, _) = fitted(own), fitted(plain)
    losses = ([row.get("loss") for row in made.history[1:]] for made in (one, other))
    assert (next(losses) == pytest.approx(next(losses), rel=1e-5)) == (not train_loss)


def test_a_run_that_was_stopped_goes_on_bit_for_bit(tmp_path):
    """With dropout and batch normalisation, and only with the same module, loss and settings."""

    def stop(event):
        if event.step == 7:
            os.kill(os.getpid(), signal.SIGINT)

    class Both(nn.Sequential):
        pass

    torch.manual_seed(0)
    module = Both(FromGrid(), nn.Dropout(0.3))
    network = ModuleReconstructor(module, inputs="grid", loss=absolute, train=QUICK)
    expected, _ = fitted(network)
    run = Run(folder=tmp_path)
    with pytest.raises(Interrupted, match="refit both: stopped at step 7"):
        fitted(network, run=replace(run, callback=stop))
    resumed = replace(run, resume=True)
    others = [
        ModuleReconstructor(Both(FromGrid(), nn.Dropout(0.3)), inputs="grid", loss=absolute, train=QUICK),
        ModuleReconstructor(Both(*module[:1], nn.Dropout(0.4)), inputs="grid", loss=absolute, train=QUICK),
        ModuleReconstructor(Both(*module[:1], nn.Identity()), inputs="grid", loss=absolute, train=QUICK),
        ModuleReconstructor(module, inputs="grid", loss=first_rows, train=QUICK),
        ModuleReconstructor(module, inputs="grid", loss=partial(absolute), train=QUICK),
        ModuleReconstructor(module, inputs="grid", train=QUICK),
    ]
    for other in others:
        with pytest.raises(TrainingError, match="belongs to another run"):
            fitted(other, run=resumed)
    found, _ = fitted(network, run=resumed)
    assert_same(weights(expected), weights(found))
    assert expected.history == found.history


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A plan with a network of one's own, and its file."""
    path = tmp_path_factory.mktemp("plans") / "mine.keyhole"
    network = ModuleReconstructor(FromReadings(), name="mine", loss=absolute, train=QUICK, linear="ridge")
    plan = kh.select(field(), 3, method="qr", reconstructor=network)
    plan.save(path)
    return plan, path


@pytest.mark.parametrize(
    "given", [FromReadings, FromReadings(), partial(FromReadings, 3), ModuleReconstructor(FromReadings)]
)
def test_a_plan_loads_with_its_network(saved, given):
    """Given as a class, an object, a function or a reconstructor, it reconstructs as before."""
    plan, path = saved
    again = kh.load(path, models={"mine": given})
    readings = np.random.default_rng(0).normal(size=(4, 3))
    np.testing.assert_array_equal(
        again.reconstruct(readings, outliers="trust"), plan.reconstruct(readings, outliers="trust")
    )
    assert again.reconstructor.name == "mine"
    assert b"FromReadings" not in path.read_bytes()


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (None, r"network of the user's own, 'mine', .* kh.load\('.*mine.keyhole', models=\{'mine': MyModule\}\)"),
        ({"other": FromReadings}, "and not 'other'"),
        ({"mine": lambda: FromReadings(width=9)}, r"'layers.0.weight' is of shape \(8, 3\) in the file, and \(9, 3\)"),
        ({"mine": FromGrid}, "the module has weights 'first.weight', and the file has none of that name"),
        ({"mine": 5}, "expected a module"),
    ],
)
def test_a_plan_is_refused_without_its_network(saved, models, message):
    """The sentence names the network, and shows the call or what does not fit."""
    with pytest.raises(DataError, match=message) as caught:
        kh.load(saved[1], models=models)
    assert type(caught.value) is DataError


def test_a_network_with_other_outputs_is_refused(saved):
    """Its weights fit, and its shapes do not."""

    class Reshaped(FromReadings):
        def forward(self, x):
            return super().forward(x)[:, :10]

    with pytest.raises(DataError, match=r"returns \(2, 10\)"):
        kh.load(saved[1], models={"mine": Reshaped})


def test_a_loaded_plan_is_fitted_again_with_its_loss(saved):
    """Which a file does not hold: it is asked for."""
    plan, path = saved
    with pytest.raises(SettingsError, match="trained with the loss 'absolute', which a file does not hold"):
        kh.load(path, models={"mine": FromReadings}).refit(field(seed=1))
    again = kh.load(path, models={"mine": ModuleReconstructor(FromReadings(), loss=absolute)})
    for one in (again, plan):
        refitted = one.refit(field(seed=1))
        assert (refitted.reconstructor.name, refitted.reconstructor.options) == ("mine", plan.reconstructor.options)


def test_plans_are_extended_and_dropped(saved):
    """By a network that takes any number of readings; another is refused."""
    with pytest.raises(SettingsError, match="4 sites"):
        kh.extend(saved[0], field(), 1, method="qr")
    with pytest.raises(SettingsError, match="2 sites"):
        kh.drop(saved[0], field(), 1)
    network = ModuleReconstructor(FromGrid, inputs="grid", train=QUICK)
    plan = kh.select(field(), 3, method="qr", reconstructor=network)
    assert kh.extend(plan, field(), 1, method="qr").reconstructor.name == "from_grid"
    assert kh.drop(plan, field(), 1).k == 2


def test_methods_are_compared_with_it():
    """Each with a network of its own, from the same start."""
    network = ModuleReconstructor(FromReadings(), train=QUICK)
    found = kh.compare(field(), 3, ["qr", "greedy"], reconstructor=network)
    assert {row["reconstructor"] for row in found.rows()} == {"from_readings"}


def test_it_can_be_sent_to_other_processes(saved):
    """As joblib does: fitted and unfitted."""
    plan, readings = saved[0], np.zeros((1, 3))
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(plan)).reconstruct(readings, outliers="trust"),
        plan.reconstruct(readings, outliers="trust"),
    )
    assert pickle.loads(pickle.dumps(ModuleReconstructor(FromReadings()))).name == "from_readings"


def test_complex_weights_are_refused():
    """A file holds real numbers."""

    class Spectral(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3, 20, dtype=torch.complex64))

    with pytest.raises(SettingsError, match="complex"):
        kh.select(field(), 3, method=NoSelector(), reconstructor=Spectral)


SPOILED = [
    ("inputs", "grid"), ("inputs", 3), ("channels", 0), ("channels", 10**12), ("channels", "1"), ("covariates", 2),
    ("linear", None), ("linear", "kernel"), ("linear_state", {}), ("name", "ridge"), ("name", 5),
    ("train", {"steps": -1}),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "value"), SPOILED)
def test_a_file_that_contradicts_itself_is_refused(saved, setting, value, tmp_path):
    """Each setting is checked, before memory is taken for it."""
    header, arrays = read_container(saved[1], "plan")
    header = json.loads(json.dumps(header))
    header["reconstructor"]["settings"][setting] = value
    write_container(tmp_path / "spoiled.keyhole", header, dict(arrays))
    with little_memory():
        try:
            plan = kh.load(tmp_path / "spoiled.keyhole", models={"mine": FromReadings, "ridge": FromReadings})
        except kh.KeyholeError:
            return
    assert (setting, value) == ("linear", None)  # the network alone, which is a valid plan
    assert np.isfinite(plan.reconstruct(np.zeros((1, 3)), outliers="trust")[..., :-1]).all()


class Detached(FromReadings):
    """Its outputs do not depend on its weights, as far as gradients go."""

    def forward(self, readings):
        return super().forward(readings).detach()


def test_a_network_without_gradient_is_refused():
    """With what to look for, in place of PyTorch's message."""
    with pytest.raises(TrainingError, match=r"does not depend on the weights.*\.detach\(\)"):
        fitted(ModuleReconstructor(Detached, train=QUICK))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (nn.MSELoss, r"'MSELoss' is a class; give an object, MSELoss\(\)"),
        ("mse", "'mse' is no function and no module"),
        (lambda outputs: outputs.mean(), r"called as loss\(reconstruction, truth\).*too many positional arguments"),
        (lambda outputs, truth, other: outputs.mean(), "missing a required argument: 'other'"),
        (lambda outputs, truth: (outputs > truth).sum(), "a tensor of shape .*torch.int64"),
    ],
)
def test_a_loss_that_cannot_be_called_is_refused_before_sites_are_selected(loss, message):
    """Each with what it is and what is needed."""
    with pytest.raises(SettingsError, match=message):
        kh.select(field(), k=3, method="qr", reconstructor=ModuleReconstructor(FromReadings, loss=loss, train=QUICK))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_script_module_is_refused():
    """It cannot be copied as other modules are, and fails in the optimiser."""
    scripted = torch.jit.script(nn.Linear(3, 10))
    with pytest.raises(SettingsError, match="TorchScript module; give the module that it was made from"):
        kh.select(field(), k=3, method="qr", reconstructor=ModuleReconstructor(scripted, train=QUICK))


def test_networks_are_given_by_name(saved, tmp_path):
    """A class in place of a mapping is no fault of the file."""
    saved[0].save(tmp_path / "plan.keyhole")
    with pytest.raises(SettingsError, match="expected a mapping from names to networks"):
        kh.load(tmp_path / "plan.keyhole", models=FromReadings)
