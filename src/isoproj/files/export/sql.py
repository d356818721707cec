"""Export a projection as an SQL function."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import ArrayLike

from isoproj.files.export.matrices import offset_of
from isoproj.numerics.rounding import at_least
from isoproj.proof.certificate import Certificate

# Most numbers in a vector of pgvector.
_WIDEST = 16_000


def to_pgvector(
    certificate: Certificate,
    name: str = "isoproj_project",
    mean: ArrayLike | None = None,
    *,
    half: bool = False,
) -> str:
    """Return a ``CREATE FUNCTION`` statement for vectors of pgvector, in float32.

    With ``half`` the function takes and returns ``halfvec``; it computes in float32.
    PostgreSQL 14 or newer parses the body when the function is created, so it also
    works where no search path is set: in dumps, indexes and materialised views.
    """
    function = _quoted(name)
    k, n_features = certificate.components.shape
    if n_features > _WIDEST:
        msg = (
            f"a model for pgvector must have at most {_WIDEST} features; got "
            f"{n_features}. Use --to postgres, or project before storing."
        )
        raise ValueError(msg)
    kind, wide = ("halfvec", "v::vector") if half else ("vector", "v")
    rows = certificate.components.astype(np.float32)
    shifts = offset_of(certificate, mean).tolist()
    terms = ",\n".join(
        f"    inner_product({wide}, '[{','.join(map(str, row))}]'::vector)"
        + ("" if mean is None else f" + ({shift!r})")
        for row, shift in zip(rows, shifts, strict=True)
    )
    example = (
        f"ALTER TABLE items ADD COLUMN reduced {kind}({k})\n"
        f"--     GENERATED ALWAYS AS ({function}(embedding)) STORED;\n"
        f"-- Search with a bound parameter, ORDER BY reduced <-> {function}($1); a\n"
        f"-- sub-select as the argument is projected again for every row."
    )
    return (
        f"{_comment(certificate, example)}"
        f"CREATE OR REPLACE FUNCTION {function}(v {kind}) RETURNS {kind}\n"
        f"LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE\n"
        f"RETURN ARRAY[\n{terms}\n]::{'vector::' if half else ''}{kind};\n"
    )


def to_postgres(
    certificate: Certificate,
    name: str = "isoproj_project",
    mean: ArrayLike | None = None,
) -> str:
    """Return a ``CREATE FUNCTION`` statement for arrays of PostgreSQL, in float64."""
    function = _quoted(name)
    n_features = certificate.n_features
    rows = certificate.components.astype(np.float64).tolist()
    listed = ",\n".join(f"      [{','.join(map(repr, row))}]" for row in rows)
    shifts = ",".join(map(repr, offset_of(certificate, mean).tolist()))
    example = f"SELECT {function}(embedding) FROM items;"
    return (
        f"{_comment(certificate, example)}"
        f"CREATE OR REPLACE FUNCTION {function}(v double precision[])\n"
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


def _comment(certificate: Certificate, example: str) -> str:
    """Return the comment above the statement."""
    # psql would run a line of a fingerprint that begins with a backslash.
    fingerprint = re.sub(r"[^0-9a-f]", "", certificate.fingerprint)[:12]
    return (
        f"-- isoproj: {certificate.n_features} to {certificate.n_components} dimensions"
        f", distortion {certificate.distortion:.6f},\n"
        f"-- at least {at_least(certificate.lower_bound, 6)} for any projection; data "
        f"{fingerprint}.\n"
        f"-- Example: {example}\n"
    )


def _quoted(name: str) -> str:
    """Return a function's name in quotes, or raise ValueError for an odd one.

    In quotes a reserved word such as ``select`` is a name like any other.
    """
    if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", name):
        msg = (
            "the function's name must be lower-case letters, digits and underscores; "
            f"got {name!r}. Choose one like isoproj_project."
        )
        raise ValueError(msg)
    return f'"{name}"'
