"""What each part of the solver is for: default fits with one part taken out.

``python benchmarks/ablation.py [--only NAME ...] [--whole] [--write]``

Every cell is the change of the distortion, of the bound, and of the work (in
multiplications, as the solver counts it) against the default fit in the same process.
``--whole`` adds sets with many points, which takes an hour.
"""

from __future__ import annotations

import argparse
import math
import warnings
from dataclasses import replace

import numpy as np
from portfolio import portfolio, standardised, stored, words

from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers import drive
from isoproj.solvers.api import Clock, Journal, Problem
from isoproj.solvers.settings import Settings

USUAL = Settings()
PARTS = {
    "another seed (noise)": {},
    "random starts": {"vain_work": 0.0},
    "two temperatures for each of the usual": {"cooling": USUAL.cooling**0.5},
    "half of the temperatures": {"cooling": USUAL.cooling**2},
    "cold stages": {"coldest": 30.0 * USUAL.coldest},
    "hot stages": {"hottest": 0.1 * USUAL.hottest},
    "pairs out of reach sit out": {"reach": 1e6},
    "pairs near the worst join": {"near": 0.0},
    "first rounds of the bound smoother": {"first_smoothing": 0.0},
    "spare columns of the bound": {"spare_columns": 1},
    "rounds until nothing is promised": {"paying": 1.0, "accuracy": 10.0},
    "hull": {"hull_work": 0.0},
    "starts of the hull": {"hull_starts": 1},
}


def sets(*, whole):
    """Return rows and dimensions by name."""
    from sklearn import datasets

    many = portfolio()
    chosen = {
        f"{name} {k}": (many[name][0], k)
        for name, k in (
            ("wine", 3),
            ("breast cancer", 5),
            ("breast cancer, standardised", 10),
            ("diabetes", 5),
            ("digits", 10),
            ("digits", 40),
            ("rank 10", 20),
            ("isotropic 500 x 30", 15),
            ("mixed scales", 8),
            ("words 2000", 30),
            ("MNIST", 30),
            ("text", 64),
        )
    }
    tiny = np.random.default_rng(0).standard_normal((13, 5))
    chosen["13 x 5, 2"] = (lambda: tiny, 2)
    chosen["wine std. 5"] = (lambda: standardised(datasets.load_wine), 5)
    if whole:
        text = lambda: np.unique(  # noqa: E731
            stored("text_embeddings_384d.npz", "embeddings"), axis=0
        )
        chosen["text, whole, 64"] = (text, 64)
        chosen["words 20000, 25"] = (lambda: words(20_000, 0.3), 25)
    return chosen


def fitted(search, k, settings, seed=0):
    """Return distortion, bound and work of a solve."""
    worked = 0.0

    usual = drive.drive

    def driven(goal, sides, save=None):
        """Run the loop on sides that add up their work."""

        class Counted:
            def __init__(self, side):
                self.__dict__["side"] = side

            def __getattr__(self, name):
                return getattr(self.side, name)

            def __setattr__(self, name, value):
                setattr(self.side, name, value)

            def step(self):
                nonlocal worked
                work, n_working = self.side.step()
                worked += work
                return work, n_working

        return usual(goal, [Counted(side) for side in sides], save)

    drive.drive = driven
    try:
        problem = Problem(
            search=search, k=k, tol=1e-2, seed=seed, journal=Journal(Clock(None))
        )
        result = single_blas_thread(drive.minimax)(problem, settings)
    finally:
        drive.drive = usual
    return result.distortion, max(result.lower, 1e-12), worked


def cell(usual, changed):
    """Return the changes of distortion, bound and work as text."""
    losses, bounds = (changed[at] / usual[at] - 1.0 for at in (0, 1))
    return f"{losses:+.2%} / {bounds:+.2%} / {changed[2] / usual[2]:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=None)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows, columns = {part: [] for part in PARTS}, []
    for name, (make, k) in sets(whole=options.whole).items():
        if options.only and name not in options.only:
            continue
        try:
            points = make()
        except FileNotFoundError as error:
            print(f"{name}: left out, {error.filename} is not there")
            continue
        search = PairSearch(*prepare_pairs(points, rotate=True))
        usual = fitted(search, k, USUAL)
        columns.append(name)
        for part, changes in PARTS.items():
            seed = 0 if changes else 1
            found = fitted(search, k, replace(USUAL, **changes), seed)
            rows[part].append((usual, found))
            print(f"{name}: without {part}: {cell(usual, found)}", flush=True)
    lines = [
        "Changes of distortion / of the bound / of the work against the default fit.",
        "",
        "| without | " + " | ".join(columns) + " | geometric mean |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for part, cells in rows.items():
        means = [
            math.exp(np.mean([math.log(new[at] / old[at]) for old, new in cells]))
            for at in range(3)
        ]
        mean = cell((1.0, 1.0, 1.0), means)
        lines.append(
            f"| {part} | " + " | ".join(cell(*each) for each in cells) + f" | {mean} |"
        )
    print("\n".join(lines))
    if options.write:
        from _results import keep

        keep("ablation", "parts", lines)


if __name__ == "__main__":
    main()
