from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse
from geometry import brute_distortion, brute_losses, cloud, random_basis
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

from isoproj import Certificate, GuaranteedPCA, NearIsometricProjection, verify
from isoproj.exceptions import (
    ClaimError,
    DuplicatePointsWarning,
    FormatError,
    InfeasibleError,
)
from isoproj.numerics.progress import Step, watching
from isoproj.solvers.api import Status

OBJECTIVES = ["variance", "distortion"]


def stretched(seed=0, n_points=10, n_features=4):
    return cloud(seed, n_points, n_features) * np.geomspace(4.0, 1.0, n_features)


def model(k=2, **options):
    return GuaranteedPCA(k, **{"random_state": 0, "tol": 1e-3, **options})


def assert_sound(fitted, X, pairs=None):
    """Check everything promised against a slow, certain computation."""
    dense = X.toarray() if scipy.sparse.issparse(X) else X
    exact = fitted.components_.astype(np.float64)
    assert brute_distortion(dense, exact, pairs) <= fitted.distortion_
    assert fitted.distortion_ <= fitted.max_distortion_ <= 1.0
    assert fitted.lower_bound_ <= fitted.distortion_
    assert 0.0 < fitted.kept_ <= fitted.kept_bound_ <= 1.0
    verify(fitted.certificate_, X)


def share(X, components, objective):
    """Return the share kept, from its definition."""
    if objective == "distortion":
        return 1.0 - brute_losses(X, components)[1].mean()
    centred = X - X.mean(axis=0)
    return ((centred @ components.T) ** 2).sum() / (centred**2).sum()


def test_little_memory_finds_about_the_same():
    rows = stretched(4, 160, 9)
    ample = model(3).fit(rows)
    tight = model(3, memory_limit=0).fit(rows)
    assert_sound(tight, rows)
    assert_allclose(tight.kept_, ample.kept_, rtol=2e-2)
    assert_allclose(tight.kept_bound_, ample.kept_bound_, rtol=5e-3)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("seed", range(3))
def test_no_pair_loses_more_than_the_cap(seed, dtype, objective):
    rng = np.random.default_rng(seed)
    n_points, n_features = rng.integers(6, 20), rng.integers(3, 8)
    k = int(rng.integers(1, n_features))
    X = stretched(seed, n_points, n_features).astype(dtype)
    fitted = model(k, objective=objective).fit(X)
    assert_sound(fitted, X)
    assert fitted.components_.dtype == fitted.mean_.dtype == dtype
    assert fitted.transform(X).dtype == dtype
    exact = X.astype(np.float64)
    kept = share(exact, fitted.components_.astype(np.float64), objective)
    assert_allclose(fitted.kept_, kept, rtol=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_a_cap_of_one_is_pca(seed):
    X = stretched(seed, 30, 6) + 100.0
    ours, theirs = model(3, max_distortion=1.0).fit(X), PCA(3).fit(X)
    signs = np.sign((ours.components_ * theirs.components_).sum(axis=1))
    for name in (
        "mean_",
        "explained_variance_",
        "explained_variance_ratio_",
        "singular_values_",
    ):
        assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-8)
    fresh = stretched(seed + 50, 5, 6)
    assert_allclose(ours.transform(fresh), theirs.transform(fresh) * signs, atol=1e-8)
    assert_allclose(
        ours.inverse_transform(ours.transform(fresh)),
        theirs.inverse_transform(theirs.transform(fresh)),
        atol=1e-8,
    )
    assert ours.status_ is Status.OPTIMAL
    assert_allclose(ours.kept_, theirs.explained_variance_ratio_.sum(), rtol=1e-8)
    assert_allclose(ours.kept_bound_, ours.kept_, rtol=1e-8)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_pair_may_lose_everything_under_a_cap_of_one(objective):
    axes = np.meshgrid(np.arange(3.0), np.arange(3.0), np.arange(3.0))
    X = np.stack(axes, axis=-1).reshape(-1, 3) * [3.0, 2.0, 1.0]
    fitted = model(max_distortion=1.0, objective=objective).fit(X)
    assert fitted.distortion_ == fitted.max_distortion_ == 1.0
    assert_allclose(np.abs(fitted.components_), np.eye(3)[:2], atol=1e-9)
    verify(fitted.certificate_, X)


MOVES = {
    "translated": lambda X: X + 1e3,
    "far away": lambda X: X + 1e6,
    "rotated": lambda X: X @ random_basis(9, X.shape[1], X.shape[1]),
    "scaled": lambda X: X * 1e-30,
    "reordered": lambda X: X[::-1],
    "with a constant": lambda X: np.hstack([X, np.ones((len(X), 1))]),
}


@pytest.fixture(scope="module", params=OBJECTIVES)
def reference(request):
    X = stretched(2, 9, 3)
    return X, model(max_distortion=0.45, objective=request.param).fit(X)


@pytest.mark.parametrize("move", MOVES)
def test_what_is_kept_does_not_depend_on_coordinates(reference, move):
    X, expected = reference
    moved = MOVES[move](X)
    fitted = model(max_distortion=0.45, objective=expected.objective).fit(moved)
    assert_sound(fitted, moved)
    assert_allclose(fitted.kept_, expected.kept_, rtol=1e-3)
    assert_allclose(fitted.kept_bound_, expected.kept_bound_, rtol=2e-3)
    assert_allclose(
        fitted.explained_variance_ratio_.sum(),
        share(moved, fitted.components_, "variance"),
        rtol=1e-6,
    )


def test_the_default_cap_follows_the_slack_bit_for_bit_the_same_every_time():
    X = stretched(2)
    tight, loose = model(slack=0.0).fit(X), model(slack=0.1).fit(X)
    assert_array_equal(model(slack=0.1).fit(X).components_, loose.components_)
    assert_sound(tight, X)
    assert_allclose(loose.max_distortion_, 1.1 * tight.max_distortion_, rtol=1e-6)
    assert loose.kept_ > tight.kept_
    assert model(slack=50.0).fit(X).max_distortion_ == 1.0


def test_an_impossible_cap_is_refused_with_its_proof():
    X = stretched(3, 14, 6)
    with pytest.raises(InfeasibleError, match="is impossible in 2") as caught:
        model(max_distortion=0.1).fit(X)
    proof = caught.value.certificate
    assert isinstance(proof, Certificate)
    verify(proof, X)
    assert proof.lower_bound > 0.1
    assert isinstance(caught.value, ValueError)


def test_a_cap_between_bound_and_best_is_unknown():
    # In eight dimensions there is no hull that could close the gap.
    X = stretched(3, 40, 16)
    best = NearIsometricProjection(8, random_state=0).fit(X)
    cap = 0.5 * (best.lower_bound_ + best.distortion_)
    assert best.certificate_.optimality_gap > 0.05
    with pytest.raises(InfeasibleError, match="it is unknown") as caught:
        model(8, max_distortion=cap).fit(X)
    verify(caught.value.certificate, X)
    assert caught.value.certificate.lower_bound <= cap
    assert caught.value.certificate.distortion > cap


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_fewest_dimensions_are_found_and_bounded(objective):
    X = stretched(4, 12, 5)
    fitted = model(None, max_distortion=0.5, objective=objective).fit(X)
    assert_sound(fitted, X)
    assert fitted.max_distortion_ == 0.5
    fewest, k = fitted.n_components_lower_bound_, fitted.n_components_
    assert 1 < fewest <= k <= 5
    with pytest.raises(InfeasibleError, match="impossible"):
        model(fewest - 1, max_distortion=0.5).fit(X)


def test_all_dimensions_are_taken_where_nothing_may_be_lost():
    X = stretched(5)
    fitted = model(None, max_distortion=1e-9).fit(X)
    assert fitted.n_components_ == 4
    assert fitted.kept_ == pytest.approx(1.0)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize(
    "X",
    [stretched()[:2], np.outer(np.arange(6.0), [1.0, 2.0, 3.0])],
    ids=["two points", "points on a line"],
)
@pytest.mark.filterwarnings("ignore:The points span only:UserWarning")
def test_points_of_a_line_lose_nothing(X, k, objective):
    fitted = model(k, objective=objective).fit(X)
    assert_sound(fitted, X)
    assert fitted.distortion_ < 1e-12
    assert fitted.kept_ == pytest.approx(1.0)
    assert_allclose(fitted.inverse_transform(fitted.transform(X)), X, atol=1e-9)


def test_copies_of_points_weigh_in_the_variance_alone():
    X = np.repeat(stretched(6, 6, 4), [1, 1, 1, 1, 2, 3], axis=0)
    with pytest.warns(DuplicatePointsWarning, match="4 pairs of identical points"):
        fitted = model().fit(X)
    assert_sound(fitted, X)
    assert_allclose(fitted.mean_, X.mean(axis=0))


def test_points_that_are_all_one_are_refused():
    with pytest.raises(ValueError, match="at least two distinct points"):
        model(1).fit(np.ones((4, 3)))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_sparse_data_give_the_dense_answer(objective):
    X = np.random.default_rng(3).poisson(0.8, size=(9, 5)).astype(float)
    options = {"objective": objective, "max_distortion": 0.95}
    dense = model(**options).fit(X)
    sparse = model(**options).fit(scipy.sparse.csr_array(X))
    assert_sound(sparse, scipy.sparse.csr_array(X))
    assert_allclose(sparse.kept_, dense.kept_, rtol=1e-6)
    assert_allclose(sparse.mean_, dense.mean_)
    assert_allclose(sparse.explained_variance_, dense.explained_variance_, rtol=1e-5)
    assert_allclose(dense.transform(scipy.sparse.csr_array(X)), dense.transform(X))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_cap_is_for_the_pairs_that_count(objective):
    X = stretched(7)
    listed = [[0, 1], [2, 3], [4, 5], [6, 7], [3, 9]]
    fitted = model(pairs=listed, objective=objective).fit(X)
    assert_sound(fitted, X, listed)
    assert fitted.max_distortion_ < model().fit(X).lower_bound_


def test_pairs_fewer_than_dimensions_lose_nothing():
    X = stretched(8, 10, 5)
    fitted = model(pairs=[[0, 1]], objective="distortion").fit(X)
    assert_sound(fitted, X, [[0, 1]])
    assert fitted.distortion_ < 1e-12
    assert fitted.kept_ == pytest.approx(1.0)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_directions_lose_no_more_than_the_cap(objective):
    X = stretched(9)
    fitted = model(pairs="directions", objective=objective).fit(X)
    images = X @ fitted.components_.T
    lost = 1.0 - (images**2).sum(axis=1) / (X**2).sum(axis=1)
    assert lost.max() <= fitted.distortion_ <= fitted.max_distortion_
    if objective == "distortion":
        assert_allclose(fitted.kept_, 1.0 - lost.mean())
    verify(fitted.certificate_, X)


@pytest.mark.parametrize("pairs", ["all", "directions", [[0, 1], [3, 2], [4, 6]]])
def test_a_saved_model_comes_back_bit_for_bit(pairs, tmp_path):
    X = stretched(10)
    fitted = model(pairs=pairs).fit(X)
    fitted.save(tmp_path / "m.isoproj")
    back = GuaranteedPCA.load(tmp_path / "m.isoproj")
    for name in (
        "mean_",
        "explained_variance_",
        "explained_variance_ratio_",
        "singular_values_",
        "components_",
    ):
        assert getattr(back, name).tobytes() == getattr(fitted, name).tobytes()
    for name in (
        "kept_",
        "kept_bound_",
        "max_distortion_",
        "distortion_",
        "status_",
        "n_iter_",
        "objective",
        "slack",
    ):
        assert getattr(back, name) == getattr(fitted, name)
    assert_array_equal(back.transform(X), fitted.transform(X))
    verify(back.certificate_, X)
    verify(Certificate.load(tmp_path / "m.isoproj"), X)


def test_a_file_without_the_mean_is_no_model(tmp_path):
    from isoproj.numerics.container import read_container, write_container

    model(max_distortion=1.0).fit(stretched()).save(tmp_path / "m.isoproj")
    header, tensors = read_container(tmp_path / "m.isoproj")
    tensors = {name: value for name, value in tensors.items() if name != "mean"}
    write_container(tmp_path / "m.isoproj", header, tensors)
    with pytest.raises(FormatError, match="'mean'"):
        GuaranteedPCA.load(tmp_path / "m.isoproj")


@pytest.fixture(scope="module")
def certified():
    X = stretched(12, 12, 5)
    return X, model(2).fit(X).certificate_


TAMPERINGS = {
    "a lower cap": lambda g: {"cap": g.cap - 1e-3},
    "a higher cap": lambda g: {"cap": g.cap + 1e-3},
    "no cap": lambda g: {"cap": float("nan")},
    "more kept": lambda g: {"kept": g.kept + 1e-6},
    "less kept": lambda g: {"kept": g.kept - 1e-6},
    "a better bound": lambda g: {"kept_bound": g.kept_bound - 1e-6},
    "a worse bound": lambda g: {"kept_bound": g.kept_bound + 1e-6},
    "other multipliers": lambda g: {"multipliers": 1.1 * g.multipliers},
    "negative multipliers": lambda g: {"multipliers": -g.multipliers},
    "infinite multipliers": lambda g: {"multipliers": np.inf * g.multipliers},
    "fewer multipliers": lambda g: {"multipliers": g.multipliers[1:]},
    "other pairs": lambda g: {"capped_pairs": np.roll(g.capped_pairs, 1, axis=0)},
    "pairs outside": lambda g: {"capped_pairs": g.capped_pairs + 1000},
    "no pairs": lambda g: {"capped_pairs": g.capped_pairs[:0]},
    "points as pairs": lambda g: {"capped_pairs": g.capped_pairs[:, [0, 0]]},
    "another objective": lambda g: {"objective": type(g.objective)("distortion")},
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_every_entry_that_was_tampered_with_is_caught(certified, tampering):
    X, certificate = certified
    guarantee = certificate.guarantee
    assert guarantee.multipliers.size > 1
    verify(certificate, X)
    forged = dataclasses.replace(guarantee, **TAMPERINGS[tampering](guarantee))
    with pytest.raises(ClaimError, match=r"cap on every pair|variance kept|distortion"):
        verify(dataclasses.replace(certificate, guarantee=forged), X)


def test_multipliers_on_pairs_that_do_not_count_prove_nothing():
    X = stretched(13)
    listed = [[0, 1], [2, 3], [4, 5], [6, 7], [3, 9]]
    certificate = model(pairs=listed).fit(X).certificate_
    elsewhere = certificate.guarantee.capped_pairs * 0 + np.array([0, 2])
    forged = dataclasses.replace(certificate.guarantee, capped_pairs=elsewhere)
    with pytest.raises(ClaimError, match="does not count"):
        verify(dataclasses.replace(certificate, guarantee=forged), X)


@pytest.mark.parametrize("limit", [{"time_limit": 1e-6}, {"max_iter": 1}])
def test_a_limit_gives_a_valid_answer_and_a_warning(limit):
    X = stretched(14, 20, 6)
    with pytest.warns(ConvergenceWarning, match=next(iter(limit))):
        fitted = model(3, **limit).fit(X)
    assert fitted.status_.value == next(iter(limit))
    assert_sound(fitted, X)


@pytest.mark.parametrize("estimator", [GuaranteedPCA, NearIsometricProjection])
def test_dimensions_that_time_cut_short_are_said_to_be(estimator):
    X = stretched(14, 20, 6)
    limited = estimator(None, max_distortion=0.5, random_state=0, time_limit=1e-6)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        fitted = limited.fit(X)
    assert fitted.status_ is Status.TIME_LIMIT
    assert brute_distortion(X, fitted.components_) <= fitted.distortion_ <= 0.5
    verify(fitted.certificate_, X)


def test_more_dimensions_than_the_points_span_warn():
    with pytest.warns(UserWarning, match="span only 1 dimensions"):
        fitted = model(2).fit(stretched()[:2])
    assert fitted.n_components_ == 2


@pytest.fixture(scope="module")
def whole():
    """The history of a fit that nobody interrupts."""
    return model().fit(stretched(15, 12, 5)).history_


@pytest.mark.parametrize("after", [0, 2, -1])
def test_an_interrupt_returns_a_certified_answer(after, whole):
    X = stretched(15, 12, 5)
    steps = []

    def interrupt(step):
        steps.append(step)
        if len(steps) == range(1, len(whole) + 1)[after]:
            raise KeyboardInterrupt

    with (
        watching(interrupt, Step),
        pytest.warns(ConvergenceWarning, match="interrupted"),
    ):
        fitted = model().fit(X)
    assert fitted.status_ is Status.INTERRUPTED
    assert len(fitted.history_) == len(steps)
    assert_sound(fitted, X)


def test_a_bound_that_an_interrupt_cuts_short_is_kept():
    X = stretched(5, 60, 20)

    def interrupt(step):
        if step.kept_bound is not None and step.kept_bound < 1.0:
            raise KeyboardInterrupt

    with (
        watching(interrupt, Step),
        pytest.warns(ConvergenceWarning, match="interrupted"),
    ):
        fitted = model(4, tol=1e-2).fit(X)
    told = fitted.history_[-1].kept_bound
    assert told < 1.0
    assert fitted.kept_bound_ == pytest.approx(told, rel=1e-6)
    assert fitted.kept_ <= fitted.kept_bound_
    whole = model(4, tol=1e-2).fit(X)
    bounds = [step.kept_bound for step in whole.history_ if step.kept_bound is not None]
    assert bounds == sorted(bounds, reverse=True)
    assert len(set(bounds)) > 2


def test_an_interrupt_before_the_first_step_returns_a_certified_answer(monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("isoproj.solvers.drive.Bounds.tell", interrupted)
    X = stretched(15, 12, 5)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        fitted = model().fit(X)
    assert fitted.history_ == ()
    assert_sound(fitted, X)


def test_components_carry_falling_variance_without_correlation():
    X = stretched(17, 12, 6)
    fitted = model(3).fit(X)
    covariance = np.cov(fitted.transform(X).T)
    assert_allclose(covariance, np.diag(fitted.explained_variance_), atol=1e-9)
    assert (np.diff(fitted.explained_variance_) < 0.0).all()
    assert_allclose(fitted.transform(X).mean(axis=0), 0.0, atol=1e-12)
    assert_allclose(fitted.explained_variance_ratio_.sum(), fitted.kept_)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"slack": -0.1}, "slack must be"),
        ({"slack": "much"}, "slack must be"),
        ({"objective": "joy"}, "objective must be one of 'variance', 'distortion'"),
        ({"max_distortion": 0.0}, "max_distortion must be"),
        ({"max_distortion": 1.5}, "max_distortion must be"),
        ({"n_components": None}, "max_distortion must be given"),
        ({"n_components": 9}, "between 1 and n_features=4"),
    ],
)
def test_bad_parameters_get_one_clear_line(options, match):
    with pytest.raises(ValueError, match=match) as caught:
        GuaranteedPCA(**options).fit(stretched())
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::isoproj.exceptions.DuplicatePointsWarning")
@pytest.mark.filterwarnings("ignore:The points span only:UserWarning")
def test_as_it_comes_it_keeps_scikit_learns_contract():
    check_estimator(GuaranteedPCA())
