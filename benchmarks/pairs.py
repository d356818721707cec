"""Which pairs to guard for search: recall@10 on text embeddings, at equal k.

Fits every method on posts of the training split, asks with posts of the test split,
and compares the neighbours found with those in all 384 dimensions. The embeddings are
unit vectors, so that cosine and Euclidean neighbours are the same there; among the
projections they are not, and both are given. No projection is centred: cosines are
about the origin.

Run: python benchmarks/pairs.py [--rows 1000] [--queries 2000] [-k 32 64 128] [--write]
``--write`` keeps the table as benchmarks/results/pairs.md. Each fit stops after
``--seconds`` at the latest; a certificate holds all the same.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from embeddings import load, neighbours, recall
from sklearn.decomposition import TruncatedSVD
from sklearn.exceptions import ConvergenceWarning

from isoproj import GuaranteedPCA, NearIsometricProjection, audit
from isoproj.baselines import PCAProjection, RandomProjection

RESULTS = Path(__file__).parent / "results"
NEIGHBOURS = 10


def methods(k: int, seconds: float) -> dict[str, Callable[[], Any]]:
    """Return how each method is made."""

    def minimax(**options: Any) -> NearIsometricProjection:
        return NearIsometricProjection(
            k, random_state=0, tol=1e-3, time_limit=seconds, **options
        )

    def capped(**options: Any) -> GuaranteedPCA:
        return GuaranteedPCA(k, random_state=0, tol=1e-3, time_limit=seconds, **options)

    near = {"pairs": "neighbors", "n_neighbors": NEIGHBOURS}
    return {
        "PCA": lambda: PCAProjection(k),
        "SVD, not centred": lambda: TruncatedSVD(k, algorithm="arpack"),
        "random": lambda: RandomProjection(k, random_state=0),
        "minimax, all pairs": minimax,
        "minimax, include_norms": lambda: minimax(include_norms=True),
        "minimax, neighbors": lambda: minimax(**near),
        "minimax, neighbors, include_norms": lambda: minimax(
            **near, include_norms=True
        ),
        "GuaranteedPCA, all pairs": capped,
        "GuaranteedPCA, neighbors": lambda: capped(**near),
    }


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def measured(name: str, model: Any, index: np.ndarray, queries: np.ndarray) -> str:
    """Return a row of the table."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(index)
    stopped = any(issubclass(w.category, ConvergenceWarning) for w in caught)
    components = model.components_
    truth = neighbours(index, queries, NEIGHBOURS)
    images, asked = index @ components.T, queries @ components.T
    cosine = recall(truth, neighbours(unit(images), unit(asked), NEIGHBOURS))
    euclid = recall(truth, neighbours(images, asked, NEIGHBOURS))
    worst = [
        audit(index, components, n_worst=1, **options).distortion
        for options in ({}, {"pairs": "neighbors"}, {"pairs": "directions"})
    ]
    own = getattr(model, "lower_bound_", None)
    bound = "" if own is None else f"{own:.3f}"
    name += " (stopped by the limit)" if stopped else ""
    losses = " | ".join(f"{loss:.3f}" for loss in worst)
    return f"| {name} | {cosine:.3f} | {euclid:.3f} | {losses} | {bound} |"


def table(ks: list[int], n_rows: int, n_queries: int, seconds: float) -> Iterator[str]:
    draw = np.random.default_rng(0)
    index, queries = load()
    index = index[np.sort(draw.permutation(len(index))[:n_rows])]
    queries = queries[np.sort(draw.permutation(len(queries))[:n_queries])]
    # Copies would all be nearest at once.
    index = np.unique(index, axis=0)
    yield (
        f"{len(index):,} text embeddings of 384 dimensions fitted and searched, "
        f"{len(queries):,} others as queries; recall@10 by cosine and by Euclidean "
        "distance of the projections. The next three columns are what the worst of all "
        "pairs, of the pairs of 10 nearest neighbours, and of the rows themselves "
        "loses of its squared length; the last is what each certificate proves "
        f"necessary over the pairs it names. Fits stop after {seconds:g} seconds."
    )
    for k in ks:
        yield f"\n**k = {k}**\n"
        yield "| method | cosine | Euclidean | pairs | neighbours | rows | bound |"
        yield "|---|---|---|---|---|---|---|"
        for name, make in methods(k, seconds).items():
            yield measured(name, make(), index, queries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines = []
    for line in table(options.k, options.rows, options.queries, options.seconds):
        print(line, flush=True)
        lines.append(line)
    if options.write:
        command = "`python benchmarks/pairs.py --write`"
        text = f"Made by {command}.\n\n" + "\n".join(lines) + "\n"
        (RESULTS / "pairs.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
