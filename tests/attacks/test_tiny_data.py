"""Tiny and degenerate data give an answer or one clear line, at every entry point."""

from __future__ import annotations

import traceback
import warnings
from collections import Counter

import numpy as np
import pytest
import scipy.sparse

from attacks.exact import SEED
from isoproj import (
    GuaranteedPCA,
    NearIsometricProjection,
    audit,
    compare,
    distortion_curve,
    guarantee_frontier,
    report,
    verify,
)
from isoproj.exceptions import ClaimError, IsoprojError


@np.errstate(all="ignore")
def tiny(rng):
    """Return few rows, most of them degenerate."""
    n, d = int(rng.choice([1, 2, 3, 3, 4, 4, 5, 6])), int(rng.integers(1, 5))
    rows = rng.standard_normal((n, d))
    kind = int(rng.integers(16))
    if kind == 0:
        rows[:] = 0.0
    elif kind == 1:
        rows[:] = rows[0]
    elif kind == 2:
        rows[:, 1:] = 0.0
    elif kind == 3:
        rows = np.eye(n, d)
    elif kind == 4:
        rows *= 10.0 ** float(rng.choice([-320, -300, -160, 150, 300, 308]))
    elif kind == 5:
        rows[rng.integers(n), rng.integers(d)] = rng.choice([np.nan, np.inf, -np.inf])
    elif kind == 6:
        rows = rng.integers(-1, 2, (n, d))
    elif kind == 7:
        rows = rows > 0.0
    elif kind == 8:
        rows = rows.astype(rng.choice([np.float16, np.float32]))
    elif kind == 9:
        rows = scipy.sparse.csr_array(rows * (rng.random((n, d)) < 0.4))
    elif kind == 10:
        rows *= 10.0 ** rng.integers(-150, 150, (n, 1)).astype(float)
    elif kind == 11:
        rows[1:] = rows[0] * (1.0 + 2.0**-52 * rng.integers(0, 3, (n - 1, 1)))
    elif kind == 12:
        rows = np.outer(rng.integers(-3, 4, n), rows[0])
    elif kind == 13:
        rows = scipy.sparse.csr_array((n, d))
    elif kind == 14:
        rows += 10.0 ** float(rng.integers(3, 16))
    elif kind == 15:
        rows = rows[:, :0] if rng.random() < 0.3 else rows[:0]
    return rows


def random_options(rng, kind):
    """Return options of an estimator that fit each other, or not."""
    options = {
        "n_components": int(rng.integers(1, 4)),
        "max_iter": 1,
        "random_state": 0,
    }
    if rng.random() < 0.2:
        options |= {"n_components": None, "max_distortion": float(rng.random())}
    options["pairs"] = str(
        rng.choice(["all", "all", "directions", "neighbors", "labels", "sample"])
    )
    options["n_neighbors"] = int(rng.integers(1, 4))
    options["include_norms"] = bool(rng.random() < 0.1)
    options["memory_limit"] = float(rng.choice([0.0, 2e9]))
    if rng.random() < 0.2:
        options["heldout"] = float(rng.choice([0.3, 1]))
    if rng.random() < 0.1:
        options["min_distance"] = float(rng.random())
    if kind is NearIsometricProjection:
        if "max_distortion" not in options and rng.random() < 0.7:
            options["solver"] = "dual_ascent"
        options["scale"] = [None, "balanced"][rng.integers(2)]
    else:
        options["objective"] = str(rng.choice(["variance", "distortion"]))
    return options


def fitted(rng, rows, labels):
    kind = (NearIsometricProjection, GuaranteedPCA)[int(rng.integers(5) == 0)]
    model = kind(**random_options(rng, kind))
    return model.fit(rows, labels)


def _fit(rng, rows, labels):
    model = fitted(rng, rows, labels)
    assert model.lower_bound_ <= model.distortion_
    assert np.isfinite(model.transform(rows)).all()
    if model.heldout_ is None:
        verify(model, rows)


def _update(rng, rows, labels):
    model = NearIsometricProjection(1, max_iter=1, random_state=0).fit(rows)
    new = tiny(rng)
    if new.shape[1] and rng.random() < 0.9:
        new = new[:, np.arange(rows.shape[1]) % new.shape[1]]
    assert model.update(new, rows).lower_bound_ <= model.distortion_


def _audit(rng, rows, labels):
    width = rows.shape[1] if rng.random() < 0.9 else 3
    components = rng.standard_normal((int(rng.integers(1, 4)), width))
    recall = 1 if rng.random() < 0.3 else None
    kind = str(rng.choice(["all", "neighbors"]))
    audit(
        rows, components, recall=recall, pairs=kind, n_neighbors=1, orientation="rows"
    )


def _curve(rng, rows, labels):
    curve = distortion_curve(rows, time_limit=0.2)
    assert (curve.lower_bound <= curve.distortion).all()


def _frontier(rng, rows, labels):
    guarantee_frontier(rows, int(rng.integers(1, 3)), 2, tol=0.3)


def _report(rng, rows, labels):
    model = NearIsometricProjection(1, solver="dual_ascent", max_iter=2).fit(rows)
    told = report(model, rows)
    assert told.json()
    assert told.markdown()


def _compare(rng, rows, labels):
    compare(rows, ["pca", "random"], ks=[1])


def _saved(rng, rows, labels, folder):
    model = fitted(rng, rows, labels)
    model.save(folder / "model.isoproj")
    again = type(model).load(folder / "model.isoproj")
    assert again.distortion_ == model.distortion_
    assert np.array_equal(again.components_, model.components_)


ENTRIES = {
    "fit": (_fit, 10),
    "audit": (_audit, 6),
    "update": (_update, 3),
    "save and load": (_saved, 4),
    "report": (_report, 1),
    "compare": (_compare, 1),
    "curve": (_curve, 1),
    "frontier": (_frontier, 1),
}
DRAWN = [name for name, (_, share) in ENTRIES.items() for _ in range(share)]


def is_clear(error):
    """Return whether isoproj or scikit-learn refuses the data in one line."""
    if not isinstance(error, ValueError | IsoprojError) or isinstance(
        error, ClaimError
    ):
        return False
    raised = traceback.extract_tb(error.__traceback__)[-1].filename
    return "\n" not in str(error) and any(
        f"/{package}/" in raised for package in ("isoproj", "sklearn")
    )


def attack(first, count, figures, folder):
    answered, refused, faults = Counter(), Counter(), []
    for at in range(first, first + count):
        rng = np.random.default_rng([SEED, 2, at])
        rows, name = tiny(rng), DRAWN[at % len(DRAWN)]
        labels = rng.integers(0, 2, rows.shape[0])
        given = [rng, rows, labels, *([folder] if name == "save and load" else [])]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                ENTRIES[name][0](*given)
            answered[name] += 1
        except Exception as error:
            if is_clear(error):
                refused[name] += 1
                continue
            shown = rows.toarray() if scipy.sparse.issparse(rows) else rows
            where = traceback.extract_tb(error.__traceback__)[-1]
            faults.append(
                f"{name} {at} on {shown.tolist()}: {error!r} at {where.filename}:"
                f"{where.lineno}"
            )
    figures(
        f"seed {SEED}, {sum(answered.values())} answered, "
        f"{sum(refused.values())} refused in one line: "
        + ", ".join(f"{n} {answered[n]}+{refused[n]}" for n in ENTRIES)
    )
    assert not faults, f"{len(faults)} of {count}: " + "\n".join(faults)


def test_a_few_tiny_data_give_an_answer_or_one_line(figures, tmp_path):
    attack(0, 60, figures, tmp_path)


@pytest.mark.attack
@pytest.mark.parametrize("part", range(20))
def test_tiny_data_give_an_answer_or_one_line(part, figures, tmp_path):
    attack(1000 + 250 * part, 250, figures, tmp_path)
