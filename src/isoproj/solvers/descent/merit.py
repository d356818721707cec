"""What local search minimises, as the maximum of functions linear in the losses.

Descent and the exact finish both work on ``max_l u_l`` where the vector ``u`` is a
linear function of the losses of all rows: one class per problem says which, and how
weights on ``u`` become weights on the rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Capped", "Merit", "Worst"]

Real = NDArray[Any]


class Merit(Protocol):
    """The functions whose maximum is to be small."""

    @property
    def cap(self) -> float:
        """Loss that pairs are held to; infinite where there is none."""

    @property
    def price(self) -> float:
        """Weight of every further row, in every function."""

    def values(self, losses: Real) -> Real:
        """Return ``u``, first the functions of the pairs, in order."""

    def weights(self, shares: Real) -> Real:
        """Return the rows' weights for weights on ``u``, which sum to 1."""


@dataclass(frozen=True, slots=True)
class Worst:
    """The worst loss itself.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.solvers.descent.merit import Worst
    >>> Worst().values(np.array([0.5, 0.25])).tolist()
    [0.5, 0.25]
    """

    price: float = 0.0
    cap: float = math.inf

    def values(self, losses: Real) -> Real:
        """Return the losses."""
        return losses

    def weights(self, shares: Real) -> Real:
        """Return the same weights."""
        return shares


@dataclass(frozen=True, slots=True)
class Capped:
    """An exact penalty: the price of further rows, plus what exceeds a cap.

    ``price * sum(losses of the further rows) + max(0, worst loss - cap)``. A price
    below one over the sum of the optimal multipliers makes its minimiser that of the
    problem with the cap as a constraint.

    Parameters
    ----------
    cap : float
        What no pair should lose more than.
    price : float
        Weight of the further rows.
    n_further : int
        How many they are.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.solvers.descent.merit import Capped
    >>> Capped(cap=0.5, price=0.1, n_further=1).values(np.array([0.75, 1.0])).tolist()
    [0.35, 0.1]
    """

    cap: float
    price: float
    n_further: int

    def values(self, losses: Real) -> Real:
        """Return price plus excess of every pair, and last the price alone."""
        base = self.price * losses[-self.n_further :].sum()
        excess = losses[: -self.n_further] - losses.dtype.type(self.cap)
        return np.asarray(np.append(excess, losses.dtype.type(0.0)) + base)

    def weights(self, shares: Real) -> Real:
        """Return the pairs' weights, and the price for every further row."""
        base = np.full(self.n_further, self.price, dtype=shares.dtype)
        return np.concatenate([shares[:-1], base])
