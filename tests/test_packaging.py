"""What a package index shows of the project, and what an import brings along."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HOME = PROJECT["project"]["urls"]["Homepage"]
LINK = re.compile(r'(?:\[[^\]]*\]\(|(<img src="))([^)"]+)')


def published_readme():
    """Return README as the build hands it to a package index."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for step in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"][
        "substitutions"
    ]:
        text = re.sub(step["pattern"], step["replacement"], text)
    return text


def test_every_link_of_the_published_readme_leads_to_a_file_of_the_project():
    links = LINK.findall(published_readme())
    assert len(links) > 5
    assert any(is_picture for is_picture, _ in links)
    for is_picture, address in links:
        kind = "raw" if is_picture else "blob"
        prefix = f"{HOME}/{kind}/main/"
        assert address.startswith(prefix), address
        assert (ROOT / address.removeprefix(prefix).partition("#")[0]).is_file()


def test_citation_and_changelog_name_the_version_and_its_date():
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    stated = (ROOT / "src" / "isoproj" / "_version.py").read_text(encoding="utf-8")
    version = re.search(r'"(\d[^"]*)"', stated)[1]
    assert f"version: {version}\n" in cited
    assert f'repository-code: "{HOME}"' in cited
    for address in PROJECT["project"]["urls"].values():
        assert address.startswith(HOME)
    date = re.search(r"^date-released: (\S+)$", cited, re.MULTILINE)[1]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## (.*)$", changes, re.MULTILINE)
    assert sections[:2] == ["Unreleased", f"{version} ({date})"]


def test_the_dev_group_is_the_dev_extra():
    assert PROJECT["dependency-groups"]["dev"] == ["isoproj[dev]"]
    assert "isoproj[test]" in PROJECT["project"]["optional-dependencies"]["dev"]


def test_every_dependency_has_a_lower_bound():
    extras = PROJECT["project"]["optional-dependencies"].values()
    stated = [*PROJECT["project"]["dependencies"], *(d for e in extras for d in e)]
    assert not [d for d in stated if ">=" not in d and not d.startswith("isoproj[")]


COMMANDS = """
import sys
from isoproj.cli.program import main
for words in sys.argv[1:]:
    assert main([*words.split(), "-q"]) == 0
print(*(name for name in sys.modules if name.partition(".")[0] in FOREIGN))
"""
# What a verb needs neither directly nor indirectly: our folders and libraries.
FOLDERS = {"baselines", "comparison", "plot", "reporting", "search"}
LIBRARIES = {"matplotlib", "jinja2", "h5py", "dask", "torch"}
MOST_MODULES = 70


def imported(folder, *commands):
    """Return the modules of the package and of unwanted libraries after commands."""
    code = COMMANDS.replace("FOREIGN", repr({"isoproj", "paper", *LIBRARIES}))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *commands],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


def test_a_verb_imports_only_what_it_uses(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 4)))
    for verb in (
        "fit x.npy -k 2 -o m.isoproj --tol 0.5",
        "transform m.isoproj x.npy -o z.npy",
        "audit m.isoproj x.npy",
        "verify m.isoproj x.npy",
    ):
        names = imported(tmp_path, verb)
        assert len(names) <= MOST_MODULES
        assert {n.partition(".")[0] for n in names} == {"isoproj"}
        assert not {n.split(".")[1] for n in names if "." in n} & FOLDERS
    measured = imported(tmp_path, "audit first:2 x.npy", "info x.npy")
    assert not [n for n in measured if n.startswith("isoproj.solvers")]
