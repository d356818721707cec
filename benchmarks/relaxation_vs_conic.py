"""Our relaxation solver against SCS and Clarabel, to the same certified accuracy.

Run: python benchmarks/relaxation_vs_conic.py [--sizes 46 101] [--ks 10 20] [--handed]

Every solver gets the same points and one BLAS thread. A run counts as done when the
relaxed value over *all* pairs and the certified lower bound, both recomputed here by
code that knows no solver, are within 1e-4 of each other, relatively. SCS and Clarabel
are called directly on the conic programme over all pairs. With ``--handed`` they are
given, for nothing, the pairs that matter: those that our own solution weights or keeps
least of, a head start that no user has. Settings that reach the accuracy are looked for
from loose to tight, and only the run that reached it is timed. For ours the best of
three runs counts, as it is too short for one.
"""

from __future__ import annotations

import argparse
import time

import clarabel
import numpy as np
import scs
from _data import mnist_digit

from isoproj.baselines.sdp import ConicProgramme, run_clarabel, run_scs
from isoproj.numerics.threads import one_blas_thread
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.proof.bounds import lower_bound
from isoproj.solvers.fantope import solve_relaxation

TARGET = 1e-4


def certified_gap(pool, k, factor, pairs, weights):
    """Return the relative gap of a solution, and its relaxed value."""
    relaxed = 1.0 - float(pool.extremes(factor, n_low=1).low[0])
    lower = lower_bound(pool.points, pairs, weights, k)
    return relaxed / lower - 1.0, relaxed


def ours(points, pairs, k):
    start = time.perf_counter()
    search = PairSearch(points, pairs)
    # Half the target leaves room for the certificate's own rounding.
    found, _ = solve_relaxation(search, k, tol=TARGET / 2)
    seconds = time.perf_counter() - start
    return seconds, found.factor, search.decode(found.codes), found.weights


def conic(pool, k, chosen, run, library, order, limit):
    """Return the seconds of the loosest settings that reach the target, or None."""
    for accuracy in (1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 1e-7):
        start = time.perf_counter()
        directions = pool.directions(chosen)
        programme = ConicProgramme(directions, k, order(pool.n_dims))
        factor, weights, _ = run(library, programme, accuracy, limit)
        seconds = time.perf_counter() - start
        gap, _ = certified_gap(pool, k, factor, chosen, weights)
        if gap <= TARGET:
            return seconds, gap, accuracy
        if seconds > 0.95 * limit:
            return None
    return None


def compare(digit, r, k, *, handed, limit):
    points, pairs = prepare_pairs(mnist_digit(digit, r), rotate=True)
    pool = PairSearch(points, pairs)
    runs = [ours(points, pairs, k) for _ in range(3)]
    seconds = min(run[0] for run in runs)
    _, factor, listed, weights = runs[0]
    gap, relaxed = certified_gap(pool, k, factor, listed, weights)
    chosen = np.column_stack(np.triu_indices(r, 1))
    if handed:
        near = pool.extremes(factor, n_low=8 * points.n_dims).low_pairs
        chosen = np.unique(np.vstack([listed, near]), axis=0)
    head = f"{digit:5d} {r:4d} {k:3d} {len(chosen):6d}"
    print(f"{head}  {'ours':9s} {seconds:9.3f} s  gap {gap:.1e}  value {relaxed:.5f}")
    for name, run, library, order in [
        ("scs", run_scs, scs, np.triu_indices),
        ("clarabel", run_clarabel, clarabel, np.tril_indices),
    ]:
        found = conic(pool, k, chosen, run, library, order, limit)
        if found is None:
            print(
                f"{head}  {name:9s} not within {limit:.0f} s: more than "
                f"{limit / seconds:.0f} times ours",
                flush=True,
            )
            continue
        ratio = found[0] / seconds
        print(
            f"{head}  {name:9s} {found[0]:9.3f} s  gap {found[1]:.1e}  "
            f"at accuracy {found[2]:.0e}  {ratio:8.1f} times ours",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[46, 101])
    parser.add_argument("--ks", type=int, nargs="+", default=[10, 20])
    parser.add_argument("--digits", type=int, nargs="+", default=[5])
    parser.add_argument("--handed", action="store_true")
    parser.add_argument("--limit", type=float, default=600.0)
    options = parser.parse_args()
    print("digit    r   k  pairs  solver      seconds (certified gap <= 1e-4)")
    with one_blas_thread():
        for digit in options.digits:
            for r in options.sizes:
                for k in options.ks:
                    compare(digit, r, k, handed=options.handed, limit=options.limit)


if __name__ == "__main__":
    main()
