from __future__ import annotations

import errno
import os
import pickle
import resource
import subprocess
import sys

import numpy as np
import pytest

QUICK = ("--solver", "dual_ascent", "--max-iter", "3")


@pytest.fixture
def refused(run):
    """Run something that must end in one line and status 2; return the line."""

    def call(*arguments):
        status, out, err = run(*arguments)
        assert (status, out) == (2, "")
        lines = [line for line in err.splitlines() if line.startswith("isoproj")]
        assert len(lines) == 1, err
        assert "Traceback" not in err
        return lines[0]

    return call


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("fitt",), "Did you mean 'fit'?"),
        (("fit",), "required"),
        (("fit", "points.npy"), "-k"),
        (
            ("fit", "points.npy", "-k", "two"),
            "-k must be a whole number, 1 or more; got 'two'",
        ),
        (("fit", "points.npy", "-k", "0"), "1 or more; got '0'"),
        (("fit", "points.npy", "-k", "2", "--heldout", "x"), "must be a share or"),
        (("fit", "points.npy", "-k", "0", "-o", "model.isoproj"), "1 or more"),
        (("fit", "none.npy", "-k", "1", "-o", "model.isoproj"), "does not exist"),
        (("fit", "points.npy", "--colums", "1:"), "Did you mean --columns?"),
        (("fit", "points.npy", "--dimensions=2"), "'--dimensions' is not an option"),
        (("fit", "points.npy", "wine", "-k", "2"), "'wine' is not expected here"),
        (
            ("fit", "points.npy", "-k", "2", "--pairs", "neighbours"),
            "mean 'neighbors'?",
        ),
        (("curve", "points.npy", "--targets", "20"), "at most 1; got '20'"),
        (("compare", "points.npy", "-k", "2", "--methods", "pcs"), "mean 'pca'?"),
        (("fit", "points.npy", "-k", "7"), "between 1 and the 6 features"),
        (("fit", "points.npy", "-k", "2", "--solver", "magic"), "dual_ascent"),
        (
            ("fit", "points.npy", "-k", "2", "--solver", "minmax"),
            "Did you mean 'minimax'?",
        ),
        (("fit", "points.npy", "-k", "2", "--max-iter", "0"), "--max-iter must be"),
        (("fit", "points.npy", "-k", "2", "--time-limit", "-1"), "above 0; got '-1'"),
        (("fit", "points.npy", "-k", "2", "--pairs", "what"), "what does not exist"),
        (("fit", "none.npy", "-k", "2"), "does not exist"),
        (("fit", ".", "-k", "2"), "it is a directory"),
        (("fit", "points.npy:x", "-k", "2"), "holds one array, without a name"),
        (("plan", "points.npy", "--recall", "0.9", "-o", "z.what"), "format"),
        (("fit", "model.isoproj", "-k", "2"), "it is an isoproj model"),
        (("fit", "points.npy", "-k", "2", "-o", "points.npy"), "is an input"),
        (("fit", "points.npy", "-k", "2", "-o", "m.npz"), "Name it m.isoproj"),
        (("fit", "points.npy", "-k", "2", "-o", "m.csv.gz"), "named like CSV text"),
        (("fit", "points.npy", "-k", "2", "-o", "model.isoproj"), "--force"),
        (("fit", "points.npy", "-k", "2", "-o", "no/m.isoproj"), "no folder"),
        (("fit", "points.npy", "-k", "2", "--checkpoint", "no/c"), "no folder"),
        (("transform", "points.npy", "model.isoproj", "-o", "z.npy"), "MODEL DATA"),
        (("transform", "model.isoproj", "points.npy"), "-o"),
        (("transform", "model.isoproj", "points.npy", "-o", "z.what"), "format"),
        (("transform", "model.isoproj", "points.npy", "-o", "z.h5ad"), "copy of"),
        (("transform", "model.isoproj", "points.npy", "-o", "z.bvecs"), "whole"),
        (("transform", "model.isoproj", "wine", "-o", "z.npy"), "the 6 features"),
        (
            ("transform", "model.isoproj", "points.npy", "-o", "points.npy", "--force"),
            "never overwritten",
        ),
        (
            ("transform", "model.isoproj", "points.npy", "-o", "-", "--json"),
            "both want",
        ),
        (("audit", "model.isoproj", "wine"), "the 6 features"),
        (("audit", "model.isoproj", "points.npy", "--worst", "0"), "1 or more"),
        (("verify", "points.npy", "points.npy"), "it is data"),
        (("export", "model.isoproj"), "--to"),
        (("export", "model.isoproj", "--to", "fais"), "Did you mean 'faiss'?"),
        (
            ("export", "model.isoproj", "--to", "pgvector", "--name", "a b"),
            "lower-case",
        ),
        (("info", "none"), "Built-in data sets are"),
        (("fit", "points.npy", "-k", "2", "-q", "-v"), "not allowed"),
    ],
)
def test_bad_usage_is_one_line(folder, refused, arguments, match):
    before = sorted(p.name for p in folder.iterdir())
    assert match in refused(*arguments)
    assert sorted(p.name for p in folder.iterdir()) == before


def test_a_pipe_or_device_is_never_replaced(folder, refused):
    # A pipe stands for devices: if the guard broke, root would lose a real one.
    os.mkfifo("pipe.npy")
    fit = ("fit", "points.npy", "-k", "2", "-o", "pipe.npy", "--force", *QUICK)
    assert "ordinary file" in refused(*fit)
    project = ("transform", "model.isoproj", "points.npy", "-o", "pipe.npy", "--force")
    assert "ordinary file" in refused(*project)
    assert (folder / "pipe.npy").is_fifo()


@pytest.mark.parametrize(
    "verb",
    [
        ("compare", "many.npz:a", "-k", "2", "-o", "many.npz"),
        ("compare", "many.npz:a", "-k", "2", "--plot", "many.npz"),
        ("curve", "many.npz:a", "-k", "2", "--plot", "many.npz"),
        ("curve", "many.npz:a", "-k", "2", "--labels", "who.txt", "--plot", "who.txt"),
        ("frontier", "many.npz:a", "-k", "2", "--plot", "many.npz"),
        ("export", "model.isoproj", "--to", "npy", "-o", "model.isoproj"),
    ],
)
def test_no_verb_overwrites_a_file_that_it_reads(folder, refused, points, verb):
    np.savez("many.npz", a=points, b=points)
    (folder / "who.txt").write_text("0\n" * len(points))
    assert "is an input" in refused(*verb, "--force")


def test_bad_data_is_one_line_that_says_where(folder, refused, points):
    hurt = np.ones((900, 3))
    hurt[812, 1] = np.nan
    np.save("nan.npy", hurt)
    assert "row 812, column 1 contains NaN" in refused("fit", "nan.npy", "-k", "2")
    (folder / "short.npy").write_bytes((folder / "points.npy").read_bytes()[:-100])
    assert "it is cut off" in refused("fit", "short.npy", "-k", "2")
    (folder / "text.csv").write_text("a,b\n1,2\n3,x\n")
    assert "line 3 (row 1), column 1" in refused("fit", "text.csv", "-k", "1")
    (folder / "comma.csv").write_text("a;b\n1,5;2\n")
    assert "'1,5' has a decimal comma" in refused("fit", "comma.csv", "-k", "1")
    (folder / "gone.csv").write_text("a,b,c\n1,,2\n3,4,5\nNA,,5\n")
    gone = refused("fit", "gone.csv", "-k", "1")
    assert "missing in 2 of 3 rows and in 2 columns (0 ('a'), 1 ('b'))" in gone
    assert "SimpleImputer" in gone
    (folder / "mixed.csv").write_text("1,2\n3\n")
    assert "has 1 columns where" in refused("fit", "mixed.csv", "-k", "1")
    (folder / "empty.npy").touch()
    assert "0 bytes" in refused("fit", "empty.npy", "-k", "1")
    np.save("one.npy", points[:1])
    assert "at least 2 points" in refused("fit", "one.npy", "-k", "1")
    np.save("none.npy", points[:, :0])
    assert "must have columns" in refused("fit", "none.npy", "-k", "1")
    np.save("same.npy", np.ones((5, 3)))
    assert "distinct" in refused("fit", "same.npy", "-k", "1")


def test_pickles_are_refused_as_data_and_as_models(folder, refused, points):
    (folder / "p.pkl").write_bytes(pickle.dumps(points))
    (folder / "p.isoproj").write_bytes(pickle.dumps(points))
    assert "never loads pickles" in refused("fit", "p.pkl", "-k", "2")
    assert "never loads pickles" in refused("verify", "p.isoproj", "points.npy")
    assert "never loads pickles" in refused("info", "p.pkl")


def test_a_model_of_a_newer_isoproj_says_upgrade(folder, refused):
    from isoproj.numerics.container import read_container, write_container

    header, tensors = read_container("model.isoproj")
    write_container("new.isoproj", {**header, "estimator": "Oracle"}, tensors)
    assert "Upgrade isoproj" in refused("verify", "new.isoproj", "points.npy")
    write_container("odd.isoproj", {**header, "estimator": "audit"}, tensors)
    assert "Upgrade isoproj" in refused("verify", "odd.isoproj", "points.npy")


def test_a_missing_extra_is_named(folder, refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "skops", None)
    monkeypatch.setitem(sys.modules, "skops.io", None)
    line = refused("export", "model.isoproj", "--to", "skops")
    assert "pip install 'isoproj[export]'" in line


def test_a_full_disk_is_one_line_and_leaves_nothing(folder, refused, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    before = sorted(p.name for p in folder.iterdir())
    for words in (
        ("fit", "points.npy", "-k", "2", "-o", "m.isoproj", *QUICK),
        ("transform", "model.isoproj", "points.npy", "-o", "z.npy"),
        ("export", "model.isoproj", "--to", "npy"),
    ):
        assert "disk is full" in refused(*words)
    assert sorted(p.name for p in folder.iterdir()) == before


def test_a_limit_on_file_size_is_one_line_and_leaves_nothing(folder):
    before = sorted(p.name for p in folder.iterdir())
    done = subprocess.run(
        [
            *(sys.executable, "-m", "isoproj"),
            *("transform", "model.isoproj", "points.npy", "-o", "z.npy"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300)),
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "could not be written" in done.stderr
    assert sorted(p.name for p in folder.iterdir()) == before


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_one_line(folder, unbuffered):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-m", "isoproj", "info", "points.npy"],
            stdout=full,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=120,
        )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "disk is full" in done.stderr


def test_a_reader_that_goes_away_is_no_error(folder):
    done = subprocess.run(
        f"{sys.executable} -m isoproj info points.npy --json | true; "
        "echo ${PIPESTATUS[0]}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stderr == ""
    assert done.stdout.strip() in ("0", "141")


def test_an_unreadable_file_is_one_line(folder, refused, monkeypatch):
    (folder / "secret.npy").write_bytes((folder / "points.npy").read_bytes())
    (folder / "secret.npy").chmod(0)
    if os.access("secret.npy", os.R_OK):  # root reads everything
        from pathlib import Path

        real = Path.open

        def denied(self, *arguments, **options):
            if self.name == "secret.npy":
                raise PermissionError(errno.EACCES, "denied", str(self))
            return real(self, *arguments, **options)

        monkeypatch.setattr(Path, "open", denied)
    assert "permission is denied" in refused("fit", "secret.npy", "-k", "2")


def test_what_nobody_foresaw_is_still_one_line(folder, refused, run, monkeypatch):
    from isoproj.cli import info as describing

    def broken(name):
        raise KeyError(name)

    monkeypatch.setattr(describing, "holds_model", broken)
    assert "fault of isoproj" in refused("info", "points.npy")
    with pytest.raises(KeyError):
        run("info", "points.npy", "-v")


def test_names_cannot_command_the_terminal(folder, refused):
    assert "\x1b" not in refused("fit", "a\x1b[2Jb\n.npy", "-k", "2")
