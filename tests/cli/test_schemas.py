from __future__ import annotations

import pytest

from isoproj.cli.arguments import VERBS
from isoproj.cli.payloads import definitions, schema_of, told
from isoproj.pairs.rule import PairKind
from isoproj.proof.objective import Objective
from isoproj.solvers.api import Status


def objects_of(schema):
    """Return every object inside a schema."""
    found = [schema] if schema.get("type") == "object" else []
    for part in [*schema.get("oneOf", []), *schema.get("anyOf", [])]:
        found += objects_of(part)
    for part in schema.get("properties", {}).values():
        found += objects_of(part)
    return found + (objects_of(schema["items"]) if "items" in schema else [])


@pytest.mark.parametrize("verb", VERBS)
def test_a_schema_names_its_verb_and_is_made_of_closed_objects(verb):
    schema = schema_of(verb)
    for whole in schema.get("oneOf", [schema]):
        assert whole["properties"]["verb"] == {"const": verb}
        assert {"isoproj", "warnings"} < set(whole["required"])
    closed = [o for o in objects_of(schema) if "properties" in o]
    # A record of a comparison may hold more than is listed.
    open_ones = [o for o in closed if o.get("additionalProperties") is not False]
    assert len(open_ones) == (verb == "compare")
    for found in closed:
        if found not in open_ones:
            assert found["required"] == list(found["properties"])


def test_every_definition_is_of_use():
    verbs = {name for name in definitions() if name.partition(" ")[0] in VERBS}
    texts = " ".join(str(schema) for schema in definitions().values())
    assert {n for n in definitions() if f"'{n}'" not in texts} <= verbs


@pytest.mark.parametrize("kinds", [Status, PairKind, Objective])
def test_every_member_of_an_enumeration_may_be_told(kinds):
    assert definitions()[kinds.__name__]["enum"] == [member.value for member in kinds]


def test_a_field_that_no_schema_has_cannot_be_told():
    class Part:
        name, shape = "a", (2,)

    assert told("Part", Part, dtype="int8")["shape"] == (2,)
    with pytest.raises(TypeError, match="colour"):
        told("Part", Part, dtype="int8", colour="red")


def test_an_object_that_may_be_missing_is_an_object_or_null():
    fitted, _ = schema_of("fit")["oneOf"]
    kept, null = fitted["properties"]["guarantee"]["anyOf"]
    assert null == {"type": "null"}
    assert set(kept["properties"]) == {"objective", "cap", "kept", "kept_bound"}
