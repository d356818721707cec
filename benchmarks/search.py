"""How many candidates a search by reduced vectors needs, and how fast that is counted.

``python benchmarks/search.py quality`` measures maps of 5,000 texts by both scores, for
stored rows and for 1,000 queries that no map has seen: share of the true ten found
without more, and candidates (median, 99 %, largest; and what suffices for a new query).
``speed`` counts 1,000 queries among 100,000 rows of 384 features, as a share of the
rate of the plain product by the same threads in the same run. ``--write`` keeps the
table.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from _data import data_file
from _results import keep
from recall import plain_product
from sklearn.decomposition import PCA

from isoproj import GuaranteedPCA, NearIsometricProjection, search_plan
from isoproj.comparison.choosing import FORMATS
from isoproj.search.plan import Question


def texts(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return stored texts and 1,000 queries, drawn alike."""
    with np.load(data_file("text_embeddings_384d.npz")) as file:
        rows = file["embeddings"]
    order = np.random.default_rng(0).permutation(len(rows))
    return rows[order[:n_rows]], rows[order[n_rows : n_rows + 1000]]


def quality(n_rows: int, time_limit: float) -> list[str]:
    """Plan for every map and score, and return the lines of the table."""
    rows, queries = texts(n_rows)
    question = Question(rows, queries=queries)
    lines = [
        f"{len(rows):,} text embeddings of 384 numbers, the true ten by Euclidean "
        f"distance, and {len(queries):,} queries that no map has seen; at most "
        f"{time_limit:g} s for each fit. Candidates: median / 99 % / largest.",
        "",
        "| k | map | stored | score | found, stored | candidates | found, new | "
        "candidates | new query, 95 % |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    limits = {"time_limit": time_limit, "random_state": 0}
    for k in (64, 128):
        maps = {
            "first columns": np.eye(k, 384),
            "PCA": PCA(k, random_state=0).fit(rows).components_,
            "GuaranteedPCA": GuaranteedPCA(k, **limits).fit(rows).components_,
            "NearIsometricProjection": NearIsometricProjection(k, **limits)
            .fit(rows)
            .components_,
        }
        for name, components in maps.items():
            vectors = rows @ components.T, queries @ components.T
            for kind in ("float32", "int8"):
                reduced = tuple(map(FORMATS[kind][1](vectors[0]), vectors))
                for score in ("euclidean", "cosine"):
                    plan = question.plan(reduced=reduced, score=score)
                    found = plan.recall(10)
                    needed = (plan.row_candidates, plan.query_candidates)
                    spread = [
                        " / ".join(
                            f"{int(np.quantile(one, q, method='higher')):,}"
                            for q in (0.5, 0.99, 1.0)
                        )
                        for one in needed
                    ]
                    lines.append(
                        f"| {k} | {name} | {kind} | {score} | {found.rows:.3f} | "
                        f"{spread[0]} | {found.queries:.3f} | {spread[1]} | "
                        f"{plan.new_query:,} |"
                    )
                    print(lines[-1], flush=True)
    return lines


def speed(n_rows: int) -> list[str]:
    """Count candidates of 1,000 queries, and return the lines of the table."""
    rng = np.random.default_rng(0)
    mixed = rng.standard_normal((40, 384), np.float32)
    rows = rng.standard_normal((n_rows, 40), np.float32) @ mixed
    for chunk in np.array_split(rows, 100):
        chunk += 0.5 * rng.standard_normal(chunk.shape, np.float32)
    queries = rows[:1000] + 0.3 * rng.standard_normal((1000, 384), np.float32)
    components = np.linalg.svd(rows[:5000], full_matrices=False)[2][:64]
    small = rows @ components.T, queries @ components.T
    lines = [
        f"1,000 queries among {n_rows:,} rows of 384 features and their images "
        "of 64, float32. The plain product is that of queries and rows before and "
        "after the map; both by processor time, so that other work on the machine "
        "counts for neither.",
        "",
        "| metric | of the product rate | memory beyond the data |",
        "|---|---|---|",
    ]
    plain_product(queries[:64], rows[:8192])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for metric in ("euclidean", "cosine", "inner_product"):
        start = time.process_time()
        plain_product(queries, rows)
        plain_product(small[1], small[0])
        product = time.process_time() - start
        start = time.process_time()
        options = {"metric": metric, "reduced": small, "stored": False}
        search_plan(rows, queries=queries, **options)
        seconds = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        lines.append(f"| {metric} | {product / seconds:.0%} | {peak / 1024:.0f} MB |")
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Print the table, and keep it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["quality", "speed"])
    parser.add_argument("--rows", type=int, help="fewer, or more, rows")
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--note", help="a line about the machine, kept with the table")
    parser.add_argument("--write", action="store_true", help="keep the table")
    options = parser.parse_args()
    if options.part == "quality":
        lines = quality(options.rows or 5_000, options.time_limit)
    else:
        lines = speed(options.rows or 100_000)
    lines += ["", options.note] if options.note else []
    if options.write:
        keep("search", options.part, lines)


if __name__ == "__main__":
    main()
