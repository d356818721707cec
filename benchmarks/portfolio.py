"""Default fits on data of many kinds: this tree beside an older commit, in one run.

``python benchmarks/portfolio.py [--old COMMIT] [--only NAME ...] [--write]``

The older commit is checked out in a scratch worktree. Every fit runs in a process of
its own, first the old code and then the new one, set by set, so that whatever else the
machine does weighs on both alike.
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
OLD = "e4db596"


def words(n_points, seed=0):
    """Return unit rows whose spectrum falls like j^-1/2, as word vectors do."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n_points, 100)) * np.arange(1, 101) ** -0.5
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def low_rank():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((800, 10)) @ rng.standard_normal((10, 200))
    return rows + 0.05 * rng.standard_normal(rows.shape)


def text():
    from _data import data_file

    with np.load(data_file("text_embeddings_384d.npz")) as file:
        rows = file["embeddings"]
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
        "words 1000": (lambda: words(1000), (10,)),
        "words 2000": (lambda: words(2000), (10, 30, 60)),
        "text": (text, (64,)),
    }


def fit(name, k):
    """Fit one set with the isoproj on the path, and print the figures as JSON."""
    from isoproj import NearIsometricProjection

    rows = portfolio()[name][0]()
    caught = []
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        start = time.perf_counter()
        model = NearIsometricProjection(k, random_state=0).fit(rows)
        seconds = time.perf_counter() - start
        caught = [w for w in seen if w.category.__name__ == "ConvergenceWarning"]
    first = next(
        (s.seconds for s in model.history_ if math.isfinite(s.distortion)), math.nan
    )
    figures = {
        "distortion": model.distortion_,
        "bound": model.lower_bound_,
        "seconds": seconds,
        "first": first,
        "warned": bool(caught),
    }
    print(json.dumps(figures))


def measured(tree, name, k, limit):
    """Return the figures of a fit in another process, or None if it took too long."""
    environment = {**os.environ, "PYTHONPATH": f"{tree / 'src'}:{ROOT / 'benchmarks'}"}
    command = [sys.executable, __file__, "--fit", name, str(k)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, check=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout)


def cells(figures):
    if figures is None:
        return ["-"] * 4
    gap = figures["distortion"] / max(figures["bound"], 1e-12) - 1.0
    return [
        f"{figures['distortion']:.4f}",
        f"{figures['bound']:.4f}",
        f"{gap:.1%}",
        f"{figures['seconds']:.1f}" + (" (warned)" if figures["warned"] else ""),
    ]


def compare(old, names, limit):
    """Return the table, a line for every set and dimension."""
    lines = [
        f"Default fits, commit {old.name} and this tree.",
        "",
        "| data | k | old distortion | bound | gap | s | new distortion | bound | gap |"
        " s | first answer, s | times faster |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    ratios = []
    for name in names:
        for k in portfolio()[name][1]:
            before = measured(old, name, k, limit)
            after = measured(ROOT, name, k, limit)
            row = [name, str(k), *cells(before), *cells(after)]
            row.append("-" if after is None else f"{after['first']:.2f}")
            ratio = math.nan
            if before is not None and after is not None:
                ratio = before["seconds"] / after["seconds"]
                ratios.append(ratio)
            lines.append("| " + " | ".join([*row, f"{ratio:.1f}"]) + " |")
            print(lines[-1], flush=True)
    mean = math.exp(np.mean(np.log(ratios))) if ratios else math.nan
    lines += ["", f"Geometric mean: {mean:.1f} times faster in {len(ratios)} fits."]
    print(lines[-1])
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", default=OLD)
    parser.add_argument("--only", nargs="+", default=None)
    parser.add_argument("--limit", type=float, default=400.0)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--fit", nargs=2, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fit:
        fit(options.fit[0], int(options.fit[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / options.old
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", tree, options.old], check=True)
        try:
            names = options.only or list(portfolio())
            lines = compare(tree, names, options.limit)
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True)
    if options.write:
        from _results import keep

        keep("portfolio", "defaults", lines)


if __name__ == "__main__":
    main()
