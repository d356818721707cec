"""Numbers that float64 would round are refused; the bound is that of the data."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from isoproj import GuaranteedPCA, NearIsometricProjection, audit
from isoproj.exceptions import DuplicatePointsWarning
from isoproj.proof.verify import check_claims

BIG = 2**53
ROWS = [[BIG, 0], [BIG + 1, 0], [BIG + 2, 5], [BIG, 7]]
FORMS = {
    "list": ROWS,
    "mixed list": [[*row, 0.5] for row in ROWS],
    "int64": np.array(ROWS),
    "uint64": np.array(ROWS, dtype=np.uint64),
    "largest uint64": np.array(ROWS, dtype=np.uint64) + np.uint64(2**64 - 2 * BIG),
    "negative": -np.array(ROWS),
    "object": np.array(ROWS, dtype=object),
    "csr": scipy.sparse.csr_array(np.array(ROWS)),
}
if np.finfo(np.longdouble).nmant > 52:
    FORMS["long double"] = np.array(ROWS, dtype=np.longdouble)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.filterwarnings("ignore::isoproj.exceptions.DuplicatePointsWarning")
def test_whole_numbers_that_float64_rounds_are_refused(form):
    rows = FORMS[form]
    for use in (
        NearIsometricProjection(1).fit,
        GuaranteedPCA(1).fit,
        lambda X: audit(X, np.eye(1, np.shape(X)[1])),
    ):
        with pytest.raises(ValueError, match="float64 holds exactly"):
            use(rows)


def test_a_table_with_such_numbers_is_refused():
    pandas = pytest.importorskip("pandas")
    for table in (
        pandas.DataFrame(ROWS),
        pandas.DataFrame(ROWS).astype("Int64"),
        pandas.DataFrame({"a": [row[0] for row in ROWS], "b": [0.0, 1.0, 2.0, 3.0]}),
    ):
        with pytest.raises(ValueError, match="float64 holds exactly"):
            NearIsometricProjection(1).fit(table)


@pytest.mark.parametrize("name", ["a.npy", "a.parquet", "a.h5"])
def test_files_with_such_numbers_are_refused(tmp_path, run, name):
    path = tmp_path / name
    if name == "a.npy":
        np.save(path, np.array(ROWS))
    elif name == "a.h5":
        h5py = pytest.importorskip("h5py")
        with h5py.File(path, "w") as file:
            file["a"] = np.array(ROWS)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        whole = pyarrow.array([row[0] for row in ROWS])
        parquet.write_table(
            pyarrow.table({"a": whole, "b": pyarrow.array([0.5, 1.0, 2.0, 3.0])}), path
        )
    status, _, err = run("fit", path, "-k", 1)
    assert status == 2
    assert "float64 holds exactly" in err
    assert err.count("\n") <= 2


def test_whole_numbers_that_float64_holds_are_fitted_as_they_are():
    rows = np.array([[BIG, 0], [BIG + 2, 0], [BIG + 4, 5], [BIG, 7]])
    model = NearIsometricProjection(1).fit(rows)
    shifted = NearIsometricProjection(1).fit(rows - rows[0])
    assert abs(model.distortion_ - shifted.distortion_) < 1e-9
    assert all(claim.holds for claim in check_claims(model, rows))
    with pytest.warns(DuplicatePointsWarning):
        NearIsometricProjection(1).fit(np.vstack([rows, rows]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_images_too_long_to_be_numbers_are_refused(dtype):
    points = np.random.default_rng(0).uniform(-1.0, 1.0, size=(6, 4)).astype(dtype)
    model = NearIsometricProjection(1, random_state=0).fit(points)
    along = model.components_[0] / np.abs(model.components_).max()
    largest = along.astype(dtype) * np.finfo(dtype).max
    with pytest.raises(ValueError, match="that of row 1 is too long"):
        model.transform(np.stack([points[0], largest]))
    assert np.isfinite(model.transform(np.stack([0.4 * largest, -0.4 * largest]))).all()
