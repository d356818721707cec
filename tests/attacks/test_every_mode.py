"""scikit-learn's common checks for both estimators, in every mode."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from isoproj import GuaranteedPCA, NearIsometricProjection
from isoproj.pairs.rule import WORDS

MODES = [
    # Queries need a y of two values, which the checks do not pass.
    *(
        {"pairs": word, "n_neighbors": 2}
        for word in WORDS
        if word not in ("approximate-neighbors", "queries")
    ),
    {"include_norms": True},
    {"min_distance": 1e-6},
    {"heldout": 0.3},
    {"memory_limit": 0.0},
]
# A cap without n_components is left out: one check sets n_components=1 itself.
# So is a warm start, which is meant to end elsewhere at the second fit.
# What is quick, since the checks fit some hundred times, and modes of one estimator.
KINDS = {
    NearIsometricProjection: (
        {"solver": "dual_ascent", "max_iter": 5},
        [
            {"scale": "balanced"},
            {"solver": "minimax", "n_restarts": 0, "tol": 0.5},
        ],
    ),
    GuaranteedPCA: (
        {"max_distortion": 1.0, "tol": 0.5},
        [{"objective": "distortion"}, {"max_distortion": None, "slack": 0.5}],
    ),
}
MODELS = [
    kind(**{"n_components": 1, "random_state": 0, **quick, **mode})
    for kind, (quick, own) in KINDS.items()
    for mode in [*MODES, *own]
]


@pytest.mark.attack
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(MODELS)
def test_every_mode_keeps_scikit_learns_contract(estimator, check):
    check(estimator)
