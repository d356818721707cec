from __future__ import annotations

import pytest
from geometry import cloud

from isoproj import (
    GuaranteedPCA,
    NearIsometricProjection,
    distortion_curve,
    guarantee_frontier,
    verify,
)
from isoproj.estimators.geometry import Geometry
from isoproj.exceptions import InfeasibleError
from isoproj.numerics.progress import OutOfTime, Walk, ending_within, tell
from isoproj.pairs.rule import PairKind

ROWS = cloud(0, 700, 8)
N_PAIRS = 700 * 699 // 2
ESTIMATORS = {
    "plain": NearIsometricProjection(3, time_limit=100.0),
    "norms": NearIsometricProjection(3, time_limit=100.0, include_norms=True),
    "nested": NearIsometricProjection(3, time_limit=100.0, nested=(1,)),
    "fewest": NearIsometricProjection(max_distortion=0.9, time_limit=100.0),
    "guaranteed": GuaranteedPCA(3, time_limit=100.0),
}


@pytest.fixture
def short(monkeypatch):
    """Leave no time for a walk over all pairs."""
    monkeypatch.setattr(Geometry, "scan_seconds", lambda *_: 1e9)
    monkeypatch.setattr("isoproj.pairs.rule._SAMPLE", 2000)


@pytest.mark.filterwarnings("ignore:Stopped early")
@pytest.mark.parametrize("name", list(ESTIMATORS))
def test_without_time_for_all_pairs_a_fit_is_certified_over_a_sample(
    name, short, tmp_path
):
    model = ESTIMATORS[name].fit(ROWS)
    certificate = model.certificate_
    assert certificate.pair_kind is PairKind.SAMPLED
    assert certificate.n_pairs < N_PAIRS
    assert 0.0 < certificate.sampled_share < 0.01
    assert "95 % confidence" in str(certificate)
    has_lengths = getattr(model, "include_norms", False)
    sizes = "distances and lengths" if has_lengths else "distances"
    assert f"{certificate.n_pairs:,} sampled {sizes} keeps" in str(certificate)
    assert certificate.lower_bound <= certificate.distortion
    assert model.status_ == "time_limit"
    verify(model, ROWS)
    model.save(tmp_path / "a.isoproj")
    back = type(model).load(tmp_path / "a.isoproj")
    assert back.pairs == "all"
    verify(back, ROWS)


def test_a_fit_whose_walk_over_all_pairs_ran_out_of_time_says_so(short):
    with pytest.warns(UserWarning, match="over a sample alone .* 95 % confidence"):
        NearIsometricProjection(3, time_limit=100.0).fit(ROWS)


def test_curves_over_a_sample_say_so(short):
    for ask in (
        lambda: distortion_curve(ROWS, [2, 3], tol=0.5, time_limit=100.0),
        lambda: guarantee_frontier(ROWS, 3, 2, tol=0.5, time_limit=100.0),
    ):
        with pytest.warns(UserWarning, match="over a sample alone .* 95 % confidence"):
            found = ask()
        kinds = {each.pair_kind for each in found.certificates}
        assert kinds == {PairKind.SAMPLED}


def test_what_only_a_sample_shows_is_not_called_possible(short):
    with pytest.raises(InfeasibleError, match="impossible in 2") as refused:
        GuaranteedPCA(2, max_distortion=0.1, time_limit=100.0).fit(ROWS)
    assert refused.value.certificate.pair_kind is PairKind.SAMPLED
    assert "is possible" not in str(refused.value)


def test_with_time_for_all_pairs_a_limit_changes_no_claim():
    model = NearIsometricProjection(3, time_limit=100.0).fit(ROWS)
    assert model.certificate_.pair_kind is PairKind.ALL
    assert model.certificate_.n_pairs == N_PAIRS


def test_listed_pairs_are_always_walked_over(short):
    model = NearIsometricProjection(3, time_limit=100.0, pairs=[[0, 1], [2, 3]])
    assert model.fit(ROWS).certificate_.pair_kind is PairKind.LISTED


def test_a_walk_that_cannot_end_in_time_is_stopped_and_another_is_not():
    with ending_within(1e-9):
        tell(Walk(0, 1000))
        with pytest.raises(OutOfTime):
            tell(Walk(1, 1000))
    with ending_within(1e9):
        tell(Walk(0, 1000))
        tell(Walk(1, 1000))


def test_a_walk_that_is_stopped_leaves_a_sample(monkeypatch):
    def stopped(*_args, **_options):
        raise OutOfTime

    whole = Geometry.certify

    def certify(self, *args, **options):
        return (stopped if self.pairs.listed is None else whole)(self, *args, **options)

    monkeypatch.setattr(Geometry, "certify", certify)
    model = NearIsometricProjection(3, time_limit=100.0)
    with pytest.warns(UserWarning, match="over a sample alone"):
        model.fit(ROWS)
    assert model.certificate_.pair_kind is PairKind.SAMPLED
    monkeypatch.undo()
    verify(model, ROWS)


def test_under_a_limit_the_heaviest_weights_of_wide_data_prove_the_bound(monkeypatch):
    rows = cloud(0, 40, 60)
    whole = NearIsometricProjection(5, random_state=0).fit(rows)
    most = 50
    assert whole.certificate_.weights.size > most
    monkeypatch.setattr("isoproj.estimators.geometry._MOST_WEIGHTS", most)
    model = NearIsometricProjection(5, random_state=0, time_limit=100.0).fit(rows)
    assert model.certificate_.weights.size == most
    assert 0.2 * whole.lower_bound_ < model.lower_bound_ <= model.distortion_
    verify(model, rows)
