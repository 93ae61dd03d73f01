# SPDX-License-Identifier: GPL-2.0-or-later
"""What ``ovirt-rdma-host status -o json`` printed on a host, held against a form before
anything is decided from it. Pure.

Only what this side reads is looked at: a host's document has more, and a newer one may
have more again. What a part leaves out counts as not told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

from jsonschema import Draft7Validator, ValidationError

from ovirt_rdma.host.json_records import kind

Schema = dict[str, Any]

# "sha256:" and 64 digits; and a sentence of ours, with the mistakes of a policy.
_DIGEST: Schema = {"type": ["string", "null"], "maxLength": 100}
_SENTENCE: Schema = {"type": ["string", "null"], "maxLength": 10_000}
_WORD: Schema = {"type": ["string", "null"], "maxLength": 100}

STATUS_SCHEMA: Schema = {
    "type": "object",
    "properties": {
        "enabled": {"type": ["object", "null"], "properties": {"mode": _WORD}},
        "package": {
            "type": ["object", "null"],
            "maxProperties": 20,
            "additionalProperties": {"type": "boolean"},
        },
        "running": {"type": ["object", "null"], "properties": {"program": _WORD}},
        "policy": {
            "type": ["object", "null"],
            "properties": {
                "loaded": {"type": ["boolean", "null"]},
                "digest": _DIGEST,
                "problem": _SENTENCE,
                "fix": _SENTENCE,
            },
        },
    },
}
_NOUNS = {"object": "an object", "string": "a string", "boolean": "true or false"}


def status_mistake(document: object) -> Optional[str]:
    """Return what is wrong with a status document, None where it is in order: which
    key, and what it is. The value itself is never shown, it may have any length.
    """
    return next(_mistakes(document), None)


def _mistakes(document: object) -> Iterator[str]:
    for error in Draft7Validator(STATUS_SCHEMA).iter_errors(document):
        path = ".".join(ascii(key)[1:-1][:40] for key in error.absolute_path)
        yield f"{path or 'it'} {_what(error)}"


def _what(error: ValidationError) -> str:
    if error.validator == "type":
        wanted: Any = error.validator_value
        first = wanted if isinstance(wanted, str) else wanted[0]
        return f"is {kind(error.instance)}, not {_NOUNS[first]}"
    return "is too long"
