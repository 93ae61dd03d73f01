# SPDX-License-Identifier: GPL-2.0-or-later
"""Every place that reads what others say is in the table of docs/security.md, and every
parser of a text there takes any text.

The places are found in the source: modules that turn text or bytes into numbers,
addresses or documents. Functions with one text are found by their signature.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ovirt_rdma.host.errors import Problem

TOP = Path(__file__).parents[1]
ROOMS = ("cli", "engine_sdk_tools", "host", "storage", "vdsm_hooks")
_CALLS = {"loads", "json_value", "read_json", "safe_load", "unpack", "iter_unpack"}
_CALLS |= {"b64decode", "decompress", "decompressobj", "strptime", "whole"}
_CALLS |= {"ip_address", "ip_network", "ip_interface", "IPv6Address", "IPv4Address"}

# These modules take only values that others in the table, or a policy's or the command
# line's check, have read: not a text as somebody else wrote it.
CHECKED_BEFORE = re.compile(
    r"cli/.*|host/rules/.*|host/facts/(uses|infiniband)"
    r"|host/changes/kinds/.*|host/fabric/decisions"
    r"|host/services/opensm|host/daemon/.*|host/policy/.*"
    r"|host/system/(json_codec|lock|signals|text)|host/changes/.*"
    r"|storage/benchmark/(model|scratch)"
    r"|storage/health/(look|watch|state)|storage/vdsm/launch"
    r"|storage/rdma_cm_probe|vdsm_hooks/main"
    r"|engine_sdk_tools/(preparation|(conversion|networks)/.*)"
    r"|engine_sdk_tools/report/(?!portal_service).*"
    r"|engine_sdk_tools/reader"
)


def _found() -> set[str]:
    found = set()
    for room in ROOMS:
        for path in (TOP / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, ast.Call) and _reads(node):
                    found.add(str(path.relative_to(TOP).with_suffix("")))
    return found


def _reads(call: ast.Call) -> bool:
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", None)
    number = isinstance(call.func, ast.Name) and name in ("int", "float")
    return name in _CALLS or (
        number and bool(call.args) and not isinstance(call.args[0], ast.Constant)
    )


def _table() -> dict[str, list[str]]:
    """Return the cells of the table by module."""
    page = (TOP / "docs/security.md").read_text()
    part = page.partition("## What is read of others")[2].partition("\n## ")[0]
    rows = [
        line.strip("| ").split(" | ") for line in part.splitlines() if "| `" in line
    ]
    return {
        module: cells for cells in rows for module in re.findall(r"`([^`]+)`", cells[1])
    }


def test_the_table_has_every_place_that_reads_what_others_say():
    found = {name for name in _found() if not CHECKED_BEFORE.fullmatch(name)}
    assert found - set(_table()) == set()
    assert set(_table()) - found == set()
    assert all(len(cells) == 4 and all(cells) for cells in _table().values())


def _parsers() -> list[object]:
    """Return the public functions of the modules in the table with one text."""
    found = []
    for name in sorted(_table()):
        module = importlib.import_module(f"ovirt_rdma.{name.replace('/', '.')}")
        for function in vars(module).values():
            if (
                not inspect.isfunction(function)
                or function.__name__.startswith("_")
                or function.__name__ in OPEN
            ):
                continue
            if function.__module__ != module.__name__:
                continue
            needed = [
                one
                for one in inspect.signature(function).parameters.values()
                if one.default is one.empty
            ]
            if len(needed) == 1 and needed[0].annotation in ("str", "bytes"):
                found.append(
                    pytest.param(
                        function, needed[0].annotation, id=f"{name}.{function.__name__}"
                    )
                )
    return found


# They take a path, and open it.
OPEN = {"read_inventory", "read_block"}
HOSTILE = [
    *("", "\0", "\ufeff", "\u0663", "-1", "0x", "0xzz", "9" * 4301, "0x" + "f" * 4301),
    *("[" * 100_000, '{"a": ' * 1000, "{}", "[]", "null", "5", "[5]", '[{"a": 5}]'),
    *('{"policy.yaml": 5, "policy.d": {}}', "[fd00::1]:/x", "[::1", "a=b\n" * 1000),
    *("a: b\n\tc d\n", "1 2 3 4 5 6 - 7 8 9", "\x1b[2J", "%s{}", "\n" * 1000, "1_0"),
]


@pytest.mark.parametrize(("parser", "kind"), _parsers())
@settings(max_examples=30)
@given(text=st.sampled_from(HOSTILE) | st.text(max_size=60))
def test_every_parser_takes_any_text(parser, kind, text):
    given_ = text.encode("utf-8", "surrogatepass") if kind == "bytes" else text
    try:
        result = parser(given_)
        if inspect.isgenerator(result):
            list(result)
    except (ValueError, Problem):
        pass
