# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from dataclasses import replace

import pytest
from engine_double.faults import AnswerLost, Conflict, DropConnection, Status
from support.engine.domain_making import (
    EXPORT,
    REQUEST,
    left,
    made,
    planned,
    with_add_on,
)
from support.engine.refusals import reason, refused_for

from ovirt_rdma.engine_sdk_tools.api.request import Listener, wire_form
from ovirt_rdma.engine_sdk_tools.domains.create import create_domain
from ovirt_rdma.engine_sdk_tools.job import RolledBack
from ovirt_rdma.host.errors import Problem

pytestmark = pytest.mark.engine


def refused(session, id, *arguments, **changes):
    with refused_for(id, *arguments) as caught:
        planned(session, request=replace(REQUEST, **changes))
    return caught.value


def test_it_is_active_and_proven_over_rdma_on_all_hosts(session, double):
    result = made(session, with_add_on(double))

    domain = double.world.domain("new")
    row = double.world.connection_of("new")
    assert (domain.status, domain.id) == ("active", result.id)
    assert (row.nfs_version, row.mount_options) == ("v4_2", "proto=rdma,port=20049")
    assert [h.mounts[EXPORT] for h in double.world.hosts.values()] == ["rdma"] * 3
    assert [(h.host, h.transport) for h in result.hosts] == [
        ("host01", "rdma"),
        ("host02", "rdma"),
        ("host03", "rdma"),
    ]
    assert result.exit_code == 0


def test_what_is_shown_is_what_is_sent(session, double):
    plan = planned(session)

    create_domain(session, None, plan, Listener())

    shown = [wire_form(call) for call in plan.calls]
    row, domain = double.world.connection_of("new").id, double.world.domain("new").id
    bodies = [
        f.body.replace('"NEW"', f'"{row if n == 1 else domain}"')
        for n, f in enumerate(shown)
    ]
    sent = double.changes()
    assert [(s.method, s.path, s.body) for s in sent] == [
        (f.method, "/" + f.path.lstrip("/"), body) for f, body in zip(shown, bodies)
    ]


def test_a_second_run_has_nothing_to_do(session, double):
    first = made(session)
    before = len(double.changes())

    second = made(session)

    assert (second.id, second.made) == (first.id, False)
    assert len(double.changes()) == before


@pytest.mark.parametrize("step", range(3))
def test_a_run_that_was_killed_is_gone_on_with(session, double, step):
    plan = planned(session)
    row = session.perform(plan.connecting())
    if step > 0:
        domain = session.perform(plan.adding(row.id))
    if step > 1:
        session.perform(plan.attaching(domain.id))

    result = made(session)

    assert double.world.domain("new").status == "active"
    assert result.id == double.world.domain("new").id
    assert left(double) == (["new"], [EXPORT])


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("/storagedomains", Status(400, "Problem while trying to mount target")),
        ("/storagedomains", DropConnection()),
        ("/datacenters/.*/storagedomains", Conflict("Cannot attach Storage.")),
    ],
)
def test_what_was_made_is_taken_back_where_a_part_fails(session, double, path, fault):
    plan = planned(session)
    double.fail_next("POST", f"^{path}$", fault)

    with pytest.raises(RolledBack) as caught:
        create_domain(session, None, plan, Listener())

    assert left(double) == ([], [])
    assert "rolled back: " in str(caught.value)
    assert "new" not in [d.name for d in double.world.domains.values()]
    assert double.world.export(EXPORT).domain is None


@pytest.mark.parametrize(
    "path", ["^/storageconnections$", "^/storagedomains$", "^/datacenters/.*domains$"]
)
def test_an_answer_that_is_lost_is_looked_up(session, double, path):
    double.fail_next("POST", path, AnswerLost())

    result = made(session)

    assert double.world.domain("new").status == "active"
    assert result.id == double.world.domain("new").id


def test_what_cannot_be_taken_back_is_said(session, double):
    plan = planned(session)
    double.fail_next("POST", "/datacenters/.*/storagedomains$", Conflict("No."))
    double.fail_next("DELETE", "/storagedomains/", Conflict("Not now."))

    with pytest.raises(Problem) as caught:
        create_domain(session, None, plan, Listener())

    assert caught.value.exit_code == 1
    assert "says: Not now" in str(caught.value)
    domain = double.world.domain("new").id
    assert f"the folder {domain} below /exports/new" in caught.value.fix
    # The objects that it would have removed later are left too: the engine needs them.
    assert left(double) == (["new"], [EXPORT])


def test_a_host_that_has_it_over_tcp_is_named(session, double):
    door = with_add_on(double)
    text = (
        "version: 1\nnfs:\n  rules:\n    - server: nfs2.example.com\n"
        "      transport: prefer-rdma\n"
    )
    for host in double.world.hosts.values():
        host.policy_text = text
    plan = planned(session, door)
    double.world.host("host02").rdma_ready = False

    result = create_domain(session, door, plan, Listener())

    assert [h.transport for h in result.hosts] == ["rdma", "tcp", "rdma"]
    assert result.exit_code == 5
    assert double.world.domain("new").status == "active"


@pytest.mark.parametrize(
    ("mounted", "said"), [(False, "not empty"), (True, "validation failure (HTTP 500)")]
)
def test_an_export_that_holds_a_domain_is_not_imported(session, double, mounted, said):
    """The engine would import it, and the rollback would format it."""
    double.world.export(EXPORT).domain = "11111111-1111-4111-8111-111111111111"
    for host in double.world.hosts.values() if mounted else ():
        host.mounts[EXPORT] = "tcp"

    with pytest.raises(Problem) as caught:
        made(session)

    assert said in str(caught.value)
    assert left(double) == ([], [])
    assert double.world.export(EXPORT).domain is not None


def test_the_spm_creates_it(session, double):
    double.world.host("host01").spm = False
    double.world.host("host03").spm = True

    assert planned(session).host.name == "host03"


def test_an_ipv6_export_gets_brackets_and_rdma6(session, double):
    made(session, request=replace(REQUEST, export="[fd00::1]:/exports/new"))

    row = double.world.connection_of("new")
    assert (row.address, row.path) == ("[fd00::1]", "/exports/new")
    assert row.mount_options == "proto=rdma6,port=20049"


def test_tcp_adds_no_options(session, double):
    made(session, request=replace(REQUEST, transport="tcp", mount_options="nconnect=4"))

    assert double.world.connection_of("new").mount_options == "nconnect=4"


@pytest.mark.parametrize(
    ("changes", "id", "arguments"),
    [
        ({"export": "nfs2:exports"}, "export-invalid", ["'nfs2:exports'"]),
        ({"export": "fd00::1:/x"}, "export-invalid", ["[fd00::1]:/x"]),
        ({"export": "[fe80::1%ib0]:/x"}, "export-address-zone", ["'[fe80::1%ib0]:/x'"]),
        ({"export": "127.0.0.1:/x"}, "export-address-reserved", ["'127.0.0.1:/x'"]),
        ({"export": "0.0.0.0:/x"}, "export-address-reserved", ["'0.0.0.0:/x'"]),
        ({"export": "[fe80::1]:/x"}, "export-address-reserved", ["'[fe80::1]:/x'"]),
        ({"export": "my_nas:/x"}, "export-server-refused", ["'my_nas:/x'", "letters"]),
        ({"export": "nas:/x:y"}, "export-path-refused", ["'nas:/x:y'", "':'"]),
        ({"export": "nas:/x y"}, "export-characters-refused", ["'nas:/x y'"]),
        ({"export": "nas:/" + "x" * 250}, "export-too-long", [255, 250]),
        ({"export": "nfs1.example.com:/exports/data1"}, "export-in-use", ["data1"]),
        ({"export": "NFS1.example.com:/exports/data1/"}, "export-in-use", ["data1"]),
        ({"name": "data1"}, "domain-exists", ["/exports/data1, no options)"]),
        ({"name": "with blank"}, "domain-name-characters", ["not ' '"]),
        ({"name": "x" * 51}, "domain-name-length", [50, 51]),
        ({"nfs_version": "auto"}, "nfs-version-unknown", ["3, 4, 4.0, 4.1, 4.2"]),
        ({"mount_options": "timeo=30"}, "mount-options-refused", ["timeo"]),
        (
            {"mount_options": "proto=tcp"},
            "mount-options-other-transport",
            ["tcp", "RDMA"],
        ),
        ({"mount_options": "hard,soft"}, "mount-options-conflict", ["hard", "soft"]),
        ({"mount_options": "port=0"}, "mount-options-port-zero", ["port=20049"]),
        ({"mount_options": "port=x"}, "mount-option-port-invalid", ["port=x"]),
        (
            {"mount_options": "proto=rdma6"},
            "mount-options-other-netid",
            ["=rdma,", "rdma6"],
        ),
        ({"mount_options": "a b"}, "mount-options-with-blank", []),
        ({"mount_options": "x" * 490}, "mount-options-refused", [500]),
        (
            {"mount_options": "rdma", "transport": "tcp"},
            "mount-options-other-transport",
            ["TCP"],
        ),
        (
            {"mount_options": "port=20049", "transport": "tcp"},
            "mount-options-other-transport",
            [20049, "TCP"],
        ),
    ],
)
def test_refusals(session, double, changes, id, arguments):
    error = refused(session, id, *arguments, **changes)

    assert error.exit_code == 3
    assert double.changes() == []


def test_all_offenders_are_named_at_once(session, double):
    for host in double.world.hosts.values():
        host.status = "maintenance"
    double.world.data_center("dc1").status = "maintenance"

    error = refused(session, "domain-name-characters", "not ' '", name="a b")

    reason(error.reasons, "data-center-status", "dc1", "in maintenance")
    reason(error.reasons, "no-host-up", "dc1")


def test_hosts_that_are_not_ready_are_offenders(session, double):
    door = with_add_on(double)
    double.world.host("host02").rdma_ready = False

    with refused_for("host-not-ready", "host02"):
        planned(session, door)


def test_a_policy_that_says_otherwise_is_an_offender(session, double):
    door = with_add_on(double)
    double.world.host("host02").policy_text = (
        "version: 1\nnfs:\n  rules:\n    - name: old\n      server: nfs2.example.com\n"
        "      transport: tcp\n"
    )

    with refused_for("policy-other-transport", "host02: rule 'old'", "tcp", "rdma"):
        planned(session, door)


def test_a_connection_without_a_domain_that_is_another(session, double):
    plan = planned(session)
    session.perform(replace(plan, row=replace(plan.row, mount_options="")).connecting())

    (row,) = [c for c in double.world.connections.values() if c.export == EXPORT]
    refused(session, "connection-left-over", EXPORT, "v4_2", f"(id {row.id})")


def test_silence_is_a_warning(session):
    assert "host01, host02, host03" in planned(session).warnings[0]
