from __future__ import annotations

import time

import numpy as np
import pytest
import scipy.sparse
from geometry import brute_distortion, cloud, random_basis
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning

from isoproj import Certificate, NearIsometricProjection, audit, verify
from isoproj.exceptions import DuplicatePointsWarning, FormatError
from isoproj.numerics.container import read_container, write_container
from isoproj.numerics.progress import Step, watching
from isoproj.solvers import dual_ascent as paper
from isoproj.solvers.api import Status


def model(k=2, **options):
    return NearIsometricProjection(
        k, **{"solver": "dual_ascent", "max_iter": 15, **options}
    )


def test_fit_leaves_every_attribute_of_the_design():
    X = cloud(0, 14, 6)
    fitted = model(3).fit(X)
    assert fitted.components_.shape == (3, 6)
    assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(3), atol=1e-13)
    true = brute_distortion(X, fitted.components_)
    assert true <= fitted.distortion_ <= true + 1e-13
    assert 0 < fitted.lower_bound_ <= fitted.distortion_
    assert fitted.worst_pairs_.shape == (10, 2)
    i, j = fitted.worst_pairs_[0]
    assert brute_distortion(X[[i, j]], fitted.components_) == pytest.approx(true)
    assert isinstance(fitted.certificate_, Certificate)
    assert fitted.n_iter_ == 15 == fitted.history_[-1].iteration
    assert fitted.n_components_ == 3
    assert fitted.n_features_in_ == 6
    assert fitted.status_ is Status.COMPLETED
    verify(fitted.certificate_, X)


def test_components_carry_falling_variance_and_fixed_signs():
    X = cloud(1, 20, 6)
    fitted = model(4).fit(X)
    variances = fitted.transform(X).var(axis=0)
    assert (np.diff(variances) < 0).all()
    assert np.allclose(np.cov(fitted.transform(X).T), np.diag(variances) * 20 / 19)
    rows = fitted.components_
    assert (rows[np.arange(4), np.abs(rows).argmax(1)] > 0).all()


def test_fitting_twice_gives_the_same_bits():
    X = cloud(2, 14, 6)
    assert_array_equal(model().fit(X).components_, model().fit(X).components_)


@pytest.mark.parametrize("seed", range(8))
def test_float32_is_kept_and_never_stretched(seed):
    X = cloud(seed, 15, 9).astype(np.float32)
    fitted = model(4).fit(X)
    assert fitted.components_.dtype == np.float32
    assert fitted.transform(X).dtype == np.float32
    exact = fitted.components_.astype(np.float64)
    assert np.linalg.svd(exact, compute_uv=False)[0] <= 1.0
    true = brute_distortion(X, exact)
    assert true <= fitted.distortion_ <= true + 1e-13
    verify(fitted.certificate_, X)


@pytest.mark.parametrize("shape", [(8, 20), (20, 8)])
@pytest.mark.parametrize("form", [scipy.sparse.csr_array, scipy.sparse.csc_matrix])
def test_sparse_data_give_the_dense_answer(shape, form):
    X = np.random.default_rng(3).poisson(0.6, size=shape).astype(float)
    dense, sparse = model().fit(X), model().fit(form(X))
    assert sparse.distortion_ == pytest.approx(dense.distortion_, abs=1e-9)
    assert sparse.lower_bound_ == pytest.approx(dense.lower_bound_, abs=1e-9)
    assert_allclose(sparse.components_, dense.components_, atol=1e-7)
    assert_allclose(dense.transform(form(X)), dense.transform(X), atol=1e-12)
    verify(sparse.certificate_, form(X))


def test_transform_is_one_product_and_nothing_else():
    X, fresh = cloud(4, 12, 5), cloud(5, 3, 5) + 10
    fitted = model().fit(X)
    assert_array_equal(fitted.transform(fresh), fresh @ fitted.components_.T)
    assert_array_equal(fitted.fit_transform(X), X @ fitted.components_.T)


def test_going_back_gives_the_nearest_point_of_the_subspace():
    X = cloud(6, 12, 5)
    fitted = model().fit(X)
    back = fitted.inverse_transform(fitted.transform(X))
    assert back.shape == X.shape
    assert_allclose((X - back) @ fitted.components_.T, 0, atol=1e-12)
    assert_allclose(fitted.transform(back), fitted.transform(X), atol=1e-12)


def test_the_score_is_minus_the_distortion_of_the_data_given():
    X, fresh = cloud(9, 15, 5), cloud(10, 9, 5)
    fitted = model().fit(X)
    assert fitted.score(X) == pytest.approx(-fitted.distortion_, abs=1e-13)
    assert fitted.score(fresh) == pytest.approx(
        -brute_distortion(fresh, fitted.components_), abs=1e-13
    )
    assert fitted.score(X) == pytest.approx(-audit(X, fitted).distortion, abs=1e-13)
    assert model(5).fit(X).score(X) <= 0.0


def test_directions_are_scored_as_directions():
    X = cloud(11, 15, 5)
    fitted = model(pairs="directions").fit(X)
    assert fitted.score(X) == pytest.approx(-fitted.distortion_, abs=1e-13)


def test_one_dimension_of_points_on_a_line_loses_nothing():
    X = np.outer(np.arange(5.0), [3.0, 4.0])
    fitted = model(1).fit(X)
    assert fitted.distortion_ <= 1e-13
    assert_allclose(fitted.components_, [[0.6, 0.8]])


def test_keeping_every_dimension_loses_nothing():
    X = cloud(12, 9, 4)
    fitted = model(4).fit(X)
    assert fitted.distortion_ <= 1e-13
    assert fitted.lower_bound_ == 0.0
    assert fitted.status_ is Status.OPTIMAL
    assert fitted.certificate_.optimality_gap == 0.0
    verify(fitted.certificate_, X)


SPANS = {
    "random plane": random_basis(0, 5, 2).T,
    "axes": np.eye(5)[[1, 3]],
    # Two least covered axes whose difference lies in the span itself.
    "differences": np.array(
        [[1, -1, 0, 0, 0], [0, 0, 1, -1, 0], [0, 0, 0, 1, -1]], dtype=float
    ),
    "flat": np.ones((1, 5)),
}


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("n_points", [4, 12])
def test_more_dimensions_than_the_points_span_warn_and_lose_nothing(
    span, form, n_points
):
    X = form(cloud(13, n_points, len(SPANS[span])) @ SPANS[span])
    with pytest.warns(UserWarning, match=f"span only {len(SPANS[span])}"):
        fitted = model(5).fit(X)
    assert fitted.n_components_ == 5
    assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(5), atol=1e-12)
    assert fitted.distortion_ <= 1e-12
    verify(fitted.certificate_, X)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("gap", [1e-9, 1e-12, 1e-20])
def test_losing_nothing_is_claimed_only_where_it_is_true(form, gap):
    X = np.array([[1, 0, 0, 0], [1, 0, 0, gap], [2, 0, 0, 0], [4, 0, 0, 0]])
    fitted = model(2).fit(form(X))
    assert fitted.status_ is not Status.OPTIMAL or fitted.distortion_ < 1e-9


def test_copies_are_counted_in_a_warning():
    X = np.repeat(cloud(14, 6, 4), [1, 1, 1, 1, 2, 3], axis=0)
    with pytest.warns(
        DuplicatePointsWarning, match="4 pairs of identical points"
    ) as told:
        fitted = model().fit(X)
    assert told[0].filename == __file__
    assert fitted.certificate_.n_pairs == 36 - 4
    assert fitted.certificate_.n_identical == 4
    verify(fitted.certificate_, X)


@pytest.mark.parametrize("pairs", ["all", "directions", [[0, 1], [3, 2]]])
def test_a_saved_model_comes_back_bit_for_bit(pairs, tmp_path):
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(cloud(15, 10, 4), columns=list("abcd"))
    fitted = model(pairs=pairs, random_state=3).fit(X)
    fitted.save(tmp_path / "m.isoproj")
    back = NearIsometricProjection.load(tmp_path / "m.isoproj")
    assert back.components_.tobytes() == fitted.components_.tobytes()
    assert_array_equal(back.transform(X), fitted.transform(X))
    assert_array_equal(back.feature_names_in_, fitted.feature_names_in_)
    assert_array_equal(back.get_feature_names_out(), fitted.get_feature_names_out())
    for name in ("status_", "n_iter_", "n_components_", "n_features_in_"):
        assert getattr(back, name) == getattr(fitted, name)
    listed = pairs if isinstance(pairs, str) else np.sort(pairs, axis=1)
    assert_array_equal(back.pairs, listed)
    assert back.random_state == 3
    assert len(back.history_) > 3
    assert repr(back.history_) == repr(fitted.history_)  # NaN is not equal to itself
    verify(back.certificate_, X)


def test_a_model_without_history_is_a_model(tmp_path):
    fitted = model().fit(cloud(0, 8, 3))
    header, tensors = write_and_read(fitted, tmp_path / "m.isoproj")
    del tensors["history"]
    write_container(tmp_path / "old.isoproj", header, tensors)
    assert NearIsometricProjection.load(tmp_path / "old.isoproj").history_ == ()
    tensors["history"] = np.zeros((4, 6))
    write_container(tmp_path / "older.isoproj", header, tensors)
    assert len(NearIsometricProjection.load(tmp_path / "older.isoproj").history_) == 4
    tensors["history"] = np.zeros((4, 3))
    write_container(tmp_path / "bad.isoproj", header, tensors)
    with pytest.raises(FormatError, match="a history with"):
        NearIsometricProjection.load(tmp_path / "bad.isoproj")


def write_and_read(fitted, path):
    fitted.save(path)
    return read_container(path)


def test_a_bare_certificate_is_no_model(tmp_path):
    model().fit(cloud(0, 8, 3)).certificate_.save(tmp_path / "c.isoproj")
    with pytest.raises(FormatError, match="bare certificate"):
        NearIsometricProjection.load(tmp_path / "c.isoproj")


def test_a_time_limit_gives_a_valid_answer_and_a_warning(monkeypatch):
    X = cloud(16, 120, 40)
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def second_passes(step):
        now[0] += 1.0

    with (
        watching(second_passes, Step),
        pytest.warns(ConvergenceWarning, match="time_limit"),
    ):
        fitted = model(max_iter=100_000, time_limit=5.0).fit(X)
    assert fitted.status_ is Status.TIME_LIMIT
    # Steps 0 to 4 take five seconds; no sixth is begun.
    assert [step.seconds for step in fitted.history_] == [0.0, 1.0, 2.0, 3.0, 4.0]
    verify(fitted.certificate_, X)


@pytest.mark.parametrize("after", [0, 3])
def test_an_interrupt_in_a_monitor_returns_a_certified_answer(after):
    def interrupt(step):
        if step.iteration == after:
            raise KeyboardInterrupt

    X = cloud(17, 12, 5)
    with (
        watching(interrupt, Step),
        pytest.warns(ConvergenceWarning, match="interrupted"),
    ):
        fitted = model().fit(X)
    assert fitted.status_ is Status.INTERRUPTED
    assert fitted.n_iter_ == after
    verify(fitted.certificate_, X)


@pytest.mark.parametrize("after", [1, 5, 16])
def test_an_interrupt_in_the_mathematics_returns_a_certified_answer(after, monkeypatch):
    calls = []

    def interrupted(values):
        calls.append(1)
        if len(calls) == after:
            raise KeyboardInterrupt
        return project(values)

    project = paper.project_on_simplex
    monkeypatch.setattr(paper, "project_on_simplex", interrupted)
    X = cloud(18, 12, 5)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fitted = model().fit(X)
    verify(fitted.certificate_, X)


def test_an_interrupt_before_any_answer_is_an_interrupt(monkeypatch):
    def interrupted(self, weights):
        raise KeyboardInterrupt

    monkeypatch.setattr("isoproj.pairs.moments.DualProblem.dual", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model().fit(cloud(0, 8, 4))


def test_verbose_talks_on_standard_error_only(capfd):
    model(verbose=1, max_iter=4).fit(cloud(19, 9, 4))
    out, err = capfd.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 5
    assert all("loses" in line and "lower bound" in line for line in lines)


def test_it_is_silent_unless_asked(capfd):
    model().fit(cloud(19, 9, 4))
    assert capfd.readouterr() == ("", "")
