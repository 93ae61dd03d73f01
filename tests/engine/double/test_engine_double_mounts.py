# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the transport of a mount on the double's hosts that have other mounts, as
tests/lab/test_shared_transport_lab.py found it on a kernel.
"""

from __future__ import annotations

import pytest
from engine_double import World, sample_world
from engine_double.mounts import disconnect_all

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]


@pytest.fixture
def world() -> World:
    return sample_world(hosts=2)


@pytest.mark.engine_does("HOST-21")
def test_a_host_keeps_the_mount_of_the_hosted_engine() -> None:
    world = sample_world(hosts=2, hosted_engine=True)
    host = world.host("host02")
    disconnect_all(world, host)
    assert list(host.mounts) == ["nfs1.example.com:/exports/hosted_storage"]
