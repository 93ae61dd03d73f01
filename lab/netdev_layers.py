# SPDX-License-Identifier: GPL-2.0-or-later
"""Build bonds, VLANs and bridges over a guest's NICs, as oVirt does.

with stacked(guest, Bond("bond7", ("eth1", "eth2")), Vlan("bond7", 100)):
    guest.run("ip address add 10.98.0.2/24 dev bond7.100", check=True)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Union

from lab import modules
from lab.guest import Guest


@dataclass(frozen=True)
class Bond:
    """An active-backup bond, the mode that oVirt's storage networks use."""

    name: str
    lowers: tuple[str, ...]
    module = "bonding"

    def lines(self) -> list[str]:
        """Return the shell lines that make it."""
        lines = [f"ip link add {self.name} type bond mode active-backup miimon 100"]
        for lower in self.lowers:  # only one that is down can be enslaved
            lines += [f"ip link set {lower} down"]
            lines += [f"ip link set {lower} master {self.name}"]
        return lines


@dataclass(frozen=True)
class Vlan:
    """VLAN ``number`` over ``lower``."""

    lower: str
    number: int
    module = "8021q"

    @property
    def name(self) -> str:
        """The name that VDSM gives it: ``eth1.100``."""
        return f"{self.lower}.{self.number}"

    @property
    def lowers(self) -> tuple[str, ...]:
        """The one netdev below."""
        return (self.lower,)

    def lines(self) -> list[str]:
        """Return the shell lines that make it."""
        kind = f"type vlan id {self.number}"
        return [
            f"ip link set {self.lower} up",
            f"ip link add link {self.lower} name {self.name} {kind}",
        ]


@dataclass(frozen=True)
class Bridge:
    """A bridge without STP, as oVirt makes one for a VM network."""

    name: str
    lowers: tuple[str, ...]
    module = "bridge"

    def lines(self) -> list[str]:
        """Return the shell lines that make it."""
        lines = [f"ip link add {self.name} type bridge stp_state 0 forward_delay 0"]
        for lower in self.lowers:
            lines += [f"ip link set {lower} master {self.name}"]
            lines += [f"ip link set {lower} up"]
        return lines


Layer = Union[Bond, Vlan, Bridge]


@contextmanager
def stacked(guest: Guest, *layers: Layer) -> Iterator[None]:
    """Build ``layers``, the lowest first, and remove them at the end.

    Within the context all are up and have a carrier. Afterwards the NICs below are down
    and have no addresses, unless the guest is off by then. Raises CommandFailed.
    """
    modules.load(guest, *(layer.module for layer in layers))
    names = [layer.name for layer in layers]
    build = [line for layer in layers for line in layer.lines()]
    build += [f"ip link set {name} up" for name in names]
    build += [
        f"until grep -qx up /sys/class/net/{name}/operstate; do sleep 0.1; done"
        for name in names
    ]
    lowers = {lower: None for layer in layers for lower in layer.lowers}
    remove = [f"ip link delete {name}" for name in reversed(names)]
    for nic in lowers.keys() - set(names):
        remove += [f"ip address flush dev {nic}", f"ip link set {nic} down"]
    try:
        guest.run(" && ".join(build or ["true"]), check=True)
        yield
    finally:
        if guest.running:
            guest.run("\n".join(remove) or "true")
