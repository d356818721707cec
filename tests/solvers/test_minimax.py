from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from geometry import cloud, every_pair, random_basis
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from isoproj import NearIsometricProjection, verify
from isoproj.numerics.progress import Step, watching
from isoproj.pairs.directions import Secants
from isoproj.pairs.oracle import PairSearch, SearchSettings
from isoproj.pairs.rule import prepare_pairs
from isoproj.proof.verify import check_claims
from isoproj.solvers.api import Clock, Problem, Status
from isoproj.solvers.descent.anneal import Review, anneal, polish
from isoproj.solvers.descent.grassmann import Stage, descend
from isoproj.solvers.descent.objectives import Curve, losses, soft_maximum
from isoproj.solvers.descent.sqp import finish, simplex_minimiser
from isoproj.solvers.descent.working_set import WorkingSet
from isoproj.solvers.minimax import minimax
from isoproj.solvers.settings import DescentSettings, Ladder, Settings
from isoproj.solvers.sides import Sides


def fitted(rows, k, **options):
    options = {"random_state": 0, **options}
    return NearIsometricProjection(k, **options).fit(rows)


ROWS = cloud(2, 60, 20)


@pytest.fixture(scope="module")
def model():
    return fitted(ROWS, 4, tol=1e-3)


def working_set(seed, r, d):
    rows = cloud(seed, r, d)
    return Secants(rows, every_pair(r))


def worst(secants, basis):
    return float(losses(secants.images(basis)).max())


@pytest.mark.parametrize(("r", "d", "k"), [(20, 12, 2), (46, 60, 5), (46, 60, 20)])
def test_it_beats_the_papers_algorithm_and_proves_it(r, d, k):
    rows = cloud(0, r, d) * np.linspace(3.0, 0.3, d)
    ours, paper = fitted(rows, k), fitted(rows, k, solver="dual_ascent")
    assert ours.distortion_ < paper.distortion_
    assert ours.lower_bound_ >= paper.lower_bound_ - 1e-3
    assert ours.lower_bound_ <= ours.distortion_
    verify(ours.certificate_, rows)


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_features_of_mixed_scales_are_bounded_too(seed):
    scales = 10.0 ** np.random.default_rng(50 + seed).uniform(-2, 3, 15)
    rows = np.random.default_rng(seed).standard_normal((200, 15)) * scales
    ours = fitted(rows, 8)
    assert ours.distortion_ <= 2.0 * ours.lower_bound_
    verify(ours.certificate_, rows)


@pytest.mark.parametrize(("d", "k"), [(4, 2), (8, 3), (12, 1)])
def test_orthonormal_directions_are_solved_to_optimality(d, k):
    model = fitted(np.eye(d), k, pairs="directions", tol=1e-7)
    assert_allclose(model.distortion_, 1.0 - k / d, atol=1e-6)
    assert_allclose(model.lower_bound_, 1.0 - k / d, atol=1e-6)
    assert model.status_ is Status.OPTIMAL


def test_a_tight_relaxation_is_recognised_by_its_eigenvalues():
    # Two planes of points, one far wider: the best line is along it, and clearly so.
    rows = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 1.0], [10.0, 1.0], [5.0, 0.2]])
    model = fitted(rows, 1, pairs=np.array([[0, 1], [0, 3], [1, 2], [0, 4]]))
    assert model.status_ is Status.OPTIMAL
    assert model.certificate_.optimality_gap <= 1e-3


def test_three_lines_leave_a_gap_that_the_hull_closes():
    angles = np.deg2rad([0.0, 60.0, 120.0])
    rows = np.column_stack([np.cos(angles), np.sin(angles)])
    search = PairSearch(*prepare_pairs(rows, "directions", rotate=True))
    weights_alone = minimax(Problem(search=search, k=1, tol=1e-5))
    assert_allclose(weights_alone.lower, 0.5, atol=1e-4)
    assert weights_alone.status is Status.CONVERGED
    model = fitted(rows, 1, pairs="directions", tol=1e-5)
    assert_allclose(model.distortion_, 0.75, atol=1e-9)
    assert_allclose(model.lower_bound_, 0.75, atol=1e-9)
    assert model.status_ is Status.OPTIMAL


def test_each_round_is_at_least_as_good_as_the_last(model):
    history = model.history_
    assert len(history) >= 3
    assert (np.diff([s.distortion for s in history]) <= 0.0).all()
    assert (np.diff([s.lower_bound for s in history]) >= 0.0).all()
    assert (np.diff([s.seconds for s in history]) >= 0.0).all()
    assert history[-1].relaxed <= history[-1].lower_bound * 1.001


def test_what_the_last_round_says_is_what_the_scan_finds(model):
    assert_allclose(model.history_[-1].distortion, model.distortion_, atol=1e-6)
    assert_allclose(model.history_[-1].lower_bound, model.lower_bound_, atol=1e-9)


def test_the_same_seed_gives_the_same_bits(model):
    again = fitted(ROWS, 4, tol=1e-3)
    assert (again.components_ == model.components_).all()
    assert again.lower_bound_ == model.lower_bound_


def test_a_time_limit_leaves_a_valid_looser_certificate():
    rows = cloud(4, 80, 60)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model = fitted(rows, 8, time_limit=1e-9)
    assert model.status_ is Status.TIME_LIMIT
    verify(model.certificate_, rows)


def test_where_points_are_many_the_bound_does_not_wait_for_the_search():
    rows = cloud(7, 300, 20) * np.linspace(2.0, 0.4, 20)
    settings = SearchSettings(most_smoothed=100)
    search = PairSearch(*prepare_pairs(rows, rotate=True), settings=settings)
    result = minimax(Problem(search=search, k=4))
    phases = [step.phase for step in result.history]
    first, last = phases.index("bound"), len(phases) - 1 - phases[::-1].index("bound")
    assert "first projection" in phases[first:last]
    early = result.history[phases.index("first projection", first) - 1].lower_bound
    assert early >= 0.9 * result.lower
    assert result.lower <= result.distortion
    assert result.distortion < result.history[0].distortion


def test_few_rounds_are_said_to_be_few():
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = fitted(cloud(5, 40, 20), 3, max_iter=2)
    assert model.n_iter_ == 1
    assert len(model.history_) == 2


def test_an_interrupt_returns_the_best_certified_answer():
    rows = cloud(6, 60, 40)

    def interrupt(step):
        if step.iteration == 3:
            raise KeyboardInterrupt

    with (
        watching(interrupt, Step),
        pytest.warns(ConvergenceWarning, match="interrupted"),
    ):
        model = fitted(rows, 5)
    assert model.status_ is Status.INTERRUPTED
    assert all(claim.holds for claim in check_claims(model.certificate_, rows))


def test_a_given_basis_is_never_made_worse():
    rows = cloud(7, 40, 15)
    good = fitted(rows, 3, n_restarts=8)
    again = fitted(rows, 3, n_restarts=0, init=good.components_)
    assert again.distortion_ <= good.distortion_ + 1e-6


def test_a_warm_start_goes_on_from_the_last_fit():
    rows = cloud(8, 24, 10)
    model = fitted(rows, 3, warm_start=True)
    before = model.distortion_
    assert model.fit(rows).distortion_ <= before + 1e-6
    more = np.vstack([rows, cloud(9, 5, 10)])
    verify(model.fit(more).certificate_, more)
    wider = model.set_params(n_components=5).fit(more)
    assert wider.distortion_ < before
    fewer = model.set_params(n_components=2).fit(rows[:10])
    verify(fewer.certificate_, rows[:10])


def test_losses_along_a_curve_have_the_slope_it_says():
    secants, basis = working_set(10, 12, 7), random_basis(11, 7, 3)
    step = cloud(12, 7, 3)
    step -= basis @ (basis.T @ step)
    curve = Curve(secants.images(basis), secants.images(step), step)
    for time in (0.0, 0.3, 1.7):
        moved, images = curve.arrive(basis, time)
        assert_allclose(moved.T @ moved, np.eye(3), atol=1e-12)
        assert_allclose(secants.images(moved), images, atol=1e-12)
        assert_allclose(curve.losses(time)[0], losses(images), atol=1e-12)
        ahead, behind = curve.losses(time + 1e-6)[0], curve.losses(time - 1e-6)[0]
        slope = (ahead - behind) / 2e-6
        assert_allclose(curve.losses(time)[1], slope, atol=1e-8)


@pytest.mark.parametrize("temperature", [0.1, 0.01, 0.001])
def test_descent_lowers_the_smoothed_maximum(temperature):
    secants, basis = working_set(13, 30, 10), random_basis(14, 10, 3)
    before = soft_maximum(losses(secants.images(basis)), temperature)[0]
    moved = descend(secants, basis, temperature)
    after = soft_maximum(losses(secants.images(moved)), temperature)[0]
    assert after < before
    assert_allclose(moved.T @ moved, np.eye(3), atol=1e-12)


def test_a_lenient_clock_allows_a_moment_more():
    assert Clock(-1.0).lenient.is_over
    assert Clock(None).lenient.left is None
    clock = Clock(100.0)
    lenient = clock.lenient.left
    assert clock.left < lenient < 101.0


def test_a_piece_of_work_has_a_share_of_what_is_left_and_at_least_a_moment():
    assert Clock(None).piece(0.5).left is None
    assert_allclose(Clock(100.0).piece(0.25).left, 25.0, atol=1.0)
    assert Clock(0.01).piece(0.5).left > 0.05
    # As much as a limit may be overrun by, and no more.
    assert Clock(-1.0).piece(0.5).is_over


def test_hot_stages_leave_time_for_colder_ones(monkeypatch):
    search = PairSearch(*prepare_pairs(ROWS, rotate=True))
    known = WorkingSet(search, search.sample(search.n_pairs, np.random.default_rng(0)))
    seen = []

    def noted(known, basis, merit, stage, settings):
        seen.append(stage.clock.left)
        return basis

    monkeypatch.setattr("isoproj.solvers.descent.anneal._blind", noted)
    restless = Restless()
    restless.distortion, restless.clock = 1.0, Clock(1000.0)
    ladder = Ladder(temperatures=(0.1, 0.05, 0.02), tries=1)
    settings = DescentSettings(stage_share=0.5)
    anneal(
        known,
        random_basis(3, search.n_dims, 4),
        ladder,
        restless,
        settings=settings,
    )
    assert_allclose(seen, [500.0, 500.0, 1000.0], rtol=0.02)


def test_a_descent_makes_no_step_once_its_clock_is_over():
    secants, basis = working_set(13, 30, 10), random_basis(14, 10, 3)
    settings = DescentSettings()
    over, open_end = (Stage.of(0.05, settings, Clock(t)) for t in (0.0, 1e9))
    # A start is shaken a little, so that it is no saddle point.
    hurried = descend(secants, basis, 0.05, stage=over)
    assert_allclose(hurried, basis, atol=0.01)
    patient = descend(secants, basis, 0.05, stage=open_end)
    assert np.abs(patient - basis).max() > 0.05


@pytest.mark.parametrize("seed", range(8))
def test_descent_in_single_precision_keeps_every_basis_orthonormal(seed, monkeypatch):
    # At a gradient that is all rounding, a longer basis seems to lose less: descent
    # that may lengthen it goes on until numbers overflow.
    rng = np.random.default_rng(seed)
    rows = rng.uniform(size=(40, 3))
    rows[rows < 0.6] = 0.0
    errors = []
    arrive = Curve.arrive

    def watched(curve, basis, time):
        moved, images = arrive(curve, basis, time)
        errors.append(np.abs(moved.T @ moved - np.eye(moved.shape[1])).max())
        return moved, images

    monkeypatch.setattr(Curve, "arrive", watched)
    fitted(np.unique(rows, axis=0), 2)
    assert max(errors) < 1e-5


def test_the_finish_removes_what_smoothing_left():
    secants, basis = working_set(15, 30, 10), random_basis(16, 10, 3)
    for temperature in (0.05, 0.01, 0.003, 0.001):
        basis = descend(secants, basis, temperature)
    polished = finish(secants, basis)
    assert worst(secants, polished) < worst(secants, basis)
    assert_allclose(polished.T @ polished, np.eye(3), atol=1e-12)
    # A local optimum of the maximum: no small move lowers it noticeably.
    rng = np.random.default_rng(0)
    for _ in range(50):
        move = 1e-4 * rng.standard_normal(polished.shape)
        moved = np.linalg.qr(polished + move)[0]
        assert worst(secants, moved) > worst(secants, polished) - 1e-6


class Restless:
    """An incumbent that is never settled and asks for heat after every round."""

    is_content = False

    def __init__(self):
        self.starts = []
        self.clock = Clock(None)

    def see(self, basis, distortion):
        return False

    def tell(self, n_working):
        pass

    def review(self, basis, excess, distortion, merit):
        self.starts.append(basis)
        return Review(False, basis, merit, is_reheated=True)


@pytest.mark.parametrize("rounds", [1, 2])
def test_nothing_is_searched_after_the_last_round_of_polishing(rounds):
    search = PairSearch(*prepare_pairs(ROWS, rotate=True))
    known = WorkingSet(search, search.sample(search.n_pairs, np.random.default_rng(0)))
    restless, basis = Restless(), random_basis(3, search.n_dims, 4)
    last = polish(
        known,
        basis,
        restless,
        rounds=rounds,
        temperature=0.01,
        settings=DescentSettings(),
    )
    assert len(restless.starts) == rounds
    assert last is restless.starts[-1]


def test_a_programme_without_room_for_all_tight_pairs_is_tried_only_where_allowed():
    secants, basis = working_set(15, 30, 10), random_basis(16, 10, 3)
    # A band as wide as all losses makes every pair tight.
    settings = DescentSettings(band=1.0, programme_rows=100, is_partial=True)
    assert worst(secants, finish(secants, basis, settings=settings)) < worst(
        secants, basis
    )
    whole = replace(settings, is_partial=False)
    kept = finish(secants, basis, settings=whole)
    assert_allclose(worst(secants, kept), worst(secants, basis), rtol=1e-12)
    room = replace(whole, programme_rows=len(secants))
    assert worst(secants, finish(secants, basis, settings=room)) < worst(secants, basis)


@pytest.mark.parametrize("seed", range(4))
def test_the_simplex_programme_meets_its_optimality_conditions(seed):
    factor = cloud(seed, 30, 12)
    gram, linear = factor @ factor.T, cloud(seed + 50, 1, 30)[0]
    weights = simplex_minimiser(gram, linear, tolerance=1e-9)
    gradient = gram @ weights - linear
    assert_allclose(weights.sum(), 1.0)
    assert weights.min() >= 0.0
    assert weights @ gradient - gradient.min() <= 1e-6


def test_one_pair_and_two_points_lose_nothing():
    search = PairSearch(*prepare_pairs(np.eye(4), np.array([[0, 1]]), rotate=True))
    result = minimax(Problem(search=search, k=2))
    assert result.distortion <= 1e-6


def test_a_fit_without_room_for_distances_is_as_good():
    rows = cloud(31, 160, 30) * 0.9 ** np.arange(30)
    roomy = fitted(rows, 4, n_restarts=0, tol=1e-3)
    tight = fitted(rows, 4, memory_limit=0, tol=1e-3)
    assert tight.lower_bound_ == pytest.approx(roomy.lower_bound_, rel=2e-3)
    assert tight.distortion_ <= 1.03 * roomy.distortion_
    assert tight.lower_bound_ <= tight.distortion_
    last = tight.history_[-1]
    assert last.relaxed <= last.lower_bound * (1 + 1e-3)
    verify(tight.certificate_, rows)


@pytest.mark.parametrize(
    ("k", "tol", "dear", "is_searched"),
    [
        (3, 1e-2, {}, True),
        (3, 1e-2, {"restart_pairs": 1}, False),
        (3, 1e-3, {"restart_pairs": 1}, True),
        (9, 1e-2, {}, True),
        (9, 1e-2, {"restart_pairs": 1}, False),
        (9, 1e-3, {"restart_pairs": 1}, True),
        (9, 1e-2, {"restart_pairs": 1, "coarse_far_start": 1.0}, True),
    ],
)
def test_further_searches_are_made_where_they_are_cheap_or_pay(
    k, tol, dear, is_searched
):
    # 7,140 pairs of isotropic points, whose relaxation is far from a projection.
    search = PairSearch(*prepare_pairs(cloud(7, 120, 12), rotate=True))
    settings = Settings(descent=DescentSettings(**dear))
    result = minimax(Problem(search=search, k=k, tol=tol), settings)
    phases = {step.phase for step in result.history}
    assert phases >= {"first projection", "bound", "polishing"}
    assert phases.isdisjoint({"search", "restarts"}) != is_searched


@pytest.mark.parametrize(("decay", "is_searched"), [(1.0, False), (0.6, True)])
def test_the_rounding_is_a_start_where_the_principal_axes_were_a_poor_one(
    decay, is_searched
):
    rows = cloud(7, 120, 16) * decay ** np.arange(16)
    search = PairSearch(*prepare_pairs(rows, rotate=True))
    result = minimax(Problem(search=search, k=9, tol=1e-2))
    fall = result.history[0].distortion / result.distortion
    assert (fall >= DescentSettings().coarse_far_start) == is_searched
    assert ("search" in {step.phase for step in result.history}) == is_searched


def test_rows_that_sat_out_join_a_stage_without_beginning_it_again(monkeypatch):
    secants, basis = working_set(15, 60, 12), random_basis(16, 12, 4)
    steps, rows, run = [], [], Stage.run

    def watched(stage, objective, start, memory):
        moved, n_steps = run(stage, objective, start, memory)
        steps.append(n_steps)
        rows.append(len(objective.secants))
        return moved, n_steps

    monkeypatch.setattr(Stage, "run", watched)
    # From a random basis, rows out of reach soon are the worst.
    settings = DescentSettings(margin=0.0, reach=1.0, burst=5, attempts=100)
    moved = descend(secants, basis, 0.005, settings=settings)
    assert len(steps) > 1
    assert rows[-1] > rows[0]
    assert sum(steps) <= Stage.of(0.005, settings).max_iter
    value = soft_maximum(losses(secants.images(moved)), 0.005)[0]
    assert value < soft_maximum(losses(secants.images(basis)), 0.005)[0]


def test_polishing_has_the_pairs_that_cooling_found(monkeypatch):
    cool, polish_best, cooled, polished = Sides.cool, Sides.polish, [], []

    def watched_cool(sides, known):
        cooled.append(cool(sides, known))
        return cooled[-1]

    def watched_polish(sides, known, bounds):
        polished.append(known)
        polish_best(sides, known, bounds)

    monkeypatch.setattr(Sides, "cool", watched_cool)
    monkeypatch.setattr(Sides, "polish", watched_polish)
    search = PairSearch(*prepare_pairs(cloud(7, 120, 12), rotate=True))
    minimax(Problem(search=search, k=3, tol=1e-2))
    assert len(cooled) == 1
    assert polished[0] is cooled[0]


def test_vain_starts_look_at_so_many_pairs_in_all():
    settings = DescentSettings(vain_pairs=60_000, patience=4, restart_pairs=200_000)
    pairs = [10_000, 20_000, 100_000, 200_001]
    assert [settings.restart_patience(n, 3) for n in pairs] == [4, 3, 1, 0]


def test_a_basis_of_many_pairs_is_shaken_only_where_local_optima_differ():
    fine = DescentSettings()
    coarse, many = fine.coarse(), fine.restart_pairs + 1
    assert coarse.restarts(many, 20, gain=0.0) == 0
    assert coarse.restarts(many, 20, gain=0.01) > 0
    assert coarse.restarts(fine.restart_pairs, 20, gain=0.0) > 0
    assert fine.restarts(many, 20, gain=0.0) > 0
    assert fine.restarts(fine.shaken_pairs + 1, 20, gain=0.01) == 0
