from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from isoproj import (
    GuaranteedPCA,
    NearIsometricProjection,
    audit,
    compare,
    distortion_curve,
    guarantee_frontier,
    report,
    search_plan,
)
from isoproj._version import __version__
from isoproj.cli import arguments
from isoproj.cli.arguments import VERBS, build_parser
from isoproj.comparison.compare import METHODS

HEAVY = {"numpy", "scipy", "sklearn", "safetensors", "pyarrow", "h5py"}


@pytest.mark.parametrize("verb", list(VERBS))
def test_the_help_of_every_verb_teaches_with_an_example(run, verb):
    status, out, _ = run(verb, "-h")
    assert status == 0
    assert f"example: isoproj {verb}" in out
    assert "--json" in out
    assert "Exit status: 0 done" in out


@pytest.mark.parametrize("verb", ["fit", "compare", "curve", "frontier"])
def test_a_seed_is_zero_unless_given(run, verb):
    words = [verb, "points.npy", "-k", "2"]
    options = vars(build_parser().parse_args(words))
    assert options.get("seed", options.get("seeds")) in (0, [0])
    assert "(default 0)" in run(verb, "-h")[1].partition("--seed")[2]


# What Python calls options that have other names at the command line.
RENAMED = {"neighbors": "n_neighbors", "worst": "n_worst"}
FUNCTIONS = [
    ("fit", NearIsometricProjection),
    ("fit", GuaranteedPCA),
    ("audit", audit),
    ("plan", search_plan),
    ("compare", compare),
    ("curve", distortion_curve),
    ("frontier", guarantee_frontier),
    ("report", report),
]


@pytest.mark.parametrize(("verb", "function"), FUNCTIONS)
def test_an_option_has_the_default_of_its_parameter_in_python(verb, function):
    parameters = inspect.signature(function).parameters
    compared = 0
    for action in build_parser()._subparsers._group_actions[0].choices[verb]._actions:
        parameter = parameters.get(RENAMED.get(action.dest, action.dest))
        if parameter is None:
            continue
        # One seed is a list of seeds.
        usual = (0, [0]) if action.dest == "seeds" else (parameter.default,)
        told = re.search(r"\(default ([\d.,]*\d[KMG]?)", action.help)
        if told:
            assert arguments._bytes(told[1].replace(",", "")) in usual, action.dest
        if action.default not in (None, []):
            assert action.default in usual, action.dest
        compared += bool(told) or action.default not in (None, [])
    assert compared


def test_the_help_of_fit_names_every_solver(run):
    out = " ".join(run("fit", "-h")[1].split())
    assert "--solver {minimax,dual_ascent}" in out
    for solver in ("minimax", "dual_ascent"):
        model = NearIsometricProjection(1, solver=solver, random_state=0)
        assert model.fit(np.eye(4)).distortion_ > 0


@pytest.mark.parametrize("arguments", [(), ("-h",)])
def test_the_program_alone_shows_the_help_that_lists_every_verb(run, arguments):
    status, out, _ = run(*arguments)
    assert status == 0
    assert all(f"\n    {verb} " in out for verb in VERBS)


def test_the_parser_names_the_methods_that_are_there():
    assert arguments.METHODS.split() == list(METHODS)


def test_what_a_value_is_has_a_name_that_the_parser_knows():
    verbs = build_parser()._subparsers._group_actions[0].choices.values()
    chosen = [action.choices for verb in verbs for action in verb._actions]
    # An unknown name would be the only choice.
    assert [list(c) for c in chosen if c and len(c) == 1] == [["balanced"]]


def test_the_version_is_told(run):
    assert run("--version")[1] == f"isoproj {__version__}\n"


@pytest.mark.parametrize("arguments", [["-h"], ["fit", "-h"], ["--completion", "bash"]])
def test_help_loads_no_library(arguments):
    code = (
        "import sys; from isoproj.__main__ import main; "
        f"status = main({arguments!r}); print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not {name.partition(".")[0] for name in done.stderr.split()} & HEAVY


def complete(script, *words):
    """Ask bash what it would offer after these words."""
    line = " ".join(f"'{word}'" for word in words)
    asked = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _isoproj; "
    done = subprocess.run(
        ["bash", "-c", f'{script}\n{asked} printf "%s\\n" "${{COMPREPLY[@]}}"'],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_bash_completes_verbs_options_choices_and_files(run, tmp_path, monkeypatch):
    if not shutil.which("bash"):
        pytest.skip("needs bash")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "points.npy").touch()
    script = run("--completion", "bash")[1]
    assert complete(script, "isoproj", "ver") == ["verify"]
    assert "--time-limit" in complete(script, "isoproj", "fit", "--ti")
    assert complete(script, "isoproj", "export", "m", "--to", "fa") == ["faiss"]
    assert complete(script, "isoproj", "fit", "po") == ["points.npy"]
    assert complete(script, "isoproj", "fit", "points.npy", "-o", "po") == [
        "points.npy"
    ]


def test_other_shells_get_a_script_too(run):
    assert "bashcompinit" in run("--completion", "zsh")[1]
    fish = run("--completion", "fish")[1]
    assert "complete -c isoproj -n '__fish_seen_subcommand_from export' -l to" in fish
    assert run("--completion", "tcsh")[0] == 2
