# SPDX-License-Identifier: GPL-2.0-or-later
"""DAEMON-01: the daemon runs, if the policy wants something of it. Pure.

There is no step: the daemon runs while the host is enabled.
"""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.facts.model import Unit
from ovirt_rdma.host.paths import DAEMON_UNIT
from ovirt_rdma.host.rules.base import About, Outcome, Rule
from ovirt_rdma.host.rules.view import View

# While it starts, systemd calls it activating.
_RUNS = ("active", "activating", "reloading")
_ENABLE = (
    "ovirt-rdma-host enable; with --mode host NFS mounts stay stock; if this host is "
    f"enabled: systemctl start {DAEMON_UNIT}"
)


def _daemon(view: View) -> Iterator[Outcome]:
    """Yield one finding for the host."""
    about, wanted = About(DAEMON.id), "; ".join(_wanted(view))
    unit = next((u for u in view.facts.software.units if u.name == DAEMON_UNIT), None)
    if not wanted:
        sentence = "the policy has no health_interval, metrics_folder or partitions"
        yield about.skips(f"{sentence}: follow for a netdev of this host")
    elif unit is None:
        yield about.skips(f"it is unknown if {DAEMON_UNIT} is running")
    elif unit.active in _RUNS:
        yield about.passes(f"{DAEMON_UNIT} is running: {wanted}")
    else:
        why, fix = _why_not(unit)
        yield about.fails(f"{DAEMON_UNIT} {why}, but {wanted}", fix)


def _wanted(view: View) -> Iterator[str]:
    interval = view.policy.nfs.health_interval
    if interval:
        yield f"the mounts should be looked at every {interval} s"
    folder = view.policy.host.metrics_folder
    if folder:
        yield f"the metrics should be written into {folder}"
    parents = [interface.name for interface in view.ipoib if interface.follows]
    if parents:
        yield f"the children of {', '.join(parents)} should follow the P_Key table"


def _why_not(unit: Unit) -> tuple[str, str]:
    if unit.load == "not-found":
        return "is not installed", "install the package ovirt-rdma-host again"
    if unit.active == "failed":
        again = f"journalctl -b -u {DAEMON_UNIT}; then: systemctl restart {DAEMON_UNIT}"
        return "has failed", again
    return "is not running", _ENABLE


DAEMON = Rule("DAEMON-01", _daemon)
