# SPDX-License-Identifier: GPL-2.0-or-later
"""Which host gets which static address: a plan held against the hosts and against
the addresses that they have. Pure.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.engine_sdk_tools.address_texts import Interface, no_one_hosts, usable
from ovirt_rdma.engine_sdk_tools.engine_facts import Host
from ovirt_rdma.engine_sdk_tools.names import nearest


@dataclass(frozen=True)
class AddressPlan:
    """``addresses`` by host name, in host order; ``problems`` are sentences, one for
    each thing that is wrong with it, none where all hosts can have theirs.
    """

    addresses: Mapping[str, Interface]
    problems: tuple[str, ...] = ()


def check_addresses(
    asked: Mapping[str, Interface],
    hosts: Sequence[Host],
    every: Sequence[Host],
    network: str,
) -> AddressPlan:
    """Hold the addresses ``asked`` for against the selected ``hosts`` and ``every``
    host of the engine.

    A host may have the address already by the attachment of ``network`` (its id): then
    it keeps it.
    """
    problems = list(_unknown(asked, hosts, every))
    addresses: dict[str, Interface] = {}
    for host in hosts:
        if host.name in asked:
            addresses[host.name] = asked[host.name]
        else:
            problems.append(f"{host.name} gets no address by the plan")
    problems += _unusable(addresses)
    problems += _repeated(addresses)
    problems += _outside(addresses)
    problems += _in_use(addresses, every, network)
    return AddressPlan(addresses, tuple(problems))


def _unknown(
    asked: Mapping[str, Interface], hosts: Sequence[Host], every: Sequence[Host]
) -> Iterator[str]:
    known = [host.name for host in every]
    chosen = {host.name for host in hosts}
    for name in asked:
        if name not in known:
            near = nearest(name, known)
            yield f"the plan names {name}, which the engine does not know; {near}"
        elif name not in chosen:
            yield f"the plan names {name}, which --hosts does not select"


def _unusable(addresses: Mapping[str, Interface]) -> Iterator[str]:
    for host, address in addresses.items():
        low, high = usable(address.network)
        number = int(address)
        if not low <= number <= high:
            kind = "network" if number < low else "broadcast"
            yield (
                f"{host} cannot have {address.ip}: it is the {kind} address of "
                f"{address.network}"
            )
        elif no_one_hosts(address.ip):
            yield f"{host} cannot have {address.ip}: no netdev can have such an address"
        elif address.version == 6 and address.is_link_local:
            yield (
                f"{host} cannot have {address.ip}: each netdev has a link-local one "
                "of its own"
            )


def _repeated(addresses: Mapping[str, Interface]) -> Iterator[str]:
    by_ip: dict[str, list[str]] = {}
    for host, address in addresses.items():
        by_ip.setdefault(str(address.ip), []).append(host)
    for ip, names in by_ip.items():
        if len(names) > 1:
            yield f"{' and '.join(names)} would both have {ip}"


def _outside(addresses: Mapping[str, Interface]) -> Iterator[str]:
    networks = Counter(address.network for address in addresses.values())
    if len(networks) < 2:
        return
    common, _ = networks.most_common(1)[0]
    for host, address in addresses.items():
        if address.network != common:
            yield f"{host}: {address} is outside of {common}, which the others are in"


def _in_use(
    addresses: Mapping[str, Interface], every: Sequence[Host], network: str
) -> Iterator[str]:
    wanted = {str(address.ip): host for host, address in addresses.items()}
    for other in every:
        for ip, where, by in _has(other):
            host = wanted.get(ip)
            if host is not None and (other.name, network) != (host, by):
                yield f"{host} cannot have {ip}: {where} of {other.name} has it"


def _has(host: Host) -> Iterator[tuple[str, str, Optional[str]]]:
    """Yield the addresses of a host's nics: address, nic and network (its id)."""
    names = {nic.id: nic.name for nic in host.nics or ()}
    found: dict[str, tuple[str, Optional[str]]] = {}
    for one in host.attachments or ():
        for text in one.addresses:
            place = names.get(one.nic or "", "a nic"), one.network
            found[_plain(text.partition("/")[0]) or text] = place
    # What the host reports, also where no network is attached.
    for nic in host.nics or ():
        found.setdefault(_plain(nic.address) or "", (nic.name, nic.network))
    for ip, (where, by) in found.items():
        yield ip, where, by


def _plain(address: Optional[str]) -> Optional[str]:
    try:
        return str(ipaddress.ip_address(address or ""))
    except ValueError:
        return None
