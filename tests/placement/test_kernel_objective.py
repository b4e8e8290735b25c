"""Kernel ridge behind the masks: its error and the differences by each site, against their definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

import keyhole as kh
from keyhole.core.run import Run
from keyhole.data.target import Target
from keyhole.models.kernels import Hyperparameters, inverse, kernel, leave_one_out
from keyhole.placement.classical import QR
from keyhole.placement.exchange import Exchange
from keyhole.placement.kernel_objective import KernelObjective
from keyhole.placement.kernel_surrogate import FitScoreSplit, KernelSurrogate, LeaveOneOutSurrogate
from keyhole.placement.learned import Learned


def digits(n=200, *, with_target=False):
    samples = kh.datasets.load("digits").take(np.arange(n))
    if with_target:
        samples = samples.with_target(Target.of(kh.datasets.labels("digits").values[:n]))
    return samples.as_scaled()


def error_of(objective, samples, sites):
    """Leave-one-out error of kernel ridge, from the same hyperparameters, relative to the sum of squares."""
    scale, mean = (dict(objective.named_buffers())[name].numpy().astype(float) for name in ("scale", "mean"))
    readings = ((samples.targets - mean) / scale)[:, 0, sites]
    if samples.target is not None:
        outputs = np.eye(10)[samples.target.values]
    else:
        outputs = (samples.targets - mean)[:, 0] @ dict(objective.named_buffers())["basis"].numpy().astype(float).T
    outputs = outputs - outputs.mean(axis=0)
    parameters: Hyperparameters = objective.kernel_parameters
    left = leave_one_out(inverse(kernel(readings, readings, parameters), parameters.regularisation), outputs)
    return float(np.square(left).sum() / np.square(outputs).sum())


@pytest.mark.parametrize("with_target", [False, True])
def test_the_error_is_that_of_kernel_ridge_and_the_gradient_that_of_sites_opened_and_closed(with_target):
    samples = digits(with_target=with_target)
    sites = QR().select(digits(), 8, validation=None, run=Run()).sites
    objective = KernelObjective(samples, sites, Run())
    masks = torch.zeros(1, 64).index_fill(1, torch.from_numpy(sites), 1.0).requires_grad_()
    x, generator = torch.from_numpy(samples.targets), torch.Generator().manual_seed(0)
    loss = sum(objective(x, x, masks, torch.arange(len(x)), generator).values())
    before = error_of(objective, samples, sites)
    assert loss.item() == pytest.approx(before, rel=1e-3)
    loss.backward()
    gradient = masks.grad[0].numpy()
    closed = [before - error_of(objective, samples, np.setdiff1d(sites, site)) for site in sites]
    np.testing.assert_allclose(gradient[sites], closed, rtol=1e-2, atol=1e-5)
    others = [site for site in np.flatnonzero(samples.values.std(axis=(0, 1)) > 0) if site not in sites]
    opened = [error_of(objective, samples, np.append(sites, site)) - before for site in others]
    assert spearmanr(gradient[others], opened).statistic > 0.8


QUICK = {"train": {"steps": 12, "batch_size": 48, "ema_decay": 0.0}, "n_masks": 2, "n_restarts": 0}


@pytest.mark.parametrize("with_target", [False, True])
def test_learned_masks_with_the_kernel_decoder_end_in_local_search(with_target):
    """Sites after the search have no larger surrogate error than those that were learned."""
    samples = digits(with_target=with_target)
    start = "relevance" if with_target else "qr"
    learned = Learned(decoder="kernel", warm_start=start, local_search=True, **QUICK)
    found = learned.select(samples, 5, validation=None, run=Run())
    assert len(set(found.sites.tolist())) == 5
    before = np.array(found.notes["learned_sites"])
    data = FitScoreSplit.from_samples(samples, samples, 5, Run())
    tuned = KernelSurrogate.fit(FitScoreSplit.from_samples(samples, None, 5, Run()), before)
    surrogate = LeaveOneOutSurrogate(data, tuned.parameters)
    assert surrogate(found.sites) <= surrogate(before) * 1.001


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"decoder": "kernel", "budget": "penalty"}, "zeros and ones"),
        ({"decoder": "kernel", "budget": "dual", "masks": "soft"}, "zeros and ones"),
        ({"warm_start": "relevance"}, "there is none"),
    ],
)
def test_what_does_not_go_with_it_is_refused(settings, words):
    assert words in (Learned(**settings).incompatibility(digits()) or "")


def test_a_linear_field_ends_in_the_linear_search():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(150, 4)) @ rng.normal(size=(4, 30)) + 0.1 * rng.normal(size=(150, 30))
    samples = kh.read(values).as_scaled()
    found = Learned(local_search=True, **QUICK).select(samples, 3, validation=None, run=Run())
    linear = Exchange(n_restarts=0).improve(samples, np.array(found.notes["learned_sites"]), Run())
    assert found.sites.tolist() == linear.sites.tolist()
    assert len(set(found.sites.tolist())) == 3
