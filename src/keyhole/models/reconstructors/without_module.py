"""The reconstructor of a plan whose network is the user's own, where that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from keyhole.core.errors import DataError
from keyhole.data.sites import Sites
from keyhole.models.reconstructors.base import Reconstructor

__all__ = ["OWN", "WithoutModule"]

OWN = "module"  # in a file, in place of a registry name


class WithoutModule(Reconstructor):
    """Stands for a network of the user's own in a plan that is loaded for its sites and its record alone.

    Parameters
    ----------
    own
        Name of the module.
    message
        The sentence with which it refuses to reconstruct, and to be fitted or saved.

    Examples
    --------
    >>> WithoutModule("mine", "give the module").name
    'mine'
    """

    name: str = OWN  # type: ignore[misc]

    def __init__(self, own: str = OWN, message: str = "") -> None:
        super().__init__()
        self.name, self.message = own, message

    def fit(self, train: Any, sites: Any, *, validation: Any, run: Any) -> NoReturn:
        """Refuse."""
        raise DataError(self.message)

    def reconstruct(self, readings: Any, covariates: Any = None) -> NoReturn:
        """Refuse."""
        raise DataError(self.message)

    def state(self) -> NoReturn:
        """Refuse."""
        raise DataError(self.message)

    @classmethod
    def restore(
        cls, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], domain: Sites, sites: NDArray[np.int64]
    ) -> Self:
        """Keep the name."""
        return cls(str(settings["name"]))

    def takes(self, sites: int, channels: int, covariates: int) -> bool:
        """Return True: nothing is known of it."""
        return True
