# SPDX-License-Identifier: GPL-2.0-or-later
"""Bringing what a profile says into force on its netdev, so that NetworkManager's
applied connection and the profile are the same (:mod:`ovirt_rdma.host.rules.reapply`).

With an activation NetworkManager also sets what else the profile says, and addresses
come and go. What had been set on the netdev otherwise, by whomever, is not ours to
change: mode, MTU and TSO are set back to what they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host import nmcli_output
from ovirt_rdma.host.effects import offload_effect, sysfs_effect
from ovirt_rdma.host.effects.effect import EffectFailed, Host
from ovirt_rdma.host.effects.nm_profile import nmcli
from ovirt_rdma.host.effects.place import NET_CLASS
from ovirt_rdma.host.effects.targets import MODE_FILE
from ovirt_rdma.host.rules.ipoib_limits import TSO_FEATURES
from ovirt_rdma.host.rules.ipoib_settings import TRANSPORT_MODE, TSO
from ovirt_rdma.host.rules.rule import OFFLOAD, SYSFS, Change

# What nmcli waits for an activation; below effect.COMMAND_TIMEOUT_S. NetworkManager
# gives DHCP 45 s.
WAIT_S = "50"


def activate(host: Host, what: str, uuid: str) -> None:
    """Activate a profile; ``what`` says what failed if it does. Raises EffectFailed."""
    nmcli(host, what, "--wait", WAIT_S, "connection", "up", "uuid", uuid)


def bring_into_force(host: Host, uuid: str, changed: str = "") -> None:
    """Have NetworkManager take over what the profile ``uuid`` says, where it is active:
    by a Reapply, which interrupts nothing, and where it refuses that by activation.

    What ``changed``, a property of the profile, decides on the netdev is as the profile
    has it then, all else as it was. Raises EffectFailed.
    """
    what = f"the profile {uuid} cannot be brought into force"
    name = _active_on(host, what, uuid)
    if name is None or "," in name:
        # On several netdevs (connection.multi-connect, which nmstate never sets) an
        # activation may take another one: their next setup brings it into force.
        return
    known = list(_set_on(host, name, changed))
    try:
        nmcli(host, what, "--wait", WAIT_S, "device", "reapply", name)
    except EffectFailed:
        activate(host, what, uuid)
    for change in known:
        effect = offload_effect if change.kind == OFFLOAD else sysfs_effect
        effect.undo(host, change, change.before)


def _active_on(host: Host, what: str, uuid: str) -> Optional[str]:
    text = nmcli(host, what, "-t", "-f", "UUID,DEVICE", "connection")
    rows = {row[0]: row[1] for row in nmcli_output.table(text, 2)}
    return rows.get(uuid) or None


def _set_on(host: Host, name: str, changed: str) -> Iterator[Change]:
    """Yield what is set on a netdev, as changes to what is there, the mode first: it
    sets an MTU.
    """
    for file in () if changed == TRANSPORT_MODE else (MODE_FILE, "mtu"):
        change = Change(SYSFS, f"{NET_CLASS}/{name}/{file}", None, None)
        yield replace(change, before=sysfs_effect.read(host, change).value)
    for feature in () if changed == TSO else TSO_FEATURES:
        change = Change(OFFLOAD, name, None, None, feature)
        yield replace(change, before=offload_effect.read(host, change).value)
