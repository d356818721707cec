from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.datasets import load_digits

from isoproj import search_plan


@pytest.fixture
def asked(folder):
    queries = np.random.default_rng(8).normal(size=(40, 6))
    np.save(folder / "queries.npy", queries)
    return queries


def test_plan_prints_the_plan_and_what_systems_call_its_number(
    asked, run, points, model
):
    words = ("plan", "model.isoproj", "points.npy", "-n", 5, "--queries", "queries.npy")
    status, out, err = run(*words)
    assert status == 0, err
    plan = search_plan(points, model, 5, asked)
    assert str(plan) in out
    assert plan.ratio is not None
    whom = f"{plan.new_query} candidates of new queries"
    assert f"Settings for {whom}: ask for 5.\n" in out


def test_settings_are_printed_to_the_last_digit(run):
    out = run("plan", "first:16", "digits")[1]
    plan = search_plan(load_digits().data, np.eye(16, 64))
    factor = str(plan.settings()["faiss"]["k_factor"])
    assert len(factor) > 7
    assert f"k_factor = {factor}\n" in out
    whom = f"{plan.every_row:,} candidates of stored rows"
    assert f"Settings for {whom}: ask for 11 and drop the row itself.\n" in out
    # OpenSearch takes no factor above 100.
    assert "OpenSearch" not in out


def test_several_maps_stand_side_by_side_as_json_and_as_a_table(
    asked, run, checked, points
):
    words = ("plan", "first:3", "first:5", "points.npy", "--queries", "queries.npy")
    told = checked(run(*words, "--json")[1])
    assert [one["map"] for one in told["plans"]] == ["first:3", "first:5"]
    for one in told["plans"]:
        k = one["n_components"]
        plan = search_plan(points, np.eye(k, 6), queries=asked)
        assert one["every_row"] == plan.every_row
        assert one["new_query"] == plan.new_query
        assert one["row_candidates"] == plan.row_candidates.tolist()
        assert one["settings"] == plan.settings()
    out = run(*words)[1]
    assert out.count("every stored row") == out.count("a new query, 95 %") == 2


def test_a_gate_fails_with_the_rows_that_need_more(asked, run, checked, points):
    plan = search_plan(points, np.eye(3, 6), queries=asked)
    words = ("plan", "first:3", "points.npy", "--queries", "queries.npy", "--at-most")
    status, out, _ = run(*words, plan.every_row - 1)
    assert status == 1
    assert "FAILS: first:3: 1 stored rows need more" in out.replace(
        f"{(plan.row_candidates == plan.every_row).sum()} stored", "1 stored"
    )
    assert f"rows {plan.hardest_rows[0]}" in out
    status, out, _ = run(*words, max(plan.every_row, plan.new_query))
    assert status == 0
    assert "holds: at most" in out
    told = run(*words, plan.new_query - 1, "--queries-only", "--json")
    assert told[0] == 1
    assert checked(told[1])["plans"][0]["every_row"] is None


def test_a_choice_prints_the_frontier_and_keeps_matrix_and_picture(
    folder, run, checked
):
    pytest.importorskip("matplotlib")
    data = np.random.default_rng(9).normal(size=(300, 6))
    np.save(folder / "more.npy", data)
    words = ("plan", "first:2", "first:4", "more.npy", "--recall", 0.9, "-n", 5)
    status, out, err = run(*words, "--plot", "plan.svg", "-o", "chosen.npy")
    assert status == 0, err
    assert "Cheapest (*): " in out
    assert "Queries that had no part in the choice find" in out
    fetched = re.search(r"bytes a vector, (\d+) candidates for 0.9", out)[1]
    assert f"Settings for {fetched} candidates of new queries: ask for 5.\n" in out
    assert b"<svg" in (folder / "plan.svg").read_bytes()
    told = checked(run(*words, "--json")[1])
    assert told["plan"]["settings"]["pgvector"]["LIMIT"] == told["best"]["candidates"]
    assert np.load(folder / "chosen.npy").shape == (told["best"]["k"], 6)
    assert {o["format"] for o in told["options"]} == {
        "float32",
        "float16",
        "int8",
        "bits",
    }
    assert run(*words, "--at-most", 5)[0] == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("points.npy",), "needs a map before DATA"),
        (("first:2", "points.npy", "--plot", "a.svg"), "--plot has no effect"),
        (("first:2", "points.npy", "-k", "2"), "--n-components has no effect"),
        (("first:2", "points.npy", "--recall", "1", "-k", "2"), "--n-components has"),
        (("points.npy", "--recall", "1", "--queries-only"), "--queries-only has no"),
        (("points.npy", "--recall", "1", "--share", "0.9"), "--share has no effect"),
        (("first:2", "points.npy", "--queries-only"), "needs queries"),
        (("first:2", "points.npy", "--recall", "2"), "above 0, at most 1"),
        (("first:2", "points.npy", "-n", "40"), "from 1 to 39"),
        (("first:2", "points.npy", "--queries", "points.npy", "-n", "0"), "1 or more"),
        (("first:9", "points.npy"), "first:K must keep"),
        (("missing.npy", "points.npy"), "missing.npy"),
        (("points.npy", "--recall", "0.9"), "at least 38 queries"),
    ],
)
def test_what_cannot_be_planned_is_one_line(folder, run, words, reason):
    status, _, err = run("plan", *words)
    assert status == 2
    assert reason in err.splitlines()[-1]
    assert "Traceback" not in err
