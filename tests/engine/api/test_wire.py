# SPDX-License-Identifier: GPL-2.0-or-later
"""Test that --dry-run shows the requests that are sent."""

from __future__ import annotations

import contextlib

import pytest
from ovirtsdk4 import Error, types

from ovirt_rdma.engine_sdk_tools.api.request import (
    Call,
    EngineProblem,
    Read,
    WireForm,
    wire_form,
)

pytestmark = pytest.mark.hypervisor


def calls(world):
    host = f"hosts/{world.host('host02').id}"
    row = types.StorageConnection(mount_options="proto=rdma,port=20049")
    connection = next(iter(world.connections.values())).id
    center = types.DataCenter(id=world.data_center("dc1").id)
    network = types.Network(name="n", usages=[], data_center=center)
    return [
        Call(host, "deactivate", "x", {"reason": "ours"}),
        Call(host, "activate", "x"),
        Call(f"storageconnections/{connection}", "update", "x",
             {"connection": row, "force": True}),
        Call("jobs", "add", "x", {"job": types.Job(description="a")}),
        Call("networks", "add", "x", {"network": network}),
    ]  # fmt: skip


@pytest.mark.parametrize("number", range(5))
def test_the_form_is_what_the_double_saw(double, session, number):
    call = calls(double.world)[number]
    form = wire_form(call)
    # The engine's answer does not matter here.
    with contextlib.suppress(EngineProblem):
        session.perform(call, patience_s=0)
    (seen,) = double.changes()
    assert (form.method, form.path, form.body) == (seen.method, seen.path, seen.body)
    ours = {"correlation_id": session.correlation_id}
    assert {**form.query, **ours} == seen.query


def test_a_form_in_full():
    row = types.StorageConnection(mount_options="a&b")
    words = {"connection": row, "force": True}
    form = wire_form(Call("storageconnections/7", "update", "x", words))
    assert form == WireForm(
        "PUT",
        "/storageconnections/7",
        {"force": "true"},
        "<storage_connection>\n  <mount_options>a&amp;b</mount_options>\n"
        "</storage_connection>\n",
    )
    read = Read("hosts", "x", arguments={"follow": "nics", "max": 7})
    assert wire_form(read) == WireForm("GET", "/hosts", {"follow": "nics", "max": "7"})


@pytest.mark.parametrize(
    ("path", "method", "words", "kind"),
    [
        ("hosts/7", "deactivated", {}, TypeError),
        ("hosts/7", "deactivate", {"reson": "x"}, TypeError),
        ("hosts/7", "deactivate", {"reason": 7}, TypeError),
        ("host/7", "deactivate", {}, Error),
    ],
)
def test_a_call_that_is_wrong(path, method, words, kind):
    with pytest.raises(kind):
        wire_form(Call(path, method, "x", words))
