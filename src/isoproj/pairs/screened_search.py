"""Search the pairs that a map keeps least of, where distances do not fit the memory.

A sieve rules out most pairs from a few coordinates, and only the others are measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from isoproj.engines.base import Engine, Visitor
from isoproj.numerics.progress import Walk, tell
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.blocks import Workspace, inverse_squares, squared_gaps
from isoproj.pairs.points import Points
from isoproj.pairs.rows import times
from isoproj.pairs.screening import Screens, Sieve
from isoproj.pairs.settings import PairSettings

# Stripes come in rounds: first every 32nd, then every 16th of the others, and so on.
_ROUNDS = (32, 16, 8, 4, 2, 1)
# A sample estimates a number of pairs; this factor makes too few of them unlikely.
_MARGIN = 1.5

# Codes of pairs, the shares kept of them, and the number of pairs looked at.
_Found: TypeAlias = tuple[Indices, Array, int]


def screened_weakest(
    points: Points,
    factor: Array,
    level: float,
    least: float,
    *,
    most: int,
    n_pairs: int,
    engine: Engine,
    settings: PairSettings,
) -> tuple[Indices, Array]:
    """Return codes and shares of the pairs that keep at most a level, at most ``most``.

    The map keeps ``|factor.T x|^2`` of direction ``x``. Some pair is known to keep
    ``least``. If no pair is below ``level``, pairs up to ``least`` are returned, so
    that there is always one.
    """
    sweep = _WeakestSweep(factor, most, settings)
    # No pair keeps more than this, so a higher level rules out no pair.
    level = min(level, 2.0 * float(np.linalg.norm(factor, 2)) ** 2)
    starts = np.arange(0, points.n_points, settings.block_rows)
    turn = np.gcd(np.arange(starts.size), _ROUNDS[0])
    found: _Found = np.empty(0, dtype=np.intp), np.empty(0), 0
    n_seen = 0
    tell(Walk(0, n_pairs))

    def told(part: _Found) -> None:
        nonlocal n_seen
        n_seen += part[2]
        tell(Walk(n_seen, n_pairs))

    with engine.opened(points, sweep) as run:
        n_done = 0
        for stripes in (starts[turn == size] for size in _ROUNDS):
            if not stripes.size:
                continue
            bar = max(level, least)
            part = run([(int(start), bar) for start in stripes], told)
            found = sweep.merge([found, part])
            n_done += stripes.size
            # The level sinks to the weakest pair seen, or to where the stripes done
            # lead us to expect as many pairs as are wanted.
            least = min(least, float(found[1].min(initial=math.inf)))
            expected = math.ceil(_MARGIN * most * n_done / starts.size)
            if found[1].size > expected:
                level = min(level, float(found[1][expected]))
    is_weak = found[1] <= max(level, least)
    return found[0][is_weak], found[1][is_weak]


@dataclass(frozen=True, slots=True, eq=False)
class _WeakestSweep:
    """The search as an engine runs it; a task is a stripe's first row and a level."""

    factor: Array
    most: int
    settings: PairSettings

    def visitor(self, points: Points) -> Visitor[tuple[int, float], _Found]:
        coordinates = points.coordinates
        sieve = Sieve.of(coordinates, self.factor, points.storage, self.settings)
        screens, workspace = Screens(sieve), Workspace()
        mapped = times(coordinates, self.factor, points.storage)

        def visit(task: tuple[int, float]) -> _Found:
            start, level = task
            parts = []
            screen = screens.at(level)
            for found, n_pairs in screen.survivors(points, start, workspace):
                pairs = found[sieve.least(found) <= level]
                shares = squared_gaps(mapped, pairs)
                shares *= inverse_squares(squared_gaps(coordinates, pairs))
                is_weak = shares <= level
                codes = pairs[is_weak] @ np.array([points.n_points, 1])
                parts.append((codes, shares[is_weak], n_pairs))
            return self.merge(parts)

        return visit

    def merge(self, parts: Sequence[_Found]) -> _Found:
        codes = np.concatenate([part[0] for part in parts])
        shares = np.concatenate([part[1] for part in parts])
        order = np.lexsort((codes, shares))[: self.most]
        return codes[order], shares[order], sum(part[2] for part in parts)
