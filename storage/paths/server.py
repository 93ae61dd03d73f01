# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide over which path each connection to a server runs. Reads and changes nothing:
what was seen comes in, with its time in seconds after boot, and what to ask, to prove
and to move comes out.

A connection of the kernel is moved by its ``dstaddr`` (net/sunrpc/sysfs.c). The kernel
proves nothing about the new address, so an address gets connections only after it was
proven to be the same server's, while its hardware address is that of the proof, and if
it answers RDMA connections now. Which connection belongs to which mount the kernel does
not show: all with an address of ``paths`` are taken, and none if a mount of others may
be among them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Optional

from ovirt_rdma.host.export import RDMA, Export
from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.facts.statistics import SunrpcTransport
from ovirt_rdma.host.paths import is_vdsms
from ovirt_rdma.storage.paths.state import (
    DOWN,
    UNPROVEN,
    UP,
    Move,
    PathState,
    ServerPaths,
)
from ovirt_rdma.storage.readiness import module_fix

# Requests wait, or a connection is being made, for so long: the path is asked. A disk
# that sleeps takes longer, so this alone moves nothing. With what an answer may take, a
# move begins before Linux 6.12 gives up the connection (after 4 s), which costs more.
STALL_S = 1.0
# So long after a request was done, a connection works: longer than an answer may take.
_WORKS_S = 3.0
# So long after its last sign of use, one that is not connected is waited for.
_RECENT_S = 10.0
# A path that answered while requests wait is not asked again at once: it is the server.
_ASK_AGAIN_S = 10.0
_SILENT_AGAIN_S = 3.0
_UNTRIED_AGAIN_S = 30.0
# So old an answer counts for a move, if the link had no interruption since, and for a
# return, which is never urgent.
_FRESH_S, _RETURN_FRESH_S = 300.0, 5.0
_PROVE_AGAIN_S, _PROOF_S = 300.0, 3600.0
_MOVE_AGAIN_S = 5.0
# A path that fails again within this time gets its connections back later each time.
_FLAPPING_S, _LONGEST_RETURN_S = 600.0, 600.0

# Part of what a proof says of an address that is another server's.
FOREIGN = "is not an address of"

Key = tuple[str, str]
"""The folders of a connection: ``switch-3``, ``xprt-5-rdma``."""


class Link(NamedTuple):
    """How an address is reached: the netdev, its RDMA port as ``mlx5_0/1``, whether it
    is Ethernet; ``problem``: what is wrong with netdev or port, "" if nothing;
    ``neighbour``: the hardware address that has the address there, None if unknown.
    """

    netdev: str
    port: str = ""
    is_ethernet: bool = True
    problem: str = ""
    neighbour: Optional[str] = None


class Relocation(NamedTuple):
    """A connection, and the path that it will have."""

    key: Key
    source: str
    target: str
    reason: str


@dataclass
class _Connection:
    """A connection; ``waits_since``: when its requests, or its making, began to wait;
    ``worked``, ``waited``: when a request was done, or waited, last; ``not_before``:
    when it may be moved.
    """

    key: Key
    address: str
    home: str
    is_connected: bool = False
    last_used: Optional[int] = None
    is_connecting: bool = False
    waits_since: Optional[float] = None
    worked: float = -math.inf
    waited: float = -math.inf
    not_before: float = -math.inf
    was_home: bool = False

    def see(self, now_seen: SunrpcTransport, now: float) -> None:
        self.address = now_seen.destination or self.address
        self.is_connected = now_seen.connected
        self.was_home = self.was_home or self.address == self.home
        last_used = now_seen.counters.get("last_used")
        same = last_used == self.last_used
        waits = self.is_connecting = "CONNECTING" in now_seen.state
        if self.is_connected:
            waits = bool(now_seen.counters.get("pending_q_len")) and same
        if waits:
            self.waited = now
        # While it is not connected, nothing shows the requests that wait 3 s for the
        # next attempt. One that nobody uses is closed after 5 minutes only.
        recent = now - max(self.waited, self.worked) < _RECENT_S
        waits = waits or (not self.is_connected and recent)
        if not waits:
            self.waits_since = None
        elif self.waits_since is None:
            self.waits_since = now
        if self.is_connected and not same:
            self.last_used, self.worked = last_used, now

    def is_suspect(self, now: float) -> bool:
        return now >= self.suspect_at

    @property
    def suspect_at(self) -> float:
        # An attempt to connect is no slow disk: it is asked for at the next look.
        patience = 0.0 if self.is_connecting else STALL_S
        return math.inf if self.waits_since is None else self.waits_since + patience


@dataclass
class Path:
    """A path; times are in seconds after boot.

    ``answered``, ``asked``: an RDMA connection, the last times; ``silent``: why the
    last one was not answered; ``unknown``: why the last question was not decided;
    ``proven``: the hardware address that the server had at the proof, None without one;
    ``servers``: the names of those that it was for; ``tried``: the hardware address at
    the beginning of the last proof, good or not; ``refused``: why there is none;
    ``alive``: a connection worked there, since the link does; ``works``: one does now;
    ``up_since``: since when it is UP; ``downs``: when it ceased to be
    """

    address: str
    link: Optional[Link] = None
    link_since: Optional[float] = None
    answered: Optional[float] = None
    asked: float = -math.inf
    silent: str = ""
    unknown: str = ""
    proven: Optional[str] = None
    servers: frozenset[str] = frozenset()
    tried: Optional[str] = None
    refused: str = ""
    prove_after: float = -math.inf
    alive: bool = False
    works: bool = False
    up_since: Optional[float] = None
    downs: list[float] = field(default_factory=list)
    shown: tuple[str, Optional[float]] = ("", None)

    @property
    def is_linked(self) -> bool:
        """Whether its link works."""
        return self.link is not None and not self.link.problem

    def judge(self) -> tuple[str, str, str]:
        """Return its state, why, and what to do."""
        if self.link is None:
            why = f"no netdev with an RDMA device leads to {self.address}"
            return UNPROVEN, why, f"ip route get {self.address}; rdma link"
        absent = self.proven is not None and self.link.neighbour is None
        # One probe that was lost is nothing where requests are done.
        silent = "" if self.works else self.silent
        if self.link.problem or silent or absent:
            why = self.link.problem or silent
            why = why or f"no machine on {self.link.netdev} has this address"
            return DOWN, why, _FIX_CABLE if self.link.problem else _FIX_SERVER
        if self.proven is None:
            why = self.refused or self.unknown
            why = why or "it is not proven yet to be the same server's"
            foreign = FOREIGN in self.refused
            return UNPROVEN, why, _FIX_FOREIGN if foreign else module_fix(self.unknown)
        if self.link.neighbour != self.proven:
            why = (
                f"{self.address} has the hardware address {self.link.neighbour}, and "
                f"had {self.proven} when it was proven to be the same server's"
            )
            return UNPROVEN, why, _FIX_FOREIGN
        if not self.has_answered:
            why = self.unknown or "no RDMA connection was tried since it has a link"
            return UNPROVEN, why, module_fix(self.unknown)
        return UP, "", ""

    @property
    def may_work(self) -> bool:
        """Whether it is proven, and lacks nothing but an answer: it cannot be asked."""
        lacks_nothing = self.judge()[1] in ("", self.unknown)
        return bool(self.unknown) and self.proven is not None and lacks_nothing

    @property
    def has_answered(self) -> bool:
        """Whether RDMA was answered since the link works."""
        since = math.inf if self.link_since is None else self.link_since
        return self.alive or (self.answered is not None and self.answered >= since)

    def return_s(self, wanted: float, now: float) -> float:
        """Return how long it must be UP before its connections come back."""
        recent = [at for at in self.downs if now - at <= _FLAPPING_S]
        longer: float = wanted * 2 ** max(0, len(recent) - 1)
        return min(max(wanted, _LONGEST_RETURN_S), longer)


_FIX_CABLE = "check the cable and the switch port"
_FIX_SERVER = "check the server's port, and the cables to it"
_FIX_APART = "mount it by one of these addresses, or add its address to the paths"
_FIX_FOREIGN = "give the policy addresses of one server; see docs/paths.md"


@dataclass
class Server:
    """The paths of all exports whose rules have the same ``paths``. ``port`` is that of
    RDMA, ``return_s`` as in the policy.
    """

    addresses: tuple[str, ...]
    port: int
    return_s: float
    paths: dict[str, Path] = field(init=False)
    connections: dict[Key, _Connection] = field(default_factory=dict)
    mounts: tuple[NfsMount, ...] = ()
    # Those with the same rule, and an address that is none of the paths.
    apart: tuple[NfsMount, ...] = ()
    problem: str = ""
    fix: str = ""
    moves: int = 0
    last: Optional[Move] = None
    # When the fault of the last move was seen, and what was moved.
    moving: tuple[float, frozenset[Key]] = (0.0, frozenset())

    def __post_init__(self) -> None:
        self.paths = {address: Path(address) for address in self.addresses}

    def see_links(self, links: Mapping[str, Optional[Link]], now: float) -> None:
        """Take what was seen of links."""
        # A server has an address to itself. Of mounts by several, a rule with a glob
        # may name several servers.
        one_server = len({mount.address for mount in self.mounts}) == 1
        for address, path in self.paths.items():
            path.link = links.get(address)
            if not path.is_linked:
                path.link_since, path.silent, path.unknown = None, "", ""
            elif path.link_since is None:
                path.link_since = now
            worked = self._worked(path)
            path.alive = worked > -math.inf
            path.works = now - worked <= _WORKS_S
            if path.link and path.link.neighbour is None and path.alive:
                path.link = path.link._replace(neighbour=path.proven)
            at_work = [c for c in self.at(path.address) if c.is_connected]
            if one_server and path.servers & self._names:
                path.servers |= self._names  # more names of it
            elif not self._names <= path.servers:
                path.proven, path.refused, path.prove_after = None, "", -math.inf
            unproven = path.proven is None and not path.refused
            if path.link and at_work and unproven and one_server:
                # The server of the mount itself, or moved there before.
                path.proven = path.tried = path.link.neighbour
                path.servers, path.prove_after = self._names, now + _PROOF_S
            state = path.judge()[0]
            if state != UP:
                if path.up_since is not None:
                    path.downs = [*path.downs[-15:], now]
                path.up_since = None
            elif path.up_since is None:
                path.up_since = now

    @property
    def _names(self) -> frozenset[str]:
        return frozenset(Export.parse(mount.source).server for mount in self.mounts)

    def see_connections(
        self, transports: Iterable[SunrpcTransport], now: float
    ) -> None:
        """Take what was seen of all connections of the host."""
        seen = {
            (one.switch, one.name): one
            for one in transports
            if one.protocol == RDMA
            and (
                one.destination in self.paths
                # Not readable for once: its home is not forgotten.
                or (not one.destination and (one.switch, one.name) in self.connections)
            )
        }
        if {key[0] for key in seen} - {key[0] for key in self.connections}:
            for path in self.paths.values():
                path.prove_after = -math.inf  # a new mount may have one more connection
        self.connections = {k: c for k, c in self.connections.items() if k in seen}
        # The kernel does not show the main one while it is not connected.
        order = sorted(
            seen.items(), key=lambda s: (s[0][0], not s[1].counters.get("main_xprt"))
        )
        for key, one in order:
            if key not in self.connections:
                home = self._home(one, [k for k in seen if k[0] == key[0]])
                address = one.destination or home
                self.connections[key] = _Connection(key, address, home)
            self.connections[key].see(one, now)
        begun, keys = self.moving
        moved = [c for c in self.connections.values() if c.key in keys]
        if self.last and moved and all(c.is_connected for c in moved):
            self.last = replace(self.last, seconds=now - begun)
            self.moving = (0.0, frozenset())

    def _home(self, one: SunrpcTransport, switch: Sequence[Key]) -> str:
        """Return the path of a new connection: where it is, or the address of the
        mount, unless others of its switch have that already.
        """
        used = Counter(c.home for k, c in self.connections.items() if k in switch)
        most = math.ceil(len(switch) / len(self.addresses))
        # The kernel shows where a mount is, not where it was made: its address is that
        # of the main connection (fs/nfs/super.c). A source may have the other.
        sources = {Export.parse(mount.source).server for mount in self.mounts}
        mounted = sources & {*self.paths} or {m.address or "" for m in self.mounts}
        here = one.destination or self.addresses[0]
        if one.counters.get("main_xprt") and len(mounted) == 1:
            here = next((a for a in mounted if a in self.paths), here)
        if used[here] < most:
            return here
        return min(self.addresses, key=lambda address: used[address])

    def at(self, address: str) -> list[_Connection]:
        """Return the connections that run over a path."""
        return [c for c in self.connections.values() if c.address == address]

    def _worked(self, path: Path) -> float:
        """Return when a connection that waits for nothing has worked there last, if
        that was since the link does.
        """
        since = math.inf if path.link_since is None else path.link_since
        able = [
            c.worked
            for c in self.at(path.address)
            if c.is_connected and c.waits_since is None and c.worked >= since
        ]
        return max(able, default=-math.inf)

    def _is_usable(self, path: Path, now: float, fresh_s: float = _FRESH_S) -> bool:
        fresh = now - (path.answered or -math.inf) <= fresh_s
        return path.judge()[0] == UP and not path.silent and (fresh or path.works)

    def _is_in_need(self, now: float) -> bool:
        """Whether connections are on a path that is DOWN, or may be."""
        return any(
            c.is_suspect(now) or self.paths[c.address].judge()[0] == DOWN
            for c in self.connections.values()
        )

    def _may_return(self, one: _Connection, now: float) -> bool:
        """Whether it is time to bring it home, if home answers."""
        path = self.paths[one.home]
        if one.address == one.home or path.up_since is None:
            return False
        wait = path.return_s(self.return_s, now) if one.was_home else 0.0
        return now >= max(path.up_since + wait, one.not_before)

    def to_ask(self, now: float) -> list[str]:
        """Return the addresses to ask for RDMA now."""
        wanted: list[str] = []
        if not self.mounts:
            return wanted
        need = self._is_in_need(now)
        homes = {c.home for c in self.connections.values() if self._may_return(c, now)}
        # Each time that one begins to be suspect, all paths are asked: if none answers,
        # it is the server.
        suspects = [c for c in self.connections.values() if c.is_suspect(now)]
        suspect = max((c.suspect_at for c in suspects), default=math.inf)
        for path in self.paths.values():
            answered = now - (path.answered or -math.inf)
            if path.silent or not path.has_answered:
                after = _SILENT_AGAIN_S
            elif suspect <= now:
                after = 0.0 if path.asked < suspect else _ASK_AGAIN_S
            elif path.address in homes:
                after = _SILENT_AGAIN_S if answered > _RETURN_FRESH_S else math.inf
            elif need and not self._is_usable(path, now, _ASK_AGAIN_S):
                after = _SILENT_AGAIN_S
            elif not self._is_usable(path, now):
                after = _UNTRIED_AGAIN_S
            else:
                after = _PROOF_S
            if path.is_linked and now - path.asked >= after:
                wanted.append(path.address)
        return wanted

    def hear(self, address: str, said: tuple[str, str], now: float) -> None:
        """Take the answer to an RDMA connection: why there was none, and why that is
        not known; each may be "". What is not known changes no earlier answer, but an
        old one counts no more.
        """
        path = self.paths[address]
        path.asked = now
        silence, path.unknown = said
        if path.unknown:
            if path.answered is not None and now - path.answered > _FRESH_S:
                path.answered = None
            return
        path.silent = silence
        if not silence:
            path.answered = now

    def to_prove(self, now: float) -> Optional[tuple[tuple[NfsMount, ...], str]]:
        """Return an address, and mounts to whose servers it must belong, one of each
        name and address; None if there is nothing to prove, or the server is in
        trouble.

        With NFS 4.1 and later, the proof also gives the kernel a connection to the
        address, if the mount may have one more (``max_connect``).
        """
        if self.problem or self._is_in_need(now) or not self.connections:
            return None
        for path in self.paths.values():
            # Another hardware address is asked at once: of a NAS, it may be the other
            # controller.
            mac = path.link.neighbour if path.link else None
            due = now >= path.prove_after or mac not in (None, path.tried)
            unproven = path.proven is None or path.judge()[0] == UNPROVEN
            answers = path.answered is not None and not path.silent
            wanted: dict[tuple[str, Optional[str]], NfsMount] = {}
            # Those of VDSM first: a proof may read them as VDSM's user.
            by_whom = sorted(self.mounts, key=lambda m: not is_vdsms(m.mountpoint))
            for mount in by_whom if path.is_linked and answers and due else ():
                if unproven or mount.address != path.address:
                    server = Export.parse(mount.source).server
                    wanted.setdefault((server, mount.address), mount)
            if wanted:
                path.servers, path.tried = self._names, mac
                path.prove_after = -math.inf  # until there is a result
                return tuple(wanted.values()), path.address
        return None

    def prove(self, address: str, refused: str, now: float) -> None:
        """Take the result of a proof: "", or why the address is not the server's."""
        path = self.paths[address]
        if path.tried != (path.link.neighbour if path.link else None):
            return  # Nobody knows which machine this is about: it is due again.
        path.prove_after = now + (_PROVE_AGAIN_S if refused else _PROOF_S)
        if refused and FOREIGN not in refused and path.proven == path.tried is not None:
            return  # A mount that failed says nothing against the proof of before.
        path.refused, path.proven = refused, None if refused else path.tried

    def to_move(self, now: float) -> list[Relocation]:
        """Return the connections to move now."""
        wanted: list[Relocation] = []
        load = Counter(c.address for c in self.connections.values())
        for one in self.connections.values() if not self.problem else ():
            path = self.paths[one.address]
            state, sentence, _ = path.judge()
            if now < one.not_before:
                continue
            target = None
            # Where nothing can be asked, a server that is slow looks like one that is
            # gone, and to move each time would never end.
            stuck = state == UNPROVEN and one.is_suspect(now) and not path.unknown
            if state == DOWN or stuck:
                others = [p for p in self.paths.values() if p is not path]
                able = [p.address for p in others if self._is_usable(p, now)]
                able = able or [p.address for p in others if p.may_work]
                target = min(able, key=lambda address: load[address], default=None)
            elif self._may_return(one, now):
                home = self.paths[one.home]
                if self._is_usable(home, now, _RETURN_FRESH_S):
                    target = one.home
                sentence = "the path works again" if one.was_home else _SPREAD
            if target is not None:
                load[target] += 1
                load[one.address] -= 1
                wanted.append(Relocation(one.key, one.address, target, sentence))
        return wanted

    def move(
        self,
        wanted: Sequence[Relocation],
        done: Iterable[Key],
        begun: float,
        now: float,
        at: float,
    ) -> None:
        """Take which of ``wanted`` were moved; ``begun``: when that began; ``at``: now,
        in seconds since 1970.
        """
        done = frozenset(done)
        moved = [one for one in wanted if one.key in done]
        since = [self.connections[one.key].waits_since for one in moved]
        for one in wanted:
            connection = self.connections[one.key]
            connection.waits_since = None
            if one.key in done:
                connection.address = one.target
            else:
                connection.not_before = now + _MOVE_AGAIN_S
        if moved:
            begun = min((s for s in since if s is not None), default=begun)
            first = moved[0]
            self.moves += len(moved)
            self.moving = (begun, frozenset(done))
            self.last = Move(at, first.source, first.target, first.reason)

    def state(self, epoch: float, share: Mapping[str, float]) -> ServerPaths:
        """Return it as others read it. ``epoch``: now, in seconds since 1970."""
        shown = []
        for path in self.paths.values():
            state, sentence, fix = path.judge()
            if path.shown[0] != state:
                path.shown = state, epoch
            shown.append(
                PathState(
                    path.address,
                    path.link.netdev if path.link else None,
                    state,
                    sentence,
                    fix,
                    path.shown[1],
                    len(self.at(path.address)),
                    share.get(path.address),
                )
            )
        connections = self.connections.values()
        apart = [f"{m.source} has the address {m.address}" for m in self.apart]
        apart = [", ".join(apart) + ", which is none of its paths"] if apart else []
        return ServerPaths(
            tuple(mount.source for mount in (*self.mounts, *self.apart)),
            tuple(shown),
            len(connections),
            sum(c.address != c.home for c in connections),
            self.moves,
            self.last,
            "; ".join(filter(None, (self.problem, *apart))),
            self.fix or (_FIX_APART if apart else ""),
        )


_SPREAD = "each path gets a connection"
