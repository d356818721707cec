from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import isoproj

# Lowest first: a module imports only from rooms before its own. Extend here.
ROOMS = [
    "exceptions",
    "_version",
    "_spectral",
    "_threads",
    "_storage",
    "_validation",
    "_container",
    "copies",
    "points",
    "secants",
    "neighbors",
    "pairs",
    "engines.base",
    "leaders",
    "scan",
    "sieve",
    "sifting",
    "search",
    "sampling",
    "problem",
    "objective",
    "certificate",
    "certify",
    "claims",
    "auditing",
    "heldout",
    "solvers.base",
    "solvers.dual_ascent",
    "solvers.newton",
    "solvers.interior",
    "solvers.relaxation",
    "solvers.capped",
    "solvers.goals",
    "solvers.grassmann",
    "solvers.tight",
    "solvers.working_set",
    "solvers.descent",
    "solvers.pool",
    "solvers.checkpoint",
    "solvers.pooled",
    "solvers.minimax",
    "solvers.dimensions",
    "solvers.curve",
    "solvers.guaranteed",
    "solvers.extremes",
    "solvers.isometry",
    "solvers.rounding",
    "solvers.numax",
    "solvers.low_rank",
    "solvers.secant_avoidance",
    "solvers.fantope",
    "solvers.conic",
    "estimators.base",
    "estimators.certified",
    "estimators.near_isometric",
    "estimators.capped_problem",
    "estimators.guaranteed_pca",
    "estimators.curves",
    "baselines.base",
    "baselines.adagio",
    "baselines.dual_ascent",
    "baselines.fair_pca",
    "baselines.fixed_rank",
    "baselines.numax",
    "baselines.pca",
    "baselines.random",
    "baselines.sdp",
    "baselines.secant_avoidance",
    "datafiles.extras",
    "engines.cluster",
    "plot._style",
    "experiments.referee",
    "experiments.compare",
    "experiments.dimensions_needed",
    "experiments.datasets",
    "experiments.reproduction.table",
    "experiments.reproduction.cells",
    "experiments.reproduction.records",
    "experiments.reproduction.runner",
    "experiments.reproduction.claims",
    "experiments.reproduction.style",
    "experiments.reproduction.figures",
    "experiments.reproduction.page",
    "datafiles.formats",
    "datafiles.sources",
    "datafiles.arrays",
    "datafiles.texts",
    "datafiles.columnar",
    "datafiles.reading",
    "datafiles.writing",
    "exports.matrices",
    "exports.faiss",
    "exports.onnx",
    "exports.pipeline",
    "exports.sql",
    "plot.bounds",
    "plot.distances",
    "plot.images",
    "reporting.measuring",
    "reporting.pictures",
    "reporting.facts",
    "reporting.wording",
    "reporting.charts",
    "reporting.document",
    "commandline.errors",
    "commandline.schemas",
    "commandline.completion",
    "commandline.arguments",
    "commandline.console",
    "commandline.models",
    "commandline.fitting",
    "commandline.projecting",
    "commandline.judging",
    "commandline.describing",
    "commandline.exporting",
    "commandline.comparing",
    "commandline.tracing",
    "commandline.reporting",
    "commandline.reproducing",
    "commandline.demonstrating",
    "commandline.program",
    "__main__",
]
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
    "rich",
    "safetensors",
    "scipy",
    "scs",
    "sklearn",
    "threadpoolctl",
}


def rooms_in_tree():
    files = [p for p in PACKAGE.rglob("*.py") if p.name != "__init__.py"]
    return {".".join(p.relative_to(PACKAGE).with_suffix("").parts) for p in files}


def imports_of(room):
    """Return the rooms a module imports, wherever in the file it does so."""
    path = PACKAGE / f"{room.replace('.', '/')}.py"
    rooms = set(ROOMS) | {r.rpartition(".")[0] for r in ROOMS}
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            named = [f"{module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            module, named = "", [alias.name for alias in node.names]
        else:
            continue
        for name in [module, *named]:
            inside = name.removeprefix("isoproj.")
            if name.startswith("isoproj.") and inside in rooms:
                found.add(inside)
    return found - {room.rpartition(".")[0] for room in ROOMS}


@pytest.mark.parametrize("room", [r for r in ROOMS if r in rooms_in_tree()])
def test_imports_point_downwards(room):
    assert imports_of(room) <= set(ROOMS[: ROOMS.index(room)])


def test_every_module_has_a_room():
    assert rooms_in_tree() == set(ROOMS)


@pytest.mark.parametrize(
    "room",
    ["certify", "claims", "objective", "certificate", "auditing", "scan", "sifting"],
)
def test_whoever_judges_knows_no_solver(room):
    reached, todo = set(), {room}
    while todo:
        reached |= todo
        todo = set().union(*(imports_of(r) for r in todo)) - reached
    assert not {r for r in reached if r.startswith(("solvers", "estimators"))}


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


@pytest.mark.parametrize("room", sorted(rooms_in_tree() - {"__main__"}))
def test_modules_say_what_they_export(room):
    path = PACKAGE / f"{room.replace('.', '/')}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    targets = [t for n in tree.body if isinstance(n, ast.Assign) for t in n.targets]
    names = {t.id for t in targets if isinstance(t, ast.Name)}
    assert names & {"__all__", "__version__"}
