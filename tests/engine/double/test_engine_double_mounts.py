# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the transport of a mount on the double's hosts that have other mounts, as
tests/lab/test_shared_transport_lab.py found it on a kernel.
"""

from __future__ import annotations

from typing import Any

import pytest
from engine_double import World, sample_world
from engine_double.mounts import connect, disconnect_all

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]

RULES = "version: 1\nnfs:\n  rules:\n  - {server: nfs1.example.com, transport: %s}\n"


@pytest.fixture
def world() -> World:
    return sample_world(hosts=2)


@pytest.mark.parametrize(
    ("stands", "addon", "rule", "options", "got"),
    [
        # Stock VDSM requests it, and does not check the result.
        ("tcp", False, None, "proto=rdma", "tcp"),
        ("rdma", False, None, "", "rdma"),
        ("tcp", True, "prefer-rdma", "", "tcp"),
        ("tcp", True, "require-rdma", "", None),
        ("rdma", True, "tcp", "proto=rdma", "rdma"),
        ("rdma", True, "require-rdma", "", "rdma"),
    ],
)
@pytest.mark.parametrize("version", ["v4_2", "v4", "auto", None])
def test_nfs_4_mounts_of_a_server_share_the_first_ones_connection(
    world: World,
    stands: str,
    addon: bool,
    rule: Any,
    options: str,
    got: Any,
    version: Any,
) -> None:
    host = world.host("host02")
    first, second = (world.connection_of(name) for name in ("data1", "data2"))
    host.mounts = {first.export: stands}
    host.addon = addon
    host.policy_text = RULES % rule if rule else None
    second.nfs_version, second.mount_options = version, options
    failure = connect(world, host, second)
    assert host.mounts.get(second.export) == got
    assert (failure.code if failure else None) == (None if got else 477)


@pytest.mark.parametrize(
    ("version", "address"),
    [("v3", None), ("v4_0", None), ("v4_1", None), ("v4_2", "nfs2.example.com")],
)
@pytest.mark.parametrize("rule", ["require-rdma", "prefer-rdma", None])
def test_other_versions_and_servers_share_nothing(
    world: World, version: str, address: Any, rule: Any
) -> None:
    host = world.host("host02")
    found = world.connection_of("data2")
    host.mounts.pop(found.export)
    host.addon, host.policy_text = True, RULES % rule if rule else None
    found.nfs_version, found.mount_options = version, "proto=rdma"
    found.address = address or found.address
    assert connect(world, host, found) is None
    assert host.mounts[found.export] == "rdma"


@pytest.mark.parametrize(
    ("addon", "rule", "options", "ready", "got"),
    [
        (True, "require-rdma", "", True, "rdma"),
        (True, "require-rdma", "", False, None),
        (True, "prefer-rdma", "", True, "rdma"),
        (True, "prefer-rdma", "proto=rdma", False, "tcp"),
        (True, "tcp", "proto=rdma", True, "tcp"),
        # No add-on, or no policy: the storage connection decides.
        (False, "require-rdma", "", True, "tcp"),
        (False, "tcp", "rdma", True, "rdma"),
        (True, None, "hard,proto=rdma", True, "rdma"),
        (True, None, "proto=rdma", False, None),
        (True, None, "", True, "tcp"),
    ],
)
@pytest.mark.parametrize("lacking", ["host", "server"])
def test_a_host_mounts_by_its_policy_else_by_the_row(
    world: World,
    addon: bool,
    rule: Any,
    options: str,
    ready: bool,
    got: Any,
    lacking: str,
) -> None:
    host, found = world.host("host02"), world.connection_of("data2")
    host.mounts.clear()
    host.addon, host.policy_text = addon, RULES % rule if rule else None
    host.rdma_ready = ready or lacking != "host"
    world.export(found.export).rdma = ready or lacking != "server"
    found.mount_options = options
    failure = connect(world, host, found)
    assert host.mounts.get(found.export) == got
    assert (failure is None) == (got is not None)


def test_an_export_that_no_rule_names_is_stock(world: World) -> None:
    host, found = world.host("host02"), world.connection_of("data2")
    host.mounts.clear()
    host.addon = True
    host.policy_text = RULES.replace("nfs1", "other") % "require-rdma"
    assert connect(world, host, found) is None
    assert host.mounts == {found.export: "tcp"}


def test_rdma_has_to_work_before_the_kernel_finds_a_connection(world: World) -> None:
    host, found = world.host("host02"), world.connection_of("data2")
    host.mounts.pop(found.export)
    host.rdma_ready, found.mount_options = False, "proto=rdma"
    failure = connect(world, host, found)
    assert failure is not None and failure.code == 477


@pytest.mark.engine_does("HOST-21")
def test_a_host_keeps_the_mount_of_the_hosted_engine() -> None:
    world = sample_world(hosts=2, hosted_engine=True)
    host = world.host("host02")
    disconnect_all(world, host)
    assert list(host.mounts) == ["nfs1.example.com:/exports/hosted_storage"]
