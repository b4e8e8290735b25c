"""Common style of the figures: a colour and a mark for each method, and how files are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from keyhole.core.storage import replacing
from keyhole.report.style import INK, MUTED

__all__ = ["COLOURS", "MARKS", "save"]

# Okabe and Ito's colours, which the colour-blind tell apart; classical selection is in greys.
COLOURS = {
    "cae": "#cc79a7", "iln": "#56b4e9", "sct": "#e69f00", "vln": "#0072b2", "hnet": "#d55e00",
    "qr": INK, "greedy": MUTED,
}  # fmt: skip
MARKS = {"cae": "s", "iln": "o", "sct": "^", "vln": "D", "hnet": "v", "qr": "P", "greedy": "X"}

_DPI = 200
# The same figure is the same file: ids come from a fixed salt, and no date is written. Text stays text.
_SETTINGS: dict[Any, Any] = {"svg.hashsalt": "keyhole", "svg.fonttype": "none"}
_METADATA: dict[str, dict[str, None]] = {"png": {"Software": None}, "svg": {"Date": None}}


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write a figure as PNG and as SVG.

    The folder is created if necessary; an existing file is replaced once the new one is complete.

    Parameters
    ----------
    figure
        The figure.
    folder
        Folder of the files.
    name
        File name without its suffix.

    Returns
    -------
    list of Path
        Both files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in _METADATA]
    for path, (kind, metadata) in zip(paths, _METADATA.items(), strict=True):
        with mpl.rc_context(_SETTINGS), replacing(path) as file:
            figure.savefig(file, format=kind, dpi=_DPI, metadata=metadata)
    return paths
