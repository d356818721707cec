"""JSON schemas (draft 2020-12) of what verbs print, derived from their payloads."""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from isoproj.cli.payloads import VERBS

Schema = dict[str, Any]

_NAMES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    types.NoneType: "null",
}


def schema_of(verb: str) -> Schema:
    """Return the JSON schema of what a verb prints with ``--json``.

    Every object of a payload is closed, and every property is required.
    """
    common: dict[str, Any] = {
        "verb": Literal[verb],
        "isoproj": Annotated[str, "version of the program"],
        "warnings": Annotated[Sequence[str], "what a person would have been told"],
    }
    found = [_object({**common, **_hints(payload)}) for payload in VERBS[verb]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"isoproj {verb} --json",
        **(found[0] if len(found) == 1 else {"oneOf": found}),
    }


def _hints(payload: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass
    """Return the types of the fields of a dataclass."""
    hints = get_type_hints(payload, include_extras=True)
    return {field.name: hints[field.name] for field in fields(payload)}


def _object(hints: Mapping[str, Any]) -> Schema:
    return {
        "type": "object",
        "properties": {name: _schema(hint) for name, hint in hints.items()},
        "required": list(hints),
        "additionalProperties": False,
    }


def _schema(hint: Any) -> Schema:  # noqa: ANN401 - a type
    """Return the schema of a type."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(inner[0], inner[1:])
    if origin is Literal:
        return {"enum": list(inner)} if len(inner) > 1 else {"const": inner[0]}
    if origin in (Union, types.UnionType):
        return _either([_schema(part) for part in inner])
    if origin is tuple and inner[-1] is not ...:
        n = len(inner)
        return {**_list(inner[0]), "minItems": n, "maxItems": n}
    if origin in (Sequence, tuple):
        return _list(inner[0])
    if origin in (Mapping, dict):
        is_any = inner[1] is Any
        values = {} if is_any else {"additionalProperties": _schema(inner[1])}
        return {"type": "object", **values}
    return _plain(hint)


def _plain(hint: Any) -> Schema:  # noqa: ANN401 - a type
    """Return the schema of a type that takes no other types as arguments."""
    if is_dataclass(hint):
        return _object(_hints(hint))
    if is_typeddict(hint):
        hints = get_type_hints(hint, include_extras=True)
        schema = _object(hints)
        # A dict may hold more than is listed.
        del schema["additionalProperties"]
        return {**schema, "required": [n for n in hints if n in hint.__required_keys__]}
    if issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    return {"type": _NAMES[hint]}


def _annotated(hint: Any, notes: Sequence[str | Schema]) -> Schema:  # noqa: ANN401
    """Return the schema of a type with its description and further limits."""
    schema = _schema(hint)
    for note in notes:
        schema |= {"description": note} if isinstance(note, str) else note
    return schema


def _either(parts: list[Schema]) -> Schema:
    """Return the schema of a value that is one of several things."""
    if all(set(part) == {"type"} for part in parts):
        return {"type": [part["type"] for part in parts]}
    return {"anyOf": parts}


def _list(items: Any) -> Schema:  # noqa: ANN401 - a type
    return {"type": "array", "items": _schema(items)}
