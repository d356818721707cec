"""Losses of pairs in exact rational numbers, and bases that are exactly orthonormal."""

from __future__ import annotations

import os
from fractions import Fraction
from itertools import combinations

import numpy as np

# Every attack is drawn from this number; `make test-attack SEED=7` draws others.
SEED = int(os.environ.get("ISOPROJ_ATTACK_SEED") or 0)


def rational(matrix):
    """Return the numbers of a matrix as they are, without rounding."""
    return [[Fraction(value) for value in row] for row in np.asarray(matrix).tolist()]


def worst_loss(rows, components, pairs=None):
    """Return the largest share of squared length that a pair loses, or None."""
    worst = None
    for i, j in combinations(range(len(rows)), 2) if pairs is None else pairs:
        gap = [a - b for a, b in zip(rows[i], rows[j], strict=True)]
        length = sum(g * g for g in gap)
        if length == 0:
            continue
        images = (
            sum(c * g for c, g in zip(row, gap, strict=True)) for row in components
        )
        loss = 1 - sum(image * image for image in images) / length
        worst = loss if worst is None else max(worst, loss)
    return worst


def orthonormal_near(components):
    """Return exactly orthonormal rational rows near a float map, by Cayley's transform.

    A skew-symmetric A of rationals makes (I - A)(I + A)^-1 exactly orthogonal.
    """
    k, d = components.shape
    q = np.linalg.qr(np.vstack([components, np.eye(d)]).T.astype(float))[0].T[:d]
    signs = np.ones(d)
    # An eigenvalue of -1 has no such A; changed signs of the axes remove it.
    for flips in range(2**d):
        signs = np.array([1.0 if flips >> i & 1 == 0 else -1.0 for i in range(d)])
        if np.linalg.cond(np.eye(d) + q * signs) < 1e3:
            break
    turned = q * signs
    skew = np.linalg.solve(np.eye(d) + turned, np.eye(d) - turned)
    skew = np.tril(0.5 * (skew - skew.T), -1)
    exact = rational(skew - skew.T)
    plus = [[(i == j) + exact[i][j] for j in range(d)] for i in range(d)]
    inverse = _inverse(plus)
    rows = [
        [
            sum(((i == m) - exact[i][m]) * inverse[m][j] for m in range(d))
            for j in range(d)
        ]
        for i in range(k)
    ]
    return [[v * int(s) for v, s in zip(row, signs, strict=True)] for row in rows]


def _inverse(matrix):
    """Return the inverse of a matrix of rationals, by elimination."""
    n = len(matrix)
    whole = [
        [*row, *(Fraction(int(i == j)) for j in range(n))]
        for i, row in enumerate(matrix)
    ]
    for at in range(n):
        pivot = next(i for i in range(at, n) if whole[i][at] != 0)
        whole[at], whole[pivot] = whole[pivot], whole[at]
        whole[at] = [value / whole[at][at] for value in whole[at]]
        for i in range(n):
            if i != at and whole[i][at] != 0:
                factor = whole[i][at]
                whole[i] = [
                    a - factor * b for a, b in zip(whole[i], whole[at], strict=True)
                ]
    return [row[n:] for row in whole]
