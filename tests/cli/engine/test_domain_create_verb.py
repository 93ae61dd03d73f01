# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest
from engine_double import EngineDouble, sample_world
from engine_double.faults import AnswerLost, Conflict, Status
from support.engine.engine_command_line import run_engine
from support.engine.engine_door import DoubleDoor

from ovirt_rdma.engine_sdk_tools import automation
from ovirt_rdma.engine_sdk_tools.domains import create

pytestmark = pytest.mark.hypervisor

WORDS = (
    "domain",
    "create",
    "new",
    "--export",
    "nfs2.example.com:/exports/new",
    "--datacenter",
    "dc1",
)


@pytest.fixture
def double():
    with EngineDouble(sample_world(hosts=3, addon=True)) as made:
        yield made
        assert made.strict_errors == []


@pytest.fixture
def run(capsys, double):
    door = DoubleDoor(double.world)
    return lambda *more: run_engine(capsys, double, door, *WORDS, *more)


def names(double):
    return [domain.name for domain in double.world.domains.values()]


def test_it_shows_the_proof_of_each_host(run, double):
    result = run("--assume-yes")

    assert result.code == 0
    assert "Domain new (nfs2.example.com:/exports/new) is active." in result.out
    assert [line.split()[:2] for line in result.out.splitlines()[2:5]] == [
        ["host01", "rdma"],
        ["host02", "rdma"],
        ["host03", "rdma"],
    ]
    assert result.out.endswith("next: ovirt-rdma domain verify new\n")


def test_a_document(run, double):
    document = run("--assume-yes", "-o", "json").document

    assert document["kind"] == "domain-create"
    assert document["id"] == double.world.domain("new").id
    assert document["mount_options"] == "proto=rdma,port=20049"
    assert [host["transport"] for host in document["hosts"]] == ["rdma"] * 3
    # What is proven leaves nothing open.
    assert [host["mounted"] for host in document["hosts"]] == [True] * 3
    assert (document["not_verified"], document["problems"]) == ([], [])


def test_dry_run_changes_nothing_and_shows_the_calls(run, double):
    result = run("--dry-run")

    assert result.code == 0
    assert "POST storageconnections" in result.out.replace("/s", "s")
    assert "<mount_options>proto=rdma,port=20049</mount_options>" in result.out
    assert double.changes() == []


def test_a_job_of_the_engine_and_its_end(run, double):
    run("--assume-yes")

    seen = [(s.method, s.path.split("/")[1]) for s in double.changes()]
    assert seen[0] == ("POST", "jobs")
    said = [e.description for e in double.world.log.events]
    assert said[-1] == "ovirt-rdma: create domain new: done"


def test_without_a_job(run, double):
    run("--assume-yes", "--no-job")

    assert not any(s.path.startswith("/jobs") for s in double.changes())


def test_a_second_run_has_nothing_to_do(run, double):
    run("--assume-yes")
    before = len(double.changes())

    result = run()

    assert result.code == 0
    assert "nothing to do" in result.out
    assert len(double.changes()) == before


def test_checks_that_fail_are_a_line_each(run, double):
    double.world.host("host02").rdma_ready = False

    result = run("--assume-yes", "--mount-options", "hard,soft")

    result.refused(3, "hard and soft contradict each other", "host02 is not ready")
    assert names(double) == ["data1", "data2"]


def test_what_failed_is_taken_back(run, double):
    double.fail_next("POST", "/datacenters/", Conflict("Cannot attach Storage."))

    result = run("--assume-yes")

    result.refused(6, "Cannot attach Storage", "rolled back: removing the domain new")
    assert names(double) == ["data1", "data2"]
    failed = [
        e
        for e in double.world.log.events
        if "create domain new failed" in (e.description or "")
    ]
    assert failed[0].severity == "error"


def last_event(double):
    events = [e for e in double.world.log.events if "create domain" in e.description]
    return events[-1].severity, events[-1].description.rpartition("ovirt-rdma: ")[2]


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (False, "was attached; that could not be verified"),
        (True, "may have been attached; that could not be verified"),
    ],
)
def test_an_engine_that_cannot_be_read_is_no_success(run, double, lost, said):
    """In the engine's own log neither; after a lost answer nobody knows more."""
    if lost:
        double.fail_next("POST", "^/datacenters/.*/storagedomains$", AnswerLost())
    double.fail_next("GET", "^/datacenters/.*/storagedomains/", Status(500))

    result = run("--assume-yes")

    assert result.code == 5
    assert f"Domain new (nfs2.example.com:/exports/new) {said}." in result.out
    assert last_event(double) == ("error", f"create domain new: it {said}")


def test_another_transport_is_no_success_in_the_engines_log(run, double, monkeypatch):
    def other(true):
        def used(host, report, domains):
            found = true(host, report, domains)
            wrong = host.name == "host02"
            return [replace(f, transport="tcp") if wrong else f for f in found]

        return used

    monkeypatch.setattr(create, "transports_in_use", other(create.transports_in_use))

    assert run("--assume-yes").code == 5
    said = "create domain new: it is active; not as requested on host02"
    assert last_event(double) == ("error", said)


def test_a_success_is_one_in_the_engines_log_too(run, double):
    assert run("--assume-yes").code == 0
    assert last_event(double) == ("normal", "create domain new: done")


def test_ctrl_c_says_how_to_go_on(run, double):
    with mock.patch.object(automation, "create_domain", side_effect=KeyboardInterrupt):
        result = run("--assume-yes")

    assert result.code == 130
    assert "was interrupted; repeat it to continue" in result.err


def test_without_a_way_to_hosts_it_says_that_nobody_knows(capsys, double):
    result = run_engine(capsys, double, None, *WORDS, "--assume-yes")

    assert result.code == 0
    assert "host01  unknown" in result.out
    assert "Not verified on host01, host02, host03: " in result.out
    assert "after about 5 minutes (StorageDomainFailureTimeoutInMinutes)" in result.out
    assert "warning: no report from host01, host02, host03" in result.err


def test_a_document_says_so_too(capsys, double):
    words = (*WORDS, "--assume-yes", "-o", "json")
    document = run_engine(capsys, double, None, *words).document

    assert document["not_verified"] == ["host01", "host02", "host03"]
    assert [host["mounted"] for host in document["hosts"]] == [None] * 3
    assert "StorageDomainFailureTimeoutInMinutes" in document["problems"][0]


def test_a_host_that_cannot_mount_it_is_exit_code_6(capsys, double):
    """Without access to hosts, the engine's events name the host."""
    for host in double.world.hosts.values():
        host.addon = False
    double.world.host("host03").rdma_ready = False

    result = run_engine(capsys, double, None, *WORDS, "--assume-yes")

    result.refused(
        6, "host03 could not mount nfs2.example.com:/exports/new", "rolled back"
    )
    assert names(double) == ["data1", "data2"]


def test_dumps_of_hosts_prove_nothing_of_a_new_domain(capsys, double, tmp_path):
    words = (*WORDS, "--facts-dir", str(tmp_path), "--assume-yes")
    result = run_engine(capsys, double, None, *words)

    assert result.code == 0
    assert "host01, host02, host03: the host was not asked" in result.out
