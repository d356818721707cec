"""One search for a basis: stages at falling temperature on a growing working set.

While a stage is warm it sees all pairs at once, or those of a sample of points: a
working set would miss the pairs that matter after the next move. Once the list of
pairs within reach of the worst is short, the colder stages see only that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from isoproj.numerics.spectral import Array, orthonormal
from isoproj.pairs.directions import Secants
from isoproj.solvers.api import Clock
from isoproj.solvers.grassmann import descend, minimise, shaken
from isoproj.solvers.settings import Settings
from isoproj.solvers.smoothed import Merit, OnAllPairs
from isoproj.solvers.working_set import WorkingSet

# Smoothing all pairs at once is not accurate enough at colder temperatures.
_SMOOTHED = 5e-5


@dataclass(slots=True, eq=False)
class Search:
    """A search between two stages.

    Parameters
    ----------
    known : WorkingSet
        The pairs that it sees.
    basis : ndarray of shape (n_dims, k)
        Where it has come to.
    merit : Merit
        What is to be small.
    temperatures : list of float
        Of the stages to come, as shares of the least loss.
    settings : Settings
        Tuning figures.
    distortion : float
        What the basis loses over all pairs, infinite if that is unknown.
    reached : float
        What the basis of the last stage loses, which may have been taken back.
    """

    known: WorkingSet
    basis: Array
    merit: Merit
    temperatures: list[float]
    settings: Settings
    distortion: float = math.inf
    reached: float = math.inf
    n_tries: int = 0

    @property
    def is_over(self) -> bool:
        """Whether no stage is left."""
        return not self.temperatures

    def stage(self, scale: float, clock: Clock) -> tuple[Array, float, float]:
        """Run a stage; return where it led, what that loses, and the work.

        Temperatures are multiplied by ``scale``, the size of the losses that matter. A
        stage is made again, once, with the pairs that it overlooked.
        """
        known, settings, k = self.known, self.settings, self.basis.shape[1]
        temperature = scale * self.temperatures[0]
        is_warm = known.search.has_smoothed and temperature >= _SMOOTHED
        sees_all = is_warm and known.complete_at is not self.basis
        if sees_all:
            moved, work = self._on_all(temperature, clock)
        else:
            moved, work = descend(
                known.secants, self.basis, temperature, self.merit, settings, clock
            )
        colder = scale * (self.temperatures[1:] or [0.0])[0]
        excess, distortion = known.grow(
            moved,
            2.0 * temperature,
            cap=self.merit.cap,
            reach=settings.reach * colder,
        )
        work += known.search.n_pairs * (k + 2.0)
        is_blind = excess > temperature and not (
            sees_all and not known.search.is_sampled
        )
        # Blind to the pairs just added, a move may be a step back.
        if distortion <= self.distortion or not is_blind or sees_all:
            self.basis, self.distortion = moved, distortion
        self.reached = distortion
        self.n_tries += 1
        if not is_blind or self.n_tries > 2:
            self.n_tries = 0
            self.temperatures = self.temperatures[1:]
        return moved, distortion, work

    def _on_all(self, temperature: float, clock: Clock) -> tuple[Array, float]:
        """Descend on all pairs at once, or on a sample and the set."""
        known, search, settings = self.known, self.known.search, self.settings
        pairs, some = search.smoothed, None
        if search.is_sampled:
            decoded = search.decode(known.codes)
            some = Secants(search.coordinates, decoded).astype(pairs.dtype.type)
        objective = OnAllPairs(
            pairs, self.merit, temperature, search.n_smoothed, known.further, some
        )
        moved, n_steps = minimise(
            objective,
            shaken(self.basis.astype(objective.dtype), 0.1 * temperature),
            steps=settings.steps,
            least=settings.gain * temperature,
            clock=clock,
        )
        work = 1.3 * n_steps * objective.work(self.basis.shape[1])
        return orthonormal(moved.astype(np.float64)), work
