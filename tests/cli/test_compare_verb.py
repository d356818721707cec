from __future__ import annotations

import json

import numpy as np
import pytest

from isoproj import audit
from isoproj.baselines import PCAProjection


def test_compare_scores_methods_as_the_referee_does(folder, run, checked, points):
    names = ("pca", "random", "minimax")
    status, out, err = run(
        "compare", "points.npy", "-k", 2, 3, "--methods", *names, "--json"
    )
    assert status == 0, err
    records = checked(out)["records"]
    assert [(r["method"], r["k"]) for r in records] == [
        (name, k) for k in (2, 3) for name in names
    ]
    expected = audit(points, PCAProjection(2).fit(points)).distortion
    assert records[0]["distortion"] == pytest.approx(expected, abs=1e-12)
    best = {r["method"]: r["distortion"] for r in records if r["k"] == 3}
    assert best["minimax"] == min(best.values())


def test_compare_prints_a_table_and_keeps_records_and_a_plot(folder, run):
    pytest.importorskip("matplotlib")
    status, out, _ = run(
        *("compare", "points.npy", "-k", 2, "--methods", "pca", "random"),
        *("-o", "records.jsonl", "--plot", "loss.svg"),
    )
    assert status == 0
    assert "pca" in out
    lines = (folder / "records.jsonl").read_text().splitlines()
    assert [json.loads(line)["method"] for line in lines] == ["pca", "random"]
    assert b"<svg" in (folder / "loss.svg").read_bytes()
    again = run("compare", "points.npy", "-k", 2, "-o", "records.jsonl")
    assert again[0] == 2
    assert "--force" in again[2]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("-k", 99), "between 1 and the 6 features"),
        (("-k", 2, "--methods", "magic"), "'magic'"),
        (("-k", "two"), "a whole number"),
    ],
)
def test_compare_refuses_nonsense_in_one_line(folder, run, arguments, part):
    status, out, err = run("compare", "points.npy", "-q", *arguments)
    assert status == 2
    assert out == ""
    assert part in err
    assert err.count("\n") == 1


def test_a_method_that_fails_is_a_row_and_the_others_go_on(folder, run):
    np.save("one.npy", np.ones((4, 3)) + np.eye(4, 3))
    status, out, _ = run("compare", "one.npy", "-k", 3, "--methods", "nu_max", "pca")
    assert status == 0
    assert "pca" in out


def test_compare_measures_recall_and_marks_the_highest(folder, run, checked, points):
    words = ("compare", "points.npy", "-k", 2, "--methods", "pca", "random")
    records = checked(run(*words, "--json")[1])["records"]
    found = {record["method"]: record["recall"] for record in records}
    expected = audit(points, PCAProjection(2).fit(points), recall=10).recall[10]
    assert found["pca"] == pytest.approx(expected)
    out = run(*words, "--metric", "recall")[1]
    best = max(found, key=found.get)
    assert f"{found[best]:.4f}*" in out
    # The heading says what the star means.
    assert out.count("*") == 2
