# SPDX-License-Identifier: GPL-2.0-or-later
"""Say what the messages of mount.nfs and of the kernel's RDMA parts mean. Pure.

``explain`` searches both tables, and docs/reference/messages.md has them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Union


@dataclass(frozen=True)
class MountFailure:
    """Why a mount failed; mount.nfs exits with 32 for every failure, so only its text
    shows the cause.

    ``text`` is the last line that mount printed; in the table, a part of one.
    ``meaning`` and ``fix`` are for the admin; ``rdma_fix`` replaces ``fix`` over RDMA.
    ``rdma_only``: the text means this over RDMA only. ``about_export``: the server
    refused this path or this client, so another transport would fail too.
    ``about_server``: the other exports of the server would fail over this transport
    too.
    """

    text: str
    meaning: str
    fix: str = ""
    rdma_fix: str = ""
    rdma_only: bool = False
    about_export: bool = False
    about_server: bool = False


# The first were measured on kernel 6.1 with nfs-utils 2.6.2. The texts are those of
# nfs-utils 2.3.3 to 2.9 (utils/mount: mount_error() in error.c, stropts.c, network.c),
# which from 2.6.3 on end in " for MOUNTPOINT" or " for EXPORT on MOUNTPOINT", and of
# strerror(3).
MOUNT = (
    MountFailure(
        "reason given by server: No such file or directory",
        "the server does not export this path to this host",
        "check the path and the server's exports",
        about_export=True,
    ),
    MountFailure(
        "access denied by server",
        "the server refuses this path to this host",
        "check the server's exports",
        about_export=True,
    ),
    MountFailure(
        "Connection refused",
        "the server answers, but nothing listens on the port",
        "check that nfs-server is running, and on which port",
        rdma_fix="on a Linux server set rdma=y in the [nfsd] section of "
        "/etc/nfs.conf, then run systemctl restart nfs-server",
        about_server=True,
    ),
    MountFailure(
        "Protocol error",
        "no RDMA device leads to the server",
        "check that the route to the server uses an RDMA netdev",
        rdma_only=True,
        about_server=True,
    ),
    MountFailure(
        "Connection timed out",
        "the server does not answer",
        "check that the server is up",
        rdma_fix="check that the server is up and its RDMA device is ACTIVE",
        about_server=True,
    ),
    MountFailure(
        "No route to host",
        "the server cannot be reached",
        "check the network between this host and the server",
        about_server=True,
    ),
    MountFailure(
        "Network is unreachable",
        "this host has no route to the server",
        "check this host's network attachment for the storage network",
        about_server=True,
    ),
    MountFailure(
        "an incorrect mount option was specified",
        "the kernel does not know one of the options",
        "check the mount options",
        rdma_fix="check that modprobe rpcrdma works, then the mount options",
    ),
    MountFailure(
        "No such device",
        "the kernel has no such file system or device",
        "check that modprobe nfs works",
        rdma_fix="check that the server's address is not a loopback address",
        about_server=True,
    ),
    MountFailure(
        "Address family for hostname not supported",
        "the protocol and the server's address are of different families",
        "use a protocol of the address's family, such as proto=rdma6 for IPv6",
    ),
    MountFailure(
        "requested NFS version or transport protocol is not supported",
        "the server does not offer this NFS version over this transport",
        "check that the server's NFS service is running, and which NFS versions it "
        "offers",
    ),
    MountFailure(
        "Cannot allocate memory",
        "there is no memory for the connection",
        "free memory on this host: journalctl -k has the allocation that failed",
        rdma_fix="the RDMA device cannot register as much memory: fewer slots (sysctl "
        "sunrpc.rdma_slot_table_entries=64), fewer connections (nconnect), or another "
        "device; journalctl -k -g 'mlx|rpcrdma' has more",
    ),
    MountFailure(
        "mount system call failed",
        "the kernel gave up with an I/O error: the server, or a rule of NFS itself",
        "the kernel's log has the reason: journalctl -k -g 'NFS|RPC'",
        rdma_fix="the kernel's log has the reason: journalctl -k -g 'NFS|rpcrdma'",
    ),
    MountFailure(
        "Failed to resolve server",
        "this host cannot resolve the server's name",
        "check DNS and /etc/hosts of this host; getent hosts shows what they say",
    ),
    MountFailure(
        "DNS resolution failed",
        "this host cannot resolve the server's name",
        "check DNS and /etc/hosts of this host; getent hosts shows what they say",
    ),
    MountFailure(
        "rpc.statd is not running but is required for remote locking",
        "NFS 3 with locks needs rpc.statd on this host",
        "add nolock, as VDSM does, or: systemctl start rpc-statd",
    ),
    MountFailure(
        "Stale file handle",
        "the server no longer has the file system that it exports",
        "on the server mount the file system again, then: exportfs -ra",
    ),
    MountFailure(
        "Required key not available",
        "sec=krb5 without a Kerberos ticket of this host",
        "check rpc-gssd and the keytab of this host, or use sec=sys",
    ),
    MountFailure(
        "Permission denied",
        "the server refuses this host: exports, or Kerberos",
        "check the server's exports (exportfs -v) and, with sec=krb5, rpc-gssd here",
    ),
    MountFailure(
        "Operation not permitted",
        "the server refuses the request: mostly of a client with a port above 1023",
        "on the server export with insecure, or remove noresvport; with sec=krb5 check "
        "rpc-gssd here",
    ),
    MountFailure(
        "Protocol not supported",
        "this kernel or the server does not have the NFS version, or an option is not "
        "for this transport",
        "check the NFS version, and that xprtsec (TLS) is used over TCP only",
    ),
    MountFailure(
        "Invalid argument",
        "the kernel refuses an option, or a combination with this transport",
        "check the mount options (xprtsec is for TCP only); journalctl -k -g NFS names "
        "the option",
    ),
    MountFailure(
        "Cannot assign requested address",
        "no local address or port for the connection",
        "check clientaddr= in the options and the address of the storage network; with "
        "many mounts: noresvport",
    ),
    MountFailure(
        "Transport endpoint is not connected",
        "the connection ended while it was made",
        "check the server's log",
        rdma_fix="look for errors of the link (ovirt-rdma-host check: PORT-ERRORS-01) "
        "and at the server's log",
    ),
    MountFailure(
        "Connection reset by peer",
        "the server ended the connection",
        "check the server's log and its limit of connections",
    ),
    MountFailure(
        "Host is down",
        "the server does not answer",
        "check that the server is up",
    ),
    MountFailure(
        "Program not registered",
        "the server offers no NFS 3: rpcbind does not know its mountd",
        "start the server's NFS service, or use NFS 4",
    ),
    MountFailure(
        "is busy or already mounted",
        "something is mounted there, with other options for the same export",
        "unmount it first (findmnt shows it), or use the same options",
    ),
    MountFailure(
        "mount point",
        "the local folder is missing, or no folder",
        "create the folder",
    ),
    MountFailure(
        "Input/output error",
        "the server or the connection failed in the middle",
        "the kernel's log has the reason: journalctl -k -g 'NFS|RPC'",
        rdma_fix="the kernel's log has the reason: journalctl -k -g 'NFS|rpcrdma'",
    ),
    MountFailure(
        "helper program",
        "this host has no mount.nfs",
        "dnf install nfs-utils, or apt install nfs-common",
    ),
    MountFailure(
        "unknown filesystem type",
        "this host has no mount.nfs, or this kernel no NFS",
        "dnf install nfs-utils, or apt install nfs-common",
    ),
)


def classify(stderr: bytes, over_rdma: bool) -> MountFailure:
    """Return what went wrong, from mount's standard error; never raises."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    text = lines[-1].strip() if lines else "mount printed no error"
    for known in MOUNT:
        if known.rdma_only and not over_rdma:
            continue
        if any(known.text in line for line in lines):
            fix = (over_rdma and known.rdma_fix) or known.fix
            return replace(known, text=text, fix=fix)
    return MountFailure(text, "the cause is unknown")


@dataclass(frozen=True)
class LogMessage:
    """A text in the kernel's log or of a tool, what it means, and what to do.

    ``source``: where the text is, in Linux 6.12 unless it says otherwise.
    """

    text: str
    meaning: str
    fix: str
    source: str


_ABOVE_4_GIB = (
    "firmware setup (BIOS): SR-IOV and decoding above 4 GiB on; or boot with "
    "pci=realloc"
)
_XPRTRDMA = "net/sunrpc/xprtrdma"
LOG = (
    LogMessage(
        "Recv: local length error",
        "the other side sends more than the buffers of this side take; kernels of 2017 "
        "with NFS 4",
        "update the kernels of both sides; until then NFS 3",
        "github.com/openzfs/zfs/issues/6795",
    ),
    LogMessage(
        "'frwr' mode is not supported by device",
        "the adapter has no fast memory registration, which NFS over RDMA needs",
        "another adapter, or TCP: explain NFSRDMA-02",
        f"{_XPRTRDMA}/frwr_ops.c:180",
    ),
    LogMessage(
        "HCA provides only",
        "the adapter has too few scatter entries for NFS over RDMA",
        "another adapter, or TCP",
        f"{_XPRTRDMA}/frwr_ops.c:188",
    ),
    LogMessage(
        "RPC/RDMA backchannel overflow",
        "the server sent more callbacks (delegations) than were agreed",
        "update both kernels; the connection is made again by itself",
        f"{_XPRTRDMA}/backchannel.c:273",
    ),
    LogMessage(
        "rpcrdma: removing device",
        "the adapter was reset, or its driver unloaded, under a mount",
        "rdma link, and the driver's lines before it",
        f"{_XPRTRDMA}/verbs.c",
    ),
    LogMessage(
        "Listener dead, address change failed",
        "the NFS server lost its RDMA listener when its address moved",
        "restart the server's NFS service: explain NFS-LISTENER-01",
        f"{_XPRTRDMA}/svc_rdma_transport.c:326",
    ),
    LogMessage(
        "NFS: Transport does not support xprtsec",
        "xprtsec=tls and mtls are for TCP only",
        "remove xprtsec, or use transport: tcp",
        "fs/nfs/fs_context.c",
    ),
    LogMessage(
        "NFS: Server address does not match proto= option",
        "an IPv6 address with proto=rdma, or the other way round",
        "proto=rdma6 for IPv6",
        "fs/nfs/fs_context.c",
    ),
    LogMessage(
        "NFSv4 is not compiled into kernel",
        "this kernel has no NFS 4",
        "NFS 3, or another kernel",
        "fs/nfs/fs_context.c",
    ),
    LogMessage(
        "SUNRPC: reached max allowed number",
        "a second address of one NFS 4 server joined the connection that exists",
        "nothing is wrong; max_connect= allows more",
        "net/sunrpc/clnt.c:2977",
    ),
    LogMessage(
        "requires stronger authentication",
        "the server wants Kerberos (sec=krb5)",
        "export with sec=sys, or mount with sec=krb5",
        "net/sunrpc/clnt.c:2823",
    ),
    LogMessage(
        "reports our clientid is in use",
        "two hosts have the same NFS 4 client name: cloned machines",
        "different host names, or nfs.nfs4_unique_id for each",
        "fs/nfs/nfs4state.c:2067",
    ),
    LogMessage(
        "disagrees about version of symbol",
        "a module was built for other RDMA modules than are loaded: the distribution's "
        "rpcrdma with a vendor's ib_core, or an old initramfs",
        "the stack's own module (mlnxofedinstall --with-nfsrdma), then dracut -f: "
        "explain STACK-01",
        "github.com/cifsd-team/ksmbd/issues/574, github.com/xcat2/xcat-core/pull/6805",
    ),
    LogMessage(
        "Unknown symbol",
        "a module needs one that is missing, or of another stack",
        "the stack's own module, then dracut -f: explain STACK-01",
        "kernel/module/main.c",
    ),
    LogMessage(
        "unknown parameter",
        "modprobe.d sets an option that the module does not have; it is ignored",
        "explain MODOPT-01",
        "kernel/params.c",
    ),
    LogMessage(
        "got different BTH P_Key",
        "a peer uses another P_Key than its path: partitions differ",
        "compare the P_Key tables of both: ovirt-rdma-host fabric check",
        "drivers/infiniband/core/cma.c:1567",
    ),
    LogMessage(
        "Couldn't find index for default PKey",
        "the port is not in the default partition, and the subnet manager is",
        "add it to Default in the subnet manager's partitions",
        "drivers/infiniband/core/sa_query.c:2066",
    ),
    LogMessage(
        "unable to add gid",
        "a RoCE port has no GID for an address: its table is full, or it is down",
        "set its netdev up: explain ROCE-GID-01",
        "drivers/infiniband/core/cache.c:585",
    ),
    LogMessage(
        "multicast join failed",
        "IPoIB cannot join its group: the port is slower than the group, or not in "
        "that partition",
        "rate and mtu of the group, members of the partition: explain IPOIB-PKEY-01",
        "drivers/infiniband/ulp/ipoib/ipoib_multicast.c",
    ),
    LogMessage(
        "will cause multicast packet drops",
        "the netdev's MTU is above that of the broadcast group, as in connected mode",
        "nothing in connected mode; else explain IPOIB-MTU-01",
        "drivers/infiniband/ulp/ipoib/ipoib_main.c",
    ),
    LogMessage(
        "could not be readied for configuration",
        "NetworkManager cannot set the transport mode of the profile",
        "infiniband.transport-mode datagram: explain IPOIB-PROFILE-01",
        "github.com/clearlinux/distribution/issues/1095",
    ),
    LogMessage(
        "dump_cqe",
        "the adapter ended a request with an error: driver, firmware or kernel",
        "take the domain to TCP, then update firmware and kernel",
        "drivers/infiniband/hw/mlx5/cq.c; linux-rdma, May 2021, Spurious instability "
        "with NFSoRDMA under moderate load",
    ),
    LogMessage(
        "Responder error cqe",
        "the other side gave up, or its memory was not registered; syndrome 0x5 is a "
        "flush after that",
        "the first such line and the log of the other side",
        "drivers/infiniband/hw/mlx5/cq.c; github.com/linux-nvme/nvme-cli/issues/3268",
    ),
    LogMessage(
        "RDMA functionality is not available with the current device configuration",
        "E810 with more than four ports has no RDMA",
        "another adapter, or fewer ports in its firmware",
        "drivers/net/ethernet/intel/ice/ice_common.c:2258",
    ),
    LogMessage(
        "RDMA is not supported on this device",
        "the firmware of this function has RDMA off",
        "update firmware and NVM of the adapter, and look at its settings",
        "drivers/net/ethernet/intel/ice/ice_idc.c:374; "
        "github.com/linux-nvme/nvme-cli/issues/2391",
    ),
    LogMessage(
        "Not enough MSI-X vectors to support RDMA",
        "too many queues and virtual functions for this adapter's interrupts",
        "fewer queues (ethtool -L), fewer virtual functions",
        "drivers/net/ethernet/intel/ice/ice_irq.c:110",
    ),
    LogMessage(
        "ICE OICR event notification",
        "the RDMA part of an E810 failed and asks for a reset",
        "update ice, irdma and the NVM; without RDMA: blacklist irdma",
        "drivers/infiniband/hw/irdma/main.c:120; "
        "github.com/intel/ethernet-linux-ice/issues/12",
    ),
    LogMessage(
        "too low for RDMA traffic",
        "the netdev's MTU is below what RDMA needs",
        "explain ROCE-MTU-01",
        "drivers/infiniband/hw/irdma/main.c:58",
    ),
    LogMessage(
        "Missing DCS, aborting",
        "mlx4_core finds no registers: a virtual function without firmware support, or "
        "a broken slot",
        "PCI settings in the firmware setup; another slot",
        "drivers/net/ethernet/mellanox/mlx4/main.c",
    ),
    LogMessage(
        "not enough MMIO resources for SR-IOV",
        "the machine gives the adapter too little address space for virtual functions; "
        "sriov_numvfs answers Cannot allocate memory",
        _ABOVE_4_GIB,
        "drivers/pci/iov.c; github.com/openshift/openshift-docs/pull/32619",
    ),
    LogMessage(
        "sriov_numvfs: Cannot allocate memory",
        "the machine gives the adapter too little address space for virtual functions",
        f"{_ABOVE_4_GIB}; journalctl -k says: not enough MMIO resources",
        "github.com/openshift/openshift-docs/pull/32619",
    ),
    LogMessage(
        "does not support the kernel ABI of",
        "libibverbs is older than the kernel's driver; NFS is not affected",
        "update rdma-core, or the vendor's library for its driver",
        "rdma-core libibverbs/init.c; "
        "github.com/k8snetworkplumbingwg/sriov-cni/issues/348",
    ),
    LogMessage(
        "no userspace device-specific driver found",
        "libibverbs has no provider for the adapter; NFS is not affected",
        "dnf install libibverbs, or apt install ibverbs-providers",
        "rdma-core libibverbs/init.c; github.com/SoftRoCE/rxe-dev/issues/48",
    ),
    LogMessage(
        "Truncated VF list",
        "ip shows only a part of the virtual functions, so their GUIDs are unknown",
        "look at one port at a time, with ip link show dev",
        "iproute2 lib/libnetlink.c; github.com/nasty-project/nasty/pull/611",
    ),
    LogMessage(
        "Unable to perform rdma_client function",
        "RDMA CM found no way to the address: another netdev answers ARP for it, as "
        "with two ports in one subnet",
        "a subnet for each port, or sysctl net.ipv4.conf.all.arp_ignore=1",
        "perftest; rdma-core Documentation/librdmacm.md",
    ),
)


def known_in(text: str) -> list[Union[MountFailure, LogMessage]]:
    """Return the rows of both tables whose text is in ``text``, or has it, in any case;
    those of the kernel's log first.
    """
    wanted = text.lower().strip()
    return [
        known
        for known in (*LOG, *MOUNT)
        if known.text.lower() in wanted
        or (len(wanted) > 5 and wanted in known.text.lower())
    ]
