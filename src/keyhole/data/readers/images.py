"""Images: a folder or a zip of them, each one a sample."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError, SettingsError, StorageError
from keyhole.core.memory import check_fits
from keyhole.core.paths import check_regular
from keyhole.data.readers.arrays import read_array
from keyhole.data.samples import Samples

__all__ = ["IMAGES", "Colour", "image_files", "read_images"]

Colour = Literal["grey", "rgb"]

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
_GREYS = ("1", "L", "LA", "La", "I", "F", "I;16", "I;16B", "I;16L", "I;16N")
_MODES = {"grey": "L", "rgb": "RGB"}
_MOST_BYTES = 1 << 28  # of one file in a zip: an image that is larger is none of ours


def read_images(path: Path, *, size: int | tuple[int, int] | None = None, colour: Colour | None = None) -> Samples:
    """Read the images of a folder or a zip, by name; values go from 0 to 1.

    Parameters
    ----------
    path
        Folder, or zip.
    size
        Rows and columns to make of each (one number for both); needed where they are not all of one size.
    colour
        ``"grey"``, or ``"rgb"`` for three channels; by default grey if all images are.
    """
    shape = _shape(size)
    if colour not in (None, *_MODES):
        raise SettingsError(f"colour={colour!r}: 'grey' or 'rgb' is needed")
    with _opened(path) as (names, load):
        if len(names) < 2:
            raise DataError(f"{path}: holds {len(names) or 'no'} image{'s' * (len(names) == 0)}; several are needed")
        images = ((name, _image(load, name, path)) for name in names)
        values = _values(images, len(names), shape, colour, path)
    if values.shape[-1] == 1:
        return read_array(values[..., 0], name=path.stem)
    return read_array(values, channels=3, name=path.stem)


def _values(
    images: Iterator[tuple[str, Any]], count: int, size: tuple[int, int] | None, colour: Colour | None, path: Path
) -> NDArray[np.float32]:
    """Values ``(N, rows, columns, bands)`` of all images, each decoded once; the first of colour makes all RGB."""
    values = np.empty((0, 0, 0, 1), np.float32)
    for place, (name, image) in enumerate(images):
        mode = _MODES[colour or ("grey" if values.shape[-1] == 1 and _is_grey(image) else "rgb")]
        shape = size or (values.shape[1:3] if place else (image.height, image.width))
        if place == 0 or len(mode) > values.shape[-1]:
            check_fits(count * shape[0] * shape[1] * len(mode) * 4, f"{path}: {count} images")
            wider = np.empty((count, *shape, len(mode)), np.float32)
            if place:
                wider[:place] = values[:place]  # what is grey is the same in all bands
            values = wider
        values[place] = _pixels(image, mode, shape, f"{path}: {name}", resize=size is not None)
    return values


def _is_grey(image: Any) -> bool:
    return image.mode in _GREYS


def _shape(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    if size is None:
        return None
    sides = (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2 or not all(isinstance(side, int) and 1 <= side <= 65_535 for side in sides):
        raise SettingsError(f"size={size!r}: rows and columns are needed, (64, 64)")
    return sides[0], sides[1]


def image_files(folder: Path) -> list[Path]:
    """Give the images of a folder and those below it, sorted by name."""
    return sorted((file for file in folder.rglob("*") if file.suffix.lower() in IMAGES), key=str)


Load = Callable[[str], io.BytesIO | Path]


@contextmanager
def _opened(path: Path) -> Iterator[tuple[list[str], Load]]:
    """Names of the images, sorted, and what opens one."""
    if path.is_dir():
        for file in image_files(path):
            check_regular(file)
        yield [str(file.relative_to(path)) for file in image_files(path)], lambda name: path / name
        return
    with _archive(path) as archive:
        sizes = {one.filename: one.file_size for one in archive.infolist() if _is_image(one.filename)}
        yield sorted(sizes), lambda name: io.BytesIO(_unzipped(archive, name, sizes[name]))


def _archive(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except Exception as error:  # whatever zipfile raises on files that are damaged or made up
        raise DataError(f"{path}: not a whole zip ({error})") from error


def _is_image(name: str) -> bool:
    return Path(name).suffix.lower() in IMAGES and not Path(name).name.startswith("._")


def _unzipped(archive: zipfile.ZipFile, name: str, declared: int) -> bytes:
    if declared > _MOST_BYTES:
        raise DataError(f"{name} declares {declared >> 20} MiB; images have less")
    with archive.open(name) as file:
        return file.read(declared + 1)


def _image(load: Load, name: str, path: Path) -> Any:
    """Open one image; one that would unpack to a bomb is refused."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            image = Image.open(load(name))
            image.load()  # which closes its file
            return image
        except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
            raise DataError(f"{path}: {name}: too large to be an image of a set ({error})") from error
        except DataError:
            raise
        except Exception as error:  # whatever Pillow and zipfile raise on files that are damaged or made up
            raise DataError(f"{path}: {name}: not an image that can be read ({error})") from error


def _pixels(image: Any, mode: str, shape: tuple[int, int], what: str, *, resize: bool) -> NDArray[np.float32]:
    """Values ``(rows, columns, bands)`` of one image, from 0 to 1."""
    from PIL import Image

    if not resize and (image.height, image.width) != shape:
        raise DataError(
            f"{what}: {image.height} x {image.width} where the first has {shape[0]} x {shape[1]}; give a size for all"
        )
    deep = image.mode.startswith("I") or image.mode == "F"
    level = 65_535 if image.mode.startswith("I") else 1 if deep else 255
    try:
        image = image.convert("F" if deep else mode)
        if (image.height, image.width) != shape:
            image = image.resize((shape[1], shape[0]), Image.Resampling.LANCZOS)
        values = np.asarray(image, np.float32).reshape(*shape, -1) / np.float32(level)
    except (OSError, ValueError, SyntaxError, MemoryError) as error:
        raise DataError(f"{what}: not an image that can be read ({error})") from error
    return np.broadcast_to(values, (*shape, len(mode)))
