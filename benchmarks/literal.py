"""The paper as printed, slowly: explicit directions, plain NumPy, nothing of isoproj.

Everything works on a matrix of unit directions, one a row. It exists to be agreed
with and to be beaten. Where the paper's text has a slip (the index ``rho`` in its
Algorithm 2), the formula it cites is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg


def directions_of(points):
    """Return ``(u_i - u_j) / |u_i - u_j|`` for all i < j, identical points left out."""
    i, j = np.triu_indices(points.shape[0], 1)
    gaps = points[i] - points[j]
    lengths = np.sqrt((gaps**2).sum(axis=1))
    keep = lengths > 0.0
    return gaps[keep] / lengths[keep, None]


def moment(directions, weights):
    """Return ``M(w) = sum w_l x_l x_l^T``."""
    return directions.T @ (weights[:, None] * directions)


def top_eigenvectors(matrix, k):
    """Return the k largest eigenvalues and their eigenvectors, largest first."""
    d = matrix.shape[0]
    values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[d - k, d - 1])
    return values[::-1], vectors[:, ::-1]


def dual_value(directions, weights, k):
    """Return ``g(w)``, one minus the sum of the k largest eigenvalues of ``M(w)``."""
    return 1.0 - top_eigenvectors(moment(directions, weights), k)[0].sum()


def distortion(directions, basis):
    """Return ``eps(V) = max 1 - |V^T x_l|^2``."""
    return 1.0 - ((directions @ basis) ** 2).sum(axis=1).min()


def step_size(n, n_steps):
    """Return the paper's ``eta = sqrt(2) / sqrt(n T)``."""
    return math.sqrt(2.0) / math.sqrt(n * n_steps)


def algorithm_2(values):
    """Return the nearest point of the probability simplex, by a sort."""
    values = values - values.max()
    descending = np.sort(values)[::-1]
    shifts = (1.0 - np.cumsum(descending)) / np.arange(1, values.size + 1)
    rho = np.flatnonzero(descending + shifts > 0.0)[-1]
    return np.maximum(values + shifts[rho], 0.0)


@dataclass(frozen=True)
class LiteralRun:
    """What Algorithm 1 did.

    ``history`` holds (eps, g) for w_0 ... w_T, ``basis`` the answer, ``distortion`` its
    eps, ``chose_average`` whether the average iterate won, ``best_dual`` the greatest
    g among the iterates and their average; ``iterates`` the weights w_0 ... w_T where
    they were asked for.
    """

    basis: np.ndarray
    weights: np.ndarray
    distortion: float
    best_dual: float
    chose_average: bool
    history: list[tuple[float, float]]
    iterates: list[np.ndarray]


def algorithm_1(directions, k, n_steps=120, eta=None, keep_iterates=False):
    """Run projected supergradient ascent on the dual as the paper prints it."""
    n = directions.shape[0]
    eta = step_size(n, n_steps) if eta is None else eta
    weights = np.full(n, 1.0 / n)
    total = np.zeros(n)
    best = (math.inf, None, None)
    iterates, history = [], []
    for t in range(n_steps + 1):
        values, basis = top_eigenvectors(moment(directions, weights), k)
        retained = ((directions @ basis) ** 2).sum(axis=1)
        history.append((1.0 - retained.min(), 1.0 - values.sum()))
        if keep_iterates:
            iterates.append(weights)
        if history[-1][0] < best[0]:
            best = (history[-1][0], basis, weights)
        if t > 0:
            total += weights
        weights = algorithm_2(weights - eta * retained)
    average = total / n_steps
    values, basis = top_eigenvectors(moment(directions, average), k)
    average_distortion = distortion(directions, basis)
    chose_average = average_distortion < best[0]
    return LiteralRun(
        basis=basis if chose_average else best[1],
        weights=average if chose_average else best[2],
        distortion=min(average_distortion, best[0]),
        best_dual=max(1.0 - values.sum(), *(g for _, g in history)),
        chose_average=chose_average,
        history=history,
        iterates=iterates,
    )
