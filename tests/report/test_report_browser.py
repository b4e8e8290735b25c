"""The page in a browser: nothing asked of the network, no error, readable on a phone and on a wide screen."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import keyhole as kh
from keyhole.report import write_report
from keyhole.workflow.comparison import compare

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt install chromium)")

# Written into a copy of the page; what it finds ends up in the DOM that Chromium prints.
PROBE = """<script>addEventListener("load", () => {
  const texts = [...document.querySelectorAll("p, td, th, dd, dt, h1, h2")];
  const images = [...document.querySelectorAll("img")];
  const found = {
    inner: innerWidth, scroll: document.documentElement.scrollWidth,
    smallest: Math.min(...texts.map(one => parseFloat(getComputedStyle(one).fontSize))),
    drawn: images.filter(one => one.complete && one.naturalWidth > 100).length, images: images.length,
    asked: performance.getEntriesByType("resource").map(one => one.name).filter(one => !one.startsWith("data:")),
    widest: Math.max(...images.map(one => one.getBoundingClientRect().right)),
  };
  parent.postMessage(JSON.stringify(found), "*");
});</script>"""
# Holds the copy in a frame, since Chromium makes no window narrower than 500 pixels.
FRAME = """<!doctype html><body style="margin: 0">
<iframe src="copy.html" style="width: {width}px; height: 900px; border: 0"></iframe>
<script>addEventListener("message", said => {{
  const note = document.createElement("pre");
  note.id = "found"; note.textContent = said.data; document.body.append(note);
}});</script></body>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(compare(kh.datasets.sst(), 6, ["qr", "greedy"]), path)
    return path


def chromium(url: str, folder: Path, width: int, *words: str) -> subprocess.CompletedProcess[str]:
    command = [
        str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-component-update", "--no-first-run", f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},900", "--enable-logging=stderr", "--v=0", *words, url,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@needs_chromium
@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_fits_its_window_and_can_be_read(page, tmp_path, width):
    """No scrolling sideways, no small print, every picture there, and nothing asked of anybody."""
    copy = tmp_path / "copy.html"
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    copy.write_text(text.replace("</body>", PROBE + "</body>"))
    (tmp_path / "frame.html").write_text(FRAME.format(width=width))
    done = chromium((tmp_path / "frame.html").as_uri(), tmp_path, max(width, 500), "--dump-dom")
    found = json.loads(re.search(r'<pre id="found">(.*?)</pre>', done.stdout).group(1).replace("&quot;", '"'))
    assert found["inner"] == width
    assert found["scroll"] <= found["inner"]
    assert found["widest"] <= found["inner"]
    assert found["smallest"] >= 12
    assert found["drawn"] == found["images"] > 4
    assert found["asked"] == []


@needs_chromium
def test_the_page_errs_nowhere(page, tmp_path):
    """The page as it is, with its policy that lets nothing be loaded, leaves the console empty."""
    done = chromium(page.as_uri(), tmp_path, 1400, "--dump-dom")
    assert "<h1>6 sites for sst</h1>" in done.stdout
    assert "CONSOLE" not in done.stderr
