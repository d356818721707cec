"""Parts of the search for a hull, against the plain way to the same result."""

import numpy as np
import pytest
from scipy.spatial import ConvexHull

from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers.api import Clock, Weights
from isoproj.solvers.growing_hull import GrowingHull, Scan, Tree
from isoproj.solvers.hull import _Hunt, _Pool
from isoproj.solvers.settings import Settings


def sphere(count, dimension, seed=0):
    rows = np.random.default_rng(seed).standard_normal((count, dimension))
    return rows / np.linalg.norm(rows, axis=1)[:, None]


@pytest.mark.parametrize("dimension", [3, 5])
def test_a_hull_that_grew_is_the_hull_of_all_its_points(dimension):
    points = sphere(40, dimension)
    grown = GrowingHull(np.arange(15), points[:15])
    grown.join(np.arange(15, 30), points[15:30])
    grown.join(np.arange(30, 40), points[30:])
    facets = grown.facets()
    whole = ConvexHull(np.vstack([points, -points]))
    assert facets.offsets.min() == pytest.approx(-whole.equations[:, -1].max())
    # Every corner lies on its facet.
    corners = np.vstack([points[grown.rows], -points[grown.rows]])[facets.corners]
    heights = np.einsum("fcd,fd->fc", corners, facets.normals)
    np.testing.assert_allclose(heights, facets.offsets[:, None] + 0 * heights)


def test_a_flat_hull_has_no_facets():
    flat = np.column_stack([sphere(10, 2), np.zeros(10)])
    assert GrowingHull(np.arange(10), flat).facets() is None
    assert GrowingHull(np.arange(2), np.eye(2, 3)).facets() is None


@pytest.mark.parametrize("count", [500, 9000])
def test_scans_and_trees_find_the_farthest_point_along_every_normal(count):
    points, normals = sphere(count, 3), sphere(60, 3, seed=1)
    reached = np.abs(normals @ points.T)
    for search in (Scan(), Tree(points)):
        tops, heights = search(points, normals)
        np.testing.assert_allclose(heights, reached[np.arange(60), tops], rtol=1e-12)
        np.testing.assert_allclose(heights, reached.max(axis=1), rtol=1e-6)


def test_no_pair_that_reaches_far_enough_is_left_out():
    rows = np.random.default_rng(0).standard_normal((60, 8))
    search = PairSearch(*prepare_pairs(rows, rotate=True))
    rng, settings = np.random.default_rng(0), Settings()
    hunt = _Hunt(_Pool(search, rng), settings, Clock(None), rng)
    axes = np.eye(8, 3)
    for angle in (0.0, 0.02, 0.05, 1.2):
        turned = np.linalg.qr(axes + angle * rng.standard_normal(axes.shape))[0]
        lengths = np.linalg.norm(hunt.pool.directions @ turned, axis=1)
        for floor in (0.9, 0.97):
            far = np.flatnonzero(lengths >= floor)
            assert np.isin(far, hunt.projected(turned, floor, None)[0]).all()


def test_no_inradius_is_larger_than_what_a_glance_says():
    rows = np.random.default_rng(0).standard_normal((60, 8))
    search = PairSearch(*prepare_pairs(rows, rotate=True))
    rng, settings = np.random.default_rng(0), Settings()
    hunt = _Hunt(_Pool(search, rng), settings, Clock(None), rng)
    for d in (2, 3, 5):
        axes = np.linalg.qr(rng.standard_normal((8, d)))[0]
        height = hunt.lowest_height(hunt.on_axes(axes), rng)
        assert 0.0 < hunt.hull(axes, is_final=True).inradius <= height + 1e-12


@pytest.mark.parametrize(("n_points", "n_dims"), [(60, 6), (460, 3)])
def test_a_search_ends_at_a_bound_that_is_enough(n_points, n_dims):
    rows = np.random.default_rng(1).standard_normal((n_points, n_dims))
    search = PairSearch(*prepare_pairs(rows, rotate=True))
    pairs = search.decode(search.sample(50, np.random.default_rng(0)))
    dual = Weights(pairs, np.full(len(pairs), 1.0 / len(pairs)))
    settings = Settings()

    def ended(enough):
        rng = np.random.default_rng(0)
        pool = _Pool(search, rng)
        hunt = _Hunt(pool, settings, Clock(None), rng, enough)
        return hunt.run(np.eye(n_dims, 2), dual, 0.1).bound, hunt.done

    best, all_work = ended(np.inf)
    bound, work = ended(0.8 * best)
    assert 0.8 * best <= bound <= best + 1e-12
    assert work < all_work


@pytest.mark.parametrize("count", [5, 400])
def test_a_pool_projects_few_pairs_as_it_projects_all(count):
    rows = np.random.default_rng(1).standard_normal((30, 4))
    search = PairSearch(*prepare_pairs(rows, rotate=True))
    pool = _Pool(search, np.random.default_rng(0))
    some = np.random.default_rng(2).integers(pool.codes.size, size=count)
    assert pool.is_few(count) == (count == 5)
    axes = np.linalg.qr(np.random.default_rng(3).standard_normal((4, 2)))[0]
    images = pool.directions @ axes
    np.testing.assert_allclose(pool.images(axes), images, atol=1e-12)
    np.testing.assert_allclose(pool.images(axes, some), images[some], atol=1e-12)


def test_a_small_hull_of_the_whole_space_goes_on_to_the_optimum():
    rows = np.random.default_rng(1).standard_normal((60, 3))
    search = PairSearch(*prepare_pairs(rows, rotate=True))
    rng, settings = np.random.default_rng(0), Settings()
    pool = _Pool(search, rng)
    whole = ConvexHull(np.vstack([pool.directions, -pool.directions]))
    hunt = _Hunt(pool, settings, Clock(None), rng, enough=0.1)
    found = hunt.completed(np.eye(3))
    np.testing.assert_allclose(found.inradius, -whole.equations[:, -1].max())
