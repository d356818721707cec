"""Figures of whole data sets: audits, memory, full MNIST, a cluster, larger sizes.

Run: python benchmarks/scale.py [audit] [memory] [mnist] [text] [words] [more_words]
[dask] [cost] [outofcore] [cores] [million] [--write]
`--write` keeps the table of each part under benchmarks/results/. Each part but `cost`
takes its figures as ratios inside one run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from _data import data_file, mnist_images
from _results import keep
from foundation import product_rate
from portfolio import text, words

from isoproj import DaskEngine, NearIsometricProjection, audit
from isoproj.numerics.threads import n_threads
from isoproj.pairs.oracle import PairSearch


def timed(function, *args, **options):
    start = time.perf_counter()
    answer = function(*args, **options)
    return answer, time.perf_counter() - start


def principal_map(points: np.ndarray, k: int) -> np.ndarray:
    centred = points[:4000] - points[:4000].mean(axis=0)
    return np.linalg.svd(centred, full_matrices=False)[2][:k].astype(np.float64)


def audits(n_points: int, k: int = 20, repeats: int = 5) -> list[str]:
    points = mnist_images(n_points)
    n, d = points.shape
    components = principal_map(points, k)
    pairs = n * (n - 1) / 2
    lines = [
        f"audit of all {pairs:,.0f} pairs of MNIST, {n} x {d} float32, k = {k} "
        f"(principal axes), {n_threads()} threads; the rate is 2 d flops a pair. "
        f"{np.ptp(points, axis=0).astype(bool).sum()} columns are not the same in all "
        "rows; others are left out of the product.",
        "",
        "| run | whole scan | of the product rate | worst pairs only | times faster |",
        "|---|---|---|---|---|",
    ]
    for run in range(repeats):
        before = product_rate(d)
        full, whole = timed(audit, points, components)
        reference = (before + product_rate(d)) / 2
        sifted, quick = timed(audit, points, components, spread=False)
        assert (full.worst_pairs == sifted.worst_pairs).all()
        assert (full.worst_distortions == sifted.worst_distortions).all()
        share = 2e-9 * pairs * d / whole / reference
        lines.append(
            f"| {run + 1} | {whole:.2f} s | {share:.0%} | {quick:.2f} s | "
            f"{whole / quick:.1f} |"
        )
    return [*lines, "", f"Same worst pairs, to the last bit. {sifted.effort}."]


def memory_of(what: str, n_points: int) -> dict[str, float]:
    """Measure in a process of its own, whose peak is that of the work alone."""
    command = [sys.executable, __file__, "--measure", what, "--points", str(n_points)]
    return json.loads(subprocess.run(command, check=True, stdout=-1).stdout)


def measure(what: str, n_points: int) -> None:
    points = mnist_images(n_points)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    if what == "audit":
        audit(points, principal_map(points, 20))
    elif what == "worst pairs":
        audit(points, principal_map(points, 20), spread=False)
    else:
        NearIsometricProjection(
            20, random_state=0, tol=0.2, time_limit=20, memory_limit=2e8
        ).fit(points)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps({"start": start, "peak": peak, "data": points.nbytes / 1e6}))


def memory() -> list[str]:
    lines = [
        "Peak resident memory in MB, each in a process of its own, MNIST float32; the",
        "fit is stopped after 20 s, memory_limit = 2e8; `start` is Python with data.",
        "",
        "| r | X | r(r-1)/2 distances in float32 | start | audit | worst pairs | fit |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in (5_000, 20_000, 60_000):
        got = {name: memory_of(name, r) for name in ("audit", "worst pairs", "fit")}
        first = got["audit"]
        peaks = " | ".join(f"{each['peak']:.0f}" for each in got.values())
        lines.append(
            f"| {r} | {first['data']:.0f} | {r * (r - 1) * 2 / 1e6:.0f} | "
            f"{first['start']:.0f} | {peaks} |"
        )
        print(lines[-1], flush=True)
    return lines


@contextmanager
def anonymous_memory():
    """Give a list that ends with the most memory of the process's own, in bytes."""
    peak, done = [own_memory()], threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], own_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    yield peak
    done.set()
    watcher.join()


def own_memory() -> int:
    """Return bytes that no file backs, which the system cannot take back."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(t.split()[1]) for t in lines if t.startswith("RssAnon"))


def measure_outofcore(what: str, path: str, budget: float) -> None:
    """Measure one task on a mapped file, after a small one has loaded all libraries."""
    warnings.simplefilter("ignore")
    points = np.load(path, mmap_mode="r")
    components = principal_map(points, 20)
    tasks = {
        "audit": lambda X: audit(X, components, memory_limit=budget).mean,
        "worst pairs": lambda X: audit(
            X, components, spread=False, memory_limit=budget
        ).worst_distortions.tolist(),
        "fit": lambda X: (
            NearIsometricProjection(
                20,
                random_state=0,
                tol=0.1,
                n_restarts=0,
                max_iter=2,
                memory_limit=budget,
            )
            .fit(X)
            .components_.tolist()
        ),
    }
    tasks[what](points[:2200])
    start, seconds, processor = own_memory(), time.perf_counter(), time.process_time()
    with anonymous_memory() as peak:
        answer = tasks[what](points)
    told = {
        "memory": peak[0] - start,
        "seconds": time.perf_counter() - seconds,
        "processor": time.process_time() - processor,
        "answer": hashlib.sha256(repr(answer).encode()).hexdigest(),
    }
    print(json.dumps(told))


def outofcore(n_points: int) -> list[str]:
    points = mnist_images(n_points)
    n, d = points.shape
    # Too little for distances in either case, so that fits work on the same pairs.
    budgets = {"memory": 1.5 * n**2, "files": 0.1 * n * d * 8}
    lines = [
        f"MNIST, {n} x {d} float32 in a mapped .npy ({points.nbytes / 1e6:.0f} MB, "
        f"{n * d * 8 / 1e6:.0f} MB in float64), k = 20, {n_threads()} threads. Own "
        "memory is what the task adds, at its peak, to memory that no file backs and "
        "the system cannot take back; answers are the same to the last bit.",
        "",
        "| task | memory_limit | own memory | processor time | wall time | "
        "times the processor time in memory |",
        "|---|---|---|---|---|---|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points.npy"
        np.save(path, points)
        for what in ("audit", "worst pairs", "fit"):
            got = {
                name: _measured_outofcore(what, path, budget)
                for name, budget in budgets.items()
            }
            assert len({each["answer"] for each in got.values()}) == 1
            for name, each in got.items():
                ratio = each["processor"] / got["memory"]["processor"]
                lines.append(
                    f"| {what} | {budgets[name] / 1e6:.0f} MB | "
                    f"{each['memory'] / 1e6:.0f} MB | {each['processor']:.1f} s | "
                    f"{each['seconds']:.1f} s | {ratio:.2f} |"
                )
                print(lines[-1], flush=True)
    return lines


def _measured_outofcore(what: str, path: Path, budget: float) -> dict[str, float]:
    command = [sys.executable, __file__, "--measure", what]
    command += ["--mapped", str(path), "--budget", str(budget)]
    return json.loads(subprocess.run(command, check=True, stdout=-1).stdout)


def all_posts() -> np.ndarray:
    """Return the embeddings of all posts."""
    with np.load(data_file("text_embeddings_384d.npz")) as file:
        return file["embeddings"]


def whole_set(name: str, points: np.ndarray, k: int, tol: float) -> list[str]:
    """Fit a whole data set; tell its cost in audits."""
    unit = timed(audit, points, principal_map(points, k))[1]
    searches = []
    whole = PairSearch.weakest

    def counted(self, *args, **options):
        found, seconds = timed(whole, self, *args, **options)
        if self.pairs.listed is None:
            searches.append(seconds)
        return found

    PairSearch.weakest = counted
    model = NearIsometricProjection(k, random_state=0, tol=tol)
    _, seconds = timed(model.fit, points)
    PairSearch.weakest = whole
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    certificate, last = model.certificate_, model.history_[-1]
    return [
        f"{name}, {len(points)} x {points.shape[1]} float32, k = {k}, tol = {tol:g}, "
        f"{n_threads()} threads",
        "",
        f"distortion {model.distortion_:.4f} over all {certificate.n_pairs:,} pairs, "
        f"lower bound {model.lower_bound_:.4f}, gap {certificate.optimality_gap:.2%}, "
        f"solver gap {last.relaxed / last.lower_bound - 1:.2%}, {model.status_}",
        f"fit {seconds:.0f} s with {len(searches)} searches of all pairs "
        f"({sum(searches):.0f} s) and one last exact scan; one audit "
        f"{unit:.0f} s, so {seconds / unit:.1f} audits",
        f"peak memory {memory:.1f} GB, the audit included",
    ]


def cores() -> list[str]:
    """Return how many cores default fits keep busy, after a first fit."""
    images = mnist_images(60_000)
    order = np.random.default_rng(0).permutation(len(images))
    cases = (
        ("text embeddings", text(), 64),
        ("MNIST", images[order[:2000]].astype(float), 30),
        ("MNIST", images[order[:10_000]], 30),
    )
    lines = ["| data | shape | k | wall | processor | cores busy |", "|---" * 6 + "|"]
    NearIsometricProjection(2, random_state=0).fit(words(200))
    for name, points, k in cases:
        processor = time.process_time()
        model = NearIsometricProjection(k, random_state=0)
        seconds = timed(model.fit, points)[1]
        processor = time.process_time() - processor
        lines.append(
            f"| {name} | {points.shape[0]} x {points.shape[1]} | {k} | {seconds:.1f} s "
            f"| {processor:.1f} s | {processor / seconds:.2f} |"
        )
        print(lines[-1], flush=True)
    return lines


def million(n_points: int) -> list[str]:
    """Ask the command line for what can be done with a million rows."""
    lines = [
        f"`isoproj fit points.npy -k 16`, {n_points:,} x 64 float32, {n_threads()} "
        "threads.",
        "",
        "| options | seconds | what it says of the result |",
        "|---|---|---|",
    ]
    rng = np.random.default_rng(0)
    points = rng.standard_normal((n_points, 64), dtype=np.float32)
    points *= np.arange(1, 65, dtype=np.float32) ** -0.5
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points.npy"
        np.save(path, points)
        for options in (
            ["--estimate"],
            ["--pairs", "sample"],
            ["--pairs", "approximate-neighbors"],
            ["--time-limit", "600"],
        ):
            command = [sys.executable, "-m", "isoproj", "fit", str(path), "-k", "16"]
            command += [*options, "-o", str(Path(folder) / "model.isoproj"), "--force"]
            done, seconds = timed(
                subprocess.run, command, capture_output=True, text=True, check=False
            )
            said = " ".join(done.stdout.split()) or done.stderr.splitlines()[-1]
            lines.append(f"| `{' '.join(options)}` | {seconds:.0f} | {said} |")
            print(lines[-1], flush=True)
    return lines


def cluster_rate(n_points: int) -> list[str]:
    from dask.distributed import Client, LocalCluster

    points = mnist_images(n_points)
    components = principal_map(points, 20)
    seconds, results = {}, []
    # Workers open files by their names; copies would have to be sent to each.
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "points.npy"
    np.save(path, points)
    mapped = np.load(path, mmap_mode="r")
    for workers in (1, 2, 1, 2):
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
        )
        with cluster, Client(cluster) as client:
            client.run(_one_thread)
            engine = DaskEngine(client)
            audit(points[:3000], components, engine=engine)
            result, used = timed(
                audit, mapped, components, engine=engine, memory_limit=1e8
            )
            assert engine.sharing == "path"
        seconds.setdefault(workers, []).append(used)
        results.append(result)
    folder.cleanup()
    here = audit(points, components)
    for result in results:
        assert (result.worst_distortions == here.worst_distortions).all()
        assert (result.histogram[0] == here.histogram[0]).all()
        assert result.mean == here.mean
    one, two = min(seconds[1]), min(seconds[2])
    return [
        f"audit of MNIST, {n_points} points, on a local Dask cluster of processes "
        "that read them from a file",
        "",
        f"one worker {one:.1f} s, two workers {two:.1f} s: {one / two:.2f} times the "
        "rate; the same answer as threads, to the last bit",
    ]


def _one_thread() -> None:
    import os

    os.environ["ISOPROJ_NUM_THREADS"] = "1"


def told(hours: float) -> str:
    return f"{hours:,.1f} h" if hours >= 1.0 else f"{60.0 * hours:.0f} min"


def cost(n_points: int) -> list[str]:
    points = mnist_images(n_points)
    n, d = points.shape
    pairs = n * (n - 1) / 2
    components = principal_map(points, 20)
    whole = pairs / timed(audit, points, components)[1] / n_threads()
    sifted = pairs / timed(audit, points, components, spread=False)[1] / n_threads()
    lines = [
        f"Measured on {n} points of MNIST (d = {d}, k = 20), for each thread: a whole "
        f"scan looks at {whole / 1e6:.0f} M pairs/s, a sieve at {sifted / 1e6:.0f} M.",
        "",
        "| points | pairs | flops of a whole scan | X in float32 | whole scan, one "
        "thread | worst pairs, one thread | threads for an hour: whole | worst pairs |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for r in (10**5, 10**6, 10**7):
        count = r * (r - 1) / 2
        hours = count / whole / 3600, count / sifted / 3600
        lines.append(
            f"| 10^{round(np.log10(r))} | {count:.1e} | {2 * count * (d + 20):.1e} | "
            f"{r * d * 4 / 1e9:.1f} GB | {told(hours[0])} | {told(hours[1])} | "
            f"{max(1, np.ceil(hours[0])):,.0f} | {max(1, np.ceil(hours[1])):,.0f} |"
        )
    return lines


def main() -> None:
    parts = {
        "audit": lambda: audits(options.points or 20_000),
        "memory": memory,
        "mnist": lambda: whole_set(
            "MNIST", mnist_images(options.points or 60_000), 40, options.tol
        ),
        "text": lambda: whole_set("text embeddings", all_posts(), 64, options.tol),
        "words": lambda: whole_set(
            "words",
            words(options.points or 100_000).astype(np.float32),
            25,
            options.tol,
        ),
        "more_words": lambda: whole_set(
            "words",
            words(options.points or 300_000).astype(np.float32),
            25,
            options.tol,
        ),
        "cores": cores,
        "million": lambda: million(options.points or 1_000_000),
        "dask": lambda: cluster_rate(options.points or 40_000),
        "cost": lambda: cost(options.points or 20_000),
        "outofcore": lambda: outofcore(options.points or 40_000),
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=list(parts))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--points", type=int, default=None)
    parser.add_argument("--tol", type=float, default=1e-2)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--mapped", help=argparse.SUPPRESS)
    parser.add_argument("--budget", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.mapped:
        measure_outofcore(options.measure, options.mapped, options.budget)
        return
    if options.measure:
        measure(options.measure, options.points)
        return
    for name in options.what:
        lines = parts[name]()
        print("\n".join(lines), flush=True)
        if options.write:
            keep("scale", name, lines)


if __name__ == "__main__":
    main()
