"""Readers: arrays, files of numpy and paths become samples, or an error names what is wrong."""

from __future__ import annotations

import io
import os
import struct
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import keyhole as kh
from example_data import gridded, little_memory, monthly_field, smooth
from keyhole.data.readers import FILES
from keyhole.errors import DataError, StorageError
from keyhole.plan.files import read_readings
from keyhole.workflow.sweeps import read_study

DTYPES = ["?", "u1", "i1", "<i2", ">i2", "<u4", ">i4", "<i8", ">u8", "<f2", ">f2", "<f4", ">f4", "<f8", ">f8"]
SHAPES = st.lists(st.integers(2, 5), min_size=2, max_size=4).map(tuple)


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """The same values otherwise in memory."""
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "strided":
        wide = np.repeat(array, 2, axis=-1)
        return wide[..., ::2]
    if layout == "reversed":
        return np.ascontiguousarray(array[::-1])[::-1]
    if layout == "frozen":
        array = array.copy()
        array.setflags(write=False)
    return array


@given(
    data=st.data(),
    shape=SHAPES,
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(["plain", "fortran", "strided", "reversed", "frozen"]),
    channels=st.sampled_from([None, 1, -1]),
)
def test_an_array_of_any_type_and_layout_is_read_as_it_is(data, shape, dtype, layout, channels):
    if channels is not None and len(shape) < 3:
        shape = (*shape, 2)
    low, high = (0, 1) if dtype == "?" else (0, 100)
    numbers = data.draw(hnp.arrays(np.int64, shape, elements=st.integers(low, high)))
    numbers[0].flat[0], numbers[1].flat[0] = 0, 1  # so that it is not constant
    array = laid_out(numbers.astype(dtype), layout)
    signals = kh.read(array, channels=channels)
    expected = numbers[:, np.newaxis] if channels is None else np.moveaxis(numbers, channels, 1)
    np.testing.assert_array_equal(gridded(signals), expected)
    assert signals.values.flags.c_contiguous
    assert signals.values.dtype in (np.float32, np.float64)
    assert signals.values.dtype.isnative
    assert signals.sites.shape == expected.shape[2:]
    assert signals.channels == expected.shape[1]


KINDS = hnp.scalar_dtypes() | st.sampled_from(["f16", ">f16", "U3", "O", "V4", "f4,i2"]).map(np.dtype)


@given(
    data=st.data(),
    shape=hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
    kind=KINDS,
    layout=st.sampled_from(["plain", "fortran", "strided", "reversed", "frozen"]),
    channels=st.none() | st.integers(-6, 6),
    missing=st.sampled_from(["error", "model"]),
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_any_array_gives_finite_samples_or_a_data_error(data, shape, kind, layout, channels, missing):
    """Of any type and order of bytes, empty, with NaN and infinity: whatever is wrong is said."""
    array = np.zeros(shape, kind) if kind.kind in "OV" else data.draw(hnp.arrays(kind, shape))
    try:
        signals = kh.read(laid_out(array, layout) if shape else array, channels=channels, missing=missing)
    except DataError as error:
        assert str(error)  # noqa: PT017
    else:
        assert len(signals) == shape[0] >= 2
        assert not np.isinf(signals.values).any()
        known = np.isfinite(signals.values) | (False if signals.missing is None else signals.missing)
        assert known.all()
        assert len(signals.sites) == signals.values.shape[2] <= signals.sites.size


@given(
    data=st.data(),
    shape=st.lists(st.integers(2, 4), min_size=2, max_size=3).map(tuple),
    kind=st.sampled_from(["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"]),
    trouble=st.sampled_from([np.nan, np.inf, -np.inf]),
)
def test_what_is_not_finite_is_named(data, shape, kind, trouble):
    array = np.arange(np.prod(shape)).reshape(shape).astype(kind)
    array.flat[data.draw(st.integers(0, array.size - 1))] = trouble
    with pytest.raises(DataError, match="1 infinite values" if np.isinf(trouble) else r"1 of \d+ sites have missing"):
        kh.read(array)


def test_an_array_of_as_many_axes_as_numpy_holds_is_refused():
    with pytest.raises(DataError, match="64 axes"):
        kh.read(np.zeros((2, *[1] * 63)))


def test_samples_are_passed_through():
    signals = kh.read(smooth(5, 3))
    assert kh.read(signals) is signals


def test_a_masked_array_is_read_with_its_mask():
    """What is masked is missing; the number behind the mask is no datum."""
    values = smooth(6, 4)
    values[:, 2] = 1e20
    signals = kh.read(np.ma.masked_greater(values, 1e19))
    np.testing.assert_array_equal(signals.sites.index, [0, 1, 3])
    integers = np.ma.masked_equal(np.array([[1, -999], [2, -999]], np.int16), -999)
    np.testing.assert_array_equal(kh.read(integers).sites.index, [0])


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (5, "cannot read a int"),
        (None, "cannot read a NoneType"),
        ([[1, 2], [3]], "rows of different length"),
        ([1, 2, 3], r"shape \(3,\)"),
        (np.array([["a"], ["b"]]), "real numbers are needed"),
        (np.array([[1j], [2]]), "real numbers are needed"),
        (np.array([[None], [2]], object), "real numbers are needed"),
        (np.array([["2000-01-01"], ["2000-01-02"]], "datetime64[D]"), "real numbers are needed"),
        (pd.Series([1.0, 2.0]), "cannot read a Series"),
        (xr.DataArray([1.0, 2.0], dims="time", name="line"), "line: 1 dimension"),
    ],
)
def test_what_is_not_samples_is_refused(source, says):
    with pytest.raises(DataError, match=says):
        kh.read(source)


@pytest.mark.parametrize("axis", [0, 3, -4, -3])
def test_channels_cannot_be_the_samples_or_beyond(axis):
    with pytest.raises(DataError, match=rf"channels={axis} is not an axis"):
        kh.read(smooth(5, 3, 2), channels=axis)


@pytest.mark.parametrize(
    ("source", "option"),
    [
        (smooth(5, 3), {"variable": "x"}),
        (pd.DataFrame(smooth(5, 3)), {"channels": 1}),
        (monthly_field(), {"channels": 1}),
        (monthly_field(), {"variable": "sst"}),
    ],
    ids=["array", "frame", "field", "field of one variable"],
)
def test_an_option_without_meaning_is_refused(source, option):
    with pytest.raises(DataError, match=f"{next(iter(option))} does not apply"):
        kh.read(source, **option)


# Files of numpy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f8", "u1"])
def test_npy_and_npz_are_read_as_the_array_is(tmp_path, dtype, order):
    array = np.asarray(np.abs(smooth(6, 3, 4)) * 10, dtype, order=order)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "b.npz", a=array)
    np.savez_compressed(tmp_path / "c.npz", a=array, other=np.zeros((2, 2)))
    expected = kh.read(array)
    for path, options in (("a.npy", {}), ("b.npz", {}), ("c.npz", {"variable": "a"})):
        signals = kh.read(tmp_path / path, **options)
        np.testing.assert_array_equal(signals.values, expected.values)
        assert signals.origin.name == "a"


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_npy_is_read(tmp_path, version):
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, smooth(5, 3), version=version)
    np.testing.assert_array_equal(kh.read(tmp_path / "a.npy").values[:, 0], smooth(5, 3))


def test_channels_of_a_file_are_found_on_their_axis(tmp_path):
    np.save(tmp_path / "a.npy", smooth(5, 3, 4, 2))
    assert kh.read(tmp_path / "a.npy", channels=-1).sites.shape == (3, 4)


def npy_header(text: str) -> bytes:
    line = text.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(line)) + line


def npy(shape: str) -> bytes:
    return npy_header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}")


HUGE = npy_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000, 125000000000)}")  # 10^15 bytes
BROKEN_NPY = {
    "empty": (b"", "not a whole .npy array"),
    "text": (b"time,a,b\n1,2,3\n", "not a whole .npy array"),
    "header cut": (HUGE[:40], "not a whole .npy array"),
    "header no dictionary": (npy_header("(((("), "not a whole .npy array"),
    "header of code": (npy_header("__import__('os').system('true')"), "not a whole .npy array"),
    "header without shape": (npy_header("{'descr': '<f8'}"), "not a whole .npy array"),
    "type unknown": (npy_header("{'descr': 'zz', 'fortran_order': False, 'shape': (2, 2)}"), "not a whole .npy array"),
    "version unknown": (b"\x93NUMPY\x09\x00" + HUGE[8:], "not a whole .npy array"),
    "negative shape": (npy_header("{'descr': '<f8', 'fortran_order': False, 'shape': (-2, 2)}"), "not a whole .npy"),
    "empty texts": (npy_header("{'descr': '<U0', 'fortran_order': False, 'shape': (2, 2)}"), "real numbers"),
    "more than memory": (HUGE, "declares 931322.6 GiB.*take a part of it, or coarsen it first"),
    "no bytes, but more than numpy counts": (npy(f"(0, {10**30})"), "not a whole .npy array"),
    "more than a float holds": (npy(f"(1, {10**400})"), "memory are free"),
    "more axes than numpy holds": (npy(f"(2, {'1, ' * 70})") + bytes(16), "not a whole .npy array"),
    "as many axes as numpy holds": (npy(f"(2, {'1, ' * 63})") + bytes(16), "64 axes"),
    "a truth for a length": (npy("(True, 2)") + bytes(16), "not a whole .npy array"),
    "header nested too deep": (npy_header("-" * 9000 + "1"), "not a whole .npy array"),
    "cut short": (npy_header("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2)}") + bytes(31), "cut short"),
}


@pytest.mark.parametrize(("content", "says"), BROKEN_NPY.values(), ids=BROKEN_NPY)
def test_a_broken_npy_is_refused_by_name(tmp_path, content, says):
    path = tmp_path / "broken.npy"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path}.*{says}"):
        kh.read(path)


@pytest.mark.parametrize(("content", "says"), BROKEN_NPY.values(), ids=BROKEN_NPY)
def test_a_broken_array_in_npz_is_refused_by_name(tmp_path, content, says):
    path = tmp_path / "broken.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", content)
    with pytest.raises(DataError, match=f"{path}.*{says}"):
        kh.read(path)


LONG_HEADER = b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1)  # of 4 GiB
BOMBS = {
    "many GB declared and not there": (npy("(1000, 250000)"), "cut short"),
    "400 GB declared": (npy("(1000, 50000000)"), "memory are free"),
    "a header of 4 GiB": (LONG_HEADER, "not a whole .npy array"),
}


@pytest.mark.parametrize(("front", "says"), BOMBS.values(), ids=BOMBS)
def test_a_npz_that_would_unpack_to_much_is_refused_before_it_does(tmp_path, front, says):
    """128 MB of zeros, which take next to nothing in an archive."""
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as member:
        member.write(front)
        for _ in range(128):
            member.write(bytes(1_000_000))
    assert path.stat().st_size < 200_000
    with little_memory(), pytest.raises(DataError, match=f"{path}.*{says}"):
        kh.read(path)


@pytest.mark.parametrize(("front", "says"), BOMBS.values(), ids=BOMBS)
def test_a_npy_that_declares_much_is_refused_before_memory_is_taken(tmp_path, front, says):
    path = tmp_path / "bomb.npy"
    path.write_bytes(front)
    os.truncate(path, 8 << 30 if front == LONG_HEADER else 1_000_000)
    with little_memory(), pytest.raises(DataError, match=f"{path}.*{says}"):
        kh.read(path)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "..\\evil", "a/../../evil"])
def test_a_npz_writes_nothing_wherever_its_members_say_they_are(tmp_path, monkeypatch, name):
    folder, content = tmp_path / "deep" / "inside", io.BytesIO()
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    np.save(content, smooth(5, 3))
    with zipfile.ZipFile("tricks.npz", "w") as archive:
        archive.writestr(f"{name}.npy", content.getvalue())
    before = sorted(tmp_path.rglob("*"))
    np.testing.assert_array_equal(kh.read("tricks.npz").values[:, 0], smooth(5, 3))
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/etc/evil.npy").exists()


def test_a_link_in_a_npz_is_not_followed(tmp_path):
    """An entry that says it is a link holds the path that it leads to, and no array."""
    np.save(tmp_path / "secret.npy", smooth(5, 3))
    link = zipfile.ZipInfo("a.npy")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "link.npz", "w") as archive:
        archive.writestr(link, str(tmp_path / "secret.npy"))
    with pytest.raises(DataError, match=r"link\.npz: a: not a whole \.npy array"):
        kh.read(tmp_path / "link.npz")


def test_a_npz_with_a_name_that_is_no_text_is_refused(tmp_path):
    """Found by scripts/fuzz.py."""
    path, content = tmp_path / "a.npz", bytearray(WHOLE[".npz"])
    content[7] |= 0x08  # says that the name is UTF-8
    content[30] = 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path}: not a whole .npz file"):
        kh.read(path)


def test_pickled_objects_are_not_loaded(tmp_path):
    np.save(tmp_path / "a.npy", np.array([[print, 1]], object), allow_pickle=True)
    with pytest.raises(DataError, match="holds Python objects; real numbers are needed"):
        kh.read(tmp_path / "a.npy")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"no archive"])
def test_what_is_no_npz_is_refused(tmp_path, content):
    path = tmp_path / "broken.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"{path}: not a whole .npz file"):
        kh.read(path)


@pytest.mark.parametrize(
    ("names", "variable", "says"),
    [
        ([], None, "holds no array"),
        (["a", "b"], None, r"holds 2 arrays \(a, b\); name one \(variable="),
        (["a", "b"], "c", "no array 'c'; there is a, b"),
    ],
)
def test_the_array_of_an_npz_must_be_clear(tmp_path, names, variable, says):
    path = tmp_path / "many.npz"
    np.savez(path, **{name: smooth(4, 3) for name in names})
    with pytest.raises(DataError, match=f"{path}: {says}"):
        kh.read(path, variable=variable)


def whole_files() -> dict[str, bytes]:
    array, files = smooth(6, 3, 4).astype(np.float32), {}
    for suffix, write in ((".npy", np.save), (".npz", np.savez), ("-small.npz", np.savez_compressed)):
        with io.BytesIO() as file:
            write(file, array)
            files[suffix] = file.getvalue()
    for suffix, way in (("-bz2.npz", zipfile.ZIP_BZIP2), ("-lzma.npz", zipfile.ZIP_LZMA)):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", way) as archive:
            archive.writestr("a.npy", files[".npy"])
        files[suffix] = file.getvalue()
    files[".nc"] = bytes(monthly_field(24).to_netcdf(engine="h5netcdf"))
    files["-classic.nc"] = bytes(monthly_field(24).to_netcdf(engine="scipy"))
    return files


WHOLE = whole_files()


@pytest.mark.parametrize("suffix", [".npy", ".npz", "-small.npz", "-bz2.npz", "-lzma.npz"])
@given(data=st.data())
def test_damaged_numpy_files_give_samples_or_a_data_error(tmp_path_factory, suffix, data):
    """A checksum is not always there, so a changed byte may pass; it must not raise anything else."""
    content = bytearray(WHOLE[suffix])
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    path = tmp_path_factory.getbasetemp() / f"damaged{suffix}"
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            kh.read(path)
        except DataError as error:
            assert str(path) in str(error) or "values" in str(error) or "data" in str(error)  # noqa: PT017


@pytest.mark.parametrize("suffix", WHOLE)
@given(share=st.floats(0, 1, exclude_max=True))
def test_truncated_files_are_refused_by_name(tmp_path_factory, suffix, share):
    path = tmp_path_factory.getbasetemp() / f"truncated{suffix}"
    path.write_bytes(WHOLE[suffix][: int(share * len(WHOLE[suffix]))])
    with pytest.raises(DataError, match=str(path)):
        kh.read(path)


# Paths --------------------------------------------------------------------------------------------------------------


def test_a_path_may_be_text(tmp_path):
    np.save(tmp_path / "a.npy", smooth(5, 3))
    assert len(kh.read(str(tmp_path / "a.npy"))) == 5


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(StorageError, match=f"{tmp_path / 'missing.npy'}: no such file"):
        kh.read(tmp_path / "missing.npy")


@pytest.mark.parametrize(("name", "kind"), [("table.xlsx", ".xlsx"), ("plain", "none")])
def test_a_type_that_is_not_read_is_named_with_those_that_are(tmp_path, name, kind):
    with pytest.raises(DataError, match=f"{name}: files of type {kind} are not read; .npy, .npz, .mat, .nc, "):
        kh.read(tmp_path / name)


def test_an_option_without_meaning_for_the_file_is_refused(tmp_path):
    np.save(tmp_path / "a.npy", smooth(5, 3))
    with pytest.raises(DataError, match=r"variable does not apply to .npy files"):
        kh.read(tmp_path / "a.npy", variable="a")


def test_a_file_that_may_not_be_opened_is_a_storage_error(tmp_path, monkeypatch):
    np.save(tmp_path / "a.npy", smooth(5, 3))
    np.savez(tmp_path / "a.npz", smooth(5, 3))

    def forbidden(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbidden)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(StorageError, match=f"{name}: cannot be read: Permission denied"):
            kh.read(tmp_path / name)


# What is no regular file --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", FILES)
def test_a_pipe_is_refused_before_it_blocks(tmp_path, ending):
    path = tmp_path / f"pipe{ending}"
    os.mkfifo(path)
    link = tmp_path / f"link{ending}"
    link.symlink_to(path)
    for source in (path, link):
        with pytest.raises(StorageError, match=f"{source}: is a named pipe, not a regular file"):
            kh.read(source)


def test_a_pipe_among_images_or_chunks_is_refused_before_it_blocks(tmp_path):
    from PIL import Image

    images, store = tmp_path / "images", tmp_path / "store.zarr"
    images.mkdir()
    for n in range(3):
        Image.fromarray(np.full((4, 4), 80 * n, np.uint8)).save(images / f"{n}.png")
    os.mkfifo(images / "3.png")
    field = monthly_field()
    field.to_dataset().to_zarr(store, zarr_format=2, consolidated=False)
    chunk = next(path for path in (store / "sst").iterdir() if path.name[0].isdigit())
    chunk.unlink()
    os.mkfifo(chunk)
    (store / "loop").symlink_to(store)
    for source, pipe in ((images, images / "3.png"), (store, chunk)):
        with pytest.raises(StorageError, match=f"{pipe}: is a named pipe"):
            kh.read(source)
    with pytest.raises(StorageError, match=f"{chunk}: is a named pipe"):
        kh.read(store, memory="1KiB")


def test_a_pipe_for_what_goes_with_the_data_is_refused_before_it_blocks(tmp_path):
    for name in ("region.geojson", "plan.keyhole", "readings.csv", "study.toml", "field.nc"):
        os.mkfifo(tmp_path / name)
    calls = [
        lambda: kh.select(smooth(20, 4, 5), 2, constraints={"allowed": tmp_path / "region.geojson"}),
        lambda: kh.load(tmp_path / "plan.keyhole"),
        lambda: read_readings(tmp_path / "readings.csv"),
        lambda: read_study(tmp_path / "study.toml"),
        lambda: kh.read(tmp_path / "field.nc", memory="1KiB"),
        lambda: kh.read(tmp_path),
    ]
    for call in calls:
        with pytest.raises(StorageError, match="is a named pipe, not a regular file"):
            call()


def test_a_device_is_refused(tmp_path):
    (tmp_path / "zero.csv").symlink_to("/dev/zero")
    with pytest.raises(StorageError, match=r"zero\.csv: is a device"):
        kh.read(tmp_path / "zero.csv")
