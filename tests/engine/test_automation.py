# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the names for automation: locks, records and declined plans.

tests/engine/test_engine_api_docs.py runs the examples of their page.
"""

from __future__ import annotations

import pytest
from engine_double import EngineDouble, sample_world
from engine_double.faults import ServiceUnavailableHtml
from engine_double.hosts import our_hooks
from engine_double.jobs import jobs_of
from support.engine.engine_command_line import Clock, open_session
from support.engine.engine_door import DoubleDoor
from support.problems import problem

from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.automation import RdmaEngine, connect
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder
from ovirt_rdma.engine_sdk_tools.domains.create import DomainRequest
from ovirt_rdma.engine_sdk_tools.job import OtherRun
from ovirt_rdma.engine_sdk_tools.model import ChecksFailed, Refused, problems_of
from ovirt_rdma.engine_sdk_tools.networks.create import NetworkRequest

pytestmark = pytest.mark.engine

EXPORT = "nfs1.example.com:/exports/data1"


class Site:
    """A double with its hosts, and the API over it."""

    def __init__(self, double, folder):
        self.double, self.world = double, double.world
        self.door = DoubleDoor(double.world)
        self.states = StateFolder(folder)
        self.rdma = self.on_machine(self.states)

    def on_machine(self, states, door=None):
        session = open_session(self.double, Clock())
        return RdmaEngine(session, door or self.door, states)

    def transports(self):
        return [host.mounts.get(EXPORT) for host in self.world.hosts.values()]


@pytest.fixture
def site(tmp_path):
    world = sample_world(hosts=3, domains=("data1",), addon=True)
    with EngineDouble(world) as double:
        made = Site(double, tmp_path / "states")
        with made.rdma:
            yield made
        assert double.strict_errors == []


def test_a_later_host_and_a_revert_to_the_state_before_the_first(site):
    """A program that converts again keeps the baseline, as the command does."""
    late = site.world.hosts.pop(site.world.host("host03").id)
    assert site.rdma.convert("data1").stage == "converted"
    site.world.hosts[late.id] = late
    assert site.rdma.convert("data1").stage == "converted"
    assert site.transports() == ["rdma"] * 3
    # Nothing to do.
    before = len(site.double.changes())
    assert site.rdma.convert("data1").stage == "converted"
    assert len(site.double.changes()) == before
    assert site.rdma.revert("data1").stage == "reverted"
    assert site.transports() == ["tcp"] * 3
    assert {host.policy_text for host in site.world.hosts.values()} == {""}
    assert site.rdma.revert("data1").stage == "reverted"


def test_each_further_host_costs_at_most_forty_requests(tmp_path):
    """For twice the hosts there are not four times the requests, and an engine gets
    less than ten thousand for 250 of them.
    """
    sent = {}
    for hosts in (2, 4, 8):
        world = sample_world(hosts=hosts, domains=("data1",), addon=True)
        with EngineDouble(world) as double:
            site = Site(double, tmp_path / str(hosts))
            with site.rdma as rdma:
                assert rdma.convert("data1").stage == "converted"
            sent[hosts] = len(double.requests)
        # Ansible is started for the plan, and twice a host; a second each.
        assert len(site.door.asked) == 2 * hosts + 1
    assert sent[4] - sent[2] <= 2 * 40
    assert sent[8] - sent[4] <= 4 * 40
    assert sent[2] <= 160


@pytest.mark.parametrize("hosts", [20, pytest.param(250, marks=pytest.mark.faults)])
def test_requests_of_a_large_fleet_are_linear(tmp_path, hosts):
    """250 hosts: 8,327 requests, and ten minutes, which the double takes for most."""
    world = sample_world(hosts=hosts, domains=("data1",), addon=True)
    with EngineDouble(world) as double:
        site = Site(double, tmp_path / "states")
        with site.rdma as rdma:
            assert rdma.convert("data1").stage == "converted"
        assert len(double.requests) <= 40 * hosts + 80
    assert len(site.door.asked) <= 2 * hosts + 1 + hosts // 20


def test_there_and_back_and_a_revert_to_the_state_before_the_first(site):
    row = site.world.connection_of("data1")
    row.mount_options = "soft"
    for to in ("rdma", "tcp", "rdma", "tcp"):
        assert site.rdma.convert("data1", to=to).stage == "converted"
    assert row.mount_options == "soft"
    assert "transport: tcp" in site.world.host("host01").policy_text
    assert site.rdma.revert("data1").stage == "reverted"
    assert row.mount_options == "soft"
    assert {host.policy_text for host in site.world.hosts.values()} == {""}
    # That state is over with the revert: the next one records its own.
    row.mount_options = "hard"
    assert site.rdma.convert("data1").stage == "converted"
    assert site.rdma.revert("data1").stage == "reverted"
    assert row.mount_options == "hard"


def test_one_of_two_to_the_other_transport_would_lose_the_record_of_both(tmp_path):
    world = sample_world(hosts=2, domains=("data1", "data2"), addon=True)
    world.connection_of("data2").nfs_version = "v4_1"
    with EngineDouble(world) as double:
        site = Site(double, tmp_path / "states")
        with site.rdma as rdma:
            assert rdma.convert("data1", "data2").stage == "converted"
            for name, other in (("data1", "data2"), ("data2", "data1")):
                with problem("refused", "data1, data2 were converted together") as said:
                    rdma.convert(name, to="tcp")
                assert f"name {other} too" in said.value.fix
            # In the same direction the other one is included.
            assert rdma.convert("data1").stage == "converted"
            assert rdma.convert("data1", "data2", to="tcp").stage == "converted"
            assert rdma.revert("data2").stage == "reverted"
    assert {host.policy_text for host in world.hosts.values()} == {""}


def test_one_that_stopped_is_resumed_and_others_are_kept_off(site, tmp_path):
    site.door.fail_push["host03"] = "the disk is full"
    stopped = site.rdma.convert("data1")
    assert stopped.stage == "stopped"
    assert "the disk is full" in stopped.why
    # On another machine the open task of the engine says so.
    with site.on_machine(StateFolder(tmp_path / "elsewhere")) as other:
        with pytest.raises(OtherRun, match="open task"):
            other.convert("data1")
        with pytest.raises(Refused):
            other.revert("data1")
    with problem("refused", "a conversion of data1 to rdma is not complete"):
        site.rdma.convert("data1", to="tcp")
    site.door.fail_push.clear()
    assert site.rdma.convert("data1").stage == "converted"
    assert {job.status for job in jobs_of(site.world).values()} == {"finished"}


def test_what_is_declined_changes_nothing(site):
    plans = []

    def no(plan):
        plans.append(plan)
        return False

    rdma = site.rdma
    assert rdma.convert("data1", approve=no) is None
    assert rdma.push_policy("version: 1\n", approve=no) is None
    assert rdma.create_network(NetworkRequest("storage", "dc1"), approve=no) is None
    request = DomainRequest("data2", "nfs2.example.com:/exports/data2", "dc1")
    assert rdma.create_domain(request, approve=no) is None
    assert len(plans) == 4
    assert site.double.changes() == []
    made = rdma.create_domain(request)
    assert {host.transport for host in made.hosts} == {"rdma"}


def test_checks_come_before_the_plan(site):
    site.world.host("host02").rdma_ready = False
    with pytest.raises(ChecksFailed, match="host02"):
        site.rdma.convert("data1", approve=lambda _: pytest.fail("asked"))
    blind = RdmaEngine(site.rdma.session, None, site.states)
    with pytest.raises(Refused, match="no access"):
        blind.convert("data1")


def test_a_domain_that_is_in_no_data_center(site):
    site.world.domain("data1").data_center = None
    for act in (site.rdma.convert, site.rdma.revert):
        with problem("refused", "data1 is not attached to a data center"):
            act("data1")
    assert site.double.changes() == []


def test_a_push_that_fails_on_a_host_is_seen_in_the_task(site):
    site.door.fail_push["host02"] = "the disk is full"
    result = site.rdma.push_policy("version: 1\n")
    assert result.pushed["host02"].problem == "the disk is full"
    (event,) = [e for e in site.world.log.events if e.origin == "ovirt-rdma"]
    assert event.description == "ovirt-rdma: push a policy to 3 hosts: failed on host02"


def test_without_the_name_of_an_engine(monkeypatch):
    monkeypatch.delenv("OVIRT_URL", raising=False)
    with problem("engine-not-configured", "no engine is named"):
        connect()


def test_hosts_that_are_well_are_ok(site):
    for host in site.world.hosts.values():
        host.policy_text = "version: 1\n"
        host.hooks = our_hooks()
    matrix = site.rdma.check_hosts()
    assert matrix.worst == "ok", problems_of(matrix)


def test_verify_asks_only_the_hosts_of_the_domains(site, tmp_path):
    world = sample_world(hosts=3, domains=("data1",), default_data_center=True)
    (other,) = (c.id for c in world.clusters.values() if c.name == "Default")
    world.host("host03").cluster = other
    with EngineDouble(world) as double:
        there = Site(double, tmp_path / "elsewhere")
        with there.rdma:
            matrix = there.rdma.verify("data1")
    assert [row.name for row in matrix.rows] == ["host01", "host02"]


def test_a_domain_that_was_removed_is_reverted(site):
    assert site.rdma.convert("data1").stage == "converted"
    domain = site.world.domain("data1")
    del site.world.connections[domain.connection]
    del site.world.domains[domain.id]
    for host in site.world.hosts.values():
        host.mounts.clear()
    assert site.rdma.revert("data1").stage == "reverted"
    assert {host.policy_text for host in site.world.hosts.values()} == {""}


def test_warnings_reach_a_program_that_approves_without_looking(site):
    site.world.host("host03").status = "maintenance"
    site.world.host("host03").mounts.clear()
    site.rdma.convert("data1")
    notes = site.rdma.session.listener.notes
    assert any(n.startswith("warning: not up: host03") for n in notes), notes


def test_ctrl_c_does_not_wait_for_an_engine_that_is_away(site, monkeypatch):
    """Neither in a conversion nor in a task."""

    def interrupted(self, call, **words):
        site.double.fail_next(
            "POST", "/jobs/[^/]*/end|/events", ServiceUnavailableHtml(), times=99
        )
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "perform", interrupted)
    session = site.rdma.session
    for act in (
        lambda: site.rdma.convert("data1"),
        lambda: site.rdma.create_network(NetworkRequest("storage", "dc1", 2044)),
    ):
        session.sleep.__self__.slept.clear()
        with pytest.raises(KeyboardInterrupt):
            act()
        assert session.sleep.__self__.slept == []
