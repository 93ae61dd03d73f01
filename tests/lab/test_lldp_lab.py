# SPDX-License-Identifier: GPL-2.0-or-later
"""Read what an Ethernet port is cabled to with the real lldpad and lldptool."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from test_host_check_lab import COMMAND

from lab.guest import Guest
from lab.topology import Topology

pytestmark = pytest.mark.faults

# lldpad sends when it is enabled, and every 30 seconds (802.1AB, msgTxInterval).
_RECEIVED_S = 120
_START = "lldpad -d && lldptool -ping"
_STOP = "! lldptool -ping || lldpad -k; rm -f /run/lldpad.pid"
# As VDSM does (network/lldpad/lldptool.py, enable_lldp_on_iface).
_RECEIVE = "lldptool set-lldp -i eth0 adminStatus=rx"
_SEND = "lldptool set-lldp -i eth0 adminStatus=rxtx" + "".join(
    f" && lldptool set-tlv -i eth0 -V {tlv} enableTx=yes"
    for tlv in ("portDesc", "sysName", "sysCap")
)


@pytest.fixture
def lab(two_guests: Topology) -> Iterator[Topology]:
    """Guests that are as before afterwards."""
    try:
        yield two_guests
    finally:
        for guest in (two_guests.server, two_guests.hypervisor):
            guest.run(_STOP)


def neighbours(guest: Guest) -> list[Any]:
    """Return what the facts say of the port of rxe0."""
    done = guest.run([*COMMAND, "facts", "-o", "json"], cwd="/tmp", check=True)
    (device,) = json.loads(done.stdout)["rdma_devices"]
    (port,) = device["ports"]
    return list(port["neighbours"])


def test_the_other_end_of_a_cable_is_what_lldpad_has_received(lab: Topology) -> None:
    host, other = lab.hypervisor, lab.server
    assert neighbours(host) == []
    # Reading the facts has not started it.
    assert host.run("pgrep -x lldpad").exit_code == 1
    host.run(f"{_START} && {_RECEIVE}", check=True)
    assert neighbours(host) == []
    other.run(f"{_START} && {_SEND}", check=True)
    until = time.monotonic() + _RECEIVED_S
    while not (found := neighbours(host)) and time.monotonic() < until:
        time.sleep(1)
    mac = other.run("cat /sys/class/net/eth0/address", check=True).stdout.strip()
    assert found == [
        {
            "kind": "host",
            "id": mac,
            "name": "server",
            "port": mac,
            "description": "Interface   2 as eth0",
            "netdev": "eth0",
        }
    ]
