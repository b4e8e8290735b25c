"""What methods and data sets are called on the page and in figures, and what data are judged by."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["DATA", "METHODS", "Measure", "measure"]

# In the order of the paper's tables, then the classical ones.
METHODS = {
    "cae": "CAE", "iln": "ILN", "sct": "SCT", "vln": "VLN", "hnet": "HNet-LN", "qr": "QR", "greedy": "greedy",
}  # fmt: skip
DATA = {"mnist": "MNIST", "ipsl": "IPSL", "ncep": "NCEP", "celeba": "CelebA"}
_FIELDS = ("ipsl", "ncep", "sst")  # whose scale says nothing; for images the paper has squared errors


class Measure(NamedTuple):
    """A metric, what it is multiplied with, and words for it."""

    metric: str
    factor: float
    words: str


def measure(data: str) -> Measure:
    """Give what a data set is judged by."""
    return Measure("fvu", 1.0, "fraction of variance left") if data in _FIELDS else Measure("mse", 100.0, "MSE × 10⁻²")
