# SPDX-License-Identifier: GPL-2.0-or-later
"""The tables of docs/policy.md and docs/policy.schema.json are made from its table, and
the meanings of keys in the page.

WRITE_GOLDEN=1 writes both.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

from ovirt_rdma.host.policy.forms import Keys, ListOf, MapOf
from ovirt_rdma.host.policy.model import POLICY
from tools.policy_reference import PAGE, SCHEMA, TABLES, meanings, page, schema

EXAMPLES = [PAGE.with_name("policy.yaml"), PAGE.parents[1] / "rpm" / "policy.yaml"]


def test_the_page_and_the_schema_are_up_to_date():
    if os.environ.get("WRITE_GOLDEN"):
        PAGE.write_text(page(PAGE.read_text()))
        SCHEMA.write_text(schema(PAGE.read_text()))
    assert PAGE.read_text() == page(PAGE.read_text())
    assert SCHEMA.read_text() == schema(PAGE.read_text())


def keys_below(form, path=""):
    """Every key that a policy can have, with its path."""
    form = form.item if isinstance(form, (ListOf, MapOf)) else form
    if isinstance(form, Keys):
        for name, row in form.rows.items():
            yield f"{path}{name}"
            yield from keys_below(row.form, f"{path}{name}.")


def test_the_tables_have_every_key_with_a_meaning():
    described = {name for rows in TABLES.values() for name in rows}
    # Tables of rules have no path, and those of defaults are the rules'.
    described |= {"nfs", "host", "fabric", "block"}
    for key in keys_below(POLICY):
        assert key in described or key.rpartition(".")[2] in described, key
    assert all(meaning for meaning, _ in meanings(PAGE.read_text()).values())


def errors(text):
    validator = Draft7Validator(json.loads(SCHEMA.read_text()))
    return [error.message for error in validator.iter_errors(yaml.safe_load(text))]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.parent.name)
def test_an_editor_finds_no_mistake_in_our_examples(example):
    assert errors(example.read_text()) == []
    # Also with all that is commented out.
    lines = example.read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("version"))
    plain = "\n".join(
        line.removeprefix("# ").removeprefix("#") for line in lines[start:]
    )
    assert errors(plain) == []


@pytest.mark.parametrize(
    "text",
    [
        "version: 2",
        "nfs:",
        "version: 1\nnfs: {rules: [{transport: tcp}]}",
        "version: 1\nnfs: {rules: [{server: nas, transport: rdma}]}",
        "version: 1\nnfs: {defaults: {port: 0}}",
        "version: 1\nnfs: {defaults: {prot: 1}}",
        "version: 1\nhost: {interfaces: [{match: {port: 1}, mtu: max}]}",
        "version: 1\nhost: {partitions_interval: 0.5}",
        "version: 1\nhost: {modules: ['']}",
    ],
)
def test_an_editor_finds_mistakes(text):
    assert errors(text)


def test_the_packaged_policy_names_the_schema_where_it_is_installed():
    line = next(
        line for line in EXAMPLES[1].read_text().splitlines() if "$schema=" in line
    )
    installed = line.partition("$schema=")[2]
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    assert f"$(DESTDIR){installed}" in makefile
