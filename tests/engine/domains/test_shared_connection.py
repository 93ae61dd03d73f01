# SPDX-License-Identifier: GPL-2.0-or-later
"""Create a domain on a server of which the hosts have other mounts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.engine.engine_door import DoubleDoor
from support.engine.refusals import reason, refused_for
from support.engine.told_hosts import SERVER, rules

from ovirt_rdma.engine_sdk_tools.api.request import Listener
from ovirt_rdma.engine_sdk_tools.domains.create import (
    DomainRequest,
    create_domain,
    plan_domain_create,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine

pytestmark = pytest.mark.engine

REQUEST = DomainRequest("new", f"{SERVER}:/exports/new", "dc1")


@pytest.fixture
def door(double):
    """Access to hosts with data1 and data2 of the server over TCP, with NFS 4.2."""
    with_rules(double, None)
    return DoubleDoor(double.world)


def with_rules(double, transport):
    for host in double.world.hosts.values():
        host.addon, host.policy_text = True, rules(transport) if transport else ""


def over(double, transport, *domains):
    for host in double.world.hosts.values():
        for name in domains:
            host.mounts[double.world.connection_of(name).export] = transport


def planned(session, door=None, **changes):
    engine = read_engine(session)
    reports = door.reports(engine.hosts) if door else {}
    return plan_domain_create(engine, reports, replace(REQUEST, **changes))


def refused(session, door, **changes):
    with refused_for("connection-shared") as caught:
        planned(session, door, **changes)
    return caught.value


def test_mounts_over_tcp_keep_it_off_rdma(session, double, door):
    error = refused(session, door)

    assert error.exit_code == 3
    reason(
        error.reasons,
        "connection-shared",
        "host01: data1, data2 ",
        f"RDMA for {REQUEST.export}",
        f"{SERVER}:/exports/data1 and {SERVER}:/exports/data2",
        "over TCP",
        "NFS 4.2",
    )
    assert len(error.reasons) == 3
    assert error.fix == (
        "first ovirt-rdma domain convert data1 data2 --to rdma --rolling; or use an "
        "NFS version that they do not (--nfs-version)"
    )
    assert double.changes() == []


def test_mounts_over_rdma_keep_it_off_tcp(session, double, door):
    over(double, "rdma", "data1", "data2")
    for name in ("data1", "data2"):
        double.world.connection_of(name).mount_options = "proto=rdma,port=20049"

    error = refused(session, door, transport="tcp")

    reason(error.reasons, "connection-shared", "data1, data2 ", "TCP for ")
    assert "convert data1 data2 --to tcp --rolling; or use an NFS " in error.fix


@pytest.mark.parametrize("transport", ["rdma", "tcp"])
def test_what_has_the_same_transport_is_not_in_the_way(
    session, double, door, transport
):
    over(double, transport, "data1", "data2")
    for name in ("data1", "data2"):
        options = "proto=rdma,port=20049" if transport == "rdma" else ""
        double.world.connection_of(name).mount_options = options

    plan = planned(session, door, transport=transport)

    assert plan.warnings == ()
    made = create_domain(session, door, plan, Listener())
    assert {h.transport for h in made.hosts} == {transport}


@pytest.mark.parametrize(
    "changes",
    [
        {"nfs_version": "4.1"},
        {"nfs_version": "4.0"},
        {"nfs_version": "3"},
        {"export": "nfs2.example.com:/exports/new"},
    ],
)
def test_the_ways_out_lead_out(session, double, door, changes):
    plan = planned(session, door, **changes)

    assert plan.warnings == ()
    made = create_domain(session, door, plan, Listener())
    assert ({h.transport for h in made.hosts}, made.exit_code) == ({"rdma"}, 0)


def test_where_they_fell_back_they_are_healed_first(session, double, door):
    with_rules(double, "prefer-rdma")

    error = refused(session, door)

    assert error.fix.startswith("first ovirt-rdma domain heal data1 data2; or ")


def test_a_mount_by_hand(session, double, door):
    for host in double.world.hosts.values():
        host.mounts = {f"{SERVER}:/home": "tcp"}
    # Over RDMA, so that these two are no obstacle.
    for name in ("data1", "data2"):
        double.world.connection_of(name).mount_options = "proto=rdma"

    error = refused(session, door)

    place = f"/rhev/data-center/mnt/{SERVER}:_home"
    reason(error.reasons, "connection-shared", place, f"RDMA for {REQUEST.export}")
    assert error.fix == "use an NFS version that they do not (--nfs-version)"


def test_the_hosted_engines_domain_is_not_to_be_converted(session, double, door):
    for name in ("data1", "data2"):
        double.world.domain(name).data_center = None
    double.world.domain("data1").data_center = double.world.data_center("dc1").id
    double.world.domain("data1").hosted_engine = True
    for host in double.world.hosts.values():
        host.hosted_engine = True
        host.mounts.pop(f"{SERVER}:/exports/data2")

    error = refused(session, door)

    reason(error.reasons, "connection-shared", "host01: data1 ")
    assert error.fix == "use an NFS version that they do not (--nfs-version)"


@pytest.mark.parametrize("asked", ["4", "4.2"])
@pytest.mark.parametrize("there", ["v4", "auto", None])
def test_a_version_that_is_found_out_at_mounting(session, double, door, asked, there):
    for name in ("data1", "data2"):
        double.world.connection_of(name).nfs_version = there

    if asked == "4.2":
        refused(session, door, nfs_version=asked)
    else:
        (warning,) = planned(session, door, nfs_version=asked).warnings
        assert warning.startswith("data1, data2 may ")
        assert "(on host01, host02, host03); first " in warning


def test_a_run_that_was_killed_is_gone_on_with(session, double, door):
    """The domain is attached, so it is already mounted, over one of the transports."""
    for name in ("data1", "data2"):
        double.world.connection_of(name).nfs_version = "v4_1"
    create_domain(session, door, planned(session, door), Listener())
    for name in ("data1", "data2"):
        double.world.connection_of(name).nfs_version = "v4_2"

    assert planned(session, door).nothing
