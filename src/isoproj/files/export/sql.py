"""SQL functions that project a vector where it is stored."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import ArrayLike

from isoproj.files.export.matrices import offset_of
from isoproj.proof.certificate import Certificate

__all__ = ["to_pgvector", "to_postgres"]

_IDENTIFIER = re.compile(r"[a-z_][a-z0-9_]{0,62}")
# pgvector stores at most so many numbers in a vector.
_WIDEST = 16_000


def to_pgvector(
    certificate: Certificate,
    name: str = "isoproj_project",
    mean: ArrayLike | None = None,
) -> str:
    """Return a function from pgvector's ``vector`` to a shorter one.

    Parameters
    ----------
    certificate : Certificate
        Whose components; they are written in float32, pgvector's own precision.
    name : str
        Name of the function.
    mean : ndarray of shape (n_features,) or None
        What the model subtracts first, where it does.

    Returns
    -------
    str
        One ``CREATE FUNCTION`` statement with comments.

    Raises
    ------
    ValueError
        If the name is no plain identifier, or the vectors are too wide.
    """
    _check_name(name)
    k, n_features = certificate.components.shape
    if n_features > _WIDEST:
        msg = (
            f"pgvector holds at most {_WIDEST} numbers a vector; the model has "
            f"{n_features}. Use --to postgres, or project before storing."
        )
        raise ValueError(msg)
    rows = certificate.components.astype(np.float32)
    shifts = _shifts(certificate, mean)
    terms = ",\n".join(
        f"    inner_product(v, '[{','.join(map(str, row))}]'::vector)"
        + ("" if mean is None else f" + ({shift!r})")
        for row, shift in zip(rows, shifts, strict=True)
    )
    example = (
        f"ALTER TABLE items ADD COLUMN reduced vector({k})\n"
        f"--     GENERATED ALWAYS AS ({name}(embedding)) STORED;"
    )
    return (
        f"{_comment(certificate, example)}"
        f"CREATE OR REPLACE FUNCTION {name}(v vector) RETURNS vector\n"
        f"LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $isoproj$\n"
        f"  SELECT ARRAY[\n{terms}\n  ]::vector\n"
        f"$isoproj$;\n"
    )


def to_postgres(
    certificate: Certificate,
    name: str = "isoproj_project",
    mean: ArrayLike | None = None,
) -> str:
    """Return the same function for plain arrays, without any extension.

    Parameters
    ----------
    certificate : Certificate
        Whose components; every digit is written.
    name : str
        Name of the function.
    mean : ndarray of shape (n_features,) or None
        What the model subtracts first, where it does.

    Returns
    -------
    str
        One ``CREATE FUNCTION`` statement with comments. An array of another length
        is an error, as it is in Python.

    Raises
    ------
    ValueError
        If the name is no plain identifier.
    """
    _check_name(name)
    n_features = certificate.n_features
    rows = certificate.components.astype(np.float64).tolist()
    listed = ",\n".join(f"      [{','.join(map(repr, row))}]" for row in rows)
    shifts = ",".join(map(repr, _shifts(certificate, mean)))
    example = f"SELECT {name}(embedding) FROM items;"
    return (
        f"{_comment(certificate, example)}"
        f"CREATE OR REPLACE FUNCTION {name}(v double precision[])\n"
        f"RETURNS double precision[]\n"
        f"LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $isoproj$\n"
        f"DECLARE\n"
        f"  matrix CONSTANT double precision[] := ARRAY[\n{listed}\n  ];\n"
        f"  shifts CONSTANT double precision[] := ARRAY[{shifts}];\n"
        f"  total double precision;\n"
        f"  reduced double precision[] := ARRAY[]::double precision[];\n"
        f"BEGIN\n"
        f"  IF cardinality(v) <> {n_features} THEN\n"
        f"    RAISE EXCEPTION 'expected {n_features} numbers, got %', cardinality(v);\n"
        f"  END IF;\n"
        f"  FOR i IN 1..array_length(matrix, 1) LOOP\n"
        f"    total := shifts[i];\n"
        f"    FOR j IN 1..{n_features} LOOP\n"
        f"      total := total + matrix[i][j] * v[j];\n"
        f"    END LOOP;\n"
        f"    reduced := reduced || total;\n"
        f"  END LOOP;\n"
        f"  RETURN reduced;\n"
        f"END\n"
        f"$isoproj$;\n"
    )


def _shifts(certificate: Certificate, mean: ArrayLike | None) -> list[float]:
    """Return what every coordinate is shifted by."""
    if mean is None:
        return [0.0] * certificate.n_components
    shifts: list[float] = offset_of(certificate, mean).tolist()
    return shifts


def _comment(certificate: Certificate, example: str) -> str:
    return (
        f"-- isoproj: {certificate.n_features} to {certificate.n_components} dimensions"
        f", distortion {certificate.distortion:.6f},\n"
        f"-- at least {certificate.lower_bound:.6f} for any projection; data "
        f"{certificate.fingerprint[:12]}.\n"
        f"-- Example: {example}\n"
    )


def _check_name(name: str) -> None:
    if not _IDENTIFIER.fullmatch(name):
        msg = (
            "the function's name must be lower-case letters, digits and underscores; "
            f"got {name!r}. Choose one like isoproj_project."
        )
        raise ValueError(msg)
