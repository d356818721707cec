from __future__ import annotations

import numpy as np
import pytest
from geometry import QUICK, cloud
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from isoproj import GuaranteedPCA, NearIsometricProjection

CONFIGURATIONS = [
    NearIsometricProjection(),
    NearIsometricProjection(1, solver="dual_ascent", max_iter=5),
    NearIsometricProjection(2, solver="dual_ascent", max_iter=20),
    NearIsometricProjection(2, pairs="directions", **QUICK),
    NearIsometricProjection(2, pairs=[[0, 1], [1, 2]], random_state=0),
    GuaranteedPCA(max_distortion=1.0),
    GuaranteedPCA(max_distortion=1.0, objective="distortion"),
    NearIsometricProjection(1, scale="balanced", solver="dual_ascent", max_iter=5),
    NearIsometricProjection(
        1, pairs="neighbors", n_neighbors=2, solver="dual_ascent", max_iter=5
    ),
    NearIsometricProjection(
        1, pairs="labels", include_norms=True, solver="dual_ascent", max_iter=5
    ),
]
# Checks that the common ones leave out, by name.
EXTRA = [
    "check_set_output_transform_pandas",
    "check_global_output_transform_pandas",
    "check_set_output_transform_polars",
    "check_global_set_output_transform_polars",
    "check_transformer_get_feature_names_out",
    "check_transformer_get_feature_names_out_pandas",
    "check_dataframe_column_names_consistency",
]


@pytest.mark.filterwarnings("ignore::isoproj.exceptions.DuplicatePointsWarning")
@pytest.mark.filterwarnings("ignore:The points span only:UserWarning")
@parametrize_with_checks(CONFIGURATIONS)
def test_it_keeps_scikit_learns_contract(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:X .* feature names:UserWarning")
@pytest.mark.parametrize("name", EXTRA)
@pytest.mark.parametrize(
    "estimator",
    [NearIsometricProjection(**QUICK), CONFIGURATIONS[1], CONFIGURATIONS[5]],
)
def test_it_passes_the_checks_that_must_be_called_by_name(name, estimator):
    check = getattr(estimator_checks, name)
    check(type(estimator).__name__, clone(estimator))


def model(k=2, **options):
    return NearIsometricProjection(
        k, **{"solver": "dual_ascent", "max_iter": 15, **options}
    )


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_come_out_as_frames_with_names(library):
    frames = pytest.importorskip(library)
    X = cloud(7, 12, 4)
    names = ["alpha", "beta", "gamma", "delta"]
    frame = frames.DataFrame(dict(zip(names, X.T, strict=True)))
    fitted = model().set_output(transform=library).fit(frame)
    out = fitted.transform(frame)
    assert isinstance(out, frames.DataFrame)
    assert list(out.columns) == ["nearisometricprojection0", "nearisometricprojection1"]
    assert_array_equal(fitted.feature_names_in_, names)
    assert_allclose(out.to_numpy(), X @ fitted.components_.T)


def test_before_fit_nothing_works():
    for method in ("transform", "inverse_transform", "score"):
        with pytest.raises(NotFittedError):
            getattr(model(), method)(cloud(0, 3, 2))
    with pytest.raises(NotFittedError):
        model().save("nowhere")


def test_a_clone_has_the_parameters_and_nothing_learnt():
    pairs = [[0, 1], [1, 2]]
    fitted = model(1, pairs=pairs, time_limit=9.0, verbose=0).fit(cloud(0, 5, 3))
    fresh = clone(fitted)
    assert fresh.get_params() == fitted.get_params()
    assert not hasattr(fresh, "components_")


def test_it_works_in_a_pipeline_and_a_grid_search():
    X = cloud(8, 40, 6) * np.arange(1, 7)
    pipeline = make_pipeline(StandardScaler(), model())
    assert pipeline.fit_transform(X).shape == (40, 2)
    search = GridSearchCV(model(), {"n_components": [1, 3, 5]}, cv=3).fit(X)
    assert search.best_params_ == {"n_components": 5}


def test_constructor_parameters_survive_fit():
    pairs = np.array([[0, 1], [1, 2]])
    fitted = model(1, pairs=pairs)
    before = fitted.get_params()
    fitted.fit(cloud(0, 4, 3))
    assert fitted.get_params() == before
    assert fitted.pairs is pairs


def test_read_only_data_are_enough():
    X = cloud(20, 9, 5)
    X.setflags(write=False)
    model().fit(X).transform(X)
