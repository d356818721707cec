from __future__ import annotations

import re

import numpy as np
import pytest

from isoproj import distortion_curve


def test_curve_tells_what_python_finds(folder, run, checked, points):
    status, out, err = run(
        *("curve", "points.npy", "--max-k", 4, "--targets", 0.5, "--json"),
    )
    assert status == 0, err
    told = checked(out)
    expected = distortion_curve(points, range(1, 5), random_state=0)
    assert [entry["k"] for entry in told["curve"]] == [1, 2, 3, 4]
    upper = [entry["distortion"] for entry in told["curve"]]
    np.testing.assert_allclose(upper, expected.distortion, rtol=1e-6)
    sufficient, impossible = expected.needed(0.5)
    assert told["targets"] == [
        {"target": 0.5, "sufficient": sufficient, "impossible": impossible}
    ]


def test_curve_prints_a_table_and_draws(folder, run):
    pytest.importorskip("matplotlib")
    status, out, err = run(
        *("curve", "points.npy", "-k", 1, 3, "--targets", 0.3, "--plot", "c.svg")
    )
    assert status == 0
    assert "lower bound" in out
    assert "loss of at most 0.3:" in out
    assert b"<svg" in (folder / "c.svg").read_bytes()
    assert "wrote c.svg" in err
    again = run("curve", "points.npy", "-k", 1, "--plot", "c.svg")
    assert again[0] == 2
    assert "--force" in again[2]


def test_frontier_is_told_in_its_schema_and_drawn(folder, run, checked):
    pytest.importorskip("matplotlib")
    status, out, _ = run(
        *("frontier", "points.npy", "-k", 2, "--n-points", 3, "--json"),
        *("--plot", "f.png"),
    )
    assert status == 0
    rows = checked(out)["frontier"]
    assert len(rows) == 3
    assert all(row["kept"] <= row["kept_bound"] + 1e-12 for row in rows)
    assert all(row["distortion"] <= row["max_distortion"] + 1e-12 for row in rows)
    assert (folder / "f.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("curve", "points.npy", "-k", 99), "between 1 and the 6 features"),
        (("curve", "points.npy", "-k", 0), "1 or more"),
        (("frontier", "points.npy", "-k", 6), "k must be"),
        (("frontier", "points.npy", "-k", 2, "--n-points", 1), "n_points must be"),
    ],
)
def test_nonsense_is_refused_in_one_line(folder, run, arguments, part):
    status, out, err = run(*arguments, "-q")
    assert status == 2
    assert out == ""
    assert part in err
    assert err.count("\n") == 1


def test_a_curve_counts_the_pairs_that_are_named(folder, run, checked, points):
    status, out, err = run(
        *("curve", "points.npy", "-k", 2, "--pairs", "neighbors", "--neighbors", 3),
        "--json",
    )
    assert status == 0, err
    (found,) = checked(out)["curve"]
    expected = distortion_curve(
        points, [2], pairs="neighbors", n_neighbors=3, random_state=0
    )
    assert found["distortion"] == expected.distortion[0]


@pytest.mark.parametrize("verb", ["curve", "frontier"])
def test_what_figures_are_over_is_told(folder, run, checked, verb):
    np.save("more.npy", np.random.default_rng(0).normal(size=(900, 4)))
    options = ("-k", 2, "--json", *("--n-points", 2) * (verb == "frontier"))
    told = checked(run(verb, "points.npy", *options)[1])
    assert (told["pair_kind"], told["sampled_share"]) == ("all", None)
    told = checked(run(verb, "more.npy", "--pairs", "sample", *options)[1])
    assert told["pair_kind"] == "sample"
    shown = run(verb, "more.npy", "--pairs", "sample", *options[:2], *options[3:])[1]
    share = re.search(r"95 % confidence, at most ([\d.]+)% lose more", shown)[1]
    assert told["sampled_share"] == pytest.approx(float(share) / 100, abs=1.1e-6)
