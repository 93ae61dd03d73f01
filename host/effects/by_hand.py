# SPDX-License-Identifier: GPL-2.0-or-later
"""How an operator sets a value back by hand, where we could not. Pure."""

from __future__ import annotations

import shlex
from typing import Optional

from ovirt_rdma.host.effects.act import Act
from ovirt_rdma.host.effects.properties import makes_profile, property_of
from ovirt_rdma.host.effects.targets import makes_child
from ovirt_rdma.host.paths import JOURNAL
from ovirt_rdma.host.rules.rule import FILE, OFFLOAD, PROFILE, SYSFS, UNIT


def by_hand(act: Act, value: Optional[str]) -> str:
    """Return the command that gives what ``act`` changed the ``value`` back; None:
    there was nothing.
    """
    change = act.changes[0]
    target = shlex.quote(property_of(change, act.uuid).target)
    if makes_profile(act):
        return f"nmcli connection delete {target}"
    if makes_child(change):
        value, target = change.after, target.replace("create_child", "delete_child")
    if change.kind == FILE:
        text = f"write the text that {JOURNAL} has for it to {target}"
        return f"rm {target}" if value is None else text
    text = shlex.quote(value or "")
    switch = "enable" if value == "enabled" else "disable"
    return {
        SYSFS: f"echo {text} > {target}",
        OFFLOAD: f"ethtool -K {target} {change.name} {text}",
        PROFILE: f"nmcli connection modify {target} {change.name} {text}",
        UNIT: f"systemctl {switch} --now {target}",
    }.get(change.kind, "")
