"""The matrix of a linear map, whichever library made the map."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.arrays import as_dense, as_numbers, check_choice, check_map
from isoproj.numerics.spectral import Array

# An array, a fitted estimator, a linear layer, or a transform of faiss.
LinearMap: TypeAlias = Any
# What a square matrix holds in its rows: one output each, or one input each.
Orientation: TypeAlias = Literal["rows", "columns"]

_PROBES = 3
# A transform whose images differ by more, relative to their size, is another map.
_TOLERANCE = 1e-3


def linear_map(
    given: LinearMap, n_features: int, *, orientation: Orientation | None = None
) -> Array:
    """Return the float64 matrix of a map, one output coordinate a row.

    A map that adds a constant is taken without it, because differences of points lose
    the constant. A ValueError says why a map is not linear, or does not fit.
    """
    check_choice("orientation", orientation, (None, "rows", "columns"))
    known = _of_object(given, n_features)
    if known is not None:
        return check_map(known, n_features)
    return check_map(_oriented(as_numbers(given), n_features, orientation), n_features)


def _of_object(given: LinearMap, n_features: int) -> NDArray[Any] | None:
    """Return the matrix of an object that says its orientation, None for an array."""
    if hasattr(given, "shape"):
        return None  # The columns of a table may have any of the names below.
    if hasattr(given, "components_"):
        return _of_estimator(given)
    if hasattr(given, "steps"):
        steps = [step for _, step in given.steps if step not in (None, "passthrough")]
        return _product(steps, _of_step, n_features)
    if hasattr(given, "d_in") and hasattr(given, "d_out"):
        return _of_faiss(given)
    if hasattr(given, "chain") and hasattr(given, "index"):
        links = [given.chain.at(at) for at in range(given.chain.size())]
        return _product(links, _of_faiss, n_features)
    if hasattr(given, "weight"):
        return as_numbers(given.weight)
    if hasattr(given, "fit"):
        msg = (
            "an estimator must be fitted and have components_; "
            f"{type(given).__name__} has none. Fit it, or pass its matrix."
        )
        raise ValueError(msg)
    return None


def _product(
    steps: Iterable[LinearMap],
    matrix_of: Callable[[LinearMap], NDArray[Any]],
    n_features: int,
) -> NDArray[Any]:
    """Return the matrix of several steps, the first of which is applied first."""
    whole: NDArray[Any] | None = None
    for step in steps:
        matrix = matrix_of(step)
        width = n_features if whole is None else whole.shape[0]
        if np.ndim(matrix) != 2 or matrix.shape[1] != width:
            msg = (
                f"every step must take what the one before it gives, {width} "
                f"coordinates; {type(step).__name__} has shape {np.shape(matrix)}. "
                "Audit it on data of its own width."
            )
            raise ValueError(msg)
        whole = matrix if whole is None else matrix.astype(np.float64) @ whole
    return np.eye(n_features) if whole is None else whole


def _of_step(step: LinearMap) -> NDArray[Any]:
    """Return the matrix of a step of a scikit-learn pipeline."""
    if hasattr(step, "components_"):
        return _of_estimator(step)
    if type(step).__name__ == "StandardScaler" and hasattr(step, "n_features_in_"):
        # Without with_std there is no scale.
        scale = np.ones(step.n_features_in_) if step.scale_ is None else step.scale_
        return np.diag(1.0 / scale)
    msg = (
        "every step of a pipeline must be linear, with components_; "
        f"{type(step).__name__} is not known to be. Audit the linear step alone."
    )
    raise ValueError(msg)


def _of_estimator(estimator: LinearMap) -> NDArray[Any]:
    """Return the matrix of a fitted estimator; its ``transform`` must agree."""
    matrix = as_dense(estimator.components_)
    if getattr(estimator, "whiten", False) and hasattr(
        estimator, "explained_variance_"
    ):
        scale = np.sqrt(np.asarray(estimator.explained_variance_, dtype=np.float64))
        scale = np.maximum(scale, np.finfo(matrix.dtype).eps)
        matrix = matrix / scale[:, None]
    # A certificate is about the components, and is checked elsewhere.
    if not hasattr(estimator, "certificate_") and hasattr(estimator, "transform"):
        _check_transform(estimator, matrix)
    return matrix


def _check_transform(estimator: LinearMap, matrix: NDArray[Any]) -> None:
    """Raise ValueError unless ``transform`` is the matrix, up to a constant."""
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        return  # Refused elsewhere, with the reason.
    name = type(estimator).__name__
    draws = np.random.default_rng(0).standard_normal((_PROBES, matrix.shape[1]))
    size = max(float(np.linalg.norm(matrix)), np.finfo(np.float64).tiny)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            base = as_dense(estimator.transform(np.zeros_like(draws)))
            reach = max(1.0, float(np.abs(base).max()) / size)
            moved = as_dense(estimator.transform(reach * draws))
        error = np.abs(moved - base - reach * draws @ matrix.T).max()
    except (ValueError, TypeError, AttributeError) as failure:
        reason = str(failure).strip().splitlines()[0].rstrip(".") or name
        msg = (
            f"{name} must be a linear map; its transform of random points fails: "
            f"{reason}. Pass a matrix."
        )
        raise ValueError(msg) from None
    if not error <= _TOLERANCE * size * reach:
        msg = (
            f"{name} must be a linear map; its transform is not that of its "
            "components_. Pass the matrix that you project with."
        )
        raise ValueError(msg)


def _of_faiss(transform: LinearMap) -> NDArray[Any]:
    """Return the matrix of a trained faiss ``VectorTransform``."""
    faiss = importlib.import_module(type(transform).__module__.partition(".")[0])
    transform = faiss.downcast_VectorTransform(transform)
    name, width = type(transform).__name__, int(transform.d_in)
    if not transform.is_trained:
        msg = f"{name} must be trained; it is not. Call its train, or load another."
        raise ValueError(msg)
    if hasattr(transform, "A"):
        entries = faiss.vector_to_array(transform.A)
        return np.asarray(entries).reshape(int(transform.d_out), width)
    if name == "RemapDimensionsTransform":
        chosen = faiss.vector_to_array(transform.map)
        # A dimension that is numbered -1 is filled with zeros.
        return np.asarray(chosen[:, None] == np.arange(width), dtype=np.float64)
    if name == "CenteringTransform":
        return np.eye(width)
    msg = (
        f"{name} is not a linear transform with a matrix. Audit the linear transforms "
        "around it, each on what it is given."
    )
    raise ValueError(msg)


def _oriented(
    matrix: NDArray[Any], n_features: int, orientation: Orientation | None
) -> NDArray[Any]:
    """Return a matrix with one output a row, by its shape or as the caller says."""
    if matrix.ndim != 2:
        return matrix  # Refused elsewhere, with the reason.
    is_wide, is_tall = (size == n_features for size in matrix.shape[::-1])
    if orientation is not None:
        return matrix.T if orientation == "columns" else matrix
    if is_wide and is_tall and not np.array_equal(matrix, matrix.T):
        msg = (
            f"components of shape {matrix.shape} may be meant either way. Say "
            "orientation='rows' if a row is an output coordinate, else 'columns'."
        )
        raise ValueError(msg)
    return matrix.T if is_tall and not is_wide else matrix
