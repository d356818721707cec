"""Default fits on data of many kinds: this tree beside an older commit, in one run.

``python benchmarks/portfolio.py [defaults] [--old COMMIT] [--only NAME ...] [--write]``

The older commit is checked out in a scratch worktree. Every fit runs in a process of
its own, first the old code, then the new one, then the new one with a tenth of the old
time as its limit, set by set, so that whatever else the machine does weighs on all
alike. Three times are told of the new fit: of all of it, of its search for a hull
(which the old code has not), and until both sides were as good as the old ones at their
end (distortion at most 0.2 % above, bound at most 1 % below).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
OLD = "428bb86"


def words(n_points, power=0.5):
    """Return unit rows whose spectrum falls like j^-power.

    With a power of 0.3, projections lose about what they lose on real word vectors.
    """
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n_points, 100)) * np.arange(1, 101) ** -power
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def low_rank():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((800, 10)) @ rng.standard_normal((10, 200))
    return rows + 0.05 * rng.standard_normal(rows.shape)


def mixed_scales():
    rng = np.random.default_rng(0)
    return rng.standard_normal((400, 15)) * 10.0 ** rng.uniform(-2.0, 3.0, 15)


def stored(name, array):
    """Return an array of a file that is not bundled."""
    folder = Path(os.environ.get("ISOPROJ_DATA", ROOT.parent / "shared" / "data"))
    with np.load(folder / name) as file:
        return file[array]


def mnist():
    images = stored("mnist.npz", "train_images")
    chosen = np.random.default_rng(0).permutation(len(images))[:2000]
    return images[chosen].astype(float)


def text():
    rows = stored("text_embeddings_384d.npz", "embeddings")
    _, first = np.unique(rows, axis=0, return_index=True)
    return rows[np.random.default_rng(0).permutation(np.sort(first))[:1500]]


def standardised(load):
    from sklearn.preprocessing import scale

    return scale(load().data)


def portfolio():
    """Return for every name how to make the rows, and the dimensions to fit."""
    from sklearn import datasets

    draw = np.random.default_rng
    return {
        "iris": (lambda: datasets.load_iris().data, (1, 2)),
        "wine": (lambda: datasets.load_wine().data, (2, 3)),
        "wine, standardised": (lambda: standardised(datasets.load_wine), (2, 5)),
        "breast cancer": (lambda: datasets.load_breast_cancer().data, (2, 5)),
        "breast cancer, standardised": (
            lambda: standardised(datasets.load_breast_cancer),
            (2, 5, 10),
        ),
        "diabetes": (lambda: datasets.load_diabetes().data, (2, 5)),
        "digits": (lambda: datasets.load_digits().data, (2, 5, 10, 20, 40)),
        "swiss roll": (
            lambda: datasets.make_swiss_roll(800, random_state=0)[0],
            (1, 2),
        ),
        "blobs": (
            lambda: datasets.make_blobs(1000, 30, centers=8, random_state=0)[0],
            (3, 10),
        ),
        "isotropic 500 x 30": (lambda: draw(0).standard_normal((500, 30)), (5, 15)),
        "isotropic 300 x 500": (lambda: draw(0).standard_normal((300, 500)), (10, 50)),
        "rank 10": (low_rank, (5, 10, 20)),
        "Student t": (lambda: draw(0).standard_t(2, size=(500, 40)), (5, 20)),
        "one-hot": (lambda: np.eye(50)[draw(0).integers(50, size=300)], (5, 20)),
        "binary": (lambda: (draw(0).random((400, 64)) < 0.2).astype(float), (8, 32)),
        "random walks": (
            lambda: np.cumsum(draw(0).standard_normal((500, 128)), axis=1),
            (5, 15),
        ),
        "mixed scales": (mixed_scales, (3, 8)),
        "words 1000": (lambda: words(1000), (10,)),
        "words 2000": (lambda: words(2000), (10, 30, 60)),
        "words 2000, flat": (lambda: words(2000, 0.3), (10, 30, 60)),
        "MNIST": (mnist, (10, 30)),
        "text": (text, (64,)),
    }


def fit(rows, k, limit):
    """Fit rows with the isoproj on the path, and print the figures as JSON."""
    from isoproj import NearIsometricProjection

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        model = NearIsometricProjection(k, random_state=0, time_limit=limit)
        start = time.perf_counter()
        model.fit(rows)
        seconds = time.perf_counter() - start
        caught = [w for w in seen if w.category.__name__ == "ConvergenceWarning"]
    history = [
        (s.seconds, s.distortion, s.lower_bound, getattr(s, "phase", ""))
        for s in model.history_
    ]
    figures = {
        "distortion": model.distortion_,
        "bound": model.lower_bound_,
        "seconds": seconds,
        "history": history,
        "warned": bool(caught),
    }
    print(json.dumps(figures))


def measured(tree, rows, k, limit=None):
    """Return the figures of a fit in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, __file__, "--fit", str(rows), str(k)]
    if limit is not None:
        command += ["--time-limit", repr(limit)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    return json.loads(done.stdout)


def hull_seconds(figures):
    """Return how long the search for a hull took."""
    others = [s[0] for s in figures["history"] if s[3] != "hull bound"]
    return max(0.0, figures["history"][-1][0] - others[-1]) if others else 0.0


def matched(before, after):
    """Return when both sides were as good as the old ones, NaN if never."""
    for seconds, distortion, bound, _ in after["history"]:
        is_good = distortion <= 1.002 * before["distortion"] + 1e-9
        if is_good and bound >= 0.99 * before["bound"]:
            return seconds
    return math.nan


def gap(figures):
    """Return the relative gap as text."""
    return f"{figures['distortion'] / max(figures['bound'], 1e-12) - 1.0:.1%}"


def row(name, k, before, after, short):
    """Return the cells of a line."""
    warned = " (warned)"
    return [
        name,
        str(k),
        f"{before['distortion']:.4f}",
        f"{before['bound']:.4f}",
        f"{before['seconds']:.1f}" + warned * before["warned"],
        f"{after['distortion']:.4f}",
        f"{after['bound']:.4f}",
        gap(after),
        f"{after['seconds']:.1f}" + warned * after["warned"],
        f"{hull_seconds(after):.1f}",
        f"{matched(before, after):.1f}",
        f"{after['history'][0][0]:.2f}",
        f"{short['distortion']:.4f}, {short['bound']:.4f}",
        f"{before['seconds'] / after['seconds']:.1f}",
    ]


def mean_of(ratios):
    """Return the geometric mean."""
    return math.exp(np.mean(np.log(ratios)))


def compare(old, names):
    """Return the table, a line for every set and dimension, and what it sums up to."""
    lines = [
        f"Default fits, commit {old.name} and this tree; times in seconds.",
        "",
        "| data | k | old distortion | bound | s | new distortion | bound | gap | s |"
        " of it hull | as good as old after | first answer |"
        " distortion, bound in a tenth of the old time | times faster |",
        "|" + "---|" * 14,
    ]
    whole, apart, good = [], [], []
    for name in names:
        make, dimensions = portfolio()[name]
        rows = old.parent / "rows.npy"
        try:
            np.save(rows, make())
        except FileNotFoundError as error:
            print(f"{name}: left out, {error.filename} is not there")
            continue
        for k in dimensions:
            before, after = measured(old, rows, k), measured(ROOT, rows, k)
            short = measured(ROOT, rows, k, 0.1 * before["seconds"])
            lines.append("| " + " | ".join(row(name, k, before, after, short)) + " |")
            print(lines[-1], flush=True)
            seconds = before["seconds"]
            whole.append(seconds / after["seconds"])
            apart.append(seconds / (after["seconds"] - hull_seconds(after)))
            good.append(seconds / max(matched(before, after), 1e-3))
    reached = [ratio for ratio in good if math.isfinite(ratio)]
    lines += [
        "",
        f"Geometric means over {len(whole)} fits: {mean_of(whole):.1f} times faster, "
        f"{mean_of(apart):.1f} without the search for a hull; as good as the old fit "
        f"{mean_of(reached):.1f} times sooner in {len(reached)} fits that get there.",
    ]
    print(lines[-1])
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", nargs="?", choices=["defaults"], help="which fits")
    parser.add_argument("--old", default=OLD)
    parser.add_argument("--only", nargs="+", default=None)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--fit", nargs=2, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--time-limit", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        fit(np.load(options.fit[0]), int(options.fit[1]), options.time_limit)
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / options.old
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", tree, options.old], check=True)
        try:
            names = options.only or list(portfolio())
            lines = compare(tree, names)
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True)
    if options.write:
        from _results import keep

        keep("portfolio", "defaults", lines)


if __name__ == "__main__":
    main()
