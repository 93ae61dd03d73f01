# SPDX-License-Identifier: GPL-2.0-or-later
"""The ``host:`` part of a policy for people, and how much a policy says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

from ovirt_rdma.cli.screen import Screen, count
from ovirt_rdma.host.policy import Policy
from ovirt_rdma.host.policy_host import HostPolicy, InterfaceRule


def policy_counts(policy: Policy) -> str:
    """Return ``2 NFS rules, 1 interface``; of the host part only what there is."""
    host = policy.host
    parts = [count(len(policy.nfs.rules), "NFS rule")]
    for things, noun in (
        (host.interfaces, "interface"),
        (host.modules, "module"),
        (host.module_options, "module option"),
    ):
        if things:
            parts.append(count(len(things), noun))
    return ", ".join(parts)


def show_host(host: HostPolicy, screen: Screen) -> None:
    """Add what the host part says, below the rest; nothing for an empty one."""
    if host.interfaces:
        screen.line()
        screen.table(
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
        screen.line(f"{count(number, 'interface')}{order}; - leaves it as it is.")
    pairs = [("module", name) for name in host.modules]
    pairs += [
        ("module option", f"{option.module} {option.name}={option.value}")
        for option in host.module_options
    ]
    if host.follows_partitions:
        pairs.append(("P_Key tables", f"looked at every {host.partitions_interval} s"))
    if pairs:
        screen.line()
        screen.fields(pairs)


def _match(rule: InterfaceRule) -> Iterator[str]:
    for key in ("link_layer", "device", "pci", "port", "guid", "pkey"):
        value = getattr(rule, key)
        if value is not None:
            yield f"{key}={value}"


def _shown(value: Union[str, int, None]) -> str:
    return "-" if value is None else str(value)
