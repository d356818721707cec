from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse
from geometry import brute_losses, cloud
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from isoproj.baselines import (
    Adagio,
    DualAscent,
    FairPCA,
    FroMax,
    NILEPro,
    NuMax,
    PCAProjection,
    RandomProjection,
    SDPProjection,
    SecantAvoidance,
    SequentialFairPCA,
    StablePCA,
)
from isoproj.exceptions import DuplicatePointsWarning

ORTHONORMAL = [
    PCAProjection(3),
    PCAProjection(3, of="directions"),
    RandomProjection(3, random_state=0),
    DualAscent(3),
    SDPProjection(3),
    SDPProjection(3, rounding="randomized", random_state=0),
    SDPProjection(3, rounding="binned", random_state=0),
    SecantAvoidance(3),
    SecantAvoidance(3, init="random", random_state=0),
    FairPCA(3, tol=0.01),
    SequentialFairPCA(3),
    StablePCA(3, tol=0.01),
]
LINEAR = [
    RandomProjection(3, kind="gaussian", random_state=0),
    RandomProjection(3, kind="sparse", random_state=0),
    Adagio(3, random_state=0),
    NILEPro(3),
    FroMax(5, delta=0.5),
    NuMax(0.5, random_state=0),
]
QUIET = "ignore::sklearn.exceptions.ConvergenceWarning"


def name_of(estimator):
    return repr(estimator)


@pytest.mark.filterwarnings("ignore")
# Few rounds: the contract is about calls, not about what is found.
@parametrize_with_checks(
    [
        PCAProjection(),
        RandomProjection(),
        SDPProjection(tol=0.2),
        DualAscent(max_iter=2),
        NuMax(max_iter=5),
        FroMax(max_iter=3),
        NILEPro(max_iter=3),
        Adagio(),
        SecantAvoidance(max_iter=2),
        FairPCA(max_iter=2),
        SequentialFairPCA(max_iter=2),
        StablePCA(max_iter=2),
    ]
)
def test_scikit_learn_accepts(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings(QUIET)
@pytest.mark.parametrize("estimator", ORTHONORMAL, ids=name_of)
def test_projections_are_orthonormal_and_stretch_nothing(estimator):
    model = clone(estimator).fit(cloud(1, 25, 8))
    gram = model.components_ @ model.components_.T
    np.testing.assert_allclose(gram, np.eye(3), atol=1e-12)
    assert getattr(model, "stretch_", 0.0) < 1e-12


@pytest.mark.filterwarnings(QUIET)
@pytest.mark.parametrize("estimator", ORTHONORMAL + LINEAR, ids=name_of)
def test_what_is_reported_is_what_differences_say(estimator):
    rows = cloud(2, 25, 8) * np.arange(1, 9)
    model = clone(estimator).fit(rows)
    pairs, losses = brute_losses(rows, model.components_)
    np.testing.assert_allclose(model.distortion_, max(losses.max(), 0.0), atol=1e-12)
    if hasattr(model, "stretch_"):
        np.testing.assert_allclose(model.stretch_, max(-losses.min(), 0.0), atol=1e-12)
    assert model.worst_pairs_[0].tolist() == pairs[losses.argmax()].tolist()


# A random start in the coordinates of the span is another one in another basis of it.
SETTLED = [e for e in ORTHONORMAL + LINEAR if getattr(e, "init", "") != "random"]


@pytest.mark.filterwarnings(QUIET)
@pytest.mark.parametrize("estimator", SETTLED, ids=name_of)
def test_sparse_rows_give_the_same_map_quality(estimator):
    rows = cloud(3, 20, 7)
    rows[np.abs(rows) < 0.5] = 0.0
    dense = clone(estimator).fit(rows)
    sparse = clone(estimator).fit(scipy.sparse.csr_array(rows))
    assert sparse.components_.shape == dense.components_.shape
    if getattr(estimator, "rounding", "") in ("randomized", "binned"):
        # Draws among eigenvectors are others in another basis of the same span; the
        # matrix that is rounded is the same.
        np.testing.assert_allclose(sparse.relaxed_, dense.relaxed_, rtol=1e-3)
        np.testing.assert_allclose(sparse.lower_bound_, dense.lower_bound_, rtol=1e-3)
        return
    # Iterative methods amplify the rounding of another basis of the same span.
    assert abs(sparse.distortion_ - dense.distortion_) < 0.02


@pytest.mark.filterwarnings(QUIET)
@pytest.mark.parametrize("estimator", ORTHONORMAL + LINEAR, ids=name_of)
def test_rows_may_be_directions(estimator):
    rows = cloud(4, 30, 6)
    model = clone(estimator).set_params(pairs="directions").fit(rows)
    kept = ((rows @ model.components_.T) ** 2).sum(1) / (rows**2).sum(1)
    np.testing.assert_allclose(model.distortion_, max(1 - kept.min(), 0), atol=1e-12)


@pytest.mark.filterwarnings(QUIET)
@pytest.mark.parametrize(
    "estimator",
    [e for e in ORTHONORMAL + LINEAR if type(e) not in (RandomProjection, Adagio)],
    ids=name_of,
)
def test_nothing_is_lost_when_the_span_fits(estimator):
    flat = cloud(5, 12, 3) @ cloud(6, 3, 9)
    model = clone(estimator)
    if isinstance(model, NuMax):
        # Its dimension is an output: the band holds, the span need not be kept whole.
        assert model.fit(flat).n_components_ <= 3
        return
    assert model.fit(flat).distortion_ < 1e-10


@pytest.mark.parametrize(
    "estimator", [PCAProjection(2), Adagio(2), NILEPro(2)], ids=name_of
)
def test_copies_are_told_of_and_left_out(estimator):
    rows = cloud(7, 10, 4)
    with pytest.warns(DuplicatePointsWarning, match="1 pair of identical") as told:
        model = clone(estimator).fit(np.vstack([rows, rows[:1]]))
    assert told[0].filename == __file__
    _, losses = brute_losses(rows, model.components_)
    np.testing.assert_allclose(model.distortion_, losses.max(), atol=1e-12)


@pytest.mark.parametrize(
    "estimator",
    [
        SDPProjection(3, time_limit=1e-6),
        SecantAvoidance(3, time_limit=1e-6),
        FairPCA(3, time_limit=1e-6),
        SequentialFairPCA(3, time_limit=1e-6),
        StablePCA(3, time_limit=1e-6),
        NuMax(0.2, time_limit=1e-6),
        NILEPro(3, time_limit=1e-6),
        FroMax(3, time_limit=1e-6),
    ],
    ids=name_of,
)
def test_out_of_time_is_a_warning_and_a_valid_map(estimator):
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model = clone(estimator).fit(cloud(8, 40, 12))
    _, losses = brute_losses(cloud(8, 40, 12), model.components_)
    np.testing.assert_allclose(model.distortion_, max(0.0, losses.max()), atol=1e-9)
    assert str(model.status_) == "time_limit"


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (PCAProjection(9), "n_features=4; got 9"),
        (PCAProjection(2.5), r"integer; got 2\.5"),
        (PCAProjection(2, of="rows"), "of must be one of .* got 'rows'"),
        (RandomProjection(2, kind="dense"), "kind must be one of"),
        (SDPProjection(2, rounding="up"), "rounding must be one of"),
        (SDPProjection(2, solver="mosek"), "solver must be one of"),
        (SDPProjection(2, slack=0.0), r"slack must be above 0; got 0\.0"),
        (NuMax(1.5), r"delta must lie between 0 and 1; got 1\.5"),
        (NuMax(labelled=True), "y must hold class labels"),
        (SecantAvoidance(2, step=0.0), "step must lie between 0 and 1"),
        (SequentialFairPCA(2, rate=-1.0), "rate must be"),
        (FairPCA(2, max_iter=0), "max_iter must be a whole number above 0"),
        (Adagio(2, time_limit=-1.0), "time_limit must be a number of seconds"),
    ],
)
def test_errors_say_what_must_hold_and_what_came(estimator, message):
    with pytest.raises(ValueError, match=message) as caught:
        estimator.fit(cloud(9, 10, 4))
    assert "\n" not in str(caught.value)


def test_the_same_seed_gives_the_same_map():
    rows = cloud(10, 30, 9)
    for estimator in (RandomProjection(4), Adagio(4), NuMax(0.4)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            maps = [
                clone(estimator).set_params(random_state=3).fit(rows).components_
                for _ in range(2)
            ]
        np.testing.assert_array_equal(*maps)
