"""Figures of GuaranteedPCA: certified gaps, and what it costs and buys beside PCA.

Run: python benchmarks/guaranteed.py [PART ...] [--write], parts being gaps, digits,
class, embeddings, all (of MNIST), frontier and limits. `--write` keeps the table of
each part under benchmarks/results/, and the picture of the frontier under docs/images/.
Times are processor times unless said.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
from _data import data_file, mnist_digit, mnist_images
from _results import keep
from portfolio import portfolio
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

from isoproj import GuaranteedPCA, NearIsometricProjection, audit, guarantee_frontier
from isoproj.baselines import RandomProjection
from isoproj.estimators.curves import Frontier
from isoproj.estimators.geometry import Geometry
from isoproj.numerics.threads import one_blas_thread
from isoproj.pairs.rule import PairRule
from isoproj.proof.objective import Objective
from isoproj.solvers.api import Problem
from isoproj.solvers.capped import guaranteed
from isoproj.solvers.solve import solve
from paper.datasets import load

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SLACKS = (0.02, 0.05, 0.1, 0.2)


def text_embeddings() -> tuple[np.ndarray, np.ndarray]:
    with np.load(data_file("text_embeddings_384d.npz")) as file:
        rows, labels = file["embeddings"], file["labels"]
    _, first = np.unique(rows, axis=0, return_index=True)
    order = np.random.default_rng(0).permutation(np.sort(first))
    return rows[order], labels[order]


def gaps() -> list[str]:
    """Certified gap of the variance kept, at caps above the best minimax found."""
    lines = [
        "| data | r | k | slack | cap | worst pair loses | kept | at most | gap | s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    sets = [
        (f"MNIST {digit}", mnist_digit(digit, 448), (10, 20, 40)) for digit in (2, 5)
    ]
    sets.append(("embeddings", text_embeddings()[0][:300].astype(np.float64), (20,)))
    misses = 0
    for name, points, ks in sets:
        for k in ks:
            for slack in SLACKS:
                start = time.process_time()
                model = GuaranteedPCA(k, slack=slack, random_state=0, tol=1e-3).fit(
                    points
                )
                seconds = time.process_time() - start
                worst = audit(points, model.components_, spread=False).distortion
                gap = model.certificate_.guarantee.gap
                assert worst <= model.max_distortion_
                misses += gap > 0.01
                lines.append(
                    f"| {name} | {len(points)} | {k} | {slack} | "
                    f"{model.max_distortion_:.4f} | {worst:.4f} | {model.kept_:.4f} | "
                    f"{model.kept_bound_:.4f} | {gap:.2%} | {seconds:.1f} |"
                )
                print(lines[-1], flush=True)
    return [*lines, "", f"{misses} of {len(lines) - 2} gaps are above 1 %."]


def timed(function, *args, **options):
    start = time.process_time()
    answer = function(*args, **options)
    return answer, time.process_time() - start


def posed(points: np.ndarray, k: int, tol: float) -> tuple[Geometry, Problem]:
    """Return what GuaranteedPCA solves; one minimax solve serves all four caps."""
    geometry = Geometry.prepare(points, PairRule.of("all"))
    matrix = geometry.objective_matrix(Objective.VARIANCE)
    return geometry, Problem(search=geometry.search, k=k, objective=matrix, tol=tol)


def side_by_side(
    name, train, held_out, k, labels=None, held_labels=None, tol=1e-3
) -> list[str]:
    """PCA, random, minimax and GuaranteedPCA on the same points."""
    with one_blas_thread():
        pca, pca_seconds = timed(PCA(k, random_state=0).fit, train)
    geometry, problem = posed(train, k, tol)
    best, best_seconds = timed(solve, replace(problem, objective=None))
    own = geometry.certify(geometry.components(best.basis, k), best.dual)
    rows = [
        ("PCA", pca.components_, "", pca_seconds),
        ("random", RandomProjection(k, random_state=0).fit(train).components_, "", 0),
        ("minimax", own.components, "", best_seconds),
    ]
    for slack in SLACKS:
        capped = replace(problem, cap=(1.0 + slack) * best.distortion)
        answer, seconds = timed(guaranteed, capped, best, (best.basis,))
        certificate = geometry.certify_result(answer, k, Objective.VARIANCE)
        found = certificate.guarantee
        assert certificate.distortion <= found.cap
        rows.append(
            (
                f"GuaranteedPCA, slack {slack}",
                certificate.components,
                f"{found.kept_bound:.4f}",
                best_seconds + seconds,
            )
        )
        print(f"slack {slack}: {found}", flush=True)
    centred = train - train.mean(axis=0)
    total = float((centred**2).sum())
    lines = [
        f"{name}: {len(train)} points fitted, {len(held_out)} held out, k = {k}, "
        f"tol = {tol:g}; "
        f"no projection loses less than {best.lower:.4f}",
        "",
        "| method | variance | at most | mean | 99.9 % | worst | held out: mean |"
        " 99.9 % | worst | 1-NN accuracy | recall@10 | times PCA | times minimax |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for method, components, bound, seconds in rows:
        kept = float(((centred @ components.T) ** 2).sum()) / total
        cells = [f"{kept:.4f}", bound]
        for points in (train, held_out):
            result = audit(points, components)
            cells += [
                f"{result.mean:.4f}",
                f"{result.quantiles[0.999]:.3f}",
                f"{result.distortion:.4f}",
            ]
        accuracy = "-"
        if labels is not None:
            nearest = KNeighborsClassifier(1).fit(train @ components.T, labels)
            accuracy = f"{nearest.score(held_out @ components.T, held_labels):.4f}"
        found = audit(train, components, recall=(10,), queries=held_out).recall[10]
        cells += [accuracy, f"{found:.4f}"]
        for unit in (pca_seconds, best_seconds):
            cells.append(f"{seconds / unit:.2f}" if seconds else "-")
        lines.append(f"| {method} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def digits() -> list[str]:
    points, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(points))
    points, labels = points[order], labels[order]
    return side_by_side(
        "scikit-learn digits",
        points[:1200],
        points[1200:],
        16,
        labels[:1200],
        labels[1200:],
    )


def whole_class() -> list[str]:
    points = np.random.default_rng(0).permutation(mnist_digit(5, None))
    points = points.astype(np.float32)
    return side_by_side("MNIST digit 5", points[:4421], points[4421:], 20, tol=1e-2)


def embeddings() -> list[str]:
    points, labels = text_embeddings()
    return side_by_side(
        "text embeddings",
        points[:1000],
        points[1000:3000],
        32,
        labels[:1000],
        labels[1000:3000],
        tol=1e-2,
    )


def everything() -> list[str]:
    images = load("mnist")
    return side_by_side(
        "MNIST",
        mnist_images(),
        images.test.astype(np.float32),
        40,
        images.train_labels,
        images.test_labels,
        tol=0.05,
    )


def picture(found: Frontier) -> None:
    from isoproj import plot

    ax = plot.frontier(found)
    ax.figure.set_size_inches(7.2, 4.2)
    ax.set_title("MNIST digit 5, 448 images, 784 dimensions to 20")
    ax.figure.savefig(IMAGES / "frontier.png", dpi=150)


def frontier() -> list[str]:
    found = guarantee_frontier(mnist_digit(5, 448), 20, 9, random_state=0)
    picture(found)
    return ["MNIST digit 5, r = 448, k = 20", "", "```", str(found), "```"]


def limits() -> list[str]:
    """Wall-clock time beside that of the minimax fit; what a quarter of it keeps."""
    tables = portfolio()
    tables["MNIST, 1000 points"] = (lambda: mnist_images(1000), ())
    sets = [
        ("digits", 16),
        ("breast cancer, standardised", 5),
        ("text", 64),
        ("MNIST, 1000 points", 32),
    ]
    lines = [
        "| data | k | minimax s | keeps | GuaranteedPCA s | keeps | at most | "
        "a quarter of the time keeps |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, k in sets:
        points = tables[name][0]()
        centred = points - points.mean(axis=0)
        begin = time.perf_counter()
        best = NearIsometricProjection(k, random_state=0).fit(points)
        first = time.perf_counter() - begin
        own = np.square(centred @ best.components_.T).sum() / np.square(centred).sum()
        begin = time.perf_counter()
        whole = GuaranteedPCA(k, random_state=0).fit(points)
        second = time.perf_counter() - begin
        quarter = GuaranteedPCA(k, random_state=0, time_limit=second / 4).fit(points)
        lines.append(
            f"| {name} | {k} | {first:.1f} | {own:.4f} | {second:.1f} | "
            f"{whole.kept_:.4f} | {whole.kept_bound_:.4f} | {quarter.kept_:.4f} |"
        )
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    parts = {
        "gaps": gaps,
        "digits": digits,
        "class": whole_class,
        "embeddings": embeddings,
        "all": everything,
        "frontier": frontier,
        "limits": limits,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=list(parts))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.what:
        lines = parts[name]()
        print("\n".join(lines))
        if options.write:
            keep("guaranteed", name, lines, "GuaranteedPCA")


if __name__ == "__main__":
    main()
