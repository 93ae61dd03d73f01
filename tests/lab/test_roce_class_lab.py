# SPDX-License-Identifier: GPL-2.0-or-later
"""Give storage over RoCE a type of service by the policy, and look at its packets.

Soft-RoCE has no data center bridging, but the real RDMA CM and its configfs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from lab.topology import Topology
from lab.vdsm_daemon import VdsmDaemon

EXPORT, PLACE = "/srv/class", "/mnt"
CM = "/sys/kernel/config/rdma_cm"
POLICY = """\
version: 1
host:
  interfaces:
    - {match: {link_layer: ethernet}, roce: {priority: 3}}
"""
# Mounts over RDMA, writes, unmounts; prints the types of service of the RoCE packets
# that left by eth0, with how many had each.
_MOUNTED = f"""
import collections, json, select, socket, subprocess, threading
everything = socket.htons(3)
packets = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, everything)
packets.bind(("eth0", 3))
found, over = collections.Counter(), threading.Event()
def count():
    while not over.is_set():
        if not select.select([packets], [], [], 0.2)[0]:
            continue
        data, (_, protocol, kind, _, _) = packets.recvfrom(65536)
        outgoing = kind == socket.PACKET_OUTGOING
        if outgoing and protocol == 0x800 and data[9] == 17 and len(data) > 24:
            at = (data[0] & 15) * 4 + 2
            if int.from_bytes(data[at : at + 2], "big") == 4791:
                found[data[1]] += 1
thread = threading.Thread(target=count)
thread.start()
options = "rdma,port=20049,vers=4.2,soft,retry=0"
where = ["10.99.0.1:{EXPORT}", "{PLACE}"]
subprocess.run(["mount", "-t", "nfs", "-o", options, *where], check=True)
with open("{PLACE}/written", "wb") as file:
    file.write(b"x" * 65536)
subprocess.run(["umount", "{PLACE}"], check=True)
over.set()
thread.join()
print(json.dumps(found))
"""


@pytest.fixture
def host(two_guests: Topology) -> Iterator[VdsmDaemon]:
    two_guests.nfs.add_export(EXPORT)
    daemon = VdsmDaemon(two_guests.hypervisor)
    daemon.load_policy(POLICY)
    yield daemon
    daemon.command("revert")


def sent(host: VdsmDaemon) -> set[str]:
    """Return the types of service of what a mount and a write send."""
    result = host.guest.run(["python3", "-c", _MOUNTED], check=True, timeout=180)
    return set(json.loads(result.stdout))


def test_packets_have_the_policys_type_of_service(
    host: VdsmDaemon, two_guests: Topology
) -> None:
    assert sent(host) == {"0"}
    planned = host.command("plan")
    assert "ROCE-TOS-01/rxe0/1" in planned.stdout
    applied = host.command("apply")
    assert applied.exit_code == 0, applied.stdout
    file = f"{CM}/rxe0/ports/1/default_roce_tos"
    assert host.guest.run(f"cat {file}", check=True).stdout == "106\n"
    assert sent(host) == {"106"}
    again = host.command("apply")
    assert again.stdout.startswith("Nothing to do"), again.stdout

    # A new device has forgotten it; the unit sets it again.
    two_guests.fabric.take_down(host.guest, "eth0")
    two_guests.fabric.bring_up(host.guest, "eth0", [])
    assert host.guest.run(f"cat {file}").stdout in ("", "0\n")
    done = host.command("unit", "netdev", "rxe0")
    assert done.exit_code == 0, done.stdout
    assert host.guest.run(f"cat {file}", check=True).stdout == "106\n"

    reverted = host.command("revert")
    assert reverted.exit_code == 0, reverted.stdout
    assert host.guest.run(f"cat {file}", check=True).stdout == "0\n"
    assert sent(host) == {"0"}
