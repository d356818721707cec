"""Tell before a fit how long it takes, and what else could be done."""

from __future__ import annotations

from dataclasses import dataclass

from isoproj.engines.base import Engine
from isoproj.pairs.estimate import all_pairs_seconds

# A fit that is expected to take more seconds than this says so before it works.
LONG = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FitEstimate:
    """What a fit is expected to take; times are rough, within a factor of three.

    Parameters
    ----------
    n_points, n_features : int
        Shape of the data.
    n_pairs : int
        Pairs that count.
    scan_seconds : float
        One exact search of all pairs, from a block of them on this machine.
    fit_seconds : float
        The whole fit.
    gigabytes : float
        Memory and scratch files together.
    """

    n_points: int
    n_features: int
    n_pairs: int
    scan_seconds: float
    fit_seconds: float
    gigabytes: float

    @staticmethod
    def of(
        n_points: int,
        n_features: int,
        k: int,
        *,
        n_pairs: int | None = None,
        memory_limit: float = 2e9,
        engine: Engine | None = None,
    ) -> FitEstimate:
        """Return the estimate; ``n_pairs`` is None where all pairs count."""
        every = n_points * (n_points - 1) // 2
        counted = every if n_pairs is None else n_pairs
        dims = min(n_points, n_features)
        scan = all_pairs_seconds(n_points, dims, k, every, engine)
        scan *= min(1.0, counted / max(1, every))
        # Coordinates, their images in a sieve, and distances that are kept.
        coordinates = 8.0 * n_points * (2 * dims + k)
        kept = 4.0 * counted
        # Exact searches of all pairs, and seconds besides, which grow with the pairs up
        # to so many. Measured on 2,000 to 100,000 points.
        seconds = 10 * scan + 100.0 * min(1.0, counted / 5e7)
        return FitEstimate(
            n_points=n_points,
            n_features=n_features,
            n_pairs=counted,
            scan_seconds=scan,
            fit_seconds=seconds,
            gigabytes=(coordinates + (kept if kept < memory_limit else 0.0)) / 1e9,
        )

    @property
    def is_long(self) -> bool:
        """Whether a fit is told of before it works."""
        return self.fit_seconds > LONG

    def __str__(self) -> str:
        return (
            f"{self.n_points:,} x {self.n_features} points, {self.n_pairs:,} pairs: "
            f"one walk over all of them takes about {in_words(self.scan_seconds)}, "
            f"the fit about {in_words(self.fit_seconds)} and {self.gigabytes:.1f} GB"
        )

    def others(self) -> list[str]:
        """Return what else could be done, each with its own estimate."""
        # A moment, every gigabyte of what is prepared, and the neighbours of a point:
        # 100,000 x 64 and 1,000,000 x 64 took 5 and about 25 s.
        drawn = 5.0 + 16.0 * self.gigabytes
        near = drawn + 5e-4 * self.n_points
        least = in_words(max(10.0, 2.5 * self.scan_seconds))
        return [
            "--time-limit 600: the best within 10 min, certified over all pairs if the "
            f"limit is about {least} or more, else over a sample",
            "--pairs sample: the worst of 200,000 random pairs, and with 95 % "
            "confidence what share of all pairs loses more; about "
            f"{in_words(drawn)}",
            "--pairs approximate-neighbors: the worst of each point's 10 neighbors; "
            f"about {in_words(near)}",
            "engine=DaskEngine(client): the same fit on a cluster, sooner by its cores",
        ]


def in_words(seconds: float) -> str:
    """Return a duration in words."""
    for size, name in ((7200.0, "h"), (120.0, "min")):
        if seconds >= size:
            return f"{seconds / (3600.0 if name == 'h' else 60.0):.0f} {name}"
    return f"{max(1.0, seconds):.0f} s"
