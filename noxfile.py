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
    session.install("-e", ".", "pytest>=8", "hypothesis>=6.100", *pins)
    # Other tests need libraries that ask for newer versions.
    folders = ["tests/numerics", "tests/pairs", "tests/proof/test_certificate.py"]
    chosen = session.posargs or folders
    session.run("pytest", "-m", "not slow", *chosen, env=BLAS)


if __name__ == "__main__":
    nox.main()
