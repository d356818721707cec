from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from isoproj import NearIsometricProjection
from isoproj.cli.fit import _PROOFS
from isoproj.pairs.rule import PairKind

QUICK = ("--solver", "dual_ascent", "--max-iter", 5)


def close_pair_in_the_plane():
    """Return a wide circle and one point close to another, across every diameter."""
    angle = np.linspace(0.0, 2.0 * np.pi, 40, endpoint=False)
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    return np.vstack([circle, circle[0] + np.array([0.0, 1e-3])])


def test_a_loss_of_nearly_everything_is_explained_with_figures_of_the_data(
    tmp_path, run
):
    rows = close_pair_in_the_plane()
    np.save(tmp_path / "rows.npy", rows)
    status, out, err = run("fit", tmp_path / "rows.npy", "-k", 1, "--seed", 0)
    assert status == 0, err
    model = NearIsometricProjection(1, random_state=0).fit(rows)
    line = next(line for line in out.splitlines() if line.startswith("much lost"))
    stated = float(line.split("at most ")[1].split("%")[0]) / 100.0
    assert 1.0 - model.lower_bound_ <= stated <= 1.0 - model.lower_bound_ + 2e-4
    assert "1 dimension;" in line
    assert f"(proved by {_PROOFS[model.certificate_.proof]} pairs)" in out


def test_a_small_loss_needs_no_explanation(tmp_path, run):
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).random((20, 4)))
    status, out, err = run("fit", tmp_path / "rows.npy", "-k", 3, *QUICK)
    assert status == 0, err
    assert "much lost" not in out


@pytest.mark.parametrize("factor", [1e-3, 1.0])
def test_close_pairs_are_named_where_they_carry_the_loss(factor):
    from isoproj.cli.fit import _why_so_much

    rows = np.random.default_rng(0).standard_normal((40, 3))
    rows[20:] = rows[:20] + factor * np.random.default_rng(1).standard_normal((20, 3))
    pairs = np.column_stack([np.arange(20), np.arange(20, 40)])
    certificate = NearIsometricProjection(1, pairs=pairs).fit(rows).certificate_
    # A list or a sample takes no such advice.
    assert _why_so_much(certificate, rows).endswith("take more dimensions")
    certificate = replace(certificate, pair_kind=PairKind.ALL, listed_pairs=None)
    text = _why_so_much(certificate, rows)
    assert ("--min-distance" in text) == (factor < 1.0)
    assert ("--pairs neighbors" in text) == (factor == 1.0)
