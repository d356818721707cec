"""Killed writers, full disks and little memory leave whole files and one clear line."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
import warnings

import numpy as np
import pytest

from attacks.exact import SEED
from isoproj import NearIsometricProjection, report
from isoproj.cli.arguments import EXPORTS
from isoproj.cli.program import main
from isoproj.files.export.dense import to_dense, write_folder
from isoproj.files.write.writing import write_points
from isoproj.numerics.container import write_atomically
from isoproj.proof.certificate import Certificate
from isoproj.solvers.checkpoint import Checkpoint

pytestmark = pytest.mark.skipif(os.name != "posix", reason="fork and signals")

FORMATS = [
    "a.npy",
    "a.npy.gz",
    "a.npz",
    "a.csv",
    "a.csv.gz",
    "a.tsv",
    "a.parquet",
    "a.arrow",
    "a.h5",
    "a.safetensors",
    "a.fvecs",
]
OLD, NEW = np.zeros((300, 8), np.float32), np.ones((300, 8), np.float32)


def forked(work):
    """Run a function in a child and return its process id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 70
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            code = work() or 0
        finally:
            os._exit(code)
    return child


def writers(models):
    """Return name and function of every writer; it writes the old or the new."""
    model = NearIsometricProjection.load(models / "near.isoproj")
    certificate = Certificate.load(models / "near.isoproj")
    told = report(model)

    def points(path, new):
        write_points(path, NEW if new else OLD)

    def saved(path, new):
        (model if new else certificate).save(path)

    def checkpoint(path, new):
        Checkpoint(path, {"k": 1}).save({"round": int(new)}, {"a": NEW if new else OLD})

    def text(path, new):
        write_atomically(path, (b"new" if new else b"old") * 5000)

    def dense(path, new):
        write_folder(path, to_dense(certificate, np.full(6, float(new))))

    found = dict.fromkeys(FORMATS, points)
    found |= {"a.isoproj": saved, "a.checkpoint": checkpoint, "a.sql": text}
    found |= {f"r.{kind}": lambda path, _: told.save(path) for kind in ("html", "md")}
    return {**found, "folder": dense}


def contents(path):
    """Return the bytes of a file, or of all files of a folder."""
    if path.is_dir():
        return {p.name: p.read_bytes() for p in sorted(path.iterdir())}
    return path.read_bytes()


def kill_writer(models, folder, name, times, rng):
    """Kill a writer at random moments; return how many temporary names were left."""
    write, path, left = writers(models)[name], folder / name, 0
    whole = []
    for new in (True, False):
        write(path, new)
        whole.append(contents(path))

    def work():
        new = False
        while True:
            new = not new
            write(path, new)

    for _ in range(times):
        child = forked(work)
        time.sleep(float(rng.uniform(0.0, 0.03)))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if name == "folder":
            # Each file of a folder that exists is replaced for itself.
            for file, found in contents(path).items():
                if not file.startswith("."):
                    assert found in (whole[0][file], whole[1][file])
        else:
            assert contents(path) in whole
        for other in folder.rglob(".*"):
            # Only between its name and its place has an unfinished file a name.
            left += 1
            other.unlink()
    assert left <= max(2, times // 4)
    return left


@pytest.mark.attack
@pytest.mark.parametrize("name", [*FORMATS, "a.isoproj", "a.checkpoint", "a.sql"])
def test_a_killed_writer_leaves_the_old_file_or_the_new(
    models, tmp_path, name, figures
):
    rng = np.random.default_rng([SEED, 4])
    left = kill_writer(models, tmp_path, name, 25, rng)
    figures(f"seed {SEED}, 25 kills, 0 broken files, {left} temporary names left")


@pytest.mark.attack
@pytest.mark.parametrize("name", ["r.html", "r.md", "folder"])
def test_a_killed_report_or_folder_is_whole(models, tmp_path, name, figures):
    rng = np.random.default_rng([SEED, 5])
    left = kill_writer(models, tmp_path, name, 15, rng)
    figures(f"seed {SEED}, 15 kills, 0 broken files, {left} temporary names left")


def test_a_few_killed_writers_leave_whole_files(models, tmp_path):
    rng = np.random.default_rng([SEED, 6])
    for name in ("a.npy", "a.isoproj"):
        kill_writer(models, tmp_path, name, 3, rng)


def command_lines(models, folder):
    """Return a command line for every verb that writes, and its output."""
    model, data = models / "near.isoproj", models / "points.npy"
    lines = [
        (["transform", model, data, "-o", folder / name], folder / name)
        for name in FORMATS
    ]
    lines += [
        (["export", model, "--to", to, "-o", folder / f"e-{to}"], folder / f"e-{to}")
        for to in EXPORTS
    ]
    lines += [
        (["report", model, data, "-o", folder / name], folder / name)
        for name in ("r.html", "r.md", "r.json")
    ]
    fit = ["fit", data, "-k", 2, "--solver", "dual_ascent", "-o", folder / "f.isoproj"]
    return [*lines, (fit, folder / "f.isoproj")]


def limited(line, kind, limit):
    """Run a verb in a child under a limit; return its status and standard error."""
    read, write = os.pipe()

    def work():
        os.dup2(write, 2)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(kind, (limit, limit))
        status = main([str(a) for a in line])
        sys.stderr.flush()
        return status

    child = forked(work)
    os.close(write)
    with os.fdopen(read) as told:
        text = told.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    shown = [str(a) for a in line[:4]]
    assert status in (0, 2), (shown, status, text)
    assert "fault of isoproj" not in text, (shown, text)
    assert "Traceback" not in text, (shown, text)
    return status, text


def fill_disk(models, folder, lines):
    for line, output in lines:
        status, text = limited(line, resource.RLIMIT_FSIZE, 40)
        assert status == 2, (output.name, text)
        assert not output.exists(), output.name
        assert not list(folder.glob(".*")), output.name


@pytest.mark.attack
def test_a_full_disk_is_one_clear_line_and_no_file(models, tmp_path, figures):
    lines = command_lines(models, tmp_path)
    fill_disk(models, tmp_path, lines)
    figures(f"{len(lines)} verbs and formats, no file left")


def test_a_few_verbs_on_a_full_disk(models, tmp_path):
    fill_disk(models, tmp_path, command_lines(models, tmp_path)[::9])
