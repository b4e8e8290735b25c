"""Images in folders and zips, and MATLAB and Parquet files."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest
from PIL import Image

import keyhole as kh
from keyhole.errors import DataError, SettingsError
from samples import smooth


def picture(seed: int, shape=(6, 8), mode="L") -> Image.Image:
    bands = {"L": (), "RGB": (3,), "I;16": ()}[mode]
    kind = np.uint16 if mode == "I;16" else np.uint8
    return Image.fromarray(np.random.default_rng(seed).integers(0, np.iinfo(kind).max, (*shape, *bands)).astype(kind))


def folder(path, count=5, **options):
    path.mkdir()
    for seed in range(count):
        picture(seed, **options).save(path / f"{seed}.png")
    return path


def zipped(path, images):
    with zipfile.ZipFile(path, "w") as archive:
        for name, image in images.items():
            content = io.BytesIO()
            image.save(content, "PNG")
            archive.writestr(name, content.getvalue())
    return path


def test_grey_images_of_a_folder_and_a_zip(tmp_path):
    """By name, from 0 to 1; other files do not count."""
    (folder(tmp_path / "set") / "notes.txt").write_text("x")
    zipped(tmp_path / "set.zip", {f"deep/{seed}.png": picture(seed) for seed in range(5)})
    for source in ("set", "set.zip"):
        signals = kh.read(tmp_path / source)
        assert signals.values.shape == (5, 1, 6, 8)
        np.testing.assert_allclose(signals.values[3, 0], np.asarray(picture(3)) / 255, rtol=1e-6)


def test_colour_size_and_depth(tmp_path):
    """RGB gives three channels, grey one; sizes are made equal where asked; 16 bits keep their depth."""
    rgb, deep = folder(tmp_path / "rgb", mode="RGB"), folder(tmp_path / "deep", mode="I;16")
    signals = kh.read(rgb)
    assert signals.values.shape == (5, 3, 6, 8)
    first = np.asarray(picture(0, mode="RGB")) / 255
    np.testing.assert_allclose(signals.values[0].transpose(1, 2, 0), first, rtol=1e-6)
    assert kh.read(rgb, colour="grey").channels == 1
    assert kh.read(rgb, size=4).grid.shape == (4, 4)
    assert kh.read(rgb, size=(3, 5), colour="grey").grid.shape == (3, 5)
    np.testing.assert_allclose(kh.read(deep).values[1, 0], np.asarray(picture(1, mode="I;16")) / 65535, rtol=1e-5)
    plan = kh.select(rgb, 3, method="qr", reconstructor="ridge")
    assert plan.reconstruct(np.zeros((2, 3, 3))).shape == (2, 6, 8, 3)


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
    with pytest.raises(DataError, match="size has no meaning for an array"):
        kh.read(np.ones((3, 3)), size=4)


def test_a_bomb_is_an_error_before_it_unpacks(tmp_path, monkeypatch):
    """Pillow's warning is enough."""
    path = folder(tmp_path / "set")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 40)
    with pytest.raises(DataError, match="too large to be an image"):
        kh.read(path)


def test_matlab_files(tmp_path):
    """The only array, or the one named; what else is there is listed."""
    from scipy.io import savemat

    values = smooth(10, 3, 4)
    savemat(tmp_path / "one.mat", {"X": values, "note": "text"})
    np.testing.assert_allclose(kh.read(tmp_path / "one.mat").values[:, 0], values)
    savemat(tmp_path / "two.mat", {"X": values, "Y": values[:, :2].astype("int16")})
    assert kh.read(tmp_path / "two.mat", variable="Y").grid.shape == (2, 4)
    with pytest.raises(DataError, match=r"two\.mat: holds 2 arrays \(X, Y\)"):
        kh.read(tmp_path / "two.mat")
    with pytest.raises(DataError, match="no array 'Z'; there is X, Y"):
        kh.read(tmp_path / "two.mat", variable="Z")
    whole = (tmp_path / "one.mat").read_bytes()
    for broken in (whole[:200], b"", b"MATLAB 7.3 MAT-file" + bytes(200), whole[:130] + b"\xff" * 40):
        (tmp_path / "bad.mat").write_bytes(broken)
        with pytest.raises(DataError, match=r"bad\.mat"):
            kh.read(tmp_path / "bad.mat")


def test_parquet_files(tmp_path):
    """Columns are sites; a column called time gives the times, another may be the target."""
    import pandas as pd

    frame = pd.DataFrame(smooth(20, 4), columns=list("abcd"))
    frame.assign(time=pd.date_range("2000-01-01", periods=20), kind=["x", "y"] * 10).to_parquet(tmp_path / "t.parquet")
    signals = kh.read(tmp_path / "t.parquet", target="kind")
    assert signals.grid.names == ("a", "b", "c", "d")
    assert signals.time is not None
    assert signals.target is not None
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DataError, match=r"bad\.parquet: cannot be read as Parquet"):
        kh.read(tmp_path / "bad.parquet")
