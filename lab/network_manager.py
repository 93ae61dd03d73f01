# SPDX-License-Identifier: GPL-2.0-or-later
"""Start and use NetworkManager in a guest with systemd."""

from __future__ import annotations

from collections.abc import Sequence

from lab.guest import Guest

_UNMANAGED = "/etc/NetworkManager/conf.d/lab-unmanaged.conf"
# nm-online -s: until it has found all netdevs and activated what it can.
_START = """
if systemctl -q is-active NetworkManager; then
    nmcli general reload conf
else
    systemctl start NetworkManager
fi
nm-online -s -q -t 60
"""
# A tentative address cannot be used yet.
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
    """Start NetworkManager, and return when it has found the existing netdevs.

    It does not manage the netdevs of ``unmanaged``; the list replaces that of an
    earlier call. If it is already running, it reloads that list. Raises CommandFailed.
    """
    devices = ",".join(f"interface-name:{netdev}" for netdev in unmanaged)
    settings = f"[keyfile]\nunmanaged-devices={devices}\n"
    guest.run(f"set -e\ncat > {_UNMANAGED}\n{_START}", input=settings, check=True)


def add_infiniband_profile(
    guest: Guest, netdev: str, addresses: Sequence[str], *, mode: str = "datagram"
) -> None:
    """Make a profile for an IPoIB netdev, as an admin does, with static ``addresses``
    (``10.0.0.1/24``), unless a profile with its name exists.

    The profile has the name of the netdev; NetworkManager activates it when the netdev
    has carrier (:func:`wait_for_addresses`).
    """
    settings = ["infiniband.transport-mode", mode]
    for version in ("4", "6"):
        own = [addr for addr in addresses if (":" in addr) == (version == "6")]
        if own:
            settings += [f"ipv{version}.addresses", ",".join(own)]
        settings += [f"ipv{version}.method", "manual" if own else "disabled"]
    profile = ["type", "infiniband", "con-name", netdev, "ifname", netdev, *settings]
    if guest.run(["nmcli", "connection", "show", "id", netdev]).exit_code:
        guest.run(["nmcli", "connection", "add", *profile], check=True)


def wait_for_addresses(guest: Guest, netdev: str, addresses: Sequence[str]) -> None:
    """Wait until ``netdev`` has ``addresses`` (``10.0.0.1/24``), ready for use."""
    command = ["bash", "-c", _WAIT_FOR_ADDRESSES, "addresses", netdev, *addresses]
    guest.run(command, check=True)
