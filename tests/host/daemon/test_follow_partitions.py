# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests with P_Keys that appear and disappear on a fake host, with the whole product.

The children follow, except those in use or not ours.
"""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass, field

import pytest
from support.fakes.fake_changes import ChangingRoot, changing
from support.fakes.fake_hosts import connectx3_ib
from support.host.daemon_task import TaskRuns
from support.host.effects_host import apply_steps, revert
from support.host.memory_host import Killed

from ovirt_rdma.host.changes.boot import boot_settings
from ovirt_rdma.host.changes.journal import DONE, PARTITIONS, REVERT, Journal
from ovirt_rdma.host.changes.run import HostRun, decide_for, loaded_policy
from ovirt_rdma.host.daemon.tasks import FollowPartitions
from ovirt_rdma.host.paths import POLICY_JSON
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.store import store
from ovirt_rdma.host.rules.registry import decide
from ovirt_rdma.host.system.files import FOLLOW_PARTITIONS, own_text
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.host.system.signals import StopSignal

pytestmark = pytest.mark.hypervisor

FOLLOW = """\
version: 1
host:
  interfaces:
    - match: {link_layer: infiniband, pkey: 0x8002}
      transport_mode: connected
      mtu: auto
    - match: {link_layer: infiniband}
      partitions: follow
"""


@dataclass
class Site:
    """A host, its follower, and the follower's sentences."""

    host: ChangingRoot
    said: list = field(default_factory=list)

    def __post_init__(self):
        self.table()
        self.policy(FOLLOW)
        self.host.write(FOLLOW_PARTITIONS, own_text(["partitions: follow"]))
        self.start()

    def start(self):
        """Start the follower, or start it again."""
        task = FollowPartitions(self.host.path, self.host.run, self.host.effects())
        self.follower = TaskRuns(task, self.host.path, self.said)

    def policy(self, text):
        policy = parse_policy(text, "p.yaml").policy
        store(policy, "p.yaml", self.host.path / POLICY_JSON.lstrip("/"))

    def table(self, *keys, state="4: ACTIVE"):
        self.host.fabric_port("mlx4_0", 1, 5, 1, ("0xffff", *keys), table_size=8)
        self.host.write("/sys/class/infiniband/mlx4_0/ports/1/state", state)

    def look(self, times=1):
        """Poll that many times, and return the sentences."""
        del self.said[:]
        for _ in range(times):
            self.follower.run()
        return self.said

    @property
    def children(self):
        return sorted(n for n in self.host.netdevs() if self.host.text(n, "parent"))

    @property
    def verbs(self):
        """Return the verbs of the runs in the journal."""
        return [run.verb for run in Journal(self.host.path).ledger().runs]

    @property
    def held(self):
        held = Journal(self.host.path).ledger().applied
        return list(dict.fromkeys(entry.step for entry in held))

    def apply(self, **request):
        """Do what ``ovirt-rdma-host apply`` does with the steps for children."""
        host, root = self.host, self.host.path
        prepared = decide_for(host.reader().facts(), loaded_policy(root))
        steps = [s for s in prepared.decision.applicable if s.rule == "IPOIB-PKEY-01"]
        effects, facts = host.effects(), prepared.facts
        return apply_steps(effects, Journal(root), steps, self, facts, **request)

    # The methods of a listener

    def doing(self, step_id, sentence):
        pass

    def done(self, step_id, before, after):
        self.said.append(f"{step_id}: {before} -> {after}")

    def note(self, sentence):
        self.said.append(sentence)


@pytest.fixture
def plain(tmp_path):
    """Without NetworkManager."""
    return Site(changing(connectx3_ib, tmp_path))


@pytest.fixture
def managed(tmp_path):
    host = changing(connectx3_ib, tmp_path)
    host.network_manager()
    host.nm_device("ib0")
    host.nm_profile("ib0", active_on="ib0")
    return Site(host)


@pytest.fixture(params=["plain", "managed"])
def site(request):
    return request.getfixturevalue(request.param)


def test_children_come_and_go_with_the_table(site):
    assert site.look() == []
    site.table("0x8001")
    (made,) = site.look()
    assert made.startswith("IPOIB-PKEY-01/ib0.8001: none -> ")
    assert site.children == ["ib0.8001"]
    assert site.look(3) == []
    site.table("0x8001", "0x0005")
    site.look()
    assert site.children == ["ib0.8001", "ib0.8005"]
    site.table("0x0005")
    (removed,) = site.look(2)
    assert "partition 0x8001 " in removed and removed.endswith("ib0.8001 was removed")
    assert site.children == ["ib0.8005"]
    site.table("0x0005", "0x8001")
    site.look()
    assert site.children == ["ib0.8001", "ib0.8005"]
    assert site.verbs == [PARTITIONS, PARTITIONS, REVERT, PARTITIONS]
    site.table()
    site.look(2)
    assert (site.children, site.held) == ([], [])


def test_a_child_gets_mode_and_mtu_of_its_rule(site):
    site.table("0x8002")
    said = site.look()
    # A new profile contains the mode.
    profiles = site.host._nm_profiles
    rules = ["PKEY"] if profiles else ["PKEY", "MODE"]
    steps = [f"IPOIB-{rule}-01/ib0.8002" for rule in rules]
    assert [line.partition(":")[0] for line in said] == steps
    assert site.host.state("ib0.8002")[:2] == ("connected", "65520")
    site.table()
    site.look(2)
    assert (site.children, site.held) == ([], [])


def test_with_networkmanager_a_profile_keeps_the_child(managed):
    managed.table("0x8002")
    managed.look()
    profile = managed.host.profile("ib0.8002")
    assert profile["infiniband.parent"] == "ib0"
    assert profile["infiniband.transport-mode"] == "connected"
    assert not boot_settings(Journal(managed.host.path).ledger())
    managed.table()
    managed.look(2)
    assert managed.host.profile("ib0.8002") is None


def test_without_networkmanager_boot_settings_keep_it(plain):
    plain.table("0x8001")
    plain.look()
    settings = boot_settings(Journal(plain.host.path).ledger())
    assert "0x8001" in [setting.changes[0].after for setting in settings]
    plain.table()
    plain.look(2)
    assert not boot_settings(Journal(plain.host.path).ledger())


def test_all_that_appears_at_once_is_one_run(site):
    site.table("0x8001", "0x8002", "0x8003", "0x8004")
    site.look()
    assert len(site.children) == 4
    assert site.verbs == [PARTITIONS]


def test_what_apply_made_is_removed_too(site):
    site.table("0x8001")
    site.apply()
    assert site.look() == []
    site.table()
    site.look(2)
    assert (site.children, site.held) == ([], [])


def test_apply_makes_the_children_and_lets_the_daemon_follow_until_revert(site):
    host, root = site.host, site.host.path
    allowed = root / FOLLOW_PARTITIONS.lstrip("/")
    allowed.unlink()
    site.table("0x8001", "0x8002")
    assert (site.look(), site.children) == ([], [])
    policy = loaded_policy(root)
    prepared = decide_for(host.reader().facts(), policy)
    wanted = [s for s in prepared.decision.applicable if s.rule != "IPOIB-PROFILE-01"]
    run = HostRun(root, "apply", site, host.run, host.effects())
    result = run.apply(wanted, prepared.facts, verify=lambda: run.still_planned(policy))
    assert result.outcome == DONE, result.sentence
    assert result.done[-1] == "IPOIB-PKEY-02/host"
    assert (site.children, allowed.exists()) == (["ib0.8001", "ib0.8002"], True)
    assert site.look() == []
    # The policy no longer follows: the children stay.
    site.policy("version: 1\n")
    site.look(3)
    facts = host.reader().facts()
    (said,) = (
        finding
        for finding in decide(facts, loaded_policy(root).policy).findings
        if finding.rule == "IPOIB-PKEY-02"
    )
    assert "revert IPOIB-PKEY-02/host" in said.fix
    only = "IPOIB-PKEY-02/host"
    revert(host.effects(), Journal(root), facts, site, only=only)
    assert (site.children, allowed.exists()) == (["ib0.8001", "ib0.8002"], False)


# Children that stay


def test_a_child_of_somebody_else_stays(site):
    site.host.pkey_child("ib0", "0x8001")
    site.table("0x8001")
    assert site.look() == []
    site.table()
    (left,) = site.look(4)
    assert "partition 0x8001 " in left and "ib0.8001 was not removed: " in left
    assert (site.children, site.verbs) == (["ib0.8001"], [])


@pytest.mark.parametrize(
    ("use", "why"),
    [
        ("nfs", " nfs: 10.9.0.1:/data at /mnt/data"),
        ("network", " logical network 'store'"),
        ("address", " address 10.9.0.2/24"),
    ],
)
def test_a_child_in_use_stays_as_long_as_it_is_used(site, use, why):
    site.table("0x8001")
    site.look()
    addresses = [] if use == "network" else [{"local": "10.9.0.2", "prefixlen": 24}]
    site.host._links["ib0.8001"]["addr_info"] = addresses
    if use == "nfs":
        site.host.route("10.9.0.1", "ib0.8001", "10.9.0.2")
        site.host.nfs_mount("10.9.0.1:/data", "/mnt/data", address="10.9.0.1")
    if use == "network":
        site.host.ovirt_network("store", nic="ib0.8001", bridged=False)
    site.table()
    (left,) = site.look(9)
    assert "partition 0x8001 " in left and "ib0.8001 was not removed: " in left
    assert left.endswith(why)
    assert site.children == ["ib0.8001"]
    if use == "address":
        site.host._links["ib0.8001"]["addr_info"] = []
        (removed,) = site.look(16)
        assert removed.endswith("ib0.8001 was removed")
        assert site.children == []


@pytest.mark.parametrize("state", ["1: DOWN", "2: INIT", "3: ARMED"])
def test_a_port_without_a_subnet_manager_loses_nothing(site, state):
    site.table("0x8001")
    site.look()
    site.table(state=state)
    assert site.look(5) == []
    assert site.children == ["ib0.8001"]


def test_a_key_that_is_back_at_the_next_look_loses_nothing(site):
    site.table("0x8001")
    site.look()
    for _ in range(3):
        site.table()
        site.look()
        site.table("0x8001")
        site.look()
    assert (site.children, site.verbs) == (["ib0.8001"], [PARTITIONS])


def test_a_policy_that_follows_no_more_keeps_all(site):
    site.table("0x8001")
    site.look()
    site.policy("version: 1\n")
    site.table()
    site.look(3)
    assert site.children == ["ib0.8001"]
    (site.host.path / POLICY_JSON.lstrip("/")).unlink()
    site.look(3)
    assert site.children == ["ib0.8001"]


# Failures


def test_networkmanager_or_the_kernel_refuses(site):
    managed = bool(site.host._nm_profiles)
    site.host.takes_profiles = False
    site.host.refusals["/sys/class/net/ib0/create_child"] = errno.ENOTUNIQ
    site.table("0x8001")
    (said,) = site.look(6)
    assert said.startswith("ib0.8001 could not be made: ")
    assert ("NetworkManager has not accepted the profile" in said) is managed
    assert (site.children, site.held) == ([], [])
    site.host.takes_profiles = True
    site.host.refusals.clear()
    site.look(2)
    assert site.children == ["ib0.8001"]


def test_one_child_that_cannot_be_made_keeps_no_other_back(site):
    """Connected mode of ib0.8002 is refused; ib0.8001 and ib0.8003 are made."""
    mode = "/sys/class/net/ib0.8002/mode"
    site.host.refusals[mode] = errno.EINVAL
    if site.host._nm_profiles:
        site.host.set_mode = refuse_connected(site.host, "ib0.8002")
    site.table("0x8001", "0x8002", "0x8003")
    said = site.look()
    assert site.children == ["ib0.8001", "ib0.8003"]
    assert [line.partition(" ")[0] for line in said] == [
        "IPOIB-PKEY-01/ib0.8001:",
        "IPOIB-PKEY-01/ib0.8003:",
        "ib0.8002",
    ]
    assert site.look(5) == []


def refuse_connected(host, netdev):
    set_mode = host.set_mode

    def refusing(name, mode):
        if (name, mode) == (netdev, "connected"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        set_mode(name, mode)

    return refusing


def test_the_admin_makes_the_same_child_in_the_middle(plain, monkeypatch):
    """Between our poll and our write: the kernel returns ENOTUNIQ, and theirs stays."""
    write = plain.host.kernel_write

    def overtaken(path, data):
        if path.name == "create_child":
            monkeypatch.setattr(plain.host, "kernel_write", write)
            plain.host.create_child("ib0", "0x8001")
        write(path, data)

    plain.host.kernel_write = overtaken
    plain.start()
    plain.table("0x8001")
    (said,) = plain.look()
    assert said.startswith("ib0.8001 could not be made: ")
    assert plain.children == ["ib0.8001"]
    assert plain.held == []
    assert plain.look(3) == []


def test_our_child_deleted_by_hand_is_made_again(plain):
    plain.table("0x8001")
    plain.look()
    plain.host.delete_child("ib0", 0x8001)
    plain.look()
    assert plain.children == ["ib0.8001"]
    plain.table()
    plain.look(2)
    assert (plain.children, plain.held) == ([], [])


def test_while_another_run_holds_the_lock_nothing_is_done(site):
    site.table("0x8001")
    with one_run(site.host.path):
        assert site.look(3) == []
        assert site.children == []
    site.look()
    assert site.children == ["ib0.8001"]


def test_a_run_that_awaits_confirmation_is_waited_for(site):
    site.table("0x8001")
    site.apply(confirm_by=int(site.host.time) + 60)
    site.table("0x8001", "0x8003")
    (said,) = site.look(3)
    assert said.startswith("run 1 awaits confirmation")
    assert site.children == ["ib0.8001"]
    host = site.host
    revert(host.effects(), Journal(host.path), host.reader().facts(), site)
    site.look()
    assert site.children == ["ib0.8001", "ib0.8003"]


def killed_in_the_middle(site, run):
    """Kill the process that makes ib0.8001 after it exists, before that is recorded."""
    host, effects = site.host, site.host.effects()
    read = type(effects).read

    def kill(self, change, *args):
        if host.text("ib0.8001", "parent"):
            raise Killed
        return read(self, change, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(effects), "read", kill)
        with pytest.raises(Killed):
            run()
    assert site.children == ["ib0.8001"]


def test_its_own_run_that_was_killed_is_taken_back_and_done_again(site):
    site.table("0x8001")
    killed_in_the_middle(site, site.look)
    site.start()
    site.look()
    assert site.children == ["ib0.8001"]
    assert site.held == ["IPOIB-PKEY-01/ib0.8001"]
    assert Journal(site.host.path).ledger().interrupted is None


def test_a_child_that_the_engine_uses_by_now_is_left_whatever_was_killed(site):
    site.table("0x8001")
    killed_in_the_middle(site, site.look)
    site.host.ovirt_network("store", nic="ib0.8001", bridged=False)
    site.start()
    (said,) = site.look(3)
    assert "was interrupted" in said
    assert "engine: network store on ib0.8001" in said
    assert site.children == ["ib0.8001"]


def test_its_own_removal_that_was_killed_is_brought_to_its_end(site, monkeypatch):
    site.table("0x8001")
    site.look()
    site.table()
    site.look()

    def kill(self, act):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(type(site.host.effects()), "undo", kill)
        with pytest.raises(Killed):
            site.look()
    assert site.children == ["ib0.8001"]
    site.start()
    site.look()
    assert (site.children, site.held) == ([], [])
    assert Journal(site.host.path).ledger().interrupted is None


def test_an_apply_that_was_killed_is_left_to_the_operator(site):
    site.table("0x8001")
    killed_in_the_middle(site, site.apply)
    site.table("0x8001", "0x8003")
    (said,) = site.look(4)
    assert "was interrupted" in said
    assert site.children == ["ib0.8001"]
    assert Journal(site.host.path).ledger().interrupted is not None


def test_a_damaged_journal_is_said_once_and_nothing_done(site):
    site.host.write("/var/lib/ovirt-rdma/journal.json", "what?")
    site.table("0x8001")
    (said,) = site.look(5)
    assert "journal" in said
    assert site.children == []


# The end


def test_sigterm_in_the_middle_takes_that_child_back_and_ends(plain):
    plain.table("0x8001")
    write = plain.host.kernel_write

    def ask_to_end(path, data):
        write(path, data)
        if path.name == "create_child":
            os.kill(os.getpid(), signal.SIGTERM)

    plain.host.kernel_write = ask_to_end
    with StopSignal() as stop:
        plain.start()
        plain.follower.run(stop)
        assert stop.wait(0)
    assert (plain.children, plain.held) == ([], [])
    assert plain.verbs == [PARTITIONS]
