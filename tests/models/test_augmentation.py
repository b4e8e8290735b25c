"""Augmentation: what it does to images, and which transformations are chosen."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import keyhole as kh
from keyhole.core.run import Run
from keyhole.data.preparation import prepare
from keyhole.data.samples import Samples
from keyhole.data.sites import Sites
from keyhole.models.reconstructors import Residual
from keyhole.models.reconstructors.augmentation import Augmentation, AugmentedBatches, affine_grid
from keyhole.models.reconstructors.ridge import Ridge


def blobs(n=2000, side=12, seed=0, lean=0.0, spots=4):
    """Round spots anywhere; ``lean`` makes those to the right brighter, so that mirrors tell."""
    rng = np.random.default_rng(seed)
    places = np.arange(side)
    down, across = rng.uniform(0, side - 1, (2, spots, n, 1, 1))
    away = np.square(places[:, None] - down) + np.square(places - across)
    light = np.exp(-away / 6) * (1 + lean * (across > side / 2))
    return (light.sum(axis=0) + 0.5).astype(np.float32)


def parts(values, sites):
    signals = Samples.build(values if values.ndim == 4 else values[:, None], Sites.plain(values.shape[-2:]))
    prepared = prepare(signals, None, seed=0)
    linear = Ridge().fit(prepared.train, sites, validation=prepared.validation, run=Run())
    return linear, prepared.train, prepared.validation


SITES = np.arange(13, 131, 9)


def test_a_mirror_is_numpys():
    """Before the mean is taken off; the mean itself stays where it was."""
    zero = torch.randn(2, 4, 5)
    pictures = torch.randn(6, 2, 4, 5)
    for axis, mirrored in ((2, (True, False)), (3, (False, True))):
        moved = Augmentation(zero, mirrored=mirrored).always(pictures)
        expected = np.flip((pictures + zero).numpy(), axis) - zero.numpy()
        np.testing.assert_allclose(moved.numpy(), expected, atol=1e-5)


def test_places_are_those_of_torch():
    """For any map and shape."""
    maps = torch.randn(4, 2, 3)
    expected = torch.nn.functional.affine_grid(maps, [4, 1, 5, 7], align_corners=False)
    np.testing.assert_allclose(affine_grid(maps, 5, 7).numpy(), expected.numpy(), atol=1e-5)


def test_without_any_kind_pictures_stay():
    """The map is then the identity."""
    pictures = torch.randn(6, 1, 4, 5)
    moved = Augmentation(torch.randn(1, 4, 5))(pictures, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(moved.numpy(), pictures.numpy(), atol=1e-5)


def test_nudges_are_small_and_half_are_left_alone():
    """A spot stays within two cells of where it was; half of the pictures do not change at all."""
    values = torch.from_numpy(blobs(200, spots=1))[:, None]
    moved = Augmentation(torch.zeros(1, 12, 12), nudged=True)(values, torch.Generator().manual_seed(0))
    same = (moved - values).abs().amax(dim=(1, 2, 3)) < 1e-5
    assert 70 < int(same.sum()) < 130
    before, after = (np.stack(np.unravel_index(v.flatten(1).argmax(dim=1).numpy(), (12, 12))) for v in (values, moved))
    assert 0 < np.abs(before - after).max() <= 2


def test_mirrors_are_taken_where_mirrored_pictures_are_as_likely():
    """Left and right are alike without a lean, and are not with one; time is no picture's."""
    moves = Augmentation.found(*parts(blobs(), SITES), SITES)
    assert moves is not None
    assert moves.nudged
    assert moves.mirrored == (True, True)
    leaning = Augmentation.found(*parts(blobs(lean=4.0), SITES), SITES)
    assert leaning is not None
    assert leaning.mirrored == (True, False)


def test_what_has_a_time_is_not_moved():
    """A field is where it is."""
    prepared = prepare(kh.datasets.sst(), None, seed=0)
    sites = np.arange(5)
    linear = Ridge().fit(prepared.train, sites, validation=prepared.validation, run=Run())
    assert Augmentation.found(linear, prepared.train, prepared.validation, sites) is None


@pytest.mark.parametrize("inner", ["dense", "resnet"])
def test_training_batches_hold_what_the_linear_part_makes(inner):
    """With moves that do nothing they equal those that are looked up."""
    linear, train, _ = parts(np.stack([blobs(), blobs(seed=1)], axis=1), SITES)
    residual = Residual(inner)
    network = residual.network
    network.channels, network.domain, network.sites = train.channels, train.sites, SITES
    lessons = AugmentedBatches(
        Augmentation(torch.from_numpy(np.float32(train.sites.to_grid(train.offset)))),
        linear,
        train,
        SITES,
        network.inputs,
    )
    fixed = network.fixed_batches(train, linear)
    batch = torch.tensor([3, 0, 7])
    for moved, still in zip(lessons(batch, torch.Generator()), fixed(batch, torch.Generator()), strict=True):
        np.testing.assert_allclose(moved.numpy(), still.numpy(), atol=1e-4)


def test_augmentation_is_drawn_from_the_trainings_own_generator():
    """Two runs with one seed agree."""
    linear, train, validation = parts(blobs(), SITES)
    assert Augmentation.found(linear, train, validation, SITES) is not None
    fits = [
        Residual("dense", train={"steps": 20, "batch_size": 32}).fit(train, SITES, validation=validation, run=Run())
        for _ in range(2)
    ]
    reconstructed = [fit.reconstruct(validation.readings(SITES)) for fit in fits]
    np.testing.assert_array_equal(*reconstructed)


def test_moved_pictures_are_as_sharp_and_within_their_values():
    """Edges of nudged discs keep at least nine tenths of their squared slopes, and nothing over- or undershoots."""
    rng = np.random.default_rng(0)
    across, down = rng.uniform(9, 19, (2, 200, 1, 1))
    places = np.arange(28)
    away = np.hypot(places - across, places[:, None] - down)
    discs = torch.from_numpy((1 / (1 + np.exp(2 * (away - 6)))).astype(np.float32))[:, None]
    moved = Augmentation(torch.zeros(1, 28, 28), nudged=True).always(discs)
    assert moved.min() >= 0
    assert moved.max() <= 1
    slopes = [float(part.diff(dim=2).square().sum() + part.diff(dim=3).square().sum()) for part in (discs, moved)]
    assert slopes[1] > 0.9 * slopes[0]


def test_what_is_not_understood_is_not_moved():
    """Where the linear part rebuilds next to nothing, moved pictures are rebuilt as badly: that tells nothing."""
    rng = np.random.default_rng(0)
    told, patterns = rng.uniform(-2, 2, (600, 2)), rng.normal(size=(2, 64))
    values = (np.sin(9 * told) @ patterns).astype(np.float32)
    values[:, :2] = told
    linear, train, validation = parts(values.reshape(-1, 8, 8), sites := np.array([0, 1]))
    assert Augmentation.found(linear, train, validation, sites) is None
