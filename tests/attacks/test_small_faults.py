"""Small faults that attacks found, each mended at its root."""

from __future__ import annotations

import json
import os
import signal
import stat
import struct
import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse

from attacks.forging import forge
from isoproj import (
    GuaranteedPCA,
    NearIsometricProjection,
    audit,
    distortion_curve,
    guarantee_frontier,
    report,
    verify,
)
from isoproj.exceptions import ClaimError, FormatError
from isoproj.numerics.container import open_atomically, write_atomically
from isoproj.proof.certificate import Certificate

ONE_LESS = NearIsometricProjection(1, random_state=0)


def test_bounds_that_cross_do_not_verify(tmp_path):
    # At one dimension less than the data span the two bounds meet.
    rows = np.random.default_rng(0).normal(size=(12, 2))
    ONE_LESS.fit(rows).save(tmp_path / "a.isoproj")
    honest = Certificate.load(tmp_path / "a.isoproj")
    assert honest.lower_bound <= honest.distortion < honest.lower_bound + 5e-10

    def change(header, _):
        header["certificate"]["lower_bound"] = honest.distortion + 1e-13

    forged = forge(tmp_path / "a.isoproj", tmp_path / "b.isoproj", change)
    verify(honest, rows)
    with pytest.raises(ClaimError, match="lower bound"):
        verify(Certificate.load(forged), rows)


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "F8_E8M0"])
def test_tensor_types_that_numpy_lacks_are_one_clear_line(tmp_path, run, kind):
    width = 2 if kind == "BF16" else 1
    entry = {"dtype": kind, "shape": [4, 3], "data_offsets": [0, 12 * width]}
    header = json.dumps({"a": entry}).encode()
    content = struct.pack("<Q", len(header)) + header + b"\0" * (12 * width)
    for name, verb in (("a.isoproj", "info"), ("a.safetensors", "fit")):
        (tmp_path / name).write_bytes(content)
        given = [tmp_path / name, *(["-k", 1] if verb == "fit" else [])]
        status, _, err = run(verb, *given)
        assert status == 2
        assert err.count("\n") == 1
        assert "fault of isoproj" not in err


@pytest.mark.parametrize("field", ['"' + "x" * 140_000 + '"', "1" * 140_000])
def test_a_long_field_of_a_table_is_one_clear_line(tmp_path, run, field):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n3,4\n5,7\n" + field + ",3\n")
    status, _, err = run("fit", path, "-k", 1)
    assert status == 2
    assert err.count("\n") == 1
    assert len(err) < 500
    assert "fault of isoproj" not in err


def test_a_fence_in_a_file_name_does_not_end_the_code_of_a_report(models, points):
    model = NearIsometricProjection.load(models / "near.isoproj")
    name = "a`````\n# heading\n.npy"
    text = report(model, points, data_name=name).markdown()
    lines = text.splitlines()
    at = lines.index("# heading")
    opened = [line for line in lines[:at] if line.startswith("```")]
    assert len(opened) == 1
    assert lines[at + 2] == opened[0]
    assert f"{opened[0][0]}" * len(opened[0]) not in lines[at - 1]


@pytest.mark.parametrize("ending", ["html", "md", "json"])
def test_a_report_names_a_file_whose_name_is_not_utf8(models, points, tmp_path, ending):
    model = NearIsometricProjection.load(models / "near.isoproj")
    told = report(
        model,
        points,
        data_name="a\udcff.npy",
        model_name="\udc80",
        heldout_name="\ud800",
    )
    told.save(tmp_path / f"a.{ending}")
    assert "a?.npy" in (tmp_path / f"a.{ending}").read_text(encoding="utf-8").replace(
        "\\", ""
    )


@pytest.mark.parametrize("kind", [NearIsometricProjection, GuaranteedPCA])
def test_a_tolerance_below_rounding_does_not_loosen_the_bound(kind):
    rows = np.random.default_rng(1).normal(size=(14, 8))
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for tol in (1e-9, 1e-13, 1e-300):
            model = kind(6, tol=tol, random_state=0, max_iter=6).fit(rows)
            found[tol] = model.lower_bound_, model.distortion_
    assert found[1e-13] == found[1e-300] == found[1e-9]


@pytest.mark.parametrize("tol", [float("nan"), 0.0, -1.0, float("inf")])
def test_a_tolerance_that_is_no_gap_is_refused_everywhere(points, tmp_path, run, tol):
    for fit in (
        lambda: distortion_curve(points, [1], tol=tol),
        lambda: guarantee_frontier(points, 2, 2, tol=tol),
        lambda: NearIsometricProjection(2, tol=tol).fit(points),
    ):
        with pytest.raises(ValueError, match="tol must be a number above 0"):
            fit()
    np.save(tmp_path / "a.npy", points)
    for verb in ("curve", "frontier"):
        given = ["-k", 2] if verb == "frontier" else []
        status, _, err = run(verb, tmp_path / "a.npy", *given, f"--tol={tol}")
        assert status == 2
        assert "tol must be" in err


BROKEN = {
    "index": lambda a: a.indices.__setitem__(3, 10**8),
    "negative": lambda a: a.indices.__setitem__(3, -7),
    "start": lambda a: a.indptr.__setitem__(3, 10**6),
    "descent": lambda a: a.indptr.__setitem__(3, 0),
    "end": lambda a: a.indptr.__setitem__(-1, 10**6),
}


@pytest.mark.parametrize("fault", BROKEN)
@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
def test_a_sparse_array_that_points_outside_is_refused(points, fault, form):
    rows = scipy.sparse.csr_array(points).asformat(form)
    fitted = NearIsometricProjection(2, solver="dual_ascent", max_iter=2).fit(points)
    BROKEN[fault](rows)
    for use in (
        NearIsometricProjection(2).fit,
        GuaranteedPCA(2).fit,
        fitted.transform,
        lambda X: audit(X, np.eye(2, 6)),
        lambda X: verify(fitted, X),
    ):
        with pytest.raises(ValueError, match="valid sparse array"):
            use(rows)


@pytest.mark.parametrize("form", ["coo", "lil"])
def test_other_sparse_arrays_that_point_outside_are_refused(points, form):
    rows = scipy.sparse.csr_array(points).asformat(form)
    if form == "coo":
        rows.coords[1][3] = 10**8
    else:
        rows.rows[3][2] = 10**8
    with pytest.raises(ValueError, match="valid sparse array"):
        NearIsometricProjection(2).fit(rows)


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "lil", "dok", "dia"])
def test_whole_sparse_arrays_are_fitted(points, form):
    rows = scipy.sparse.csr_array(points).asformat(form)
    model = NearIsometricProjection(2, solver="dual_ascent", max_iter=2).fit(rows)
    assert model.transform(rows).shape == (40, 2)


def test_a_fresh_random_state_goes_on_from_its_own_checkpoint(points, tmp_path):
    fits = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            model = NearIsometricProjection(
                2,
                random_state=np.random.RandomState(0),
                checkpoint=tmp_path / "a",
            )
            fits.append(model.fit(points[:12]))
    assert (tmp_path / "a").exists()
    assert fits[0].distortion_ == fits[1].distortion_


@pytest.mark.parametrize("target", ["postgres", "pgvector", "halfvec"])
def test_a_reserved_word_is_a_name_of_an_sql_function(models, tmp_path, run, target):
    output = tmp_path / "a.sql"
    given = ["--to", target, "--name", "select", "-o", output]
    status, out, err = run("export", models / "near.isoproj", *given)
    assert status == 0
    assert 'SELECT "select"(embedding)' in out + err
    text = output.read_text()
    assert 'CREATE OR REPLACE FUNCTION "select"(v' in text
    assert " select(" not in text


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
@pytest.mark.parametrize("nameless", [True, False])
def test_overwriting_keeps_the_mode_of_a_file(tmp_path, monkeypatch, nameless):
    if not nameless:
        monkeypatch.setattr("isoproj.numerics.container._nameless", lambda _: None)
    path = tmp_path / "a"
    write_atomically(path, b"1")
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    path.chmod(0o600)
    write_atomically(path, b"2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == b"2"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_disk_that_cannot_name_a_nameless_file_gets_a_copy(tmp_path, monkeypatch):
    def refused(*args, **kwargs):
        raise PermissionError

    monkeypatch.setattr(os, "link", refused)
    write_atomically(tmp_path / "a", b"1" * 100_000)
    assert (tmp_path / "a").read_bytes() == b"1" * 100_000
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="nameless files of Linux")
@pytest.mark.parametrize("exists", [False, True])
def test_a_killed_writer_leaves_nothing_behind(tmp_path, exists):
    path = tmp_path / "a"
    if exists:
        path.write_bytes(b"old")
    with warnings.catch_warnings():
        # The child only writes and dies; threads do not matter to it.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        with open_atomically(path) as file:
            file.write(b"x" * 100_000)
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert [p.name for p in tmp_path.iterdir()] == (["a"] if exists else [])
    if exists:
        assert path.read_bytes() == b"old"


def test_a_writer_that_fails_leaves_nothing_behind(tmp_path):
    with pytest.raises(ZeroDivisionError), open_atomically(tmp_path / "a") as file:
        file.write(bytes([1 // 0]))
    assert list(tmp_path.iterdir()) == []


def test_a_frontier_of_points_on_a_line_is_refused_in_one_line():
    rows = np.outer(np.arange(4.0), [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="span at least 2 dimensions; it spans 1"):
        guarantee_frontier(rows, 1, 2)


def test_variances_that_overflow_are_refused_in_one_line(points):
    with pytest.raises(ValueError, match="Divide X by a power of ten"):
        GuaranteedPCA(5, max_iter=1).fit(points[:7] * 1e300)


def test_a_least_distance_far_above_all_others_leaves_no_pair(points):
    with pytest.raises(ValueError, match="must leave some pair"):
        NearIsometricProjection(2, min_distance=0.1).fit(points * 1e-160)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["distortion", "lower_bound", "min_distance"])
def test_claims_that_are_not_finite_are_not_loaded(models, tmp_path, name, value):
    forged = forge(
        models / "pca.isoproj",
        tmp_path / "forged.isoproj",
        lambda header, _: header["certificate"].__setitem__(name, value),
    )
    with pytest.raises(FormatError, match="a finite number"):
        Certificate.load(forged)


@pytest.mark.parametrize("module", ["isoproj.cli.program", "isoproj.cli.arguments"])
def test_an_interrupt_while_libraries_are_loaded_is_one_line(module):
    code = f"""
import sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupting())
from isoproj.__main__ import main
sys.exit(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert done.returncode == 130
    assert done.stderr == "isoproj: stopped; nothing was written.\n"


@pytest.mark.parametrize("kind", [bool, np.uint8])
def test_rows_of_any_numbers_are_told_why_so_much_is_lost(tmp_path, run, kind):
    rows = np.eye(12, dtype=kind)
    rows[0, 1] = 1
    np.save(tmp_path / "rows.npy", rows)
    status, out, err = run("fit", tmp_path / "rows.npy", "-k", 1, "--tol", 0.5)
    assert (status, "fault of isoproj" in err) == (0, False)
    assert "much lost" in out
    # Distances are 1 and about 1.4: none is far below the others.
    assert "--min-distance" not in out


@pytest.mark.parametrize("verb", ["fit", "report", "export"])
def test_standard_output_is_no_file_to_write(models, tmp_path, run, monkeypatch, verb):
    monkeypatch.chdir(tmp_path)
    model, rows = models / "near.isoproj", models / "points.npy"
    given = {"fit": [rows, "-k", 2], "export": [model, "--to", "faiss"]}
    status, _, err = run(verb, *given.get(verb, [model, rows]), "-o", "-")
    assert status == 2
    assert "Name a file" in err or "must end in" in err
    assert not list(tmp_path.iterdir())


def test_force_writes_through_a_link_and_leaves_pipes_alone(models, tmp_path, run):
    (tmp_path / "link").symlink_to("target.isoproj")
    (tmp_path / "target.isoproj").write_bytes(b"old")
    os.mkfifo(tmp_path / "pipe")
    fit = ("fit", models / "points.npy", "-k", 2, "--tol", 0.5, "--force", "-o")
    assert run(*fit, tmp_path / "link")[0] == 0
    assert (tmp_path / "link").is_symlink()
    assert Certificate.load(tmp_path / "target.isoproj").n_points == 40
    status, _, err = run(*fit, tmp_path / "pipe")
    assert (status, "ordinary file" in err) == (2, True)
    assert (tmp_path / "pipe").is_fifo()
