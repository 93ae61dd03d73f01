# SPDX-License-Identifier: GPL-2.0-or-later
"""The arguments of each verb have the types that its code relies on."""

from __future__ import annotations

import shlex
import typing
from typing import Any, ClassVar, Union

import pytest

from ovirt_rdma.cli.engine import main as engine
from ovirt_rdma.cli.host import main as host
from ovirt_rdma.cli.parser import parse
from ovirt_rdma.host.export import Export, MountOptions
from tools.verbs import verbs

pytestmark = pytest.mark.engine

# What annotations name, which no module of verbs imports when it runs.
NAMES = {**vars(typing), "Export": Export, "MountOptions": MountOptions}
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
    hints = typing.get_type_hints(verb, localns=NAMES)
    declared = {
        name: hint
        for name, hint in hints.items()
        if typing.get_origin(hint) is not ClassVar
    }
    assert vars(verb(**values)).keys() == declared.keys()
    assert {
        name: values[name]
        for name, hint in declared.items()
        if not has_type(values[name], hint)
    } == {}
