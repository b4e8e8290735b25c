"""The page: whole, safe, and saying what the plan says."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import report_examples
from PIL import Image
from report_examples import TAG, with_history

import keyhole as kh
from keyhole.core.errors import StorageError
from keyhole.data.preparation import prepare
from keyhole.report import write_report
from keyhole.workflow.comparison import Comparison, single

SECTIONS = ["sites", "samples", "errors", "intervals", "failures", "noise", "training", "curve", "table", "metadata"]
LOADS = ("src", "srcset", "href", "data", "poster", "action", "background")


@dataclass
class Page(HTMLParser):
    """Tags and attributes of a page, its text by section, and its rows by section."""

    tags: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    text: dict[str, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    section: str = "top"

    def __post_init__(self):
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.loads += [value for name, value in attributes if name in LOADS]
        self.section = dict(attributes)["id"] if tag == "section" else self.section
        if tag == "td":
            self.rows[self.section] = self.rows.get(self.section, 0) + 1

    def handle_data(self, data):
        self.text[self.section] = self.text.get(self.section, "") + data


def written(comparison: Comparison, folder: Path) -> tuple[str, Page]:
    path = folder / "report.html"
    write_report(comparison, path)
    text, page = path.read_text(encoding="utf-8"), Page()
    page.feed(text)
    return text, page


def pictures(page: Page) -> list[Image.Image]:
    kind = "data:image/png;base64,"
    assert all(source.startswith(kind) for source in page.loads)
    return [Image.open(io.BytesIO(base64.b64decode(source.removeprefix(kind)))) for source in page.loads]


@pytest.fixture(scope="module")
def map_page(map_comparison, tmp_path_factory):
    return written(map_comparison, tmp_path_factory.mktemp("map"))


def test_map_page_is_whole_and_needs_no_network(map_page):
    """All sections, pictures that decode for both widths, and nothing that is loaded or run."""
    text, page = map_page
    assert [name for name in page.text if name != "top"] == SECTIONS
    assert "http://" not in text
    assert "https://" not in text
    assert not {"script", "link", "iframe", "object", "embed", "form"} & set(page.tags)
    images = pictures(page)
    assert len(images) == 2 * page.tags.count("img") == 10
    for image in images:
        image.load()
        assert image.format == "PNG"
        assert 400 <= image.width <= 2000
        assert 200 <= image.height <= 2600


def test_map_page_says_what_the_plan_says(map_comparison, map_page):
    """The result, every method, every site and how it was made."""
    _, page = map_page
    plan = map_comparison.choice.plan
    rmse = f"{plan.metrics['test']['rmse']:.3f}"[:5]
    assert f"4 sites reconstruct height with a test RMSE of {rmse}" in page.text["top"]
    assert all(entry.method in page.text["top"] for entry in map_comparison.entries)
    assert all(name in page.text["table"] for name in plan.names)
    assert page.rows["table"] == plan.k * (2 + 2 + 3)
    for fact in (
        "36 train, 10 validation, 12 test; 2 left out between them",
        plan.metadata["data"]["fingerprint"],
        plan.metadata["date"],
        "ridge",
    ):
        assert fact in page.text["metadata"]
    assert "anomalies from the monthly climatology" in page.text["samples"]


def test_nothing_trained_is_said(cube_comparison, tmp_path):
    """A closed form has no training curve, and the page says so."""
    _, page = written(cube_comparison, tmp_path)
    assert "No gradient training" in page.text["training"]


def test_training_of_another_entry_is_shown(cube_comparison, tmp_path):
    """Where the best entry was not trained, the training of one that was is shown under its name."""
    _, page = written(with_history(cube_comparison, 1), tmp_path)
    best, trained = (entry.method for entry in cube_comparison.entries)
    assert f"{best} involves no gradient training; shown is the training of {trained}" in page.text["training"]
    assert page.tags.count("img") == 6


def test_names_are_escaped(table_comparison, tmp_path):
    """A column named like a script is text, in a table with dollar signs and another script's letters."""
    text, page = written(table_comparison, tmp_path)
    assert TAG not in text
    assert "script" not in page.tags
    assert all(name in page.text["table"] for name in table_comparison.entries[0].plan.names)
    pictures(page)


def test_hostile_attributes_are_escaped(cube_comparison, tmp_path):
    """The data's own name, units and attributes are text too."""
    entry = cube_comparison.entries[0]
    origin = replace(entry.plan.origin, name=TAG, attributes={"units": TAG, "long_name": TAG, "source": "x" * 9999})
    signals = replace(cube_comparison.prepared.samples, origin=origin)
    prepared = replace(cube_comparison.prepared, samples=signals)
    plan = replace(entry.plan, origin=origin, metadata={**entry.plan.metadata, "notes": {"why": TAG}})
    text, page = written(Comparison(prepared, [replace(entry, plan=plan, method=TAG)]), tmp_path)
    assert TAG not in text
    assert page.text["metadata"].count(TAG) == 3
    assert "x" * 400 not in text


def test_channels_are_said_to_be_averaged(colour_comparison, tmp_path):
    """A grid of several channels has maps, and the page says what they pool."""
    _, page = written(colour_comparison, tmp_path)
    assert "3 channels" in page.text["sites"]
    assert len(pictures(page)) == 10


def test_three_axes_are_slices(cube_comparison, tmp_path):
    """All sections and pictures are there, and the same page comes out twice."""
    text, page = written(cube_comparison, tmp_path)
    assert [name for name in page.text if name != "top"] == SECTIONS
    assert len(pictures(page)) == 10
    assert written(cube_comparison, tmp_path)[0] == text


def test_a_plan_with_intervals_shows_them(tmp_path):
    """How wide they are, where, and how often the truth lay within."""
    signals = report_examples.field()
    plan = kh.select(signals, 4, method="qr", reconstructor="ridge", constraints={"existing": [0]})
    _, page = written(single(plan, prepare(signals, None, 0)), tmp_path)
    assert "The 90 % prediction interval covers" in page.text["intervals"]
    assert page.tags.count("img") == 7
    assert "existing" in page.text["table"]


def test_a_plan_alone_has_a_page(cube_comparison, tmp_path):
    """One plan is a comparison of one; what its record lacks is left out."""
    plan = replace(cube_comparison.entries[0].plan, metadata={"method": "variance"})
    _, page = written(single(plan, cube_comparison.prepared), tmp_path)
    assert "Fingerprint" not in page.text["metadata"]
    assert "Seed" not in page.text["metadata"]


def test_unwritable_folder_is_a_storage_error(cube_comparison, tmp_path):
    """No such folder, or a folder in the file's place: an error that names the path, and nothing left behind."""
    with pytest.raises(StorageError, match=r"missing/report\.html"):
        write_report(cube_comparison, tmp_path / "missing" / "report.html")
    (tmp_path / "report.html").mkdir()
    with pytest.raises(StorageError):
        write_report(cube_comparison, tmp_path / "report.html")
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_errors_of_closed_forms_are_no_training(cube_comparison, tmp_path):
    """A choice among closed forms leaves a history without steps, of which there is nothing to draw."""
    fits = [{"stage": "fit", "by": "ridge", "error": 0.2, "best": 0.2, "seconds": 0.1}]
    entries = [replace(one, plan=replace(one.plan, history=fits)) for one in cube_comparison.entries]
    _, page = written(replace(cube_comparison, entries=entries), tmp_path)
    assert "No gradient training" in page.text["training"]
