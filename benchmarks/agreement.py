"""Whether the answer depends on the seed, and on which door is asked.

``python benchmarks/agreement.py [seeds] [doors] [--write]``

``seeds`` solves 20 small problems from ten seeds each: the least and the largest
distortion found. ``doors`` asks every entry point about ten sets, each with a number of
dimensions, at shipped defaults: the distortion and the bound that it gives, against
those of ``fit``.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path

import numpy as np
from _results import keep
from portfolio import mixed_scales, standardised, words
from sklearn import datasets

from isoproj import (
    GuaranteedPCA,
    NearIsometricProjection,
    distortion_curve,
    guarantee_frontier,
)
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers.api import Problem
from isoproj.solvers.solve import solve


def normal(*shape):
    return np.random.default_rng(0).standard_normal(shape)


SETS = {
    "iris": lambda: datasets.load_iris().data,
    "wine": lambda: datasets.load_wine().data,
    "wine, standardised": lambda: standardised(datasets.load_wine),
    "breast cancer": lambda: datasets.load_breast_cancer().data,
    "breast cancer, standardised": lambda: standardised(datasets.load_breast_cancer),
    "diabetes": lambda: datasets.load_diabetes().data,
    "mixed scales": mixed_scales,
    "digits, 300": lambda: datasets.load_digits().data[:300],
    "words, 300": lambda: words(300),
    "normal, 13 x 5": lambda: normal(13, 5),
    "normal, 30 x 6": lambda: normal(30, 6),
    "normal, 8 x 8": lambda: normal(8, 8),
    "normal, 100 x 10": lambda: normal(100, 10),
}
SMALL = [
    ("iris", 1),
    ("iris", 2),
    ("iris", 3),
    ("wine", 2),
    ("wine", 3),
    ("wine", 5),
    ("wine, standardised", 2),
    ("wine, standardised", 5),
    ("breast cancer", 3),
    ("breast cancer", 5),
    ("breast cancer, standardised", 5),
    ("diabetes", 2),
    ("diabetes", 5),
    ("mixed scales", 5),
    ("normal, 13 x 5", 1),
    ("normal, 13 x 5", 2),
    ("normal, 30 x 6", 2),
    ("normal, 30 x 6", 3),
    ("normal, 8 x 8", 3),
    ("normal, 100 x 10", 3),
]
ASKED = [
    ("iris", 2),
    ("iris", 3),
    ("wine", 2),
    ("wine, standardised", 5),
    ("breast cancer", 3),
    ("diabetes", 4),
    ("mixed scales", 8),
    ("digits, 300", 10),
    ("words, 300", 20),
    ("normal, 30 x 6", 3),
]


def seeds(n_seeds=10):
    """Solve small problems from several seeds."""
    lines = [
        "| data | k | least distortion | largest | apart |",
        "|---|---|---|---|---|",
    ]
    for name, k in SMALL:
        search = PairSearch(*prepare_pairs(SETS[name](), rotate=True))
        lost = [
            solve(Problem(search=search, k=k, tol=1e-2, seed=seed)).distortion
            for seed in range(n_seeds)
        ]
        apart = max(lost) / min(lost) - 1.0
        lines.append(
            f"| {name} | {k} | {min(lost):.5f} | {max(lost):.5f} | {apart:.2%} |"
        )
        print(lines[-1], flush=True)
    return lines


def by_checkpoint(rows, k, _fit):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        found = NearIsometricProjection(k, checkpoint=path, random_state=0).fit(rows)
    return found.distortion_, found.lower_bound_


def by_curve(rows, k, _fit):
    curve = distortion_curve(rows, [k], random_state=0)
    return curve.distortion[0], curve.lower_bound[0]


def by_guaranteed_pca(rows, k, _fit):
    found = GuaranteedPCA(k, slack=0.1, random_state=0).fit(rows)
    # The least distortion that it found, before slack.
    return found.max_distortion_ / 1.1, found.lower_bound_


def by_frontier(rows, k, _fit):
    frontier = guarantee_frontier(rows, k, 2, random_state=0)
    return frontier.distortion[0], frontier.lower_bound


def by_nested(rows, k, _fit):
    if k == 1:
        return np.nan, np.nan
    found = NearIsometricProjection(k, nested=(k - 1,), random_state=0).fit(rows)
    # A prefix is a compromise; its bound is that of a projection of its own.
    return np.nan, found.certificates_[k].lower_bound


def by_max_distortion(rows, k, fit):
    cap = min(1.0, fit.distortion_ * 1.001)
    found = NearIsometricProjection(max_distortion=cap, random_state=0).fit(rows)
    # A loss under the cap in at most as many dimensions, and the bound of a fit there.
    again = NearIsometricProjection(found.n_components_, random_state=0).fit(rows)
    is_answered = found.n_components_ <= k and found.distortion_ <= cap
    is_as_good = (
        found.n_components_ < k or found.distortion_ <= 1.005 * again.distortion_
    )
    return (fit.distortion_ if is_answered and is_as_good else np.inf), np.nan


DOORS = {
    "checkpoint": by_checkpoint,
    "curve": by_curve,
    "GuaranteedPCA": by_guaranteed_pca,
    "frontier": by_frontier,
    "nested": by_nested,
    "max_distortion": by_max_distortion,
}


def cell(found, fit):
    """Return what a door says beside a fit, and whether that agrees."""
    distortion, bound = found
    least = min(1.0, fit.distortion_)
    is_high = distortion > 1.005 * least
    is_low = bound < fit.lower_bound_ * (1.0 - fit.tol)
    parts = [
        "" if np.isnan(distortion) else f"{distortion / least - 1.0:+.2%}",
        "" if np.isnan(bound) else f"{bound / fit.lower_bound_ - 1.0:+.2%}",
    ]
    return " / ".join(parts) + (" **no**" if is_high or is_low else "")


def doors():
    """Ask every entry point the same question."""
    lines = [
        "Distortion / bound against those of a fit; **no** where the distortion is "
        "more than 0.5 % above, or the bound more than `tol` below.",
        "",
        "| data | k | fit | " + " | ".join(DOORS) + " |",
        "|---" * (len(DOORS) + 3) + "|",
    ]
    for name, k in ASKED:
        rows = SETS[name]()
        fit = NearIsometricProjection(k, random_state=0).fit(rows)
        cells = [cell(ask(rows, k, fit), fit) for ask in DOORS.values()]
        own = f"{fit.distortion_:.4f} over {fit.lower_bound_:.4f}"
        lines.append(f"| {name} | {k} | {own} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    return lines


PARTS = {"seeds": seeds, "doors": doors}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in options.parts:
        lines = PARTS[part]()
        if options.write:
            keep("agreement", part, lines)
