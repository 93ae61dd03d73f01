# SPDX-License-Identifier: GPL-2.0-or-later
"""Run each verb with hosts that send hostile answers: it continues with the others."""

from __future__ import annotations

import io
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from engine_double import EngineDouble, sample_world
from support.engine.engine_command_line import run_engine
from support.engine.engine_door import DoubleDoor
from support.engine.host_deploy import make_collection
from support.engine.hostile_answers import HOSTILE, told
from support.engine.policy_module import load_action
from support.engine.told_hosts import rules

from ovirt_rdma.cli.engine import session as cli_session
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder
from ovirt_rdma.engine_sdk_tools.hosts.ansible import AnsibleHosts
from ovirt_rdma.engine_sdk_tools.hosts.ansible_run import FAILED, OK, HostOutcome
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.policy.load import PolicyFiles

pytestmark = [pytest.mark.engine, pytest.mark.hypervisor]

GOOD = ("host01", "host02")
BAD = tuple(f"host{n:02}" for n in range(3, 3 + len(HOSTILE)))
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBlO9k2T9OTp5xF8WmyGmq7cXbyCcGEZc3X5zC0b5nBB"
DATA1 = "nfs1.example.com:/exports/data1"
POLICY = "version: 1\n"
PREFER = rules("prefer-rdma", "/exports/data1")


class Fleet:
    """The real access to hosts, with a double of Ansible: a host answers correctly, or
    with the answer of HOSTILE that ``hostile`` has for it.
    """

    def __init__(self, world):
        self.world = world
        self.double = DoubleDoor(world)
        self.hostile: dict[str, str] = {}
        # The hosts become hostile after this number of runs of Ansible.
        self.later = 0

    def reports(self, hosts, done=None):
        return AnsibleHosts(run=self.run).reports(_with_key(hosts), done)

    def push_policy(self, hosts, policy):
        return AnsibleHosts(run=self.run).push_policy(_with_key(hosts), policy)

    def run(self, order, folder):
        self.later -= 1
        by_address = {h.address: h for h in self.world.hosts.values()}
        for alias, variables in order.inventory["all"]["hosts"].items():
            host = by_address[variables["ansible_host"]]
            asked = Host(host.id, host.name, host.address, host.cluster)
            if order.playbook == "push_policy.yml":
                files = Path(order.variables["ovirt_rdma_policy"])
                yield self._pushed(alias, asked, files)
            else:
                yield HostOutcome(alias, OK, self._answer(asked, host))

    def _answer(self, asked, sim):
        report = self.double.reports([asked])[sim.name]
        facts, status = model.to_json_dict(report.facts), report.status
        # The drop-ins are in the status, as those of a host are.
        file = report.policy_text
        if sim.name in self.hostile and self.later < 0:
            made = HOSTILE[self.hostile[sim.name]]
            return made(facts, status, file or "")
        return told(facts, status, file)

    def _pushed(self, alias, asked, source):
        content = load_action()._read(source)
        policy = PolicyFiles(content["policy.yaml"], content["policy.d"] or {})
        whole = content["policy.d"] is not None
        pushed = self.double.push_policy([asked], policy if whole else policy.file)
        if asked.name in self.hostile and asked.name in ILL and self.later < 0:
            odd = ODD_RESULTS[BAD.index(asked.name) % len(ODD_RESULTS)]
            return HostOutcome(alias, *odd)
        result = asdict(pushed[asked.name])
        # Of a host without a policy the double has none.
        empty = {n: result[n] or "sha256:0" for n in ("digest", "file_digest")}
        return HostOutcome(alias, OK, "", {**result, **empty})


# What a host may return for the result of a module.
ODD_RESULTS = (
    (OK, "", {"digest": 1, "file_digest": 1}),
    (OK, "", {"digest": ["sha256:1"]}),
    (OK, "", {"digest": {"sha256": "1"}, "file_digest": "sha256:1"}),
    (OK, "", {}),
    (OK, "", {"digest": "sha256:1", "file_digest": "sha256:1"}),
    (FAILED, "", {"id": 5, "msg": ["x"]}),
    (FAILED, "x", {"id": "x", "msg": "x" * 16_000_000}),
    (FAILED, "MODULE FAILURE\n" + "Host key for " * 2_000, {}),
    (FAILED, "x" * 1_000_000, {"module_stdout": "x" * 1_000_000}),
    (FAILED, "", {}),
)


def _with_key(hosts):
    return [replace(host, public_key=KEY) for host in hosts]


@pytest.fixture
def fleet(capsys, tmp_path, monkeypatch):
    """Two good hosts, and one for each hostile answer; ``run`` runs a verb."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    states = tmp_path / "states"
    monkeypatch.setattr(cli_session, "conversion_states", lambda: StateFolder(states))
    (tmp_path / "policy.yaml").write_text(PREFER)
    make_collection(tmp_path / "collections")
    monkeypatch.setenv("OVIRT_RDMA_COLLECTIONS", str(tmp_path / "collections"))
    world = sample_world(
        hosts=len(GOOD) + len(BAD), domains=("data1",), addon=True, iscsi=True
    )
    for host in world.hosts.values():
        host.policy_text = POLICY
    made = Fleet(world)
    with EngineDouble(world) as double:

        def run(*words, honest=False):
            made.later = made.later if words[1] == "convert" else 0
            made.hostile = {} if honest else dict(zip(BAD, HOSTILE))
            result = run_engine(capsys, double, made, *words)
            assert double.strict_errors == []
            assert "bug" not in result.out + result.err
            return result

        made.run_verb = run
        yield made


# A host with 4,000 mounts is well. Of these nobody knows facts, status or policy.
WELL = dict(zip(HOSTILE, BAD))["4,000 mounts"]
ILL = tuple(name for name in BAD if name != WELL)
WITHOUT_FACTS = tuple(
    dict(zip(HOSTILE, BAD))[answer]
    for answer in (
        "exit status of 5000 digits",
        "exit status in other digits",
        "exit status -1",
        "age of 400 digits",
        "version nested 900 deep",
        "a bomb of 50 MB",
        "bombs under many names",
        "nothing at all",
        "words only",
    )
)


NO_STATUS = tuple(
    name
    for name, answer in zip(BAD, HOSTILE)
    if answer.startswith(
        ("digest", "policy is", "status", "enabled", "mode", "package")
    )
)


def rows(result, names):
    """Return the output for each host, by name."""
    document = result.document
    if document["kind"] == "matrix":
        shown = zip([row["name"] for row in document["rows"]], document["cells"])
    else:
        shown = [(one["host"], one) for one in document["hosts"]]
    found = {}
    for name, one in shown:
        found.setdefault(name, []).append(one)
    assert set(found) >= set(names)
    return {name: found[name] for name in names}


def transports(fleet, names):
    return {fleet.world.host(name).mounts.get(DATA1) for name in names}


@pytest.mark.parametrize(
    ("verb", "code"),
    [
        ("hosts check", 3),
        ("domain verify", 3),
        ("policy diff policy.yaml", 3),
    ],
)
def test_reading_verbs_show_the_others_as_they_are(fleet, verb, code):
    words = (*verb.split(), "-o", "json")
    before = rows(fleet.run_verb(*words, honest=True), (*GOOD, *BAD))
    result = fleet.run_verb(*words)
    assert result.code == code
    after = rows(result, (*GOOD, *BAD))
    assert {n: after[n] for n in GOOD} == {n: before[n] for n in GOOD}
    # A policy diff uses parts that are valid in some of these answers. A check does not
    # use the policy's text, nor a diff the facts.
    for name in WITHOUT_FACTS if verb != "policy diff policy.yaml" else NO_STATUS:
        assert after[name] != before[name]


CONVERT = ("domain", "convert", "data1", "--to", "rdma", "--rolling", "-y")


def test_convert_names_every_one_of_them_and_goes_without(fleet):
    refused = fleet.run_verb(*CONVERT)
    refused.refused(3)
    for name in ILL:
        assert name in refused.err
    for name in (*GOOD, WELL):
        assert name not in refused.err
    assert transports(fleet, (*GOOD, *BAD)) == {"tcp"}
    without = [word for name in ILL for word in ("--without", name)]
    assert fleet.run_verb(*CONVERT, *without).code == 0
    assert transports(fleet, (*GOOD, WELL)) == {"rdma"}
    assert transports(fleet, ILL) == {"tcp"}


def test_heal_mends_the_others(fleet):
    for host in fleet.world.hosts.values():
        host.policy_text = PREFER
    result = fleet.run_verb("domain", "heal", "-y")
    assert result.code == 3
    assert transports(fleet, (*GOOD, WELL)) == {"rdma"}
    for name in WITHOUT_FACTS:
        assert f"{name}: its mounts are unknown" in result.err
    assert transports(fleet, ILL) == {"tcp"}


def test_create_verifies_the_others(fleet):
    new = "nfs2.example.com:/exports/new"
    words = ("domain", "create", "new", "--export", new, "--datacenter", "dc1")
    result = fleet.run_verb(*words, "-y", "-o", "json")
    assert result.code == 0
    told = {one["host"]: one["transport"] for one in result.document["hosts"]}
    assert {told[name] for name in (*GOOD, WELL)} == {"rdma"}
    assert set(result.document["not_verified"]) == set(WITHOUT_FACTS)


def test_network_create(fleet):
    words = ("network", "create", "lan", "--datacenter", "dc1", "--mtu", "2044", "-y")
    result = fleet.run_verb(*words)
    assert result.code == 0
    for name in WITHOUT_FACTS:
        assert name in result.err


def test_push_is_done_on_the_others(fleet):
    (fleet.world.host("host02")).policy_text = None
    words = ("policy", "push", "policy.yaml", "--hosts", "*", "-y", "-o", "json")
    result = fleet.run_verb(*words)
    assert result.code == 5
    shown = rows(result, (*GOOD, *BAD))
    assert all(shown[name][0]["done"] for name in (*GOOD, WELL))
    assert fleet.world.host("host02").policy_text == PREFER
    assert not any(shown[name][0]["done"] for name in ILL)


@pytest.mark.faults
def test_revert_takes_the_others_back(fleet):
    assert fleet.run_verb(*CONVERT, honest=True).code == 0
    assert transports(fleet, (*GOOD, *BAD)) == {"rdma"}
    result = fleet.run_verb("domain", "revert", "data1", "-y")
    assert result.code == 5
    for name in WITHOUT_FACTS:
        assert f"{name} cannot be asked" in result.out
    assert transports(fleet, (*GOOD, WELL)) == {"tcp"}
    for name in (*GOOD, WELL):
        assert fleet.world.host(name).policy_text == POLICY
    assert fleet.run_verb("domain", "revert", "data1", "-y", honest=True).code == 0
    assert transports(fleet, (*GOOD, *BAD)) == {"tcp"}


def test_some_turn_hostile_in_the_middle_and_revert_goes_on_for_the_others(fleet):
    fleet.later = 6
    stopped = fleet.run_verb(*CONVERT, "-o", "json")
    assert stopped.code == 5
    assert "rdma" in transports(fleet, GOOD)
    fleet.run_verb("domain", "revert", "data1", "-y")
    assert transports(fleet, GOOD) == {"tcp"}
