"""Every example of the documentation runs; the checker on its page is a real one."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import claims
import numpy as np
import pytest
import scipy.stats
from certificates import load_checker
from geometry import cloud

from isoproj import GuaranteedPCA, NearIsometricProjection
from isoproj.cli.program import main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", ROOT / "paper" / "README.md", *DOCS.rglob("*.md")]
    if "_build" not in path.parts
)
FENCE = re.compile(r"^```(python|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks_of(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(match[1], match[2]) for match in FENCE.finditer(text)]


# Recipes need other systems; tests/consumers runs them.
RUNNABLE = [
    page for page in PAGES if blocks_of(page) and not page.startswith("docs/recipes/")
]


@pytest.mark.parametrize("page", RUNNABLE)
def test_examples_run_as_they_are_printed(page, tmp_path, monkeypatch):
    for library in ("matplotlib", "jinja2", "distributed"):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    for kind, block in blocks_of(page):
        if kind == "python":
            exec(compile(block, page, "exec"), names)
            continue
        for line in block.splitlines():
            program, *arguments = shlex.split(line, comments=True)
            assert program == "isoproj"
            assert main([*arguments, "-q"]) == 0, line


def test_quick_start_and_tutorials_have_examples():
    for page in ("docs/quickstart.md", "docs/which-method.md", "docs/limits.md"):
        assert blocks_of(page)
    assert all(blocks_of(p) for p in PAGES if p.startswith("docs/tutorials/"))


def test_readme_shows_what_its_examples_print():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown, printed = claims.examples(text), claims.examples(claims.with_outputs(text))
    number = re.compile(r"\d[\d,]*\.?\d*")
    assert [number.split(said) for said in shown] == [number.split(s) for s in printed]
    for said, real in zip(
        "".join(shown).split(), "".join(printed).split(), strict=True
    ):
        for values in zip(number.findall(said), number.findall(real), strict=True):
            ours, theirs = (
                float(value.strip(",.").replace(",", "")) for value in values
            )
            assert ours == pytest.approx(theirs, rel=0.05), (said, real)


def test_readme_and_the_ledger_of_its_figures_are_equal():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    stated = (DOCS / "claims.md").read_text(encoding="utf-8")
    made = re.search(r"digits\. (\d{4}-\d\d-\d\d)\.", stated)[1]
    assert claims.ledger(text, made) == stated
    assert claims.with_grid(text) == text
    assert claims.missing(text) == []


def test_every_figure_of_readme_is_in_the_ledger():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    prose = re.sub(r"```(python|sh).*?```", "", text, flags=re.DOTALL)
    stated = (DOCS / "claims.md").read_text(encoding="utf-8")
    chosen = {"3.11", "0.3", "1.8"}  # of Python, a cap, and pairs by the billion
    figures = set(re.findall(r"\d+\.\d+", prose)) - chosen
    assert len(figures) > 20
    assert all(figure in stated for figure in figures)


def test_links_between_pages_lead_somewhere():
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
            assert (ROOT / page).parent.joinpath(target).exists(), (page, target)


@pytest.mark.parametrize(
    "module", ["isoproj", "isoproj.plot", "isoproj.baselines", "isoproj.exceptions"]
)
def test_every_public_name_is_on_the_api_page(module):
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    names = importlib.import_module(module).__all__
    for name in names:
        if not name.startswith("__"):
            directive = rf"^\.\. auto\w+:: {re.escape(module)}\.{name}$"
            assert re.search(directive, page, re.MULTILINE), name
    assert {name for name in names if name.startswith("__")} <= {"__version__"}


@pytest.mark.parametrize("estimator", [NearIsometricProjection, GuaranteedPCA])
def test_every_public_method_is_on_the_api_page(estimator):
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    directive = rf"^\.\. autoclass:: isoproj\.{estimator.__name__}\n   :members: (.*)$"
    members = re.search(directive, page, re.MULTILINE)[1].split(", ")
    methods = {
        name: method.__module__.startswith("isoproj.")
        for name, method in inspect.getmembers(estimator, callable)
        if not name.startswith("_")
    }
    assert {name for name, is_ours in methods.items() if is_ours} == set(members)
    # What scikit-learn gives is named, not documented again.
    for name in methods:
        assert name in members or f"`{name}`" in page


@pytest.fixture(scope="module")
def checker():
    return load_checker()


def test_the_checker_knows_nothing_of_isoproj():
    source = (DOCS / "independent_checker.py").read_text(encoding="utf-8")
    imported = set(re.findall(r"^(?:import|from) (\w+)", source, re.MULTILINE))
    assert imported == {"hashlib", "json", "sys", "numpy", "safetensors", "scipy"}


@functools.cache
def small():
    """Return points and a model of them that several tests save and forge."""
    X = cloud(4, 14, 6)
    return X, NearIsometricProjection(2, random_state=0).fit(X)


@pytest.mark.parametrize("pairs", ["all", "directions", [[0, 1], [3, 2], [5, 9]]])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_checker_confirms_what_isoproj_certifies(checker, tmp_path, pairs, dtype):
    X = cloud(4, 14, 6).astype(dtype)
    X[0, 0] = -0.0
    model = NearIsometricProjection(2, pairs=pairs, random_state=0).fit(X)
    model.save(tmp_path / "model.isoproj")
    bounds = checker.check(tmp_path / "model.isoproj", X)
    assert bounds == (model.lower_bound_, model.distortion_)


@pytest.mark.parametrize(
    "rule",
    [
        {"pairs": "neighbors", "n_neighbors": 2},
        {"pairs": "labels", "include_norms": True},
        {"pairs": "within-labels"},
        {"min_distance": 3.0, "include_norms": True},
    ],
)
def test_the_checker_knows_every_rule(checker, tmp_path, rule):
    X = cloud(4, 14, 6)
    model = NearIsometricProjection(2, random_state=0, **rule).fit(X, np.arange(14) % 3)
    model.save(tmp_path / "model.isoproj")
    bounds = checker.check(tmp_path / "model.isoproj", X)
    assert bounds == (model.lower_bound_, model.distortion_)


@pytest.mark.parametrize("objective", ["variance", "distortion"])
def test_the_checker_confirms_guarantees_and_finds_forged_ones(
    checker, tmp_path, objective
):
    X = cloud(5, 20, 6)
    model = GuaranteedPCA(2, objective=objective, random_state=0).fit(X)
    model.save(tmp_path / "model.isoproj")
    checker.check(tmp_path / "model.isoproj", X)
    whole = model.certificate_
    for forged in ({"kept": 0.99}, {"kept_bound": 0.01}, {"cap": 0.01}):
        guarantee = dataclasses.replace(whole.guarantee, **forged)
        path = tmp_path / "forged.isoproj"
        dataclasses.replace(whole, guarantee=guarantee).save(path)
        with pytest.raises(AssertionError, match=next(iter(forged)).split("_")[0]):
            checker.check(path, X)


def test_the_checker_confirms_exclusions_and_finds_forged_ones(checker, tmp_path):
    X = cloud(0, 30, 8) * 0.75 ** np.arange(8)
    model = NearIsometricProjection(max_distortion=0.4, random_state=0).fit(X)
    model.save(tmp_path / "model.isoproj")
    checker.check(tmp_path / "model.isoproj", X)
    whole = model.certificate_
    stated = whole.exclusion
    forgeries = [
        ({"n_components": stated.n_components + 1}, "too few dimensions"),
        ({"n_components": 0}, "too few dimensions"),
        ({"cap": 0.9}, "too few dimensions"),
        ({"excluding_weights": 0 * stated.excluding_weights}, "too few dimensions"),
        ({"excluding_weights": -stated.excluding_weights}, "not negative|too few"),
        ({"excluding_pairs": stated.excluding_pairs * 0 + [0, 30]}, "pairs that count"),
    ]
    for forged, fault in forgeries:
        path = tmp_path / "forged.isoproj"
        exclusion = dataclasses.replace(stated, **forged)
        dataclasses.replace(whole, exclusion=exclusion).save(path)
        with pytest.raises(AssertionError, match=fault):
            checker.check(path, X)


def test_the_checker_confirms_a_sampled_share_and_finds_forged_ones(
    checker, tmp_path, monkeypatch
):
    # Few pairs, so that some of the fresh ones lose more than all of these.
    monkeypatch.setattr("isoproj.pairs.rule._SAMPLE", 300)
    X = cloud(4, 300, 12) * 0.8 ** np.arange(12)
    X[7] = X[8]
    model = NearIsometricProjection(3, pairs="sample", random_state=0)
    certificate = model.fit(X).certificate_
    assert certificate.sampled_share > 1e-3
    path = tmp_path / "model.isoproj"
    certificate.save(path)
    checker.check(path, X)
    share = certificate.sampled_share
    for forged in (0.999 * share, share / 2, 0.0, -1.0, np.nan, 2.0, None):
        dataclasses.replace(certificate, sampled_share=forged).save(path)
        with pytest.raises(AssertionError, match="sampled share"):
            checker.check(path, X)


def test_the_checker_allows_a_sampled_share_only_of_a_sample(checker, tmp_path):
    X, model = small()
    forged = dataclasses.replace(model.certificate_, sampled_share=0.5)
    forged.save(tmp_path / "f.isoproj")
    with pytest.raises(AssertionError, match="sampled share"):
        checker.check(tmp_path / "f.isoproj", X)


@pytest.mark.parametrize(("seen", "drawn"), [(0, 10), (3, 50), (49, 50), (7, 100_000)])
def test_the_checkers_binomial_is_that_of_scipy(checker, seen, drawn):
    for share in (0.3, (seen + 1) / drawn / 1.5):
        chance = checker.chance_of_at_most(seen, drawn, share)
        expected = scipy.stats.binom.cdf(seen, drawn, share)
        assert chance == pytest.approx(expected, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(
    ("forged", "fault"),
    [
        ({"distortion": 0.01}, "distortion"),
        ({"lower_bound": 0.99}, "lower bound"),
        ({"fingerprint": "0" * 64}, "fingerprint"),
        ({"n_pairs": 90}, "pairs that count"),
        ({"components": np.eye(2, 6) * 1.1}, "orthonormal"),
    ],
)
def test_the_checker_finds_forgeries(checker, tmp_path, forged, fault):
    X, model = small()
    dataclasses.replace(model.certificate_, **forged).save(tmp_path / "f.isoproj")
    with pytest.raises(AssertionError, match=fault):
        checker.check(tmp_path / "f.isoproj", X)


def test_the_checker_is_a_program(tmp_path):
    X, model = small()
    model.save(tmp_path / "m.isoproj")
    np.save(tmp_path / "x.npy", X)
    command = [sys.executable, DOCS / "independent_checker.py", "m.isoproj", "x.npy"]
    done = subprocess.run(
        command, cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout.startswith("holds: no projection below")


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path):
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", DOCS, tmp_path]
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "quickstart.html").exists()
