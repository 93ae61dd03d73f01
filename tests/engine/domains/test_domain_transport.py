# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from dataclasses import replace

import pytest
from support.engine.told_hosts import (
    SERVER,
    connection,
    domain,
    engine,
    facts,
    host,
    mount,
    report,
    rules,
    status,
)
from support.problems import problem

from ovirt_rdma.engine_sdk_tools.conversion.plan import plan_heal
from ovirt_rdma.engine_sdk_tools.domains.transport import (
    Mounts,
    connection_transport,
    domains_to_verify,
    matrix_of,
    nfs_export,
    no_report,
    requested_transport,
    row_of,
    transports_in_use,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import policy_of
from ovirt_rdma.engine_sdk_tools.model import FAIL, NONE, OK, UNKNOWN, WARN, NameProblem
from ovirt_rdma.host.facts.model import CmId
from ovirt_rdma.host.policy.model import Policy

pytestmark = pytest.mark.engine

EXPORT = f"{SERVER}:/exports/data1"
RDMA_ROW = "rdma,port=20049"
CONNECTION = "the storage connection"


def verify(engine_, reports, hosts, domains):
    """Return the matrix of ``hosts``, of which not all have reported."""
    told = {one.host: one for one in reports}
    rows = [
        (one, row_of(engine_, one, told.get(one.name) or no_report(one), domains))
        for one in hosts
    ]
    return matrix_of(engine_, rows, domains)


def without_drop_ins(text):
    """Return the status of a host with this policy that has no list of drop-ins."""
    whole = status(text)
    del whole["policy"]["drop_ins"]
    return whole


@pytest.mark.parametrize(
    ("more", "export"),
    [
        ({}, EXPORT),
        ({"path": "/exports//data1/"}, EXPORT),
        ({"address": "192.0.2.5"}, "192.0.2.5:/exports/data1"),
        ({"address": "fd00::1"}, "[fd00::1]:/exports/data1"),
        ({"address": "[fd00::1]"}, "[fd00::1]:/exports/data1"),
        ({"type": "posixfs", "vfs_type": "nfs4"}, EXPORT),
        ({"type": "posixfs", "vfs_type": "ceph"}, None),
        ({"type": "glusterfs"}, None),
        ({"type": "localfs", "address": None}, None),
        ({"path": "not absolute"}, None),
    ],
)
def test_export_of_a_row(more, export):
    found = nfs_export(connection(**more))
    assert (str(found) if found else None) == export


@pytest.mark.parametrize(
    ("options", "transport"),
    [
        ("", "tcp"),
        ("rdma,port=20049", "rdma"),
        ("proto=rdma6", "rdma"),
        ("rdma,proto=tcp", "tcp"),
        ("nolock,rsize=1048576", "tcp"),
        ("port=20049", "tcp"),
    ],
)
def test_transport_of_a_row_is_the_option_that_wins(options, transport):
    assert connection_transport(connection(options=options)) == transport


@pytest.mark.parametrize(
    ("told", "row", "asked"),
    [
        # No rule, or the add-on is not enabled: the storage connection decides.
        (report(status=status(mode=None)), "", ("tcp", CONNECTION)),
        (report(status=status(mode="host")), RDMA_ROW, ("rdma", CONNECTION)),
        (report(status=status()), RDMA_ROW, ("rdma", CONNECTION)),
        (
            report(
                status=status(rules("tcp", "/other")),
                policy_text=rules("tcp", "/other"),
            ),
            RDMA_ROW,
            ("rdma", CONNECTION),
        ),
        # A rule takes precedence over the connection.
        (
            report(
                status=status(rules("require-rdma")), policy_text=rules("require-rdma")
            ),
            "",
            ("rdma", "rule 'nas'"),
        ),
        (
            report(status=status(rules("tcp")), policy_text=rules("tcp")),
            RDMA_ROW,
            ("tcp", "rule 'nas'"),
        ),
        # Unknown, not guessed.
        (report(), "", (None, "the host did not report its status")),
        (report(status={"enabled": 7}), "", (None, "its status does not show")),
        (
            report(status=status(rules("tcp"))),
            "",
            (None, "its report has no policy.yaml"),
        ),
        (
            report(status=status(rules("tcp")), policy_text=rules("require-rdma")),
            "",
            (None, "its loaded policy is not the one in its policy.yaml"),
        ),
        (
            report(status=without_drop_ins(rules("tcp")), policy_text=rules("tcp")),
            "",
            (None, "its status does not list the drop-ins"),
        ),
        (
            report(status=without_drop_ins(None)),
            "",
            (None, "its status does not list the drop-ins"),
        ),
        (
            report(status=status(rules("tcp")), policy_text="nfs: ["),
            "",
            (None, "its policy.yaml is invalid: policy.yaml:"),
        ),
        (
            report(status=status(rules("tcp"), problem="it is broken")),
            "",
            (None, "its loaded policy is invalid"),
        ),
        # RDMA in the connection counts all the same.
        (report(), RDMA_ROW, ("rdma", CONNECTION)),
    ],
)
def test_what_is_asked_for(told, row, asked):
    found = requested_transport(connection(options=row), policy_of(told))
    assert found.transport == asked[0]
    assert found.by.startswith(asked[1])


def test_rules_are_not_for_posixfs():
    text = rules("require-rdma")
    force = policy_of(report(status=status(text), policy_text=text))
    assert force.policy != Policy()
    row = connection(type="posixfs", vfs_type="nfs")
    assert requested_transport(row, force).transport == "tcp"


def one(told, its=None, there=None):
    """Return the only cell of a host and a domain."""
    there = there or host()
    its = its or domain()
    matrix = verify(engine(there, domains=(its,)), [told], [there], [its])
    return matrix.cells[0][0]


def on(transport, policy=None, **more):
    return report(
        facts=facts(mount(EXPORT, transport)),
        status=status(policy),
        policy_text=policy,
        **more,
    )


@pytest.mark.parametrize(
    ("told", "row", "verdict", "text", "words"),
    [
        (on("rdma", rules("require-rdma")), "", OK, "rdma", "by rule 'nas'"),
        (on("rdma6", rules("require-rdma")), "", OK, "rdma", "by rule 'nas'"),
        (on("tcp"), "", OK, "tcp", f"by {CONNECTION}"),
        (on("tcp", rules("require-rdma")), "", FAIL, "tcp", "requests RDMA"),
        (on("tcp", rules("prefer-rdma")), "", FAIL, "tcp", "prefers RDMA"),
        (on("tcp"), RDMA_ROW, FAIL, "tcp", f"but {CONNECTION} requests RDMA"),
        (on("rdma", rules("tcp")), "", WARN, "rdma", "requests TCP"),
        # The policy is unknown: RDMA is proven all the same, TCP may be wrong.
        (replace(on("rdma"), status=None), "", OK, "rdma", "is unknown"),
        (replace(on("tcp"), status=None), "", UNKNOWN, "tcp", "is unknown"),
        (replace(on("tcp"), status=None), RDMA_ROW, FAIL, "tcp", "requests RDMA"),
        # No data is no proof.
        (report(problem="no answer"), "", UNKNOWN, "unknown", "no answer"),
        (report(facts=facts()), "", FAIL, "not mounted", "although the host is up"),
        (
            report(facts=replace(facts(), problems=("/proc/self/mountinfo: gone",))),
            "",
            UNKNOWN,
            "unknown",
            "mounts are unknown",
        ),
    ],
)
def test_cell(told, row, verdict, text, words):
    cell = one(told, domain(options=row))
    assert (cell.verdict, cell.text) == (verdict, text)
    assert words in cell.sentence
    if verdict == FAIL:
        assert cell.fix


def test_signals_that_disagree_prove_nothing():
    odd = replace(mount(EXPORT, "rdma"), protocol="tcp")
    cell = one(report(facts=facts(odd), status=status()), domain(options=RDMA_ROW))
    assert (cell.verdict, cell.text) == (UNKNOWN, "unproven")


@pytest.mark.parametrize(
    ("its", "there", "verdict"),
    [
        (domain(), host(status="maintenance"), NONE),
        (domain(), host(status=None), NONE),
        (domain(status="maintenance"), host(), NONE),
        (domain(type="iso"), host(), WARN),
        (domain(options=RDMA_ROW, type="iso"), host(), FAIL),
        (domain(status="inactive"), host(status="non_operational"), FAIL),
    ],
)
def test_domain_that_is_not_mounted(its, there, verdict):
    cell = one(report(facts=facts(), status=status()), its, there)
    assert (cell.verdict, cell.text) == (verdict, "not mounted")


def test_why_it_fell_back_is_told():
    text = rules("prefer-rdma")
    other = mount(f"{SERVER}:/exports/other", "tcp")
    told = replace(
        on("tcp", text), facts=facts(replace(mount(EXPORT, "tcp"), port=20049), other)
    )
    assert "/exports/other" in one(told).sentence


def test_hosts_of_another_data_center_have_nothing_to_show():
    there, its = host(), domain(data_center="d2")
    matrix = verify(engine(there, domains=(its,)), [], [there], [its])
    assert [cell.verdict for cell in matrix.cells[0]] == [NONE]
    assert matrix.worst == NONE


def test_host_that_nobody_asked_is_unknown():
    there, its = host(), domain()
    matrix = verify(engine(there, domains=(its,)), [], [there], [its])
    assert matrix.worst == UNKNOWN


def test_domain_in_two_data_centers_is_two_columns():
    east, west = domain(), domain(data_center="d2")
    matrix = verify(engine(host(), domains=(east, west)), [], [host()], [east, west])
    assert [column.name for column in matrix.columns] == [
        "data1 (dc1)",
        "data1 (empty)",
    ]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        (EXPORT, True),
        ("NFS1.example.com:/exports/data1", True),
        (f"{SERVER}:/exports/data11", False),
        ("nfs2.example.com:/exports/data1", False),
    ],
)
def test_mount_is_the_domains_by_its_source(source, found):
    export = nfs_export(connection())
    mounts = Mounts(facts(mount(source, "tcp")).nfs_mounts)
    assert (mounts.vdsms(export) is not None) == found


def test_ipv6_server_is_the_same_however_it_is_written():
    export = nfs_export(connection(address="[fd00:0::1]"))
    mounts = Mounts(facts(mount("[fd00::1]:/exports/data1", "rdma6")).nfs_mounts)
    assert mounts.vdsms(export)


def test_a_mount_by_hand_is_not_the_domains():
    other = replace(mount(EXPORT, "tcp"), mountpoint="/mnt")
    export = nfs_export(connection())
    found = Mounts(facts(other, mount(EXPORT, "rdma")).nfs_mounts).vdsms(export)
    assert found.protocol == "rdma"
    by_hand = replace(mount(EXPORT, "rdma"), mountpoint="/mnt")
    told = report(facts=facts(by_hand), status=status())
    used = transports_in_use(host(), told, [domain()])[0]
    assert (used.mounted, used.transport, used.cell.verdict) == (False, None, "fail")


def test_cm_id_is_part_of_the_proof():
    ready = mount(EXPORT, "rdma", address="10.0.0.1", port=20049)
    cm_id = CmId("rxe0", "CONNECT", "[rpcrdma]", None, "10.0.0.1:20049")
    told = report(facts=replace(facts(ready), cm_ids=(cm_id,)), status=status())
    found = transports_in_use(host(), told, [domain()])[0]
    assert (found.transport, len(found.review.proof.signals)) == ("rdma", 3)


def test_domains_without_a_transport_are_refused_by_name_and_left_out_else():
    block = domain("block1", storage_type="iscsi", connection=None)
    spare = domain("spare", data_center=None, status="unattached")
    site = engine(host(), domains=(domain(), block, spare))
    assert domains_to_verify(site, []) == [domain()]
    assert domains_to_verify(site, ["data1", "data1"]) == [domain()]
    with problem("domain-not-verifiable", "block1 is on iscsi", "spare is in") as wrong:
        domains_to_verify(site, ["data1", "block1", "spare"])
    assert wrong.type is NameProblem
    assert len(str(wrong.value).splitlines()) == 2


def with_port_down(told):
    [device] = told.facts.rdma_devices
    [port] = device.ports
    down = replace(device, ports=(replace(port, state="DOWN"),))
    return replace(told, facts=replace(told.facts, rdma_devices=(down,)))


def degraded(protocol="tcp", policy="prefer-rdma", mode="vdsmd", **more):
    """The report of a host that has mounted data1 over the wrong transport."""
    text = rules(policy)
    return report(
        facts=replace(facts(mount(EXPORT, protocol)), **more),
        status=status(text, mode=mode),
        policy_text=text,
    )


FIXES = [
    (degraded(), domain(), host(), "ovirt-rdma domain heal data1"),
    (degraded(), domain(), host(status="maintenance"), "put the host into"),
    (degraded(), domain(), host(status="non_operational"), "put the host into"),
    (degraded(), domain(status="inactive"), host(), "put the host into"),
    (
        degraded(),
        domain(hosted_engine=True),
        host(),
        "put the host into maintenance in the engine, reboot",
    ),
    (with_port_down(degraded()), domain(), host(), "first, on the host: "),
    # Stock VDSM mounts over TCP what our class has mounted over RDMA.
    (
        degraded("rdma", mode=None),
        domain(),
        host(),
        "on the host: ovirt-rdma-host enable --restart-vdsmd",
    ),
    (degraded("rdma", "tcp"), domain(), host(), "put the host into"),
    (degraded("rdma", "tcp", None), domain(), host(), "put the host into"),
]


@pytest.mark.parametrize(("told", "its", "there", "start"), FIXES)
def test_the_fix_of_a_wrong_transport_is_one_that_mends_it(told, its, there, start):
    """``domain heal`` is a fix only where heal plans to remount that host."""
    cell = one(told, its, there)
    assert cell.verdict in (FAIL, WARN)
    assert cell.fix.startswith(start)
    plan = plan_heal(engine(there, domains=(its,)), "d1", [its], [told])
    healed = [record.name for record in plan.state.hosts]
    assert (healed == [there.name]) == cell.fix.startswith("ovirt-rdma domain heal")
    if its.hosted_engine:
        assert "reboot it and activate it" in str(plan.warnings[0])
