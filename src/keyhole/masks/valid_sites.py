"""The sites that a mask distribution covers: a shape, or the valid cells of a grid."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from keyhole.core.errors import DataError, InfeasibleError, SettingsError

__all__ = ["SitesLike", "ValidSites", "as_valid_sites", "whole_number"]

SitesLike = int | Sequence[int] | npt.NDArray[np.bool_] | Tensor


def as_valid_sites(sites: SitesLike) -> Tensor:
    """Convert a shape, or a boolean array, to a boolean tensor of valid sites.

    Parameters
    ----------
    sites
        A shape, such as `784` or `(28, 28)`, of which every cell is valid; or a boolean array or tensor of the grid's
        shape.

    Returns
    -------
    Tensor
        Bool, of the grid's shape.

    Raises
    ------
    SettingsError
        An array that is not boolean, or a shape with an entry below 1.

    Examples
    --------
    >>> as_valid_sites((2, 3)).shape
    torch.Size([2, 3])
    >>> as_valid_sites(np.array([True, False])).tolist()
    [True, False]
    """
    if isinstance(sites, Tensor | np.ndarray):
        tensor = sites if isinstance(sites, Tensor) else torch.tensor(sites)
        if tensor.dtype != torch.bool:
            raise SettingsError(
                f"sites: an array of {sites.dtype}; give a boolean array of valid sites, or a shape such as (28, 28)"
            )
        return tensor
    shape = np.asarray(sites)
    if shape.dtype == bool:
        return torch.from_numpy(shape)
    if shape.ndim > 1 or not (np.issubdtype(shape.dtype, np.integer) and shape.size and shape.min() >= 1):
        raise SettingsError(f"sites: {sites!r} is neither a shape of positive integers nor a boolean array")
    return torch.ones(tuple(np.atleast_1d(shape).tolist()), dtype=torch.bool)


def whole_number(k: int) -> int:
    """Return a number of sites as an int; a NumPy integer or a tensor of one integer is one too.

    Parameters
    ----------
    k
        Number of sites.

    Returns
    -------
    int
        The same number.

    Raises
    ------
    SettingsError
        k is a fraction, a truth value or no number.

    Examples
    --------
    >>> whole_number(torch.tensor(5))
    5
    """
    try:
        if not isinstance(k, bool | np.bool_):
            return operator.index(k)
    except TypeError:
        pass
    raise SettingsError(f"k must be a whole number of sites; got {k!r}")


class ValidSites(nn.Module):
    """Valid sites of a grid, and the way between values of these sites and values on the grid.

    Parameters
    ----------
    sites
        Shape of the grid, or a boolean array or tensor of its valid sites; see `as_valid_sites`.

    Attributes
    ----------
    event_shape : torch.Size
        Shape of the grid, which is that of one mask.
    index : Tensor
        Flat C-order grid indices of the valid sites, `(n_sites,)`.

    Raises
    ------
    DataError
        No site is valid.
    """

    index: Tensor

    def __init__(self, sites: SitesLike) -> None:
        super().__init__()
        valid = as_valid_sites(sites)
        self.event_shape = valid.shape
        self.register_buffer("index", valid.flatten().nonzero().squeeze(1))
        if not self.n_sites:
            raise DataError(f"sites: no site of the {tuple(valid.shape)} grid is valid; at least one is required")

    @property
    def n_sites(self) -> int:
        """Number of valid sites."""
        return len(self.index)

    def pack(self, values: Tensor) -> Tensor:
        """Gather the valid sites of values on the grid.

        Parameters
        ----------
        values
            `(..., *event_shape)`.

        Returns
        -------
        Tensor
            `(..., n_sites)`, in C order.
        """
        return values.flatten(values.dim() - len(self.event_shape)).index_select(-1, self.index)

    def scatter(self, packed: Tensor) -> Tensor:
        """Put values of the valid sites on the grid; the inverse of `pack`.

        Parameters
        ----------
        packed
            `(..., n_sites)`, in C order.

        Returns
        -------
        Tensor
            `(..., *event_shape)`, zero at sites that are not valid.
        """
        batch_shape, cells = packed.shape[:-1], math.prod(self.event_shape)
        if self.n_sites == cells:
            return packed.reshape(*batch_shape, *self.event_shape)
        flat = packed.new_zeros(*batch_shape, cells)
        return flat.index_copy(-1, self.index, packed).reshape(*batch_shape, *self.event_shape)

    def check_k(self, k: int) -> None:
        """Check that k sites can be selected.

        Parameters
        ----------
        k
            Number of sites.

        Raises
        ------
        InfeasibleError
            k is less than 1 or more than the number of valid sites.
        SettingsError
            k is not a whole number.
        """
        whole_number(k)
        if not 1 <= k <= self.n_sites:
            raise InfeasibleError(f"k must be from 1 to {self.n_sites}, the number of valid sites; got {k}")

    # For subclasses.
    @property
    def _dtype(self) -> torch.dtype:
        return next(self.parameters(), torch.empty(0)).dtype

    def _filled(self, value: float) -> Tensor:
        """Return a constant for each site, `(n_sites,)`."""
        return torch.full((self.n_sites,), value, dtype=self._dtype, device=self.index.device)

    def _normal(self, *shape: int, generator: torch.Generator | None) -> Tensor:
        """Draw standard normal numbers on the generator's device and move them to the parameters'."""
        return torch.randn(shape, **self._source(generator)).to(self.index.device)

    def _uniform(self, *shape: int, generator: torch.Generator | None) -> Tensor:
        """Draw uniform numbers in [0, 1) on the generator's device and move them to the parameters'."""
        return torch.rand(shape, **self._source(generator)).to(self.index.device)

    def _source(self, generator: torch.Generator | None) -> dict[str, Any]:
        """Return device, precision and generator; torch.compile refuses ``generator=None`` for shapes that vary."""
        if generator is None:
            return {"device": self.index.device, "dtype": self._dtype}
        return {"device": generator.device, "dtype": self._dtype, "generator": generator}
