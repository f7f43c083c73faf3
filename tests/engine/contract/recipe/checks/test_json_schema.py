"""JSON Schema: each keyword with a value that fits and one that does not, and schemas that are refused."""

import json

import pytest

from burnish_engine.contract.recipe.checks.json_schema import parse_json, parse_schema, same_json, schema_problem
from burnish_engine.contract.recipe.checks.patterns import SlowPatternError


def fits(value, schema):
    return schema_problem(value, parse_schema(json.dumps(schema))) == ""


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "object"}, {}, []),
        ({"type": "array"}, [], {}),
        ({"type": "string"}, "", 1),
        ({"type": "number"}, 1.5, "1.5"),
        ({"type": "number"}, 1, True),
        ({"type": "integer"}, 1.0, 1.5),
        ({"type": "integer", "maximum": 9}, 9, 10**400),
        ({"type": "boolean"}, False, 0),
        ({"type": "null"}, None, False),
        ({"type": ["string", "null"]}, None, 0),
        ({"enum": ["a", 1]}, 1.0, True),
        ({"const": {"a": [1]}}, {"a": [1.0]}, {"a": [2]}),
        ({"required": ["a"]}, {"a": None}, {"b": 1}),
        ({"required": ["a"]}, "no object", {}),
        ({"properties": {"a": {"type": "string"}}}, {"a": "x", "b": 1}, {"a": 1}),
        ({"properties": {"a": True}, "additionalProperties": False}, {"a": 1}, {"a": 1, "b": 2}),
        ({"additionalProperties": {"type": "number"}}, {"a": 1}, {"a": "1"}),
        ({"properties": {"a": False}}, {"b": 1}, {"a": 1}),
        ({"minProperties": 1, "maxProperties": 1}, {"a": 1}, {}),
        ({"items": {"type": "number"}}, [1, 2], [1, "2"]),
        ({"minItems": 1, "maxItems": 2}, [1], []),
        ({"minItems": 1, "maxItems": 2}, [1, 1], [1, 1, 1]),
        ({"uniqueItems": True}, [1, True, "1"], [1, 1.0]),
        ({"minLength": 2, "maxLength": 3}, "\u00e4\u00f6", "a"),
        ({"pattern": "^[A-Z]+$"}, "AB", "Ab"),
        ({"minimum": 0, "maximum": 1}, 1, 1.1),
        ({"exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5, 0),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, 1),
        ({"oneOf": [{"type": "number"}, {"minimum": 5}]}, 4, 6),
        ({"allOf": [{"type": "number"}, {"minimum": 5}]}, 6, 4),
        ({"not": {"type": "string"}}, 1, "a"),
        ({"$defs": {"n": {"type": "number"}}, "items": {"$ref": "#/$defs/n"}}, [1], ["a"]),
        ({"properties": {"next": {"$ref": "#"}}, "required": ["v"]}, {"v": 1, "next": {"v": 2}}, {"v": 1, "next": {}}),
        ({"$defs": {"a/b~c": {"type": "null"}}, "$ref": "#/$defs/a~1b~0c"}, None, 1),
        ({"title": "t", "description": "d", "format": "email", "type": "string"}, "no address", 1),
    ],
)  # fmt: skip
def test_each_keyword_tells_a_value_that_fits_from_one_that_does_not(schema, good, bad):
    assert fits(good, schema)
    assert not fits(bad, schema)


def test_the_problem_names_its_place():
    schema = {"properties": {"list": {"items": {"required": ["id"]}}}}
    assert "list[1]" in schema_problem({"list": [{"id": 1}, {}]}, parse_schema(json.dumps(schema)))


@pytest.mark.parametrize(
    "schema",
    [
        "not json",
        "[]",
        '{"unevaluatedProperties": false}',
        '{"properties": {"a": {"if": {}}}}',
        '{"type": "text"}',
        '{"type": []}',
        '{"required": "a"}',
        '{"minimum": "1"}',
        '{"minItems": 1.5}',
        '{"minItems": true}',
        '{"enum": 1}',
        '{"anyOf": []}',
        '{"items": [{}]}',
        '{"pattern": "("}',
        '{"uniqueItems": 1}',
        '{"$ref": "other.json"}',
        '{"$ref": "#/$defs/none"}',
        '{"$ref": "#/title", "title": "t"}',
        '{"$ref": "#/default", "default": {"type": "nonsense"}}',
        '{"properties": {"a": {"$ref": "#/const"}}, "const": {"pattern": "("}}',
        '{"$ref": "#/$defs", "$defs": {"type": {}}}',
        '{"not": ' * 100 + "{}" + "}" * 100,
    ],
)
def test_a_schema_that_would_not_be_checked_whole_is_refused(schema):
    with pytest.raises(ValueError, match=r".+"):
        parse_schema(schema)


def test_references_in_a_circle_end():
    assert not fits(1, {"$ref": "#"})
    twice = parse_schema('{"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}')
    with pytest.raises(SlowPatternError):
        schema_problem(1, twice)


def test_a_long_list_is_searched_for_equal_items_at_once():
    schema = parse_schema('{"uniqueItems": true}')
    for last, found in ((-1, ""), (1.0, "twice")):
        looked = []
        numbers = [_Counted(number, looked) for number in range(2000)]
        assert found in schema_problem([*numbers, last], schema)
        assert len(looked) < 20_000
    assert fits([1, True, [1], [True], {"a": 1}], {"uniqueItems": True})
    assert not fits([{"a": [1], "b": 2}, {"b": 2, "a": [1.0]}], {"uniqueItems": True})


class _Counted(int):
    """A number that counts how often it is compared."""

    def __new__(cls, value, looked):
        made = super().__new__(cls, value)
        made.looked = looked
        return made

    def __eq__(self, other):
        self.looked.append(1)
        return int(self) == other

    __hash__ = int.__hash__


def test_json_is_what_the_standard_says():
    assert parse_json('{"a": [1, null]}') == {"a": [1, None]}
    for text in ("NaN", "[Infinity]", "{} {}", "[" * 100_000, "1" * 10_000):
        with pytest.raises(ValueError, match=r".+"):
            parse_json(text)


def test_equal_json_values_may_be_written_differently():
    assert same_json({"a": 1, "b": [2.0]}, {"b": [2], "a": 1.0})
    assert not same_json([1], [True])
    assert not same_json({"a": None}, {})


def test_how_deep_json_may_be_nested_does_not_depend_on_who_asks():
    """Python's own limit counts the frames of the callers; a value at the limit can still be compared."""

    def called(depth, text):
        return called(depth - 1, text) if depth else parse_json(text)

    deep, deeper = (f"{'[' * levels}1{']' * levels}" for levels in (128, 129))
    for depth in (0, 500):
        assert same_json(called(depth, deep), called(depth, deep))
        with pytest.raises(ValueError, match="nested"):
            called(depth, deeper)
