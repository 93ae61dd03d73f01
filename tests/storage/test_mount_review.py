# SPDX-License-Identifier: GPL-2.0-or-later
"""Proof and verdict of a mount, from what the kernel shows."""

import pytest

from ovirt_rdma.host.facts import CmId, MountTransport, NfsMount
from ovirt_rdma.host.policy import NfsPolicy, NfsRule, Policy
from ovirt_rdma.storage.mount_review import (
    DEGRADED,
    OK,
    UNNAMED,
    UNPROVEN,
    review,
)
from ovirt_rdma.storage.proof import prove


def mount(protocol="rdma", transports=("rdma",), source="10.0.0.1:/e"):
    return NfsMount(
        source=source,
        mountpoint="/rhev/data-center/mnt/10.0.0.1:_e",
        fstype="nfs4",
        options="rw",
        version="4.2",
        protocol=protocol,
        port=20049,
        address="10.0.0.1",
        transports=tuple(MountTransport(t, (1, 2)) for t in transports),
    )


def policy(transport):
    return Policy(nfs=NfsPolicy((NfsRule(1, "r", "10.0.0.1", "*", transport),)))


def cm_id(state="CONNECT", destination="10.0.0.1:20049", owner="[rpcrdma]"):
    return CmId("rxe0", state, owner, "10.0.0.2:40000", destination)


@pytest.mark.parametrize(
    "protocol, transports, cm_ids, proven",
    [
        ("rdma", ["rdma"], None, "rdma"),
        ("rdma6", ["rdma"], None, "rdma"),
        ("rdma", ["rdma", "rdma"], [cm_id()], "rdma"),
        ("tcp", ["tcp", "tcp"], [], "tcp"),
        ("tcp6", ["tcp"], None, "tcp"),
        ("rdma", [], None, "rdma"),
        ("rdma", ["tcp"], None, None),
        ("rdma", ["rdma", "tcp"], None, None),
        # An idle transport has no id, so that there is none says nothing.
        ("rdma", ["rdma"], [], "rdma"),
        ("rdma", ["rdma"], [cm_id(state="IDLE")], "rdma"),
        # Not a connection, or not the kernel's: no witness against TCP.
        ("tcp", ["tcp"], [cm_id(state="LISTEN")], "tcp"),
        ("tcp", ["tcp"], [cm_id(owner="rping")], "tcp"),
        # Contradicted by an id: TCP on paper, RDMA on the wire.
        ("tcp", ["tcp"], [cm_id()], None),
        (None, [], None, None),
    ],
)
def test_signals_must_agree(protocol, transports, cm_ids, proven):
    assert prove(mount(protocol, transports), cm_ids).transport == proven


def test_ipv6_cm_id():
    six = NfsMount("[fd00::1]:/e", "/m", "nfs4", "rw", "4.2", "rdma6", 20049, "fd00::1")
    for shown in ("fd00::1:20049", "[fd00::1]:20049"):
        assert prove(six, [cm_id(destination=shown)]).transport == "rdma"


@pytest.mark.parametrize(
    "transport, found, verdict, words",
    [
        ("require-rdma", mount(), OK, "runs over rdma, as rule 'r' says require-rdma"),
        ("require-rdma", mount("tcp", ["tcp"]), DEGRADED, "it is wrong"),
        ("prefer-rdma", mount("tcp", ["tcp"]), DEGRADED, "it fell back"),
        ("tcp", mount("tcp", ["tcp"]), OK, "runs over tcp"),
        ("tcp", mount(), DEGRADED, "it is wrong"),
        ("prefer-rdma", mount("rdma", ["tcp"]), UNPROVEN, "do not agree"),
    ],
)
def test_verdict(transport, found, verdict, words):
    judged = review(found, policy(transport))
    assert judged.verdict == verdict
    assert words in judged.sentence
    assert bool(judged.fix) is (verdict != OK)


@pytest.mark.parametrize("source", ["10.0.0.7:/e", "odd"])
def test_mount_that_no_rule_names_is_listed(source):
    judged = review(mount(source=source), policy("require-rdma"))
    assert (judged.verdict, judged.match, judged.fix) == (UNNAMED, None, "")
