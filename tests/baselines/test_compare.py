from __future__ import annotations

import json
import math
import sys
import time

import numpy as np
import pytest
from geometry import brute_losses, cloud

from isoproj import NearIsometricProjection
from isoproj.baselines import NILEPro, PCAProjection, RandomProjection
from isoproj.comparison.compare import METHODS, Comparison, compare
from isoproj.comparison.referee import measure, run, score_map


def test_the_referee_says_what_differences_say():
    rows, linear = cloud(0, 25, 6), cloud(1, 3, 6)
    losses = brute_losses(rows, linear)[1]
    score = score_map(rows, linear)
    low, high = 1 - losses.max(), 1 - losses.min()
    assert math.isclose(score.distortion, losses.max())
    assert math.isclose(score.stretch, -losses.min())
    assert math.isclose(score.isometry, (high - low) / (high + low))
    assert math.isclose(score.mean, losses.mean(), rel_tol=1e-9)
    # Quantiles are rounded up to the next edge of a histogram of 4096 bins.
    width = np.linalg.norm(linear, 2) ** 2 / 4096
    for value, q in [(score.q50, 0.5), (score.q90, 0.9), (score.q99, 0.99)]:
        exact = np.quantile(losses, q, method="inverted_cdf")
        assert exact - 1e-12 <= value <= exact + width + 1e-12
    gram = linear @ linear.T - np.eye(3)
    assert math.isclose(score.orthonormality, np.abs(gram).max())


def test_a_projection_has_the_isometry_its_distortion_gives():
    rows = cloud(2, 20, 6)
    score = score_map(rows, PCAProjection(3).fit(rows))
    eps = score.distortion
    assert math.isclose(score.isometry, eps / (2 - eps), rel_tol=1e-9)
    assert math.isclose(score.contracted, eps, rel_tol=1e-9)


@pytest.mark.parametrize("scale", [0.01, 0.3, 1.0, 50.0])
def test_isometry_and_contraction_do_not_depend_on_scale(scale):
    rows, linear = cloud(3, 20, 6), cloud(4, 3, 6)
    plain, scaled = score_map(rows, linear), score_map(rows, linear * scale)
    assert math.isclose(plain.isometry, scaled.isometry, rel_tol=1e-9)
    assert math.isclose(plain.contracted, scaled.contracted, rel_tol=1e-9)


def test_a_contracted_map_never_beats_a_projection_on_its_rows():
    # A map scaled to norm 1 keeps at most what the projection on its row space keeps.
    rows, linear = cloud(5, 20, 6), cloud(6, 3, 6)
    basis = np.linalg.qr(linear.T)[0].T
    assert score_map(rows, linear).contracted >= score_map(rows, basis).distortion


def test_memory_and_seconds_are_those_of_fit():
    class Greedy(PCAProjection):
        def fit(self, X, y=None):
            block = np.ones(40_000_000)
            super().fit(X, y)
            del block
            return self

    score = run(Greedy(2), cloud(7, 10, 4))
    assert score.seconds > 0.0
    assert score.cpu_seconds > 0.0
    if not math.isnan(score.peak_bytes):
        assert score.peak_bytes > 200e6


def test_records_are_tidy_and_complete():
    rows = cloud(8, 15, 6)
    result = compare(rows, ["pca", "random"], ks=[2, 3], seeds=[0, 1])
    assert len(result.records) == 2 * 2 * 2
    lines = [json.loads(line) for line in result.json_lines().splitlines()]
    assert lines == list(result.records)
    for record in lines:
        assert record["shape"] == [15, 6]
        assert record["numpy"] == np.__version__
        fresh = METHODS[record["method"]]()
        fresh.set_params(n_components=record["k"], random_state=record["seed"])
        _, losses = brute_losses(rows, fresh.fit(rows).components_)
        assert math.isclose(record["distortion"], losses.max(), rel_tol=1e-9)
        assert record["seconds"] > 0.0


def test_what_an_inspection_finds_joins_the_record():
    rows = cloud(8, 15, 6)
    shape = measure(
        "pca",
        PCAProjection(),
        rows,
        2,
        0,
        inspect=lambda m: {"size": m.components_.size},
    )
    assert shape["size"] == 12
    failed = measure("pca", PCAProjection(), rows, 2, 0, inspect=lambda m: m.nonsense)
    assert "nonsense" in failed["error"]


def test_processor_time_does_not_count_sleep():
    class Lazy(PCAProjection):
        def fit(self, X, y=None):
            time.sleep(0.5)
            return super().fit(X, y)

    score = run(Lazy(2), cloud(7, 10, 4))
    assert score.seconds >= 0.5
    assert score.cpu_seconds < score.seconds


def test_a_failing_method_is_a_row_with_its_reason_and_the_others_go_on():
    class Broken(PCAProjection):
        def fit(self, X, y=None):
            msg = "out of\npaper"
            raise RuntimeError(msg)

    methods = {"broken": Broken(), "pca": PCAProjection()}
    result = compare(cloud(9, 12, 5), methods, ks=[2])
    broken, fine = result.records
    assert broken["error"] == "RuntimeError: out of paper"
    assert fine["distortion"] > 0.0
    assert "broken failed: RuntimeError: out of paper" in result.table()


def test_the_table_marks_the_best_and_shows_the_floor():
    result = compare(cloud(10, 30, 8), ["pca", "minimax", "random"], ks=[3, 5])
    lines = {line.split("  ")[0]: line for line in result.table().splitlines()}
    assert lines["minimax"].count("*") == 2
    assert "*" not in lines["random"]
    assert "lower bound" in lines
    floor = result.floor()
    for by_k in result.values("contracted").values():
        assert all(min(by_k[k]) >= floor[k] for k in floor)


def test_the_best_is_first_on_the_metric_asked_for():
    rows = cloud(11, 30, 8) * 0.7 ** np.arange(8)
    methods = {"pca": PCAProjection(), "nile": NILEPro(max_iter=200)}
    result = compare(rows, methods, ks=[5])
    lines = {
        line.split("  ")[0]: line for line in result.table("isometry").splitlines()
    }
    assert "*" in lines["nile"]
    assert "*" not in lines["pca"]


def test_seeds_and_limits_reach_the_methods():
    seen = []

    class Spy(RandomProjection):
        def fit(self, X, y=None):
            seen.append((self.n_components, self.random_state, self.time_limit))
            return super().fit(X, y)

    compare(cloud(12, 10, 5), {"spy": Spy()}, [2, 3], [4, 5], 1.5)
    assert seen == [(2, 4, 1.5), (3, 4, 1.5), (2, 5, 1.5), (3, 5, 1.5)]


def test_data_may_depend_on_the_seed():
    result = compare(lambda seed: cloud(seed, 12, 5), ["pca"], ks=[2], seeds=[0, 1])
    first, second = (record["distortion"] for record in result.records)
    assert first != second


def test_records_can_be_saved_and_read_back(tmp_path):
    result = compare(cloud(13, 10, 4), ["pca"], ks=[2])
    path = tmp_path / "records.jsonl"
    result.save(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    again = Comparison(tuple(json.loads(line) for line in lines))
    assert again.table() == result.table()


def test_unknown_names_are_refused_with_those_known():
    with pytest.raises(ValueError, match="got 'umap'"):
        compare(cloud(14, 10, 4), ["umap"], ks=[2])
    with pytest.raises(ValueError, match="at least one method, k and seed"):
        compare(cloud(14, 10, 4), ["pca"], ks=[])


def test_every_named_method_can_be_made():
    for make in METHODS.values():
        assert "n_components" in make().get_params()


def test_the_plot_draws_every_method_and_the_floor():
    pytest.importorskip("matplotlib")
    result = compare(cloud(15, 20, 6), ["pca", "minimax"], ks=[2, 3])
    axes = result.plot()
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert {"pca", "minimax", "no projection can get below"} <= set(labels)


def test_a_missing_matplotlib_names_the_extra(monkeypatch):
    result = compare(cloud(16, 10, 4), ["pca"], ks=[2])
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"isoproj\[plot\]"):
        result.plot()


def test_minimax_has_the_floor_that_all_are_held_to():
    rows = cloud(17, 20, 6)
    model = NearIsometricProjection(3).fit(rows)
    score = score_map(rows, model)
    assert score.lower_bound == model.lower_bound_
    assert score.lower_bound <= score.distortion + 1e-12


def test_guaranteed_lies_between_minimax_and_pca():
    rows = cloud(16, 25, 6) * np.geomspace(4.0, 1.0, 6)
    found = compare(rows, ["minimax", "guaranteed", "pca"], [2])
    worst = {name: by_k[2][0] for name, by_k in found.values().items()}
    mean = {name: by_k[2][0] for name, by_k in found.values("mean").items()}
    assert worst["minimax"] < worst["guaranteed"] <= 1.05 * worst["minimax"] + 1e-9
    assert worst["guaranteed"] < worst["pca"]
    assert mean["pca"] < mean["guaranteed"] < mean["minimax"]
    assert found.floor()[2] <= worst["minimax"]


@pytest.mark.parametrize(
    ("name", "value"), [("ks", 5), ("ks", ["a"]), ("ks", iter([5])), ("seeds", 0)]
)
def test_one_number_where_several_are_asked_for_is_one_line(name, value):
    options = {"ks": [2], name: value}
    with pytest.raises(ValueError, match=rf"^{name} must list whole numbers; got .*\."):
        compare(cloud(3, 10, 4), "pca", **options)
