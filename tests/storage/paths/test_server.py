# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide over which path each connection runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.facts.statistics import SunrpcTransport
from ovirt_rdma.storage.paths.server import Key, Link, Relocation, Server
from ovirt_rdma.storage.paths.state import DOWN, UNPROVEN, UP, ServerPaths

A1, A2, A3 = "10.99.0.1", "10.98.0.1", "10.97.0.1"
MAC1, MAC2, OTHER = "52:54:00:99:00:01", "52:54:00:99:01:01", "02:00:00:00:00:ff"
SILENT = f"{A1} did not answer an RDMA connection within 1.5 s"
NO_CM = "this host has no RDMA CM: /dev/infiniband/rdma_cm: No such file or directory"
STALE = f"{A2} waits for the end of an earlier question of this host"
MAIN, SECOND = ("switch-0", "xprt-1-rdma"), ("switch-0", "xprt-3-rdma")


def link(number: int = 1, **values: Any) -> Link:
    mac = {1: MAC1, 2: MAC2}.get(number, f"52:54:00:99:0{number}:01")
    return Link(f"eth{number}", f"mlx5_{number}/1", **{"neighbour": mac, **values})


def mount(version: str = "4.2", address: str = A1) -> NfsMount:
    return NfsMount("nas:/vm", "/mnt", "rw", version, "rdma", 20049, address)


class Played:
    """A server, and the links and connections that it is shown, second by second."""

    def __init__(
        self, *placed: str, version: str = "4.2", addresses: Sequence[str] = (A1, A2)
    ) -> None:
        self.server = Server(tuple(addresses), 20049, 10.0)
        self.server.mounts = (mount(version),)
        self.now = 1000.0
        self.links: dict[str, Optional[Link]] = {
            address: link(number) for number, address in enumerate(addresses, 1)
        }
        keys = [MAIN, SECOND, *(("switch-0", f"xprt-{n}-rdma") for n in range(4, 9))]
        self.connections = {
            key: SunrpcTransport(
                *key,
                "rdma",
                destination=address,
                state=("CONNECTED", "BOUND"),
                counters={
                    "pending_q_len": 0,
                    "last_used": 1,
                    "main_xprt": int(key == MAIN),
                },
            )
            for key, address in zip(keys, placed)
        }
        self.silent: dict[str, str] = {}
        self.unknown: dict[str, str] = {}
        self.foreign: dict[str, str] = {}

    def change(self, key: Key, **values: Any) -> None:
        """Set fields and counters; None: the kernel does not show the counter."""
        one = self.connections[key]
        fields = {name: values.pop(name) for name in one._fields if name in values}
        counters = {**one.counters, **values}
        shown = {name: value for name, value in counters.items() if value is not None}
        self.connections[key] = one._replace(**fields, counters=shown)

    def look(self) -> None:
        self.server.see_connections(self.connections.values(), self.now)
        self.server.see_links(self.links, self.now)

    def second(self, *, works: bool = True) -> list[Relocation]:
        """Let a second go by as the mover does; return what was moved."""
        self.now += 1
        for key, one in self.connections.items():
            if works and one.counters.get("pending_q_len") == 0 and one.connected:
                self.change(key, last_used=one.counters.get("last_used", 0) + 1)
        self.look()
        for address in self.server.to_ask(self.now):
            said = self.silent.get(address, ""), self.unknown.get(address, "")
            self.server.hear(address, said, self.now)
        self.server.see_links(self.links, self.now)
        wanted = self.server.to_move(self.now)
        for one in wanted:
            self.change(one.key, destination=one.target, pending_q_len=0)
            self.change(one.key, state=("CONNECTED", "BOUND"))
        if wanted:
            keys = [one.key for one in wanted]
            self.server.move(wanted, keys, self.now, self.now, self.now)
        proof = self.server.to_prove(self.now)
        if proof is not None:
            self.server.prove(proof[1], self.foreign.get(proof[1], ""), self.now)
        return wanted

    def seconds(self, count: int) -> list[Relocation]:
        return [one for _ in range(count) for one in self.second()]

    def until_moved(self, most: int) -> list[Relocation]:
        return next(filter(None, (self.second() for _ in range(most))), [])

    def shown(self) -> ServerPaths:
        return self.server.state(self.now, {})

    def states(self) -> list[str]:
        return [path.state for path in self.shown().paths]

    def places(self) -> list[Optional[str]]:
        return [one.destination for one in self.connections.values()]


@pytest.fixture
def whole() -> Played:
    """Two connections at home, both paths proven."""
    played = Played(A1, A2)
    assert played.seconds(5) == []
    assert (played.states(), played.shown().is_whole) == ([UP, UP], True)
    return played


def test_a_link_that_is_lost_moves_at_once_and_only_what_was_there(whole: Played):
    whole.links[A1] = link(1, problem="eth1 has no link")
    (moved,) = whole.second()
    assert moved == (MAIN, A1, A2, "eth1 has no link")
    assert whole.states() == [DOWN, UP]
    assert (whole.shown().away, whole.shown().shown) == (1, "1 of 2 paths")
    assert whole.seconds(60) == []


def test_it_returns_when_the_link_is_back_for_so_long_and_the_server_answers(
    whole: Played,
):
    whole.links[A1] = link(1, problem="eth1 has no link")
    whole.second()
    whole.links[A1] = link(1)
    whole.silent[A1] = SILENT
    assert whole.seconds(30) == []
    whole.silent.clear()
    began = whole.now
    moved = whole.until_moved(30)
    assert moved == [(MAIN, A2, A1, "the path works again")]
    assert 10 <= whole.now - began <= 16
    whole.seconds(2)
    assert whole.shown().is_whole


def test_a_cut_far_away_moves_after_a_stall_and_no_answer(whole: Played):
    whole.silent[A1] = SILENT
    assert whole.seconds(20) == []  # idle: nobody needs it
    whole.change(MAIN, pending_q_len=3)
    moved = [whole.second() for _ in range(3)]
    assert moved == [[], [(MAIN, A1, A2, SILENT)], []]
    assert whole.states() == [DOWN, UP]


def test_a_server_that_is_slow_is_left_alone(whole: Played):
    """Requests wait, and RDMA is answered: disks are no path."""
    whole.change(MAIN, pending_q_len=8)
    whole.change(SECOND, pending_q_len=8)
    assert whole.seconds(120) == []
    assert whole.states() == [UP, UP]


def test_a_server_that_hangs_for_seconds_is_left_alone(whole: Played):
    """All its NFS threads wait for a disk: on no path is RDMA answered. The other
    connection has worked a moment ago.
    """
    whole.change(MAIN, pending_q_len=8)
    whole.silent = {A1: SILENT, A2: "it did not answer"}
    assert whole.seconds(2) == []
    whole.change(SECOND, pending_q_len=8)
    assert whole.seconds(20) == []
    whole.silent = {}
    assert whole.seconds(2) == []
    for key in (MAIN, SECOND):
        whole.change(key, pending_q_len=0)
    assert whole.seconds(20) == []
    assert whole.states() == [UP, UP]


def test_a_cut_is_asked_for_while_another_connection_waits_for_a_disk(whole: Played):
    whole.change(SECOND, pending_q_len=8)
    assert whole.seconds(6) == []
    whole.silent[A1] = SILENT
    whole.change(MAIN, pending_q_len=8)
    assert whole.seconds(2) == [(MAIN, A1, A2, SILENT)]


def test_progress_is_no_stall(whole: Played):
    whole.silent[A1] = SILENT
    for _ in range(30):
        used = whole.connections[MAIN].counters.get("last_used", 0) + 1
        whole.change(MAIN, pending_q_len=8, last_used=used)
        assert whole.second() == []
    assert whole.states() == [UP, UP]


def test_a_connection_that_is_made_again_and_again_is_asked_for(whole: Played):
    whole.silent[A1] = SILENT
    closed = {"state": ("LOCKED", "CONNECTING", "BOUND"), "pending_q_len": None}
    whole.change(MAIN, **closed, last_used=None)
    assert (MAIN, A1, A2, SILENT) in whole.seconds(5)


def test_an_attempt_that_fails_at_once_is_waited_for_too(whole: Played):
    """The kernel tries every 3 s, and shows nothing of the requests in between."""
    whole.silent[A1] = SILENT
    whole.change(MAIN, state=("BOUND",), pending_q_len=None, last_used=None)
    assert (MAIN, A1, A2, SILENT) in whole.seconds(3)


def test_an_idle_connection_that_is_closed_is_no_fault(whole: Played):
    for _ in range(12):
        assert whole.second(works=False) == []
    whole.silent[A1] = SILENT
    whole.change(MAIN, state=("BOUND",), pending_q_len=None, last_used=None)
    assert whole.seconds(60) == []
    assert whole.states() == [UP, UP]


def test_nothing_moves_to_an_address_that_does_not_answer(whole: Played):
    whole.silent.update({A1: SILENT, A2: "no"})
    for key in (MAIN, SECOND):
        whole.change(key, pending_q_len=4)
    assert whole.seconds(60) == []
    assert whole.states() == [DOWN, DOWN]
    # One is back: all goes there.
    del whole.silent[A2]
    assert whole.seconds(5) == [(MAIN, A1, A2, SILENT)]


@pytest.mark.parametrize(
    ("why", "fix"),
    [
        (f"{A2} is not an address of nas:/vm's server", "addresses of one server"),
        (f"{A2}:/vm cannot be mounted: Connection timed out", ""),
        ("the proof failed: PermissionError: Operation not permitted", ""),
    ],
)
def test_nothing_moves_to_an_address_that_is_not_proven(why: str, fix: str):
    played = Played(A1)
    played.foreign[A2] = why
    played.seconds(5)
    assert played.states() == [UP, UNPROVEN]
    path = played.shown().paths[1]
    assert path.sentence == why
    assert (fix in path.fix, path.fix == "") == (True, fix == "")
    assert bool(fix) == bool(path.fix)
    played.links[A1] = link(1, problem="eth1 has no link")
    assert played.seconds(600) == []


def test_nothing_moves_to_another_machine_that_took_the_address(whole: Played):
    whole.links[A2] = link(2, neighbour=OTHER)
    whole.foreign[A2] = "is another server"
    whole.links[A1] = link(1, problem="eth1 has no link")
    assert whole.seconds(60) == []
    assert whole.states() == [DOWN, UNPROVEN]
    assert OTHER in whole.shown().paths[1].sentence


def test_requests_that_wait_at_another_machine_leave_it(whole: Played):
    whole.links[A1] = link(1, neighbour=OTHER)
    whole.foreign[A1] = "is another server"
    assert whole.seconds(10) == []
    whole.change(MAIN, pending_q_len=3)
    ((key, source, target, reason),) = whole.seconds(3)
    assert (key, source, target) == (MAIN, A1, A2)
    assert OTHER in reason or "another server" in reason


def test_a_server_whose_hardware_changed_is_proven_again(whole: Played):
    whole.links[A2] = link(2, neighbour=OTHER)
    whole.second()
    assert whole.states() == [UP, UP]


def test_a_connection_more_by_nconnect_goes_to_the_other_path():
    played = Played(A1, A1, version="3")
    moved = played.seconds(5)
    assert moved == [(SECOND, A1, A2, "each path gets a connection")]
    assert played.shown().is_whole


def test_nfs_4_is_asked_to_make_a_connection_by_each_address():
    played = Played(A1)
    played.look()
    played.server.hear(A2, ("", ""), played.now)
    proof = played.server.to_prove(played.now)
    assert proof is not None
    assert (proof[0], proof[1]) == ((mount(),), A2)
    played.server.prove(A2, "", played.now)
    # It has got none: it is not asked for each second.
    played.look()
    assert played.server.to_prove(played.now + 1) is None
    # A new mount is asked at once.
    played.connections = {
        ("switch-7", "xprt-0-rdma"): played.connections[MAIN]._replace(
            switch="switch-7"
        )
    }
    played.look()
    assert played.server.to_prove(played.now + 1) is not None


FOREIGN = "is not an address of nas:/vm's server"
OTHERS = replace(mount("3", A2), source="nas2:/b", mountpoint="/b")


def two_servers(*mounts: NfsMount) -> Played:
    """A rule with a glob: what one server has at A1, another has at A2."""
    played = Played(A1, A2, version="3")
    played.server.mounts = mounts
    one = played.connections.pop(SECOND)._replace(switch="switch-1")
    played.connections["switch-1", one.name] = one
    played.foreign = {A1: f"{A1} {FOREIGN}", A2: f"{A2} {FOREIGN}"}
    return played


def test_two_servers_of_one_rule_are_two_from_the_first_look_on():
    played = two_servers(mount("3"), OTHERS)
    played.look()
    for address in (A1, A2):
        played.server.hear(address, ("", ""), played.now)
    played.links[A1] = link(1, problem="eth1 has no link")
    played.look()
    assert played.server.to_move(played.now) == []
    played.links[A1] = link(1)
    played.seconds(10)
    assert played.states() == [UNPROVEN, UNPROVEN]
    played.links[A1] = link(1, problem="eth1 has no link")
    assert played.seconds(60) == []


def test_each_address_is_proven_to_be_of_each_servers_name():
    played = two_servers(mount("3"), OTHERS, replace(OTHERS, source="nas2:/c"))
    played.foreign = {}
    asked = []
    prove = played.server.to_prove

    def to_prove(now: float) -> Any:
        asked.append(prove(now))
        return asked[-1]

    played.server.to_prove = to_prove  # type: ignore[method-assign]
    played.seconds(10)
    both = (mount("3"), OTHERS)
    assert list(filter(None, asked)) == [(both, A1), (both, A2)]
    assert played.states() == [UP, UP]
    played.links[A1] = link(1, problem="eth1 has no link")
    assert [m.target for m in played.seconds(2)] == [A2]


def test_a_mount_of_another_server_takes_back_what_was_proven():
    played = two_servers(mount("3"))
    second = played.connections.popitem()
    played.foreign = {}
    played.seconds(10)
    assert played.states() == [UP, UP]
    played.server.mounts = (mount("3"), OTHERS)
    played.connections.update([second])
    played.links[A1] = link(1, problem="eth1 has no link")
    assert played.seconds(60) == []


@pytest.mark.parametrize("version", ["3", "4.2"])
def test_after_a_second_mount_addresses_are_still_proven_each_hour(version):
    played = Played(A1, A2, version=version)
    played.seconds(60)
    proven: list[str] = []
    prove = played.server.prove

    def counted(address: str, refused: str, now: float) -> None:
        proven.append(address)
        prove(address, refused, now)

    played.server.prove = counted  # type: ignore[method-assign]
    second = ("switch-1", "xprt-9-rdma")
    played.connections[second] = played.connections[MAIN]._replace(
        switch=second[0], name=second[1]
    )
    played.seconds(3 * 3600 + 60)
    assert proven == [A2] * 4


@pytest.mark.parametrize("refused", [f"{A2} {FOREIGN}", ""])
def test_a_mount_in_place_of_anothers_has_none_of_its_proofs(refused: str):
    """Unmounted and mounted between two looks at the mounts."""
    played = two_servers(mount("3"))
    one = played.connections.popitem()
    played.foreign = {A2: refused} if refused else {}
    played.seconds(10)
    assert played.states() == [UP, UNPROVEN if refused else UP]
    played.server.mounts = (OTHERS,)
    played.connections = dict([one])
    played.foreign = {A1: f"{A1} {FOREIGN}"}
    played.seconds(10)
    assert played.states() == [UNPROVEN, UP]
    played.links[A2] = link(2, problem="eth2 has no link")
    assert played.seconds(60) == []


def test_another_name_at_the_same_address_is_the_same_server():
    played = Played(A1, version="3")
    played.seconds(10)
    played.foreign = {A2: "is not asked again"}
    alias = replace(mount("3"), source="10.99.0.1:/b", mountpoint="/b")
    for mounts in ((mount("3"), alias), (alias,)):
        played.server.mounts = mounts
        played.seconds(10)
        assert played.states() == [UP, UP]


def test_nothing_is_proven_while_a_path_is_in_trouble(whole: Played):
    whole.links[A2] = link(2, problem="eth2 has no link")
    whole.links[A1] = link(1, neighbour=OTHER)
    whole.server.see_links(whole.links, whole.now)
    assert whole.server.to_prove(whole.now + 1) is None


def test_main_goes_home_to_the_address_of_the_mount():
    """The daemon has started while all was moved away."""
    played = Played(A2, A2)
    played.seconds(30)
    assert played.places() == [A1, A2]


def test_three_paths_share_what_one_had():
    played = Played(A1, A2, A3, addresses=(A1, A2, A3))
    played.seconds(5)
    played.links[A3] = link(3, problem="eth3 has no link")
    (one,) = played.second()
    played.links[one.target] = link(1, problem="no link")
    moved = played.second()
    assert {m.source for m in moved} == {one.target}
    assert len(moved) == 2
    assert played.shown().up == 1


def test_a_path_that_flaps_gets_its_connections_back_later_each_time(whole: Played):
    waited = []
    for _ in range(4):
        whole.links[A1] = link(1, problem="eth1 has no link")
        whole.seconds(6)
        whole.links[A1] = link(1)
        began = whole.now
        whole.until_moved(200)
        waited.append(whole.now - began)
    assert waited == sorted(waited)
    assert waited[0] < 20 < waited[2] < waited[3] <= 90


def test_a_move_that_the_kernel_does_not_take_is_tried_again(whole: Played):
    whole.links[A1] = link(1, problem="eth1 has no link")
    whole.now += 1
    whole.look()
    wanted = whole.server.to_move(whole.now)
    whole.server.move(wanted, [], whole.now, whole.now, 0.0)
    assert whole.server.moves == 0
    assert whole.server.to_move(whole.now + 1) == []
    assert whole.server.to_move(whole.now + 6) == wanted


def test_how_long_a_move_took_counts_from_the_first_sign(whole: Played):
    whole.silent[A1] = SILENT
    whole.change(MAIN, pending_q_len=3)
    whole.seconds(6)
    last = whole.shown().last
    assert last is not None
    assert last.seconds == 2.0


def test_what_is_in_the_way_moves_nothing(whole: Played):
    whole.server.problem = "a mount of others"
    whole.links[A1] = link(1, problem="eth1 has no link")
    assert whole.seconds(30) == []
    assert not whole.shown().is_whole


def test_a_neighbour_that_is_gone_counts_only_where_nothing_works(whole: Played):
    whole.links[A2] = link(2, neighbour=None)
    whole.second()
    assert whole.states() == [UP, UP]
    whole.change(SECOND, state=("BOUND",), pending_q_len=None, last_used=None)
    whole.second()
    assert whole.states() == [UP, DOWN]


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["link", "silent", "foreign", "stall", "closed"]),
        st.sampled_from([A1, A2]),
        st.booleans(),
    ),
    max_size=30,
)


@given(CHANGES)
def test_a_connection_is_only_ever_moved_where_it_may_be(changes):
    """Whatever happens: to an address of the policy that has a link, is proven, and
    has answered since the link is there.
    """
    played = Played(A1, A2)
    played.seconds(5)
    for what, address, bad in changes:
        number = 1 if address == A1 else 2
        if what == "link":
            problem = "no link" if bad else ""
            played.links[address] = link(number, problem=problem)
        elif what == "foreign":
            mac = OTHER if bad else {1: MAC1, 2: MAC2}[number]
            played.links[address] = link(number, neighbour=mac)
            played.foreign = {address: "is another server"} if bad else {}
        elif what == "silent":
            played.silent = {address: "no answer"} if bad else {}
        else:
            for key, one in list(played.connections.items()):
                if one.destination == address and what == "stall":
                    played.change(key, pending_q_len=4 if bad else 0)
                elif one.destination == address:
                    words = ("LOCKED", "CONNECTING") if bad else ("CONNECTED",)
                    played.change(key, state=words)
        for one in played.seconds(3):
            path = played.server.paths[one.target]
            assert one.target != one.source
            assert path.link is not None
            assert not path.link.problem
            assert path.link.neighbour == path.proven
            assert played.links[one.target] == path.link
            assert not played.silent.get(one.target) or path.answered is not None


@given(CHANGES)
def test_all_come_home_once_all_is_well(changes):
    played = Played(A1, A2)
    played.seconds(5)
    for what, address, bad in changes:
        if what == "link":
            problem = "no link" if bad else ""
            played.links[address] = link(1 if address == A1 else 2, problem=problem)
        elif what == "silent":
            played.silent = {address: "no answer"} if bad else {}
        played.seconds(2)
    played.links = {A1: link(1), A2: link(2)}
    played.silent = {}
    played.seconds(700)
    assert played.places() == [A1, A2]
    assert played.shown().is_whole


def test_a_proof_that_could_not_be_made_does_not_undo_the_one_before(whole: Played):
    """The hourly mount fails for a moment: the path can still take connections."""
    why = f"{A2}:/vm cannot be mounted: Connection timed out"
    whole.server.prove(A2, why, whole.now)
    assert whole.states() == [UP, UP]
    whole.links[A1] = link(1, problem="eth1 has no link")
    assert [m.target for m in whole.second()] == [A2]


def test_a_proof_that_says_foreign_counts(whole: Played):
    why = f"{A2} is not an address of nas:/vm's server"
    whole.server.prove(A2, why, whole.now)
    assert whole.states() == [UP, UNPROVEN]


def test_a_proof_is_none_of_a_machine_that_took_the_address_meanwhile():
    played = Played(A1)
    played.look()
    played.server.hear(A2, ("", ""), played.now)
    proof = played.server.to_prove(played.now)
    assert proof is not None
    assert proof[1] == A2
    played.links[A2] = link(2, neighbour=OTHER)
    played.look()
    played.server.prove(A2, "", played.now)
    played.foreign = {A2: f"{A2} {FOREIGN}"}
    assert played.states() == [UP, UNPROVEN]
    played.seconds(3)
    assert played.shown().paths[1].sentence == f"{A2} {FOREIGN}"
    played.links[A1] = link(1, problem="eth1 has no link")
    assert played.seconds(60) == []


@pytest.mark.parametrize("neighbour", [MAC2, OTHER])
def test_a_proof_that_has_no_result_is_made_again(neighbour: str):
    """A move has ended it."""
    played = Played(A1)
    played.look()
    played.server.hear(A2, ("", ""), played.now)
    first = played.server.to_prove(played.now)
    assert first is not None
    played.links[A2] = link(2, neighbour=neighbour)
    played.look()
    assert played.server.to_prove(played.now + 1) == first


def test_another_hardware_address_is_proven_at_once_and_then_seldom(whole: Played):
    """A NAS whose address has gone to its other controller."""
    whole.server.prove(A2, "", whole.now)
    whole.seconds(600)
    whole.links[A2] = link(2, neighbour=OTHER)
    whole.seconds(3)
    assert whole.states() == [UP, UP]
    whole.foreign = {A2: f"{A2} is not an address of nas:/vm's server"}
    whole.links[A2] = link(2, neighbour="02:00:00:00:00:fe")
    whole.seconds(3)
    assert whole.states() == [UP, UNPROVEN]
    whole.foreign = {}
    whole.seconds(200)
    assert whole.states() == [UP, UNPROVEN]


def test_a_probe_that_is_lost_moves_nothing_that_works(whole: Played):
    whole.silent[A1] = SILENT
    whole.server.hear(A1, (SILENT, ""), whole.now)
    assert whole.seconds(30) == []
    assert whole.states() == [UP, UP]
    # But nothing is moved there.
    whole.links[A2] = link(2, problem="eth2 has no link")
    assert whole.seconds(10) == []


def test_where_nothing_can_be_asked_what_works_is_up_and_takes_connections():
    """Without rdma_ucm, as on a host whose modules are not loaded yet."""
    played = Played(A1, A2)
    played.unknown = {A1: NO_CM, A2: NO_CM}
    for _ in range(60):
        assert played.second() == []
        assert played.states() == [UP, UP]
    played.links[A1] = link(1, problem="eth1 has no link")
    assert played.seconds(2) == [(MAIN, A1, A2, "eth1 has no link")]


CONNECTING: dict[str, Any] = {
    "state": ("LOCKED", "CONNECTING", "BOUND"),
    "pending_q_len": None,
    "last_used": None,
}


@pytest.fixture
def unasked() -> Played:
    """Two connections at home, on a host that cannot ask: without rdma_ucm, iWARP."""
    played = Played(A1, A2)
    played.unknown = {A1: NO_CM, A2: NO_CM}
    played.seconds(60)
    assert played.states() == [UP, UP]
    return played


def lost(played: Played, dead: Sequence[str], seconds: int) -> list[Relocation]:
    """Let the kernel have no connection to addresses for so long."""
    moved = []
    for _ in range(seconds):
        for key, one in played.connections.items():
            if one.destination in dead:
                played.change(key, **CONNECTING)
        moved += played.second()
    return moved


def test_where_nothing_can_be_asked_no_slow_request_moves_anything(unasked: Played):
    unasked.change(MAIN, pending_q_len=1)
    assert unasked.seconds(60) == []
    unasked.change(MAIN, pending_q_len=0)
    assert unasked.seconds(60) == []
    assert unasked.states() == [UP, UP]
    # A connection that is made again, as after a server's restart.
    assert lost(unasked, [A1], 3) == []
    unasked.change(MAIN, state=("CONNECTED", "BOUND"), pending_q_len=0)
    assert unasked.seconds(5) == []
    assert unasked.states() == [UP, UP]


def test_where_nothing_can_be_asked_only_a_link_that_is_lost_moves(unasked: Played):
    """A server that is slow for a minute looks like one that is gone."""
    unasked.change(MAIN, pending_q_len=1)
    assert unasked.seconds(10) == []
    assert lost(unasked, [A1], 60) == []
    assert lost(unasked, [A1, A2], 60) == []
    assert unasked.places() == [A1, A2]
    unasked.links[A1] = link(1, problem="eth1 has no link")
    assert unasked.seconds(2) == [(MAIN, A1, A2, "eth1 has no link")]
    unasked.links[A1] = link(1)
    # Nothing tells that the path is back, but there is no other one.
    assert unasked.seconds(600) == []
    assert unasked.states() == [UNPROVEN, UP]
    unasked.links[A2] = link(2, problem="eth2 has no link")
    assert {one.target for one in unasked.seconds(2)} == {A1}
    assert unasked.places() == [A1, A1]
    assert unasked.states() == [UP, DOWN]


@pytest.mark.parametrize("waits", [0, 1])
def test_where_nothing_can_be_asked_an_idle_path_is_a_way_out(unasked: Played, waits):
    for _ in range(10):
        assert unasked.second(works=False) == []
    unasked.change(MAIN, pending_q_len=waits)
    unasked.links[A1] = link(1, problem="eth1 has no link")
    assert unasked.second(works=False) == [(MAIN, A1, A2, "eth1 has no link")]


def test_where_nothing_can_be_asked_an_unproven_address_is_no_way_out():
    played = Played(A1)
    played.unknown = {A1: NO_CM, A2: NO_CM}
    played.seconds(10)
    assert played.states() == [UP, UNPROVEN]
    assert lost(played, [A1], 60) == []
    played.links[A1] = link(1, problem="eth1 has no link")
    assert played.seconds(60) == []


@pytest.mark.parametrize(("why", "fix"), [(NO_CM, "modprobe rdma_ucm"), (STALE, "")])
def test_a_spare_path_that_cannot_be_asked_says_why(why, fix):
    played = Played(A1)
    played.unknown = {A2: why}
    played.seconds(60)
    path = played.shown().paths[1]
    assert (path.state, path.sentence, path.fix) == (UNPROVEN, why, fix)
    played.unknown = {}
    played.seconds(35)
    assert played.states() == [UP, UP]


def test_an_answer_to_an_earlier_question_takes_nothing_back(whole: Played):
    """A server that was frozen: for a minute it refuses all that the host asks."""
    for _ in range(10):
        whole.second(works=False)
    whole.unknown = {A1: STALE, A2: STALE}
    for address in (A1, A2):
        whole.server.hear(address, ("", STALE), whole.now)
    assert whole.second(works=False) == []
    assert whole.states() == [UP, UP]
    whole.links[A1] = link(1, problem="eth1 has no link")
    assert [m.target for m in whole.second(works=False)] == [A2]


def test_a_home_that_gives_no_answer_is_not_asked_at_every_look(whole: Played):
    whole.links[A1] = link(1, problem="eth1 has no link")
    whole.second()
    whole.links[A1] = link(1)
    whole.seconds(5)
    whole.unknown = {A1: STALE}
    asked = 0
    for _ in range(60):
        whole.second()
        asked += whole.server.paths[A1].asked == whole.now
    assert whole.places() == [A2, A2]
    assert 10 <= asked <= 20
    # Nor does it wait longer than before for one that answers.
    whole.unknown = {}
    assert whole.seconds(4) == [(MAIN, A2, A1, "the path works again")]


def test_an_old_answer_does_not_make_a_spare_path_up():
    """As after rdma_ucm was unloaded: nothing is moved there while another works."""
    played = Played(A1)
    played.seconds(30)
    assert played.states() == [UP, UP]
    played.unknown = {A1: STALE, A2: STALE}
    for _ in range(400):
        played.second()
        played.server.hear(A2, ("", STALE), played.now)
    assert played.states() == [UP, UNPROVEN]


def test_an_export_more_of_a_server_takes_no_proof_back():
    played = two_servers(mount("3"), OTHERS)
    played.foreign = {}
    played.seconds(10)
    assert played.states() == [UP, UP]
    more = replace(OTHERS, source=OTHERS.source + "2", mountpoint="/mnt/2")
    played.server.mounts = (*played.server.mounts, more)
    played.look()
    assert played.states() == [UP, UP]


def test_a_path_that_was_idle_is_asked_before_it_is_used(whole: Played):
    """A connection stays CONNECTED on a dead path while nothing is sent."""
    for _ in range(400):
        whole.second(works=False)
    whole.silent[A2] = "no"
    whole.links[A1] = link(1, problem="eth1 has no link")
    assert whole.second(works=False) == []


def test_an_address_that_cannot_be_read_for_once_does_not_lose_the_home():
    """The kernel frees the text of ``dstaddr`` while others read it."""
    played = Played(A1)
    played.seconds(5)
    played.links[A1] = link(1, problem="eth1 has no link")
    played.seconds(2)
    # addr= of the mount follows its main connection.
    played.server.mounts = (mount(address=A2),)
    played.change(MAIN, destination=None)
    played.look()
    played.change(MAIN, destination=A2)
    played.links[A1] = link(1)
    played.seconds(30)
    assert played.places() == [A1]


def test_a_mount_that_was_moved_before_the_daemon_began_comes_home():
    played = Played(A2)
    played.server.mounts = (replace(mount(address=A2), source=f"{A1}:/vm"),)
    played.seconds(10)
    assert played.places() == [A1]
