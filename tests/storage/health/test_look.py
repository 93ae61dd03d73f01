# SPDX-License-Identifier: GPL-2.0-or-later
"""Test a whole look on a fake host: what is asked, of whom, and what comes out."""

from __future__ import annotations

import threading

import pytest
from support.fakes.fake_hosts import mapped_gid, soft_roce

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.statistics import read_statistics
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.statistics import PortCounters
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.storage.health import signs
from ovirt_rdma.storage.health.look import BETWEEN_S, Looker, recent_errors
from ovirt_rdma.storage.health.signs import (
    ACCEPTS,
    REFUSES,
    SILENT,
    Answer,
    Knock,
)
from ovirt_rdma.storage.readiness import NOT_READY, READY, Network, Step

NO_POLICY = Policy()
FAST, LATE = Answer(seconds=0.002), Answer(late=True)
MUTE = Step("listener", NOT_READY, "did not answer")


class FakeProbes:
    """Answers at once; records the questions."""

    def __init__(self):
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, bool]] = []
        self.then = lambda: None

    def ask(self, mountpoints, *, read):
        self.asked = [(place, read) for place in mountpoints]
        self.then()
        return {place: self.answers.get(place, FAST) for place in mountpoints}


class FakeServers:
    """TCP ports and RDMA listeners of servers; others than those asked for fail."""

    def __init__(self):
        self.tcp: dict[str, Knock] = {}
        self.rdma: dict[str, Step] = {}
        self.asked: list[tuple[str, str, int]] = []
        self.until = lambda: None

    def knock(self, address, port, timeout_s):
        self.asked.append(("tcp", address, port))
        self.until()
        return self.tcp[address]

    def listener(self, address, port, timeout_s):
        self.asked.append(("rdma", address, port))
        return self.rdma[address]


class Site:
    def __init__(self, path, monkeypatch):
        self.root = soft_roce(path)
        self.probes, self.servers = FakeProbes(), FakeServers()
        self.now, self.slept = 1000.0, []
        self.changed = lambda statistics: statistics
        monkeypatch.setattr(signs, "knock", self.servers.knock)
        monkeypatch.setattr(
            Network, "rdma_listener", staticmethod(self.servers.listener)
        )
        self.looker = Looker(
            str(self.root.path),
            HostReader(self.root.path, self.root.runner),
            self.probes,
            read=self.read,
            sleep=self.slept.append,
            clock=lambda: self.now,
        )

    def read(self, tree):
        self.now += 10.0
        found = read_statistics(tree)
        return self.changed(found._replace(taken_s=self.now))

    def silent(self, *mountpoints):
        """Let questions on these mounts be late, and nas1 be silent."""
        self.probes.answers = dict.fromkeys(mountpoints, LATE)
        self.servers.tcp["10.0.0.1"] = Knock(SILENT, 1.5)
        self.servers.rdma["10.0.0.1"] = MUTE

    def count(self, counter, *values):
        """Let the port's counter have these values, one at each reading."""
        left = iter(values)

        def with_errors(statistics):
            counters = {counter: next(left)}
            return statistics._replace(ports=(PortCounters("rxe0", 1, counters),))

        self.changed = with_errors

    def look(self, export=None, policy=NO_POLICY, **more):
        return self.looker.look(policy, export and Export.parse(export), **more)


@pytest.fixture
def site(tmp_path, monkeypatch):
    made = Site(tmp_path, monkeypatch)
    made.root.nfs_mount("nas1:/a", "/mnt/a", "rdma", "10.0.0.1")
    made.root.nfs_mount("nas1:/b", "/mnt/b", "rdma", "10.0.0.1")
    made.root.nfs_mount("nas2:/c", "/mnt/c", "tcp", "10.0.0.7")
    made.root.route("10.0.0.7", "eth0", "10.0.0.2")
    return made


def test_sound_mounts_cost_one_question_each_and_nothing_else(site):
    look = site.look()
    assert [(m.export, m.state, m.transport) for m in look.mounts] == [
        ("nas1:/a", "ok", "rdma"),
        ("nas1:/b", "ok", "rdma"),
        ("nas2:/c", "ok", "tcp"),
    ]
    assert site.probes.asked == [
        ("/mnt/a", False),
        ("/mnt/b", False),
        ("/mnt/c", False),
    ]
    assert site.servers.asked == []
    assert site.root.runner.ran == []


def test_the_first_look_waits_for_a_second_sample_and_later_ones_do_not(site):
    site.look()
    assert site.slept == [BETWEEN_S]
    site.look()
    assert site.slept == [BETWEEN_S]


def test_only_the_export_that_is_asked_for(site):
    look = site.look("nas1:/b", read=True)
    assert [mount.export for mount in look.mounts] == ["nas1:/b"]
    assert site.probes.asked == [("/mnt/b", True)]
    assert site.look("nas1:/none").mounts == ()


def test_a_silent_server_is_asked_both_ways_at_the_same_time(site):
    """One after the other would take longer than 15 s with an interval of 10 s."""
    site.silent("/mnt/a", "/mnt/b")
    asked = threading.Event()
    site.servers.rdma = Answered(asked)
    site.servers.until = lambda: waited.append(asked.wait(60))
    waited: list[bool] = []
    site.look()
    assert waited == [True]


class Answered(dict):
    """RDMA listeners that do not answer; sets ``event`` when one is asked."""

    def __init__(self, event):
        super().__init__()
        self._event = event

    def __missing__(self, address):
        self._event.set()
        return MUTE


def test_a_silent_server_is_asked_once_for_all_its_mounts(site):
    site.silent("/mnt/a", "/mnt/b")
    a, b, c = site.look().mounts
    assert (a.state, a.cause, a.certain, a.reason) == (
        "stalled",
        "server",
        True,  # nas2 answers by the same netdev
        "server-silent",
    )
    assert (b.state, c.state) == ("stalled", "ok")
    assert sorted(site.servers.asked) == [
        ("rdma", "10.0.0.1", 20049),
        ("tcp", "10.0.0.1", 2049),
    ]


@pytest.mark.parametrize(("index", "read"), [(1, [16]), (20, [16, None])])
def test_all_gids_are_read_only_if_the_first_ones_own_no_address(
    site, monkeypatch, index, read
):
    """A table may have hundreds, each a file that the adapter is asked for."""
    site.root.rdma_port("rxe0", link_layer="Ethernet", table_size=32)
    site.root.gid("rxe0", 1, index, mapped_gid("10.0.0.2"), "RoCE v2", "eth0")
    devices, asked = HostReader.rdma_devices, []

    def rdma_devices(reader, problems=None, most_gids=None):
        asked.append(most_gids)
        return devices(reader, problems, most_gids)

    monkeypatch.setattr(HostReader, "rdma_devices", rdma_devices)
    site.silent("/mnt/a", "/mnt/b")
    assert site.look().mounts[0].reason == "server-silent"
    assert asked == read


@pytest.mark.parametrize("silent", [False, True])
def test_a_server_that_answers_late_gets_no_rdma_connection(site, silent):
    """Its listener tells nothing, and a program would have to be started each time."""
    site.probes.answers["/mnt/a"] = Answer(seconds=0.9)
    if silent:
        site.probes.answers["/mnt/b"] = LATE
    site.servers.tcp["10.0.0.1"] = Knock(ACCEPTS, 0.001, replied=True)
    site.servers.rdma["10.0.0.1"] = Step("listener", READY, "accepts")
    look = site.look()
    assert [mount.state for mount in look.mounts[:1]] == ["slow"]
    asked = [("tcp", "10.0.0.1", 2049), ("rdma", "10.0.0.1", 20049)]
    assert site.servers.asked == asked[: 1 + silent]


def test_all_servers_silent_is_the_path(site):
    site.silent("/mnt/a", "/mnt/b", "/mnt/c")
    site.servers.tcp["10.0.0.7"] = Knock(SILENT, 1.5)
    found = {(m.cause, m.reason) for m in site.look().mounts}
    assert found == {("path", "all-servers-silent")}


def test_a_server_whose_threads_hang_is_up(site):
    """So the path that it shares with a silent one is no common cause."""
    site.silent("/mnt/a", "/mnt/b", "/mnt/c")
    site.servers.tcp["10.0.0.7"] = Knock(ACCEPTS, 0.001, replied=False)
    found = {m.export: (m.cause, m.reason) for m in site.look().mounts}
    assert found["nas1:/a"] == ("server", "server-silent")
    assert found["nas2:/c"] == ("server", "nfs-stuck")


def test_an_export_over_tcp_says_nothing_about_rdma(site):
    site.root.nfs_mount("nas1:/iso", "/mnt/iso", "tcp", "10.0.0.1")
    site.silent("/mnt/a", "/mnt/b")
    site.servers.tcp["10.0.0.1"] = Knock(ACCEPTS, 0.001, replied=True)
    found = {m.export: m.reason for m in site.look().mounts}
    assert found["nas1:/a"] == "rdma-lost"
    assert found["nas1:/iso"] == ""


def test_one_export_of_a_server_hangs(site):
    site.probes.answers = {"/mnt/b": LATE}
    site.servers.tcp["10.0.0.1"] = Knock(ACCEPTS, 0.001)
    site.servers.rdma["10.0.0.1"] = Step("listener", READY, "accepts")
    states = {m.export: (m.state, m.reason) for m in site.look().mounts}
    assert states["nas1:/b"] == ("stalled", "export-stuck")
    assert states["nas1:/a"] == ("ok", "")


def test_a_port_that_is_down_is_the_path_and_nobody_is_asked_over_rdma(site):
    site.probes.answers = {"/mnt/a": LATE}
    site.servers.tcp["10.0.0.1"] = Knock(SILENT, 1.5)
    site.root.write("/sys/class/infiniband/rxe0/ports/1/state", "1: DOWN\n")
    site.root.write("/sys/class/net/eth0/operstate", "down\n")
    a = site.look("nas1:/a").mounts[0]
    assert (a.state, a.cause, a.reason) == ("dead", "path", "link-down")
    assert "rxe0/1 is DOWN" in a.sentence
    assert [kind for kind, _, _ in site.servers.asked] == ["tcp"]


def test_a_mount_that_vanished_meanwhile_is_left_out(site):
    def unmount():
        site.root.write("/proc/self/mountinfo", "")

    site.probes.then = unmount
    assert site.look().mounts == ()


def test_silence_is_counted_from_the_last_answer(site):
    site.look("nas1:/a")
    site.silent("/mnt/a")
    states = [site.look("nas1:/a").mounts[0].state for _ in range(9)]
    assert states == ["stalled"] * 7 + ["dead"] * 2
    site.probes.answers = {}
    assert site.look("nas1:/a").mounts[0].state == "ok"
    site.probes.answers = {"/mnt/a": LATE}
    assert site.look("nas1:/a").mounts[0].state == "stalled"


def test_errors_on_the_port_to_a_server_that_answers_are_no_alarm(site):
    site.count("retry_exceeded_err", 0, 3)
    assert {mount.state for mount in site.look().mounts} == {"ok"}
    assert site.servers.asked == []


def test_errors_of_a_port_count_for_mounts_over_rdma(site):
    """Over TCP no packets of RDMA are sent."""
    site.count("retry_exceeded_err", 0, 3)
    slow = Answer(seconds=0.9)
    site.probes.answers = {"/mnt/a": slow, "/mnt/c": slow}
    for address in ("10.0.0.1", "10.0.0.7"):
        site.servers.tcp[address] = Knock(ACCEPTS, 0.001, replied=True)
    a, _, c = site.look().mounts
    assert "port error retry_exceeded_err +3" in a.evidence
    assert not any("port error" in line for line in c.evidence)


def test_a_tcp_mount_of_another_port_is_asked_there(site):
    site.root.nfs_mount("nas3:/d", "/mnt/d", "tcp", "10.0.0.9", port=12049)
    site.root.route("10.0.0.9", "eth0", "10.0.0.2")
    site.probes.answers = {"/mnt/d": LATE}
    site.servers.tcp["10.0.0.9"] = Knock(REFUSES, 0.001)
    d = site.look("nas3:/d").mounts[0]
    assert site.servers.asked == [("tcp", "10.0.0.9", 12049)]
    assert "TCP port 12049: refuses in 1.0 ms" in d.evidence


def test_errors_are_added_up_over_half_a_minute(site):
    """Reading takes 10 s here, so a sample of 40 s before does not count."""
    site.count("completer_retry_err", 0, 3, 4, 5, 5, 6, 6, 6, 6)
    site.probes.answers = {"/mnt/a": LATE, "/mnt/b": LATE}
    site.servers.tcp["10.0.0.1"] = Knock(ACCEPTS, 0.001)
    site.servers.tcp["10.0.0.7"] = Knock(ACCEPTS, 0.001)
    site.servers.rdma["10.0.0.1"] = Step("listener", NOT_READY, "no", refused=True)
    looks = [site.look().mounts[0] for _ in range(8)]
    counted = [[e for e in look.evidence if e.startswith("port")] for look in looks]
    assert counted == [
        [f"port error completer_retry_err +{n}"] if n else []
        for n in (3, 4, 5, 2, 2, 1, 1, 0)
    ]
    gone, lossy = "listener-gone", "path-lossy"
    assert [look.reason for look in looks] == [gone] * 2 + [lossy] + [gone] * 5


def test_a_host_without_mounts(tmp_path, monkeypatch):
    site = Site(tmp_path, monkeypatch)
    assert site.look().mounts == ()
    assert site.slept == []


def test_a_tcp_mount_whose_netdev_has_no_carrier(site):
    site.probes.answers = {"/mnt/c": LATE}
    site.servers.tcp["10.0.0.7"] = Knock(SILENT, 1.5)
    site.root.write("/sys/class/net/eth0/operstate", "down\n")
    c = site.look("nas2:/c").mounts[0]
    assert (c.state, c.cause, c.reason) == ("dead", "path", "link-down")
    assert "eth0 has no carrier" in c.sentence


def port(device="mlx5_0", **counters):
    return PortCounters(device, 1, counters)


def test_errors_of_ports():
    """What a port itself has counted since: not of one that was reset, by perfquery -R,
    nor of one that came, nor of a counter that came.
    """
    was = {
        "symbol_error": 5,
        "packet_seq_err": 0,
        "link_downed": 2,
        "port_xmit_data": 1,
    }
    now = {
        "symbol_error": 8,
        "packet_seq_err": 4,
        "link_downed": 2,
        "port_xmit_data": 9,
    }
    before = [
        port(**was, local_ack_timeout_err=None),
        port("mlx5_1", symbol_error=9, local_ack_timeout_err=7),
        port("mlx5_2", symbol_error=9),
    ]
    after = [
        port(**now, local_ack_timeout_err=7, max_retry_exceeded=7),
        port("mlx5_1", symbol_error=0),
        port("mlx5_2", symbol_error=9),
        port("mlx5_3", symbol_error=9, local_ack_timeout_err=7),
    ]
    found = {"symbol_error": 3, "packet_seq_err": 4}, 0
    assert recent_errors([before, after]) == {("mlx5_0", 1): found}


@pytest.mark.parametrize(
    "name",
    [
        "local_ack_timeout_err",
        "req_transport_retries_exceeded",
        "to_retransmits",
        "max_retry_exceeded",
        "completer_retry_err",
        "retry_exceeded_err",
    ],
)
def test_a_host_that_waits_in_vain_is_seen_with_every_driver(name):
    samples = [[port(**{name: value})] for value in (0, 50_000)]
    found = {name: 50_000}, 1
    assert recent_errors(samples) == {("mlx5_0", 1): found}


def test_a_receiver_that_is_late_loses_no_packets():
    late = ("req_rnr_retries_exceeded", "retry_rnr_exceeded_err", "rnr_nak_retry_err")
    samples = [[port(**dict.fromkeys(late, value))] for value in (0, 99)]
    assert recent_errors(samples) == {}


def test_errors_are_added_up_and_samples_with_waits_in_vain_are_counted():
    values = [(0, 0), (1, 2), (5, 2), (5, 3)]
    samples = [
        [port(symbol_error=bits, local_ack_timeout_err=again)] for bits, again in values
    ]
    counts = {"symbol_error": 5, "local_ack_timeout_err": 3}
    assert recent_errors(samples) == {("mlx5_0", 1): (counts, 2)}
