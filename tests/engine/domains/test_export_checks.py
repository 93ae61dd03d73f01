# SPDX-License-Identifier: GPL-2.0-or-later
"""Check servers, paths and names that the engine accepts, and those that it refuses:
each was tried on an ovirt-engine 4.5.7.
"""

from __future__ import annotations

import pytest
from engine_double.answers import Refusal
from engine_double.connections import check
from engine_double.world import SimConnection, World
from support.engine.refusals import reason

from ovirt_rdma.engine_sdk_tools.domains.create import name_problems, read_export
from ovirt_rdma.host.export import Export

pytestmark = pytest.mark.engine

TAKEN = [
    "999.1.2.33:/exports/x",
    "nas:/exports/x",
    "n--s.example.com:/exports/x",
    "192.0.2.10:/exports/x",
    "192.0.2.010:/exports/x",
    "[2001:db8::1]:/exports/x",
    "nas.example.com:/",
    "nas.example.com:/a.b/.data",
    "nas.example.com:/a/.data/x",
    "nas.example.com:/a/data.d",
    "nas.example.com:/a|b/c",
    "nas.example.com:/a\\x",
    "nas.example.com:/a;b",
    "nas.example.com:/a%20",
    "nas.example.com:/a_b",
]
REFUSED = [
    ("my_nas.example.com:/exports/x", "export-server-refused", "letters, digits"),
    ("nas.example.com.:/exports/x", "export-server-refused", "letters, digits"),
    ("nas.data-center:/exports/x", "export-server-refused", "letters, digits"),
    ("nas.x:/exports/x", "export-server-refused", "letters, digits"),
    ("nas-.example.com:/exports/x", "export-server-refused", "letters, digits"),
    ("-nas:/exports/x", "export-server-refused", "letters, digits"),
    ("n" * 64 + ":/exports/x", "export-server-refused", "letters, digits"),
    ("[2001:db8::192.0.2.10]:/exports/x", "export-server-refused", "hexadecimal"),
    ("nas.example.com:/.data", "export-path-refused", "begins with '.'"),
    ("nas.example.com:/a/.data", "export-path-refused", "begins with '.'"),
    ("nas.example.com:/a/.data/", "export-path-refused", "begins with '.'"),
    ("nas.example.com:/a\\.data", "export-path-refused", "begins with '.'"),
    ("nas.example.com:/a\\", "export-path-refused", "ends in '\\'"),
    ("nas.example.com:/a|b", "export-path-refused", "'|' or '^'"),
    ("nas.example.com:/a^b", "export-path-refused", "'|' or '^'"),
]


def engine_takes(export):
    """Whether the engine's double, which is compared with the engine, accepts it."""
    server, _, path = export.partition(":/")
    try:
        check(World(), SimConnection("r", "nfs", server, f"/{path}"))
    except Refusal:
        return False
    return True


@pytest.mark.parametrize("export", TAKEN)
def test_what_the_engine_takes_is_taken(export):
    assert read_export(export)[1] == []
    assert engine_takes(export)


@pytest.mark.engine_does("CONN-01")
@pytest.mark.parametrize(("export", "id", "argument"), REFUSED)
def test_what_the_engine_refuses_is_refused_beforehand(export, id, argument):
    refusals = read_export(export)[1]
    assert len(refusals) == 1
    reason(refusals, id, argument, repr(str(Export.parse(export))))
    assert not engine_takes(export)


@pytest.mark.parametrize("name", ["data9", "A-b_C", "-", "_x", "9"])
def test_names_that_the_engine_takes(name):
    assert list(name_problems(name)) == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("a.b", "'.'"),
        ("donn\u00e9es", "'\u00e9'"),
        ("a\u0664", "\u0664"),
        ("a+b", "'+'"),
    ],
)
def test_names_that_it_does_not_take(name, shown):
    refusals = list(name_problems(name))
    assert len(refusals) == 1
    reason(refusals, "domain-name-characters", shown)
