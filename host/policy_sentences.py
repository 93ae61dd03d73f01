# SPDX-License-Identifier: GPL-2.0-or-later
"""Validate policy data against the schema; each error as a sentence for a person."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from typing import Any, cast

from jsonschema import Draft7Validator, ValidationError, validators

from ovirt_rdma.host.policy_remark import KeyPath, Remark, key_text
from ovirt_rdma.host.policy_schema import POLICY_SCHEMA, Schema
from ovirt_rdma.host.policy_yaml import YamlDocument

_NOUNS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "object": "a mapping of keys",
    "array": "a list",
}


def _is_integer(_checker: object, value: object) -> bool:
    # JSON Schema calls 20049.0 an integer; an admin who wrote it erred.
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_checker: object, value: object) -> bool:
    # YAML's .nan and .inf pass every range.
    return _is_integer(None, value) or (
        isinstance(value, float) and math.isfinite(value)
    )


_Validator = validators.extend(  # type: ignore[no-untyped-call]
    Draft7Validator,
    type_checker=Draft7Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_integer, "number": _is_number}
    ),
)


def schema_remarks(document: YamlDocument) -> Iterator[Remark]:
    """Yield a Remark for everything in ``document`` that the schema refuses."""
    errors = [
        (tuple(error.absolute_path), error)
        for error in _Validator(POLICY_SCHEMA).iter_errors(document.data)
    ]
    # A value of the wrong type is none of the allowed ones either; once is enough.
    mistyped = {path for path, error in errors if error.validator == "type"}
    for path, error in errors:
        if path in mistyped and error.validator != "type":
            continue
        for place, sentence in _sentences(error, path, document):
            yield Remark(document.line(place), key_text(place), sentence)


def _sentences(
    error: ValidationError, path: KeyPath, document: YamlDocument
) -> Iterator[tuple[KeyPath, str]]:
    schema = cast(Schema, error.schema)
    instance: Any = error.instance
    rule = error.validator
    text = document.texts.get(path, "")
    if rule == "additionalProperties":
        known = list(schema["properties"])
        for key in instance:
            if key not in known:
                # The schema's own sentence, or what any unknown key gets.
                why = schema.get("not_offered", {}).get(key)
                unknown = _unknown(f"unknown key{_allowed(schema)}", key, known)
                yield (*path, key), why or unknown
    elif rule == "required":
        for key in schema["required"]:
            if key not in instance:
                allowed = _allowed(schema["properties"][key])
                yield (*path, key), f"is missing{allowed}"
    elif rule == "type":
        yield path, _wrong_type(schema, instance, text)
    elif rule == "enum":
        sentence = f"{instance!r} is not known{_allowed(schema)}"
        yield path, _unknown(sentence, text, schema["enum"])
    elif rule == "pattern":
        yield path, _not_matching(schema, instance)
    elif rule == "minLength":
        yield path, f"is empty{_allowed(schema)}"
    elif rule in {"minimum", "maximum"}:
        yield path, f"{text} is out of range{_allowed(schema)}"
    else:
        raise AssertionError(f"no sentence for the schema keyword {rule}")


def _not_matching(schema: Schema, text: str) -> str:
    # Where a number or one word is allowed, a number in quotes is neither.
    if "integer" in schema["type"] and text.isdecimal():
        return _wrong_type(schema, text, text)
    return f"{text!r} is not known{_allowed(schema)}"


def _unknown(sentence: str, word: str, known: list[Any]) -> str:
    near = difflib.get_close_matches(word, [str(value) for value in known], n=1)
    return f"{sentence}; did you mean {near[0]}?" if near else sentence


def _wrong_type(schema: Schema, value: object, text: str) -> str:
    wanted = schema["type"]
    noun = _NOUNS[wanted if isinstance(wanted, str) else wanted[0]]
    sentence = f"must be {noun}, not {_described(value, text)}"
    if wanted == "string" and text and not schema.get("as_written"):
        sentence += "; write it in quotes"
    return sentence + _allowed(schema)


def _described(value: object, text: str) -> str:
    for kind, shown in (
        (type(None), "nothing"),
        (bool, f"the truth value {text}"),
        (int, f"the number {text}"),
        (float, f"the number {text}" if _is_number(None, value) else text),
        (str, f"the text {text!r}"),
        (list, _NOUNS["array"]),
        (dict, _NOUNS["object"]),
    ):
        if isinstance(value, kind):
            return shown
    return f"the date {text}"


def _allowed(schema: Schema) -> str:
    if "enum" in schema:
        return "; allowed: " + ", ".join(str(value) for value in schema["enum"])
    if "description" in schema:
        return f"; allowed: {schema['description']}"
    if "minimum" in schema:
        return f"; allowed: {schema['minimum']} to {schema['maximum']}"
    if "properties" in schema:
        return "; allowed: " + ", ".join(schema["properties"])
    return ""
