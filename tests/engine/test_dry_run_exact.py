# SPDX-License-Identifier: GPL-2.0-or-later
"""Test that --dry-run of each verb only reads, and shows exactly the requests that the
engine and the hosts get in a real run.
"""

from __future__ import annotations

import json
import re
import shlex
from contextlib import ExitStack

import pytest
from engine_double import EngineDouble, sample_world
from support.engine.engine_command_line import run_engine
from support.engine.engine_door import DoubleDoor
from support.engine.told_hosts import rules

from ovirt_rdma.cli.engine import session as cli_session
from ovirt_rdma.engine_sdk_tools.conversion.model import StateFolder
from ovirt_rdma.engine_sdk_tools.domains.create import NEW

pytestmark = pytest.mark.engine

UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
DATA1 = "nfs1.example.com:/exports/data1"
POLICY = rules("prefer-rdma", "/exports/data1")
CREATE = "domain create new --export nfs2.example.com:/exports/new --datacenter dc1"
ATTACH = "network attach lan --hosts '*' --nic-match ib0 --addresses 10.20.0.11/24"
CONVERT = "domain convert data1 --to rdma"


class Recorded:
    """A double and its hosts; ``seen`` are the changes of both, in order."""

    def __init__(self, capsys, double, folder):
        self._capsys = capsys
        self.double, self.folder = double, folder
        self.seen = []
        double.on_change = self._change
        self.door = DoubleDoor(double.world)
        self._push = self.door.push_policy
        self.door.push_policy = self._pushed

    def run(self, words):
        return run_engine(self._capsys, self.double, self.door, *shlex.split(words))

    def _change(self, seen):
        if re.fullmatch("/jobs/[^/]+/end", seen.path):
            # This ends the task of an earlier run that stopped halfway.
            return
        query = {
            name: text for name, text in seen.query.items() if name != "correlation_id"
        }
        self.seen.append((seen.method, seen.path, query, seen.body))

    def _pushed(self, hosts, policy, done=None):
        text = policy if isinstance(policy, str) else json.dumps(policy.contents)
        self.seen += [("policy", host.name, text) for host in hosts]
        return self._push(hosts, policy, done)


@pytest.fixture
def site(capsys, tmp_path, monkeypatch):
    """Return a function that makes sites, with policy and states in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY)
    folder = tmp_path / "states"
    monkeypatch.setattr(cli_session, "conversion_states", lambda: StateFolder(folder))
    with ExitStack() as open_ones:

        def make(**words):
            world = sample_world(
                **{"hosts": 2, "domains": ("data1",), "addon": True, **words}
            )
            double = open_ones.enter_context(EngineDouble(world))
            return Recorded(capsys, double, folder)

        yield make


def nothing(made):
    """Leave the site unchanged."""


def package_only(made):
    """Let the hosts be asked, although the add-on is not enabled."""
    for host in made.double.world.hosts.values():
        host.more["package"] = True


def a_network(made):
    assert made.run("network create lan --datacenter dc1 --mtu 2044 -y").code == 0


def an_attached_network(made):
    a_network(made)
    words = ATTACH.replace("'*'", "host02").replace(".11/", ".99/")
    assert made.run(f"{words} -y").code == 0


def converted(made):
    assert made.run(f"{CONVERT} --rolling -y").code == 0


def half_converted(made):
    made.door.fail_push["host03"] = "the disk is full"
    assert made.run(f"{CONVERT} --rolling -y").code == 5
    made.door.fail_push.clear()


def fallen_back(made):
    for host in made.double.world.hosts.values():
        host.policy_text = POLICY
        host.mounts[DATA1] = "tcp" if host.name != "host02" else "rdma"


def two_versions(made):
    """Mount data1, the master, with another version, so over another connection."""
    made.double.world.connection_of("data1").nfs_version = "v4_1"


def one_away(made):
    """Put one host into maintenance."""
    host = made.double.world.host("host03")
    host.status = "maintenance"
    host.mounts.clear()


CASES = [
    (nothing, CREATE, {}),
    (nothing, f"{CREATE} --transport tcp --nfs-version 3 --mount-options hard", {}),
    (nothing, CREATE.replace("nfs2.example.com", "[2001:db8::1]"), {}),
    (nothing, "network create lan --datacenter dc1 --mtu auto", {}),
    (nothing, "network create lan --datacenter dc1 --mtu 2044", {}),
    (a_network, ATTACH, {}),
    (an_attached_network, ATTACH, {"hosts": 3}),
    (nothing, "policy push policy.yaml --hosts '*'", {}),
    (nothing, f"{CONVERT} --rolling", {}),
    (nothing, f"{CONVERT} --rolling --batch 2", {"hosts": 3}),
    (one_away, f"{CONVERT} --rolling", {"hosts": 3}),
    (package_only, f"{CONVERT} --rolling --engine-options", {"addon": False}),
    (two_versions, "domain convert data2 --to rdma", {"domains": ("data1", "data2")}),
    (
        nothing,
        "domain convert data1 data2 --to rdma --rolling",
        {"domains": ("data1", "data2")},
    ),
    (converted, "domain convert data1 --to tcp --rolling", {}),
    (half_converted, f"{CONVERT} --rolling", {"hosts": 3}),
    (converted, "domain revert data1", {}),
    (half_converted, "domain revert data1", {"hosts": 3}),
    (fallen_back, "domain heal", {"hosts": 3}),
]


@pytest.mark.parametrize(("before", "words", "world"), CASES)
def test_what_is_shown_is_what_is_done(site, before, words, world):
    made = site(**world)
    before(made)
    made.seen.clear()
    known = ids_of(made.double.world)
    states = files(made.folder)

    shown = made.run(f"{words} --dry-run -o json")

    assert (shown.code, made.seen) == (0, []), shown
    calls = [of_document(call) for call in planned(shown.document)]
    assert calls
    for_people = made.run(f"{words} --dry-run").out
    for call in calls:
        assert call[0] == "policy" or f"{call[0]} {call[1]}" in for_people
    assert (made.seen, files(made.folder)) == ([], states)
    done = made.run(f"{words} -y --no-job")
    assert done.code == 0, done
    assert [without_new(s, known) for s in made.seen] == [
        without_new(call, known) for call in calls
    ]
    assert made.double.strict_errors == []


def test_a_mount_that_is_kept_costs_a_maintenance_more(site):
    """It is unknown in advance if the SPM keeps its mount of the last master."""
    made = site()
    words = f"{CONVERT} --allow-datacenter-down"
    calls = [of_document(c) for c in planned(made.run(f"{words} -n -o json").document)]
    assert made.run(f"{words} -y --no-job").code == 0
    spm = f"/hosts/{made.double.world.host('host01').id}"
    more = [seen for seen in made.seen if seen not in calls]
    mark = f"/clusters/{made.double.world.cluster('cl1').id}/upgrade"
    around = [mark, f"{spm}/deactivate", f"{spm}/activate", mark]
    assert [seen[1] for seen in more] == around
    assert [seen for seen in made.seen if seen not in more] == calls


@pytest.mark.parametrize(
    ("before", "words"),
    [
        (a_network, "network create lan --datacenter dc1 --mtu 2044"),
        (converted, f"{CONVERT} --rolling"),
        (nothing, "domain heal"),
    ],
)
def test_where_there_is_nothing_to_do_no_call_is_shown(site, before, words):
    made = site()
    before(made)
    made.seen.clear()
    shown = made.run(f"{words} --dry-run -o json")
    assert (shown.code, planned(shown.document)) == (0, [])
    assert made.run(f"{words} -y --no-job").code == 0
    assert made.seen == []


def files(folder):
    """Return the names and contents of the files below a folder, without locks."""
    return {path.name: path.read_bytes() for path in folder.glob("*.json")}


def planned(document):
    """Return the calls of a document; a push of policies has one row per host."""
    if document["kind"] == "policy-push":
        return [{"about": row["host"], "policy": POLICY} for row in document["hosts"]]
    parts = document.get("data_centers", [document])
    return [call for part in parts for call in part["calls"]]


def of_document(call):
    if "method" not in call:
        policy = call["policy"]
        text = policy if isinstance(policy, str) else json.dumps(policy)
        return ("policy", call["about"], text)
    return (call["method"], call["path"], call["query"], call["body"])


def ids_of(world):
    found = set()
    for kind in ("data_centers", "clusters", "hosts", "domains", "connections"):
        found |= set(getattr(world, kind))
    found |= set(world.networks)
    for host in world.hosts.values():
        found |= {nic.id for nic in host.nics} | {a.id for a in host.attachments}
    return found


def without_new(call, known):
    """Return ``call`` with ids of new objects replaced, because they are unknown in
    advance.
    """
    texts = [call[1], call[-1] or ""]
    for number, text in enumerate(texts):
        for found in UUID.findall(text):
            if found not in known:
                texts[number] = texts[number].replace(found, "new")
        texts[number] = texts[number].replace(NEW, "new")
    return (call[0], texts[0], *call[2:-1], texts[1])
