# SPDX-License-Identifier: GPL-2.0-or-later
"""What the engine is asked for to put a network on a host's nic, and to take it back.
Pure.

Always with a connectivity check, which makes VDSM go back by itself where the engine
loses the host, and with a commit: without it the network is gone after a reboot.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Optional

from ovirtsdk4 import types

from ovirt_rdma.engine_sdk_tools.address_texts import Interface, netmask
from ovirt_rdma.engine_sdk_tools.attach_rows import HostAttach
from ovirt_rdma.engine_sdk_tools.call import Call
from ovirt_rdma.engine_sdk_tools.engine_facts import Attachment, Host, Network
from ovirt_rdma.engine_sdk_tools.network_sync import out_of_sync
from ovirt_rdma.engine_sdk_tools.nic_choice import Chosen

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
