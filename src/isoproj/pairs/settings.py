"""Every tuning figure of searches and scans of pairs, with its unit.

They change speed, and which pairs an oracle shows to solvers; never what a scan of all
pairs answers.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSettings:
    """All tuning figures of this folder.

    Parameters
    ----------
    block_rows, block_columns : int
        Points in the rows and in the columns of a block.
    n_settled : int
        Pairs whose differences are formed at a time.
    few_pairs : int
        Number of pairs up to which all are measured, in float64. Of more pairs a sieve
        rules out most, and blocks are float32.
    widths : tuple of int
        Numbers of directions besides those of the map that a sieve chooses from.
    survivor_cost : float
        Cost of bounding a pair that a sieve has left, in columns of its product.
    n_sampled : int
        Random pairs from which levels are estimated; twice as many weak ones are
        remembered from one search to the next.
    most_smoothed : int
        Points, at most, whose pairs are smoothed all at once.
    cells_per_root : float
        Cells of near images for the square root of the number of points.
    n_met : float
        Cells that a point meets, on average.
    """

    block_rows: int = 1024
    block_columns: int = 1024
    n_settled: int = 1024
    few_pairs: int = 2_000_000
    widths: tuple[int, ...] = (8, 16, 32, 64, 96)
    survivor_cost: float = 40_000.0
    n_sampled: int = 20_000
    most_smoothed: int = 2_500
    cells_per_root: float = 2.0
    n_met: float = 4.0


USUAL = PairSettings()
