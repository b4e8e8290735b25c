"""Constraints: their meaning on a grid, that every selector satisfies them, and errors where they are infeasible."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import keyhole as kh
from keyhole.core.errors import DataError, InfeasibleError, SettingsError, StorageError
from keyhole.core.run import Run
from keyhole.data.constraints import Constraints
from keyhole.data.constraints.feasibility import largest_feasible, packing
from keyhole.data.constraints.feasible_set import PlacementRules
from keyhole.data.constraints.groups import labels_of
from keyhole.data.constraints.regions import inside_rings, region
from keyhole.data.constraints.site_lookup import find_sites
from keyhole.data.metric import Euclidean
from keyhole.data.preparation import prepare
from keyhole.data.sites import Sites
from keyhole.placement import SELECTORS
from keyhole.workflow.selection import choose_sites
from quick_selectors import selector

SHAPE = (3, 4)
COSTS = np.array([[1.0, 2.0, 3.0, 1.0], [2.0, 2.0, 1.0, 4.0], [1.0, 3.0, 1.0, 2.0]])


def toy(seed: int = 0, n: int = 80):
    """Twelve sites, of five modes."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 5)) @ rng.normal(size=(5, 12)) * rng.uniform(0.5, 2, 12)
    return kh.read((values + 0.1 * rng.normal(size=(n, 12))).reshape(n, *SHAPE))


KINDS = {
    "allowed": (3, {"allowed": {"row": (0, 1)}}),
    "forbidden": (3, {"forbidden": {"row": (1, 1)}}),
    "existing": (3, {"existing": [0, 7]}),
    "min_distance": (4, {"min_distance": 1.5}),
    "tight": (6, {"min_distance": 1.2}),
    "cost": (None, {"costs": COSTS, "cost_limit": 5.0}),
    "groups": (2, {"groups": "row"}),
    "all": (2, {"forbidden": {"column": (3, 3)}, "existing": [11], "min_distance": 1.2, "groups": [[0, 0, 1, 1]] * 3}),
    "priced": (None, {"costs": COSTS, "cost_limit": 4.0, "min_distance": 1.5, "existing": [5]}),
}


def legal(sites, k, kind) -> bool:
    """Whether a set of new sites keeps one of KINDS, told without the code under test."""
    asked = KINDS[kind][1]
    rows, columns = np.divmod(np.asarray(sites), 4)
    fixed = asked.get("existing", [])
    groups = asked.get("groups")
    if k is not None and len(sites) != k and groups is None:
        return False
    if len(set(sites)) < len(sites) or set(sites) & set(fixed):
        return False
    if "cost_limit" in asked and COSTS.ravel()[list(sites)].sum() > asked["cost_limit"]:
        return False
    if kind == "allowed" and (rows > 1).any():
        return False
    if kind == "forbidden" and (rows == 1).any():
        return False
    if kind == "all" and (columns == 3).any():
        return False
    if kind == "groups":
        return sorted(sites) in [sorted([c, c + 4, c + 8, d, d + 4, d + 8]) for c, d in combinations(range(4), 2)]
    apart = asked.get("min_distance", 0.0)
    label = (lambda site: (site % 4) // 2) if kind == "all" else (lambda site: site)
    places = [divmod(site, 4) for site in (*sites, *fixed)]
    for (one, a), (two, b) in combinations(zip((*sites, *fixed), places, strict=True), 2):
        together = kind == "all" and label(one) == label(two) and not {one, two} & set(fixed)
        if not together and np.hypot(a[0] - b[0], a[1] - b[1]) < apart - 1e-9:
            return False
    return True


def choose(name, kind, signals=None):
    k, asked = KINDS[kind]
    parts = prepare((toy() if signals is None else signals).with_constraints(asked), None, seed=0)
    chosen = selector(name)
    if chosen.incompatibility(parts.samples):
        pytest.skip("these signals are refused, with a reason")
    return parts, choose_sites(chosen, parts, k, Run()).sites.tolist()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "all"])
@pytest.mark.parametrize("name", SELECTORS)
def test_every_selector_keeps_every_constraint(name, kind):
    """Alone and together; what is there already comes first."""
    _, sites = choose(name, kind)
    fixed = KINDS[kind][1].get("existing", [])
    assert sites[: len(fixed)] == fixed
    assert sites[len(fixed) :]
    assert legal(sites[len(fixed) :], KINDS[kind][0], kind)


def test_exchanges_spend_a_budget_where_nothing_is_left_to_explain():
    """The site that is there tells all; greedy's sites, which are those that vary most, stay."""
    values = np.zeros((60, 12))
    values[:, 3] = np.random.default_rng(0).normal(size=60)
    asked = {"existing": [3], "costs": np.ones(12), "cost_limit": 3}
    plans = [
        kh.select(values, method=name, reconstructor="ridge", constraints=asked) for name in ("greedy", "exchange")
    ]
    assert plans[1].indices.tolist() == plans[0].indices.tolist()


def left(parts, sites) -> float:
    """What least squares leaves of all cells, on everything but test."""
    x = parts.development.targets.reshape(len(parts.development), -1).astype(np.float64)
    chosen = np.concatenate([np.ones((len(x), 1)), x[:, sites]], axis=1)
    rest = x - chosen @ np.linalg.lstsq(chosen, x, rcond=None)[0]
    return float(np.square(rest).sum() / np.square(x - x.mean(axis=0)).sum())


def every_choice(kind):
    """All legal sets of new sites, whole groups where there are groups."""
    k, asked = KINDS[kind]
    if kind == "groups":
        return [[c, c + 4, c + 8, d, d + 4, d + 8] for c, d in combinations(range(4), 2)]
    others = [site for site in range(12) if site not in asked.get("existing", [])]
    sizes = range(1, 7) if k is None else [k]
    return [list(one) for size in sizes for one in combinations(others, size) if legal(one, k, kind)]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("all",)])
@pytest.mark.parametrize(("name", "most"), [("greedy", 1.4), ("exchange", 1.05), ("auto", 1.25)])
def test_how_near_the_best_of_all_legal_choices(name, most, kind):
    """Brute force over all subsets of twelve sites; the mean over a few toys."""
    ratios = []
    for seed in range(3):
        parts, sites = choose(name, kind, toy(seed))
        fixed = KINDS[kind][1].get("existing", [])
        best = min(left(parts, [*fixed, *one]) for one in every_choice(kind))
        ratios.append(left(parts, sites) / best)
    assert min(ratios) >= 1 - 1e-6
    assert np.mean(ratios) < most


def test_sites_that_are_there_already_are_built_around():
    """Greedy beside fixed sites is greedy that began with them."""
    signals = toy()
    parts = prepare(signals, None, seed=0)
    first = choose_sites(selector("greedy"), parts, 5, Run()).sites
    beside = prepare(signals.with_constraints({"existing": first[:2].tolist()}), None, seed=0)
    assert choose_sites(selector("greedy"), beside, 3, Run()).sites.tolist() == first.tolist()


def test_distance_is_great_circle_in_kilometres():
    """No two buoys nearer than asked, over the date line too."""
    plan = kh.select(
        kh.datasets.sst(), 12, method="variance", reconstructor="ridge", constraints={"min_distance": 3000}
    )
    at = np.deg2rad(plan.sites[["lat", "lon"]].to_numpy(float))
    cosine = np.sin(at[:, None, 0]) * np.sin(at[None, :, 0])
    cosine += np.cos(at[:, None, 0]) * np.cos(at[None, :, 0]) * np.cos(at[:, None, 1] - at[None, :, 1])
    apart = 6371 * np.arccos(np.clip(cosine, -1, 1)) + 1e9 * np.eye(12)
    assert apart.min() >= 3000 - 1e-6


def test_first_sites_that_leave_no_feasible_set_give_way():
    """Four corners are the only four sites so far apart; the most variable is none of them."""
    values = np.random.default_rng(0).normal(size=(40, 3, 3)) * np.array([[1, 1, 1], [1, 9, 1], [1, 1, 1]])
    plan = kh.select(values, 4, method="variance", reconstructor="ridge", constraints={"min_distance": 2.0})
    assert sorted(plan.indices.tolist()) == [0, 2, 6, 8]


# What is said where constraints cannot be kept.


def refused(k, **asked):
    with pytest.raises(InfeasibleError) as caught:
        kh.select(toy(), k, method="qr", reconstructor="ridge", constraints=asked)
    return str(caught.value)


def test_a_smallest_clashing_set_is_named_with_how_many_would_fit():
    """What has no part in the clash is not named."""
    said = refused(4, min_distance=2.5, allowed={"row": (0, 1)}, forbidden={"column": (3, 3)}, existing=[11])
    assert "min_distance=2.5" in said
    assert "at most" in said
    alone = refused(5, min_distance=0.5, allowed={"row": (0, 0)})
    assert "allowed" in alone
    assert "min_distance" not in alone
    assert "at most 4 sites fit" in alone


def test_a_limit_that_pays_for_nothing_is_named():
    """A budget below the cheapest site."""
    assert "cost_limit=0.5" in refused(None, costs=COSTS, cost_limit=0.5)


def test_k_or_a_limit_of_cost_is_needed():
    """One of them says how many."""
    assert "k is missing" in refused(None)
    assert "k or a cost limit" in refused(None, min_distance=1.0)


def test_k_sites_within_a_limit_of_cost():
    """Both together: exactly K sites that cost no more, by every way to select."""
    for method in ("random", "variance", "qr", "greedy", "exchange"):
        plan = kh.select(
            np.random.default_rng(0).normal(size=(60, 3, 4)) * np.sqrt(COSTS), 4, method=method, reconstructor="ridge",
            constraints={"costs": COSTS, "cost_limit": 6},
        )  # fmt: skip
        assert plan.k == 4
        assert COSTS.ravel()[plan.indices].sum() <= 6
    assert "cost_limit=3" in refused(4, costs=COSTS, cost_limit=3)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"distances": 3}, "'distances' is not known"),
        ({"min_distance": 0}, "min_distance=0"),
        ({"min_distance": float("nan")}, "min_distance=nan"),
        ({"costs": COSTS}, "go together"),
        ({"costs": COSTS[:2], "cost_limit": 3}, "shape"),
        ({"costs": -COSTS, "cost_limit": 3}, "above zero"),
        ({"allowed": {"depth": (0, 1)}}, "no coordinate 'depth'"),
        ({"allowed": {"row": (2, 1)}}, "low end"),
        ({"allowed": {"row": 3}}, "low and a high"),
        ({"allowed": np.ones((2, 2), bool)}, "shape"),
        ({"allowed": np.full(SHAPE, 3)}, "true and false"),
        ({"allowed": []}, "empty"),
        ({"existing": [3, 3]}, "the same"),
        ({"existing": [12]}, "0 to 11"),
        ({"existing": ["row=0 colum=1"]}, "there is row=0 column=1"),
        ({"existing": [{"row": 0}]}, "row, column are needed"),
        ({"existing": [{"row": 0, "column": 9}]}, "no valid site"),
        ({"groups": "depth"}, "groups='depth': the name of an axis"),
        ({"groups": np.zeros((2, 2))}, r"array of shape \(2, 2\) for data of shape \(3, 4\)"),
    ],
)
def test_constraints_that_make_no_sense_are_refused(asked, said):
    """Each error names the argument and what it takes."""
    with pytest.raises(SettingsError, match=said):
        kh.select(toy(), 2, method="qr", constraints=asked)


# Regions.


def test_boxes_go_east_over_the_edge_of_the_map():
    """350 is -10."""
    sites = kh.datasets.sst().sites
    cells = region({"lon": (-20, 20), "lat": (None, 0)}, sites)
    lat, lon = sites.coordinate("lat"), sites.coordinate("lon")
    np.testing.assert_array_equal(cells, ((lon <= 20) | (lon >= 340)) & (lat <= 0))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), min_size=3, max_size=9), st.integers(0, 99))
def test_polygons_are_as_matplotlib_sees_them(corners, seed):
    """The even-odd rule by another's code, at points that lie on no edge; a simple star around the mean."""
    from matplotlib.path import Path

    ring = np.unique(np.array(corners, float), axis=0)
    middle = ring.mean(axis=0)
    ring = ring[np.argsort(np.arctan2(*(ring - middle).T))]
    points = np.random.default_rng(seed).uniform(-22, 22, (200, 2))
    np.testing.assert_array_equal(
        inside_rings(*points.T, [ring]), Path(np.concatenate([ring, ring[:1]])).contains_points(points)
    )


def square(low, high):
    return [[low, low], [high, low], [high, high], [low, high], [low, low]]


def test_geojson_holes_collections_and_files(tmp_path):
    """A square with a hole, in every wrapping; edges are inside."""
    sites = Sites.plain((9, 9))
    polygon = {"type": "Polygon", "coordinates": [square(1, 7), square(3, 5)]}
    cells = region(polygon, sites)
    assert sites.to_grid(cells)[[1, 4, 0], [1, 4, 4]].tolist() == [True, False, False]
    feature = {"type": "Feature", "properties": {}, "geometry": polygon}
    many = {"type": "MultiPolygon", "coordinates": [polygon["coordinates"]]}
    for other in (
        feature, many, {"type": "FeatureCollection", "features": [feature]},
        {"type": "GeometryCollection", "geometries": [polygon]},
    ):  # fmt: skip
        np.testing.assert_array_equal(region(other, sites), cells)
    (tmp_path / "a.geojson").write_text(json.dumps(feature))
    np.testing.assert_array_equal(region(tmp_path / "a.geojson", sites), cells)
    np.testing.assert_array_equal(region([polygon, {"row": (0, 0)}], sites), cells | (np.arange(81) < 9))


def globe(convention: str) -> Sites:
    """Ten degrees by ten, with longitudes written one way or the other."""
    lon = np.arange(0.0, 360.0, 10.0) if convention == "0..360" else np.arange(-180.0, 180.0, 10.0)
    axes = {"lat": np.arange(-80.0, 90.0, 10.0), "lon": lon}
    return Sites.build((17, 36), tuple(axes), axes)


def longitudes(cells, sites) -> list[float]:
    """Longitudes of a region, from 0 to 360."""
    return sorted(set((sites.coordinate("lon")[cells] % 360).tolist()))


@pytest.mark.parametrize("convention", ["0..360", "-180..180"])
@pytest.mark.parametrize(
    ("ends", "found"),
    [
        ((160, -160), [160, 170, 180, 190, 200]),
        ((160, 200), [160, 170, 180, 190, 200]),
        ((-200, -160), [160, 170, 180, 190, 200]),
        ((350, 10), [0, 10, 350]),
        ((-10, 10), [0, 10, 350]),
        ((20, 20), [20]),
        ((0, 360), list(range(0, 360, 10))),
        ((-180, 180), list(range(0, 360, 10))),
        ((10, -340), [10, 20]),
    ],
)
def test_longitudes_wrap_in_either_convention(ends, found, convention):
    """From the first to the second, going east."""
    sites = globe(convention)
    assert longitudes(region({"lon": ends}, sites), sites) == found


@pytest.mark.parametrize(("convention", "last"), [("0..360", 350), ("-180..180", 170)])
def test_an_open_end_of_longitude_is_the_edge_of_the_map(convention, last):
    """However the other end is written."""
    sites = globe(convention)
    for low in (150, -210):
        assert longitudes(region({"lon": (low, None)}, sites), sites) == list(range(150, last + 10, 10))
    for high in (-190, 170):
        first = 0 if last == 350 else 180
        assert longitudes(region({"lon": (None, high)}, sites), sites) == [
            one for one in range(0, 360, 10) if (one - first) % 360 <= (170 - first) % 360
        ]


@pytest.mark.parametrize("convention", ["0..360", "-180..180"])
def test_a_ring_over_the_date_line_goes_the_short_way(convention):
    """Written with a jump, or on beyond 180; a hole in it too."""
    sites = globe(convention)
    box = {"lon": (160, -160), "lat": (-20, 20)}
    for east in (-160, 200):
        ring = [[160, -20], [east, -20], [east, 20], [160, 20]]
        for one in (ring, ring[::-1], ring[2:] + ring[:2]):
            cells = region({"type": "Polygon", "coordinates": [one]}, sites)
            np.testing.assert_array_equal(cells, region(box, sites))
        hole = [[185, -5], [195, -5], [195, 5], [185, 5]]
        for turned in (hole, [[x - 360, y] for x, y in hole]):
            cells = region({"type": "Polygon", "coordinates": [ring, turned]}, sites)
            expected = region(box, sites) & ~region({"lon": (190, 190), "lat": (0, 0)}, sites)
            np.testing.assert_array_equal(cells, expected)


@pytest.mark.parametrize("convention", ["0..360", "-180..180"])
def test_rings_around_the_globe(convention):
    """A band from edge to edge is one; an edge whose way round is not clear is refused."""
    sites = globe(convention)
    band = [[-180, -20], [180, -20], [180, 20], [-180, 20]]
    np.testing.assert_array_equal(
        region({"type": "Polygon", "coordinates": [band]}, sites), region({"lat": (-20, 20)}, sites)
    )
    cap = [[-180, 60], [-60, 60], [60, 60], [180, 60], [180, 90], [-180, 90]]
    np.testing.assert_array_equal(
        region({"type": "Polygon", "coordinates": [cap]}, sites), region({"lat": (60, 90)}, sites)
    )
    for unclear in ([[0, 60], [90, 60], [180, 60], [-90, 60]], [[-180, 0], [10, 0], [180, 0], [180, 20], [-180, 20]]):
        with pytest.raises(DataError, match=r"180 degrees.*goes around the globe"):
            region({"type": "Polygon", "coordinates": [unclear]}, sites)
    plain = Sites.plain((3, 400))
    wide = [[0, 0], [300, 0], [300, 2], [0, 2]]
    assert plain.to_grid(region({"type": "Polygon", "coordinates": [wide]}, plain))[1, 150]


def test_polygons_over_the_date_line():
    """Longitudes of a polygon may be written either way."""
    sites = kh.datasets.sst().sites
    ring = [[-30, -20], [10, -20], [10, 20], [-30, 20]]
    cells = region({"type": "Polygon", "coordinates": [ring]}, sites)
    np.testing.assert_array_equal(cells, region({"lon": (-30, 10), "lat": (-20, 20)}, sites))


@pytest.mark.parametrize(
    ("text", "error"),
    [("{", DataError), ('{"type": "Point"}', DataError), ('{"type": "Polygon", "coordinates": [[[0]]]}', DataError),
     ('{"type": "Polygon", "coordinates": [["a", "b", "c"]]}', DataError), ("[]", DataError)],
)  # fmt: skip
def test_files_that_hold_no_polygons(tmp_path, text, error):
    """An error that names the file."""
    (tmp_path / "a.geojson").write_text(text)
    with pytest.raises(error, match=r"a\.geojson"):
        region(tmp_path / "a.geojson", Sites.plain((3, 3)))
    with pytest.raises(StorageError, match=r"b\.geojson"):
        region(tmp_path / "b.geojson", Sites.plain((3, 3)))
    with pytest.raises(SettingsError, match=r"\.shp"):
        region(tmp_path / "b.shp", Sites.plain((3, 3)))


# Rules and how many fit.


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.floats(0.05, 0.9))
def test_the_most_that_fit_is_what_brute_force_finds(seed, apart):
    """Ten places in the plane."""
    points = np.random.default_rng(seed).uniform(size=(10, 2))
    rules = PlacementRules(10, min_distance=apart, metric=Euclidean(points))
    distance = np.linalg.norm(points[:, None] - points, axis=2) + 9 * np.eye(10)
    best = max(
        size
        for size in range(1, 11)
        if any(distance[np.ix_(one, one)].min() >= apart for one in combinations(range(10), size))
    )
    found, sure = largest_feasible(rules, np.ones(10, bool), 10)
    assert sure
    assert len(found) == best
    assert rules.violation(found) is None
    assert len(packing(rules, np.ones(10, bool), 10)) <= best


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.lists(st.integers(0, 11), max_size=20))
def test_room_is_what_it_would_be_if_made_anew(seed, moves):
    """Taking and leaving in any order."""
    rng = np.random.default_rng(seed)
    rules = PlacementRules(
        12, min_distance=0.3, metric=Euclidean(rng.uniform(size=(12, 2))), costs=rng.uniform(0.1, 1, 12), limit=2.0
    )
    feasible = rules.feasible_set(np.ones(12, bool))
    for site in moves:
        if site in feasible.selected:
            feasible.remove(site)
        elif feasible.is_feasible(site):
            feasible.add(site)
    anew = rules.feasible_set(np.ones(12, bool), feasible.selected)
    np.testing.assert_array_equal(feasible.mask, anew.mask)
    assert [feasible.is_feasible(site) for site in range(12)] == feasible.mask.tolist()
    assert feasible.cost <= 2.0 + 1e-9


def test_labels_of_groups():
    """Axes by name, labels of any kind, and sites that stay alone."""
    sites = Sites.plain((2, 2))
    assert labels_of("column", sites).tolist() == [0, 0, 1, 1]
    assert labels_of(["row", "column"], sites).tolist() == [0, 0, 0, 0]
    assert labels_of([["a", ""], ["a", "b"]], sites).tolist() == [0, -1, 0, 1]
    assert labels_of(np.array([[np.nan, 1], [1, -1]]), sites).tolist() == [-1, 0, 0, -1]
    assert labels_of(None, sites) is None


def test_sites_by_index_name_coordinates_and_frame():
    """However they are named."""
    sites = kh.datasets.sst().sites
    index = int(sites.index[100])
    place = {dim: float(value) for dim, value in sites.position(100).items()}
    turned = place | {"lon": place["lon"] - 360}
    for one in (index, sites.name(100), place, turned):
        assert find_sites([one], sites).tolist() == [100]
    plan = kh.select(kh.datasets.sst(), 3, method="qr", reconstructor="ridge")
    assert sites.index[find_sites(plan.sites, sites)].tolist() == plan.indices.tolist()
    assert sites.index[find_sites(plan.sites[["lat", "lon"]], sites)].tolist() == plan.indices.tolist()
    with pytest.raises(SettingsError, match="lat, lon are needed"):
        find_sites(plan.sites[["lat"]], sites)


def test_many_members_of_a_group_are_turned_to_a_few():
    """A swath of many cells among single ones costs no more than a few times the data, and is still told apart."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 200)) + 0.01 * rng.normal(size=(60, 200))
    labels = np.full(200, -1)
    labels[:50] = 0
    plan = kh.select(values, 1, method="greedy", reconstructor="ridge", constraints={"groups": labels})
    assert sorted(plan.indices.tolist()) == list(range(50))
    assert plan.metrics["test"]["fvu"] < 0.05


def test_channels_may_be_sites_of_their_own():
    """Each with its own sensor, by the variable's name; none is drowned by another's units."""
    import xarray as xr

    rng = np.random.default_rng(0)
    first, second = (rng.normal(size=(90, 2)) @ rng.normal(size=(2, 12)) for _ in range(2))
    data = xr.Dataset({n: (("time", "x"), v) for n, v in (("t", first), ("p", 1e5 * second))})
    signals = kh.read(data).channels_apart()
    assert signals.sites.shape == (2, 12)
    assert signals.channels == 1
    plan = kh.select(signals, 4, method="greedy", reconstructor="ridge")
    assert plan.sites["variable"].value_counts().to_dict() == {"t": 2, "p": 2}
    assert plan.reconstruct(signals.readings(plan.indices)[..., 0]).sel(variable="t").shape == (90, 12)


def test_constraints_by_name_are_constraints():
    """A mapping, or the class."""
    asked = Constraints(min_distance=1.5)
    quick = {"method": "qr", "reconstructor": "ridge"}
    plans = [kh.select(toy(), 3, **quick, constraints=one) for one in (asked, {"min_distance": 1.5})]
    assert plans[0].indices.tolist() == plans[1].indices.tolist()
    assert toy().with_constraints(asked).with_constraints(None).constraints is None


def test_latitude_and_longitude_go_by_any_of_their_names():
    """Lat finds the axis latitude, in boxes and in places; another axis only goes by its own name."""
    axes = {"latitude": np.array([-10.0, 0.0, 10.0]), "longitude": np.array([0.0, 90.0, 180.0, 270.0])}
    sites = Sites.build((3, 4), tuple(axes), axes)
    assert region({"lat": (5, 90), "lon": (-100, 10)}, sites, "allowed").nonzero()[0].tolist() == [8, 11]
    assert find_sites({"lat": 1.0, "lon": -89.0}, sites).tolist() == [7]
    with pytest.raises(SettingsError, match="no coordinate 'row'"):
        region({"row": (0, 1)}, sites, "allowed")
    with pytest.raises(SettingsError, match="latitude, longitude are needed"):
        find_sites({"lat": 1.0, "latitude": 2.0}, sites)
