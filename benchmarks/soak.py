"""Fits, audits, updates and verifies in one process for a long time: does it leak?

Run: python benchmarks/soak.py [SECONDS] [--seed S] [--every SECONDS]
Three cycles run every case once, each on new random data. After a cycle, memory
(resident, after garbage collection), threads, open files and temporary files are
counted. The command fails if memory after the first tenth of the time grows by more
than 5 %, if a thread, an open file or a temporary file is left, or if a claim does not
verify. Linux only.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse

from isoproj import (
    GuaranteedPCA,
    NearIsometricProjection,
    audit,
    distortion_curve,
    guarantee_frontier,
    verify,
)
from isoproj.cli.program import main as program
from isoproj.exceptions import InfeasibleError

GROWTH = 0.05


@dataclass(frozen=True)
class Count:
    """What the process holds between two cycles."""

    seconds: float
    memory: float
    threads: int
    files: int
    mapped: int
    temporaries: int

    def line(self, cycle: int) -> str:
        return (
            f"{self.seconds:7.0f} s  cycle {cycle:5d}  memory {self.memory:8.2f} MB  "
            f"threads {self.threads}  open files {self.files}  "
            f"mapped scratch {self.mapped}  temporaries {self.temporaries}"
        )


def counted(start: float, folder: Path) -> Count:
    gc.collect()
    status = Path("/proc/self/status").read_text()
    resident = next(x for x in status.splitlines() if x.startswith("VmRSS:"))
    maps = Path("/proc/self/maps").read_text()
    return Count(
        seconds=time.monotonic() - start,
        memory=int(resident.split()[1]) / 1024,
        threads=len(list(Path("/proc/self/task").iterdir())),
        files=len(list(Path("/proc/self/fd").iterdir())),
        mapped=sum(".scratch" in line for line in maps.splitlines()),
        temporaries=sum(len(files) for _, _, files in os.walk(folder)),
    )


NEAR = [
    {"n_components": 2},
    {"n_components": 3, "solver": "dual_ascent", "max_iter": 20},
    {"n_components": None, "max_distortion": 0.7},
    {"n_components": 2, "pairs": "neighbors", "n_neighbors": 4},
    {"n_components": 2, "pairs": "directions"},
    {"n_components": 2, "pairs": "labels"},
    {"n_components": 2, "pairs": "sample"},
    {"n_components": 2, "include_norms": True, "scale": "balanced"},
    {"n_components": 3, "heldout": 0.2, "n_restarts": 2},
    {"n_components": 2, "memory_limit": 0.0, "time_limit": 1.0},
    {"n_components": 4, "tol": 1e-3, "time_limit": 0.5},
    {"n_components": 2, "min_distance": 0.5},
]
PCA = [
    {"n_components": 3, "slack": 0.05},
    {"n_components": 3, "objective": "distortion", "time_limit": 1.0},
    {"n_components": None, "max_distortion": 0.8, "heldout": 5},
    {"n_components": 2, "max_distortion": 0.01},
    {"n_components": 2, "pairs": "neighbors", "memory_limit": 0.0},
]


def random_rows(rng: np.random.Generator, form: int) -> object:
    rows = rng.standard_normal((40, 6)) * rng.uniform(0.3, 3.0, 6)
    if form == 1:
        return rows.astype(np.float32)
    if form == 2:
        return scipy.sparse.csr_array(rows * (rng.random(rows.shape) < 0.4))
    return rows


def in_memory(rng: np.random.Generator, folder: Path, third: int) -> int:
    """Fit, check, save, load and update a third of the models; count the fits."""
    labels = rng.integers(0, 3, 40)
    n_fits = 0
    for kind, options in ((NearIsometricProjection, NEAR), (GuaranteedPCA, PCA)):
        for option in options[third::3]:
            rows = random_rows(rng, 0 if kind is GuaranteedPCA else n_fits % 3)
            drawn = int(rng.integers(2**31))
            model = kind(**{"max_iter": 3, "random_state": drawn, **option})
            n_fits += 1
            try:
                model.fit(rows, labels)
            except InfeasibleError:
                continue
            assert model.lower_bound_ <= model.distortion_
            model.save(folder / "model.isoproj")
            again = kind.load(folder / "model.isoproj")
            audit(rows, again, n_worst=3, recall=(1, 5), memory_limit=1e4)
            if model.heldout_ is None:
                verify(again, rows)
            again.transform(rows)
            if kind is NearIsometricProjection and set(option) == {"n_components"}:
                again.update(rng.standard_normal((20, 6)) * 4.0, rows)
    return n_fits


def checkpointed(rng: np.random.Generator, folder: Path) -> int:
    """Stop a fit; a second one goes on from its checkpoint."""
    rows = rng.standard_normal((40, 6))
    path = folder / "checkpoint"
    for _ in range(2):
        NearIsometricProjection(2, checkpoint=path, random_state=0, max_iter=3).fit(
            rows
        )
    assert path.exists()
    return 2


def traced(rng: np.random.Generator, _: Path) -> int:
    """Trace both curves."""
    rows = rng.standard_normal((30, 4))
    distortion_curve(rows, [1, 2, 3], time_limit=1.0)
    guarantee_frontier(rows, 2, 2, tol=0.1)
    return 5


def at_the_command_line(rng: np.random.Generator, folder: Path) -> int:
    """Run the verbs inside this process, and one that fails."""
    data, model = folder / "points.npy", folder / "cli.isoproj"
    np.save(data, rng.standard_normal((40, 6)))
    runs = [
        (0, "fit", data, "-k", 2, "-o", model, "--force"),
        (0, "verify", model, data),
        (0, "info", model, "--json"),
        (0, "audit", model, data),
        (0, "transform", model, data, "-o", folder / "z.csv", "--force"),
        (0, "export", model, "--to", "pgvector", "-o", folder / "z.sql", "--force"),
        (0, "report", model, data, "-o", folder / "report.html", "--force"),
        (2, "fit", data, "-k", 99),
        (2, "info", data.with_suffix(".absent")),
    ]
    for expected, *arguments in runs:
        status = program([str(a) for a in arguments])
        assert status == expected, (status, arguments)
    return 1


def cycle(seed: int, third: int, folder: Path) -> int:
    rng = np.random.default_rng(seed)
    n_fits = in_memory(rng, folder, third)
    n_fits += (traced, checkpointed, at_the_command_line)[third](rng, folder)
    for path in folder.iterdir():
        # A name that begins with a dot is an unfinished file; those must not be left.
        if not path.name.startswith("."):
            path.unlink()
    return n_fits


def faults(counts: list[Count], seconds: float) -> list[str]:
    """Return what was left behind, in words."""
    # The first three cycles load what is loaded once, however slow they are.
    n_early = max(3, sum(count.seconds <= seconds / 10 for count in counts))
    early = [count.memory for count in counts[:n_early]]
    late = [count.memory for count in counts[n_early:]] or early
    growth = max(late) / max(early) - 1.0
    tenth = max(1, len(late) // 10)
    print(
        f"memory: at most {max(early):.2f} MB in the first tenth, {max(late):.2f} MB "
        f"after it ({100 * growth:+.2f} %); medians of the second and last tenth "
        f"{statistics.median(late[:tenth]):.2f} and "
        f"{statistics.median(late[-tenth:]):.2f} MB"
    )
    found = [f"memory grew by {100 * growth:.1f} %"] if growth > GROWTH else []
    for name in ("threads", "files", "mapped", "temporaries"):
        first, last = (getattr(c, name) for c in (counts[:3][-1], counts[-1]))
        print(f"{name}: {first} after the third cycle, {last} after the last")
        if last > first or (name in ("mapped", "temporaries") and last):
            found.append(f"{name}: {first} became {last}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=7200.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--every", type=float, default=60.0)
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else time.time_ns() % 2**31
    print(f"seed {seed}, {asked.seconds:.0f} s", flush=True)
    warnings.simplefilter("ignore")
    outer = Path(tempfile.mkdtemp(prefix="soak-"))
    temporaries, work = outer / "tmp", outer / "work"
    temporaries.mkdir()
    work.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(temporaries)
    # What the verbs print does not belong among the figures.
    sink = open(os.devnull, "w")  # noqa: SIM115, PTH123
    told, sys.stderr = sys.stdout, sink
    start = told_at = time.monotonic()
    counts, n_fits, n_cycles = [], 0, 0
    while time.monotonic() - start < asked.seconds or n_cycles < 3:
        sys.stdout = sink
        try:
            n_fits += cycle(seed + n_cycles, n_cycles % 3, work)
        except BaseException:
            sys.stdout, sys.stderr = told, sys.__stderr__
            print(f"cycle {n_cycles} with seed {seed + n_cycles} failed", flush=True)
            raise
        sys.stdout = told
        n_cycles += 1
        counts.append(counted(start, outer))
        if n_cycles == 1 or time.monotonic() - told_at >= asked.every:
            told_at = time.monotonic()
            print(counts[-1].line(n_cycles), flush=True)
    sys.stderr = sys.__stderr__
    print(counts[-1].line(n_cycles))
    print(f"{n_cycles} cycles, {n_fits} fits, seed {seed}")
    found = faults(counts, asked.seconds)
    print("left behind: " + ("; ".join(found) or "nothing"), flush=True)
    shutil.rmtree(outer)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
