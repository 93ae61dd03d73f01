# SPDX-License-Identifier: GPL-2.0-or-later
"""Keep the connections of mounts on paths that work: a task of the daemon.

A run lasts RUN_S and looks each TICK_S, and at once when the kernel says that a netdev
has changed; what it knows is carried to the next run, which follows at once.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Callable, Optional

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.statistics import read_ports, read_transports
from ovirt_rdma.host.daemon.loop import Result, Task, Turn
from ovirt_rdma.host.export import RDMA, Export
from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.facts.statistics import SunrpcTransport, option_value
from ovirt_rdma.host.policy.forms import Refused
from ovirt_rdma.host.policy.model import NfsRule, Policy, rule_for
from ovirt_rdma.host.policy.texts import path_address
from ovirt_rdma.host.system.commands import CommandFailed, Runner, run_command
from ovirt_rdma.host.system.tree import FileTree, seconds_after_boot
from ovirt_rdma.storage import rdma_cm_probe
from ovirt_rdma.storage.health.signs import Probes
from ovirt_rdma.storage.mounts import prove
from ovirt_rdma.storage.paths.moving import (
    Lever,
    Proof,
    Target,
    move,
    prove_address,
    undo_levers,
)
from ovirt_rdma.storage.paths.server import Key, Link, Relocation, Server
from ovirt_rdma.storage.paths.state import (
    DOWN,
    PathsState,
    ServerPaths,
    remove_paths,
    write_paths,
)
from ovirt_rdma.storage.readiness import ports_behind

RUN_S, TICK_S = 10.0, 0.5
# linux/rtnetlink.h
_RTMGRP_LINK = 1
_FIRST_GIDS = 16
# A port that nothing listens on (RFC 863): only the neighbour entry matters.
_DISCARD = 9
_BYTES = ("port_xmit_data", "port_rcv_data")
_PACKETS = ("sent_pkts", "rcvd_pkts")
# Neighbours and mounts need no faster eye; the state's file has its age.
_SELDOM_S = 5.0
# An answer takes milliseconds, and of a Linux server one of its NFS threads
# (svc_rdma_accept in net/sunrpc/xprtrdma/svc_rdma_transport.c).
ANSWER_S = 1.5
# A driver that resets its port keeps the kernel from an answer for seconds (rtnl), and
# a move waits for that: what was known of neighbours serves too.
_NEIGHBOURS_S = 1.0
_LINKS_AGAIN_S = 60.0
# So long after a proof its connections have ended.
_PROOF_GONE_S = 5.0
# So long after its connection the kernel shows a mount, unless the server hangs.
_SHOWN_S = 2.0

Ask = Callable[[Sequence[str], int], Mapping[str, tuple[str, str]]]
"""Makes an RDMA connection to each address; returns for each why there was none, and
why that is not known; each is "" otherwise.
"""


def ask_rdma(addresses: Sequence[str], port: int) -> dict[str, tuple[str, str]]:
    """Return which addresses accept RDMA connections, as Ask says. Takes ANSWER_S, and
    a tenth of a second for each that does not answer at once.

    A refusal is none: where two ports of a Linux server are in one network, one answers
    for the other's address (arp_ignore), and its RDMA CM then refuses. Not known: this
    host cannot ask, or the server takes the question for an earlier one.
    """

    def work(address: str, _: bool) -> Iterator[dict[str, Any]]:
        verdict, detail = rdma_cm_probe.ask(address, port)
        kind = "error" if verdict in ("refused", "no route") else "problem"
        yield {} if verdict == "listening" else {kind: detail}

    answers = Probes(work).ask(addresses, timeout_s=ANSWER_S)
    late = f"it did not answer an RDMA connection within {ANSWER_S:g} s"
    return {
        address: (late if one.late else one.error or "", one.problem)
        for address, one in answers.items()
    }


def rules_with_paths(policy: Policy) -> dict[tuple[str, ...], NfsRule]:
    """Return a rule for each list of paths, the one with the longest paths_return."""
    found: dict[tuple[str, ...], NfsRule] = {}
    for rule in sorted(policy.nfs.rules, key=lambda rule: rule.paths_return):
        # policy.json may be anybody's work, and the kernel takes any text for an
        # address: with a name it loses the mount.
        if rule.paths and all(_is_plain(address) for address in rule.paths):
            found[rule.paths] = rule
    return found


def _is_plain(address: str) -> bool:
    with contextlib.suppress(Refused):
        return path_address(address) == address
    return False


def mounts_by_paths(
    mounts: Iterable[NfsMount], policy: Policy
) -> dict[tuple[str, ...], tuple[list[NfsMount], ...]]:
    """Return for each list of paths the mounts over RDMA that have one of its
    addresses: those whose rule has these paths, and those of others; and those with
    such a rule, but another address. Pure.
    """
    every = rules_with_paths(policy)
    found: dict[tuple[str, ...], tuple[list[NfsMount], ...]] = {}
    for mount in mounts:
        if prove(mount).transport != RDMA:
            continue
        export = Export.maybe(mount.source)
        match = rule_for(policy, export) if export else None
        for addresses in every:
            ours = match is not None and match.rule.paths == addresses
            there = mount.address in addresses
            if ours or there:
                kind = 2 if not there else 0 if ours else 1
                found.setdefault(addresses, ([], [], []))[kind].append(mount)
    return found


def objection(
    links: Sequence[Optional[Link]], others: Sequence[NfsMount], has_switches: bool
) -> tuple[str, str]:
    """Return why no connection may be moved, and what to do; "" if nothing prevents
    that. Pure.
    """
    if not has_switches:
        why = "this kernel shows no connections (/sys/kernel/sunrpc)"
        return why, "boot a kernel of EL9 or EL10"
    if others:
        names = ", ".join(sorted({mount.source for mount in others}))
        why = f"{names} may use the same connections, and no rule with these paths "
        return f"{why}names it", "give the rule that names it the same paths"
    netdevs = [one.netdev for one in links if one]
    for netdev in netdevs:
        if netdevs.count(netdev) > 1:
            why = f"several paths lead over {netdev}"
            return why, "give each address a subnet, and a netdev, of its own"
    return "", ""


def links_to(reader: HostReader, addresses: Iterable[str]) -> dict[str, Link]:
    """Return how each address that an RDMA port leads to is reached while all is well:
    a route may lead elsewhere while the link is down, so this is kept.
    """
    devices = reader.rdma_devices(most_gids=_FIRST_GIDS)
    netdevs = reader.netdevs()
    routes = {address: reader.route(address) for address in addresses}
    # Further on in a table are those of a host with many addresses. A gateway is where
    # a path leads whose netdev is not there, and to read all takes long.
    direct = [r for r in routes.values() if r and r.netdev and not r.gateway]
    if not all(ports_behind(devices, netdevs, route) for route in direct):
        devices = reader.rdma_devices()
    found = {}
    for address, route in routes.items():
        behind = ports_behind(devices, netdevs, route)
        if route and route.netdev and behind:
            # Of a bond, the slaves' are behind too.
            device, port = next((o for o in behind if o[1].is_active), behind[0])
            name = f"{device.name}/{port.number}"
            neighbour = "routed" if route.gateway else None
            found[address] = Link(
                route.netdev, name, port.is_ethernet, neighbour=neighbour
            )
    return found


def link(
    tree: FileTree, known: Link, neighbours: Mapping[tuple[str, str], str], to: str
) -> Link:
    """Return the present state of a link of :func:`links_to` to the address ``to``."""
    # The kernel gives EINVAL for a netdev that is not up.
    carrier = tree.text(f"/sys/class/net/{known.netdev}/carrier")
    device, _, number = known.port.partition("/")
    folder = f"/sys/class/infiniband/{device}/ports/{number}"
    state = (tree.text(f"{folder}/state") or "gone").partition(": ")
    problem = ""
    if carrier != "1":
        problem = f"{known.netdev} has no link"
    elif state[2] != "ACTIVE":
        problem = f"the RDMA port {known.port} is {state[2] or state[0]}"
    # The hardware address of a router says nothing about the server.
    neighbour = known.neighbour or neighbours.get((known.netdev, to))
    return known._replace(problem=problem, neighbour=neighbour)


def read_neighbours(
    run: Runner, before: dict[tuple[str, str], str]
) -> dict[tuple[str, str], str]:
    """Return the hardware address of each neighbour, by netdev and IP address;
    ``before`` if they cannot be read.
    """
    try:
        rows = list(json.loads(run(["ip", "-j", "-4", "neigh", "show"]) or "[]"))
    except (CommandFailed, ValueError, TypeError):
        return before
    found: dict[tuple[str, str], str] = {}
    for row in rows:
        with contextlib.suppress(KeyError, TypeError, AttributeError):
            if "FAILED" not in row.get("state", ()):
                found[row["dev"], row["dst"]] = row["lladdr"]
    return found


def warm(addresses: Iterable[str]) -> None:
    """Have the kernel look for the hardware addresses: without an entry, the first RDMA
    connection runs into a time limit of 5 s (RDMA_RESOLVE_TIMEOUT).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
        for address in addresses:
            with contextlib.suppress(OSError):
                out.sendto(b"", (address, _DISCARD))


def read_traffic(
    tree: FileTree, links: Mapping[str, Link]
) -> dict[str, tuple[int, ...]]:
    """Return by address what its RDMA port has sent and received: bytes and packets,
    each 0 if the port does not count them.
    """
    names = {*_BYTES, *_PACKETS}
    counters = {f"{one.device}/{one.port}": one for one in read_ports(tree, [], names)}
    found = {}
    for address, known in links.items():
        # Some drivers have the counters of packets at the device.
        places = known.port, f"{known.port.partition('/')[0]}/0"
        seen = [counters[place] for place in places if place in counters]
        found[address] = tuple(
            sum(one.get(name) or 0 for one in seen for name in group)
            for group in (_BYTES, _PACKETS)
        )
    return found


def shares(
    before: Mapping[str, tuple[int, ...]], after: Mapping[str, tuple[int, ...]]
) -> dict[str, float]:
    """Return the part of each address of the bytes that all carried, or of the packets
    if a port does not count bytes. Empty if nothing was carried. Pure.
    """
    for kind in (0, 1):
        if all(after[address][kind] for address in after):
            grown = {
                address: max(0, counted[kind] - before[address][kind])
                for address, counted in after.items()
                if address in before
            }
            total = sum(grown.values())
            return {a: part / total for a, part in grown.items()} if total else {}
    return {}


def _link_events(stack: contextlib.ExitStack) -> list[socket.socket]:
    """Return a socket that can be read when a netdev has changed; none where the kernel
    gives no such socket.
    """
    with contextlib.suppress(OSError):
        kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
        events = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
        stack.enter_context(events).bind((0, _RTMGRP_LINK))
        return [events]
    return []


class MovePaths(Task):
    """Moves the connections of the host below ``root``."""

    name = "paths"
    changes_host = uses_copy = True
    deadline_s = 90.0
    off = "no rule of the policy has paths"
    carried = (
        *("_servers", "_known", "_looked_for", "_traffic", "_shares", "_said"),
        *("_since", "_switches", "_proved", "_neighbours"),
    )

    def __init__(
        self,
        root: str,
        tools: Optional[Runner] = None,
        *,
        ask: Ask = ask_rdma,
        clock: Callable[[], float] = seconds_after_boot,
    ) -> None:
        super().__init__(root, tools)
        self._run = tools or run_command
        self._at_once = tools or partial(run_command, timeout_s=_NEIGHBOURS_S)
        self._ask, self._clock = ask, clock
        self._tree = FileTree(root)
        self._servers: dict[tuple[str, ...], Server] = {}
        self._known: dict[str, Link] = {}
        self._looked_for = float("-inf")
        self._traffic: dict[str, tuple[int, ...]] = {}
        self._shares: dict[str, float] = {}
        # Since when each switch is shown, those of our mounts, and when a proof had
        # connections of its own last.
        self._since: Optional[dict[str, float]] = None
        self._switches: set[str] = set()
        self._proved = float("-inf")
        self._neighbours: dict[tuple[str, str], str] = {}
        # What the journal has of each path and server.
        self._said: dict[str, str] = {}
        # Of this run only.
        self._proof: Optional[tuple[Server, Proof]] = None
        self._seldom = float("-inf")
        self._others: dict[tuple[str, ...], list[NfsMount]] = {}
        self._published: tuple[ServerPaths, ...] = ()
        self._due = float("-inf")

    def interval(self, policy: Policy) -> Optional[float]:
        """As :meth:`Task.interval`."""
        return TICK_S if rules_with_paths(policy) else None

    def run(self, turn: Turn) -> Result:
        """Keep the connections on paths that work, for RUN_S."""
        left = undo_levers(self.root, self._run)
        if self.interval(turn.policy) is None:
            remove_paths(self.root)
            return Result(self.off, tuple(left))
        end = self._clock() + RUN_S
        try:
            with contextlib.ExitStack() as stack:
                events = _link_events(stack)
                while True:
                    self._look(turn)
                    ends = self._clock() >= end and self._proof is None
                    if ends or turn.stop.wait(TICK_S, [e.fileno() for e in events]):
                        break
                    # What has changed is read from sysfs.
                    for event in events:
                        with contextlib.suppress(OSError):
                            while event.recv(1 << 16):
                                pass
        finally:
            if self._proof is not None:
                self._proof[1].end()
                self._proof = None
        return self._result(left)

    def _result(self, left: Sequence[str]) -> Result:
        states = [one.state(time.time(), {}) for one in self._servers.values()]
        problems = [f"{', '.join(s.exports)}: {s.problem}" for s in states if s.problem]
        shown = sum(len(s.paths) for s in states)
        up = sum(s.up for s in states)
        return Result(f"{up} of {shown} paths up", (*left, *problems), next_s=0.0)

    def _look(self, turn: Turn) -> None:
        """Look once, and act."""
        now = self._clock()
        transports = read_transports(self._tree, [])
        shown = transports or ()
        if transports is not None:
            # What was there before the daemon began is not new.
            new = float("-inf") if self._since is None else now
            since = self._since or {}
            self._since = {one.switch: since.get(one.switch, new) for one in shown}
            self._switches &= {*self._since}
        if self._proof is not None:
            self._proved = now
        if now - self._seldom >= _SELDOM_S:
            self._look_seldom(turn, now)
            if transports is not None:
                self._switches = self._of_mounts(shown, now)
        ours = [one for one in shown if one.switch in self._switches]
        for addresses, server in self._servers.items():
            links = self._links(addresses)
            others = self._others.get(addresses, [])
            server.problem, server.fix = objection(
                list(links.values()), others, transports is not None
            )
            server.see_connections(ours, now)
            server.see_links(links, now)
        # All at once: servers share cables, and none waits for another's answers.
        if self._ask_all(now) or any(s.to_move(now) for s in self._servers.values()):
            self._neighbours = read_neighbours(self._at_once, self._neighbours)
            for addresses, server in self._servers.items():
                server.see_links(self._links(addresses), self._clock())
        self._move(turn)
        self._prove(now)
        self._publish(turn)

    def _of_mounts(self, shown: Sequence[SunrpcTransport], now: float) -> set[str]:
        """Return the switches of our mounts, after a look at all mounts.

        A mount's address is that of its main connection (fs/nfs/super.c), and no other
        server's. Others, and those of a mount that is not shown yet, are left alone;
        so are those that a proof makes: if one was moved, the wrong address would be
        proven.
        """
        if now - self._proved <= _PROOF_GONE_S:
            return self._switches
        ours = {m.address for one in self._servers.values() for m in one.mounts}
        since = self._since or {}
        return {
            one.switch
            for one in shown
            if (one.destination in ours and now - since[one.switch] >= _SHOWN_S)
            # Not readable for once.
            or (not one.destination and one.switch in self._switches)
        }

    def _look_seldom(self, turn: Turn, now: float) -> None:
        """Look at what changes with the policy, and by an administrator."""
        self._seldom = now
        reader = HostReader(self.root, self._run)
        found = mounts_by_paths(reader.nfs_mounts(), turn.policy)
        rules = rules_with_paths(turn.policy)
        servers = {}
        for addresses, (mounts, others, apart) in found.items():
            if not mounts and not apart:
                continue
            rule = rules[addresses]
            server = self._servers.get(addresses)
            server = server or Server(addresses, rule.port, rule.paths_return)
            server.port, server.return_s = rule.port, rule.paths_return
            server.mounts, server.apart = tuple(mounts), tuple(apart)
            self._others[addresses] = others
            servers[addresses] = server
        self._servers = servers
        wanted = [address for addresses in servers for address in addresses]
        broken = any(self._is_gone(address) for address in wanted)
        if wanted and (broken or now - self._looked_for >= _LINKS_AGAIN_S):
            self._looked_for = now
            for address, found_now in links_to(reader, wanted).items():
                # Without a link, a route may lead elsewhere: to a gateway, or over the
                # netdev of another path.
                works = not link(self._tree, found_now, {}, address).problem
                beside = (a for one in servers if address in one for a in one)
                taken = found_now.netdev in (
                    self._known[a].netdev
                    for a in beside
                    if a != address and a in self._known
                )
                moved = works and found_now.neighbour is None and not taken
                if moved or self._is_gone(address) or not self._down(address):
                    self._known[address] = found_now
        warm(wanted)
        self._neighbours = read_neighbours(self._at_once, self._neighbours)
        links = {a: known for a, known in self._known.items() if a in wanted}
        traffic = read_traffic(self._tree, links)
        self._shares = {}
        for addresses in servers:
            of = {a: traffic[a] for a in addresses if a in traffic}
            self._shares.update(shares(self._traffic, of))
        self._traffic = traffic

    def _is_gone(self, address: str) -> bool:
        known = self._known.get(address)
        if known is None:
            return True
        return not self._tree.is_folder(f"/sys/class/net/{known.netdev}")

    def _down(self, address: str) -> bool:
        return bool(link(self._tree, self._known[address], {}, address).problem)

    def _links(self, addresses: Iterable[str]) -> dict[str, Optional[Link]]:
        found: dict[str, Optional[Link]] = dict.fromkeys(addresses)
        for address in addresses:
            known = self._known.get(address)
            if known is not None:
                found[address] = link(self._tree, known, self._neighbours, address)
        return found

    def _ask_all(self, now: float) -> bool:
        """Ask the addresses that are due; return whether there were."""
        wanted: dict[int, list[tuple[Server, str]]] = {}
        for server in self._servers.values():
            for address in server.to_ask(now):
                wanted.setdefault(server.port, []).append((server, address))
        for port, asked in wanted.items():
            answers = self._ask([*dict.fromkeys(address for _, address in asked)], port)
            for server, address in asked:
                server.hear(address, answers[address], self._clock())
        return bool(wanted)

    def _move(self, turn: Turn) -> None:
        now = self._clock()
        every = [(server, server.to_move(now)) for server in self._servers.values()]
        targets = {}
        for server, wanted in every:
            levers = {address: self._lever(server, address) for address in server.paths}
            for one in wanted:
                lever = levers[one.source]
                locked = server.connections[one.key].is_connecting
                targets[one.key] = Target(one.target, lever, one.source, locked)
        if not targets:
            return
        if self._proof is not None:
            # It may wait for the path that has failed.
            self._proof[1].end()
            self._proof = None
        results = move(self.root, targets)
        for server, wanted in every:
            self._note_moves(server, wanted, results, turn)
            done = [one.key for one in wanted if not results[one.key]]
            server.move(wanted, done, now, self._clock(), time.time())

    def _lever(self, server: Server, address: str) -> Optional[Lever]:
        path = server.paths[address]
        # Mounts of containers: a route that is unreachable ends their I/O.
        values = (option_value(m.options, "fatal_neterrors") for m in server.mounts)
        if path.judge()[0] != DOWN or path.link is None or set(values) - {None, "none"}:
            return None
        return Lever(self.root, address, path.link, self._run)

    def _note_moves(
        self,
        server: Server,
        wanted: Sequence[Relocation],
        results: dict[Key, str],
        turn: Turn,
    ) -> None:
        exports = ", ".join(mount.source for mount in server.mounts)
        for one in dict.fromkeys(w[1:] for w in wanted):
            source, target, reason = one
            whys = [results[w.key] for w in wanted if w[1:] == one]
            failed = sorted(set(filter(None, whys)))
            moved = len(whys) - sum(map(bool, whys))
            if moved:
                turn.note(
                    f"{exports}: moved {moved} connection{'' if moved == 1 else 's'} "
                    f"from {source} to {target}: {reason}"
                )
            for why in failed:
                turn.note(f"{exports}: not moved from {source} to {target}: {why}")

    def _prove(self, now: float) -> None:
        if self._proof is not None:
            server, proof = self._proof
            said = proof.ended()
            if said is not None:
                self._proof = None
                server.prove(proof.address, said, now)
            return
        for server in self._servers.values():
            wanted = server.to_prove(now)
            if wanted is not None:
                work = partial(prove_address, server.addresses)
                self._proof = server, Proof(*wanted, work)
                return

    def _publish(self, turn: Turn) -> None:
        epoch = time.time()
        states = tuple(
            server.state(epoch, self._shares) for server in self._servers.values()
        )
        said = {}
        for state in states:
            for path in state.paths:
                said[path.address] = f"{path.address} is {path.state}"
                if path.sentence:
                    said[path.address] += f": {path.sentence}"
            if state.problem:
                said[state.exports[0]] = f"connections stay: {state.problem}"
        for what, sentence in said.items():
            if self._said.get(what) != sentence:
                turn.note(sentence)
        now = self._clock()
        if said != self._said or states != self._published or now >= self._due:
            self._published, self._due = states, now + _SELDOM_S
            write_paths(self.root, PathsState(epoch, seconds_after_boot(), states))
        self._said = said

    def end(self) -> None:
        """As :meth:`Task.end`: the state is nobody's any more."""
        with contextlib.suppress(Exception):
            undo_levers(self.root, self._run)
        remove_paths(self.root)
