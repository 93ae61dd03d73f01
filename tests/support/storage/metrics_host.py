# SPDX-License-Identifier: GPL-2.0-or-later
"""A host with many NFS mounts and RDMA ports, as files below a root.

The texts are those of Linux 6.1: net/sunrpc/stats.c (rpc_clnt_show_stats),
net/sunrpc/sysfs.c, drivers/infiniband/core/sysfs.c.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from ovirt_rdma.host.collect.statistics import SWITCHES
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.model import HostPolicy, NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.policy.store import store
from support.fakes.fake_mounts import FakeMounts

FOLDER = "/var/lib/node_exporter/textfile_collector"

# The operations of NFS 4.2 that a hypervisor uses; the kernel prints all others too.
_OF_HYPERVISORS = """
    NULL READ WRITE COMMIT OPEN OPEN_NOATTR CLOSE SETATTR FSINFO RENEW ACCESS
    GETATTR LOOKUP LOOKUP_ROOT REMOVE RENAME CREATE PATHCONF STATFS READDIR
    SERVER_CAPS DELEGRETURN EXCHANGE_ID CREATE_SESSION SEQUENCE
"""
_USED = _OF_HYPERVISORS.split()
# fs/nfs/nfs4xdr.c, nfs4_procedures: 67 in Linux 6.1.
_UNUSED = [f"OTHER_{number}" for number in range(67 - len(_USED))]
OPERATIONS = _USED + _UNUSED
_COUNTERS = """
    VL15_dropped excessive_buffer_overrun_errors link_downed link_error_recovery
    local_link_integrity_errors multicast_rcv_packets multicast_xmit_packets
    port_rcv_constraint_errors port_rcv_data port_rcv_errors port_rcv_packets
    port_rcv_remote_physical_errors port_rcv_switch_relay_errors
    port_xmit_constraint_errors port_xmit_data port_xmit_discards
    port_xmit_packets port_xmit_wait symbol_error unicast_rcv_packets
    unicast_xmit_packets
"""
COUNTERS = _COUNTERS.split()
# drivers/infiniband/hw/mlx5/counters.c
_HW_COUNTERS = """
    duplicate_request implied_nak_seq_err lifespan local_ack_timeout_err
    np_cnp_sent np_ecn_marked_roce_packets out_of_buffer out_of_sequence
    packet_seq_err req_cqe_error req_cqe_flush_error req_remote_access_errors
    req_remote_invalid_request req_rnr_retries_exceeded
    req_transport_retries_exceeded resp_cqe_error resp_cqe_flush_error
    resp_local_length_error resp_remote_access_errors rnr_nak_retry_err
    roce_adp_retrans roce_adp_retrans_to rp_cnp_handled rp_cnp_ignored
    rx_atomic_requests rx_icrc_encapsulated rx_read_requests rx_write_requests
"""
HW_COUNTERS = _HW_COUNTERS.split()
_XPRT_INFO = """\
last_used=4294937404
cur_cong=512
cong_win=16384
max_num_slots=128
min_num_slots=2
num_reqs={requests}
binding_q_len=0
sending_q_len=0
pending_q_len={pending}
backlog_q_len={backlog}
main_xprt=1
src_port=0
tasks_queuelen={pending}
dst_port=20049
"""


@dataclass
class Load:
    """What has been done over each mount so far."""

    reads: int = 1000
    writes: int = 500
    # More of these than of requests: they were sent again.
    repeated: int = 0
    queue_ms: int = 10
    connects: int = 1
    unanswered: int = 0
    backlog_sum: int = 0
    backlog_now: int = 0
    # Of each mount; the counters above are those of each connection.
    connections: int = 1


class MetricsHost:
    """A host below ``root``: mounts ``nas:/vmN`` over RDMA, ports, a policy."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mounts: list[tuple[str, str, str]] = []
        self.load = Load()
        self.uptime_s = 90000.0
        self.files = FakeMounts(root)
        (root / FOLDER.strip("/")).mkdir(parents=True)
        (root / "run/ovirt-rdma/mounts").mkdir(parents=True)
        self.files.mount("tmpfs", "/tmp", "tmpfs")
        self.write()

    def policy(self, transport: str = "require-rdma", folder: str = FOLDER) -> None:
        """Load a policy with one rule for all exports of nas."""
        rule = NfsRule(1, "storage", "nas", "*", transport)
        policy = Policy(
            nfs=NfsPolicy((rule,)), host=HostPolicy(metrics_folder=folder or None)
        )
        store(policy, "/etc/ovirt-rdma/policy.yaml", under(self.root, POLICY_JSON))

    def mount(self, source: str, protocol: str = "rdma", version: str = "4.2") -> str:
        """Add an NFS mount; return its mount point."""
        mountpoint = f"/rhev/data-center/mnt/{source.replace('/', '_')}"
        self.mounts.append((source, mountpoint, protocol))
        self.files.nfs_mount(source, mountpoint, protocol, version=version)
        self.write()
        return mountpoint

    def port(self, device: str, number: int = 1, **values: int) -> None:
        """Add a port of an RDMA device, or set counters of it."""
        folder = f"/sys/class/infiniband/{device}/ports/{number}"
        self.files.write(f"{folder}/state", "4: ACTIVE")
        for place, names in (("counters", COUNTERS), ("hw_counters", HW_COUNTERS)):
            for name in names:
                value = values.get(name, 10 if name == "lifespan" else 0)
                self.files.write(f"{folder}/{place}/{name}", str(value))

    def write(self) -> None:
        """Write what the kernel shows of the mounts now."""
        self.files.write("/proc/uptime", f"{self.uptime_s:.2f} 1.00")
        self.files.write("/proc/stat", f"btime {int(time.time() - self.uptime_s)}")
        load = self.load
        parts = ["device proc mounted on /proc with fstype proc\n"]
        for number, (source, mountpoint, protocol) in enumerate(self.mounts):
            parts.append(self._mountstats(source, mountpoint, protocol))
            info = _XPRT_INFO.format(
                requests=64,
                pending=load.unanswered,
                backlog=load.backlog_now,
            )
            # net/sunrpc/sysfs.c: the number of a transport is its own on the host.
            for id in range(load.connections * number, load.connections * (number + 1)):
                folder = f"{SWITCHES}/switch-{number}/xprt-{id}-{protocol}"
                self.files.write(f"{folder}/xprt_info", info)
                self.files.write(f"{folder}/xprt_state", "state= CONNECTED BOUND")
                self.files.write(f"{folder}/dstaddr", "10.0.0.1")
        self.files.write("/proc/self/mountstats", "".join(parts))

    def _mountstats(self, source: str, mountpoint: str, protocol: str) -> str:
        load = self.load
        done = load.reads + load.writes
        sends, receives = done + load.repeated + load.unanswered, done
        common = f"{load.connects} 0 0 {sends} {receives} 0 {sends * 3} "
        common += str(load.backlog_sum)
        xprt = f"\txprt:\trdma 0 1 {common} 100 900 0 8000000 9000000 0 0 512 "
        xprt += f"0 0 0 0 0 16 {load.reads} 0 0\n"
        if protocol == "tcp":
            xprt = f"\txprt:\ttcp 790 1 {common} 64 0 0\n"
        rtt_ms = load.reads * 3 // 2
        numbers = {
            "READ": f"{load.reads} {load.reads + load.repeated} 0 {load.reads * 200} "
            f"{load.reads * 4096} {load.queue_ms} {rtt_ms} {rtt_ms + load.queue_ms} 0",
            "WRITE": f"{load.writes} {load.writes} 0 {load.writes * 4096} "
            f"{load.writes * 180} 0 {load.writes * 5} {load.writes * 6} 0",
        }
        operations = "".join(
            f"\t{name:>12}: {numbers.get(name, '0 0 0 0 0 0 0 0 0')}\n"
            for name in OPERATIONS
        )
        return (
            f"device {source} mounted on {mountpoint} with fstype nfs4 statvers=1.1\n"
            "\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,acregmin=3,"
            "acregmax=60,acdirmin=30,acdirmax=60,soft,nosharecache,"
            f"proto={protocol},port=20049,timeo=100,retrans=3,sec=sys,"
            "clientaddr=10.0.0.2,local_lock=none\n"
            f"\tage:\t{int(self.uptime_s) - 3600}\n"
            "\timpl_id:\tname='',domain='',date='0,0'\n"
            "\tcaps:\tcaps=0xffffbf,wtmult=512,dtsize=32768,bsize=0,namlen=255\n"
            "\tnfsv4:\tbm0=0xfdffbfff,bm1=0xf9be3e,bm2=0x68800,acl=0x3,sessions,pnfs=not"
            " configured,lease_time=90,lease_expired=0\n"
            "\tsec:\tflavor=1,pseudoflavor=1\n"
            "\tevents:\t1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 "
            "25 26 27\n"
            "\tbytes:\t0 0 4096000 2048000 4096000 2048000 0 0\n"
            "\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n"
            f"{xprt * load.connections}"
            "\tper-op statistics\n"
            f"{operations}\n"
        )


def large(root: Path, mounts: int = 20, ports: int = 4) -> MetricsHost:
    """Return a host with so many mounts, each fifth over TCP, and ports."""
    host = MetricsHost(root)
    host.policy("prefer-rdma")
    for number in range(ports):
        host.port(f"mlx5_{number}", symbol_error=number)
    for number in range(mounts):
        host.mount(f"nas:/vm{number}", "rdma" if number % 5 else "tcp")
    return host
