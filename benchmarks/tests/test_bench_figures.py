"""The figures of the benchmarks are drawn from what is there, say what they should, and keep faces private."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.integrate import trapezoid

from keyhole.core.errors import DataError
from keyhole.masks import IndependentLogitNormal
from keyhole_benchmarks import table1
from keyhole_benchmarks.drawing import (
    LogitNormal,
    StoredCase,
    averages,
    covariance,
    densities,
    draw_all,
    draw_chart,
    gan_against_squared,
    latest,
    samples,
    stored_cases,
    table1_chart,
)
from keyhole_benchmarks.drawing.distributions import by_distance, correlation
from keyhole_benchmarks.drawing.style import COLOURS, MARKS, save
from keyhole_benchmarks.names import METHODS
from keyhole_benchmarks.records import Case, Store

GRIDS = {"mnist": (9, 9), "ipsl": (6, 6), "celeba": (8, 8)}
MASK_DISTRIBUTIONS = ("iln", "sct", "vln", "hnet")


def line(data="mnist", method="vln", network="own", k=5, seed=0, mse=0.02, bench="table1", **words: Any) -> dict:
    """A record as the benchmarks write it, with what the figures read of it."""
    case = Case(bench, data, words.get("protocol", "small"), method, network, k, seed)
    return {
        **case.words(),
        "case_id": case.case_id,
        "status": "ok",
        "metrics": {"mse": mse, "rmse": mse**0.5, "fvu": 4 * mse},
        "notes": {"concentration": 0.5},
        "published": None,
        "comparable": False,
        **words,
    }


def arrays(data="mnist", method="vln", k=5) -> dict[str, np.ndarray]:
    """What is kept with a record: masks are likelier where sites were chosen, neighbours repel each other."""
    rng, grid = np.random.default_rng(len(data + method)), GRIDS[data]
    size = int(np.prod(grid))
    truth = rng.random((8, 1, *grid)).astype(np.float32) - (0.5 if data == "ipsl" else 0)
    sites = rng.permutation(size)[:k]
    found = {"truth": truth, "sites": sites}
    if method not in ("qr", "greedy"):
        found["reconstructed"] = truth + 0.1 * rng.normal(size=truth.shape).astype(np.float32)
    if method in (*MASK_DISTRIBUTIONS, "cgan"):
        found["average"] = np.where(np.isin(np.arange(size), sites), 0.9, 0.1).reshape(grid).astype(np.float32)
    if method in ("vln", "hnet"):
        found["covariance"] = local(grid).astype(np.float16)
    return found


def local(grid: tuple[int, int]) -> np.ndarray:
    """Covariance that falls off with distance, spreads differing from cell to cell."""
    row, column = (index.ravel() for index in np.indices(grid))
    apart = np.hypot(np.subtract.outer(row, row), np.subtract.outer(column, column))
    spread = 1 + (row + column) / 10
    return np.outer(spread, spread) * np.exp(-apart / 2)


def row(**words: Any) -> StoredCase:
    """A record with its arrays."""
    one = line(**words)
    return StoredCase(one, arrays(one["data"], one["method"], one["k"]))


def keep(folder: Path, bench: str, one: dict, found: dict[str, np.ndarray]) -> None:
    """Put a record and its arrays into a store."""
    store = Store(folder, bench)
    store.append([one])
    case = Case(*(one[name] for name in ("bench", "data", "protocol", "method", "reconstructor", "k", "seed")))
    store.keep_arrays(case, found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with all methods on digits, a few on the others, both objectives of the GAN, and lines without arrays."""
    path = tmp_path_factory.mktemp("results")
    some = [("mnist", method) for method in METHODS] + [("ipsl", "vln"), ("ipsl", "cae"), ("celeba", "vln")]
    for data, method in some:
        network = "resnet" if method in table1.CLASSICAL else "own"
        keep(path, "table1", line(data, method, network), arrays(data, method))
        Store(path, "table1").append([line(data, method, "residual", mse=0.01), line(data, method, network, seed=1)])
    Store(path, "table1").append([line("ncep", "hnet"), line("mnist", "hnet", k=30)])
    for data in ("mnist", "celeba"):
        for method in ("cgan", "vln"):
            keep(path, "cgan", line(data, method, bench="cgan"), arrays(data, method))
    return path


@pytest.fixture(scope="module")
def drawn(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], Path, Path]:
    """All figures of the store, in a public and a private folder that were not there."""
    root = tmp_path_factory.mktemp("images")
    out, private = root / "paper", root / "private"
    return draw_all(folder, out, private), out, private


def titles(figure) -> list[str]:
    """All words above the panels of a figure, centred, left or as notes."""
    found = [axes.get_title(loc=side) for axes in figure.axes for side in ("center", "left")]
    found += [note.get_text() for axes in figure.axes for note in axes.texts]
    return [text for text in found if text.strip()]


# The logit-normal law.
@pytest.mark.parametrize(
    "distribution", [LogitNormal(0, 1), LogitNormal(0, 3), LogitNormal(2, 1, 0.3), LogitNormal.start(-0.8)]
)
def test_density_and_atoms_hold_all_probability(distribution):
    """Inside and at both ends together there is one; so there is in the plain law."""
    s = np.linspace(1e-9, 1 - 1e-9, 400_001)
    assert trapezoid(distribution.stretched(s), s) + sum(distribution.atoms()) == pytest.approx(1, abs=1e-4)
    y = 1 / (1 + np.exp(-np.linspace(-40, 36, 400_001)))
    assert trapezoid(distribution.density(y), y) == pytest.approx(1, abs=1e-3)


def test_density_is_that_of_samples(rng):
    """A histogram of stretched and clipped samples has the density's heights, and the atoms at its ends."""
    distribution = LogitNormal(-0.3, 0.9, 0.4)
    y = 1 / (1 + np.exp(-rng.normal(distribution.mu, distribution.sigma, 400_000) / distribution.lam))
    s = np.clip((distribution.eta - distribution.gamma) * y + distribution.gamma, 0, 1)
    assert distribution.atoms() == pytest.approx(((s == 0).mean(), (s == 1).mean()), abs=4e-3)
    heights, edges = np.histogram(s[(s > 0) & (s < 1)], bins=20, range=(0, 1))
    expected = distribution.stretched((edges[1:] + edges[:-1]) / 2)
    assert heights / len(s) * 20 == pytest.approx(expected, rel=0.06)


def test_the_first_mask_distribution_is_the_one_that_training_starts_from():
    """The atoms in the figure are those of ILN: a fifth each, also after a shift."""
    assert LogitNormal.start().atoms() == pytest.approx((0.2, 0.2))
    distribution = IndependentLogitNormal(1)
    distribution.shift(-0.8)
    opening = float(distribution.probs_open)
    assert LogitNormal.start(-0.8).atoms()[0] == pytest.approx(1 - opening, abs=1e-6)


def test_densities_show_shapes_temperatures_and_atoms():
    """Three panels, four curves in the first two, and the probabilities of the atoms as numbers in the third."""
    figure = densities()
    shapes, temperatures, stretched = figure.axes
    assert [len(axes.get_legend().get_texts()) for axes in figure.axes] == [4, 4, 2]
    assert max(line.get_ydata().max() for line in temperatures.lines) > max(shapes.lines[0].get_ydata())
    numbers = {text for text in titles(figure) if text[0].isdigit()}
    assert numbers == {
        f"{atom:.2f}"
        for distribution in (LogitNormal.start(), LogitNormal.start(-0.8))
        for atom in distribution.atoms()
    }
    assert len(stretched.collections) == 4


# Laws.
def test_correlation_of_a_covariance():
    """Ones on the diagonal, spreads divided out, and nothing where something does not vary."""
    found = correlation(np.array([[4.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]], np.float16))
    assert found == pytest.approx(np.array([[1, 0.5, 0], [0.5, 1, 0], [0, 0, 0]]))


def test_correlation_by_distance_finds_local_structure():
    """Where correlation is exp(-distance / 2), the curve is that; the cells themselves are not counted."""
    distance, mean = by_distance({"average": np.ones((9, 9)), "covariance": local((9, 9))})
    assert distance[0] == 1
    assert mean[:6] == pytest.approx(np.exp(-distance[:6] / 2), rel=0.12)


def test_correlation_by_distance_weighs_cells_that_open():
    """Cells that never open have no say."""
    average, matrix = np.zeros((4, 4)), -np.ones((16, 16)) + 2 * np.eye(16)
    average[0, :2] = 1
    matrix[0, 1] = matrix[1, 0] = 0.5
    assert by_distance({"average": average, "covariance": matrix})[1][0] == pytest.approx(0.5)


def test_covariance_has_a_matrix_four_maps_and_a_curve():
    """Maps are of the likeliest chosen sites and mark them; scales go as far below zero as above."""
    found = arrays(k=6)
    found["average"].ravel()[found["sites"][-1]] = 0.05  # chosen, and least likely
    figure = covariance(found)
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert len(images) == 5
    assert images[0].norm.vmin == -images[0].norm.vmax
    row, column = np.unravel_index(found["sites"][0], (9, 9))
    red, _, blue = images[1].get_array()[row, column]
    assert red > 2 * blue  # a site goes with itself
    marks = [axes.lines[0].get_xydata()[0] for axes in figure.axes if axes.images and axes.lines]
    shown = {int(y) * 9 + int(x) for x, y in marks}
    assert shown == set(found["sites"][:4].tolist())


def test_covariance_of_a_mask_distribution_that_opens_nothing_is_still_drawn():
    """One chosen site, never open, that varies with nothing."""
    found = {"covariance": np.zeros((81, 81)), "average": np.zeros((9, 9)), "sites": np.array([40])}
    assert sum(bool(axes.images) for axes in covariance(found).axes) == 2


def test_averages_share_one_scale_and_say_how_concentrated():
    """A panel for each law, named, with its concentration below the name."""
    figure = averages(
        [
            row(method=distribution, notes={"concentration": 0.25 + i / 10})
            for i, distribution in enumerate(MASK_DISTRIBUTIONS)
        ]
    )
    assert titles(figure) == [
        word
        for i, distribution in enumerate(MASK_DISTRIBUTIONS)
        for word in (METHODS[distribution], f"concentration {0.25 + i / 10:.2f}")
    ]
    assert {image.get_clim() for axes in figure.axes for image in axes.images} == {(0, 1)}


# Samples.
def test_samples_have_a_column_for_each_method():
    """Mask, then reconstruction and truth of two samples; dots lie on the chosen cells."""
    rows = [row(method=method) for method in ("cae", "vln", "hnet")]
    figure = samples(rows, "MNIST, K = 5")
    panels = np.array(figure.axes).reshape(5, 3)
    assert [axes.get_title() for axes in panels[0]] == ["CAE", "VLN", "HNet-LN"]
    assert [axes.get_ylabel() for axes in panels[:, 0]] == ["mask", *["reconstruction", "truth"] * 2]
    for one, mask, reconstructed in zip(rows, panels[0], panels[3], strict=True):
        across, down = mask.collections[0].get_offsets().data.T
        assert set(down * 9 + across) == set(one.arrays["sites"])
        assert reconstructed.images[0].get_array().data == pytest.approx(one.arrays["reconstructed"][4, 0])
    assert figure.texts[0].get_text() == "MNIST, K = 5"


def test_fields_have_one_scale_around_zero_and_north_above():
    """Fields of all panels share a diverging scale, drawn below; IPSL's first row, the south, is at the bottom."""
    figure = samples([row(data="ipsl", method=method) for method in ("cae", "vln")], "IPSL")
    images = [axes.images[0] for axes in figure.axes if axes.images]
    assert len({image.get_clim() for image in images}) == 1
    assert images[0].norm.vmin == -images[0].norm.vmax
    assert {image.origin for image in images} == {"lower"}
    mask = figure.axes[0]
    assert mask.get_ylim()[0] < mask.get_ylim()[1]
    assert figure.axes[-1].get_xlabel().startswith("anomaly")


def test_gan_and_squared_error_have_four_columns_each():
    """Three rows of eight; error and sharpness stand with the names."""
    gan = row(method="cgan", metrics={"mse": 0.03, "sharpness": 0.9})
    figure = gan_against_squared(gan, row(metrics={"mse": 0.02, "sharpness": None}))
    assert len(figure.axes) == 24
    assert titles(figure) == ["conditional GAN: MSE 3.00 × 10⁻², sharpness 0.90", "squared error"]


# The chart.
def test_every_method_has_a_name_a_colour_and_a_mark():
    """All methods of Table 1 can be drawn, and told apart."""
    assert set(table1.METHODS) == set(METHODS) == set(COLOURS) == set(MARKS)
    assert len(set(COLOURS.values())) == len(set(MARKS.values())) == len(METHODS)


def test_chart_has_a_panel_for_each_data_set_and_marks_for_each_network():
    """Own network open, refit filled, whisker from least to most, published values where they compare."""
    lines = [line(seed=seed, mse=mse, published=0.03, comparable=True) for seed, mse in enumerate((0.02, 0.026, 0.021))]
    lines += [line(network="residual", mse=0.01), line("ipsl", "qr", "resnet"), line("celeba", published=0.07)]
    figure = table1_chart(lines)
    digits, fields, faces = figure.axes[:3]
    assert [axes.get_ylabel()[:3] for axes in (digits, fields, faces)] == ["MSE", "une", "MSE"]
    own, refit = (mark for mark in digits.lines if mark.get_marker() == MARKS["vln"])
    assert (own.get_markerfacecolor(), refit.get_markerfacecolor()) == ("white", COLOURS["vln"])
    assert own.get_ydata()[0] == pytest.approx(100 * np.mean((0.02, 0.026, 0.021)))
    spans = [segments.get_segments()[0][:, 1] for segments in digits.collections]
    assert spans[0] == pytest.approx((2.0, 2.6))
    assert spans[1] == pytest.approx((3.0, 3.0))  # the paper's
    assert fields.lines[0].get_ydata()[0] == pytest.approx(0.08)
    assert len(faces.collections) == 1  # a whisker, and no published value
    words = [text.get_text() for text in figure.axes[3].get_legend().get_texts()]  # in the panel left over
    assert words[:2] == ["VLN", "QR"]
    assert words[-1] == "published"


def test_chart_goes_logarithmic_where_errors_span_much():
    """A factor of three and more; an error that could not be had is left out."""
    near = table1_chart([line(mse=0.02), line(k=9, mse=0.03), line(k=12, metrics={"mse": None})]).axes[0]
    far = table1_chart([line(mse=0.02), line(k=9, mse=0.002)]).axes[0]
    assert (near.get_yscale(), far.get_yscale()) == ("linear", "log")
    assert [tick.get_text() for tick in near.get_xticklabels()] == ["5", "9"]
    assert [len(legend.get_texts()) for legend in far.figure.legends] == [4, 1]  # around the one panel


def test_chart_without_lines_says_what_to_run():
    """No empty sheet."""
    with pytest.raises(DataError, match="bench table1"):
        table1_chart([])


def test_lines_of_two_protocols_are_not_mixed():
    """The one with more lines is drawn, a case that was run again counts once, and failures do not count."""
    lines = [line(seed=seed) for seed in (0, 1)] + [line(protocol="paper"), line(data="ipsl", protocol="paper")]
    lines += [line(seed=1, mse=0.5), line(seed=2, status="failed")]
    found = latest(lines)
    assert [(one["data"], one["protocol"], one["seed"], one["metrics"]["mse"]) for one in found] == [
        ("mnist", "small", 0, 0.02), ("mnist", "small", 1, 0.5), ("ipsl", "paper", 0, 0.02),
    ]  # fmt: skip


# Files.
def test_all_is_drawn_as_png_and_svg(drawn):
    """Names say what is shown; each figure is there twice."""
    paths, out, _ = drawn
    names = {"densities", "table1", "averages", "covariance", "samples-mnist-5", "samples-ipsl-5", "cgan-mnist"}
    assert {path.name for path in out.iterdir()} == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert len(paths) == len(set(paths)) == 2 * (len(names) + 2)
    assert all(path.stat().st_size for path in paths)


def test_no_face_of_celeba_is_public(drawn):
    """Faces are in the private folder alone; in public their data set is named by the chart's errors only."""
    _, out, private = drawn
    assert {path.stem for path in private.iterdir()} == {"samples-celeba-5", "cgan-celeba"}
    named = [path.name for path in out.glob("*.svg") if "celeba" in path.name + path.read_text().lower()]
    assert named == ["table1.svg"]


def test_chart_alone_needs_no_arrays(folder, tmp_path):
    """The results page has it from the lines; from none comes nothing."""
    paths = draw_chart(Store(folder, "table1").lines(), tmp_path)
    assert [path.name for path in paths] == ["table1.png", "table1.svg"]
    assert "CelebA" in paths[1].read_text()
    assert draw_chart([], tmp_path / "nothing") == []


def test_an_empty_store_gives_what_needs_no_data(tmp_path):
    """Densities are drawn, all else is skipped."""
    paths = draw_all(tmp_path / "none", tmp_path / "out", tmp_path / "private")
    assert [path.name for path in paths] == ["densities.png", "densities.svg"]
    assert not (tmp_path / "private").exists()


def test_lines_without_their_arrays_are_skipped(folder):
    """Arrays that are elsewhere, lack something, or are of another kind of grid do not stop the others."""
    store = Store(folder, "table1")
    methods = [one.method for one in stored_cases(store, "truth", "reconstructed", "sites") if one.data == "mnist"]
    assert methods == ["cae", "iln", "sct", "vln", "hnet"]
    assert {one.data for one in stored_cases(store)} == set(GRIDS)
    assert {one.k for one in stored_cases(store)} == {5}


def test_svg_is_the_same_in_every_run_and_keeps_its_text(drawn, tmp_path):
    """No date, no random ids; words can be searched and read aloud."""
    _, out, _ = drawn
    figure = samples([row(data="ipsl", method=name) for name in ("cae", "vln")], "IPSL, K = 5")
    again = save(figure, tmp_path, "again")[1]
    assert again.read_bytes() == (out / "samples-ipsl-5.svg").read_bytes()
    text = again.read_text()
    assert ">reconstruction</text>" in text
    assert "dc:date" not in text
