from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import pytest

from isoproj.cli import schemas
from isoproj.cli.arguments import build_parser
from isoproj.cli.payloads import VERBS
from isoproj.cli.schemas import schema_of
from isoproj.solvers.api import Status


def test_every_verb_has_a_payload():
    actions = build_parser()._actions
    verbs = next(a for a in actions if isinstance(a, argparse._SubParsersAction))
    assert set(verbs.choices) == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_a_schema_requires_the_fields_of_its_payload_and_no_others(verb):
    schema = schema_of(verb)
    for payload, told in zip(VERBS[verb], schema.get("oneOf", [schema]), strict=True):
        names = {field.name for field in fields(payload)}
        expected = names | {"verb", "isoproj", "warnings"}
        assert set(told["properties"]) == set(told["required"]) == expected
        assert told["properties"]["verb"] == {"const": verb}
        assert told["additionalProperties"] is False


def test_every_status_of_a_solver_may_be_told():
    status = schema_of("fit")["properties"]["status"]
    assert status == {"enum": [member.value for member in Status]}


@dataclass
class Inner:
    size: Annotated[int, {"minimum": 0}]


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str | None, {"type": ["string", "null"]}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (Annotated[float, "a share"], {"type": "number", "description": "a share"}),
        (Sequence[bool], {"type": "array", "items": {"type": "boolean"}}),
        (
            tuple[int, int],
            {
                "type": "array",
                "items": {"type": "integer"},
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (
            Mapping[str, float],
            {"type": "object", "additionalProperties": {"type": "number"}},
        ),
        (dict[str, Any] | None, {"type": ["object", "null"]}),
    ],
)
def test_a_type_says_what_a_value_is(hint, schema):
    assert schemas._schema(hint) == schema


def test_an_object_that_may_be_missing_is_an_object_or_null():
    inner, null = schemas._schema(Inner | None)["anyOf"]
    assert null == {"type": "null"}
    assert inner["properties"] == {"size": {"type": "integer", "minimum": 0}}


def test_records_of_a_comparison_may_hold_more_than_is_listed():
    record = schema_of("compare")["properties"]["records"]["items"]
    assert record["required"] == ["method", "k", "seed"]
    assert "additionalProperties" not in record
