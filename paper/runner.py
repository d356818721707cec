"""Run cells in processes of one thread each; record each cell when it finishes."""

from __future__ import annotations

import datetime
import itertools
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from isoproj.comparison.compare import machine_facts
from paper.cells import measure_cell
from paper.datasets import load
from paper.records import Finished, Records, append, mend
from paper.table import WHOLE, Cell

# BLAS libraries read these when they are loaded, so children must start with them.
_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "ISOPROJ_NUM_THREADS",
)


@dataclass(frozen=True, slots=True)
class CellsDone:
    """The latest finished cell, cells done of all in this run, and seconds left."""

    finished: Finished
    done: int
    total: int
    seconds_left: float


def run_cells(
    cells: Sequence[Cell],
    path: Path,
    *,
    jobs: int = 1,
    progress: Callable[[CellsDone], None] | None = None,
) -> Records:
    """Measure the cells that are missing in a file, most wanted first, and add them.

    The file holds JSON lines and is made if need be. ``jobs`` processes work at a time.
    Returns all records of the file, older cells included.
    """
    mend(path)
    records = Records.read(path)
    missing = records.lacking(cells)
    if not missing:
        return records
    run = _describe_run(missing, jobs)
    records.runs[run["run"]] = run
    append(path, run)
    start, paid = time.monotonic(), 0.0
    bill = sum(map(_cost, missing))
    for done, finished in enumerate(_measured(missing, jobs, run["run"]), 1):
        append(path, finished.as_dict())
        records.add(finished)
        paid += _cost(finished.cell)
        if progress is not None:
            left = (time.monotonic() - start) * (bill - paid) / paid
            progress(CellsDone(finished, done, len(missing), left))
    return records


def _measured(cells: Sequence[Cell], jobs: int, run: str) -> Iterator[Finished]:
    """Yield cells as they finish; only a few are queued, so that a stop is quick."""
    context = multiprocessing.get_context("spawn")
    with (
        _environment(dict.fromkeys(_THREADS, "1")),
        ProcessPoolExecutor(jobs, context, initializer=_prepare_child) as pool,
    ):
        todo = iter(cells)
        try:
            running = {
                pool.submit(_measure, cell, run)
                for cell in itertools.islice(todo, jobs + 1)
            }
            while running:
                ready, running = wait(running, return_when=FIRST_COMPLETED)
                for future in ready:
                    cell = next(todo, None)
                    if cell is not None:
                        running.add(pool.submit(_measure, cell, run))
                    yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def _prepare_child() -> None:
    """Make a child process ignore Ctrl-C and end when its parent has ended.

    A solver that is interrupted returns its best so far; that must not become the
    record of a finished cell.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _measure(cell: Cell, run: str) -> Finished:
    """Measure one cell and its seconds."""
    start = time.perf_counter()
    found = measure_cell(cell)
    seconds = round(time.perf_counter() - start, 3)
    return Finished(cell, found["facts"], found["scores"], run, seconds)


@contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _describe_run(cells: Sequence[Cell], jobs: int) -> dict[str, Any]:
    """Return machine, versions and data of a run, as its line in the records."""
    now = datetime.datetime.now(datetime.UTC)
    collections = sorted({cell.subject.data for cell in cells})
    loaded = [load(name, offline=True) for name in collections]
    return {
        "run": f"{now:%Y%m%dT%H%M%S}-{os.getpid()}",
        "started": now.isoformat(timespec="seconds"),
        **machine_facts(),
        "threads": 1,
        "jobs": jobs,
        "processor": _processor(),
        "scs": _version("scs"),
        "data": {c.name: {"source": c.source, "sha256": c.fingerprint} for c in loaded},
    }


def _processor() -> str | None:
    """Return the processor's name, None where the system does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    names = [line for line in text.splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else None


def _version(package: str) -> str | None:
    """Return the version of a package, None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cost(cell: Cell) -> float:
    """Return about how many seconds a cell takes, to estimate the time left."""
    if cell.experiment.startswith("table1"):
        return 0.5
    if cell.experiment == "figure3":
        return 45.0
    if cell.experiment in ("dimension", "convergence"):
        return 5.0
    if cell.r == WHOLE:
        return 60.0 + cell.k
    return 1.5 + 0.03 * cell.r * (2.0 if cell.r > 1000 else 1.0)
