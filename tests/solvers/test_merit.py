from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud, random_basis
from numpy.testing import assert_allclose

from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.pairs.smoothed import SmoothedWorst
from isoproj.solvers.api import Clock
from isoproj.solvers.descent.anneal import Pace, anneal
from isoproj.solvers.descent.grassmann import descend
from isoproj.solvers.descent.merit import Capped, Worst
from isoproj.solvers.descent.objectives import soft_maximum
from isoproj.solvers.descent.working_set import WorkingSet
from isoproj.solvers.settings import DescentSettings, Ladder, Settings

MERITS = [Worst(), Capped(cap=0.4, price=0.3, n_further=2)]


@pytest.mark.parametrize("merit", MERITS)
def test_the_weights_of_a_merit_are_its_gradient(merit):
    values, temperature = np.random.default_rng(0).uniform(0.2, 0.9, 9), 0.05

    def smoothed(at):
        return soft_maximum(merit.values(at), temperature)

    weights = merit.weights(smoothed(values)[1])
    for at in range(values.size):
        step = np.zeros(values.size)
        step[at] = 1e-6
        slope = (smoothed(values + step)[0] - smoothed(values - step)[0]) / 2e-6
        assert_allclose(weights[at], slope, atol=1e-6)


def test_a_penalty_below_the_cap_is_the_price_alone():
    merit = Capped(cap=0.5, price=0.25, n_further=1)
    under = np.array([0.1, 0.3, 0.8])
    assert merit.values(under).max() == pytest.approx(0.25 * 0.8)
    over = np.array([0.1, 0.7, 0.8])
    assert merit.values(over).max() == pytest.approx(0.25 * 0.8 + 0.2)


def test_the_last_stages_of_a_ladder_are_its_coldest():
    ladder = Settings().descent.ladder
    assert ladder.last(2).temperatures == ladder.temperatures[-2:]
    assert ladder.last(2).tries == ladder.tries
    assert list(ladder.temperatures) == sorted(ladder.temperatures, reverse=True)
    eased = ladder.last(1).eased(1.5)
    assert eased.temperatures == (
        1.5 * ladder.temperatures[-1],
        ladder.temperatures[-1],
    )


class Watched:
    """An incumbent that keeps every basis it is shown."""

    def __init__(self, enough):
        self.enough, self.seen, self.told = enough, [], 0
        self.clock = Clock(None)

    @property
    def is_content(self):
        return min(self.seen) <= self.enough

    @property
    def distortion(self):
        return min(self.seen, default=1.0)

    def see(self, basis, distortion):
        self.seen.append(distortion)
        return distortion == min(self.seen)

    def tell(self, n_working):
        self.told += 1


def known_pairs(rows, count=10**6):
    """Return a working set of all pairs, or of some random ones."""
    search = PairSearch(*prepare_pairs(rows, rotate=True))
    return WorkingSet(search, search.sample(count, np.random.default_rng(0)))


def test_annealing_ends_as_soon_as_the_incumbent_is_content():
    known, start = known_pairs(cloud(0, 12, 6)), random_basis(1, 6, 2)
    ladder = Ladder(temperatures=(0.05, 0.01, 0.002), tries=1)
    settings = Settings().descent
    patient = Watched(enough=0.0)
    anneal(known, start, ladder, patient, settings=settings)
    assert patient.told == 3
    content = Watched(enough=1.0)
    anneal(known, start, ladder, content, settings=settings)
    assert content.told == 1


def test_relative_temperatures_are_shares_of_what_the_best_basis_loses(monkeypatch):
    told = []

    def watched(secants, basis, temperature, **options):
        told.append(temperature)
        return descend(secants, basis, temperature, **options)

    monkeypatch.setattr("isoproj.solvers.descent.anneal.descend", watched)
    known, start = known_pairs(cloud(0, 12, 6)), random_basis(1, 6, 4)
    ladder = Ladder(temperatures=(0.05, 0.01, 0.002), tries=1, is_relative=True)
    watch = Watched(enough=0.0)
    settings = Settings().descent
    anneal(known, start, ladder, watch, settings=settings)
    least = np.minimum.accumulate([1.0, *watch.seen[:-1]])
    assert least[-1] < 0.9
    assert_allclose(told, ladder.temperatures * least)


def test_a_cold_move_that_overlooked_pairs_is_taken_back():
    known = known_pairs(cloud(0, 40, 6), 3)
    ladder = Ladder(temperatures=(0.001,), tries=1, careful_below=1.0)
    settings = Settings().descent
    whole = known_pairs(cloud(0, 40, 6))
    start = anneal(whole, np.eye(6, 2), ladder, Watched(enough=0.0), settings=settings)
    lost = float(whole.losses(start).max())
    # Three pairs are no guide to all.
    moved = anneal(known, start, ladder, Watched(enough=0.0), settings=settings)
    assert whole.losses(moved).max() > lost
    known = known_pairs(cloud(0, 40, 6), 3)
    watch = Watched(enough=0.0)
    kept = anneal(known, start, ladder, watch, settings=settings, lost=lost)
    assert watch.seen[0] > lost
    assert kept is start


def test_annealing_ends_with_its_clock():
    known, start = known_pairs(cloud(0, 12, 6)), random_basis(1, 6, 2)
    ladder, watch = Ladder(temperatures=(0.05, 0.01), tries=3), Watched(enough=0.0)
    watch.clock = Clock(-1.0)
    anneal(known, start, ladder, watch, settings=Settings().descent)
    assert watch.told == 1
    assert_allclose(watch.seen, known.losses(start).max(), atol=0.02)


def test_few_pairs_within_reach_are_all_added():
    known, basis = known_pairs(cloud(0, 40, 6), 20), random_basis(1, 6, 2)
    lost = known_pairs(cloud(0, 40, 6)).losses(basis)
    worst = known.losses(basis).max()
    within = np.count_nonzero(lost > worst - 0.2)
    assert 20 < within < lost.size
    known.grow(basis, 1e-3, reach=0.2, few=within - 1)
    assert known.complete_at is None
    assert np.count_nonzero(known.losses(basis) > worst - 0.2) < within
    known.grow(basis, 1e-3, reach=lost.max() - worst + 0.2, few=within)
    assert known.complete_at is basis
    assert np.count_nonzero(known.losses(basis) > worst - 0.2) == within


def test_cold_stages_see_the_pairs_within_reach_alone(monkeypatch):
    seen = []
    whole = SmoothedWorst.__call__

    def watched(self, factor, temperature):
        seen.append(temperature)
        return whole(self, factor, temperature)

    monkeypatch.setattr(SmoothedWorst, "__call__", watched)
    rows = cloud(0, 200, 6) * 2.0 ** -np.arange(6)
    ladder = Ladder(temperatures=(0.05, 0.02, 0.005, 0.001), tries=2)
    ends = []
    for listed in (1, 10**6):
        settings = DescentSettings(listed=listed, few_pairs=100)
        known, watch = known_pairs(rows, 500), Watched(enough=0.0)
        anneal(known, np.eye(6, 2), ladder, watch, settings=settings)
        ends.append((watch.seen[-1], min(seen)))
        seen.clear()
    (some, coldest), (every, coldest_of_all) = ends
    assert coldest > coldest_of_all == 0.001
    # Where nothing was overlooked, both minimise the same function.
    assert some == pytest.approx(every, abs=0.01)


def test_a_search_that_lags_is_given_up_and_one_that_leads_is_not():
    pace = Pace(best=(0.9, 0.8), lags=(0.05, 0.0))
    assert not pace.falls_behind(0.94)
    assert pace.falls_behind(0.801)
    assert pace.own == [0.94, 0.801]
    ahead = Pace(best=(0.9, 0.8), lags=(0.05, 0.0))
    assert not any(ahead.falls_behind(loss) for loss in (0.9, 0.8, 1.0))
    alone = Pace(best=(), lags=(0.0, 0.0))
    assert not any(alone.falls_behind(loss) for loss in (1.0, 1.0))


def test_annealing_ends_where_the_search_falls_behind():
    known, start = known_pairs(cloud(0, 12, 6)), random_basis(1, 6, 2)
    ladder = Ladder(temperatures=(0.05, 0.01, 0.002), tries=1)
    watched, pace = Watched(enough=0.0), Pace(best=(1.0, 1e-6), lags=(0.05, 0.02))
    anneal(known, start, ladder, watched, pace=pace, settings=Settings().descent)
    assert watched.told == 2


@pytest.mark.parametrize("loss", [-1e-12, 0.0, 1e-9, 0.02, 0.5, 2.0])
def test_temperatures_are_shares_of_the_loss_and_never_zero(loss):
    usual = DescentSettings()
    scaled = usual.at(loss)
    temperatures = np.array(scaled.ladder.temperatures)
    assert (temperatures > 0.0).all()
    ratio = temperatures / np.array(usual.ladder.temperatures)
    np.testing.assert_allclose(ratio, min(1.0, max(loss, usual.least_loss)))
