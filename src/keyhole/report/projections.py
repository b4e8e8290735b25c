"""Projections and coastlines by cartopy, where it is installed (extra ``maps``)."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache, cached_property
from importlib.util import find_spec
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from numpy.typing import NDArray

from keyhole.core.errors import SettingsError
from keyhole.core.extras import check_extra
from keyhole.data.coordinates import FULL_TURN
from keyhole.data.metric import on_sphere
from keyhole.data.sites import Sites
from keyhole.report.rings import Rings, cut, flat_rings, refined, repeated
from keyhole.report.style import SMALL

if TYPE_CHECKING:
    import cartopy.crs as ccrs

__all__ = ["Projection", "coastlines", "draw_coastlines"]

Numbers = NDArray[np.float64]

# The middle of an edge lies in the middle of its ends, within this share of its length, unless the map is cut there.
_TORN = 0.2
# Degrees by which pieces keep away from the edge of the map, and into which their own edges are divided.
_INSIDE, _FINE = 1e-6, 2.0
# Share of the width of the map that two neighbouring points of such an edge are never apart.
_LEAP = 0.1
# Share of the whole map beyond which it is shown whole, with its own outline.
_WHOLE = 0.98
# Share of the whole map that is left free at least, as around a single station.
_LEAST_ROOM = 1e-5
# Degrees of longitude beyond which data go around the globe.
_GLOBAL = 300.0
# Natural Earth's coastlines: for maps that span at most so many degrees, the finest that there is on the machine.
_COASTS = {"10m": 10.0, "50m": 60.0, "110m": FULL_TURN}


class Projection:
    """A map projection of cartopy.

    Parameters
    ----------
    crs : cartopy.crs.Projection
        The projection.
    """

    def __init__(self, crs: ccrs.Projection) -> None:
        self.crs = crs

    @classmethod
    def of(cls, given: Any, sites: Sites) -> Projection | None:
        """Return the projection that a user means; None for none.

        Parameters
        ----------
        given : str, cartopy.crs.Projection or None
            A class of ``cartopy.crs`` by name, which is centred on sites that do not go around the globe.
        sites : Sites
            What is to be drawn.

        Raises
        ------
        MissingExtraError
            If cartopy is not installed.
        SettingsError
            If the sites have no latitude and longitude, or there is no such projection.
        """
        if given is None:
            return None
        if not sites.is_geographic:
            raise SettingsError(f"projection={given!r}: the sites have no latitude and longitude to project")
        check_extra("maps")
        import cartopy.crs as ccrs

        if isinstance(given, ccrs.Projection):
            return cls(given)
        known = _by_name()
        if not isinstance(given, str) or given not in known:
            close = get_close_matches(str(given), known, n=3, cutoff=0.5) or ["Robinson", "NorthPolarStereo"]
            raise SettingsError(
                f"projection={given!r}: a projection of cartopy or its name is needed, such as {', '.join(close)}"
            )
        return cls(known[given](**_centre(known[given], sites)))

    def points(self, longitude: Numbers, latitude: Numbers) -> tuple[Numbers, Numbers]:
        """Return positions on the map, of the same shape; NaN where the projection does not show them."""
        import cartopy.crs as ccrs

        flat = self.crs.transform_points(self._plain, longitude.ravel(), latitude.ravel())
        x, y = (np.where(np.isfinite(flat).all(axis=1), flat[:, i], np.nan) for i in range(2))
        # A polar projection would stretch the other hemisphere over most of the map.
        sign = isinstance(self.crs, ccrs.NorthPolarStereo) - isinstance(self.crs, ccrs.SouthPolarStereo)
        hidden = sign * latitude.ravel() < 0
        x[hidden] = y[hidden] = np.nan
        return x.reshape(longitude.shape), y.reshape(longitude.shape)

    def rings(self, longitude: Numbers, latitude: Numbers) -> list[Rings]:
        """Return polygons ``(n, corners)`` on the map; those that its edge cuts are cut, and hidden ones left out."""
        corners = np.stack(self.points(longitude, latitude), axis=2)
        after = np.roll(corners, -1, axis=1)
        points = on_sphere(latitude.ravel(), longitude.ravel()).reshape(*longitude.shape, 3)
        middle = points + np.roll(points, -1, axis=1)
        between = np.stack(
            self.points(
                np.rad2deg(np.arctan2(middle[..., 1], middle[..., 0])),
                np.rad2deg(np.arctan2(middle[..., 2], np.hypot(middle[..., 0], middle[..., 1]))),
            ),
            axis=2,
        )
        seen = np.asarray(np.isfinite(corners).all(axis=2))
        length = np.linalg.norm(after - corners, axis=2)
        straight = np.linalg.norm((after + corners) / 2 - between, axis=2) <= _TORN * length
        whole = np.asarray(np.all(seen & (straight | (length == 0)), axis=1))
        plain, torn = np.flatnonzero(whole), np.flatnonzero(~whole & np.any(seen, axis=1))
        found = [Rings(corners[plain], plain)]
        if len(torn):
            pieces = self._pieces(longitude[torn], latitude[torn])
            found.append(Rings.of([ring for ring, _ in pieces], [int(torn[i]) for _, i in pieces]))
        return found

    def limits(self, x: Numbers, y: Numbers, *, room: float = 0.01) -> tuple[Numbers, Numbers]:
        """Return the limits of a map that holds some points on it, with room around them as a share of their extent.

        Raises a SettingsError if the projection shows none of them.
        """
        corners = np.stack([x, y], axis=1)
        corners = corners[np.isfinite(corners).all(axis=1)]
        if not len(corners):
            raise SettingsError(f"projection={type(self.crs).__name__}: it shows none of the sites; choose another one")
        low, high = corners.min(axis=0), corners.max(axis=0)
        least, most = np.transpose([self.crs.x_limits, self.crs.y_limits])
        if (high - low > _WHOLE * (most - least)).all():
            return np.array(self.crs.x_limits), np.array(self.crs.y_limits)
        around = np.maximum(room * (high - low), _LEAST_ROOM * (most - least))
        low, high = np.maximum(low - around, least), np.minimum(high + around, most)
        return np.array([low[0], high[0]]), np.array([low[1], high[1]])

    def mark(self, axes: Axes, color: str) -> None:
        """Draw parallels and meridians with their degrees."""
        lines = axes.gridlines(  # type: ignore[attr-defined]
            draw_labels=True, linewidth=0.5, color=color, x_inline=False, y_inline=False, rotate_labels=False
        )
        lines.top_labels = lines.right_labels = False
        lines.xlabel_style = lines.ylabel_style = {"size": SMALL}

    def lines(self, geometries: list[Any]) -> list[Numbers]:
        """Return lines of longitude and latitude, geometries of shapely, on the map; its edge cuts them."""
        shown = (self.crs.project_geometry(one, self._plain) for one in geometries)
        return [np.asarray(part.coords)[:, :2] for one in shown for part in one.geoms]

    @cached_property
    def _plain(self) -> Any:
        """Longitude and latitude."""
        import cartopy.crs as ccrs

        return ccrs.PlateCarree()

    def _pieces(self, longitude: Numbers, latitude: Numbers) -> list[tuple[Numbers, int]]:
        """Pieces of polygons that the edge of the map cuts, each with the number of its polygon.

        They are cut along the meridian opposite to the centre. What is then still hidden in part, or torn by another
        cut of an interrupted projection, is left out.
        """
        centre = float(self.crs.proj4_params.get("lon_0", 0.0))
        half, widest = FULL_TURN / 2 - _INSIDE, _LEAP * np.ptp(self.crs.x_limits)
        found = []
        for rings in flat_rings(longitude, latitude, np.full(len(longitude), centre)):
            rings = repeated(rings, centre - half, centre + half)
            for ring, number in zip(rings.corners, rings.number, strict=True):
                part = cut(ring, centre - half, centre + half)
                if not len(part):
                    continue
                border = refined(part, _FINE)
                shown = np.stack(self.points(border[:, 0], border[:, 1]), axis=1)
                if (np.linalg.norm(np.diff(shown, axis=0), axis=1) < widest).all():  # and none is hidden
                    found.append((shown, int(number)))
        return found


def coastlines(span: float) -> list[Any]:
    """Return coastlines, geometries of shapely in degrees, as fine as a map of some degrees of longitude needs.

    Nothing is downloaded: without cartopy, or where Natural Earth's shapefiles are not on the machine, there are none.
    """
    if find_spec("cartopy") is None:
        return []
    wanted = [scale for scale, widest in _COASTS.items() if span <= widest]
    found = (_coastlines(scale) for scale in [*wanted, *(one for one in reversed(_COASTS) if one not in wanted)])
    return next((lines for lines in found if lines), [])


def draw_coastlines(axes: Axes, limits: tuple[float, float], projection: Projection | None, **style: Any) -> None:
    """Draw the coastlines that there are on a map with some horizontal limits."""
    low, high = limits
    geometries = coastlines(high - low if projection is None else FULL_TURN)
    if projection is not None:
        shown = projection.lines(geometries)
    else:
        lines = [np.asarray(one.coords)[:, :2] for one in geometries]
        turned = (line + np.array([turn, 0.0]) for line in lines for turn in (0.0, -FULL_TURN, FULL_TURN))
        shown = [line for line in turned if line[:, 0].max() > low and line[:, 0].min() < high]
    if shown:
        axes.add_collection(LineCollection(shown, **style), autolim=False)


def _coastlines(scale: str) -> list[Any]:
    """The coastlines of one scale; none where the shapefile is not on the machine."""
    from cartopy import config
    from cartopy.io import Downloader

    said = {"config": config, "category": "physical", "name": "coastline", "resolution": scale}
    source = Downloader.from_config(("shapefiles", "natural_earth", scale, "physical", "coastline"))
    for path in (source.pre_downloaded_path(said), source.target_path(said)):
        if path is not None and path.exists():
            return _read_lines(str(path))
    return []


@cache
def _read_lines(path: str) -> list[Any]:
    """The lines of a shapefile."""
    from cartopy.io.shapereader import Reader

    return [part for geometry in Reader(path).geometries() for part in getattr(geometry, "geoms", [geometry])]


@cache
def _by_name() -> dict[str, Any]:
    """The projections of cartopy that need no arguments."""
    import cartopy.crs as ccrs

    found = {
        name: one for name, one in vars(ccrs).items() if isinstance(one, type) and issubclass(one, ccrs.Projection)
    }
    return {name: one for name, one in found.items() if not name.startswith("_") and not _needs_arguments(one)}


def _needs_arguments(one: type) -> bool:
    """Whether a projection cannot be made from its name alone."""
    if one.__name__ == "Projection":
        return True
    kinds = signature(one).parameters.values()
    return any(
        part.default is part.empty and part.kind not in (part.VAR_KEYWORD, part.VAR_POSITIONAL) for part in kinds
    )


def _centre(one: type, sites: Sites) -> dict[str, float]:
    """Where a projection is centred: on sites that do not go around the globe, else as cartopy does."""
    from keyhole.report.geometry import on_paper

    longitude, latitude = on_paper(sites, sites.roles["longitude"], sites.roles["latitude"])
    if np.ptp(longitude) > _GLOBAL:
        return {}
    middle = {"central_longitude": longitude, "central_latitude": latitude}
    takes = signature(one).parameters
    return {name: float(round(np.median(values))) for name, values in middle.items() if name in takes}
