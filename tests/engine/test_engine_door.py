# SPDX-License-Identifier: GPL-2.0-or-later
"""Test that the reports of the double's hosts have the form of those of real hosts."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from engine_double import EngineDouble, SimNic, sample_world
from support.command_line import run
from support.engine.engine_door import (
    DoubleDoor,
    HttpDoor,
    serve_hosts,
    status_document,
)
from support.engine.told_hosts import rules

from ovirt_rdma.host.facts import model
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.registry import decide
from ovirt_rdma.storage.mounts import review_all
from ovirt_rdma.storage.readiness import READY, local_steps

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]

DATA1 = "nfs1.example.com:/exports/data1"
PREFER = rules("prefer-rdma", "/exports/*")


@pytest.fixture
def world():
    return sample_world(hosts=2, addon=True)


def asked(world, name="host01"):
    return DoubleDoor(world).reports([SimpleNamespace(name=name)])[name]


@pytest.mark.parametrize("transport", ["rdma", "tcp"])
def test_mounts_are_proven_as_the_kernel_shows_them(world, transport):
    host = world.host("host01")
    host.mounts = {DATA1: transport, "[fd00::1]:/exports/my_data": transport}
    facts = asked(world).facts
    proofs = [one.proof for one in review_all(facts, Policy())]
    assert [proof.transport for proof in proofs] == [transport] * 2
    sources = {signal.source for signal in proofs[0].signals}
    assert "mountstats" in sources and "mountinfo" in sources
    assert ("rdma cm_id" in sources) is (transport == "rdma")
    places = [mount.mountpoint.rsplit("/", 1)[1] for mount in facts.nfs_mounts]
    assert places == ["nfs1.example.com:_exports_data1", "[fd00::1]:_exports_my__data"]


def test_a_prefer_rule_that_got_tcp_is_degraded_and_says_why(world):
    host = world.host("host01")
    host.policy_text = PREFER
    policy = parse_policy(PREFER, "policy.yaml").policy
    one = review_all(asked(world).facts, policy)[0]
    assert (one.verdict, one.reason) == (
        "degraded",
        "the server did not answer over RDMA",
    )


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("address", [None, "10.0.0.7"])
def test_facts_say_whether_a_host_is_ready_for_rdma(world, ready, address):
    host = world.host("host01")
    host.rdma_ready = ready
    host.nic("ib0").address, host.nic("ib0").netmask = address, "255.255.255.0"
    facts = asked(world).facts
    verdicts = {step.verdict for step in local_steps(facts, facts.routes[0])}
    assert (verdicts == {READY}) is ready
    # Nothing else is wrong with the host, as the rules see it.
    wrong = {f.rule for f in decide(facts, Policy()).findings if f.verdict == "FAIL"}
    assert wrong == (set() if ready else wrong & {"IB-PORT-01"})


def test_facts_are_a_dump_that_can_be_read_again(world):
    host = world.host("host01")
    ib1 = SimNic("ib1", "ib1", "80:" + host.nic("ib0").mac[3:-2] + "f1")
    ib1.infiniband = True
    bond = SimNic("bond0", "bond0", ib1.mac, ports=("ib0", "ib1"), bond_mode="1")
    bond.infiniband = True
    host.nics += [ib1, bond]
    facts = asked(world).facts
    again = json.loads(model.to_json(facts))
    assert model.from_json_dict(again, "again") == facts
    names = {netdev.name: netdev for netdev in facts.netdevs}
    assert names["bond0"].lowers == ("ib0", "ib1")
    assert names["ib1"].uppers == ("bond0",)
    assert facts.hostname == "host01.example.com"


def test_the_status_document_has_the_form_of_the_command(world, capsys, tmp_path):
    real = run(capsys, "status", "--root", str(tmp_path), "-o", "json").document
    ours = status_document(world.host("host01"))

    def shape(data):
        return {k: shape(v) if isinstance(v, dict) else None for k, v in data.items()}

    running = ours["running"]
    assert set(running) == {"pid", "program", "because", "version"}
    # Neither vdsmd nor the daemon runs here.
    ours["versions"].update(vdsmd=None, daemon=None)
    assert shape({**ours, "running": None}) == shape(real)


def test_a_pushed_policy_is_loaded_and_changes_what_the_host_says(world):
    door, hosts = DoubleDoor(world), [SimpleNamespace(name="host01")]
    done = []
    pushed = door.push_policy(hosts, PREFER, done.append)["host01"]
    report = door.reports(hosts)["host01"]
    assert pushed.digest == report.policy_digest and pushed.digest.startswith("sha256:")
    assert pushed.file_digest == pushed.digest
    assert (report.policy_text, done) == (PREFER, ["host01"])
    taken = door.push_policy(hosts, None)["host01"]
    assert (taken.digest, taken.file_digest) == (None, None)
    assert door.reports(hosts)["host01"].policy_digest is None


def test_what_a_push_fails_for_is_said_and_nothing_is_changed(world):
    door, hosts = DoubleDoor(world), [SimpleNamespace(name="host01")]
    door.fail_push["host01"] = "the disk is full"
    assert door.push_policy(hosts, PREFER)["host01"].problem == "the disk is full"
    del door.fail_push["host01"]
    assert (
        "transport" in door.push_policy(hosts, "nfs: {rules: [{}]}")["host01"].problem
    )
    assert world.host("host01").policy_text == ""
    assert door.pushes == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [({"reachable": False}, "SSH"), ({"addon": False}, "ovirt-rdma-host is missing")],
)
def test_hosts_without_a_report_say_why(world, words, problem):
    host = world.host("host02")
    for name, value in words.items():
        setattr(host, name, value)
    report = asked(world, "host02")
    assert problem in report.problem and report.fix and report.facts is None
    pushed = DoubleDoor(world).push_policy([SimpleNamespace(name="host02")], PREFER)
    assert problem in pushed["host02"].problem


def test_a_host_with_the_package_alone_reports_and_has_nothing_enabled(world):
    host = world.host("host02")
    host.addon, host.more["package"] = False, True
    status = asked(world, "host02").status
    assert (status["enabled"]["mode"], status["running"]["program"]) == (None, "stock")


def test_the_same_over_http(world):
    here, hosts = DoubleDoor(world), [SimpleNamespace(name="host01")]
    world.host("host02").reachable = False
    with EngineDouble(world) as double:
        serve_hosts(double, here)
        there = HttpDoor(double.url)
        assert there.push_policy(hosts, PREFER) == DoubleDoor(
            sample_world(hosts=1, addon=True)
        ).push_policy(hosts, PREFER)
        hosts.append(SimpleNamespace(name="host02"))
        done = []
        assert there.reports(hosts, done.append) == here.reports(hosts)
        assert done == ["host01", "host02"]
        assert there.push_policy(hosts[1:], None)["host02"].problem
    assert world.host("host01").policy_text == PREFER
    # This is not part of the engine's API.
    assert double.requests == []
