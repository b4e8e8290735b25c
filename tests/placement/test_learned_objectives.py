"""Objectives of learned masks: reconstruction, adversarial, prediction of a target; and the discriminator."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import keyhole as kh
from keyhole.core.errors import SettingsError
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.data.target import Target
from keyhole.models.objectives import adversarial, prediction
from keyhole.models.reconstructors.patch_discriminator import PatchDiscriminator
from keyhole.placement import SELECTORS
from keyhole.placement.learned_objectives import (
    AdversarialObjective,
    PredictionObjective,
    ReconstructionObjective,
    make_objective,
)
from keyhole.placement.settings import LearnedSettings
from keyhole.workflow.selection import choose_sites

QUICK = {"train": {"steps": 20, "batch_size": 16, "ema_decay": 0.0}, "n_masks": 4}


def signals(n=60, shape=(6, 7), seed=0):
    rng = np.random.default_rng(seed)
    size = int(np.prod(shape))
    values = rng.normal(size=(n, 4)) @ rng.normal(size=(4, size)) + 0.1 * rng.normal(size=(n, size))
    return kh.read(values.reshape(n, *shape))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 3))
def test_the_discriminator_scores_patches_of_any_grid(height, width, inputs):
    """One logit for each patch, several patches where the grid has room for them."""
    judged = PatchDiscriminator(inputs, (height, width), filters=2)(torch.zeros(2, inputs, height, width))
    assert judged.shape[:2] == (2, 1)
    assert judged.shape[2] <= max(height, 4)
    if min(height, width) >= 8:
        assert judged.shape[2] > 1
        assert judged.shape[3] > 1


def test_generator_and_discriminator_have_gradients_of_their_own():
    """The generator's part gives the discriminator no gradient, the critic's gives the generator none."""
    critic = PatchDiscriminator(2, (8, 8))
    reconstructed = torch.randn(3, 1, 8, 8, requires_grad=True)
    observed = torch.randn(3, 1, 8, 8, requires_grad=True)
    parts = adversarial(critic, torch.randn(3, 1, 8, 8), reconstructed, observed, l1_weight=10.0)
    (parts["gan"] + parts["l1"]).backward(retain_graph=True)
    assert reconstructed.grad is not None
    assert reconstructed.grad.abs().sum() > 0
    assert observed.grad is not None
    assert all(weight.grad is None for weight in critic.parameters())
    before = reconstructed.grad.clone(), observed.grad.clone()
    parts["critic"].backward()
    assert all(weight.grad is not None for weight in critic.parameters())
    torch.testing.assert_close((reconstructed.grad, observed.grad), before)


def test_gan_parts_are_the_formulas():
    """Against binary cross-entropy and mean absolute error written out."""

    class Fixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor(2.0))

        def forward(self, x):
            return self.weight * x.sum(dim=(1, 2, 3))

    truth, reconstructed, observed = (torch.rand(4, 1, 3, 3, generator=seeded(s)) - 0.5 for s in range(3))
    parts = adversarial(Fixed(), truth, reconstructed, observed, l1_weight=7.0)
    true, false = ((2 * (x + observed).sum(dim=(1, 2, 3))).sigmoid() for x in (truth, reconstructed))
    assert parts["gan"].item() == pytest.approx(-false.log().mean().item(), rel=1e-5)
    assert parts["l1"].item() == pytest.approx(7 * (truth - reconstructed).abs().mean().item(), rel=1e-6)
    critic = -(true.log().mean() + (1 - false).log().mean()) / 2
    assert parts["critic"].item() == pytest.approx(critic.item(), rel=1e-5)


def test_prediction_is_cross_entropy_or_squared_error():
    """Against both written out."""
    outputs = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    chances = torch.softmax(outputs, dim=1)
    expected = -(chances[0, 1].log() + chances[1, 1].log()) / 2
    assert prediction(outputs, torch.tensor([1, 1]), True).item() == pytest.approx(expected.item(), rel=1e-6)
    assert prediction(outputs[:, :1], torch.tensor([0.0, 2.0]), False).item() == pytest.approx((1 + 4) / 2)


def test_the_unit_is_the_loss_of_knowing_nothing():
    """Variance of the cells; entropy of the classes; one for a standardised number."""
    data = signals(n=500)
    packed = data.values
    values = np.array(["a"] * 250 + ["b"] * 250)
    settings = LearnedSettings(decoder="dense")
    of_mean = ((packed - packed.mean(0)) ** 2).mean()
    assert make_objective(data.as_scaled(), 3, settings).unit == pytest.approx(of_mean, rel=1e-5)
    for target, unit in ((values, np.log(2)), (np.linspace(0, 9, 500), 1.0)):
        labelled = data.with_target(Target.of(target)).as_scaled()
        assert make_objective(labelled, 3, settings).unit == pytest.approx(unit)


def test_the_goal_follows_target_and_objective():
    """A target is told, a gan passes for true, all else is rebuilt; what does not fit is an error."""
    target = Target.of(np.arange(60) % 2 == 0)
    data, labelled = signals().as_scaled(), signals().with_target(target).as_scaled()
    assert isinstance(make_objective(data, 3, LearnedSettings()), ReconstructionObjective)
    assert isinstance(make_objective(data, 3, LearnedSettings(objective="gan")), AdversarialObjective)
    assert isinstance(make_objective(labelled, 3, LearnedSettings()), PredictionObjective)
    with pytest.raises(SettingsError, match="target"):
        make_objective(labelled, 3, LearnedSettings(objective="gan"))
    with pytest.raises(SettingsError, match="gan"):
        make_objective(data, 3, LearnedSettings(objective="gan", decoder="dense"))


@pytest.mark.parametrize("settings", [{"decoder": "resnet", "mask_channel": False}, {"objective": "gan"}, {}])
def test_what_was_trained_reconstructs_from_the_sites_alone(settings):
    """Cells that are not chosen may hold anything: the network behind the law does not see them."""
    parts = prepare(signals(), None, seed=0)
    selection = choose_sites(SELECTORS.make("learned", QUICK | settings), parts, 4, Run())
    test = parts.choosing.apply(parts.test)
    reconstructed = selection.reconstruct(test)
    assert reconstructed.shape == test.values.shape
    spoilt = np.random.default_rng(1).normal(size=test.values.shape).astype(np.float32)
    flat, own = spoilt.reshape(len(test), -1), test.values.reshape(len(test), -1)
    flat[:, selection.sites] = own[:, selection.sites]
    from dataclasses import replace

    np.testing.assert_allclose(selection.reconstruct(replace(test, data=spoilt)), reconstructed, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("budget", ["exact", "dual", "penalty"])
@pytest.mark.parametrize("distribution", ["vln", "iln", "sct", "hnet"])
def test_every_mask_distribution_and_budget_can_predict_a_target(distribution, budget):
    """K distinct sites, and the loss is of the target."""
    parts = prepare(signals().with_target(Target.of(np.arange(60) % 3, kind="class")), None, seed=0)
    selection = choose_sites(SELECTORS.make(distribution, QUICK | {"budget": budget}), parts, 4, Run())
    assert len(set(selection.sites.tolist())) == 4
    assert selection.reconstruct is None


@pytest.mark.parametrize("unit", [1.0, 1e-3])
@pytest.mark.parametrize("kind", ["class", "number"])
def test_the_sites_that_predict_the_target_are_found(kind, unit):
    """Two of twelve columns make the target, in units of their own; they are not the ones that rebuild the others."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(400, 12))
    values[:, :8] += 3 * rng.normal(size=(400, 1))  # what rebuilds best says nothing of the target
    cause = values[:, 9] - values[:, 11]
    target = Target.of(np.where(cause > 0, "up", "down") if kind == "class" else cause)
    values[:, 8:] *= unit
    parts = prepare(kh.read(values).with_target(target), None, seed=0)
    settings = {"train": {"steps": 200, "batch_size": 64, "ema_decay": 0.0}}
    selection = choose_sites(SELECTORS.make("vln", settings), parts, 2, Run())
    assert set(selection.sites.tolist()) == {9, 11}


def test_k_falls_from_the_first_count():
    """Where it is to fall, the budget starts at the law's count and ends at K, before the run does."""
    parts = prepare(signals(n=80), None, seed=0)
    settings = QUICK | {"budget": "dual", "k_anneal": 0.5, "warm_start": "none"}
    task, _ = SELECTORS.make("vln", settings).learn(parts.train, 4, Run())
    ks = []
    for progress in (0.0, 0.25, 0.5, 1.0):
        task.begin(progress)
        ks.append(task.budget.k)
    assert ks[0] == round(task.first_count) == 21
    assert 4 < ks[1] < 21
    assert ks[2:] == [4, 4]


@pytest.mark.parametrize("polarise", [True, False])
def test_soft_masks_keep_every_site_a_little_open_unless_told_not_to(polarise):
    """Under a penalty that closes all sites, marginals stop at 2 % of K spread over the sites, or go on to zero."""
    given = {"distribution": "sct", "budget": "penalty", "l0_weight": 100.0, "masks": "soft", "warm_start": "none"}
    settings = given | {"polarise": polarise, "mask_learning_rate": 1.0, **QUICK}
    task, _ = SELECTORS.make("learned", settings).learn(prepare(signals(), None, seed=0).train, 4, Run())
    bound = 0.02 * 4 / 42
    assert (task.distribution.marginals.min().item() >= 0.99 * bound) is polarise


@pytest.mark.parametrize("settings", [{"decoder": "resnet"}, {"objective": "gan"}])
def test_the_shifted_resnet_behind_masks_draws_its_shifts_from_the_generator_of_the_step(settings):
    """The same state of it gives the same loss, whatever torch's global generator; without shifts there are others."""
    torch.manual_seed(2)
    objective, plain = (
        make_objective(signals().as_scaled(), 3, LearnedSettings(n_phases=n_phases, **settings)) for n_phases in (4, 0)
    )
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    x, masks = torch.randn(8, 1, 42), torch.rand(2, 42)

    plain.load_state_dict(objective.state_dict())

    def loss(seed, objective=objective):
        return sum(objective.train()(x, x, masks, torch.arange(8), seeded(seed)).values()).item()

    torch.manual_seed(0)
    first = [loss(seed) for seed in range(6)]
    torch.manual_seed(1)
    assert [loss(seed) for seed in range(6)] == first
    assert len(set(first)) > 1
    assert loss(0, plain) not in first
    with pytest.raises(SettingsError, match="n_phases"):
        SELECTORS.make("learned", {"n_phases": 3})
