# SPDX-License-Identifier: GPL-2.0-or-later
"""Test proof and verdict of a mount, from the kernel's data."""

from dataclasses import replace

import pytest

from ovirt_rdma.host.facts.model import (
    CmId,
    DegradedMark,
    Facts,
    NfsMount,
)
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.storage.mounts import (
    DEGRADED,
    NOT_COVERED,
    OK,
    UNNAMED,
    UNPROVEN,
    prove,
    remount_fix,
    review_all,
)


def mount(protocol="rdma", transports=("rdma",), source="10.0.0.1:/e"):
    return NfsMount(
        source=source,
        mountpoint="/rhev/data-center/mnt/10.0.0.1:_e",
        options="rw,soft,nosharecache",
        version="4.2",
        protocol=protocol,
        port=20049,
        address="10.0.0.1",
        protocols=tuple(transports),
    )


def policy(transport):
    return Policy(nfs=NfsPolicy((NfsRule(1, "r", "10.0.0.1", "*", transport),)))


def review(found, policy):
    facts = Facts(hostname="h", kernel_release="k", uptime_s=0.0, nfs_mounts=(found,))
    (judged,) = review_all(facts, policy)
    return judged


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
        # An idle transport has no id, so a missing id proves nothing.
        ("rdma", ["rdma"], [], "rdma"),
        ("rdma", ["rdma"], [cm_id(state="IDLE")], "rdma"),
        # Not a connection, or not the kernel's: no signal against TCP.
        ("tcp", ["tcp"], [cm_id(state="LISTEN")], "tcp"),
        ("tcp", ["tcp"], [cm_id(owner="rping")], "tcp"),
        # Another mount's: this one shares a TCP connection, with its port.
        ("tcp", ["tcp"], [cm_id()], "tcp"),
        ("rdma", ["tcp"], [cm_id()], None),
        (None, [], None, None),
    ],
)
def test_signals_must_agree(protocol, transports, cm_ids, proven):
    assert prove(mount(protocol, transports), cm_ids).transport == proven


@pytest.mark.parametrize(
    "other",
    [
        cm_id(state="IDLE"),  # going away
        cm_id(state="LISTEN"),
        cm_id(owner="rping"),
        cm_id(destination="10.0.0.9:20049"),
    ],
)
def test_only_a_connected_cm_id_of_the_mount_is_a_witness(other):
    without = prove(mount(), [other])
    assert [signal.source for signal in without.signals] == ["mountinfo", "mountstats"]
    assert prove(mount(), [other, cm_id()]).signals[-1].source == "rdma cm_id"


def test_ipv6_cm_id():
    six = NfsMount("[fd00::1]:/e", "/m", "rw", "4.2", "rdma6", 20049, "fd00::1")
    for shown in ("fd00::1:20049", "[fd00::1]:20049"):
        assert prove(six, [cm_id(destination=shown)]).transport == "rdma"


@pytest.mark.parametrize(
    "transport, found, verdict, words",
    [
        ("require-rdma", mount(), OK, "runs over rdma, as rule 'r' says require-rdma"),
        ("require-rdma", mount("tcp", ["tcp"]), DEGRADED, "says require-rdma"),
        ("prefer-rdma", mount("tcp", ["tcp"]), DEGRADED, "that is not recorded"),
        ("tcp", mount("tcp", ["tcp"]), OK, "runs over tcp"),
        ("tcp", mount(), DEGRADED, "runs over rdma, but rule 'r' says tcp"),
        ("prefer-rdma", mount("rdma", ["tcp"]), UNPROVEN, "do not agree"),
    ],
)
def test_verdict(transport, found, verdict, words):
    judged = review(found, policy(transport))
    assert judged.verdict == verdict
    assert words in judged.sentence
    assert bool(judged.fix) is (verdict != OK)


POSIX = replace(mount("tcp", ["tcp"]), options="rw,hard,proto=tcp,timeo=600,retrans=2")


class TestMountThatVdsmsNfsClassDidNotMake:
    """As of a PosixFS domain: VDSM's NFS class always sets nosharecache."""

    @pytest.mark.parametrize("wish", ["require-rdma", "prefer-rdma"])
    def test_no_rule_covers_it(self, wish):
        judged = review(POSIX, policy(wish))
        assert judged.verdict == NOT_COVERED
        assert "PosixFS" in judged.sentence
        assert f"rule 'r' says {wish}" in judged.sentence
        assert "mount options" in judged.fix
        # The fix for an NFS domain would migrate its VMs without effect.
        assert "if it is an NFS domain, " in judged.fix
        assert (
            remount_fix(judged, ready=True)
            == remount_fix(judged, ready=False)
            == judged.fix
        )

    def test_nor_one_that_says_tcp(self):
        judged = review(replace(mount(), options="rw,hard,proto=rdma"), policy("tcp"))
        assert judged.verdict == NOT_COVERED

    def test_what_is_as_the_rule_says_is_no_finding(self):
        judged = review(replace(mount(), options="rw,hard"), policy("require-rdma"))
        assert judged.verdict == OK

    def test_a_mark_says_that_it_is_vdsms(self):
        # The engine's sharecache wins over the class's own option.
        shared = replace(FELL_BACK, options="rw,soft")
        assert history(found=shared).verdict == DEGRADED

    def test_elsewhere_it_is_nobodys_domain(self):
        judged = review(replace(POSIX, mountpoint="/mnt"), policy("require-rdma"))
        assert (judged.verdict, "PosixFS" in judged.sentence) == (DEGRADED, False)


@pytest.mark.parametrize("source", ["10.0.0.7:/e", "odd"])
def test_mount_that_no_rule_names_is_listed(source):
    judged = review(mount(source=source), policy("require-rdma"))
    assert (judged.verdict, judged.match, judged.fix) == (UNNAMED, None, "")


FELL_BACK = replace(mount("tcp", ["tcp"]), age_s=60)
MARK = DegradedMark(
    mountpoint=FELL_BACK.mountpoint,
    export="10.0.0.1:/e",
    rule="r",
    wanted="prefer-rdma",
    transport="tcp",
    reason="the cable is out",
    fix="put it in",
    since="2026-11-21T02:51:34Z",
    mounted_s=940.0,
)


def history(mark=MARK, found=FELL_BACK, booted_at=1_700_000_000, rule="prefer-rdma"):
    facts = Facts(
        hostname="h",
        kernel_release="k",
        uptime_s=1000.0,
        booted_at=booted_at,
        nfs_mounts=(found,),
        degraded_marks=(mark,),
    )
    (judged,) = review_all(facts, policy(rule))
    return judged


def test_degraded_since_when_and_why():
    judged = history()
    assert judged.sentence.endswith("; since 2026-11-21 02:51:34 UTC, because the "
                                    "cable is out")  # fmt: skip
    assert judged.fix.startswith("put it in; then ovirt-rdma-host nfs check")
    assert (judged.since, judged.reason) == (MARK.since, MARK.reason)


@pytest.mark.parametrize(
    "mark",
    [
        replace(MARK, mountpoint="/elsewhere"),
        replace(MARK, mounted_s=100.0),  # an earlier mount in its place
        replace(MARK, transport="rdma"),
    ],
)
def test_a_mark_that_is_about_something_else(mark):
    judged = history(mark)
    # Mounted 940 s after boot, which was at 22:13:20.
    assert judged.since == "2023-11-14T22:29:00Z"
    assert judged.reason is None
    assert "a reason that is not recorded" in judged.sentence


def test_nothing_is_told_that_is_not_known():
    judged = history(replace(MARK, mountpoint="/elsewhere"), booted_at=None)
    assert judged.since is None
    assert judged.sentence.endswith("rdma; for a reason that is not recorded")


def test_a_mount_that_is_right_has_no_reason_left_over():
    judged = history(rule="tcp")
    assert (judged.verdict, judged.reason) == (OK, None)
    assert judged.since == "2023-11-14T22:29:00Z"


def test_healing_waits_for_readiness_where_rdma_is_wanted():
    # Causes that readiness does not check would act again.
    first = "put it in (if not done yet); then put the host into maintenance"
    assert remount_fix(history(), ready=True).startswith(first)
    not_noted = history(replace(MARK, mountpoint="/elsewhere"))
    assert remount_fix(not_noted, ready=True).startswith(
        "put the host into maintenance"
    )
    assert remount_fix(history(), ready=False).startswith(
        "once it is ready, put the host"
    )
    over_rdma = history(found=mount(), rule="tcp")
    assert remount_fix(over_rdma, ready=False).startswith(
        "put the host into maintenance"
    )
