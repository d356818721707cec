"""No verb writes onto a file that it reads, and no finished work is lost."""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest

from isoproj.cli.arguments import EXPORTS, VERBS, build_parser
from isoproj.cli.outputs import INPUTS, input_files
from isoproj.numerics import container

# Per verb, a command line whose inputs are the files of the folder below.
READS = {
    "fit": "fit {data} -k 1 --pairs pairs.npy --labels labels.txt",
    "transform": "transform model.isoproj {data}",
    "curve": "curve {data} -k 1 --pairs pairs.npy --labels labels.txt",
    "frontier": "frontier {data} -k 1 --pairs pairs.npy --labels labels.txt",
    "compare": "compare {data} -k 1 --methods pca --maps map.npy maps",
    "report": "report model.isoproj {data} --heldout heldout.npy --labels labels.txt "
    "--maps map.npy maps",
    "export": "export model.isoproj --to {to}",
    "plan": "plan {data} -k 1 -n 1 --recall 0.5 --queries heldout.npy",
}
# Options that write, per verb.
WRITES = {
    "fit": ["-o"],
    "transform": ["-o"],
    "curve": ["--plot"],
    "frontier": ["--plot"],
    "compare": ["-o", "--plot"],
    "report": ["-o"],
    "export": ["-o"],
    "plan": ["-o", "--plot"],
}
# Verbs that write nothing, and those that read no file of the user.
SILENT = {"audit", "verify", "info"}
WITHOUT_INPUTS = {"demo"}
DATA = [
    "data.npz:points",
    "data.npz:a:b",
    "data.npz::",
    "one:two.npy",
    "link.npz:points",
]


@pytest.fixture
def folder(models, tmp_path, monkeypatch, points):
    np.savez(tmp_path / "data.npz", points=points, **{"a:b": points})
    (tmp_path / "link.npz").symlink_to(tmp_path / "data.npz")
    np.save(tmp_path / "one:two.npy", points)
    np.save(tmp_path / "map.npy", np.eye(2, 6))
    np.save(tmp_path / "heldout.npy", points)
    np.save(tmp_path / "pairs.npy", np.array([[0, 1], [1, 2]]))
    (tmp_path / "labels.txt").write_text("a\n" * len(points))
    (tmp_path / "maps").mkdir()
    (tmp_path / "maps" / "model.safetensors").write_bytes(b"weights")
    shutil.copy(models / "near.isoproj", tmp_path / "model.isoproj")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def contents(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def has_no_kind(line):
    """Return whether a verb refuses a name because of its ending."""
    return "must name a format" in line or "must end in .html" in line


def refusals():
    for verb, options in WRITES.items():
        for option in options:
            for data in DATA if "{data}" in READS[verb] else [""]:
                for to in EXPORTS if verb == "export" else [""]:
                    yield verb, option, READS[verb].format(data=data, to=to).split()


@pytest.mark.parametrize(("verb", "option", "command"), list(refusals()))
def test_no_verb_writes_onto_an_input_even_with_force(
    folder, run, verb, option, command
):
    before = contents(folder)
    whole = [*command, "-o", "x"] if verb in ("transform", "report") else command
    options = build_parser().parse_args(whole)
    read = [name for name in input_files(options) if Path(name).exists()]
    assert read
    for name in {*read, *(f"./{name}" for name in read)}:
        target = f"{name}/model.safetensors" if Path(name).is_dir() else name
        status, out, err = run(*command, option, target, "--force")
        assert (status, out) == (2, ""), (target, err)
        assert err.count("\n") == 1
        assert "is an input" in err or "must be a folder" in err or has_no_kind(err)
        assert contents(folder) == before


def test_every_verb_that_writes_is_in_the_test_above():
    parser = build_parser()
    verbs = next(
        action.choices
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    assert set(verbs) == set(VERBS) == {*READS, *SILENT, *WITHOUT_INPUTS}
    for name, verb in verbs.items():
        given = {action.dest: action for action in verb._actions}
        if name in SILENT:
            assert not {"output", "plot", "force"} & set(given)
            continue
        if name in WITHOUT_INPUTS:
            assert not {*INPUTS} & set(given)
            continue
        words = [*READS[name].split(), *WRITES[name]]
        for dest in {*INPUTS} & set(given):
            action = given[dest]
            is_share = action.metavar == "SHARE"
            flags = action.option_strings
            assert is_share or not flags or any(flag in words for flag in flags), dest
        for dest in {"output", "plot"} & set(given):
            assert any(flag in words for flag in given[dest].option_strings), dest


def test_every_option_that_names_a_file_to_read_is_an_input():
    known = {"DATA", "MODEL", "MAP", "MAPS"}
    for verb in build_parser()._subparsers._group_actions[0].choices.values():
        for action in verb._actions:
            if action.metavar in known:
                assert action.dest in INPUTS, action


def test_two_outputs_are_two_files(folder, run):
    command = "compare data.npz:points -k 1 --methods pca -o x.png --plot ./x.png"
    status, _, err = run(*command.split())
    assert status == 2
    assert "different files" in err
    assert not (folder / "x.png").exists()


BEFORE = {
    "name too long": ("fit data.npz:points -k 1 -o {long}.isoproj", "too long a name"),
    "plot of no known kind": ("curve data.npz:points -k 1 --plot x.txt", "must end in"),
    "plot of a frontier": ("frontier data.npz:points -k 1 --plot x.txt", "must end in"),
    "plot of a comparison": (
        "compare data.npz:points -k 1 --plot x.txt",
        "must end in",
    ),
    "folder too long": (
        "export model.isoproj --to sentence-transformers -o {long}",
        "too long a name",
    ),
}


@pytest.mark.parametrize("case", BEFORE)
def test_what_can_be_checked_is_checked_before_the_work(folder, run, case):
    command, reason = BEFORE[case]
    status, _, err = run(*command.format(long="x" * 300).split())
    assert status == 2
    assert reason in err


def test_a_folder_that_takes_no_file_is_found_before_the_work(folder, run, monkeypatch):
    (folder / "old.isoproj").write_bytes(b"old")

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied", "hidden")

    monkeypatch.setattr(container.os, "open", refuse)
    fit = ("fit", "data.npz:points", "-k", 1, "-o", "old.isoproj", "--force")
    status, _, err = run(*fit)
    assert status == 2
    assert "old.isoproj must be accessible" in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_found_before_the_work(folder, run):
    closed = folder / "closed"
    closed.mkdir()
    (closed / "old.isoproj").write_bytes(b"old")
    closed.chmod(0o555)
    fit = ("fit", "data.npz:points", "-k", 1, "-o", closed / "old.isoproj", "--force")
    status, _, err = run(*fit)
    closed.chmod(0o755)
    assert status == 2
    assert "permission is denied" in err


@pytest.mark.parametrize("length", [240, 255])
def test_names_as_long_as_the_system_allows_are_written(folder, run, length):
    name = "x" * (length - len(".npy")) + ".npy"
    command = ["transform", "model.isoproj", "data.npz:points", "-o", name]
    assert run(*command)[0] == 0
    assert np.load(folder / name).shape == (40, 2)
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


LATE = {
    "fit": "fit data.npz:points -k 6 -o out/x.isoproj",
    "transform": "transform model.isoproj data.npz:points -o out/x.npy",
    "report": "report model.isoproj data.npz:points -o out/x.md",
    "curve": "curve data.npz:points -k 6 --plot out/x.svg",
    "compare": "compare data.npz:points -k 1 --methods pca -o out/x.jsonl",
}


@pytest.mark.parametrize("verb", LATE)
def test_a_result_that_cannot_be_written_is_saved_elsewhere(
    folder, run, monkeypatch, verb
):
    (folder / "out").mkdir()
    spare = folder / "spare"
    spare.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(spare))

    def full(function):
        def refuse(source, target, **more):
            if Path(target).resolve().parent == folder / "out":
                raise OSError(errno.ENOSPC, "No space left on device", str(target))
            function(source, target, **more)

        return refuse

    monkeypatch.setattr(container.os, "replace", full(os.replace))
    monkeypatch.setattr(container.os, "link", full(os.link))
    status, out, err = run(*LATE[verb].split(), "-q")
    assert status == 2
    assert out
    assert "the disk is full" in err
    (found,) = spare.rglob("x.*")
    assert f"saved as {found}" in err
    assert found.stat().st_size
    assert list((folder / "out").iterdir()) == []
