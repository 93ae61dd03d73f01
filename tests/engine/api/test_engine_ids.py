# SPDX-License-Identifier: GPL-2.0-or-later
"""Test that an invalid id from the engine never leads to another file or URL."""

from __future__ import annotations

import pytest
from support.problems import problem

from ovirt_rdma.engine_sdk_tools.api.request import Call, Read
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder

pytestmark = pytest.mark.hypervisor

ODD = [
    "../../../etc/evil",
    "/../../../../etc/evil2",
    "",
    ".",
    "a\x00b",
    "1" * 35,
    "../../../../../../../../../../../abc",
    "1" * 36 + "\n",
]


@pytest.mark.parametrize("odd", ODD)
def test_a_lock_is_named_after_an_id(tmp_path, odd):
    folder = tmp_path / "states"
    with (
        problem("engine-id-invalid", ascii(odd)),
        StateFolder(folder).only_run(odd),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "odd",
    ["../hosts", "a/../../b", "a?b=c", "a#b", "a%2fb", "a\r\nX: y", "a/", "/a", "é"],
)
@pytest.mark.parametrize("change", [False, True])
def test_a_url_has_ids_in_it(double, session, odd, change):
    with problem("engine-id-invalid", ascii(f"hosts/{odd}")):
        if change:
            session.perform(Call(f"hosts/{odd}", "deactivate", "moving a host"))
        else:
            session.read(Read(f"hosts/{odd}", "reading a host", "get"))
    assert double.requests == []
