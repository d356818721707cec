"""What a package index shows of the project, and what an import brings along."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
HOME = PROJECT["project"]["urls"]["Homepage"]
LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)]+)\)")


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
    for is_picture, address in links:
        kind = "raw" if is_picture else "blob"
        prefix = f"{HOME}/{kind}/main/"
        assert address.startswith(prefix), address
        assert (ROOT / address.removeprefix(prefix).partition("#")[0]).is_file()


def test_the_citation_names_the_version_and_the_address_of_the_project():
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    stated = (ROOT / "src" / "isoproj" / "_version.py").read_text(encoding="utf-8")
    version = re.search(r'"(\d[^"]*)"', stated)[1]
    assert f"version: {version}\n" in cited
    assert f'repository-code: "{HOME}"' in cited
    for address in PROJECT["project"]["urls"].values():
        assert address.startswith(HOME)


def test_the_dev_group_is_the_dev_extra():
    assert PROJECT["dependency-groups"]["dev"] == ["isoproj[dev]"]
    assert "isoproj[test]" in PROJECT["project"]["optional-dependencies"]["dev"]


def test_every_dependency_has_a_lower_bound():
    extras = PROJECT["project"]["optional-dependencies"].values()
    stated = [*PROJECT["project"]["dependencies"], *(d for e in extras for d in e)]
    assert not [d for d in stated if ">=" not in d and not d.startswith("isoproj[")]


WORK = """
import contextlib, sys
import isoproj, isoproj.cli.program
isoproj.NearIsometricProjection(1, tol=0.9).fit([[0, 0], [1, 0], [0, 1]])
isoproj.audit([[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0]])
with contextlib.suppress(SystemExit):
    isoproj.cli.program.main(["fit", "-h"])
names = set(sys.modules)
foreign = ("isoproj.baselines", "isoproj.comparison", "isoproj.plot", "paper")
assert not [n for n in names if n.startswith(foreign)]
assert not names & {"matplotlib", "jinja2", "h5py", "dask", "torch"}
"""


def test_a_fit_imports_neither_comparisons_nor_plots_nor_extras():
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WORK],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
