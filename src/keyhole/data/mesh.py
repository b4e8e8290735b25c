"""The faces of an unstructured mesh, to draw what lies on them or on their nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Mesh"]


@dataclass(frozen=True, eq=False)
class Mesh:
    """Faces of a mesh and where their nodes lie, for all positions of the data, valid or not.

    Parameters
    ----------
    dim
        The dimension of the data along which the faces or nodes are counted.
    location
        Whether values lie on the faces or on the nodes.
    faces
        ``(faces, most corners)``, nodes of each face in their order around it; -1 where a face has fewer.
    x, y
        ``(nodes,)``, longitude and latitude of each node in degrees, or x and y.

    Examples
    --------
    >>> square = Mesh("cell", "face", np.array([[0, 1, 2], [0, 2, 3]]), np.array([0, 1, 1, 0]), np.array([0, 0, 1, 1]))
    >>> square.corners()[0]
    array([[0., 1., 1.],
           [0., 1., 0.]])
    >>> square.triangles().tolist()
    [[0, 1, 2], [0, 2, 3]]
    """

    dim: str
    location: Literal["face", "node"]
    faces: NDArray[np.int64]
    x: NDArray[np.float64]
    y: NDArray[np.float64]

    def corners(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return x and y of the corners of each face, ``(faces, most corners)``.

        Corners that a face lacks repeat another one of it; a face without any has NaN.
        """
        there = self.faces >= 0
        other = np.take_along_axis(self.faces, there.argmax(axis=1)[:, np.newaxis], axis=1)
        nodes = np.where(there, self.faces, other)
        x, y = (np.where(nodes < 0, np.nan, one[nodes]) for one in (self.x, self.y))
        return x, y

    def triangles(self) -> NDArray[np.int64]:
        """Return the nodes of the triangles that the faces divide into, ``(triangles, 3)``."""
        fans = [self.faces[:, [0, i, i + 1]] for i in range(1, self.faces.shape[1] - 1)]
        # Face by face, so that neighbours stay together.
        every = np.stack(fans, axis=1).reshape(-1, 3)
        return np.asarray(every[(every >= 0).all(axis=1)])
