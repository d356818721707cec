"""What two-sided near-isometries share: NuMax, NILE-Pro and FroMax.

All of them look for a matrix ``P = F F^T`` whose quadratic forms ``x^T P x`` stay near
1 for every unit direction ``x``. NuMax and NILE-Pro split it three ways: a matrix that
is simple (``P``), one that fits (``L``), and the forms themselves (``q = A(L)``). The
fit is a least-squares problem in ``n_dims^2`` unknowns, solved exactly through the Gram
matrix ``(x_i . x_j)^2`` of the working set, which is factorised once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg

from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.directions import quadratic_values
from isoproj.pairs.oracle import Extremes, PairSearch
from isoproj.solvers.api import Clock


def balanced(factor: Array, ends: Extremes) -> tuple[Array, float]:
    """Return a map scaled so that its largest loss equals its largest gain, and that.

    With squared-length ratios between ``a`` and ``b`` the scale is
    ``sqrt(2 / (a + b))``, and loss and gain become ``(b - a) / (b + a)``; for a map
    that keeps nothing at all they are infinite.
    """
    low, high = float(ends.low[0]), float(ends.high[0])
    if high <= 0.0:
        return factor, np.inf
    return factor * np.sqrt(2.0 / (high + low)), (high - low) / (high + low)


def union(first: Indices, second: Indices) -> Indices:
    """Return the union of two lists of pairs, sorted."""
    return np.unique(np.concatenate([first, second]), axis=0)


def outside_band(ends: Extremes, delta: float) -> Indices:
    """Return the pairs whose squared length leaves ``1 +- delta``."""
    return union(
        ends.low_pairs[ends.low < 1.0 - delta],
        ends.high_pairs[ends.high > 1.0 + delta],
    )


def matrix_root(matrix: Array, *, rank: int | None = None) -> Array:
    """Return ``F`` with ``F F^T`` the positive part of a symmetric matrix.

    The columns are orthogonal, widest first; ``rank`` says how many, None means one per
    positive eigenvalue and at least one.
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    if rank is None:
        # Rounding of an eigenvalue that a threshold has set to zero is no direction.
        floor = values.size * float(np.finfo(np.float64).eps) * max(values[0], 0.0)
        rank = max(1, int(np.count_nonzero(values > floor)))
    return np.asarray(vectors[:, :rank] * np.sqrt(np.maximum(values[:rank], 0.0)))


class Fit:
    """Least squares for the matrix that fits forms and stays near another matrix."""

    def __init__(self, directions: Array) -> None:
        self.directions = directions
        gram = directions @ directions.T
        gram *= gram
        gram[np.diag_indices_from(gram)] += 1.0
        self._factor = scipy.linalg.cho_factor(gram, check_finite=False)

    def forms(self, matrix: Array) -> Array:
        """Return ``A(L)``, the quadratic form of every direction."""
        return quadratic_values(self.directions, matrix)

    def solve(self, base: Array, target: Array) -> Array:
        """Return ``argmin |A(L) - target|^2 + |L - base|^2``."""
        short = target - self.forms(base)
        pull = scipy.linalg.cho_solve(self._factor, short, check_finite=False)
        return np.asarray(base + (self.directions.T * pull) @ self.directions)


class Splitting:
    """The iterate of alternating directions on one working set of pairs.

    ``simple``, ``fitted`` and ``matrix_dual`` are ``P``, ``L`` and the multiplier of
    ``P = L``; ``values`` and ``values_dual`` are ``q`` and the multiplier of
    ``q = A(L)``, one entry per pair.
    """

    def __init__(self, pool: PairSearch, pairs: Indices, matrix: Array) -> None:
        self.pool, self.pairs, self.n_iter = pool, pairs, 0
        self.simple = self.fitted = matrix
        self.matrix_dual = np.zeros_like(matrix)
        self.fit = Fit(pool.directions(pairs))
        self.values = self.fit.forms(matrix)
        self.values_dual = np.zeros_like(self.values)

    def take(self, pairs: Indices) -> None:
        """Work on other pairs; new pairs get a multiplier of zero."""
        self.fit = Fit(self.pool.directions(pairs))
        forms, zeros = self.fit.forms(self.fitted), np.zeros(len(pairs))
        self.values = carried(self.pool, self.pairs, self.values, pairs, forms)
        self.values_dual = carried(
            self.pool, self.pairs, self.values_dual, pairs, zeros
        )
        self.pairs = pairs

    def alternate(
        self,
        matrix_prox: Callable[[Array], Array],
        values_prox: Callable[[Array], Array],
        *,
        max_iter: int,
        tol: float,
        clock: Clock,
        step: float,
    ) -> None:
        """Take steps until both relative residuals are below ``tol``.

        The two callables are the proximal maps of what is asked of the matrix and of
        the forms.
        """
        for iteration in range(1, max_iter + 1):
            self.simple = matrix_prox(self.fitted - self.matrix_dual)
            self.values = values_prox(self.fit.forms(self.fitted) + self.values_dual)
            self.fitted = self.fit.solve(
                self.simple + self.matrix_dual, self.values - self.values_dual
            )
            forms = self.fit.forms(self.fitted)
            self.matrix_dual = self.matrix_dual - step * (self.fitted - self.simple)
            self.values_dual = self.values_dual - step * (self.values - forms)
            self.n_iter += 1
            if clock.is_over:
                return
            if iteration % 5 == 0:
                apart = _apart(self.simple, self.fitted), _apart(self.values, forms)
                if max(apart) < tol:
                    return


def carried(
    pool: PairSearch, known: Indices, values: Array, pairs: Indices, fresh: Array
) -> Array:
    """Return a value for each pair: that of the same known pair, else the fresh one."""
    codes = pool.encode(known), pool.encode(pairs)
    _, old, new = np.intersect1d(*codes, return_indices=True)
    found = fresh.copy()
    found[new] = values[old]
    return found


def _apart(first: Array, second: Array) -> float:
    """Return the distance of two arrays relative to their mean size."""
    size = float(np.linalg.norm(first) + np.linalg.norm(second))
    return 2.0 * float(np.linalg.norm(first - second)) / size if size > 0.0 else 0.0
