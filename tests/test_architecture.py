from __future__ import annotations

import ast
import functools
import graphlib
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import isoproj
from isoproj import baselines

# Folders, lowest first: a folder imports only from folders before it.
FOLDERS = [
    "numerics",
    "engines",
    "pairs",
    "proof",
    "search",
    "solvers",
    "estimators",
    "baselines",
    "files",
    "plot",
    "comparison",
    "reporting",
    "cli",
]
# What lies in the package root, and nothing else does.
ROOT = {"__init__", "__main__", "_version", "exceptions"}
PACKAGE = Path(isoproj.__file__).parent
HEAVY = {
    "clarabel",
    "cvxpy",
    "dask",
    "distributed",
    "matplotlib",
    "numpy",
    "pandas",
    "polars",
    "safetensors",
    "scipy",
    "scs",
    "sklearn",
    "threadpoolctl",
}


def modules_in_tree():
    files = [p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py"]
    return sorted(".".join(p.relative_to(PACKAGE).with_suffix("").parts) for p in files)


@functools.cache
def imports_of(path):
    """Return the dotted names below the package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names = {alias.name for alias in node.names}
        else:
            continue
        found |= {n.removeprefix("isoproj.") for n in names if n.startswith("isoproj.")}
    return found


def folders_of(names):
    return {n.partition(".")[0] for n in names} & set(FOLDERS)


def test_the_package_is_folders_and_four_modules():
    assert {p.stem for p in PACKAGE.glob("*.py")} == ROOT
    assert {p.parent.name for p in PACKAGE.glob("*/__init__.py")} == set(FOLDERS)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_only_from_folders_before_it(folder):
    allowed = set(FOLDERS[: FOLDERS.index(folder) + 1])
    for path in (PACKAGE / folder).rglob("*.py"):
        assert folders_of(imports_of(path)) <= allowed, path


@pytest.mark.parametrize("folder", FOLDERS)
def test_modules_of_a_folder_do_not_import_in_circles(folder):
    paths = {
        ".".join(p.relative_to(PACKAGE).with_suffix("").parts): p
        for p in (PACKAGE / folder).rglob("*.py")
        if p.name != "__init__.py"
    }
    after = {
        module: {
            other
            for other in paths
            for name in imports_of(path)
            if name == other or name.startswith(f"{other}.")
        }
        for module, path in paths.items()
    }
    tuple(graphlib.TopologicalSorter(after).static_order())


# What results ask of folders above them when a user wants to see them. They ask at the
# package's front door, where names are loaded when they are first used.
FRONT_DOOR = {
    ("estimators/base.py", "report"),
    ("estimators/curves.py", "plot"),
    ("proof/audit.py", "plot"),
    ("search/plan.py", "plot"),
}


def test_only_what_shows_results_goes_through_the_front_door():
    found = {
        (path.relative_to(PACKAGE).as_posix(), node.attr)
        for folder in set(FOLDERS) - {"cli"}
        for path in (PACKAGE / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "isoproj"
    }
    assert found == FRONT_DOOR


def test_the_root_imports_no_folder_but_the_command_line():
    assert folders_of(imports_of(PACKAGE / "__main__.py")) == {"cli"}
    for name in ("_version", "exceptions"):
        assert not folders_of(imports_of(PACKAGE / f"{name}.py"))


@pytest.mark.parametrize(
    "statement",
    ["import isoproj", "import isoproj; dir(isoproj)", "import isoproj.exceptions"],
)
def test_importing_the_package_loads_no_library(statement):
    code = f"{statement}; import json, sys; print(json.dumps(sorted(sys.modules)))"
    out = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert out.stderr == ""
    assert not {name.partition(".")[0] for name in json.loads(out.stdout)} & HEAVY


def test_every_public_name_can_be_had_and_is_listed():
    assert set(isoproj.__all__) <= set(dir(isoproj))
    assert all(getattr(isoproj, name) is not None for name in isoproj.__all__)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = isoproj.no_such_name


@pytest.mark.parametrize("module", modules_in_tree())
def test_modules_say_what_they_are_for(module):
    path = PACKAGE / f"{module.replace('.', '/')}.py"
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "estimator",
    [getattr(baselines, name) for name in baselines.__all__]
    + [isoproj.NearIsometricProjection, isoproj.GuaranteedPCA],
)
def test_every_parameter_of_an_estimator_is_described(estimator):
    headers = re.findall(
        r"^(\w+(?:, \w+)*) : ", inspect.getdoc(estimator), re.MULTILINE
    )
    described = {name for header in headers for name in header.split(", ")}
    assert set(inspect.signature(estimator).parameters) <= described
    assert "As for" not in inspect.getdoc(estimator)


# Public functions whose options are settled; each option is one keyword.
SETTLED = {"audit", "distortion_curve", "guarantee_frontier", "report", "search_plan"}


@functools.cache
def functions_in_tree():
    """Return name, number of parameters and number of lines of every function.

    Neither ``self`` nor the docstring counts.
    """
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            names = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            n_parameters = len([n for n in names if n.arg not in ("self", "cls")])
            n_lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node):
                text = node.body[0]
                n_lines -= text.end_lineno - text.lineno + 1
            name = f"{path.relative_to(PACKAGE)}:{node.name}"
            found.append((name, n_parameters, n_lines))
    return found


def test_functions_fit_on_a_screen():
    assert not [name for name, _, n_lines in functions_in_tree() if n_lines > 60]


def test_functions_take_at_most_eight_parameters():
    many = [name for name, n_parameters, _ in functions_in_tree() if n_parameters > 8]
    # The constructor of an estimator names all of its parameters.
    assert {n.partition(":")[2] for n in many} <= {"__init__", *SETTLED}
    assert all(
        name.startswith(("estimators", "baselines"))
        for name in many
        if name.endswith(":__init__")
    )
