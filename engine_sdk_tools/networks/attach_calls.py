# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the engine requests that attach a network to hosts, and check the result. Pure.

Every request has a connectivity check, with which VDSM rolls back by itself if the
engine loses the host, and a commit, without which the network is gone after a reboot.
The engine compares the MTU exactly (NetworkInSyncWithVdsNetworkInterface.java), so an
IPoIB netdev with a smaller MTU is out of sync although traffic may pass.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.api.sdk import types
from ovirt_rdma.engine_sdk_tools.model import Attachment, Host, Network
from ovirt_rdma.engine_sdk_tools.networks.addresses import Interface, netmask
from ovirt_rdma.engine_sdk_tools.networks.nics import Chosen

# The actions on a host.
ATTACH = "attach"
CHANGE = "change"
SYNC = "synchronise"
NOTHING = "nothing"

# The engine's default of NetworkConnectivityCheckTimeoutInSeconds.
CONNECTIVITY_S = 120


@dataclass(frozen=True)
class AttachRequest:
    """The arguments of ``network attach``. ``hosts`` are names and globs, ``nic_match``
    is the text that :class:`NicMatch` reads.

    ``addresses`` by host name, from a plan file, or ``span``, the range to assign them
    from. ``bond``: make an active-backup bond of the NICs. ``properties`` are custom
    properties. ``connectivity_s``: how many seconds the host may be unreachable before
    VDSM rolls back.
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
    """The plan for one host: ``act`` is one of the constants above, ``why`` names the
    differences.

    ``before`` is its attachment now, ``before_nic`` the NIC with that attachment.
    ``properties`` are all custom properties after the change.
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
    "the mode of the netdev or the fabric does not allow the MTU of the network: "
    "'ovirt-rdma-host check' on the host shows which"
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
    """Return clauses on what differs from the request, an empty list if the network is
    as requested and in sync. ``nic`` is a name, ``address`` is like ``10.0.0.11/24``.
    """
    attachment = attachment_of(host, network)
    if attachment is None:
        return ["the host does not have the network"]
    wrong = placed(host, attachment, nic, address, properties)
    return [*wrong, *out_of_sync(attachment)]


def placed(
    host: Host,
    attachment: Attachment,
    nic: str,
    address: str,
    properties: Mapping[str, str],
) -> list[str]:
    """Return clauses on what differs in the engine's own data."""
    names = {nic.id: nic.name for nic in host.nics or ()}
    wrong = []
    on = names.get(attachment.nic or "", "no NIC")
    if on != nic:
        wrong.append(f"it is on {on}, not on {nic}")
    if attachment.addresses != (address,):
        has = ", ".join(attachment.addresses) or "no static address"
        wrong.append(f"it has {has}, not {address}")
    if dict(attachment.properties) != dict(properties):
        has = _shown(dict(attachment.properties))
        wrong.append(f"its custom properties are {has}, not {_shown(properties)}")
    return wrong


def out_of_sync(attachment: Attachment) -> list[str]:
    """Return clauses on what the host reports otherwise than the engine has it."""
    wrong = [
        f"{value.name} is {value.actual or 'not set'} on the host, not "
        f"{value.expected or 'unset'}"
        for value in attachment.reported
        if not value.in_sync
    ]
    if attachment.in_sync is None and not wrong:
        return ["the engine does not report whether it is in sync"]
    if attachment.in_sync is False and not wrong:
        return ["the engine reports that it is out of sync"]
    return wrong


def fix_for(attachment: Optional[Attachment]) -> str:
    """Return the fix for an attachment that is out of sync."""
    reported = attachment.reported if attachment else ()
    return _MTU_FIX if "mtu" in {v.name for v in reported if not v.in_sync} else ""


def _shown(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{n}={v}" for n, v in properties.items()) or "none"


# miimon: interval in ms at which a port's link is checked; webadmin's value for mode 1.
_BOND_OPTIONS = {"mode": "1", "miimon": "100"}


def attach_call(row: HostAttach, network: Network, connectivity_s: int) -> Call:
    """Return the call that attaches ``network`` to the host of ``row``.

    An attachment that is out of sync is synchronised too: the engine refuses to change
    it otherwise.
    """
    chosen, before = row.chosen, row.before
    attachment = _attachment(
        network, chosen.target, [row.address], row.properties, before
    )
    parameters: dict[str, Any] = {"modified_network_attachments": [attachment]}
    if chosen.new_bond:
        parameters["modified_bonds"] = [_bond(chosen)]
    if before is not None and out_of_sync(before):
        parameters["synchronized_network_attachments"] = [
            types.NetworkAttachment(id=before.id)
        ]
    doing = f"attaching {network.name} to {chosen.target} of {row.host.name}"
    return _setup(row.host, doing, parameters, connectivity_s)


def back_call(
    row: HostAttach,
    network: Network,
    now: Optional[Attachment],
    made_bond: Optional[str],
    connectivity_s: int,
) -> Call:
    """Return the call that restores what the host of ``row`` had before. ``now`` is its
    attachment at present, if any. ``made_bond`` is a bond to remove as well.
    """
    host, before = row.host, row.before
    parameters: dict[str, Any] = {}
    if before is None:
        if now is not None:
            gone = types.NetworkAttachment(id=now.id)
            parameters["removed_network_attachments"] = [gone]
        doing = f"removing {network.name} from {host.name} again"
    else:
        addresses = [ipaddress.ip_interface(text) for text in before.addresses]
        old = dict(before.properties)
        parameters["modified_network_attachments"] = [
            _attachment(network, row.before_nic or "", addresses, old, now)
        ]
        if now is not None and out_of_sync(now):
            parameters["synchronized_network_attachments"] = [
                types.NetworkAttachment(id=now.id)
            ]
        doing = f"restoring {network.name} on {host.name}"
    if made_bond:
        parameters["removed_bonds"] = [types.HostNic(name=made_bond)]
    return _setup(host, doing, parameters, connectivity_s)


def commit_call(host: Host) -> Call:
    """Return the call that makes the host's network configuration persistent."""
    doing = f"committing the network configuration of {host.name}"
    return Call(f"hosts/{host.id}", "commit_net_config", doing, {}, host.name)


def _setup(
    host: Host, doing: str, parameters: dict[str, Any], connectivity_s: int
) -> Call:
    parameters = {
        **parameters,
        "check_connectivity": True,
        "connectivity_timeout": connectivity_s,
        "commit_on_success": True,
    }
    return Call(f"hosts/{host.id}", "setup_networks", doing, parameters, host.name)


def _attachment(
    network: Network,
    nic: str,
    addresses: list[Interface],
    properties: Mapping[str, str],
    existing: Optional[Attachment],
) -> Any:
    attachment = types.NetworkAttachment(
        network=types.Network(id=network.id),
        host_nic=types.HostNic(name=nic),
        ip_address_assignments=[_assignment(address) for address in addresses],
    )
    if existing is not None:
        attachment.id = existing.id
    if properties or (existing and existing.properties):
        attachment.properties = [
            types.Property(name=n, value=v) for n, v in properties.items()
        ]
    return attachment


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
