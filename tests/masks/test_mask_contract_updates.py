"""What every registered distribution must do when it is moved or asked about itself; see `test_mask_contract`."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from mask_helpers import make_distribution, roughened, seeded

from keyhole.core.errors import DataError, InfeasibleError, SettingsError
from keyhole.masks import MASK_DISTRIBUTIONS

every_distribution = pytest.mark.parametrize("name", MASK_DISTRIBUTIONS)


@every_distribution
def test_shift_moves_every_logit(name):
    """`shift` adds its delta to all logits and nothing else."""
    distribution = roughened(make_distribution(name))
    before = distribution.draw(10, seeded(1)).logits
    distribution.shift(0.7)
    torch.testing.assert_close(distribution.draw(10, seeded(1)).logits, before + 0.7, atol=1e-5, rtol=1e-5)


@every_distribution
@pytest.mark.parametrize(("inside", "count"), [(0.8, None), (0.9, 4.5)])
def test_warm_start_sets_marginals_only(name, inside, count):
    """Chosen sites get `inside`, the others share the rest of the count; spreads do not move."""
    distribution = roughened(make_distribution(name))
    before = distribution.draw(10, seeded(1)).logits
    chosen = np.array([2, 9, 4])
    chosen.flags.writeable = False
    distribution.warm_start(chosen, selected_marginal=inside, count=count)
    marginals = distribution.pack(distribution.marginals)
    picked = torch.isin(distribution.index, torch.tensor([2, 9, 4]))
    assert marginals[picked].tolist() == pytest.approx([inside] * 3, abs=2e-4)
    rest = ((count or 3) - 3 * inside) / (distribution.n_sites - 3)
    assert marginals[~picked].tolist() == pytest.approx([rest] * (distribution.n_sites - 3), abs=2e-4)
    assert distribution.count() == pytest.approx(count or 3, abs=3e-3)
    moved = distribution.draw(10, seeded(1)).logits - before
    torch.testing.assert_close(moved, moved[:1].expand_as(moved), atol=1e-4, rtol=1e-4)


@every_distribution
def test_warm_start_keeps_others_within_bounds(name):
    """No site falls below 0.001, and none is likelier than the chosen."""
    distribution = make_distribution(name)
    distribution.warm_start([2, 4], selected_marginal=0.99, count=1.0)
    assert float(distribution.pack(distribution.marginals).min()) == pytest.approx(1e-3, abs=2e-4)
    distribution.warm_start([2, 4], selected_marginal=0.6, count=distribution.n_sites)
    assert float(distribution.pack(distribution.marginals).max()) == pytest.approx(0.6, abs=2e-4)


@every_distribution
def test_concentration(name):
    """Between 0 and 1, all of it at the number of sites, and most of it at the sites of a warm start."""
    distribution = roughened(make_distribution(name))
    shares = [distribution.concentration(k) for k in range(1, distribution.n_sites + 1)]
    assert all(0 < a <= b <= 1 + 1e-9 for a, b in itertools.pairwise(shares))
    assert shares[-1] == pytest.approx(1)
    distribution.warm_start([2, 9, 4], selected_marginal=0.95)
    assert distribution.concentration(3) == pytest.approx(0.95, abs=1e-3)


@every_distribution
def test_covariance(name):
    """Correlated distributions show the covariance of their logits; the others say that they have none."""
    distribution = roughened(make_distribution(name))
    if not distribution.correlated:
        with pytest.raises(SettingsError, match=name):
            _ = distribution.covariance
        return
    with torch.no_grad():
        logits = torch.cat([distribution.draw(20_000, seeded(s)).logits for s in range(3)])
    covariance = distribution.covariance
    scale = float(covariance.diagonal().max())
    torch.testing.assert_close(covariance, torch.cov(logits.T), atol=0.1 * scale, rtol=0)
    assert covariance.fill_diagonal_(0).abs().max() > 0.1 * scale


@every_distribution
def test_interior_modes_vanish_as_the_temperature_falls(name):
    """The paper's remedy works, and a hot distribution shows what it is a remedy for."""
    distribution = make_distribution(name)
    assert distribution.interior_modes().shape == (distribution.n_sites,)
    assert distribution.interior_modes().dtype == torch.bool
    distribution.temperature = 20.0
    assert distribution.interior_modes().all()
    distribution.temperature = 0.01
    assert not distribution.interior_modes().any()


@every_distribution
def test_refusals_name_what_they_got(name):
    """A distribution refuses what it cannot work with."""
    with pytest.raises(DataError, match="no site"):
        make_distribution(name, torch.zeros(2, 2, dtype=torch.bool))
    with pytest.raises(SettingsError, match="gamma"):
        make_distribution(name, gamma=0.1)
    with pytest.raises(SettingsError, match="temperature"):
        make_distribution(name, temperature=0.0)
    distribution = make_distribution(name)
    with pytest.raises(DataError, match="site 1 "):
        distribution.warm_start([1])
    with pytest.raises(SettingsError, match="selected_marginal"):
        distribution.warm_start([0], selected_marginal=1.0)
    with pytest.raises(InfeasibleError, match="got 0"):
        distribution.concentration(0)


@pytest.mark.parametrize("name", ["iln", "vln"])
def test_polarise_leaves_no_interior_mode(name):
    """Wherever the locations are, spreads are wide enough; locations within reach and wide spreads do not move."""
    distribution = make_distribution(name, torch.ones(20, 20, dtype=torch.bool))
    with torch.no_grad():
        spreads = torch.linspace(0.01, 2.0, 400)
        distribution._shift_logits(torch.linspace(-1.0, 1.0, 400))
        if name == "iln":
            distribution.log_sigma.copy_(spreads.log())
        else:
            distribution.weight.mul_((spreads / distribution.moments()[1]).unsqueeze(1))
    before = distribution.moments()
    assert distribution.interior_modes().any()
    sample = distribution.draw(8, seeded(1))
    distribution.polarise(sample, 1e-4)
    location, spread = distribution.moments()
    assert not distribution.interior_modes().any()
    torch.testing.assert_close(location, before[0])
    wide = before[1] > 0.8
    torch.testing.assert_close(spread[wide], before[1][wide])


@every_distribution
@pytest.mark.parametrize("shift", [30.0, -30.0])
def test_polarise_keeps_sites_within_reach(name, shift):
    """However sure a distribution is, its marginals come back from 0 and 1; those that were not sure stay."""
    distribution = roughened(make_distribution(name))
    before = distribution.pack(distribution.marginals)
    distribution.polarise(distribution.draw(4096, seeded(1)), 0.01)
    unsure = (before > 0.05) & (before < 0.95)
    torch.testing.assert_close(distribution.pack(distribution.marginals)[unsure], before[unsure], atol=0.02, rtol=0)
    distribution.shift(shift)
    distribution.polarise(distribution.draw(4096, seeded(1)), 0.2)
    assert distribution.pack(distribution.marginals).min() > 0.1
    assert distribution.pack(distribution.marginals).max() < 0.9
