"""A choice is told from measurements, whoever wins."""

from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud

from isoproj import search_plan
from isoproj.comparison.choosing import FORMATS, choose, fitted_maps

MAPS = {"best": np.eye(6, 16), "worst": np.eye(16)[:, ::-1][:6]}


def split():
    X = cloud(0, 700, 16) * np.linspace(2.0, 0.1, 16)
    return X[:500], X[500:]


def test_every_number_of_a_choice_is_that_of_a_plan():
    X, asked = split()
    found = choose(X, 0.95, 5, queries=asked, maps=MAPS)
    assert len(found.options) == 2 * (3 * 2 + 1)
    for option in found.options:
        vectors = [some @ MAPS[option.method].T for some in (X, asked)]
        code = FORMATS[option.format][1](vectors[0])
        reduced = tuple(map(code, vectors))
        plan = search_plan(
            X, None, 5, asked, score=option.score, reduced=reduced, stored=False
        )
        ranks = plan.query_ranks[:100]
        assert (ranks <= option.candidates).mean() >= 0.95
        fewer = option.candidates - 1
        assert fewer < 5 or (ranks <= fewer).mean() < 0.95
        assert option.recall == pytest.approx((ranks <= 5).mean())
        assert option.read == 500 * option.n_bytes + 4 * 16 * option.candidates
        if option == found.best:
            assert np.array_equal(found.plan.query_ranks, plan.query_ranks[100:])
    assert found.best.read == min(o.read for o in found.options)
    assert found.best.method == "best"
    assert np.array_equal(found.components, MAPS["best"])


def test_the_frontier_holds_what_nothing_beats_and_the_cheapest():
    X, asked = split()
    found = choose(X, 0.95, 5, queries=asked, maps=MAPS)
    for one in found.frontier:
        assert not any(
            o.n_bytes <= one.n_bytes and o.candidates < one.candidates
            for o in found.options
        )
    assert found.best in found.frontier
    limit = found.frontier[-1].candidates
    assert (
        choose(X, 0.95, 5, queries=asked, maps=MAPS, at_most=limit).best.candidates
        == limit
    )
    with pytest.raises(ValueError, match="at_most must allow"):
        choose(X, 0.95, 5, queries=asked, maps=MAPS, at_most=limit - 1)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [2.0**20, 2.0**-30, 2.0**660, 2.0**-660])
def test_units_change_no_number(scale):
    X, asked = split()
    plain, scaled = (
        choose(s * X, 0.95, 5, queries=s * asked, maps=MAPS) for s in (1.0, scale)
    )
    assert plain.options == scaled.options


def test_without_queries_the_maps_never_see_the_rows_held_out():
    X = cloud(1, 300, 8)
    seen = []

    def maps(rows):
        seen.append(rows)
        yield "first", np.eye(4, 8)

    found = choose(X, 0.9, 5, maps=maps)
    assert seen[0].shape == (240, 8)
    assert found.plan.n_rows == 240
    assert found.plan.query_ranks.shape == (30, 5)


@pytest.mark.filterwarnings("ignore:Stopped early")
def test_all_methods_are_tried_for_every_number_of_dimensions():
    X = cloud(2, 60, 8)
    names = [(n, m.shape) for n, m in fitted_maps([2, 3], time_limit=0.5)(X)]
    methods = ("pca", "guaranteed_pca", "near_isometric", "first")
    assert names == [(name, (k, 8)) for k in (2, 3) for name in methods]


def test_formats_keep_as_much_as_their_bits_allow():
    rows = cloud(3, 50, 4)
    for name, (bits, code_of) in FORMATS.items():
        coded = code_of(rows)(rows)
        assert all(np.unique(column).size <= 2.0**bits for column in coded.T)
        if bits > 1:
            step = (rows.max(axis=0) - rows.min(axis=0)) / 255.0
            assert (np.abs(coded - rows) <= 0.51 * step).all(), name
