"""Claims say which pairs they are about; no maker chooses the verifier's draw."""

from __future__ import annotations

import dataclasses
import json
import warnings

import numpy as np
import pytest
from certificates import load_checker

from isoproj import NearIsometricProjection, verify
from isoproj.exceptions import ClaimError
from isoproj.proof import confidence
from isoproj.proof import verify as verifying
from isoproj.proof.verify import check_claims

independent = load_checker()

N = 40
ROWS = np.random.default_rng(1).normal(size=(N, 5))
HALF = np.arange(N) % 2
# Options, labels, and which pairs the claims are then about.
SCOPES = {
    "all": ({}, None, "all 780 pairs"),
    "listed": (
        {"pairs": [[0, 1], [2, 5], [3, 4], [7, 7]]},
        None,
        "3 of 780 pairs (listed by the maker)",
    ),
    "neighbors": (
        {"pairs": "neighbors", "n_neighbors": 1},
        None,
        " of 780 pairs (listed by the maker)",
    ),
    "labels": (
        {"pairs": "labels"},
        HALF,
        "400 of 780 pairs (of different classes by the maker's labels)",
    ),
    "within": (
        {"pairs": "within-labels"},
        HALF,
        "380 of 780 pairs (of one class by the maker's labels)",
    ),
    "queries": (
        {"pairs": "queries"},
        HALF == 1,
        "400 of 780 pairs (of a query and another row by the maker's marks)",
    ),
    "directions": ({"pairs": "directions"}, None, "all 40 rows"),
    "norms": ({"include_norms": True}, None, "all 820 pairs and rows"),
    "apart": ({"min_distance": 1.5}, None, " of 780 pairs (at least 1.5 apart)"),
    "sample": ({"pairs": "sample"}, None, " of 780 pairs (drawn by the maker)"),
}
ABOUT_PAIRS = ("distortion", "worst pairs", "lower bound")


def fitted(options, labels=None):
    model = NearIsometricProjection(
        2, random_state=0, n_restarts=0, time_limit=0.2, **options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(ROWS, labels)


@pytest.fixture
def few(monkeypatch):
    """Small samples, for speed."""
    monkeypatch.setattr(confidence.drawn_losses, "__defaults__", (2000,))


@pytest.mark.parametrize("kind", SCOPES)
def test_every_claim_about_pairs_says_which(few, kind):
    options, labels, scope = SCOPES[kind]
    model = fitted(options, labels)
    claims = {claim.name: claim for claim in check_claims(model, ROWS)}
    for name in ABOUT_PAIRS:
        assert claims[name].holds
        assert claims[name].over.endswith(scope)
        assert claims[name].title == f"{name} over {claims[name].over}"
    if kind != "all":
        assert not any("all 780 pairs" in claim.title for claim in claims.values())


@pytest.mark.parametrize("kind", SCOPES)
@pytest.mark.parametrize("number", ["n_pairs", "n_identical", "n_close"])
def test_a_false_number_of_pairs_is_refused_for_every_kind(few, kind, number, tmp_path):
    options, labels, _ = SCOPES[kind]
    stated = fitted(options, labels).certificate_
    independent.check(_saved(stated, tmp_path), ROWS)
    for false in (getattr(stated, number) + 1, 999_999, -5):
        forged = dataclasses.replace(stated, **{number: false})
        with pytest.raises(ClaimError, match="pairs that count does not hold"):
            verify(forged, ROWS)
        with pytest.raises(AssertionError, match="pairs that count"):
            independent.check(_saved(forged, tmp_path), ROWS)


def _saved(certificate, folder):
    certificate.save(folder / "c.isoproj")
    return folder / "c.isoproj"


def test_the_command_line_tells_a_list_from_all_pairs(tmp_path, run):
    model = fitted(SCOPES["listed"][0])
    model.save(tmp_path / "model.isoproj")
    np.save(tmp_path / "rows.npy", ROWS)
    verified = ("verify", tmp_path / "model.isoproj", tmp_path / "rows.npy")
    status, out, _ = run(*verified)
    assert status == 0
    assert "3 of 780 pairs (listed by the maker)" in " ".join(out.split())
    assert "over all" not in out
    told = json.loads(run(*verified, "--json")[1])
    overs = {claim["name"]: claim["over"] for claim in told["claims"]}
    assert overs["distortion"] == "3 of 780 pairs (listed by the maker)"


def test_a_failing_claim_says_which_pairs_it_was_about():
    stated = fitted(SCOPES["listed"][0]).certificate_
    forged = dataclasses.replace(stated, distortion=stated.distortion / 2.0)
    with pytest.raises(ClaimError, match=r"does not hold over 3 of 780 pairs \(listed"):
        verify(forged, ROWS)


def test_very_many_stated_worst_pairs_are_refused_without_a_search(monkeypatch):
    stated = fitted({}).certificate_
    count = 400_000
    forged = dataclasses.replace(
        stated,
        worst_pairs=np.tile([[0, 1]], (count, 1)),
        worst_distortions=np.zeros(count),
    )
    asked = []
    find = verifying.find_worst

    def search(*args, n_worst, **options):
        asked.append(n_worst)
        return find(*args, n_worst=n_worst, **options)

    monkeypatch.setattr(verifying, "find_worst", search)
    claims = {claim.name: claim for claim in check_claims(forged, ROWS)}
    assert asked == [1]
    assert claims["distortion"].holds
    assert not claims["worst pairs"].holds
    assert "400,000 pairs where at most 1,000 are listed" in claims["worst pairs"].found


def test_a_favourable_draw_of_the_maker_does_not_pass(few, monkeypatch):
    model = fitted(SCOPES["sample"][0])
    verify(model, ROWS)
    stated = model.certificate_
    # A map that is stated to lose less than it does on many pairs that it did not draw.
    worse = dataclasses.replace(
        stated, sampled_share=confidence.share_of(np.zeros(2000), 1.0)
    )
    exact = stated.components.astype(np.float64)
    lucky = confidence.seed_of(stated.fingerprint, exact)
    draw = verifying.drawn_losses

    def drawn(points, components, seed):
        losses = draw(points, components, seed)
        # What a maker finds who has tried maps until the draw shows nothing.
        return np.zeros_like(losses) if seed == lucky else losses + 0.2

    monkeypatch.setattr(verifying, "drawn_losses", drawn)
    claims = {claim.name: claim for claim in check_claims(worse, ROWS)}
    assert claims["share of all pairs above (sampled)"].holds
    assert not claims["share of all pairs above (sampled anew)"].holds


def test_every_check_draws_a_sample_of_its_own(few, monkeypatch):
    model = fitted(SCOPES["sample"][0])
    seeds = []
    draw = verifying.drawn_losses

    def drawn(points, components, seed):
        seeds.append(seed)
        return draw(points, components, seed)

    monkeypatch.setattr(verifying, "drawn_losses", drawn)
    for _ in range(2):
        verify(model, ROWS)
    assert seeds[0] == seeds[2]
    assert len({*seeds}) == 3


def test_an_honest_share_is_rarely_refused():
    # The stated share is a limit at 95 %; even a share at the limit itself passes.
    rng = np.random.default_rng(0)
    seen = rng.binomial(100_000, 1e-4, size=1000)
    chances = [confidence.chance_of_more(int(n), 100_000, 1e-4) for n in seen]
    assert min(chances) > 1e-6
    assert confidence.chance_of_more(100, 100_000, 3e-5) < 1e-9
