"""What methods and data sets are called on the page and in figures, and the metric of each data set."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["DATA", "METHODS", "REFERENCES", "Measure", "measure"]

# In the order of the paper's tables, then the classical ones.
METHODS = {
    "cae": "CAE", "iln": "ILN", "sct": "SCT", "vln": "VLN", "hnet": "HNet-LN", "qr": "QR", "greedy": "greedy",
}  # fmt: skip
# What has no sites, and stands beside the methods to compare with.
REFERENCES = {"linear_measurements": "K linear measurements"}
DATA = {
    "mnist": "MNIST", "ipsl": "IPSL", "ncep": "NCEP", "celeba": "CelebA", "oisst": "OISST 2.5°", "sst": "SST",
    "isolet": "Isolet", "coil20": "COIL20", "digits": "digits", "madelon": "madelon",
    "breast_cancer": "breast cancer", "water": "water network",
    "sst_array": "SST, a bare array", "autoregressive": "AR(1) fields", "travelling_wave": "travelling waves",
    "lorenz96": "Lorenz-96",
}  # fmt: skip
_IMAGES = ("mnist", "celeba")  # the paper has squared errors for these; the scale of others says nothing


class Measure(NamedTuple):
    """The metric by which a data set is reported.

    Parameters
    ----------
    metric
        Name of the metric in a record.
    factor
        What it is multiplied with.
    words
        Its name on the page.
    """

    metric: str
    factor: float
    words: str


def measure(data: str) -> Measure:
    """Return the metric of a data set.

    Parameters
    ----------
    data
        Name of the data set.

    Returns
    -------
    Measure
        Squared error for images, unexplained variance for all else.
    """
    return Measure("mse", 100.0, "MSE × 10⁻²") if data in _IMAGES else Measure("fvu", 1.0, "unexplained variance")
