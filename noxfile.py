#!/usr/bin/env -S uv run --script

# /// script
# dependencies = ["nox>=2024.4"]
# ///
"""The suite on several Pythons and on the lowest versions: `make test-matrix`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import nox

nox.needs_version = ">=2024.4"
nox.options.default_venv_backend = "uv|virtualenv"
BLAS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# These need no library that asks for newer versions.
CORE = [f"tests/{f}" for f in ("numerics", "pairs", "proof", "solvers", "estimators")]


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def tests(session: nox.Session) -> None:
    """Run the suite with the newest versions of all dependencies."""
    session.install("-e", ".[test]")
    session.run(
        "pytest", "-n", "2", "-m", "not slow and not consumers and not attack",
        *session.posargs,
        env=BLAS,
    )  # fmt: skip


@nox.session(python="3.11", default=False)
def lowest(session: nox.Session) -> None:
    """Run the tests of the core with the lowest versions that pyproject allows."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    stated = project["project"]["dependencies"]
    pins = [re.sub(">=(.*)", r"==\1.*", line) for line in stated]
    # scikit-learn 1.6 hands pytest what pytest 9 refuses.
    tools = ["pytest==8.*", "pytest-xdist>=3.5", "hypothesis>=6.100", "cvxpy-base>=1.5"]
    tools += ["clarabel>=0.9", "scs>=3.2.4"]
    session.install("-e", ".", *tools, *pins)
    chosen = session.posargs or CORE
    session.run("pytest", "-n", "2", "-m", "not slow", *chosen, env=BLAS)


if __name__ == "__main__":
    nox.main()
