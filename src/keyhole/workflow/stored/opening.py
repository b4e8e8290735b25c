"""Open a field that stays where it is, and see what is in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from keyhole.core.errors import DataError
from keyhole.core.memory import parse_size
from keyhole.data.readers.field_files import open_fields
from keyhole.data.readers.fields import Field
from keyhole.data.samples import Samples
from keyhole.data.validation import check_time, floating
from keyhole.workflow.stored.store import Store

__all__ = ["open_store"]


@contextmanager
def open_store(
    path: str | Path | Sequence[str | Path], memory: int | str, *, variable: str | Sequence[str] | None = None,
    group: str | None = None, samples: str | None = None, at: Mapping[str, Any] | None = None,
) -> Iterator[Store]:  # fmt: skip
    """Open a NetCDF file or a Zarr store, to be gone through some samples at a time.

    A folder of NetCDF files, a pattern or a list of paths is joined along the sample dimension, as `read` does.

    ``memory`` is what work on it may take beside the program's own, ``"2GiB"`` or bytes; the options are `read`'s.
    """
    with open_fields(path, variable=variable, group=group, samples=samples, at=at) as field:
        yield _surveyed(field, parse_size(memory))


def _surveyed(field: Field, memory: int) -> Store:
    """Find the valid sites, and refuse what cannot be worked with some at a time."""
    if field.time is not None:
        check_time(field.time, len(field))
    one = floating(field.values(slice(0, 1)))
    sites = field.sites
    plain = Samples(
        values=sites.from_grid(one[:0]), sites=sites, observable=np.ones(len(sites), bool), time=_no_time(field),
        origin=field.origin,
    )  # fmt: skip
    store = Store(field, plain, memory)
    ever, always = np.zeros(len(sites), bool), np.ones(len(sites), bool)
    for start, block in store.blocks():
        missing = np.isnan(block.values)
        if np.isinf(block.values).any():
            raise DataError(f"sample {start} and those after it hold infinite values; they must be finite")
        ever |= missing.any(axis=(0, 1))
        always &= missing.all(axis=(0, 1))
    valid = ~always
    if not valid.any():
        raise DataError("every site is missing (NaN) in every sample")
    partly = int((ever & valid).sum())
    if partly:
        raise DataError(
            f"{partly} of {int(valid.sum())} sites have missing values (NaN) in some samples; fill them, make such "
            "sites NaN in all samples, or read everything into memory with missing='model' (--missing model)"
        )
    about = plain.restrict(valid)
    known = about.sites.is_geographic and about.sites.area is not None
    return replace(store, about=about.with_weights("area") if known else about)


def _no_time(field: Field) -> Any:
    return None if field.time is None else field.time[:0]
