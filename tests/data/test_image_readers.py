"""Images in folders and zips, and MATLAB and Parquet files."""

from __future__ import annotations

import contextlib
import io
import struct
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
from PIL import Image

import keyhole as kh
from example_data import gridded, smooth
from keyhole.core.errors import DataError, SettingsError


def picture(seed: int, shape=(6, 8), mode="L") -> Image.Image:
    intervals = {"L": (), "RGB": (3,), "I;16": ()}[mode]
    kind = np.uint16 if mode == "I;16" else np.uint8
    return Image.fromarray(
        np.random.default_rng(seed).integers(0, np.iinfo(kind).max, (*shape, *intervals)).astype(kind)
    )


def folder(path, count=5, **options):
    path.mkdir()
    for seed in range(count):
        picture(seed, **options).save(path / f"{seed}.png")
    return path


def zipped(path, pictures, way=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", way) as archive:
        for name, image in pictures.items():
            content = io.BytesIO()
            image.save(content, "PNG")
            archive.writestr(name, content.getvalue())
    return Path(path)


def test_grey_images_of_a_folder_and_a_zip(tmp_path):
    """By name, from 0 to 1; other files do not count."""
    (folder(tmp_path / "set") / "notes.txt").write_text("x")
    zipped(tmp_path / "set.zip", {f"deep/{seed}.png": picture(seed) for seed in range(5)})
    for source in ("set", "set.zip"):
        signals = kh.read(tmp_path / source)
        assert gridded(signals).shape == (5, 1, 6, 8)
        np.testing.assert_allclose(gridded(signals)[3, 0], np.asarray(picture(3)) / 255, rtol=1e-6)


def test_colour_size_and_depth(tmp_path):
    """RGB gives three channels, grey one; sizes are made equal where asked; 16 bits keep their depth."""
    rgb, deep = folder(tmp_path / "rgb", mode="RGB"), folder(tmp_path / "deep", mode="I;16")
    signals = kh.read(rgb)
    assert gridded(signals).shape == (5, 3, 6, 8)
    first = np.asarray(picture(0, mode="RGB")) / 255
    np.testing.assert_allclose(gridded(signals)[0].transpose(1, 2, 0), first, rtol=1e-6)
    assert kh.read(rgb, colour="grey").channels == 1
    assert kh.read(rgb, size=4).sites.shape == (4, 4)
    assert kh.read(rgb, size=(3, 5), colour="grey").sites.shape == (3, 5)
    np.testing.assert_allclose(gridded(kh.read(deep))[1, 0], np.asarray(picture(1, mode="I;16")) / 65535, rtol=1e-5)
    plan = kh.select(rgb, 3, method="qr", reconstructor="ridge")
    assert plan.reconstruct(np.zeros((2, 3, 3))).shape == (2, 6, 8, 3)


@pytest.mark.parametrize("first", ["L", "RGB"])
@pytest.mark.parametrize("kind", ["set", "set.zip"])
def test_one_colour_image_makes_the_set_colour(tmp_path, kind, first):
    """Wherever it stands among grey ones, none loses its colour; grey where that is asked for."""
    pictures = {f"{i}.png": picture(i, mode=first if i < 2 else "RGB" if i == 2 else "L") for i in range(4)}
    if kind == "set":
        (tmp_path / kind).mkdir()
        for name, image in pictures.items():
            image.save(tmp_path / kind / name)
    else:
        zipped(tmp_path / kind, pictures)
    signals = kh.read(tmp_path / kind)
    assert gridded(signals).shape == (4, 3, 6, 8)
    for place, image in enumerate(pictures.values()):
        truth = np.asarray(image.convert("RGB")) / 255
        np.testing.assert_allclose(gridded(signals)[place].transpose(1, 2, 0), truth, rtol=1e-6)
    assert kh.read(tmp_path / kind, colour="grey").channels == 1


def test_images_of_several_sizes_need_one(tmp_path):
    """The odd one is named."""
    path = folder(tmp_path / "set")
    picture(9, shape=(7, 8)).save(path / "odd.png")
    with pytest.raises(DataError, match=r"odd\.png: 7 x 8 where the first has 6 x 8; give a size"):
        kh.read(path)
    assert len(kh.read(path, size=6)) == 6


def test_what_is_no_set_of_images(tmp_path, monkeypatch):
    """Each error names what is wrong."""
    (tmp_path / "empty").mkdir()
    for make, said in (
        (lambda: kh.read(tmp_path / "empty"), "no images"),
        (lambda: kh.read(folder(tmp_path / "one", 1)), "1 image"),
    ):
        with pytest.raises(DataError, match=said):
            make()
    (folder(tmp_path / "set") / "bad.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"bad\.png: not an image"):
        kh.read(tmp_path / "set")
    (tmp_path / "torn.zip").write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(DataError, match=r"torn\.zip: not a whole zip"):
        kh.read(tmp_path / "torn.zip")
    with pytest.raises(SettingsError, match="colour='blue'"):
        kh.read(tmp_path / "set", colour="blue")
    with pytest.raises(SettingsError, match="size="):
        kh.read(tmp_path / "set", size=(0, 4))
    with pytest.raises(DataError, match="size does not apply to an array"):
        kh.read(np.ones((3, 3)), size=4)


def test_a_bomb_is_an_error_before_it_unpacks(tmp_path, monkeypatch):
    """Pillow's warning is enough."""
    path = folder(tmp_path / "set")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    with pytest.raises(DataError, match="too large to be an image"):
        kh.read(path)


@pytest.mark.parametrize("names", [["../evil0.png", "/etc/evil1.png"], ["a/../../evil0.png", "..\\evil1.png"]])
def test_a_zip_writes_nothing_wherever_its_members_say_they_are(tmp_path, monkeypatch, names):
    inner = tmp_path / "deep" / "inside"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    zipped("tricks.zip", {name: picture(seed) for seed, name in enumerate(names)})
    before = sorted(tmp_path.rglob("*"))
    assert gridded(kh.read("tricks.zip")).shape == (2, 1, 6, 8)
    assert sorted(tmp_path.rglob("*")) == before
    assert not any(Path("/etc").glob("evil*"))


def test_a_link_in_a_zip_is_not_followed(tmp_path):
    """An entry that says it is a link holds the path that it leads to, and no image."""
    path = zipped(tmp_path / "links.zip", {f"{seed}.png": picture(seed) for seed in range(3)})
    picture(9).save(tmp_path / "secret.png")
    link = zipfile.ZipInfo("link.png")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(link, str(tmp_path / "secret.png"))
    with pytest.raises(DataError, match=r"links\.zip: link\.png: not an image"):
        kh.read(path)


def test_a_member_of_a_zip_that_unpacks_to_much_is_refused_before_it_does(tmp_path):
    path = zipped(tmp_path / "bomb.zip", {f"{seed}.png": picture(seed) for seed in range(3)})
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.png", b"small")
        archive.filelist[-1].file_size = 300 << 20
    with pytest.raises(DataError, match=r"bomb\.zip: bomb\.png declares 300 MiB; images have less"):
        kh.read(path)


@pytest.mark.parametrize("way", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_zip_gives_samples_or_a_data_error(tmp_path, way, rng):
    path = zipped(tmp_path / "damaged.zip", {f"{seed}.png": picture(seed) for seed in range(3)}, way)
    whole = path.read_bytes()
    for place, change in zip(rng.integers(0, len(whole), 100), rng.integers(1, 256, 100), strict=True):
        content = bytearray(whole)
        content[place] ^= int(change)
        path.write_bytes(content)
        with warnings.catch_warnings(), contextlib.suppress(DataError):
            warnings.simplefilter("ignore")
            kh.read(path)


def test_matlab_files(tmp_path):
    """The only array, or the one named; what else is there is listed."""
    values = smooth(10, 3, 4)
    scipy.io.savemat(tmp_path / "one.mat", {"X": values, "note": "text"})
    np.testing.assert_allclose(gridded(kh.read(tmp_path / "one.mat"))[:, 0], values)
    scipy.io.savemat(tmp_path / "two.mat", {"X": values, "Y": values[:, :2].astype("int16")})
    assert kh.read(tmp_path / "two.mat", variable="Y").sites.shape == (2, 4)
    with pytest.raises(DataError, match=r"two\.mat: holds 2 arrays \(X, Y\)"):
        kh.read(tmp_path / "two.mat")
    with pytest.raises(DataError, match="no array 'Z'; there is X, Y"):
        kh.read(tmp_path / "two.mat", variable="Z")
    whole = (tmp_path / "one.mat").read_bytes()
    for broken in (whole[:200], b"", b"MATLAB 7.3 MAT-file" + bytes(200), whole[:130] + b"\xff" * 40):
        (tmp_path / "bad.mat").write_bytes(broken)
        with pytest.raises(DataError, match=r"bad\.mat"):
            kh.read(tmp_path / "bad.mat")


def element(kind: int, content: bytes) -> bytes:
    """A part of a MATLAB file."""
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def matlab(*, kind=9, content=None, size=None, dims=(6, 4), flags=6, compressed=False) -> bytes:
    """A MATLAB file of one array, X, whose numbers say that they are of a kind and of a size in bytes."""
    content = smooth(*dims).tobytes() if content is None else content
    head = (
        element(6, struct.pack("<II", flags, 0)) + element(5, struct.pack(f"<{len(dims)}i", *dims)) + element(1, b"X")
    )
    numbers = struct.pack("<II", kind, len(content) if size is None else size) + content
    whole = element(14, head + numbers)
    whole = struct.pack("<II", 15, len(zlib.compress(whole))) + zlib.compress(whole) if compressed else whole
    return b"MATLAB 5.0".ljust(124) + b"\x00\x01IM" + whole


@pytest.mark.parametrize("compressed", [False, True])
def test_a_matlab_file_is_read_compressed_and_not(tmp_path, compressed):
    (tmp_path / "a.mat").write_bytes(matlab(compressed=compressed))
    assert kh.read(tmp_path / "a.mat").values.shape == (6, 1, 4)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", [0, 8, 10, 11, 14, 15, 16, 17, 19, 20, 63_240, 2**31])
def test_numbers_of_no_kind_in_a_matlab_file_are_refused(tmp_path, kind, compressed):
    """SciPy looks such a kind up beyond the end of a table, which may end Python; found by scripts/fuzz.py."""
    (tmp_path / "a.mat").write_bytes(matlab(kind=kind, compressed=compressed))
    with pytest.raises(DataError, match=r"a\.mat: "):
        kh.read(tmp_path / "a.mat")


def test_a_matlab_file_that_unpacks_to_much_is_refused_before_it_does(tmp_path, monkeypatch):
    """24 numbers, it says, and 8 MB of them; nothing is loaded."""
    (tmp_path / "a.mat").write_bytes(matlab(content=bytes(8_000_000), compressed=True))
    monkeypatch.setattr(scipy.io, "loadmat", None)
    with pytest.raises(DataError, match=r"a\.mat: .*24 numbers in 8000000 bytes"):
        kh.read(tmp_path / "a.mat")


def test_what_is_no_array_of_real_numbers_in_a_matlab_file_is_refused(tmp_path):
    """By its name too: structures within structures could end Python."""
    held = {"s": {"x": smooth(4, 3)}, "t": "text", "c": np.array([[1, "a"]], object), "i": smooth(4, 3) * 1j}
    scipy.io.savemat(tmp_path / "a.mat", {"X": smooth(4, 3), **held})
    for name in held:
        with pytest.raises(DataError, match=r"a\.mat: .*real numbers are needed"):
            kh.read(tmp_path / "a.mat", variable=name)


def test_a_matlab_file_of_version_4_is_read(tmp_path):
    scipy.io.savemat(tmp_path / "a.mat", {"X": smooth(4, 3)}, format="4")
    np.testing.assert_array_equal(kh.read(tmp_path / "a.mat").values[:, 0], smooth(4, 3))


def test_parquet_files(tmp_path):
    """Columns are sites; a column called time gives the times, another may be the target."""
    import pandas as pd

    frame = pd.DataFrame(smooth(20, 4), columns=list("abcd"))
    frame.assign(time=pd.date_range("2000-01-01", periods=20), kind=["x", "y"] * 10).to_parquet(tmp_path / "t.parquet")
    signals = kh.read(tmp_path / "t.parquet", target="kind")
    assert signals.sites.names == ("a", "b", "c", "d")
    assert signals.time is not None
    assert signals.target is not None
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match=r"bad\.parquet: cannot be read as Parquet"):
        kh.read(tmp_path / "bad.parquet")
