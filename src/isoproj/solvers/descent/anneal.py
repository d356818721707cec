"""Local search on a growing working set: cooling, then polishing.

``anneal`` descends at falling temperature and grows the set until the worst pair
overall is inside. ``polish`` alternates exact programmes on the tight pairs with
searches of all pairs, which removes what smoothing left. What is minimised
(``Merit``), how it is cooled (``Ladder``) and when a result is good enough
(``Incumbent``) are data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from isoproj.numerics.spectral import Array
from isoproj.solvers.api import Clock
from isoproj.solvers.descent.grassmann import Stage, cooled, descend
from isoproj.solvers.descent.merit import Merit, Worst
from isoproj.solvers.descent.objectives import OnAllPairs
from isoproj.solvers.descent.sqp import finish
from isoproj.solvers.descent.working_set import WorkingSet
from isoproj.solvers.settings import DescentSettings, Ladder

__all__ = ["Incumbent", "Pace", "Review", "anneal", "polish"]


@dataclass(frozen=True, slots=True, eq=False)
class Review:
    """What to do after a round of polishing.

    Parameters
    ----------
    is_settled : bool
        Whether polishing has ended.
    start : ndarray of shape (n_dims, k)
        Basis of the next round.
    merit : Merit
        Merit of the next round.
    is_reheated : bool
        Whether to descend from ``start`` before the next programme.
    """

    is_settled: bool
    start: Array
    merit: Merit
    is_reheated: bool = False


@dataclass(slots=True, eq=False)
class Pace:
    """What the best search so far had reached at each temperature.

    A search that lags behind leads to no better basis, as experience shows, and is
    given up: the less patiently, the colder.
    """

    best: tuple[float, ...]
    lags: tuple[float, ...]
    own: list[float] = field(default_factory=list)

    def falls_behind(self, distortion: float) -> bool:
        """Add what a temperature has reached; return whether to give up."""
        number = len(self.own)
        self.own.append(distortion)
        if number >= min(len(self.best), len(self.lags)):
            return False
        return distortion > self.best[number] * (1.0 + self.lags[number])


class Incumbent(Protocol):
    """The best basis so far, and when it is good enough."""

    @property
    def clock(self) -> Clock:
        """Time used and allowed."""

    @property
    def distortion(self) -> float:
        """What the best basis loses over all pairs."""

    @property
    def is_content(self) -> bool:
        """Whether nothing is left to do."""

    def see(self, basis: Array, distortion: float) -> bool:
        """Keep a basis if it is the best so far; return whether it is."""

    def tell(self, n_working: int) -> None:
        """Record a round; raise ``Stopped`` when a limit has passed."""

    def review(
        self, basis: Array, excess: float, distortion: float, merit: Merit
    ) -> Review:
        """See a polished basis and decide how polishing goes on."""


def anneal(
    known: WorkingSet,
    basis: Array,
    ladder: Ladder,
    incumbent: Incumbent,
    *,
    merit: Merit | None = None,
    pace: Pace | None = None,
    settings: DescentSettings,
    lost: float = math.inf,
) -> Array:
    """Cool down, growing the set at each temperature; return the last basis.

    ``lost`` is what the start loses over all pairs, where that is known: a cold move
    that overlooked pairs is then taken back at once. Settings are shares of a loss if
    the ladder's temperatures are.

    A stage sees all pairs at once where their number allows that: a working set misses
    those that matter after the next move. Once few pairs are within reach of the worst,
    these are in the set, and the colder stages see only them, until one of them was
    blind to a pair that mattered.
    """
    merit = Worst() if merit is None else merit
    search, worst = known.search, lost
    is_listed = known.complete_at is basis
    few = settings.few(search, basis.shape[1])
    clock, steps, own = incumbent.clock, ladder, settings
    for number in range(len(ladder.temperatures)):
        if ladder.is_relative:
            steps = ladder.times(settings.scale(incumbent.distortion))
            own = settings.at(incumbent.distortion)
        temperature, colder = (*steps.temperatures, 0.0)[number : number + 2]
        slack = 2.0 * temperature + own.near
        reach = own.reaches(colder)
        for _ in range(steps.tries):
            is_warm = temperature >= own.coldest_of(search)
            is_seeing = is_warm and not is_listed
            sees_all = is_seeing and not search.is_sampled
            # The colder stages gain most: time for them is left over.
            own_time = clock.piece(settings.stage_share) if colder else clock.lenient
            stage = Stage.of(temperature, own, own_time, is_loose=steps.is_loose)
            if is_seeing:
                moved = _seeing(known, basis, merit, stage)
            else:
                moved = _blind(known, basis, merit, stage, own)
            excess, overall = known.grow(
                moved, slack, cap=merit.cap, reach=reach, few=few
            )
            incumbent.see(moved, overall)
            is_seen = sees_all or excess < steps.patience * temperature
            # Blind to the pairs just added, a cold move may be a step back.
            is_careful = is_seeing or temperature <= steps.careful_below
            if is_seen or overall < worst or not is_careful:
                basis, worst = moved, overall
            is_listed = is_seen and known.complete_at is basis
            incumbent.tell(known.size)
            if incumbent.is_content:
                return basis
            if is_seen or clock.is_over:
                break
        if clock.is_over or (pace is not None and pace.falls_behind(overall)):
            break
    return basis


def _seeing(known: WorkingSet, basis: Array, merit: Merit, stage: Stage) -> Array:
    """Descend at one temperature on all pairs at once, or a sample and the set."""
    pairs = known.search.smoothed
    some = known.pairs_alone(pairs.dtype.type) if known.search.is_sampled else None
    objective = OnAllPairs(pairs, merit, stage.temperature, known.further, some)
    return cooled(objective, basis, stage)


def _blind(
    known: WorkingSet,
    basis: Array,
    merit: Merit,
    stage: Stage,
    settings: DescentSettings,
) -> Array:
    """Descend at one temperature on the set alone."""
    return descend(
        known.secants,
        basis,
        stage.temperature,
        merit=merit,
        settings=settings,
        stage=stage,
    )


def polish(
    known: WorkingSet,
    basis: Array,
    incumbent: Incumbent,
    *,
    merit: Merit | None = None,
    rounds: int,
    temperature: float,
    settings: DescentSettings,
) -> Array | None:
    """Polish a basis; return the last one if rounds ran out before it settled."""
    merit = Worst() if merit is None else merit
    programmes = settings.programmes if basis.size <= settings.small_basis else 1
    for left in reversed(range(rounds)):
        moved = finish(
            known.secants, basis, merit=merit, max_iter=programmes, settings=settings
        )
        excess, overall = known.grow(moved, settings.near, cap=merit.cap)
        review = incumbent.review(moved, excess, overall, merit)
        incumbent.tell(known.size)
        if review.is_settled:
            return None
        merit, basis = review.merit, review.start
        # After the last round nothing would look at what this finds.
        if review.is_reheated and left:
            stage = Stage.of(temperature, settings, incumbent.clock)
            basis = _blind(known, basis, merit, stage, settings)
    return basis
