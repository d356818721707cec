"""What every verb prints with ``--json``, as JSON schemas (draft 2020-12)."""

from __future__ import annotations

from typing import Any

__all__ = ["schema_of"]

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_NUMBER: Schema = {"type": "number"}
_NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
_TRUTH: Schema = {"type": "boolean"}


def _share(text: str) -> Schema:
    return {"type": "number", "description": text}


def _object(properties: dict[str, Schema], text: str = "") -> Schema:
    schema: Schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {**schema, "description": text} if text else schema


def _list(items: Schema, text: str = "") -> Schema:
    schema: Schema = {"type": "array", "items": items}
    return {**schema, "description": text} if text else schema


def _map(values: Schema, text: str = "") -> Schema:
    schema: Schema = {"type": "object", "additionalProperties": values}
    return {**schema, "description": text} if text else schema


_PAIRS = _list(
    {"type": "array", "items": _COUNT, "minItems": 2, "maxItems": 2},
    "row numbers counted from 0, worst pair first",
)
_LOSSES = _list(_NUMBER, "share of squared length that these pairs lose")
_DATA = _object(
    {
        "name": _TEXT,
        "format": _TEXT,
        "chosen": _TEXT_OR_NULL,
        "n_points": _COUNT,
        "n_features": _COUNT,
        "dtype": _TEXT,
        "sparse": _TRUTH,
    },
    "the points that were read; 'chosen' is the array or column used",
)
_DISTORTION = _share("largest share of squared length that any pair loses; exact")
_LOWER = _share("no projection to as many dimensions has a smaller distortion")
_GUARANTEE: Schema = {
    "anyOf": [
        _object(
            {
                "objective": {"enum": ["variance", "distortion"]},
                "cap": _share("no pair that counts loses more"),
                "kept": _share("of the objective"),
                "kept_bound": _share("no projection under the cap keeps more"),
            }
        ),
        {"type": "null"},
    ],
    "description": "what is kept on the whole under a cap; null without one",
}
_QUANTILES = _map(_NUMBER, "share lost that this fraction of pairs stays within")

_HELDOUT_PART: Schema = {
    "anyOf": [
        _object(
            {
                "n_pairs": _COUNT,
                "distortion": _DISTORTION,
                "mean": _NUMBER,
                "quantiles": _QUANTILES,
            }
        ),
        {"type": "null"},
    ],
    "description": "null where no pair counts",
}

_VERBS: dict[str, dict[str, Schema]] = {
    "fit": {
        "data": _DATA,
        "model": {**_TEXT_OR_NULL, "description": "where it was saved"},
        "n_components": _COUNT,
        "method": {"enum": ["near-isometric", "guaranteed-pca"]},
        "solver": _TEXT,
        "status": {
            "enum": [
                "completed",
                "optimal",
                "converged",
                "max_iter",
                "time_limit",
                "interrupted",
            ]
        },
        "n_iter": _COUNT,
        "seconds": _NUMBER,
        "distortion": _DISTORTION,
        "lower_bound": _LOWER,
        "optimality_gap": {
            **_NUMBER_OR_NULL,
            "description": "distortion / lower_bound - 1; null when infinite",
        },
        "isometry": _share("two-sided: squared lengths within 1 +- this if balanced"),
        "scale": {**_NUMBER, "description": "factor of projected points"},
        "n_pairs": _COUNT,
        "n_identical": _COUNT,
        "n_close": {**_COUNT, "description": "pairs closer than --min-distance"},
        "worst_pairs": _PAIRS,
        "worst_distortions": _LOSSES,
        "fingerprint": _TEXT,
        "n_components_lower_bound": {
            "type": ["integer", "null"],
            "description": "fewer dimensions cannot be under the cap; null if -k was "
            "given",
        },
        "guarantee": _GUARANTEE,
        "heldout": {
            "anyOf": [
                _object(
                    {
                        "rows": _list(_COUNT, "row numbers that were held out"),
                        "within": _HELDOUT_PART,
                        "to_training": _HELDOUT_PART,
                    }
                ),
                {"type": "null"},
            ],
            "description": "what pairs of points lose that were not fitted, among "
            "themselves and with fitted ones; null without --heldout",
        },
    },
    "transform": {
        "model": _TEXT,
        "data": _DATA,
        "output": _object(
            {
                "name": _TEXT,
                "format": _TEXT,
                "n_points": _COUNT,
                "n_components": _COUNT,
                "dtype": _TEXT,
            }
        ),
    },
    "audit": {
        "model": _TEXT,
        "data": _DATA,
        "distortion": _DISTORTION,
        "stretch": _share("largest share that a pair gains; 0 if none does"),
        "mean": _NUMBER,
        "quantiles": _QUANTILES,
        "worst_pairs": _PAIRS,
        "worst_distortions": _LOSSES,
        "n_pairs": _COUNT,
        "n_identical": _COUNT,
        "n_close": {**_COUNT, "description": "pairs closer than --min-distance"},
        "histogram": _object(
            {"counts": _list(_COUNT), "edges": _list(_NUMBER)},
            "of the share lost; one edge more than counts",
        ),
        "max_distortion": {**_NUMBER_OR_NULL, "description": "what was allowed"},
        "holds": {**_TRUTH, "description": "false when more than allowed is lost"},
    },
    "verify": {
        "model": _TEXT,
        "data": _DATA,
        "verified": {**_TRUTH, "description": "whether every claim holds"},
        "claims": _list(
            _object({"name": _TEXT, "stated": _TEXT, "found": _TEXT, "holds": _TRUTH}),
            "after a claim that makes the others meaningless fails, they are left out",
        ),
    },
    "export": {
        "model": _TEXT,
        "to": _TEXT,
        "output": _TEXT,
        "n_bytes": _COUNT,
        "n_features": _COUNT,
        "n_components": _COUNT,
        "use": {**_TEXT, "description": "how the other system loads it"},
    },
    "compare": {
        "data": _DATA,
        "records": _list(
            {
                "type": "object",
                "required": ["method", "k", "seed"],
                "properties": {
                    "method": _TEXT,
                    "k": _COUNT,
                    "seed": {"type": "integer"},
                    "error": _TEXT,
                    "distortion": _DISTORTION,
                    "contracted": _share("the same, scaled to stretch nothing"),
                    "seconds": _NUMBER,
                },
            },
            "one per method, k and seed; a failed one has 'error' and no numbers",
        ),
    },
    "curve": {
        "data": _DATA,
        "curve": _list(
            _object({"k": _COUNT, "distortion": _DISTORTION, "lower_bound": _LOWER})
        ),
        "knees": _list(_COUNT, "after these, more dimensions buy markedly less"),
        "targets": _list(
            _object(
                {
                    "target": _share("what no pair should lose more than"),
                    "sufficient": {
                        "type": ["integer", "null"],
                        "description": "smallest k of the curve under it",
                    },
                    "impossible": _COUNT,
                }
            )
        ),
    },
    "frontier": {
        "data": _DATA,
        "objective": {"enum": ["variance", "distortion"]},
        "lower_bound": _LOWER,
        "frontier": _list(
            _object(
                {
                    "max_distortion": _share("what no pair may lose more than"),
                    "distortion": _DISTORTION,
                    "kept": _share("of the objective"),
                    "kept_bound": _share("no projection under the cap keeps more"),
                }
            ),
            "from the least distortion to PCA",
        ),
    },
    "report": {
        "model": _TEXT,
        "data": _DATA,
        "output": _object(
            {
                "name": _TEXT,
                "format": {"enum": ["html", "markdown", "json"]},
                "n_bytes": _COUNT,
            }
        ),
        "seconds": _NUMBER,
        "sentence": _TEXT,
        "distortion": _DISTORTION,
        "lower_bound": _LOWER,
        "recomputed": {
            **_TRUTH,
            "description": "whether all pairs were walked over; else a sample was",
        },
    },
    "reproduce": {
        "folder": {**_TEXT_OR_NULL, "description": "records and figures; null: listed"},
        "page": _TEXT_OR_NULL,
        "figures": _list(_TEXT, "files, SVG and PNG"),
        "experiments": _list(
            _object(
                {"name": _TEXT, "title": _TEXT, "cells": _COUNT, "finished": _COUNT}
            )
        ),
        "verdicts": _list(
            _object(
                {
                    "claim": _TEXT,
                    "statement": _TEXT,
                    "tolerance": _TEXT,
                    "measured": _TEXT,
                    "outcome": {
                        "enum": ["reproduced", "not reproduced", "beyond the paper"]
                    },
                    "n_cells": _COUNT,
                }
            )
        ),
    },
    "demo": {
        "data": _DATA,
        "n_components": _COUNT,
        "seconds": _NUMBER,
        "lower_bound": _LOWER,
        "methods": _map(
            _object(
                {"distortion": _DISTORTION, "mean": _NUMBER, "quantiles": _QUANTILES}
            )
        ),
    },
}
_INFO: list[dict[str, Schema]] = [
    {
        "kind": {"const": "data"},
        "name": _TEXT,
        "format": _TEXT_OR_NULL,
        "data": {"anyOf": [_DATA, {"type": "null"}]},
        "fault": {**_TEXT_OR_NULL, "description": "why it cannot be used as it is"},
        "contents": _list(
            _object({"name": _TEXT, "shape": _list(_COUNT), "dtype": _TEXT})
        ),
    },
    {
        "kind": {"const": "model"},
        "name": _TEXT,
        "model": _object(
            {
                "estimator": _TEXT_OR_NULL,
                "format_version": _COUNT,
                "parameters": {"type": "object"},
                "fitted": {"type": ["object", "null"]},
                "n_features": _COUNT,
                "n_components": _COUNT,
                "dtype": _TEXT,
                "distortion": _NUMBER,
                "lower_bound": _NUMBER,
                "n_pairs": _COUNT,
                "pairs": {
                    "enum": [
                        "all",
                        "listed",
                        "directions",
                        "sample",
                        "labels",
                        "within-labels",
                    ]
                },
                "include_norms": _TRUTH,
                "min_distance": _NUMBER,
                "n_close": _COUNT,
                "n_points": _COUNT,
                "fingerprint": _TEXT,
                "guarantee": _GUARANTEE,
                "versions": {"type": ["object", "null"]},
            },
            "as the file states; only verify recomputes",
        ),
    },
]


def schema_of(verb: str) -> Schema:
    """Return the JSON schema of what a verb prints with ``--json``.

    Parameters
    ----------
    verb : str
        Name of the verb.

    Returns
    -------
    dict
        Draft 2020-12; every object is closed, every property required.

    Examples
    --------
    >>> from isoproj.cli.schemas import schema_of
    >>> sorted(schema_of("export")["properties"])[:3]
    ['isoproj', 'model', 'n_bytes']
    """
    common: dict[str, Schema] = {
        "verb": {"const": verb},
        "isoproj": {**_TEXT, "description": "version of the program"},
        "warnings": _list(_TEXT, "what a person would have been told"),
    }
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"isoproj {verb} --json",
    }
    if verb == "info":
        return {**head, "oneOf": [_object({**common, **kind}) for kind in _INFO]}
    return {**head, **_object({**common, **_VERBS[verb]})}
