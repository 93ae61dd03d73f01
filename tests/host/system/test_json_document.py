# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of the envelope: what is written first, and what of it is read."""

from __future__ import annotations

import json

import pytest

from ovirt_rdma.host.system.json_codec import (
    Envelope,
    WrongRecord,
    WrongVersion,
    json_value,
)

LETTER = Envelope("letter", 3, digested="text")
CARD = Envelope("card")
TEXT = {"from": "a", "text": ["ü", "\udcff", {"b": 1, "a": 2}]}


def test_what_is_written_is_read():
    text = LETTER.text(TEXT)
    assert text.isascii()
    assert text.endswith("}\n")
    whole = json_value(text.encode())
    assert list(whole) == ["schema_version", "kind", "digest", "from", "text"]
    assert LETTER.content(whole) == TEXT
    assert list(whole)[:3] == ["schema_version", "kind", "digest"]  # it is as it was


@pytest.mark.parametrize(
    ("version", "sentence", "fix"),
    [
        (
            4,
            "it was written by a newer version of ovirt-rdma (schema version 4; this "
            "one reads 3)",
            "use the version of ovirt-rdma that wrote it, or a newer one",
        ),
        (
            2,
            "it was written by an older version of ovirt-rdma (schema version 2; this "
            "one reads 3)",
            "use the version of ovirt-rdma that wrote it",
        ),
    ],
)
def test_versions_that_are_not(version, sentence, fix):
    # Another version explains all other mistakes.
    with pytest.raises(WrongVersion) as caught:
        LETTER.content({"schema_version": version, "kind": "letter", "new": 1})
    assert (str(caught.value), caught.value.fix) == (sentence, fix)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"kind": "card"}, "kind is 'card', not 'letter'"),
        ({"kind": ["x"] * 50}, "kind is an array, not 'letter'"),
        ({"kind": "x" * 99}, "kind is a string, not 'letter'"),
        ({"kind": None}, "kind is null, not 'letter'"),
        ({"schema_version": "3"}, "schema_version is '3', not a whole number"),
        ({"schema_version": True}, "schema_version is True, not a whole number"),
        ({"schema_version": 3.0}, "schema_version is 3.0, not a whole number"),
        *(
            (change, "it is damaged, or was edited by hand (its digest differs)")
            for change in ({"digest": "sha256:0"}, {"digest": None}, {"text": "x"})
        ),
    ],
)
def test_what_is_no_such_document(change, sentence):
    with pytest.raises(WrongRecord) as caught:
        LETTER.content({**LETTER.around(TEXT), **change})
    assert str(caught.value) == sentence
    assert not isinstance(caught.value, WrongVersion)


@pytest.mark.parametrize("key", ["schema_version", "kind", "digest", "text"])
def test_a_key_of_it_that_is_missing(key):
    whole = LETTER.around(TEXT)
    del whole[key]
    with pytest.raises(WrongRecord, match=f"{key} is missing|digest differs"):
        LETTER.content(whole)


def test_the_digest_is_over_values_not_over_their_spelling():
    whole = LETTER.around(TEXT)
    whole["text"] = json.loads(json.dumps(TEXT["text"], sort_keys=True))
    assert LETTER.content(json_value(json.dumps(whole, indent=5).encode()))


def test_a_number_that_json_does_not_have_is_not_written():
    with pytest.raises(ValueError, match="Out of range"):
        CARD.text({"text": float("nan")})
