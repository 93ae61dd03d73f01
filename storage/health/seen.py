# SPDX-License-Identifier: GPL-2.0-or-later
"""Define what was seen of a mount, and what is found in it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.mount_options import RDMA
from ovirt_rdma.host.policy.model import DEFAULT_PORT
from ovirt_rdma.storage.health.probe import Answer
from ovirt_rdma.storage.health.samples import Load
from ovirt_rdma.storage.health.signs import ServerSigns
from ovirt_rdma.storage.health.state import DEAD, STALLED
from ovirt_rdma.storage.review import MountReview
from ovirt_rdma.storage.transport import NFS_TCP_PORT

# After so many seconds without an answer a mount is dead: sanlock has fenced by then
# (8 * io_timeout of 10 s, sanlock(8)).
DEAD_S = 80.0

# The kernel gave up, or the connection is gone: nobody answered.
LOST = frozenset(
    {
        "EIO",
        "ETIMEDOUT",
        "ENOTCONN",
        "ECONNREFUSED",
        "ECONNRESET",
        "EHOSTUNREACH",
        "EHOSTDOWN",
        "ENETUNREACH",
        "ENETDOWN",
        "EPIPE",
        "EPROTO",
    }
)
DENIED = frozenset({"EACCES", "EPERM"})


@dataclass(frozen=True)
class Seen:
    """All that was seen of one mount.

    - ``transport``: ``rdma``, ``tcp`` or None; ``port``: of its RDMA listener
    - ``load``: since the sample before; None for the first
    - ``silent_s``: seconds since its last answer; 0.0 if unknown
    - ``signs``: of its server; None if nobody asked
    - ``errors``: on the wire of the ports to it, by name, in the last half minute;
      ``error_looks``: in how many looks of that time one of WAITED did
    - ``backlog``: calls that wait for a slot now; ``slots``: the connection's slots;
      None if the kernel does not show them
    - ``others_answer``: another server answers by the same netdev; None if none is
      mounted
    - ``connections_asked``, ``connections``: nconnect, and how many were made; None if
      unknown; ``review``: the mount compared with the policy
    - ``siblings_answer``: another export of the server answers by the same transport;
      None if there is none
    """

    mount: NfsMount
    transport: Optional[str]
    answer: Answer
    port: int = DEFAULT_PORT
    load: Optional[Load] = None
    silent_s: float = 0.0
    signs: Optional[ServerSigns] = None
    errors: Mapping[str, int] = field(default_factory=dict)
    error_looks: int = 0
    backlog: Optional[int] = None
    slots: Optional[int] = None
    others_answer: Optional[bool] = None
    siblings_answer: Optional[bool] = None
    connections_asked: Optional[int] = None
    connections: Optional[int] = None
    review: Optional[MountReview] = None

    @property
    def server(self) -> str:
        """The server in sentences."""
        name = self.mount.source.rpartition(":/")[0]
        address = self.mount.address
        return f"{name} ({address})" if address and address not in name else name

    @property
    def tcp_port(self) -> int:
        """The server's port for NFS over TCP."""
        own = self.mount.port if self.transport != RDMA else None
        return own or NFS_TCP_PORT

    @property
    def is_answered(self) -> bool:
        """Whether the server answered in time, be it with an error of its own."""
        return not self.answer.late and self.answer.error not in LOST

    @property
    def lost(self) -> str:
        """The state without an answer: STALLED, as long as the server may come back
        without an error.
        """
        late_s = max(self.silent_s, self.answer.stuck_s or 0.0)
        return DEAD if self.answer.error in LOST or late_s >= DEAD_S else STALLED


@dataclass(frozen=True)
class Found:
    """What is wrong; the fields of MountHealth."""

    state: str
    cause: str
    reason: str
    sentence: str
    fix: str
    certain: bool = True


def shown_time(seconds: float) -> str:
    """Return a time for people: ``3.2 ms`` or ``1.52 s``."""
    return f"{seconds * 1000:.1f} ms" if seconds < 1.0 else f"{seconds:.2f} s"
