"""What verbs print with ``--json``: the fields that ``schemas.json`` beside lists.

In that file a text in the place of a schema names another definition or a type of JSON.
Objects are closed, and all their properties are required unless the file says which.
"""

from __future__ import annotations

import functools
import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from isoproj.numerics.arrays import is_sparse

if TYPE_CHECKING:
    from isoproj.files.read.reading import DataFile
    from isoproj.proof.certificate import Certificate
    from isoproj.proof.heldout import Heldout

Json = dict[str, Any]
_TYPES = ("string", "integer", "number", "boolean", "null")


@functools.cache
def definitions() -> Json:
    """Return the content of ``schemas.json``; verbs are among the definitions."""
    text = files("isoproj.cli").joinpath("schemas.json").read_text(encoding="utf-8")
    found: Json = json.loads(text)
    return found


def schema_of(verb: str) -> Json:
    """Return the JSON schema (draft 2020-12) of what a verb prints with ``--json``."""
    common = {
        "verb": {"const": verb},
        "isoproj": {"type": "string", "description": "version of the program"},
        "warnings": {
            "type": "array",
            "items": "string",
            "description": "what a person would have been told",
        },
    }
    found = [
        _whole({"properties": common | schema["properties"]})
        for name, schema in definitions().items()
        if name.partition(" ")[0] == verb
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"isoproj {verb} --json",
        **(found[0] if len(found) == 1 else {"oneOf": found}),
    }


def _whole(schema: Json | str) -> Json:
    """Return a schema that stands alone, every name replaced by what it stands for."""
    if isinstance(schema, str):
        return {"type": schema} if schema in _TYPES else _whole(definitions()[schema])
    whole = _whole(schema["$ref"]) if "$ref" in schema else {}
    if "properties" in schema:
        whole["type"] = "object"
        names = list(schema["properties"])
        closed = {"required": names, "additionalProperties": False}
        whole |= {} if "required" in schema else closed
    for word, value in schema.items():
        if word == "properties":
            whole[word] = {name: _whole(part) for name, part in value.items()}
        elif word == "anyOf":
            whole[word] = [_whole(part) for part in value]
        elif word in ("items", "additionalProperties"):
            whole[word] = _whole(value)
        elif word != "$ref":
            whole[word] = value
    return whole


def told(name: str, source: object = None, /, **given: Any) -> Json:  # noqa: ANN401
    """Return an object of the schemas: what is given, else attributes of ``source``.

    Raises ``TypeError`` if something is given that the schema does not have.
    """
    names = definitions()[name]["properties"]
    if unknown := given.keys() - names:
        msg = f"{name!r} must have its fields in schemas.json; {unknown} are not there."
        raise TypeError(msg)
    return {n: given[n] if n in given else getattr(source, n) for n in names}


def told_data(data: DataFile) -> Json:
    """Return what is told of a data file."""
    return told(
        "Data",
        data,
        chosen=data.chosen or None,
        n_points=data.points.shape[0],
        n_features=data.points.shape[1],
        dtype=str(data.points.dtype),
        sparse=is_sparse(data.points),
    )


def told_or_null(name: str, source: object, /, **given: Any) -> Json | None:  # noqa: ANN401
    """Return what is told of an object, None without one."""
    return None if source is None else told(name, source, **given)


def told_prefixes(certificate: Certificate) -> list[Json]:
    """Return what is told of all prefixes; nothing if none was asked for."""
    return [
        told("Prefix", prefix, guarantee=told_or_null("Kept", prefix.guarantee))
        for prefix in certificate.prefixes
    ]


def told_heldout(heldout: Heldout | None) -> Json | None:
    """Return what is told of points held out, None without any."""
    if heldout is None:
        return None
    try:
        promise = told("NewPointsPromise", heldout.guarantee())
    except ValueError:  # too few points were held out
        promise = None
    return told(
        "HeldoutLosses",
        heldout,
        within=told_or_null("PairLosses", heldout.within),
        to_training=told_or_null("PairLosses", heldout.to_training),
        guarantee=promise,
    )
