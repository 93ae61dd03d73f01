# SPDX-License-Identifier: GPL-2.0-or-later
"""``server check`` on the kernel's own NFS server: faults are planted one by one, each
is found by the rule that is about it, and the sound server has none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from lab.topology import EXPORT_PATH, NETDEV, SERVER_ADDRESSES, Topology

pytestmark = pytest.mark.kernels("6.12")

COMMAND = [sys.executable, "-m", "ovirt_rdma.cli.host.main"]
THREADS = 16
FOLDER = f"/nfsroot{EXPORT_PATH}"
_SMALL = f"mount -t tmpfs -o size=4m,uid=36,gid=36,mode=755 tmpfs {FOLDER}"
_CONF = f"rpc.nfsd 0; sed -i '%s' /etc/nfs.conf; rpc.nfsd {THREADS}"
_REQUESTS = "/proc/sys/sunrpc/svc_rdma/max_requests"


@dataclass(frozen=True)
class Fault:
    """Shell lines that plant a fault on the server and repair it, and what is found."""

    plant: str
    repair: str
    rule: str
    verdict: str


def _exports(change: str, rule: str, verdict: str) -> Fault:
    plant = f"cp /etc/exports /tmp/e; sed -i '{change}' /etc/exports; exportfs -ra"
    return Fault(plant, "cp /tmp/e /etc/exports; exportfs -ra", rule, verdict)


def _conf(change: str, back: str, rule: str, verdict: str) -> Fault:
    return Fault(_CONF % change, _CONF % back, rule, verdict)


FAULTS = {
    "stopped": Fault("rpc.nfsd 0", f"rpc.nfsd {THREADS}", "SERVER-LISTENER-01", "FAIL"),
    "no RDMA listener": _conf(
        "s/^rdma=y/rdma=n/", "s/^rdma=n/rdma=y/", "SERVER-LISTENER-01", "FAIL"
    ),
    "another port": _conf(
        "s/20049/20050/", "s/20050/20049/", "SERVER-LISTENER-01", "WARN"
    ),
    "NFS 3 and 4.0 only": _conf(
        r"s/^\(vers4.[12]\)=y/\1=n/",
        r"s/^\(vers4.[12]\)=n/\1=y/",
        "SERVER-VERS-01",
        "WARN",
    ),
    "one thread": Fault(
        "rpc.nfsd 1", f"rpc.nfsd {THREADS}", "SERVER-THREADS-01", "WARN"
    ),
    "few requests": Fault(
        f"cat {_REQUESTS} > /tmp/r; echo 8 > {_REQUESTS}",
        f"cat /tmp/r > {_REQUESTS}",
        "SERVER-RDMA-01",
        "WARN",
    ),
    "read-only export": _exports("s/(rw,/(ro,/", "SERVER-EXPORT-01", "FAIL"),
    "async": _exports("s/(rw,/(rw,async,/", "SERVER-EXPORT-01", "WARN"),
    "Kerberos only": _exports("s/(rw,/(rw,sec=krb5,/", "SERVER-EXPORT-01", "FAIL"),
    "squashed": _exports("s/(rw,/(rw,all_squash,/", "SERVER-OWNER-01", "FAIL"),
    "not exported": Fault(
        "cp /etc/exports /tmp/e; echo '/srv/new *(rw,fsid=99)' >> /etc/exports",
        "cp /tmp/e /etc/exports",
        "SERVER-EXPORT-01",
        "FAIL",
    ),
    "of root": Fault(
        f"chown 0:0 {FOLDER}", f"chown 36:36 {FOLDER}", "SERVER-OWNER-01", "FAIL"
    ),
    "full": Fault(
        f"{_SMALL}; cat /dev/zero > {FOLDER}/x || true",
        f"umount {FOLDER}",
        "SERVER-DISK-01",
        "FAIL",
    ),
    "read-only": Fault(
        f"{_SMALL}; mount -o remount,ro {FOLDER}",
        f"umount {FOLDER}",
        "SERVER-DISK-01",
        "FAIL",
    ),
    "port down": Fault(
        f"ip link set {NETDEV} down",
        f"ip link set {NETDEV} up;ip addr add {SERVER_ADDRESSES[1]} dev {NETDEV} nodad",
        "NFSRDMA-03",
        "FAIL",
    ),
}


class Server:
    """The NFS server of the lab, with as many threads as hosts want."""

    def __init__(self, lab: Topology) -> None:
        self.lab = lab

    def do(self, script: str) -> None:
        """Run shell lines on the server."""
        self.lab.server.run(f"set -e; {script}", check=True, timeout=120)

    def document(self) -> dict[str, Any]:
        """Return what ``server check`` says."""
        words = [*COMMAND, "server", "check", "-o", "json"]
        result = self.lab.server.run(words, cwd="/tmp", timeout=300)
        found: dict[str, Any] = json.loads(result.stdout)
        assert result.exit_code == (3 if found["failed"] else 0)
        return found

    def wrong(self) -> dict[str, str]:
        """Return the rules whose verdict is not PASS or SKIP.

        Tools that the guest lacks are notes of FACTS-01.
        """
        return {
            one["rule"]: one["verdict"]
            for one in self.document()["findings"]
            if one["verdict"] in ("WARN", "FAIL") and one["rule"] != "FACTS-01"
        }


@pytest.fixture(scope="module")
def server(two_guests: Topology) -> Iterator[Server]:
    made = Server(two_guests)
    made.do(f"rpc.nfsd {THREADS}")
    yield made
    two_guests.nfs.restart()


def test_a_sound_server(server: Server) -> None:
    document = server.document()
    found = {one["rule"]: one["verdict"] for one in document["findings"]}
    assert server.wrong() == {}
    for rule in ("LISTENER", "VERS", "EXPORT", "OWNER", "DISK", "THREADS", "RDMA"):
        assert found[f"SERVER-{rule}-01"] == "PASS", rule


@pytest.mark.faults
def test_planted_faults(server: Server) -> None:
    """Of fifteen faults each is found by its rule, and nothing else is blamed."""
    found, wanted = {}, {}
    for name, fault in FAULTS.items():
        server.do(fault.plant)
        found[name] = server.wrong()
        wanted[name] = {fault.rule: fault.verdict}
        server.do(fault.repair)
    assert found == wanted
    assert server.wrong() == {}
