# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the parts of a policy to people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.host.policy.block import BlockPolicy
from ovirt_rdma.host.policy.fabric import FabricPolicy
from ovirt_rdma.host.policy.model import HostPolicy, InterfaceRule, Policy


def policy_counts(policy: Policy) -> str:
    """Return ``2 NFS rules, 1 interface``; without host settings that are not used."""
    host = policy.host
    parts = [count(len(policy.nfs.rules), "NFS rule")]
    for settings, noun in (
        (host.interfaces, "interface"),
        (host.modules, "module"),
        (host.module_options, "module option"),
        (host.virtual_functions, "VF rule"),
        (policy.fabric.partitions, "partition"),
        (policy.block.srp, "SRP target"),
        (policy.block.iser, "iSER target"),
    ):
        if settings:
            parts.append(count(len(settings), noun))
    return ", ".join(parts)


def show_parts(policy: Policy, output: Output) -> None:
    """Print the parts of a policy but its NFS rules; nothing of what is empty."""
    _show_host(policy.host, output)
    _show_fabric(policy.fabric, output)
    _show_block(policy.block, output)


def _show_host(host: HostPolicy, output: Output) -> None:
    """Print the host part of a policy; nothing if it is empty."""
    if host.interfaces:
        output.line()
        output.table(
            ("INTERFACE", "MODE", "MTU", "TSO", "PORT_MTU", "CHILDREN", "MATCH"),
            [
                (
                    rule.name,
                    _shown(rule.transport_mode),
                    _shown(rule.mtu),
                    _shown(rule.tso),
                    _shown(rule.port_mtu),
                    ",".join(rule.pkey_children) or _shown(rule.partitions),
                    " ".join(_match(rule)),
                )
                for rule in host.interfaces
            ],
        )
        number = len(host.interfaces)
        order = "; the first that names a netdev wins" if number > 1 else ""
        output.line(
            f"{count(number, 'interface')}{order}; - leaves the value unchanged."
        )
    pairs = [("module", name) for name in host.modules]
    pairs += [
        (
            "VFs",
            f"{rule.count} of {rule.pci or rule.guid or rule.device} ({rule.name}), "
            f"for virtual machines: {rule.guests}",
        )
        for rule in host.virtual_functions
    ]
    pairs += [
        ("port type", f"{rule.port_type} ({rule.name})")
        for rule in host.interfaces
        if rule.port_type
    ]
    pairs += [
        ("module option", f"{option.module} {option.name}={option.value}")
        for option in host.module_options
    ]
    if host.follows_partitions:
        pairs.append(("P_Key tables", f"read every {host.partitions_interval} s"))
    if pairs:
        output.line()
        output.fields(pairs)


def _show_fabric(fabric: FabricPolicy, output: Output) -> None:
    """Print the partitions of a policy; nothing if there are none."""
    if fabric.pkeys_are_vlans:
        output.line()
        output.fields([("P_Keys", "0x8000 + VLAN stands for the VLAN")])
    if not fabric.partitions:
        return
    output.line()
    output.table(
        ("PARTITION", "P_KEY", "VLAN", "IPOIB", "MTU", "RATE", "MEMBERS"),
        [
            (
                rule.name,
                rule.pkey,
                _shown(rule.vlan),
                "yes" if rule.ipoib else "no",
                _shown(rule.mtu),
                _shown(rule.rate),
                " ".join(rule.members),
            )
            for rule in fabric.partitions
        ],
    )
    output.line(f"{count(len(fabric.partitions), 'partition')}; - is opensm's default.")


def _show_block(block: BlockPolicy, output: Output) -> None:
    """Print the block part of a policy; nothing if it is empty."""
    rows = [
        (
            target.name,
            "SRP",
            target.dest or f"{target.dgid} {target.pkey}",
            target.ioc_guid,
        )
        for target in block.srp
    ]
    rows += [(one.name, "iSER", one.portal, one.iqn) for one in block.iser]
    if rows:
        output.line()
        output.table(("TARGET", "PROTOCOL", "AT", "IOC_GUID, IQN"), rows)
    if block.rescan_interval:
        output.line(f"A rescan every {block.rescan_interval} s.")


def _match(rule: InterfaceRule) -> Iterator[str]:
    for key in ("link_layer", "device", "pci", "port", "guid", "pkey"):
        value = getattr(rule, key)
        if value is not None:
            yield f"{key}={value}"


def _shown(value: Union[str, int, None]) -> str:
    return "-" if value is None else str(value)
