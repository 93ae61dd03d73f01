# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the health of mounts as data, and keep it in /run/ovirt-rdma/health.json.

The daemon writes the file after each look at the mounts. ``status``,
the metrics, and through ``status`` the engine's tools read it. A file that is older
than the unit's interval allows is stale: it says nothing about the mounts of now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.paths import HEALTH_JSON
from ovirt_rdma.host.system.json_codec import Envelope, StateFile

# A mount answers; it answers late, or its connection waits; it does not answer, but may
# do so again; its I/O fails, or cannot succeed before somebody acts.
OK, SLOW, STALLED, DEAD = "ok", "slow", "stalled", "dead"
# It could not be tried.
UNKNOWN = "unknown"
# The worst first.
STATES = (DEAD, STALLED, SLOW, UNKNOWN, OK)
# I/O waits or fails.
BROKEN = (DEAD, STALLED)

# Causes. PATH is the network from this host's port to the server's; SLOTS are the
# slots and credits of the connection; FABRIC is the InfiniBand fabric with its subnet
# manager; HOST is this host with its configuration. UNKNOWN is one too.
SERVER, PATH, SLOTS, FABRIC, HOST = "server", "path", "slots", "fabric", "host"

# A look may take this many seconds longer than the interval: servers are asked.
_LOOK_S = 15.0
_INTERVALS = 2


@dataclass(frozen=True)
class MountHealth:
    """The health of one NFS mount.

    - ``export``: ``server:/path``; ``transport``: ``rdma`` or ``tcp``, None if unproven
    - ``state``: one of STATES; ``cause``: one of those, None for OK
    - ``certain``: the evidence leaves no other cause
    - ``reason``: the stable id of ``sentence``, as ``server-silent``; "" for OK
    - ``sentence``: why, for people; ``fix``: what to do
    - ``evidence``: what was seen
    - ``since``: when the state began, in seconds since 1970; None if it was tried once
    - ``answered_s``: the seconds until the server answered; None without an answer
    """

    export: str
    mountpoint: str
    transport: Optional[str]
    version: Optional[str]
    state: str
    cause: Optional[str] = None
    certain: bool = True
    reason: str = ""
    sentence: str = ""
    fix: str = ""
    evidence: tuple[str, ...] = ()
    since: Optional[float] = None
    answered_s: Optional[float] = None

    @property
    def shown(self) -> str:
        """A clause: ``nas:/vm is stalled (probably server): nas answers nothing``."""
        likely = "" if self.certain else "probably "
        cause = f" ({likely}{self.cause})" if self.cause else ""
        return f"{self.export} is {self.state}{cause}: {self.sentence}"


@dataclass(frozen=True)
class HealthState:
    """The health of all NFS mounts of a host at one time.

    - ``taken_at``: in seconds since 1970; ``taken_s``: the same in seconds after boot,
      which setting the clock does not change
    - ``interval_s``: seconds between two looks; 0.0 if there was only one
    - ``problems``: sentences about what could not be read
    """

    taken_at: float
    taken_s: float
    interval_s: float
    mounts: tuple[MountHealth, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def worst(self) -> str:
        """The worst state of a mount; OK without mounts."""
        states = {mount.state for mount in self.mounts}
        return next((state for state in STATES if state in states), OK)

    def is_fresh(self, now_s: float) -> bool:
        """Whether it still counts, ``now_s`` seconds after boot."""
        longest = _INTERVALS * self.interval_s + _LOOK_S
        # Of an earlier boot, or from a tree with a clock of its own: in the future.
        return 0.0 <= now_s - self.taken_s <= longest


_STATES = {MountHealth: STATES}
_FILE = StateFile(HEALTH_JSON, Envelope("health"), HealthState, "health", _STATES)
write_state, remove_state, read_state = _FILE.write, _FILE.remove, _FILE.read
