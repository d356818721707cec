"""Every tuning figure of the solvers, with its unit.

None of them affects what is proved: bounds are recomputed from the result. Losses,
temperatures and gaps are shares of squared length, between 0 and 1. Work is counted in
multiplications. The page "How the solver works" says what each is for, and
``benchmarks/ablation.py`` what happens without the mechanism.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All tuning figures of a solve.

    Parameters
    ----------
    hottest, cooling, coldest : float
        First temperature of a search, the factor from one to the next, and the last
        one as a share of ``tol``. All are multiplied by the least loss found so far.
    warm : float
        First temperature of a search from a basis that is near an optimum already.
    steps : int
        Most quasi-Newton steps at one temperature.
    gain : float
        A stage ends when steps gain less than this multiple of its temperature.
    reach : float
        A pair this many temperatures below the worst one has no weight.
    batch : int
        Pairs that one search adds at most; the set has at most eight times as many.
    restart_gain : float
        A start that lowers the worst loss, or raises a hull's bound, by a smaller share
        was in vain.
    patience : float
        Work on starts in vain, one after another, before no more are tried, and all
        work on the search for a hull.
    smoothing, first_smoothing : float
        Least smoothing of a round of the bound, as a multiple of ``tol``, and that of
        the first round; either is multiplied by the losses that matter.
    bound_steps : float
        Most projected gradient steps of a round of the bound, over the root of ``tol``.
    bound_gain : float
        A round ends when a step promises less than this multiple of its smoothing and
        of ``tol``.
    spare_columns : int
        Dimensions beyond ``k`` of the subspace that the bound's matrix lives in.
    accuracy : float
        The bound has stopped gaining when rounds to come promise less than this
        multiple of ``tol``, as a share of the bound.
    hull_starts : int
        Subspaces through random pairs that the hull search starts from.
    radius : float
        First trust region of a rotation in the hull search, in radians.
    margin : float
        How far inside a cap a search aims.
    """

    hottest: float = 0.05
    cooling: float = 0.36
    coldest: float = 0.01
    warm: float = 0.003
    steps: int = 60
    gain: float = 0.005
    reach: float = 20.0
    batch: int = 10_000
    restart_gain: float = 1e-3
    patience: float = 3e9
    smoothing: float = 1.2
    first_smoothing: float = 0.04
    bound_steps: float = 10.0
    bound_gain: float = 0.03
    spare_columns: int = 160
    accuracy: float = 0.15
    hull_starts: int = 12
    radius: float = 0.1
    margin: float = 1e-5

    @property
    def most_pairs(self) -> int:
        """Most pairs in a working set."""
        return 8 * self.batch

    def temperatures(self, tol: float, first: float | None = None) -> list[float]:
        """Return the temperatures of a search, as shares of the least loss."""
        temperature = self.hottest if first is None else first
        last, found = self.coldest * min(tol, 1.0), []
        while temperature > last * self.cooling**-0.5:
            found.append(temperature)
            temperature *= self.cooling
        return [*found, last]
