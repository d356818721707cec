"""How results show themselves: short reprs, tables, one line that is renewed."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from geometry import cloud

import isoproj
from isoproj import GuaranteedPCA, NearIsometricProjection, audit, compare
from isoproj.numerics.shown import Tabular, aligned, renewed_line

X = cloud(3, 60, 6)


@pytest.fixture(scope="module")
def results():
    model = NearIsometricProjection(
        3, heldout=9, nested=[1, 2], pairs="labels", random_state=0
    ).fit(X, np.arange(60) % 4)
    exact = NearIsometricProjection(max_distortion=0.6, random_state=0).fit(X)
    kept = GuaranteedPCA(2, random_state=0).fit(X)
    found = audit(X, model, recall=(1, 5))
    return [
        model.certificate_,
        model.certificate_.pairs,
        model.heldout_,
        exact.certificate_.exclusion,
        kept.certificate_.guarantee,
        found,
        found.neighbors,
        isoproj.distortion_curve(X, range(1, 7), random_state=0),
        isoproj.guarantee_frontier(X, 2, 3, random_state=0),
        compare(X, ["pca"], [2]),
    ]


def test_every_result_has_a_short_repr_and_the_same_as_html(results):
    for result in results:
        assert len(repr(result)) < 800, type(result)
        assert "array(" not in repr(result)
        shown = result._repr_html_()
        assert "array(" not in shown
        assert shown.startswith(("<p>", "<pre", "<table>"))
        is_aligned = "\n" in str(result) and not shown.startswith("<table>")
        assert is_aligned == shown.startswith("<pre")


def test_html_of_results_escapes_what_users_wrote():
    class Nasty(Tabular):
        def _table(self):
            return ["<b>"], [["<script>"]]

    assert "<script>" not in Nasty()._repr_html_()
    assert "<b>" not in Nasty()._repr_html_()


def test_the_repr_of_a_long_table_leaves_out_its_middle():
    class Long(Tabular):
        def _table(self):
            return ["k"], [[str(k)] for k in range(1000)]

    assert len(str(Long()).splitlines()) == 1001
    lines = repr(Long()).splitlines()
    assert (lines[1].strip(), lines[-1].strip()) == ("0", "999")
    assert len(lines) == 22
    assert Long()._repr_html_().count("<tr>") == 22


def test_columns_of_numbers_are_aligned_at_the_right():
    text = aligned(["name", "loss"], [["a", "1"], ["long", "0.25"]])
    assert text.splitlines() == ["name  loss", "a        1", "long  0.25"]


@pytest.mark.parametrize("at", [5, 6, 7, 8])
def test_curves_and_audits_draw_themselves(results, at):
    if hasattr(results[at], "plot"):
        pytest.importorskip("matplotlib")
        assert results[at].plot().has_data()
    else:
        assert at == 6


@pytest.mark.parametrize("module", [isoproj.plot, isoproj.baselines])
def test_only_what_users_call_is_listed(module):
    assert set(dir(module)) == set(module.__all__)


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_sees_one_line_that_is_renewed(monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    NearIsometricProjection(2, random_state=0, verbose=1).fit(X)
    text = screen.getvalue()
    assert text.count("\n") == 1
    assert all(len(part.rstrip("\n")) == 29 for part in text.split("\r")[1:])


def test_a_log_gets_a_line_for_every_text(capsys):
    with renewed_line() as show:
        show("first")
        show("second")
    assert capsys.readouterr().err == "first\nsecond\n"


def test_a_notebook_renews_one_output_and_keeps_the_last_text(monkeypatch):
    outputs = []

    class Handle:
        def update(self, bundle, *, raw):
            outputs[-1] = bundle["text/plain"]

    def display(bundle, *, raw, display_id):
        outputs.append("")
        return Handle()

    notebook = SimpleNamespace(
        get_ipython=lambda: SimpleNamespace(kernel=None),
        display=SimpleNamespace(display=display),
    )
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    with renewed_line() as show:
        for at in range(9):
            show(f"text {at}")
    assert outputs == ["text 8"]
