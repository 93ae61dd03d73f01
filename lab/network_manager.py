# SPDX-License-Identifier: GPL-2.0-or-later
"""NetworkManager in a guest with systemd; it is off until it is started."""

from __future__ import annotations

from collections.abc import Sequence

from lab.guest import Guest

_UNMANAGED = "/etc/NetworkManager/conf.d/lab-unmanaged.conf"
# nm-online -s: until it has seen all netdevs and brought up what it can.
_START = """
if systemctl -q is-active NetworkManager; then
    nmcli general reload conf
else
    systemctl start NetworkManager
fi
nm-online -s -q -t 60
"""
# Tentative: nobody may use the address yet.
_WAIT_FOR_ADDRESSES = """
netdev=$1
shift
for address in "$@"; do
    until ip -o address show dev "$netdev" -tentative to "$address" |
        grep -qF " $address "
    do sleep 0.1; done
done
"""


def start_network_manager(guest: Guest, unmanaged: Sequence[str] = ()) -> None:
    """Start it, and return when it has seen the netdevs that are there.

    It leaves the netdevs named ``unmanaged`` alone, those of an earlier call no
    longer. Where it runs it takes up that list. Raises CommandFailed.
    """
    devices = ",".join(f"interface-name:{netdev}" for netdev in unmanaged)
    settings = f"[keyfile]\nunmanaged-devices={devices}\n"
    guest.run(f"set -e\ncat > {_UNMANAGED}\n{_START}", input=settings, check=True)


def add_infiniband_profile(
    guest: Guest, netdev: str, addresses: Sequence[str], *, mode: str = "datagram"
) -> None:
    """Make an admin's own profile for an IPoIB netdev, with fixed ``addresses``
    (``10.0.0.1/24``), unless a profile of its name is there.

    The profile is called like the netdev; NetworkManager brings it up by itself when
    that has carrier (:func:`wait_for_addresses`).
    """
    settings = ["infiniband.transport-mode", mode]
    for version in ("4", "6"):
        own = [each for each in addresses if (":" in each) == (version == "6")]
        if own:
            settings += [f"ipv{version}.addresses", ",".join(own)]
        settings += [f"ipv{version}.method", "manual" if own else "disabled"]
    words = ["type", "infiniband", "con-name", netdev, "ifname", netdev, *settings]
    if guest.run(["nmcli", "connection", "show", "id", netdev]).exit_code:
        guest.run(["nmcli", "connection", "add", *words], check=True)


def wait_for_addresses(guest: Guest, netdev: str, addresses: Sequence[str]) -> None:
    """Wait until ``netdev`` has ``addresses`` (``10.0.0.1/24``), ready for use."""
    words = ["bash", "-c", _WAIT_FOR_ADDRESSES, "addresses", netdev, *addresses]
    guest.run(words, check=True)
