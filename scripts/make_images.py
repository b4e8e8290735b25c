"""Make the pictures of the documentation.

python scripts/make_images.py
"""

from __future__ import annotations

from pathlib import Path

import keyhole as kh
from keyhole.report import ReportData, save_figure, sites_figure
from keyhole.workflow.comparison import compare

IMAGES = Path(__file__).parents[1] / "docs" / "images"


def main() -> None:
    """Draw 25 buoys, chosen by greedy, on the embedded field."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    comparison = compare(kh.datasets.sst(), 25, ["greedy"])
    save_figure(sites_figure(ReportData.of(comparison)), IMAGES / "sites.png")
    print(f"wrote {IMAGES / 'sites.png'}")


if __name__ == "__main__":
    main()
