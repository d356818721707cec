"""Figures of time limits and of Ctrl-C.

Run: python benchmarks/limits.py [limits] [stops] [--seconds S] [--only NAME] [--write]
`limits` runs every kind of fit and every verb that works long under a limit; a limit
may be exceeded by a tenth of it and a second. `stops` sends Ctrl-C at ten random
moments to a fit of each of five sizes, and a second one in every other run. Seconds
count on a machine that does nothing else. `--write` keeps the tables.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse
from _results import keep

from isoproj import (
    GuaranteedPCA,
    NearIsometricProjection,
    distortion_curve,
    guarantee_frontier,
)

SIZES = ((300, 20), (2000, 100), (5000, 200), (20_000, 50), (60_000, 64))


def cloud(n_points: int, n_dims: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.standard_normal((n_points, n_dims)) * np.arange(1, n_dims + 1) ** -0.5


def classes(n_points: int) -> np.ndarray:
    return np.random.default_rng(1).integers(5, size=n_points)


def sparse_rows() -> scipy.sparse.csr_array:
    return scipy.sparse.random_array(
        (2000, 8000), density=0.01, format="csr", random_state=0
    )


def fit(n_components: int | None, **options: object) -> Callable[..., str]:
    def run(seconds: float, *data: np.ndarray) -> str:
        model = NearIsometricProjection(n_components, time_limit=seconds, **options)
        certificate = model.fit(*data).certificate_
        return f"{model.status_}, over {certificate.scope}"

    return run


def guaranteed(seconds: float, rows: np.ndarray) -> str:
    model = GuaranteedPCA(20, time_limit=seconds).fit(rows)
    return f"{model.status_}, over {model.certificate_.scope}"


def curve(seconds: float, rows: np.ndarray) -> str:
    found = distortion_curve(rows, range(1, 41), time_limit=seconds)
    return f"{found.ks.size} dimensions"


def frontier(seconds: float, rows: np.ndarray) -> str:
    found = guarantee_frontier(rows, 10, time_limit=seconds)
    return f"{found.kept.size} caps"


CASES: dict[str, tuple[Callable[..., str], Callable[[], tuple[object, ...]]]] = {
    "dual_ascent 3000 x 200": (
        fit(20, solver="dual_ascent"),
        lambda: (cloud(3000, 200),),
    ),
    "labels 3000 x 100": (
        fit(20, pairs="labels"),
        lambda: (cloud(3000, 100), classes(3000)),
    ),
    "labels 6000 x 100": (
        fit(20, pairs="labels"),
        lambda: (cloud(6000, 100), classes(6000)),
    ),
    "min_distance 2000 x 100": (
        fit(20, min_distance=0.1),
        lambda: (cloud(2000, 100),),
    ),
    "min_distance 4000 x 100": (
        fit(20, min_distance=0.1),
        lambda: (cloud(4000, 100),),
    ),
    "heldout 0.3, 4000 x 100": (fit(20, heldout=0.3), lambda: (cloud(4000, 100),)),
    "200 x 5000": (fit(50), lambda: (cloud(200, 5000),)),
    "sparse 2000 x 8000": (fit(20), lambda: (sparse_rows(),)),
    "20,000 x 50": (fit(25), lambda: (cloud(20_000, 50),)),
    "nested 3000 x 200": (fit(40, nested=(10, 20)), lambda: (cloud(3000, 200),)),
    "max_distortion 3000 x 200": (
        fit(None, max_distortion=0.3),
        lambda: (cloud(3000, 200),),
    ),
    "neighbours 5000 x 50": (
        fit(10, pairs="neighbors"),
        lambda: (cloud(5000, 50),),
    ),
    "guaranteed 3000 x 200": (guaranteed, lambda: (cloud(3000, 200),)),
    "curve 2000 x 100": (curve, lambda: (cloud(2000, 100),)),
    "frontier 2000 x 100": (frontier, lambda: (cloud(2000, 100),)),
    "100,000 x 64": (fit(16), lambda: (cloud(100_000, 64),)),
}


def limits(seconds: float, only: str) -> list[str]:
    """Run every case under a limit."""
    lines = [
        "| case | limit | took | over by more than allowed | answer |",
        "|---|---|---|---|---|",
    ]
    # The first fit of a process loads libraries.
    fit(2)(1.0, cloud(50, 5))
    for name, (run, make) in CASES.items():
        if only not in name:
            continue
        data = make()
        start = time.perf_counter()
        answer = run(seconds, *data)
        took = time.perf_counter() - start
        late = took - (1.1 * seconds + 1.0)
        lines.append(
            f"| {name} | {seconds:g} s | {took:.1f} s | "
            f"{f'{late:.1f} s' if late > 0.0 else 'no'} | {answer} |"
        )
        print(lines[-1], flush=True)
    return lines


def stops(repeats: int = 10) -> list[str]:
    """Stop fits of several sizes at random moments, at the command line."""
    lines = [
        "| size | Ctrl-C after | answered after | ended after | status | saved |",
        "|---|---|---|---|---|---|",
    ]
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for n_points, n_dims in SIZES:
            path = Path(folder) / "points.npy"
            np.save(path, cloud(n_points, n_dims))
            for run in range(repeats):
                moment = float(rng.uniform(0.05, 12.0))
                line = stopped(path, moment, is_twice=run % 2 == 1)
                lines.append(f"| {n_points:,} x {n_dims} | {line} |")
                print(lines[-1], flush=True)
    return lines


def stopped(path: Path, moment: float, *, is_twice: bool) -> str:
    """Stop one fit; return the rest of its row."""
    model = path.with_suffix(".isoproj")
    model.unlink(missing_ok=True)
    words = ["fit", str(path), "-k", "10", "-o", str(model), "--tol", "1e-6"]
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "isoproj", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        time.sleep(moment)
        start = time.perf_counter()
        process.send_signal(signal.SIGINT)
        answer = None
        for line in process.stderr:
            if b"topp" in line:
                answer = time.perf_counter() - start
                break
        if is_twice:
            start = time.perf_counter()
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=120)
        ended = time.perf_counter() - start
    said = "nothing said" if answer is None else f"{answer:.2f} s"
    which = " (second)" if is_twice else ""
    return (
        f"{moment:.1f} s{which} | {said} | {ended:.2f} s | {process.returncode} | "
        f"{'yes' if model.exists() else 'no'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["limits", "stops"])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in options.parts:
        found = limits(options.seconds, options.only) if part == "limits" else stops()
        if options.write:
            keep("limits", part, found)


if __name__ == "__main__":
    main()
