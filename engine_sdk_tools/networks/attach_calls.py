# SPDX-License-Identifier: GPL-2.0-or-later
"""Requests that attach a network to hosts, and the data they are made from. Pure.

What is asked for a network on hosts, and what that means for one of them: data.

Whether a network is on a host as it was asked for, by what the engine reports. Pure.

The engine compares the MTU exactly (NetworkInSyncWithVdsNetworkInterface.java), so an
IPoIB netdev that stays below is out of sync although traffic may pass.

What the engine is asked for to put a network on a host's nic, and to take it back.
Pure.

Always with a connectivity check, which makes VDSM go back by itself where the engine
loses the host, and with a commit: without it the network is gone after a reboot.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from ovirtsdk4 import types

from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.model import Attachment, Host, Network
from ovirt_rdma.engine_sdk_tools.networks.addresses import Interface, netmask
from ovirt_rdma.engine_sdk_tools.networks.nics import Chosen

# What becomes of a host.
ATTACH = "attach"
CHANGE = "change"
SYNC = "synchronise"
NOTHING = "nothing"

# NetworkConnectivityCheckTimeoutInSeconds and the engine's own limits for it.
CONNECTIVITY_S = 120


@dataclass(frozen=True)
class AttachRequest:
    """What is asked for. ``hosts`` are names and globs, ``nic_match`` as
    :class:`NicMatch` reads it.

    ``addresses`` by host name, from a plan file, or ``span``, the range that they are
    counted from. ``bond``: an active-backup bond of the nics. ``properties`` are custom
    ones. ``connectivity_s``: how long the host may be away before VDSM takes it back.
    """

    network: str
    hosts: tuple[str, ...]
    nic_match: str
    addresses: Optional[Mapping[str, Interface]] = None
    span: str = ""
    data_center: Optional[str] = None
    bond: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)
    connectivity_s: int = CONNECTIVITY_S


@dataclass(frozen=True)
class HostAttach:
    """One host: ``act`` is one of this module's words; ``why`` says what differs.

    ``before`` is the attachment that it has, ``before_nic`` the nic that it is on.
    ``properties`` are all that it is to have, also those that it has.
    """

    host: Host
    chosen: Chosen
    address: Interface
    act: str
    before: Optional[Attachment] = None
    before_nic: Optional[str] = None
    properties: Mapping[str, str] = field(default_factory=dict)
    why: str = ""


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


# miimon in ms: how often a port's link is looked at; what webadmin gives mode 1.
_BOND_OPTIONS = {"mode": "1", "miimon": "100"}


def attach_call(row: HostAttach, network: Network, connectivity_s: int) -> Call:
    """Return the call that puts ``network`` on the host of ``row``.

    Where the host differs from an attachment that there is, it is synchronised, for
    the engine refuses to change it otherwise.
    """
    chosen, before = row.chosen, row.before
    attachment = _attachment(
        network, chosen.target, [row.address], row.properties, before
    )
    words: dict[str, Any] = {"modified_network_attachments": [attachment]}
    if chosen.new_bond:
        words["modified_bonds"] = [_bond(chosen)]
    if before is not None and out_of_sync(before):
        words["synchronized_network_attachments"] = [
            types.NetworkAttachment(id=before.id)
        ]
    doing = f"putting {network.name} on {chosen.target} of {row.host.name}"
    return _setup(row.host, doing, words, connectivity_s)


def back_call(
    row: HostAttach,
    network: Network,
    now: Optional[Attachment],
    made_bond: Optional[str],
    connectivity_s: int,
) -> Call:
    """Return the call that brings back what the host of ``row`` had before, which has
    the attachment ``now``, or had one. ``made_bond`` is a bond that is removed too.
    """
    host, before = row.host, row.before
    words: dict[str, Any] = {}
    if before is None:
        if now is not None:
            gone = types.NetworkAttachment(id=now.id)
            words["removed_network_attachments"] = [gone]
        doing = f"taking {network.name} off {host.name} again"
    else:
        addresses = [ipaddress.ip_interface(text) for text in before.addresses]
        old = dict(before.properties)
        words["modified_network_attachments"] = [
            _attachment(network, row.before_nic or "", addresses, old, now)
        ]
        if now is not None and out_of_sync(now):
            words["synchronized_network_attachments"] = [
                types.NetworkAttachment(id=now.id)
            ]
        doing = f"setting {network.name} on {host.name} back to what it was"
    if made_bond:
        words["removed_bonds"] = [types.HostNic(name=made_bond)]
    return _setup(host, doing, words, connectivity_s)


def commit_call(host: Host) -> Call:
    """Return the call that makes the host's network configuration last."""
    doing = f"committing the network configuration of {host.name}"
    return Call(f"hosts/{host.id}", "commit_net_config", doing, {}, host.name)


def _setup(host: Host, doing: str, words: dict[str, Any], connectivity_s: int) -> Call:
    words = {
        **words,
        "check_connectivity": True,
        "connectivity_timeout": connectivity_s,
        "commit_on_success": True,
    }
    return Call(f"hosts/{host.id}", "setup_networks", doing, words, host.name)


def _attachment(
    network: Network,
    nic: str,
    addresses: list[Interface],
    properties: Mapping[str, str],
    existing: Optional[Attachment],
) -> Any:
    made = types.NetworkAttachment(
        network=types.Network(id=network.id),
        host_nic=types.HostNic(name=nic),
        ip_address_assignments=[_assignment(address) for address in addresses],
    )
    if existing is not None:
        made.id = existing.id
    if properties or (existing and existing.properties):
        made.properties = [
            types.Property(name=n, value=v) for n, v in properties.items()
        ]
    return made


def _assignment(address: Interface) -> Any:
    version = types.IpVersion.V4 if address.version == 4 else types.IpVersion.V6
    return types.IpAddressAssignment(
        assignment_method=types.BootProtocol.STATIC,
        ip=types.Ip(address=str(address.ip), netmask=netmask(address), version=version),
    )


def _bond(chosen: Chosen) -> Any:
    options = [types.Option(name=n, value=v) for n, v in _BOND_OPTIONS.items()]
    slaves = [types.HostNic(name=name) for name in chosen.ports]
    bonding = types.Bonding(options=options, slaves=slaves)
    return types.HostNic(name=chosen.target, bonding=bonding)
