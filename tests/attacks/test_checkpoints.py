"""A checkpoint from a stranger ends a fit in one line, or changes no bound."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from attacks.forging import forge
from isoproj import NearIsometricProjection
from isoproj.exceptions import ClaimError, FormatError
from isoproj.numerics.container import read_container
from isoproj.pairs.rule import prepare_pairs
from isoproj.proof.bounds import certify

ROWS = np.random.default_rng(3).normal(size=(60, 8)) * 0.8 ** np.arange(8)
# Only pairs of even with odd rows count; they are a list.
LISTED = np.array([(i, j) for i in range(60) for j in range(i + 1, 60) if (i + j) % 2])


def fit(path):
    model = NearIsometricProjection(
        2, pairs=LISTED, random_state=0, tol=0.05, checkpoint=path
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(ROWS)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "run.isoproj"
    return fit(path), path


def set_code(name, code):
    def change(header, tensors):
        tensors[name][0] = code

    return change


def set_state(name, value):
    def change(header, tensors):
        header["state"][name] = value

    return change


DAMAGED = {
    "pair that does not count": set_code("codes", 0 * 60 + 2),
    "pair of one point": set_code("codes", 5 * 60 + 5),
    "pair outside": set_code("codes", 60 * 60 + 1),
    "negative pair": set_code("codes", -1),
    "working pair that does not count": set_code("working", 0 * 60 + 2),
    "bound's pair that does not count": set_code("bound_codes", 0 * 60 + 2),
    "bound's weight negative": lambda h, t: t["bound_weights"].__setitem__(0, -1.0),
    "few bound's weights": lambda h, t: t.update(bound_weights=t["bound_weights"][1:]),
    "space too long": lambda h, t: t["bound_space"].__imul__(2.0),
    "few occupations": lambda h, t: t.update(
        bound_occupations=t["bound_occupations"][1:]
    ),
    "occupation NaN": lambda h, t: t["bound_occupations"].fill(np.nan),
    "negative weight": lambda h, t: t["weights"].__setitem__(0, -1.0),
    "weight NaN": lambda h, t: t["weights"].fill(np.nan),
    "few weights": lambda h, t: t.update(weights=t["weights"][1:]),
    "no weights": lambda h, t: t.pop("weights"),
    "codes are floats": lambda h, t: t.update(codes=t["codes"].astype(float)),
    "basis too long": lambda h, t: t["basis"].__imul__(2.0),
    "basis NaN": lambda h, t: t["basis"].fill(np.nan),
    "basis too wide": lambda h, t: t.update(basis=np.eye(8, 3)),
    "basis huge": lambda h, t: t["basis"].fill(1e300),
    "no basis": lambda h, t: t.pop("basis"),
    "factor infinite": lambda h, t: t["factor"].fill(np.inf),
    "factor of others": lambda h, t: t.update(factor=np.eye(7)),
    "values NaN": lambda h, t: t["values"].fill(np.nan),
    "few values": lambda h, t: t.update(values=t["values"][:2]),
    "no sides": lambda h, t: h["state"].pop("sides"),
    "sides of text": set_state("sides", "x"),
    "starts of text": set_state("starts", ["a", "b", "c", "d"]),
    "few starts": set_state("starts", [1]),
    "starts NaN": set_state("starts", [float("nan")] * 4),
    "gains of text": set_state("gains", ["many"]),
    "few numbers of the bound": set_state("bound", [1, 2]),
    "draws": set_state("rng", {"a": 1}),
    "no draws": set_state("rng", None),
    "history": set_state("history", [{"a": 1}]),
    "history of numbers": set_state("history", 3),
    "state": lambda h, t: h.update(state=[1]),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_checkpoint_is_one_clear_line(honest, tmp_path, damage):
    forged = forge(honest[1], tmp_path / "forged.isoproj", DAMAGED[damage])
    with pytest.raises(
        FormatError, match=r"checkpoint .* is damaged: .*Delete it"
    ) as e:
        fit(forged)
    assert "\n" not in str(e.value)


def test_a_checkpoint_that_boasts_changes_no_bound(honest, tmp_path):
    def boast(header, tensors):
        tensors["values"][:] = [0.0005, 0.582, 0.582]
        for side in header["state"]["sides"].values():
            side[1] = True

    model = fit(forge(honest[1], tmp_path / "forged.isoproj", boast))
    assert model.lower_bound_ <= model.distortion_
    assert model.lower_bound_ <= honest[0].distortion_
    assert model.distortion_ >= honest[0].lower_bound_


def test_the_checkpoint_of_the_tests_is_one_that_is_taken_up(honest):
    header, tensors = read_container(honest[1])
    assert all(is_over for _, is_over in header["state"]["sides"].values())
    assert {"working", "codes", "bound_codes", "bound_space", "basis"} <= set(tensors)
    assert fit(honest[1]).distortion_ == honest[0].distortion_


FAULTY = {
    "a pair that does not count": (np.array([[0, 2]]), np.ones(1)),
    "a pair of identical points": (np.array([[1, 1]]), np.ones(1)),
    "pairs outside": (np.array([[0, 99]]), np.ones(1)),
    "negative": (np.array([[0, 1], [1, 2]]), np.array([2.0, -1.0])),
    "not finite": (np.array([[0, 1]]), np.array([np.inf])),
}


@pytest.mark.parametrize("fault", FAULTY)
def test_certifying_refuses_weights_that_prove_nothing(fault):
    points, pairs = prepare_pairs(ROWS, LISTED, rotate=True)
    with pytest.raises(ClaimError, match=fault):
        certify(points, pairs, np.eye(2, 8), *FAULTY[fault])


def test_certifying_refuses_bounds_in_the_wrong_order(monkeypatch):
    from isoproj.proof import bounds

    points, pairs = prepare_pairs(ROWS, LISTED, rotate=True)
    monkeypatch.setattr(bounds, "lower_bounds", lambda *_: np.array([1.5]))
    with pytest.raises(ClaimError, match="must not exceed the distortion"):
        certify(points, pairs, np.eye(2, 8), LISTED[:1], np.ones(1))
