"""Reader of images in a folder or a zip; each is a sample."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError
from keyhole.core.memory import check_fits
from keyhole.core.paths import check_regular, open_regular
from keyhole.data.readers.arrays import read_array
from keyhole.data.readers.files import decoding
from keyhole.data.samples import Samples

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["IMAGES", "Colour", "image_files", "read_images"]

Colour = Literal["grey", "rgb"]
Load = Callable[[str], io.BytesIO | Path]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
_GREYS = ("1", "L", "LA", "La", "I", "F", "I;16", "I;16B", "I;16L", "I;16N")
_MODES = {"grey": "L", "rgb": "RGB"}
_MOST_BYTES = 1 << 28  # of one image in a zip
_MOST_SIDE = 65_535


def read_images(path: Path, *, size: int | tuple[int, int] | None = None, colour: Colour | None = None) -> Samples:
    """Read images, sorted by name, with values from 0 to 1.

    Parameters
    ----------
    path : Path
        Folder or zip.
    size : int or (int, int), optional
        Rows and columns to which images are resized; required if their sizes differ.
    colour : {"grey", "rgb"}, optional
        Colour mode; None: grey if all images are grey, else RGB, which has three channels.

    Returns
    -------
    Samples

    Raises
    ------
    DataError
        If there are fewer than two images, one is damaged or too large, or their sizes differ.
    """
    shape = _shape(size)
    if colour not in (None, *_MODES):
        raise SettingsError(f"colour={colour!r}: 'grey' or 'rgb' is needed")
    with _opened(path) as (names, load):
        if len(names) < 2:
            raise DataError(f"{path}: holds {len(names) or 'no'} image{'s' * (len(names) == 0)}; several are needed")
        images = ((name, _decoded(load, name, path)) for name in names)
        values = _values(images, len(names), shape, colour, path)
    if values.shape[-1] == 1:
        return read_array(values[..., 0], name=path.stem)
    return read_array(values, channels=3, name=path.stem)


def image_files(folder: Path) -> list[Path]:
    """Return the images in a folder and its subfolders, sorted by name."""
    return sorted((file for file in folder.rglob("*") if file.suffix.lower() in IMAGES), key=str)


def _values(
    images: Iterator[tuple[str, Image]], count: int, size: tuple[int, int] | None, colour: Colour | None, path: Path
) -> NDArray[np.float32]:
    """Values ``(N, rows, columns, bands)``; each image is decoded once, and the first colour image makes all RGB."""
    values = np.empty((0, 0, 0, 1), np.float32)
    for done, (name, image) in enumerate(images):
        mode = _MODES[colour or ("grey" if values.shape[-1] == 1 and image.mode in _GREYS else "rgb")]
        shape = size or (values.shape[1:3] if done else (image.height, image.width))
        if done == 0 or len(mode) > values.shape[-1]:
            check_fits(count * shape[0] * shape[1] * len(mode) * 4, f"{path}: {count} images")
            wider = np.empty((count, *shape, len(mode)), np.float32)
            if done:
                wider[:done] = values[:done]  # grey images have equal bands
            values = wider
        values[done] = _pixels(image, mode, shape, f"{path}: {name}", resize=size is not None)
    return values


def _shape(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """Rows and columns of a size."""
    if size is None:
        return None
    sides = (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2 or not all(isinstance(side, int) and 1 <= side <= _MOST_SIDE for side in sides):
        raise SettingsError(f"size={size!r}: rows and columns are needed, (64, 64)")
    return sides[0], sides[1]


@contextmanager
def _opened(path: Path) -> Iterator[tuple[list[str], Load]]:
    """Open a folder or a zip: sorted names of the images, and a function that opens one by its name."""
    if path.is_dir():
        files = image_files(path)
        for file in files:
            check_regular(file)
        yield [str(file.relative_to(path)) for file in files], lambda name: path / name
        return
    with ExitStack() as stack:
        content = stack.enter_context(open_regular(path))
        with decoding(path, "not a whole zip"):
            archive = stack.enter_context(zipfile.ZipFile(content))
        sizes = {one.filename: one.file_size for one in archive.infolist() if _is_image(one.filename)}
        yield sorted(sizes), lambda name: io.BytesIO(_unzipped(archive, name, sizes[name]))


def _is_image(name: str) -> bool:
    """Whether a member of a zip is an image, and not one of the files that macOS adds."""
    return Path(name).suffix.lower() in IMAGES and not Path(name).name.startswith("._")


def _unzipped(archive: zipfile.ZipFile, name: str, declared: int) -> bytes:
    """Content of a member, up to its declared size."""
    if declared > _MOST_BYTES:
        raise DataError(f"{name} declares {declared >> 20} MiB; images have less")
    with archive.open(name) as file:
        return file.read(declared + 1)


def _decoded(load: Load, name: str, path: Path) -> Image:
    """Decode one image; decompression bombs are an error."""
    from PIL import Image

    with warnings.catch_warnings(), decoding(f"{path}: {name}", "not an image that can be read"):
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            image = Image.open(load(name))
            image.load()  # which closes its file
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise DataError(f"{path}: {name}: too large to be an image of a set ({error})") from error
        return image


def _pixels(image: Image, mode: str, shape: tuple[int, int], what: str, *, resize: bool) -> NDArray[np.float32]:
    """Values ``(rows, columns, bands)`` of one image, from 0 to 1."""
    from PIL import Image

    if not resize and (image.height, image.width) != shape:
        raise DataError(
            f"{what}: {image.height} x {image.width} where the first has {shape[0]} x {shape[1]}; give a size for all"
        )
    is_deep = image.mode.startswith("I") or image.mode == "F"
    level = 65_535 if image.mode.startswith("I") else 1 if is_deep else 255
    with decoding(what, "not an image that can be read"):
        converted = image.convert("F" if is_deep else mode)
        if (image.height, image.width) != shape:
            converted = converted.resize((shape[1], shape[0]), Image.Resampling.LANCZOS)
        values = np.asarray(converted, np.float32).reshape(*shape, -1) / np.float32(level)
    return np.broadcast_to(values, (*shape, len(mode)))
