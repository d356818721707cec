"""One search for a basis: stages at falling temperature on a growing working set.

While a stage is warm it sees all pairs at once: a working set would miss the pairs that
matter after the next move. Once the list of pairs within reach of the worst is short,
the colder stages see only that. Where points are too many for that, a stage sees the
working set alone: a move that leads to worse pairs is not made, they join the set, and
the stage is made again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from isoproj.numerics.spectral import Array, orthonormal
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
        stage is made again with the pairs that it overlooked, up to six times.
        """
        known, settings, k = self.known, self.settings, self.basis.shape[1]
        is_large, before = known.search.is_large, self.distortion
        temperature = scale * self.temperatures[0]
        is_warm = known.search.has_smoothed and temperature >= _SMOOTHED
        sees_all = is_warm and known.complete_at is not self.basis
        if is_large and before == math.inf:
            reach = settings.reach * temperature
            before = known.grow(self.basis, reach, cap=self.merit.cap)[1]
        if sees_all:
            moved, work = self._on_all(temperature, clock)
        else:
            # A long way under some pairs leads to others that are worse.
            steps = settings.steps // 3 if is_large else settings.steps
            moved, work = descend(
                known.secants,
                self.basis,
                temperature,
                self.merit,
                replace(settings, steps=steps),
                clock,
            )
        colder = scale * (self.temperatures[1:] or [0.0])[0]
        excess, distortion = known.grow(
            moved,
            2.0 * temperature,
            cap=self.merit.cap,
            reach=settings.reach * colder,
            kept=self.basis,
        )
        work += known.search.n_pairs * (k + 2.0)
        is_blind = excess > temperature and not sees_all
        # Blind to the pairs just added, a move may be a step back.
        if distortion <= before or not is_blind:
            self.basis, self.distortion = moved, distortion
        else:
            self.distortion = before
        self.reached = distortion
        gains = is_large and before - distortion > settings.restart_gain * scale
        self.n_tries += 1
        if not (is_blind or gains) or self.n_tries == 6:
            self.n_tries = 0
            self.temperatures = self.temperatures[1:]
        return moved, distortion, work

    def _on_all(self, temperature: float, clock: Clock) -> tuple[Array, float]:
        """Descend on all pairs at once, or on a sample and the set."""
        known, search, settings = self.known, self.known.search, self.settings
        objective = OnAllPairs(
            search.smoothed, self.merit, temperature, search.n_pairs, known.further
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
