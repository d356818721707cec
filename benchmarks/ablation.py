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
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from unittest.mock import patch

import numpy as np
from portfolio import portfolio, standardised, stored, words

from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers import drive
from isoproj.solvers.api import Problem
from isoproj.solvers.settings import Settings
from isoproj.solvers.working_set import WorkingSet

USUAL = Settings()


@dataclass(frozen=True)
class Part:
    """How to take a part of the solver out: other figures, or another attribute."""

    figures: dict[str, float] = field(default_factory=dict)
    posed: dict[str, int] = field(default_factory=dict)
    replaced: tuple[tuple[object, str, object], ...] = ()


def none(*_):
    """Return 0, whatever is asked."""
    return 0


PARTS = {
    "another seed (noise)": Part(posed={"seed": 1}),
    "the rounding as first start": Part(
        replaced=((drive, "leading", lambda factor, k: np.eye(len(factor), k)),)
    ),
    "random starts": Part(posed={"n_restarts": 0}),
    "hot stages": Part({"hottest": 0.1 * USUAL.hottest}),
    "cold stages": Part({"coldest": 30.0 * USUAL.coldest}),
    "every second temperature": Part({"cooling": USUAL.cooling**2}),
    "half of the steps of a stage": Part({"steps": USUAL.steps // 2}),
    "stages on all pairs at once": Part(
        replaced=((PairSearch, "has_smoothed", property(none)),)
    ),
    "lists of all pairs within reach": Part(replaced=((WorkingSet, "few", none),)),
    "pairs out of reach sitting out": Part({"reach": 1e6}),
    "nine tenths of a batch": Part({"batch": USUAL.batch // 10}),
    "smoother first rounds of the bound": Part({"first_smoothing": 0.0}),
    "spare dimensions of the bound's matrix": Part({"spare_columns": 1}),
    "two thirds of the steps of a round": Part({"bound_steps": USUAL.bound_steps / 3}),
    "the share of tol that ends rounds": Part({"accuracy": 1e9}),
    "the bound of a hull": Part(replaced=((drive, "MOST_DIMENSIONS", 0),)),
    "starts of the hull but one": Part({"hull_starts": 1}),
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


class Counted:
    """A side that adds up the work of its steps."""

    def __init__(self, side, worked):
        self.__dict__.update(side=side, worked=worked)

    def __getattr__(self, name):
        return getattr(self.side, name)

    def __setattr__(self, name, value):
        setattr(self.side, name, value)

    def step(self):
        work, n_working = self.side.step()
        self.worked.append(work)
        return work, n_working


def fitted(search, k, part):
    """Return distortion, bound and work of a solve without a part."""
    worked, usual = [], drive.drive

    def driven(goal, sides, save=None):
        return usual(goal, [Counted(side, worked) for side in sides], save)

    problem = Problem(search=search, k=k, tol=1e-2, **part.posed)
    with ExitStack() as stack:
        for thing, name, other in (*part.replaced, (drive, "drive", driven)):
            stack.enter_context(patch.object(thing, name, other))
        settings = replace(USUAL, **part.figures)
        result = single_blas_thread(drive.minimax)(problem, settings)
    return result.distortion, max(result.lower, 1e-12), sum(worked)


def cell(usual, changed):
    """Return the changes of distortion, bound and work as text."""
    losses, bounds = (changed[at] / usual[at] - 1.0 for at in (0, 1))
    return f"{losses:+.2%} / {bounds:+.2%} / {changed[2] / usual[2]:.2f}"


def ratios(cells, at):
    """Return distortions, bounds or works without a part, as multiples of the usual."""
    return np.array([new[at] / old[at] for old, new in cells])


def worst(changes, columns, extreme):
    """Return the extreme change, and where it is, as text."""
    place = int(extreme(changes))
    return f"{changes[place] - 1.0:+.1%} ({columns[place]})"


def summary(rows, columns):
    """Return a line a part: geometric means over the sets, and the worst of them."""
    lines = [
        f"Without a part, against the default fit, over {len(columns)} sets: geometric "
        "means, and the worst set.",
        "",
        "| without | distortion | worst | bound | worst | work |",
        "|---|---|---|---|---|---|",
    ]
    for part, cells in rows.items():
        lost, proved, work = (ratios(cells, at) for at in range(3))
        means = [math.exp(np.log(each).mean()) for each in (lost, proved, work)]
        lines.append(
            f"| {part} | {means[0] - 1.0:+.2%} | {worst(lost, columns, np.argmax)} "
            f"| {means[1] - 1.0:+.2%} | {worst(proved, columns, np.argmin)} "
            f"| {means[2]:.2f} |"
        )
    return lines


def whole_table(rows, columns):
    """Return every cell."""
    lines = [
        "Changes of distortion / of the bound / of the work, set by set:",
        "",
        "| without | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for part, cells in rows.items():
        lines.append(f"| {part} | " + " | ".join(cell(*each) for each in cells) + " |")
    return lines


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
        usual = fitted(search, k, Part())
        columns.append(name)
        for name_of_part, part in PARTS.items():
            found = fitted(search, k, part)
            rows[name_of_part].append((usual, found))
            print(f"{name}: without {name_of_part}: {cell(usual, found)}", flush=True)
    lines = [*summary(rows, columns), "", *whole_table(rows, columns)]
    print("\n".join(lines))
    if options.write:
        from _results import keep

        keep("ablation", "parts", lines)


if __name__ == "__main__":
    main()
