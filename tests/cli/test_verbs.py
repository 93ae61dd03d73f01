# SPDX-License-Identifier: GPL-2.0-or-later
"""The arguments of each verb have the types that its code relies on."""

from __future__ import annotations

import dataclasses
import shlex
import typing
from typing import Any, ClassVar, Union

import pytest

from ovirt_rdma.cli.engine import main as engine
from ovirt_rdma.cli.host import main as host
from ovirt_rdma.cli.parser import parse

# Only the developers' environment has it.
pytest.importorskip("docutils")

from tools.command_docs import verbs

pytestmark = pytest.mark.engine

NOT_OF_THE_VERB = {"form", "root"}
LINES = [
    (program, line, shlex.split(f"{name} {example}", comments=True))
    for program in (host.PROGRAM, engine.PROGRAM)
    for hidden in (False, True)
    for name, parser in verbs(program, hidden=hidden).items()
    for example in parser.verb.examples
    for line in [f"{name} {example}"]
]


def has_type(value: Any, wanted: Any) -> bool:
    """Return whether ``value`` is of the type of a field's annotation."""
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if origin is Union:
        return any(has_type(value, part) for part in parts)
    if origin is list:
        return isinstance(value, list) and all(has_type(x, parts[0]) for x in value)
    if origin is tuple and parts[1:] == (...,):
        return isinstance(value, tuple) and all(has_type(x, parts[0]) for x in value)
    if origin is tuple:
        return isinstance(value, tuple) and all(map(has_type, value, parts))
    return type(value) is wanted


@pytest.mark.parametrize(("program", "line", "words"), LINES)
def test_the_examples_of_a_verb_give_it_what_it_declares(program, line, words):
    main = {host.PROGRAM: host, engine.PROGRAM: engine}[program]
    if ">" in words:
        words = words[: words.index(">")]
    verb, values = parse(main.parser(words), words)
    for name in NOT_OF_THE_VERB:
        values.pop(name, None)
    made = verb(**values)
    hints = typing.get_type_hints(verb, localns={"ClassVar": ClassVar})
    assert {
        field.name: getattr(made, field.name)
        for field in dataclasses.fields(made)
        if not has_type(getattr(made, field.name), hints[field.name])
    } == {}
