"""Every tuning figure of the solvers, with its meaning and its unit.

None of them affects what is proved: bounds are recomputed from the result. Losses,
slacks and gaps are shares of squared length, between 0 and 1, unless said otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from isoproj.pairs.oracle import PairSearch

__all__ = [
    "CapSettings",
    "CurveSettings",
    "DescentSettings",
    "HullSettings",
    "Ladder",
    "MultiplierSettings",
    "PoolSettings",
    "RelaxationSettings",
    "Settings",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """A schedule of descent at falling temperature.

    Parameters
    ----------
    temperatures : tuple of float
        Smoothing of the maximum at each stage, as a loss.
    tries : int
        Moves at one temperature, each with the pairs that the last one overlooked.
    patience : float
        A stage ends once no pair outside the working set exceeds the worst one inside
        by this many temperatures.
    careful_below : float
        At temperatures below this, a move that overlooked pairs is taken back unless
        it is better over all pairs.
    is_loose : bool
        Whether every stage stops early and runs in single precision.
    is_relative : bool
        Whether temperatures are shares of what the best basis loses when a stage
        begins: the first stages may lower that much.
    """

    temperatures: tuple[float, ...]
    tries: int
    patience: float = 1.0
    careful_below: float = 0.0
    is_loose: bool = False
    is_relative: bool = False

    def times(self, scale: float) -> Ladder:
        """Return the ladder with all temperatures multiplied: no longer shares."""
        temperatures = tuple(scale * each for each in self.temperatures)
        careful = scale * self.careful_below
        return replace(
            self, temperatures=temperatures, careful_below=careful, is_relative=False
        )

    def eased(self, factor: float) -> Ladder:
        """Return the ladder with a stage before the first, hotter by a factor."""
        temperatures = (factor * self.temperatures[0], *self.temperatures)
        return replace(self, temperatures=temperatures)

    def first(self, count: int) -> Ladder:
        """Return the ladder without so many of its coldest stages."""
        return replace(self, temperatures=self.temperatures[:-count])

    def last(self, count: int) -> Ladder:
        """Return the ladder's coldest stages alone."""
        return replace(self, temperatures=self.temperatures[-count:])


@dataclass(frozen=True, slots=True, kw_only=True)
class DescentSettings:
    """Local search for a basis.

    Parameters
    ----------
    ladder, warm_ladder : Ladder
        From any start, and from a solution of nearly the same problem.
    cold_stages, given_stages : int
        Coldest stages of a ladder that only the best basis gets, and that a start near
        an optimum gets.
    easing : float
        Where points are many, a stage hotter by this factor comes before the coldest:
        straight away that one is blind to pairs outside the sample.
    near : float
        Pairs this close to the worst one are added to the working set.
    excess : float
        A pair outside the working set may be this much worse than the worst inside.
    gain, coarse_gain : float
        Polishing ends when a round gains less, where ``tol`` is fine and where it is
        not.
    coarse_hot : float
        ``hot`` where ``tol`` is not fine.
    rounds, programmes : int
        Rounds of polishing, and quadratic programmes in each, for a small basis.
    blind_rounds, coarse_blind_rounds : int
        Rounds of polishing, one after another, that may gain nothing because they
        overlooked pairs, where ``tol`` is fine and where it is not.
    small_basis : int
        Entries of a basis up to which polishing takes more than one round: a programme
        costs the number of tight pairs squared times the entries of the basis.
    few_pairs : int
        Up to this many pairs, all of them are in the working set.
    largest_set, largest_sampled : int
        Most pairs in a working set; the second where points are many.
    batch, batch_sampled : tuple of int, int
        Fewest and most pairs that a search may add, and the product of ``k`` and the
        number in between. Small ``k`` leave more pairs near the worst. Where points are
        many a search is dear, and adds more.
    hot, single : float
        Temperatures above which a stage stops early, and runs in single precision.
    steps, loose_steps : int
        Most quasi-Newton steps of a stage, and of one that stops early.
    tolerance, loose_tolerance : float
        A stage ends when a step gains less than this multiple of the temperature.
    reach, margin : float
        Rows sit a stage out whose loss is this many temperatures, plus the margin,
        below the worst.
    stage_share : float
        Share of the time left that a stage may take if colder ones follow.
    burst, attempts : int, int
        Steps after which rows that sat out are looked at, and bursts that may overlook
        some before all rows count.
    listed : int
        A stage sees only the pairs within reach where all pairs, those of a sample
        where points are many, are more by this factor times ``k``. Then these are
        cheaper, although they are visited one by one.
    band, coarse_band, band_share : float
        Losses this close to the worst enter a quadratic programme, where ``tol`` is
        fine and where it is not; at most this share of the worst.
    programme_rows, coarse_programme_rows : int
        Most directions in a quadratic programme, where ``tol`` is fine and where it is
        not: its cost grows with their cube, what it gains does not grow with them.
    is_partial : bool
        Whether a programme is tried that cannot hold all tight pairs. It seldom gains.
    predicted : float
        Polishing ends when a programme predicts a smaller decrease.
    n_drawn : int
        Random bases of which the best are starts.
    n_restarts, restart_pairs, restart_k : int
        Random starts, where pairs and dimensions are at most this many: local optima
        differ most there, and a search is cheap.
    n_shaken, shaken_pairs, shake : int, int, float
        In more dimensions the best basis is shaken so often, by this angle in radians,
        as long as that looks at so many pairs in all.
    shaken_gain, coarse_shaken_gain : float
        Where pairs are more than ``restart_pairs``, that is tried only if a search from
        the rounding lowered the worst loss by this share, a sign that local optima
        differ; where ``tol`` is fine and where it is not.
    far_start, coarse_far_start : float
        The relaxation's rounding is a start where the principal axes lose this many
        times what a search from them has found; where ``tol`` is fine and where it is
        not.
    lags : tuple of float
        A search is given up whose worst loss, at one of the first temperatures, is by
        more than this share above that of the best search there.
    restart_gain : float
        A start that lowers the worst loss by less than this share gains nothing.
    vain_pairs, patience : int
        Random starts in a row may gain nothing as long as they look at no more pairs in
        all than this; at most so many and, up to ``restart_pairs`` pairs, at least one.
    shaken_patience, coarse_shaken_patience : int
        Shaken starts in a row that may gain nothing, up to ``restart_pairs`` pairs;
        where ``tol`` is fine and where it is not.
    warm_batches : int
        Batches of pairs to begin with from a solution of nearly the same problem.
    least_loss : float
        Smaller losses are searched like this one.
    coldest, coldest_sampled : float
        Temperatures down to which stages see all pairs at once, and those of a sample
        of points.
    """

    ladder: Ladder = field(
        default=Ladder(
            temperatures=(0.05, 0.02, 0.008, 0.003, 0.001, 0.0003, 0.0001),
            tries=6,
            careful_below=0.01,
        )
    )
    warm_ladder: Ladder = field(
        default=Ladder(
            temperatures=(0.02, 0.006, 0.002, 0.0006, 0.0002, 0.0001),
            tries=6,
            careful_below=0.01,
        )
    )
    cold_stages: int = 1
    given_stages: int = 3
    easing: float = 1.8
    near: float = 0.005
    excess: float = 1e-5
    gain: float = 2e-5
    coarse_gain: float = 5e-4
    coarse_hot: float = 5e-4
    rounds: int = 8
    programmes: int = 3
    blind_rounds: int = 4
    coarse_blind_rounds: int = 1
    small_basis: int = 9_000
    few_pairs: int = 6_000
    largest_set: int = 40_000
    largest_sampled: int = 80_000
    batch: tuple[int, int, int] = (2_000, 4_000, 20_000)
    batch_sampled: int = 20_000
    hot: float = 0.002
    single: float = 3e-5
    steps: int = 100
    loose_steps: int = 40
    tolerance: float = 0.002
    loose_tolerance: float = 0.01
    reach: float = 20.0
    margin: float = 0.02
    stage_share: float = 0.55
    burst: int = 30
    attempts: int = 2
    listed: int = 8
    band: float = 0.005
    coarse_band: float = 0.003
    band_share: float = 0.1
    programme_rows: int = 1_200
    coarse_programme_rows: int = 500
    is_partial: bool = True
    predicted: float = 1e-7
    n_drawn: int = 200
    n_restarts: int = 6
    lags: tuple[float, ...] = (0.05, 0.02, 0.003, 0.0)
    restart_gain: float = 1e-3
    vain_pairs: int = 100_000
    patience: int = 6
    restart_pairs: int = 200_000
    restart_k: int = 7
    n_shaken: int = 4
    far_start: float = 0.0
    coarse_far_start: float = 1.7
    shaken_pairs: int = 2_000_000
    shaken_patience: int = 1
    coarse_shaken_patience: int = 0
    shaken_gain: float = 0.0
    coarse_shaken_gain: float = 1e-3
    shake: float = 0.2
    warm_batches: int = 3
    least_loss: float = 1e-6
    coldest: float = 5e-5
    coldest_sampled: float = 1e-4

    def coldest_of(self, search: PairSearch) -> float:
        """Return the temperature down to which stages see all pairs at once."""
        if search.n_pairs <= self.few_pairs or not search.has_smoothed:
            return math.inf
        return self.coldest_sampled if search.is_sampled else self.coldest

    def reaches(self, temperature: float) -> float:
        """Return how far below the worst loss a pair matters at a temperature."""
        return self.reach * temperature + self.margin

    def few(self, search: PairSearch, k: int) -> int:
        """Return how many pairs are cheaper than all pairs at once."""
        if search.is_slow or math.isinf(self.coldest_of(search)):
            return 0
        return min(self.largest_set, search.n_smoothed // (self.listed * k))

    def coarse(self) -> DescentSettings:
        """Return figures for a search that need not find the last digits."""
        return replace(
            self,
            ladder=replace(self.ladder, temperatures=self.ladder.temperatures[:-1]),
            hot=self.coarse_hot,
            gain=self.coarse_gain,
            band=self.coarse_band,
            programme_rows=self.coarse_programme_rows,
            programmes=1,
            blind_rounds=self.coarse_blind_rounds,
            is_partial=False,
            far_start=self.coarse_far_start,
            shaken_patience=self.coarse_shaken_patience,
            shaken_gain=self.coarse_shaken_gain,
        )

    def scale(self, loss: float) -> float:
        """Return what shares of a worst loss are shares of."""
        return min(1.0, max(loss, self.least_loss))

    def at(self, loss: float) -> DescentSettings:
        """Return figures for a worst loss: temperatures are shares of it."""
        scale = self.scale(loss)
        return replace(
            self,
            ladder=self.ladder.times(scale),
            hot=scale * self.hot,
            near=scale * self.near,
            band=min(self.band, scale * self.band_share),
            margin=scale * self.margin,
            gain=scale * self.gain,
            excess=scale * self.excess,
        )

    def restarts(self, n_pairs: int, k: int, gain: float) -> int:
        """Return how many further starts are cheap, or may pay.

        ``gain`` is the share by which the search from the rounding lowered the loss.
        """
        if k <= self.restart_k:
            return self.n_restarts if self.is_cheap(n_pairs) else 0
        if gain < self.shaken_gain and not self.is_cheap(n_pairs):
            return 0
        return min(self.n_shaken, self.shaken_pairs // n_pairs)

    def is_cheap(self, n_pairs: int) -> bool:
        """Return whether a search takes a moment only."""
        return n_pairs <= self.restart_pairs

    def restart_patience(self, n_pairs: int, k: int) -> int:
        """Return how many starts in a row may gain nothing."""
        if not self.is_cheap(n_pairs):
            return 0
        if k > self.restart_k:
            return self.shaken_patience
        return max(1, min(self.patience, self.vain_pairs // n_pairs))

    def batch_size(self, k: int) -> int:
        """Return how many pairs a search adds at most."""
        fewest, most, product = self.batch
        return min(most, max(fewest, product // k))


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaxationSettings:
    """The interior-point method for the relaxation.

    Parameters
    ----------
    barrier : float
        Barrier of a cold start; losses live on [0, 1], larger values only waste steps.
    attempts : int
        Starts, should an iterate get stuck at the boundary.
    max_steps : int
        Newton steps of one attempt.
    n_sampled : int
        Random pairs whose moment starts a cold solve.
    closer : float
        Where pairs are few, the gap is closed to this share of ``tol``.
    full_dimension : int
        Up to this many dimensions the working subspace is the whole space.
    missing : float
        Occupation outside the subspace that calls for enlarging it.
    idle : float
        Part of ``missing`` below which a direction is dropped.
    shrink : float
        Decrease of the barrier between two shrinkings of the subspace.
    idle_weight : float
        Part of a typical weight below which a row may be dropped.
    far, near : float
        Slack, in typical slacks, beyond which a row may be dropped, and below which a
        pair becomes a row.
    fewest_rows, tight_share : int, float
        Rows that may enter at once however small the subspace, and as a share of the
        tight pairs that are expected.
    spare_pairs : int
        Pairs looked at for rows that are new.
    parallel : float
        One minus the cosine of directions that count as the same.
    rows_per_dimension : float
        Working rows expected per subspace dimension.
    trusted : float
        Product of predictor step lengths that is corrected for in full.
    first_mass : float
        First price of a floor that is not reached, under an objective.
    low_barrier, raised, least_spare : float
        The price is raised by the factor ``raised`` once the barrier is this low and
        less than this share of the price is spare.
    """

    barrier: float = 1e-3
    attempts: int = 3
    max_steps: int = 60
    n_sampled: int = 4_000
    closer: float = 0.1
    full_dimension: int = 40
    missing: float = 0.03
    idle: float = 0.3
    shrink: float = 0.7
    idle_weight: float = 0.01
    far: float = 50.0
    near: float = 2.0
    fewest_rows: int = 40
    tight_share: float = 0.25
    spare_pairs: int = 4_000
    parallel: float = 1e-10
    rows_per_dimension: float = 4.0
    trusted: float = 0.1
    first_mass: float = 8.0
    low_barrier: float = 3e-6
    raised: float = 4.0
    least_spare: float = 0.05

    def expecting(self, n_tight: float) -> RelaxationSettings:
        """Return figures for a number of tight pairs."""
        fewest = max(self.fewest_rows, int(self.tight_share * n_tight))
        return replace(self, fewest_rows=fewest)


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiplierSettings:
    """Projected gradients for the relaxation.

    Parameters
    ----------
    smoothing, first_smoothing, cooling : float
        Smoothing of the maximum, as a share of the losses that matter; that of the
        first round, and the factor by which it falls from then on. Weights spread over
        the tight pairs soonest while smoothing is large.
    capped_smoothing, capped_steps, capped_tolerance : float, int, float
        Smoothing, steps and tolerance under a cap, where the first matrix is near the
        optimum already.
    heating : float
        Factor by which smoothing rises after a round that ended far from its minimum.
    steps : int
        Most steps of a round.
    memory : int
        Steps over which the value may rise.
    tolerance, first_tolerance, n_first : float, float, int
        A round ends when a step promises less than this multiple of the smoothing; the
        second is that of so many first rounds, whose weights are not the last.
    single : float
        Smoothing above which rounds run in single precision.
    near : float
        Pairs this close to the worst one, as a share of the losses that matter, and a
        smoothing more, are taken in.
    batch, largest_set : int
        Pairs that a round takes in at most, and most working pairs.
    idle_weight, least_weight : float
        Weights, in mean weights, below which a working pair is dropped after a round,
        and the least that a pair has otherwise.
    spare_columns, spare_share : int, float
        Dimensions beyond ``k`` of the subspace, at most, and as a share of ``k``.
    n_sampled : int
        Random pairs whose moment gives the first matrix.
    first_barrier : float
        Spread of the first occupations.
    paying, accuracy : float
        The method ends when further rounds are expected to close no more than the first
        share of the open gap, and to move the bound by no more than the second.
    max_rounds : int
        Most rounds.
    few_tight : float
        Effective number of tight pairs up to which the interior point goes on.
    first_price, first_spare : float
        Under a cap: the first price of an excess, in shares of the objective, and the
        share of it that no pair has.
    raised, least_spare : float
        Factor by which the price is raised where less than this share is to spare.
    """

    smoothing: float = 0.012
    first_smoothing: float = 0.04
    cooling: float = 0.5
    capped_smoothing: float = 0.02
    capped_steps: int = 40
    heating: float = 4.0
    steps: int = 100
    memory: int = 8
    tolerance: float = 3e-4
    first_tolerance: float = 1e-3
    n_first: int = 2
    capped_tolerance: float = 1e-4
    single: float = 3e-5
    near: float = 0.006
    batch: int = 4_000
    largest_set: int = 30_000
    idle_weight: float = 1e-2
    least_weight: float = 1e-4
    spare_columns: int = 100
    spare_share: float = 1.0
    n_sampled: int = 4_000
    first_barrier: float = 1e-3
    paying: float = 0.05
    accuracy: float = 0.003
    max_rounds: int = 20
    few_tight: float = 100.0
    first_price: float = 2.0
    first_spare: float = 0.5
    raised: float = 3.0
    least_spare: float = 0.1

    def smoothing_at(self, n_rounds: int) -> float:
        """Return the smoothing after so many rounds, as a share of the losses."""
        return max(self.smoothing, self.first_smoothing * self.cooling**n_rounds)

    def tolerance_at(self, n_rounds: int) -> float:
        """Return the tolerance after so many rounds."""
        return self.first_tolerance if n_rounds < self.n_first else self.tolerance

    def capped(self) -> MultiplierSettings:
        """Return figures for an objective under a cap."""
        return replace(
            self,
            smoothing=self.capped_smoothing,
            first_smoothing=0.0,
            steps=self.capped_steps,
            tolerance=self.capped_tolerance,
            n_first=0,
        )

    def most_columns(self, k: int) -> int:
        """Return the most dimensions that the subspace may have."""
        return k + max(self.spare_columns, int(self.spare_share * k))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """Column generation: solving on a pool of pairs where a search takes seconds.

    Parameters
    ----------
    n_random : int
        Random pairs to begin with.
    most : int
        Pairs that one search adds at most.
    near : float
        Pairs this close to the worst one of the pool are added too.
    early_rounds, rounds, capped_rounds : int
        Searches of all pairs that the bound may ask for: before the search for a basis,
        after it, and with an objective.
    loose_gap : float
        Gap to which a new pool's relaxation is solved.
    spare_columns : int
        Spare dimensions of the bound's subspace: rounds are fewer than elsewhere and
        may take longer.
    """

    n_random: int = 4_000
    most: int = 20_000
    near: float = 0.02
    early_rounds: int = 1
    rounds: int = 12
    capped_rounds: int = 6
    loose_gap: float = 0.08
    spare_columns: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CapSettings:
    """Search for the most that can be kept under a cap.

    Parameters
    ----------
    ladder : Ladder
        Of the descent on the exact penalty.
    margin : float
        Caps are aimed at this far inside, which covers the rounding of searches.
    accepted : float
        Share of ``margin`` by which a basis must be under the cap to be kept.
    rounds : int
        Rounds of polishing.
    cheaper, cheapest : float
        Factors by which the price of the objective falls while the cap is not reached,
        and for a start that is under the cap already.
    far, paying : float
        A search that ends further above the cap than ``far`` goes on at a lower price,
        as long as that brings the excess below this share of what it was.
    halvings : int
        Bisections between a basis under the cap and one above it.
    gain, coarse_gain : float
        Polishing ends when a round gains less of the objective, where ``tol`` is fine
        and where it is not.
    close, coarse_close : float
        Nothing more is tried when this share of the bound at most is missing, where
        ``tol`` is fine and where it is not.
    is_hasty : bool
        Whether a search that has come so close stops at once.
    first_share : float
        Share of a time limit that finding the least distortion may take.
    """

    ladder: Ladder = field(
        default=Ladder(temperatures=(0.01, 0.003, 0.001, 0.0003, 0.0001), tries=3)
    )
    margin: float = 1e-5
    accepted: float = 0.3
    rounds: int = 10
    cheaper: float = 2.0
    cheapest: float = 100.0
    far: float = 1e-3
    paying: float = 0.8
    halvings: int = 6
    gain: float = 1e-6
    coarse_gain: float = 3e-5
    close: float = 2e-3
    coarse_close: float = 5e-3
    is_hasty: bool = False
    first_share: float = 0.4

    def coarse(self) -> CapSettings:
        """Return figures for a search that need not find the last digits."""
        return replace(
            self, gain=self.coarse_gain, close=self.coarse_close, is_hasty=True
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveSettings:
    """One number of dimensions after another.

    Parameters
    ----------
    ladder : Ladder
        Warm enough to leave a basis for fewer dimensions.
    batch, largest_set : int
        Pairs that a search adds at most, and most pairs in the working set.
    stale : float
        A relaxation is solved where the last is this share of the dimensions behind.
    shortest : int
        And at least this many dimensions.
    loose_k : int
        Up to here the relaxation's rounding is a start too: local optima differ.
    coarse : float
        Searches for the fewest dimensions solve relaxations this much looser.
    clear : float
        A bound this far above the cap is above it whatever its rounding.
    """

    ladder: Ladder = field(
        default=Ladder(
            temperatures=(0.02, 0.007, 0.0025, 0.0007),
            tries=2,
            patience=2.0,
            is_loose=True,
        )
    )
    batch: int = 1_500
    largest_set: int = 6_000
    stale: float = 0.25
    shortest: int = 5
    loose_k: int = 20
    coarse: float = 10.0
    clear: float = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class HullSettings:
    """The search for a subspace whose hull proves a bound.

    Parameters
    ----------
    work : float
        Multiplications, or as much time, that the whole search may take.
    most_entries : int
        Number of pairs times dimensions up to which the search holds all pairs.
    n_random, coarse_n_random, n_local, n_shaken : int
        Number of starts through random pairs, where ``tol`` is fine and where it is
        not, of local searches from the best starts, and of local searches from the
        best subspace after a random rotation.
    paying, patience, coarse_patience : float, int, int
        A local search pays if it closes more than this share of the open gap; so many
        in a row need not once the known bound is beaten. Where ``tol`` is fine, and
        where it is not; with -1 the first that beats the bound is the last.
    n_tried, n_glanced, glance, costly_glance : int, int, float, float
        The search ends at once if in each of so many starts so many random pairs reach,
        along some direction, less than this share of the known bound; the second share
        is for ``costly`` dimensions.
    n_low : int
        Facets whose normals are asked for further pairs at once.
    radius, shake : float
        First trust region, and size of a random rotation, in radians.
    hopeless, costly, costly_hopeless : float, int, float
        The search ends if no start's bound reaches this share of the known bound; from
        ``costly`` dimensions of the subspace on, where hulls leave no time for local
        search, it must reach the second share.
    n_seen : int
        Pairs that the oracle adds for each subspace if not all pairs are held.
    small_hull : int
        Up to this many pairs in all, the hull in the whole space goes on to its nearest
        facet, which is the optimum, even if less would be enough.
    """

    work: float = 1.5e9
    most_entries: int = 5_000_000
    n_random: int = 16
    coarse_n_random: int = 6
    n_tried: int = 6
    n_glanced: int = 20_000
    glance: float = 0.75
    costly_glance: float = 1.1
    n_local: int = 3
    n_shaken: int = 3
    paying: float = 1e-3
    patience: int = 2
    coarse_patience: int = -1
    n_low: int = 64
    radius: float = 0.1
    shake: float = 0.15
    hopeless: float = 0.6
    costly: int = 5
    costly_hopeless: float = 0.9
    n_seen: int = 400
    small_hull: int = 100_000

    def coarse(self) -> HullSettings:
        """Return figures for a search that ends when it no longer pays."""
        return replace(
            self,
            n_random=min(self.n_random, self.coarse_n_random),
            patience=self.coarse_patience,
        )

    def glance_share(self, dimension: int) -> float:
        """Return the share of the known bound that some pairs must reach."""
        return self.glance if dimension < self.costly else self.costly_glance

    def hopeless_share(self, dimension: int) -> float:
        """Return the share of the known bound that a start must reach."""
        return self.hopeless if dimension < self.costly else self.costly_hopeless


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All tuning figures of a solve."""

    descent: DescentSettings = DescentSettings()
    relaxation: RelaxationSettings = RelaxationSettings()
    multipliers: MultiplierSettings = MultiplierSettings()
    pool: PoolSettings = PoolSettings()
    cap: CapSettings = CapSettings()
    curve: CurveSettings = CurveSettings()
    hull: HullSettings = HullSettings()
