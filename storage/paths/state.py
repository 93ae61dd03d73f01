# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the network paths to NFS servers as data, and keep them in
/run/ovirt-rdma/paths.json.

The daemon writes the file while a rule of the policy has ``paths``; ``nfs paths``,
``status``, the metrics, and through ``status`` the engine's tools read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.paths import PATHS_JSON
from ovirt_rdma.host.system.json_codec import Envelope, StateFile

# A connection may be moved there; none may; it is not known whether one may: the path
# was not tried yet, or the address is not proven to be the same server's.
UP, DOWN, UNPROVEN = "up", "down", "unproven"
# The worst first.
STATES = (DOWN, UNPROVEN, UP)

# Seconds after which the file says nothing any more: the mover writes every 5 s, and a
# look at which it moves connections may take 10.
_FRESH_S = 30.0


@dataclass(frozen=True)
class PathState:
    """One path: an ``address`` of the server, and the netdev that leads there.

    - ``state``: one of STATES; ``sentence``: why, for people; ``fix``: what to do
    - ``since``: when the state began, in seconds since 1970
    - ``connections``: how many run over it now
    - ``share``: its part of the bytes that the paths of this server carried lately,
      from 0 to 1; None if that is unknown, or nothing was carried
    """

    address: str
    netdev: Optional[str]
    state: str
    sentence: str = ""
    fix: str = ""
    since: Optional[float] = None
    connections: int = 0
    share: Optional[float] = None


@dataclass(frozen=True)
class Move:
    """The last move of connections: ``at`` seconds since 1970, from one address to
    another, for a ``reason``; ``seconds``: from what was seen of the fault until they
    were connected again; None if they are not.
    """

    at: float
    source: str
    target: str
    reason: str
    seconds: Optional[float] = None


@dataclass(frozen=True)
class ServerPaths:
    """The paths of the exports that have the same ``paths`` in their rules.

    - ``exports``: the mounted ones, ``server:/path``
    - ``connections``: how many their mounts have; ``away``: how many of them are
      not on the path that is theirs when all is well
    - ``moves``: since the daemon began; ``last``: the last one
    - ``problem``, ``fix``: why no connection is moved at present, or not those of a
      mount; "" if nothing prevents that
    """

    exports: tuple[str, ...]
    paths: tuple[PathState, ...]
    connections: int = 0
    away: int = 0
    moves: int = 0
    last: Optional[Move] = None
    problem: str = ""
    fix: str = ""

    @property
    def up(self) -> int:
        """How many paths are UP."""
        return sum(path.state == UP for path in self.paths)

    @property
    def is_whole(self) -> bool:
        """Whether all paths are UP, all connections at home, and nothing in the way."""
        return self.up == len(self.paths) and not self.away and not self.problem

    @property
    def shown(self) -> str:
        """``2 of 2 paths``."""
        return f"{self.up} of {len(self.paths)} paths"

    @property
    def server(self) -> str:
        """Its name in the exports; the addresses if none is mounted."""
        names = dict.fromkeys(one.rpartition(":/")[0] for one in self.exports)
        return ", ".join(names or (path.address for path in self.paths))

    @property
    def worst_first(self) -> list[PathState]:
        """The paths, the worst first."""
        return sorted(self.paths, key=lambda path: STATES.index(path.state))

    @property
    def flaws(self) -> list[tuple[str, str]]:
        """What is wrong, as clauses, each with what to do or ""; the worst first."""
        found = []
        for path in self.worst_first:
            if path.state != UP:
                why = f": {path.sentence}" if path.sentence else ""
                found.append((f"{path.address} is {path.state}{why}", path.fix))
        if self.problem:
            found.append((f"connections cannot be moved: {self.problem}", self.fix))
        if self.away:
            away = f"{self.away} of {self.connections}"
            found.append((f"connections on another path than their own: {away}", ""))
        return found


@dataclass(frozen=True)
class PathsState:
    """All paths of a host at one time: ``taken_at`` in seconds since 1970, ``taken_s``
    in seconds after boot.
    """

    taken_at: float
    taken_s: float
    servers: tuple[ServerPaths, ...] = ()

    def is_fresh(self, now_s: float) -> bool:
        """Whether it still counts, ``now_s`` seconds after boot."""
        return 0.0 <= now_s - self.taken_s <= _FRESH_S

    def of_export(self, export: str) -> Optional[ServerPaths]:
        """Return the paths of a mounted export, ``server:/path``; None without."""
        return next((one for one in self.servers if export in one.exports), None)


_NOUN, _STATES = "state of the paths", {PathState: STATES}
_FILE = StateFile(PATHS_JSON, Envelope("paths"), PathsState, _NOUN, _STATES)
write_paths, remove_paths, read_paths = _FILE.write, _FILE.remove, _FILE.read
