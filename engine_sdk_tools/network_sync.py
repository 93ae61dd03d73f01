# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a network is on a host as it was asked for, by what the engine reports. Pure.

The engine compares the MTU exactly (NetworkInSyncWithVdsNetworkInterface.java), so an
IPoIB netdev that stays below is out of sync although traffic may pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from ovirt_rdma.engine_sdk_tools.engine_facts import Attachment, Host

_MTU_FIX = (
    "the netdev's mode or the fabric allows less than the network has: "
    "'ovirt-rdma-host check' on the host says which"
)


def attachment_of(host: Host, network: str) -> Optional[Attachment]:
    """Return the attachment of ``network`` (its id) on ``host``, or None."""
    return next((a for a in host.attachments or () if a.network == network), None)


def differences(
    host: Host,
    network: str,
    nic: str,
    address: str,
    properties: Mapping[str, str],
) -> list[str]:
    """Return clauses on what is not as asked for: ``nic`` by name, ``address`` as
    ``10.0.0.11/24``. None: it is so, and in sync.
    """
    found = attachment_of(host, network)
    if found is None:
        return ["the host does not have the network"]
    return [*placed(host, found, nic, address, properties), *out_of_sync(found)]


def placed(
    host: Host,
    found: Attachment,
    nic: str,
    address: str,
    properties: Mapping[str, str],
) -> list[str]:
    """Return clauses on what the engine itself has noted otherwise."""
    names = {one.id: one.name for one in host.nics or ()}
    wrong = []
    on = names.get(found.nic or "", "no nic")
    if on != nic:
        wrong.append(f"it is on {on}, not on {nic}")
    if found.addresses != (address,):
        has = ", ".join(found.addresses) or "no static address"
        wrong.append(f"it has {has}, not {address}")
    if dict(found.properties) != dict(properties):
        has = _shown(dict(found.properties))
        wrong.append(f"its custom properties are {has}, not {_shown(properties)}")
    return wrong


def out_of_sync(found: Attachment) -> list[str]:
    """Return clauses on what differs on the host from what the engine has noted."""
    wrong = [
        f"{one.name} is {one.actual or 'not set'} on the host, not "
        f"{one.expected or 'unset'}"
        for one in found.reported
        if not one.in_sync
    ]
    if found.in_sync is None and not wrong:
        return ["the engine does not say whether it is in sync"]
    if found.in_sync is False and not wrong:
        return ["the engine says that it is out of sync"]
    return wrong


def fix_for(found: Optional[Attachment]) -> str:
    """Return what to do about an attachment that is out of sync."""
    names = {one.name for one in (found.reported if found else ()) if not one.in_sync}
    return _MTU_FIX if "mtu" in names else ""


def _shown(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{n}={v}" for n, v in properties.items()) or "none"
