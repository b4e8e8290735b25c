"""What every registered law must do when it is moved or asked about itself; see `test_law_contract`."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from law_helpers import make_law, roughened, seeded

from keyhole.errors import BudgetError, DataError, SettingsError
from keyhole.laws import LAWS

every_law = pytest.mark.parametrize("name", LAWS)


@every_law
def test_shift_moves_every_logit(name):
    """`shift` adds its delta to all logits and nothing else."""
    law = roughened(make_law(name))
    before = law.sample(10, seeded(1)).logits
    law.shift(0.7)
    torch.testing.assert_close(law.sample(10, seeded(1)).logits, before + 0.7, atol=1e-5, rtol=1e-5)


@every_law
@pytest.mark.parametrize(("inside", "count"), [(0.8, None), (0.9, 4.5)])
def test_warm_start_sets_marginals_only(name, inside, count):
    """Chosen sites get `inside`, the others share the rest of the count; spreads do not move."""
    law = roughened(make_law(name))
    before = law.sample(10, seeded(1)).logits
    chosen = np.array([2, 9, 4])
    chosen.flags.writeable = False
    law.warm_start(chosen, inside=inside, count=count)
    marginals = law.marginals()
    picked = torch.isin(law.index, torch.tensor([2, 9, 4]))
    assert marginals[picked].tolist() == pytest.approx([inside] * 3, abs=2e-4)
    rest = ((count or 3) - 3 * inside) / (law.sites - 3)
    assert marginals[~picked].tolist() == pytest.approx([rest] * (law.sites - 3), abs=2e-4)
    assert law.count() == pytest.approx(count or 3, abs=3e-3)
    moved = law.sample(10, seeded(1)).logits - before
    torch.testing.assert_close(moved, moved[:1].expand_as(moved), atol=1e-4, rtol=1e-4)


@every_law
def test_warm_start_keeps_others_within_bounds(name):
    """No site falls below 0.001, and none is likelier than the chosen."""
    law = make_law(name)
    law.warm_start([2, 4], inside=0.99, count=1.0)
    assert float(law.marginals().min()) == pytest.approx(1e-3, abs=2e-4)
    law.warm_start([2, 4], inside=0.6, count=law.sites)
    assert float(law.marginals().max()) == pytest.approx(0.6, abs=2e-4)


@every_law
def test_concentration(name):
    """Between 0 and 1, all of it at the number of sites, and most of it at the sites of a warm start."""
    law = roughened(make_law(name))
    shares = [law.concentration(k) for k in range(1, law.sites + 1)]
    assert all(0 < a <= b <= 1 + 1e-9 for a, b in itertools.pairwise(shares))
    assert shares[-1] == pytest.approx(1)
    law.warm_start([2, 9, 4], inside=0.95)
    assert law.concentration(3) == pytest.approx(0.95, abs=1e-3)


@every_law
def test_covariance(name):
    """Correlated laws show the covariance of their logits; the others say that they have none."""
    law = roughened(make_law(name))
    if not law.correlated:
        with pytest.raises(SettingsError, match=name):
            law.covariance()
        return
    with torch.no_grad():
        logits = torch.cat([law.sample(20_000, seeded(s)).logits for s in range(3)])
    covariance = law.covariance()
    scale = float(covariance.diagonal().max())
    torch.testing.assert_close(covariance, torch.cov(logits.T), atol=0.1 * scale, rtol=0)
    assert covariance.fill_diagonal_(0).abs().max() > 0.2 * scale


@every_law
def test_interior_modes_vanish_as_the_temperature_falls(name):
    """The paper's remedy works, and a hot law shows what it is a remedy for."""
    law = make_law(name)
    assert law.interior_modes().shape == (law.sites,)
    assert law.interior_modes().dtype == torch.bool
    law.temperature = 20.0
    assert law.interior_modes().all()
    law.temperature = 0.01
    assert not law.interior_modes().any()


@every_law
def test_refusals_name_what_they_got(name):
    """A law refuses what it cannot work with."""
    with pytest.raises(DataError, match="observable"):
        make_law(name, torch.zeros(2, 2, dtype=torch.bool))
    with pytest.raises(SettingsError, match="gamma"):
        make_law(name, gamma=0.1)
    with pytest.raises(SettingsError, match="temperature"):
        make_law(name, temperature=0.0)
    law = make_law(name)
    with pytest.raises(DataError, match="site 1 "):
        law.warm_start([1])
    with pytest.raises(SettingsError, match="inside"):
        law.warm_start([0], inside=1.0)
    with pytest.raises(BudgetError, match="got 0"):
        law.concentration(0)


@pytest.mark.parametrize("name", ["iln", "vln"])
def test_polarise_leaves_no_interior_mode(name):
    """Wherever the locations are, spreads are wide enough; locations within reach and wide spreads do not move."""
    law = make_law(name, torch.ones(20, 20, dtype=torch.bool))
    with torch.no_grad():
        spreads = torch.linspace(0.01, 2.0, 400)
        law._move(torch.linspace(-1.0, 1.0, 400))
        if name == "iln":
            law.log_sigma.copy_(spreads.log())
        else:
            law.weight.mul_((spreads / law.moments()[1]).unsqueeze(1))
    before = law.moments()
    assert law.interior_modes().any()
    sample = law.sample(8, seeded(1))
    law.polarise(sample, 1e-4)
    location, spread = law.moments()
    assert not law.interior_modes().any()
    torch.testing.assert_close(location, before[0])
    wide = before[1] > 0.8
    torch.testing.assert_close(spread[wide], before[1][wide])


@every_law
@pytest.mark.parametrize("shift", [30.0, -30.0])
def test_polarise_keeps_sites_within_reach(name, shift):
    """However sure a law is, its marginals come back from 0 and 1; those that were not sure stay."""
    law = roughened(make_law(name))
    before = law.marginals()
    law.polarise(law.sample(4096, seeded(1)), 0.01)
    unsure = (before > 0.05) & (before < 0.95)
    torch.testing.assert_close(law.marginals()[unsure], before[unsure], atol=0.02, rtol=0)
    law.shift(shift)
    law.polarise(law.sample(4096, seeded(1)), 0.2)
    assert law.marginals().min() > 0.1
    assert law.marginals().max() < 0.9
