"""The loop: planted optima, weak duality, limits, and one answer from every door."""

import functools
import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from geometry import (
    THREE_LINES,
    brute_distortion,
    brute_losses,
    cloud,
    random_basis,
    seeds,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning

from isoproj import (
    GuaranteedPCA,
    NearIsometricProjection,
    distortion_curve,
    guarantee_frontier,
    verify,
)
from isoproj.numerics.progress import Step, watching
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.pairs.settings import PairSettings
from isoproj.proof.verify import check_claims
from isoproj.solvers.api import Clock, Journal, Problem, Status, Stopped
from isoproj.solvers.drive import drive
from isoproj.solvers.solve import solve

ROWS = cloud(2, 60, 20)
DATA = {
    "iris": np.unique(load_iris().data, axis=0),
    "wine": load_wine().data,
    "breast cancer": load_breast_cancer().data[:300],
    "normal": np.random.default_rng(0).standard_normal((13, 5)),
    "few points": cloud(1, 8, 6),
}


def fitted(rows, k, **options):
    return NearIsometricProjection(k, **{"random_state": 0, **options}).fit(rows)


def problem(rows, k, pairs="all", **options):
    limit = options.pop("limit", None)
    search = PairSearch(*prepare_pairs(rows, pairs, rotate=True))
    return Problem(search=search, k=k, journal=Journal(Clock(limit)), **options)


def measured(posed, basis):
    return 1.0 - float(posed.search.weakest(basis, 0.0).retained[0])


@pytest.fixture(scope="module")
def model():
    return fitted(ROWS, 4, tol=1e-3)


# The loop itself, with sides that do as they are told.


@dataclass
class Gap:
    """A goal whose gap the sides close; ``told`` are the phases of their steps."""

    open: float = 1.0
    enough: float = 0.0
    status: Status = Status.SETTLED
    journal: Journal = field(default_factory=lambda: Journal(Clock(None)))
    told: list = field(default_factory=list)

    @property
    def is_enough(self):
        return self.open <= self.enough

    def tell(self, phase, n_working):
        self.told.append(phase)


@dataclass
class Closing:
    """A side that closes given parts of the gap, at a cost, and is over then."""

    goal: Gap
    phase: str
    gains: list
    cost: float = 1.0
    rate: float = math.inf
    error: type | None = None

    @property
    def is_over(self):
        return not self.gains

    def step(self):
        gain = self.gains.pop(0)
        if gain is None:
            raise KeyboardInterrupt
        self.goal.open -= gain
        return self.cost, 1


def test_the_next_step_goes_to_the_side_that_closed_more_for_its_work():
    goal = Gap()
    one = Closing(goal, "one", [0.05, 0.05, 0.02, 0.01])
    other = Closing(goal, "other", [0.03, 0.03])
    assert drive(goal, [one, other]) is Status.SETTLED
    # 0.05 is more than 0.03, and 0.02 is less.
    assert goal.told == ["one", "other", "one", "one", "other", "one"]


def test_a_side_that_gains_more_for_more_work_waits():
    goal = Gap()
    dear = Closing(goal, "dear", [0.2, 0.2], cost=10.0)
    cheap = Closing(goal, "cheap", [0.1, 0.1, 0.1, 0.01])
    drive(goal, [dear, cheap])
    assert goal.told == ["dear", "cheap", "cheap", "cheap", "cheap", "dear"]


def test_the_loop_ends_at_a_gap_that_is_enough_though_sides_have_more():
    goal = Gap(enough=0.5, status=Status.CONVERGED)
    side = Closing(goal, "side", [0.3] * 9)
    assert drive(goal, [side]) is Status.CONVERGED
    assert len(side.gains) == 7


def test_every_whole_step_is_saved_and_an_interrupt_ends_the_loop():
    goal, saved = Gap(), []
    side = Closing(goal, "side", [0.1, 0.1, None, 0.1])
    status = drive(goal, [side], lambda: saved.append(len(goal.told)))
    assert status is Status.INTERRUPTED
    assert len(saved) == 2
    assert goal.open == pytest.approx(0.8)


def test_a_limit_ends_the_loop_and_what_it_cut_short_is_not_saved():
    class Limited(Gap):
        def tell(self, phase, n_working):
            raise Stopped(Status.TIME_LIMIT)

    goal, saved = Limited(journal=Journal(Clock(0.0))), []
    side = Closing(goal, "side", [0.1, 0.1])
    status = drive(goal, [side], lambda: saved.append(1))
    assert status is Status.TIME_LIMIT
    assert (saved, len(side.gains)) == ([], 1)


# Optima that are known.


@pytest.mark.parametrize(("d", "k"), [(4, 2), (8, 3), (12, 1)])
def test_orthonormal_directions_are_solved_to_optimality(d, k):
    found = fitted(np.eye(d), k, pairs="directions", tol=1e-7)
    assert found.distortion_ == pytest.approx(1.0 - k / d, abs=1e-6)
    assert found.lower_bound_ == pytest.approx(1.0 - k / d, abs=1e-6)
    assert found.status_ is Status.OPTIMAL


def test_three_lines_at_sixty_degrees_lose_three_quarters_and_no_less():
    # The relaxation proves one half; the hull proves the rest.
    found = fitted(THREE_LINES, 1, pairs="directions", tol=1e-5, n_restarts=0)
    assert found.distortion_ == pytest.approx(0.75, abs=1e-9)
    assert found.lower_bound_ == pytest.approx(0.75, abs=1e-9)
    assert found.status_ is Status.OPTIMAL


def test_a_tight_relaxation_is_recognised():
    # One direction is far longer: the best line is along it, and clearly so.
    rows = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 1.0], [10.0, 1.0], [5.0, 0.2]])
    found = solve(problem(rows, 1, np.array([[0, 1], [0, 3], [1, 2], [0, 4]])))
    assert found.distortion <= 1.001 * found.lower
    assert found.status in {Status.OPTIMAL, Status.CONVERGED}


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_projection_is_found(seed):
    # All points lie in four dimensions, but for noise a thousandth as large.
    plane = random_basis(seed, 12, 4)
    rows = cloud(seed, 50, 4) @ plane.T + 1e-3 * cloud(seed + 9, 50, 12)
    found = fitted(rows, 4, n_restarts=0)
    assert found.distortion_ <= brute_distortion(rows, plane.T) + 1e-9
    assert np.linalg.svd(found.components_ @ plane)[1].min() >= 1.0 - 1e-3


def test_one_pair_loses_nothing():
    result = solve(problem(np.eye(4), 2, np.array([[0, 1]])))
    assert result.distortion <= 1e-6


@pytest.mark.parametrize(("r", "d", "k"), [(20, 12, 2), (46, 60, 20)])
def test_it_beats_the_papers_algorithm_and_proves_it(r, d, k):
    rows = cloud(0, r, d) * np.linspace(3.0, 0.3, d)
    ours = fitted(rows, k, n_restarts=0)
    paper = fitted(rows, k, solver="dual_ascent")
    assert ours.distortion_ < paper.distortion_
    assert ours.lower_bound_ >= paper.lower_bound_ - 1e-3
    verify(ours.certificate_, rows)


@pytest.mark.parametrize("seed", [0, 2, 5])
def test_features_of_mixed_scales_are_bounded_too(seed):
    scales = 10.0 ** np.random.default_rng(50 + seed).uniform(-2, 3, 15)
    rows = np.random.default_rng(seed).standard_normal((200, 15)) * scales
    found = fitted(rows, 8, n_restarts=0)
    assert found.distortion_ <= 2.0 * found.lower_bound_


# Bounds hold, whatever the data.


@given(
    seeds,
    st.integers(3, 14),
    st.integers(2, 6),
    st.sampled_from([1e-3, 1.0, 1e3]),
    st.sampled_from([1e-3, 0.1, 2.0]),
)
@settings(max_examples=15)
def test_no_projection_loses_less_than_the_bound(seed, n_points, d, spread, tol):
    rows = cloud(seed, n_points, d) * np.geomspace(1.0, spread, d)
    posed = problem(rows, 1 + seed % d, tol=tol, seed=seed % 97, n_restarts=0)
    result = solve(posed)
    assert 0.0 <= result.lower <= result.distortion + 1e-9
    assert measured(posed, result.basis) == pytest.approx(result.distortion, abs=1e-7)
    gram = result.basis.T @ result.basis
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-9)
    n_dims, k = result.basis.shape
    for other in range(30):
        lost = measured(posed, random_basis(other, n_dims, k))
        assert lost >= result.lower - 1e-9


def test_each_round_is_at_least_as_good_as_the_last(model):
    history = model.history_
    assert len(history) >= 3
    assert (np.diff([s.distortion for s in history]) <= 0.0).all()
    assert (np.diff([s.lower_bound for s in history]) >= 0.0).all()
    assert (np.diff([s.seconds for s in history]) >= 0.0).all()
    assert {step.phase for step in history} >= {"first projection", "bound", "search"}


def test_what_the_last_round_says_is_what_is_certified(model):
    last = model.history_[-1]
    assert last.distortion == pytest.approx(model.distortion_, abs=1e-6)
    assert last.lower_bound == pytest.approx(model.lower_bound_, abs=1e-9)
    assert brute_distortion(ROWS, model.components_) == pytest.approx(
        model.distortion_, abs=1e-9
    )


# The same answer, or one as good.


def test_the_same_seed_gives_the_same_bits(model):
    again = fitted(ROWS, 4, tol=1e-3)
    assert (again.components_ == model.components_).all()
    assert again.lower_bound_ == model.lower_bound_
    assert len(again.history_) == len(model.history_)


def spread_over(name, k, n_seeds):
    rows = DATA[name]
    found = [solve(problem(rows, k, tol=1e-2, seed=s)) for s in range(n_seeds)]
    lost = np.array([result.distortion for result in found])
    return float(lost.max() / lost.min() - 1.0)


@pytest.mark.parametrize(("name", "k"), [("wine", 3), ("normal", 2)])
def test_every_seed_finds_the_same_distortion(name, k):
    assert spread_over(name, k, 3) <= 5e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "k"),
    [
        ("iris", 2),
        ("wine", 2),
        ("wine", 3),
        ("wine", 5),
        ("breast cancer", 3),
        ("breast cancer", 6),
        ("normal", 1),
        ("normal", 2),
        ("normal", 3),
        ("few points", 3),
    ],
)
def test_ten_seeds_find_the_same_distortion(name, k):
    assert spread_over(name, k, 10) <= 5e-3


@functools.cache
def fit_of(name, k):
    return fitted(DATA[name], k)


@functools.cache
def curve_of(name):
    return distortion_curve(DATA[name], [2, 3], random_state=0)


@functools.cache
def nested_of(name):
    return fitted(DATA[name], 3, nested=(2,), n_restarts=0)


def by_checkpoint(name, k, path):
    found = fitted(DATA[name], k, checkpoint=path / "run.isoproj")
    return found.distortion_, found.lower_bound_


def by_curve(name, k, _path):
    curve = curve_of(name)
    return curve.distortion[k - 2], curve.lower_bound[k - 2]


def by_guaranteed_pca(name, k, _path):
    found = GuaranteedPCA(k, slack=0.1, random_state=0).fit(DATA[name])
    # The least distortion that it found, before slack.
    return found.max_distortion_ / 1.1, found.lower_bound_


def by_frontier(name, k, _path):
    frontier = guarantee_frontier(DATA[name], k, 2, random_state=0)
    return frontier.distortion[0], frontier.lower_bound


def by_nested(name, k, _path):
    # A prefix is a compromise: its bound is that of a projection of its own.
    return 0.0, nested_of(name).certificates_[k].lower_bound


DOORS = [by_checkpoint, by_curve, by_guaranteed_pca, by_frontier, by_nested]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(("name", "k"), [("iris", 2), ("iris", 3), ("wine", 2)])
def test_every_door_says_what_a_fit_says(door, name, k, tmp_path):
    alone = fit_of(name, k)
    distortion, bound = door(name, k, tmp_path)
    assert distortion <= 1.005 * min(1.0, alone.distortion_)
    assert bound >= alone.lower_bound_ * (1.0 - alone.tol)
    assert bound <= alone.distortion_ + 1e-9
    if door is by_checkpoint:
        assert (distortion, bound) == (alone.distortion_, alone.lower_bound_)


def test_iris_is_proved_optimal_in_three_dimensions_and_close_in_two():
    assert fit_of("iris", 3).status_ is Status.OPTIMAL
    assert fit_of("iris", 2).lower_bound_ >= 0.95


def test_a_fit_without_room_for_distances_is_as_good():
    rows = cloud(31, 160, 30) * 0.9 ** np.arange(30)
    roomy, tight = (fitted(rows, 4, memory_limit=limit) for limit in (2e9, 0))
    assert tight.lower_bound_ == pytest.approx(roomy.lower_bound_, rel=1e-2)
    assert tight.distortion_ <= 1.02 * roomy.distortion_
    verify(tight.certificate_, rows)


# Limits, interrupts, starts.


def test_a_time_limit_leaves_a_valid_looser_certificate():
    rows = cloud(4, 80, 60)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        found = fitted(rows, 8, time_limit=1e-9)
    assert found.status_ is Status.TIME_LIMIT
    verify(found.certificate_, rows)


def test_few_rounds_are_said_to_be_few():
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        found = fitted(cloud(5, 40, 20), 3, max_iter=2)
    assert found.status_ is Status.MAX_ITER
    assert (found.n_iter_, len(found.history_)) == (1, 2)


@pytest.mark.parametrize("iteration", [0, 3, 20])
def test_an_interrupt_returns_the_best_certified_answer(iteration):
    def interrupt(step):
        if step.iteration == iteration:
            raise KeyboardInterrupt

    with (
        watching(interrupt, Step),
        pytest.warns(ConvergenceWarning, match="interrupted"),
    ):
        found = fitted(ROWS, 5)
    assert found.status_ is Status.INTERRUPTED
    assert len(found.history_) == iteration + 1
    assert found.history_[-1].distortion == pytest.approx(found.distortion_, abs=1e-6)
    assert all(claim.holds for claim in check_claims(found.certificate_, ROWS))


def test_a_given_basis_is_never_made_worse(model):
    again = fitted(ROWS, 4, n_restarts=0, init=model.components_)
    assert again.distortion_ <= model.distortion_ + 1e-9


def test_a_long_start_seems_no_better_than_it_is():
    start = 5.0 * random_basis(1, 8, 3)
    posed = problem(cloud(0, 60, 8), 3, start=start, n_restarts=0)
    result = solve(posed)
    np.testing.assert_allclose(result.basis.T @ result.basis, np.eye(3), atol=1e-9)
    assert result.history[0].distortion == pytest.approx(measured(posed, start / 5.0))
    assert result.distortion == pytest.approx(measured(posed, result.basis), abs=1e-9)


def test_a_warm_start_goes_on_from_the_last_fit():
    rows = cloud(8, 24, 10)
    found = fitted(rows, 3, warm_start=True, n_restarts=0, tol=0.3)
    before = found.distortion_
    assert found.fit(rows).distortion_ <= before + 1e-6
    more = np.vstack([rows, cloud(9, 5, 10)])
    assert found.set_params(n_components=5).fit(more).distortion_ < before
    fewer = found.set_params(n_components=2).fit(rows[:10])
    verify(fewer.certificate_, rows[:10])


def test_under_a_cap_the_loop_ends_once_the_question_is_answered():
    rows = ROWS[:30]
    free = solve(problem(rows, 6, tol=1e-3, n_restarts=0))
    above, below = free.distortion + 0.05, free.lower - 0.05
    yes = solve(problem(rows, 6, tol=1e-3, cap=above))
    no = solve(problem(rows, 6, tol=1e-3, cap=below))
    assert yes.distortion <= above
    assert no.lower > below
    assert max(len(yes.history), len(no.history)) < len(free.history)
    pairs, losses = brute_losses(rows, np.eye(20)[:6])
    assert losses.max() >= no.lower
    assert len(pairs) == 435


@pytest.mark.parametrize("memory_limit", [2e9, 0.0], ids=["kept", "by cells"])
@pytest.mark.parametrize(("shape", "k"), [((400, 12), 6), ((600, 40), 12)])
def test_points_too_many_to_smooth_lead_to_as_good_a_basis(shape, k, memory_limit):
    points, pairs = prepare_pairs(
        cloud(3, *shape) * np.arange(1, shape[1] + 1) ** -0.3, rotate=True
    )
    large = PairSettings(most_smoothed=0, few_pairs=0)
    usual, found = (
        solve(Problem(search=PairSearch(points, pairs, **options), k=k))
        for options in ({}, {"settings": large, "memory_limit": memory_limit})
    )
    assert found.distortion <= 1.01 * usual.distortion
    assert found.lower >= 0.99 * usual.lower
