# SPDX-License-Identifier: GPL-2.0-or-later
"""The daemon's task ``paths`` on a fake host whose connections take each address."""

from __future__ import annotations

import copy
import json
import pickle
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, Optional

import pytest
from support.fakes.fake_root import FakeRoot
from support.host.daemon_task import TaskRuns

from ovirt_rdma.host.daemon.loop import Turn
from ovirt_rdma.host.facts.statistics import SunrpcTransport
from ovirt_rdma.host.paths import PATHS_JSON, PATHS_LEVER, POLICY_JSON, under
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.policy.store import store
from ovirt_rdma.host.system.commands import CommandTimeout
from ovirt_rdma.storage.paths import mover, moving
from ovirt_rdma.storage.paths.mover import MovePaths, objection, rules_with_paths
from ovirt_rdma.storage.paths.moving import Target
from ovirt_rdma.storage.paths.server import Link
from ovirt_rdma.storage.paths.state import (
    DOWN,
    UP,
    PathsState,
    ServerPaths,
    read_paths,
)

A1, A2 = "10.99.0.1", "10.98.0.1"
SWITCH = "/sys/kernel/sunrpc/xprt-switches/switch-0"
INFO = """\
last_used={used}
cur_cong=0
cong_win=256
max_num_slots=128
min_num_slots=2
num_reqs=2
binding_q_len=0
sending_q_len=0
pending_q_len={pending}
backlog_q_len=0
main_xprt={main}
src_port=0
tasks_queuelen=0
dst_port=20049
"""


class Host:
    """A host with two RoCE ports, a mount with a connection over each, and a clock that
    a wait of the task turns; ``each`` is called at each wait.
    """

    def __init__(self, path: Path) -> None:
        self.root = FakeRoot(path)
        self.now, self.used = 1000.0, 1
        self.silent: dict[str, str] = {}
        self.each: Callable[[], None] = lambda: None
        self.waits = 0
        self.names = ["eth0", "eth1"]
        self.neighbours = {A1: "52:54:00:99:00:01", A2: "52:54:00:99:01:01"}
        for number, (network, address) in enumerate((("99", A1), ("98", A2))):
            netdev, device = f"eth{number}", f"rxe{number}"
            own = f"10.{network}.0.2"
            self.root.netdev(netdev, addresses=[f"{own}/24"])
            self.root.rdma_device(device, parent=netdev)
            self.root.rdma_port(device, link_layer="Ethernet")
            gid = f"0000:0000:0000:0000:0000:ffff:0a{int(network):02x}:0002"
            self.root.gid(device, 1, 0, gid, netdev=netdev)
            self.root.route(address, netdev, own)
            self.carrier(number, up=True)
        self.root.runner.answer("ip -j -4 neigh show", self._neighbours)
        self.root.nfs_mount("nas:/vm", "/rhev/data-center/mnt/nas:_vm", "rdma", A1)
        self.places = {"xprt-0-rdma": A1, "xprt-1-rdma": A2}
        self.pending = dict.fromkeys(self.places, 0)
        for name, address in self.places.items():
            self.root.write(f"{SWITCH}/{name}/dstaddr", address)
            self.root.write(f"{SWITCH}/{name}/xprt_state", "state= CONNECTED BOUND")
        self.progress()
        self.follow((A1, A2))
        self.task = self.new_task()
        self.runs = TaskRuns(self.task, path)

    def new_task(self) -> MovePaths:
        return MovePaths(
            str(self.root.path), self.root.runner, ask=self.ask, clock=self.clock
        )

    def in_another_process(self) -> None:
        """Let the next run begin with what is carried."""
        carried = pickle.loads(
            pickle.dumps({name: getattr(self.task, name) for name in MovePaths.carried})
        )
        self.task = self.runs.task = self.new_task()
        for name, value in carried.items():
            setattr(self.task, name, value)

    def clock(self) -> float:
        return self.now

    def ask(self, addresses: Any, port: int) -> dict[str, tuple[str, str]]:
        assert port == 20049
        return {address: (self.silent.get(address, ""), "") for address in addresses}

    def _neighbours(self) -> str:
        rows = [
            {
                "dst": a,
                "dev": self.names[n],
                "lladdr": self.neighbours[a],
                "state": ["STALE"],
            }
            for n, a in enumerate((A1, A2))
        ]
        return json.dumps(rows)

    def carrier(self, number: int, *, up: bool) -> None:
        self.root.write(f"/sys/class/net/eth{number}/carrier", str(int(up)))

    def follow(self, paths: tuple[str, ...], name: str = "nas") -> None:
        rule = NfsRule(
            number=1,
            name="rule 1",
            server=name,
            transport="require-rdma",
            paths=paths,
            paths_return=5,
        )
        policy = Policy(nfs=NfsPolicy((rule,)))
        store(policy, "test", under(self.root.path, POLICY_JSON))

    def progress(self) -> None:
        self.used += 1
        for number, (name, pending) in enumerate(self.pending.items()):
            used = self.used if not pending else 1
            info = INFO.format(used=used, pending=pending, main=int(number == 0))
            self.root.write(f"{SWITCH}/{name}/xprt_info", info)

    def wait(self, seconds: float, files: Any = ()) -> bool:
        self.now += seconds
        self.waits += 1
        self.root.uptime(self.now)
        self.progress()
        self.each()
        # As the kernel does it: addr= of the mount is that of its main connection.
        shown = self.root.path / "proc/self/mountinfo"
        main = rf"\g<1>{self.address('xprt-0-rdma')}"
        shown.write_text(
            re.sub(r"(nas:/vm .*addr=)[0-9.]+", main, shown.read_text(), count=1)
        )
        return False

    def connect(self, switch: str, *addresses: str) -> list[Path]:
        """Let a mount begin; return the files of its connections' addresses."""
        files = []
        for number, address in enumerate(addresses):
            place = f"{SWITCH[:-1]}{switch}/xprt-{switch}{number}-rdma"
            files.append(self.root.path / place[1:] / "dstaddr")
            self.root.write(f"{place}/dstaddr", address)
            self.root.write(f"{place}/xprt_state", "state= CONNECTED BOUND")
            info = INFO.format(used=1, pending=0, main=int(number == 0))
            self.root.write(f"{place}/xprt_info", info)
        return files

    def without_second(self) -> None:
        """Let the mount have one connection only."""
        shutil.rmtree(self.root.path / SWITCH[1:] / "xprt-1-rdma")
        del self.pending["xprt-1-rdma"]

    def run(self) -> Any:
        return self.runs.run(self)

    def address(self, name: str) -> str:
        return (self.root.path / SWITCH[1:] / name / "dstaddr").read_text().strip()

    def state(self) -> Optional[PathsState]:
        return read_paths(self.root.path, [], self.now)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setattr(mover, "warm", lambda addresses: None)
    # A write takes no time here, but for its process on a busy machine.
    monkeypatch.setattr(moving, "_TRY_S", 60.0)
    found = Host(tmp_path)
    monkeypatch.setattr(mover, "seconds_after_boot", found.clock)
    return found


def shown(host: Host) -> ServerPaths:
    state = host.state()
    assert state is not None
    (server,) = state.servers
    return server


def states(host: Host) -> list[str]:
    return [path.state for path in shown(host).paths]


def test_a_host_where_all_is_well(host: Host):
    result = host.run()
    assert (result.sentence, result.problems, result.next_s) == (
        "2 of 2 paths up",
        (),
        0.0,
    )
    server = shown(host)
    assert server.exports == ("nas:/vm",)
    assert [(p.address, p.netdev, p.connections) for p in server.paths] == [
        (A1, "eth0", 1),
        (A2, "eth1", 1),
    ]
    assert server.is_whole
    assert host.waits == 20
    # Each sentence once.
    host.run()
    assert host.runs.said == [f"{A1} is up", f"{A2} is up"]


def test_a_cable_out_and_in_again(host: Host):
    host.run()
    host.carrier(0, up=False)
    host.run()
    assert (host.address("xprt-0-rdma"), states(host)) == (A2, [DOWN, UP])
    assert (
        "nas:/vm: moved 1 connection from 10.99.0.1 to 10.98.0.1: eth0 has no link"
        in (host.runs.said)
    )
    host.carrier(0, up=True)
    host.run()
    assert host.address("xprt-0-rdma") == A1
    assert states(host) == [UP, UP]
    assert shown(host).moves == 2


def test_a_port_that_is_not_active_is_a_path_without_link(host: Host):
    host.run()
    host.root.write("/sys/class/infiniband/rxe0/ports/1/state", "1: DOWN")
    host.run()
    assert host.address("xprt-0-rdma") == A2


def test_what_is_known_continues_in_another_process(host: Host):
    host.run()
    host.in_another_process()
    host.carrier(0, up=False)
    host.run()
    assert host.address("xprt-0-rdma") == A2
    assert f"{A2} is up" not in host.runs.said[2:]


def test_neighbours_that_cannot_be_read_are_as_they_were(host: Host):
    """A spare path, on which nothing works: nobody had its address, it said."""
    host.run()
    host.without_second()
    host.run()
    assert states(host) == [UP, UP]

    late = CommandTimeout("no answer within 5 s")
    host.root.runner.answer("ip -j -4 neigh show", late)
    host.in_another_process()
    host.run()
    assert states(host) == [UP, UP]


def test_a_move_does_not_wait_for_neighbours_that_the_kernel_withholds(
    host: Host, monkeypatch: pytest.MonkeyPatch
):
    """A driver resets its port: what is read of netdevs waits for seconds (rtnl)."""
    host.run()
    waited: list[float] = []
    runner = host.root.runner

    def run(argv: Sequence[str], timeout_s: float = 5.0) -> str:
        if "neigh" not in argv:
            return runner(argv)
        waited.append(timeout_s)
        raise CommandTimeout(f"no answer within {timeout_s:g} s")

    monkeypatch.setattr(mover, "run_command", run)
    monkeypatch.setattr(host.root, "runner", None)
    host.in_another_process()
    host.carrier(0, up=False)
    host.run()
    assert host.address("xprt-0-rdma") == A2
    assert max(waited) <= 1.0


def test_an_odd_neighbour_loses_only_itself(host: Host):
    rows = [7, {}, {"dst": A1, "dev": "eth0", "lladdr": "52:54", "state": ["STALE"]}]
    host.root.runner.answer("ip -j -4 neigh show", json.dumps(rows))
    found = mover.read_neighbours(host.root.runner, {})
    assert found == {("eth0", A1): "52:54"}


def test_without_paths_in_the_policy_nothing_is_left(host: Host):
    host.run()
    host.follow(())
    result = host.run()
    assert (result.sentence, host.state()) == (MovePaths.off, None)
    assert host.task.interval(Policy()) is None
    host.carrier(0, up=False)
    host.run()
    assert host.address("xprt-0-rdma") == A1


def test_with_a_damaged_policy_connections_still_move(host: Host):
    under(host.root.path, POLICY_JSON).write_text("{")
    host.run()
    host.carrier(0, up=False)
    host.run()
    assert host.address("xprt-0-rdma") == A2


def test_a_mount_of_others_is_not_touched(host: Host):
    """The kernel does not show whose a connection is."""
    host.root.nfs_mount("10.99.0.1:/iso", "/mnt/iso", "rdma", A1)
    host.run()
    host.carrier(0, up=False)
    (problem,) = host.run().problems
    assert problem.startswith("nas:/vm: 10.99.0.1:/iso may use the same connections")
    assert host.address("xprt-0-rdma") == A1


@pytest.mark.parametrize("alone", [False, True])
def test_a_mount_by_another_address_of_the_server_is_reported(host: Host, alone: bool):
    """Its name has a third one: nothing takes over for it."""
    if alone:
        host.root._mounts.clear()
        host.root._stats.clear()
    place = "/rhev/data-center/mnt/nas:_iso"
    host.root.nfs_mount("nas:/iso", place, "rdma", "10.97.0.9")
    (problem,) = host.run().problems
    assert "nas:/iso has the address 10.97.0.9" in problem
    assert problem.endswith("which is none of its paths")
    assert "nas:/iso" in shown(host).exports
    assert (shown(host).is_whole, bool(shown(host).fix)) == (False, True)
    # The others' connections move.
    if not alone:
        host.carrier(0, up=False)
        host.run()
        assert host.address("xprt-0-rdma") == A2


def test_a_mount_over_tcp_is_nobodys_business(host: Host):
    host.root.nfs_mount("10.99.0.1:/iso", "/mnt/iso", "tcp", A1)
    assert host.run().problems == ()


def test_what_a_kill_left_is_undone_first(host: Host):
    marker = host.root.path / PATHS_LEVER[1:]
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(f"{A1} eth0\n")
    runner = host.root.runner
    runner.answer(f"ip route del unreachable {A1}/32 table local proto 186", "")
    runner.answer(f"ip route show type unreachable {A1}/32 table local proto 186", "")
    for address in (A1, "192.0.2.186"):
        runner.answer(f"ip -4 neigh show {address} dev eth0", "")
    host.run()
    assert not marker.exists()
    route = f"unreachable {A1}/32 table local proto 186"
    assert ("ip", "route", "del", *route.split()) in runner.ran


def test_a_netdev_that_is_renamed_is_found_again(host: Host):
    host.run()
    (host.root.path / "sys/class/net/eth1").unlink()
    host.names[1] = "storage1"
    host.root.netdev("storage1", addresses=["10.98.0.2/24"])
    host.root.write("/sys/class/net/storage1/carrier", "1")
    host.root.gid("rxe1", 1, 0, "0000:0000:0000:0000:0000:ffff:0a62:0002",
                  netdev="storage1")  # fmt: skip
    host.root.route(A2, "storage1", "10.98.0.2")
    host.run()
    assert shown(host).paths[1].netdev == "storage1"
    assert states(host) == [UP, UP]


GID_OF_A1 = "0000:0000:0000:0000:0000:ffff:0a63:0002"
NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"


def roce(host: Host, device: str, gid: str, netdev: str, parent: str) -> None:
    host.root.rdma_device(device, parent=parent)
    host.root.rdma_port(device, link_layer="Ethernet")
    host.root.gid(device, 1, 0, gid, netdev=netdev)


def lead_over(host: Host, netdev: str, **values: Any) -> None:
    """Let another netdev lead to A1."""
    host.root.netdev(netdev, addresses=["10.99.0.2/24"], **values)
    host.root.write(f"/sys/class/net/{netdev}/carrier", "1")
    host.root.route(A1, netdev, "10.99.0.2")
    host.names[0] = netdev


def another_adapter(host: Host) -> None:
    """eth0 is broken, and its address goes to eth2."""
    host.run()
    host.carrier(0, up=False)
    host.run()
    lead_over(host, "eth2")
    roce(host, "rxe2", GID_OF_A1, "eth2", "eth2")
    host.root.gid("rxe0", 1, 0, NO_GID)


def another_name(host: Host) -> None:
    """udev gives the RDMA device one."""
    host.run()
    (host.root.path / "sys/class/infiniband/rxe0").unlink()
    roce(host, "rocep1s0", GID_OF_A1, "eth0", "eth0")


def another_slave(host: Host) -> None:
    """The GID of a bond is at the active one's device (roce_gid_mgmt.c)."""
    host.root.netdev("eth2")
    lead_over(host, "bond0", kind="bond", lowers=["eth0", "eth2"])
    roce(host, "rxe2", NO_GID, "eth2", "eth2")
    host.run()
    host.root.write("/sys/class/infiniband/rxe0/ports/1/state", "1: DOWN")
    host.root.gid("rxe0", 1, 0, NO_GID)
    host.root.gid("rxe2", 1, 0, GID_OF_A1, netdev="bond0")


@pytest.mark.parametrize("change", [another_adapter, another_name, another_slave])
def test_a_path_that_leads_another_way_works_again(
    host: Host, monkeypatch: pytest.MonkeyPatch, change: Callable[[Host], None]
):
    """It was down until the daemon began again."""
    monkeypatch.setattr(mover, "_LINKS_AGAIN_S", 5.0)
    change(host)
    for _ in range(3):
        host.run()
    assert states(host) == [UP, UP]
    assert shown(host).paths[0].netdev == host.names[0]
    assert host.address("xprt-0-rdma") == A1


def test_without_a_link_the_netdev_of_another_path_is_no_other_way(
    host: Host, monkeypatch: pytest.MonkeyPatch
):
    """What is left of its routes, such as a wider one: nothing would be moved."""
    monkeypatch.setattr(mover, "_LINKS_AGAIN_S", 5.0)
    host.run()
    host.carrier(0, up=False)
    lead_over(host, "eth1")
    for _ in range(3):
        host.run()
    assert [path.netdev for path in shown(host).paths] == ["eth0", "eth1"]
    assert not shown(host).problem
    assert host.address("xprt-0-rdma") == A2


def test_a_bond_works_while_one_of_its_slaves_does(host: Host):
    """Of IPoIB; the daemon begins while its first port is down."""
    ours = "80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fb:12:3{}"
    for number, state in enumerate(("1: DOWN", "4: ACTIVE")):
        host.root.netdev(f"ib{number}", type=32, address=ours.format(number))
        host.root.rdma_device(f"mlx5_{number}")
        host.root.rdma_port(f"mlx5_{number}", state=state)
        gid = f"fe80:0000:0000:0000:0002:c903:00fb:123{number}"
        host.root.gid(f"mlx5_{number}", 1, 0, gid)
    values = {"type": 32, "kind": "bond", "lowers": ["ib0", "ib1"]}
    lead_over(host, "bond0", address=ours.format(1), **values)
    host.run()
    assert (states(host), host.address("xprt-0-rdma")) == ([UP, UP], A1)


def test_a_port_has_more_addresses_than_are_read_at_first(host: Host):
    """The path had no netdev, and a server that was slow lost its connection there."""
    host.root.rdma_port("rxe0", link_layer="Ethernet", table_size=20)
    for index in range(16):
        gid = f"fe80:0000:0000:0000:0000:0000:0000:00{index + 16:02x}"
        host.root.gid("rxe0", 1, index, gid, netdev=f"vlan{index}")
    host.root.gid("rxe0", 1, 16, GID_OF_A1, netdev="eth0")
    host.run()
    assert [path.netdev for path in shown(host).paths] == ["eth0", "eth1"]
    assert states(host) == [UP, UP]


def test_a_gateway_is_no_way_while_a_link_is_lost(
    host: Host, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mover, "_LINKS_AGAIN_S", 5.0)
    host.run()
    host.carrier(0, up=False)
    host.root.route(A1, "eth1", "10.98.0.2", gateway="10.98.0.254")
    host.run()
    assert states(host) == [DOWN, UP]
    assert shown(host).paths[0].netdev == "eth0"


@pytest.mark.parametrize(
    ("links", "has_switches", "words"),
    [
        ([Link("eth0"), Link("eth1")], True, ""),
        ([Link("eth0"), None], True, ""),
        ([Link("ib0"), Link("ib0")], True, "several paths lead over ib0"),
        ([], False, "this kernel shows no connections"),
    ],
)
def test_what_is_in_the_way(links, has_switches, words):
    why, fix = objection(links, [], has_switches)
    assert words in why
    assert bool(why) == bool(words) == bool(fix)


@pytest.mark.parametrize("address", ["nas", "10.98.0.01", "fd00::1", "10.98.0.1 ", ""])
def test_a_stored_policy_with_another_text_is_no_policy_for_paths(address):
    """What the kernel would take, and lose the mount by."""
    rule = NfsRule(number=1, name="r", server="nas", paths=(A1, address))
    assert rules_with_paths(Policy(nfs=NfsPolicy((rule,)))) == {}


def test_the_longest_wait_of_rules_with_the_same_paths_counts():
    rules = [
        NfsRule(number=n, name="r", server="nas", paths=(A1, A2), paths_return=wait)
        for n, wait in enumerate((5, 60, 10))
    ]
    (rule,) = rules_with_paths(Policy(nfs=NfsPolicy(tuple(rules)))).values()
    assert rule.paths_return == 60


def test_the_file_is_there_for_all_to_read(host: Host):
    host.run()
    path = host.root.path / PATHS_JSON[1:]
    assert path.stat().st_mode & 0o777 == 0o644


def test_two_servers_behind_one_cable_are_moved_at_once(
    host: Host, monkeypatch: pytest.MonkeyPatch
):
    """One that takes 8 s does not let the requests of others wait for so long."""
    host.run()
    (server,) = host.task._servers.values()
    other = copy.deepcopy(server)
    counters = {"main_xprt": 1, "last_used": 1}
    one = SunrpcTransport("switch-7", "xprt-9-rdma", "rdma", A1, counters=counters)
    other.see_connections([one], host.now)
    host.task._servers[A1, A2, "other"] = other  # type: ignore[index]
    asked: list[list[tuple[str, str]]] = []

    def move(root: str, wanted: dict[tuple[str, str], Target]) -> dict[Any, str]:
        asked.append(sorted(wanted))
        return dict.fromkeys(wanted, "")

    monkeypatch.setattr(mover, "move", move)
    for each in (server, other):
        each.paths[A1].link = Link("eth0", problem="eth0 has no link")
    host.task._move(Turn(None, host.runs.said.append, host))
    assert asked == [[("switch-0", "xprt-0-rdma"), ("switch-7", "xprt-9-rdma")]]


def test_a_move_that_failed_is_not_tried_again_without_pause(
    host: Host, monkeypatch: pytest.MonkeyPatch
):
    """Meanwhile its lever keeps TCP from the address too."""
    host.run()
    tried: list[tuple[float, float]] = []

    def move(root: str, wanted: dict[tuple[str, str], Target]) -> dict[Any, str]:
        begun, host.now = host.now, host.now + 8.4
        tried.append((begun, host.now))
        return dict.fromkeys(wanted, "the kernel does not take it")

    monkeypatch.setattr(mover, "move", move)
    host.carrier(0, up=False)
    for _ in range(3):
        host.run()
    pauses = [after[0] - before[1] for before, after in zip(tried, tried[1:])]
    assert len(pauses) >= 2
    assert min(pauses) >= 5.0


def test_a_proof_ends_also_when_its_mount_is_gone(host: Host):
    """Or the run lasted until its deadline, with the policy of its beginning."""
    host.run()
    (server,) = host.task._servers.values()

    class Done:
        address = A2

        def ended(self) -> str:
            return ""

    host.task._proof = server, Done()  # type: ignore[assignment]
    host.task._servers = {}
    host.task._prove(host.now)
    assert host.task._proof is None


def test_the_connections_of_a_proof_are_left_alone(host: Host):
    """A client of its own: moved away, it would prove the wrong address."""
    host.run()
    host.task._proof = (next(iter(host.task._servers.values())), Proved())
    host.connect("9", A2)
    host.now += 1
    host.task._look(Turn(None, host.runs.said.append, host))
    (server,) = host.task._servers.values()
    assert {key[0] for key in server.connections} == {"switch-0"}
    # A mount that was made meanwhile is one, soon after the proof.
    host.task._proof = None
    host.root.nfs_mount("nas:/b", "/rhev/data-center/mnt/nas:_b", "rdma", A2)
    host.run()
    host.run()
    (server,) = host.task._servers.values()
    assert {key[0] for key in server.connections} == {"switch-0", "switch-9"}


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("listening", ("", "")),
        ("refused", ("why", "")),
        ("no route", ("why", "")),
        ("stale", ("", "why")),
        ("unknown", ("", "why")),
    ],
)
def test_a_probe_that_says_nothing_is_no_silence(
    monkeypatch: pytest.MonkeyPatch, verdict: str, said: tuple[str, str]
):
    monkeypatch.setattr(mover.rdma_cm_probe, "ask", lambda *_: (verdict, "why"))
    assert mover.ask_rdma([A1], 20049) == {A1: said}


class Proved:
    """A proof that has not ended."""

    address = A2

    def ended(self) -> Optional[str]:
        return None

    def end(self) -> None:
        pass


def proven_as(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """Let each proof of A2 for a mount by A1 end with ``said``."""

    class Ended(Proved):
        def __init__(self, mounts: Any, address: str, work: Any) -> None:
            other = any(mount.address != address for mount in mounts)
            self.address, self.said = address, said if other else ""

        def ended(self) -> Optional[str]:
            return self.said

    monkeypatch.setattr(mover, "Proof", Ended)


FOREIGN = f"{A2} is not an address of nas:/vm's server"
FAILED = f"{A2}:/vm cannot be mounted: No such file or directory"


@pytest.mark.parametrize("shown_after", [1, 50])
@pytest.mark.parametrize(
    ("source", "said"),
    [("nas2:/vm", FOREIGN), ("nas2:/vm", FAILED), ("other:/iso", "")],
)
def test_a_new_connection_may_be_another_servers(
    host: Host,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    said: str,
    shown_after: int,
):
    """The kernel shows it before its mount, and a server that hangs never shows it."""
    host.without_second()
    host.follow((A1, A2), "nas*")
    proven_as(monkeypatch, said)
    for _ in range(3):
        host.run()
    places = []
    (file,) = host.connect("1", A2)
    begun = host.waits

    def each() -> None:
        if host.waits == begun + shown_after:
            host.root.nfs_mount(source, "/rhev/data-center/mnt/b", "rdma", A2)
        places.append(file.read_text().strip())

    host.each = each
    for _ in range(4):
        host.run()
    assert {*places} == {A2}
    assert host.address("xprt-0-rdma") == A1
    # Nor do the requests of the first go there.
    host.carrier(0, up=False)
    host.run()
    assert host.address("xprt-0-rdma") == A1


def test_two_connections_of_a_mount_of_others_are_not_spread(host: Host):
    """At an address of the mount, which is the same server's."""
    host.run()
    # The first look of a process is one at the mounts too.
    host.in_another_process()
    files = host.connect("1", A1, A1)
    begun = host.waits

    def each() -> None:
        if host.waits == begun + 1:
            host.root.nfs_mount("other:/iso", "/mnt/iso", "rdma", A1)

    host.each = each
    host.run()
    host.run()
    assert [file.read_text().strip() for file in files] == [A1, A1]


def test_a_mount_of_others_proves_no_address(
    host: Host, monkeypatch: pytest.MonkeyPatch
):
    host.without_second()
    proven_as(monkeypatch, FAILED)
    shown = host.root.path / "proc/self/mountinfo"
    ours = shown.read_text()
    host.root.nfs_mount("other:/iso", "/mnt/iso", "rdma", A2)
    (file,) = host.connect("1", A2)
    host.run()
    shown.write_text(ours)
    shutil.rmtree(file.parent.parent)
    host.carrier(0, up=False)
    host.run()
    assert host.address("xprt-0-rdma") == A1
