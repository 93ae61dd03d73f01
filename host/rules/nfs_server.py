# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules about a Linux NFS server, for ``ovirt-rdma-host server check``, and what hosts
need of it. Pure.

A storage domain belongs to vdsm:kvm (36:36): VDSM writes as this user, qemu as a member
of this group.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Callable

from ovirt_rdma.host.facts.model import NfsExport, NfsServer
from ovirt_rdma.host.policy.model import DEFAULT_PORT
from ovirt_rdma.host.rules import adapters, host, ipoib_rules, nfs, roce
from ovirt_rdma.host.rules.base import FAIL, SKIP, WARN, About, Finding, Rule, View
from ovirt_rdma.host.rules.ipoib import static_addresses
from ovirt_rdma.host.rules.modules import NFS_MODULE, is_loaded, why_not_loaded
from ovirt_rdma.host.system.tree import VDSM_GID, VDSM_UID

NO_SERVER = "this host has no NFS server"
_RESTART = "systemctl restart nfs-server"
_START = f"set rdma=y in the section [nfsd] of /etc/nfs.conf, then run {_RESTART}"
_REEXPORT = "change its line in /etc/exports, then run exportfs -ra"


_ROOT = "run it as root"


def _of_server(
    rule: str, judge: Callable[[View, About, NfsServer], Iterable[Finding]]
) -> Rule:
    def check(view: View) -> Iterable[Finding]:
        server, about = view.facts.nfs_server, About(rule)
        if server is None or server.threads == 0:
            return [about.skips(NO_SERVER)]
        return judge(view, about, server)

    return Rule(rule, check, "no export is known")


def _of_exports(rule: str, judge: Callable[[About, NfsExport], Finding]) -> Rule:
    def check(_: View, __: About, server: NfsServer) -> Iterable[Finding]:
        return [judge(About(rule, name), export) for name, export in _named(server)]

    return _of_server(rule, check)


def _named(server: NfsServer) -> Iterator[tuple[str, NfsExport]]:
    """Yield the exports but the root of NFS 4, which has no storage domain."""
    paths = [export.path for export in server.exports or ()]
    for export in server.exports or ():
        if export.path == "/" or {"fsid=0", "fsid=root"} & {*export.options.split(",")}:
            continue
        alone = paths.count(export.path) == 1
        yield export.path if alone else f"{export.path} {export.client}", export


def _listener(view: View) -> Iterator[Finding]:
    server, about = view.facts.nfs_server, About("SERVER-LISTENER-01")
    if server is None or server.threads == 0:
        yield about.fails(
            f"{NO_SERVER}, or it is stopped", "systemctl enable --now nfs-server"
        )
        return
    if server.listeners is None or server.threads is None:
        unknown = "it is unknown if the server runs, and where it listens"
        yield about.skips(unknown, _ROOT)
        return
    ports = server.rdma_ports
    if ports and DEFAULT_PORT not in ports:
        yield about.warns(
            f"it listens over RDMA on port {', '.join(map(str, ports))}, and hosts use "
            f"{DEFAULT_PORT}",
            f"set rdma-port={DEFAULT_PORT} in /etc/nfs.conf, or port: {ports[0]} in "
            "the rules of the hosts' policy",
        )
    elif ports:
        yield about.passes(f"it listens over RDMA on port {DEFAULT_PORT}")
    else:
        why, fix = "", _START
        if not is_loaded(view.facts.modules, NFS_MODULE):
            why, fix = why_not_loaded(view, NFS_MODULE)
            why, fix = f": {why}", f"{fix}; {_START}"
        yield about.fails(f"it does not listen over RDMA{why}", fix)
    if not any(one.startswith("tcp ") for one in server.listeners):
        yield about.warns(
            "it does not listen over TCP, so prefer-rdma has nothing to fall back to",
            f"remove tcp=n from /etc/nfs.conf, then run {_RESTART}",
        )


# The default of nfs-utils before 2.8.2; since then it is 16.
_FEWEST_THREADS = 8
_THREADS_PER_CLIENT = 2
# Of a server with several network paths: each write that waits for a dead one holds a
# thread for 16 s, and without a thread no new connection is accepted (measured on 6.1,
# with four writers and 4 threads; 16 were enough).
_FEWEST_WITH_PATHS = 16
# A part of all requests, from which threads that are missing are no accident.
_OFTEN_BUSY, _MANY = 0.25, 1000


def _threads(view: View, about: About, server: NfsServer) -> Iterator[Finding]:
    threads, clients = server.threads, server.clients
    if threads is None:
        yield about.skips("the number of threads is unknown", _ROOT)
        return
    reached = [one for one in view.interfaces if static_addresses(one.netdev)]
    fewest = _FEWEST_WITH_PATHS if len(reached) > 1 else _FEWEST_THREADS
    wanted = max(fewest, _THREADS_PER_CLIENT * (clients or 0))
    queued, waited = server.queued or 0, (server.queued or 0) - (server.woken or 0)
    more = max(2 * threads, wanted)
    fix = f"set threads={more} in [nfsd] of /etc/nfs.conf; now: rpc.nfsd {more}"
    if threads < wanted:
        hosts = "an unknown number of" if clients is None else clients
        yield about.warns(
            f"it has {threads} threads, and each write waits in one until it is on the "
            f"disk; {wanted} are the least for {hosts} NFS 4 clients and "
            f"{len(reached)} RDMA netdevs",
            fix,
        )
    elif queued >= _MANY and waited > _OFTEN_BUSY * queued:
        sentence = f"none of {threads} threads was idle for {waited} of {queued}"
        yield about.warns(f"{sentence} requests", fix)
    elif clients is None:
        yield about.skips(f"it has {threads} threads, for an unknown number of clients")
    else:
        yield about.passes(f"it has {threads} threads")


# include/linux/sunrpc/svc_rdma.h: RPCRDMA_MAX_REQUESTS, 32 in older kernels and 64 now.
_FEWEST_REQUESTS = 32
_LARGEST = 1 << 20


def _settings(view: View, about: About, server: NfsServer) -> Iterator[Finding]:
    requests, size = server.max_requests, server.max_block_size
    if requests is None:
        yield about.skips("the settings of svcrdma are unknown: rpcrdma is not loaded")
    elif requests < _FEWEST_REQUESTS:
        yield about.warns(
            f"a connection may have {requests} requests at once (sunrpc.svc_rdma."
            f"max_requests), fewer than the kernel's {_FEWEST_REQUESTS} or 64",
            "remove the setting from sysctl.d; now: sysctl "
            f"sunrpc.svc_rdma.max_requests=64; {_RESTART}",
        )
    elif size is None:
        yield about.skips("the largest read or write is unknown", _ROOT)
    else:
        yield about.passes(f"a connection may have {requests} requests at once")
    if size is not None and size < _LARGEST:
        yield about.warns(
            f"reads and writes have at most {size} bytes (max_block_size): it has "
            "little memory, or a setting",
            f"echo {_LARGEST} > /proc/fs/nfsd/max_block_size while nfs-server is "
            "stopped",
        )


def _versions(view: View, about: About, server: NfsServer) -> Iterator[Finding]:
    versions = server.versions
    if versions is None:
        yield about.skips("the offered NFS versions are unknown", _ROOT)
    elif {"4.1", "4.2"} & set(versions):
        yield about.passes(f"it offers NFS {', '.join(versions)}")
    else:
        yield about.finds(
            WARN if versions else FAIL,
            f"it offers NFS {', '.join(versions) or 'in no version'}: storage domains "
            "with version 4.1 or 4.2 cannot be mounted",
            f"set vers4.1=y and vers4.2=y in /etc/nfs.conf, then run {_RESTART}",
        )


def _exports(view: View, about: About, server: NfsServer) -> Iterator[Finding]:
    if server.exports is None:
        yield about.skips("the exports are unknown", _ROOT)
        return
    exported = {export.path.rstrip("/") or "/" for export in server.exports}
    others = ", ".join(sorted(exported - set(server.configured)))
    for path in dict.fromkeys(server.configured):
        if path not in exported:
            # exportfs resolves links (nfs-utils, nfsd_realpath).
            link = f", unless it is a link to one of these: {others}" if others else ""
            yield About(about.rule, path).finds(
                SKIP if others else FAIL,
                f"{path} is in /etc/exports, but not exported{link}",
                "exportfs -ra",
            )
    if not server.exports and not server.configured:
        yield about.fails(
            "it exports nothing",
            "write a line such as '/srv/vm 10.20.0.0/24(rw)' to /etc/exports, then run "
            "exportfs -ra",
        )
    for subject, export in _named(server):
        yield _export(About(about.rule, subject), export)


def _export(about: About, export: NfsExport) -> Finding:
    words = export.options.split(",")
    values = [word.partition("=")[::2] for word in words]
    flavours = {f for name, value in values if name == "sec" for f in value.split(":")}
    tls = [value.split(":") for name, value in values if name == "xprtsec"]
    if "ro" in words:
        sentence = "hosts cannot write: it is exported with ro"
        return about.fails(sentence, f"write rw: {_REEXPORT}")
    if flavours and "sys" not in flavours:
        return about.fails(
            f"it is exported with sec={':'.join(sorted(flavours))} only, and VDSM has "
            "no Kerberos ticket",
            f"add sys to sec=: {_REEXPORT}",
        )
    if tls and "none" not in tls[-1]:
        return about.fails(
            f"it is exported with xprtsec={':'.join(tls[-1])} only, and TLS is "
            "for TCP: nothing can mount it over RDMA",
            f"add none to xprtsec=: {_REEXPORT}",
        )
    if "async" in words:
        return about.warns(
            "it is exported with async: the server confirms writes before they are on "
            "the disk, and its crash damages the disks of VMs",
            f"write sync: {_REEXPORT}",
        )
    return about.passes(f"{export.client} may write to it, and writes are on the disk")


def _owner(about: About, export: NfsExport) -> Finding:
    words = export.options.split(",")
    user, group = VDSM_UID, VDSM_GID
    if "all_squash" in words:
        values = dict(word.split("=", 1) for word in words if "=" in word)
        ids = values.get("anonuid"), values.get("anongid")
        if ids != (str(user), str(group)):
            return about.fails(
                f"all users become {ids[0]}:{ids[1]} (all_squash), but storage domains "
                "belong to 36:36",
                f"write no_all_squash, or add anonuid=36,anongid=36: {_REEXPORT}",
            )
    folder, known = shlex.quote(export.folder), None not in (export.uid, export.mode)
    if export.problem and "No such file" in export.problem:
        return about.fails(
            f"{export.folder} cannot be looked at: {export.problem}",
            f"mount its file system, or: install -d -o 36 -g 36 {folder}",
        )
    if export.problem or not known:
        why = export.problem or "its owner is unknown"
        sentence = f"{export.folder} cannot be looked at: {why}"
        return about.skips(sentence, "look at the disk behind it, as root")
    shift = 6 if export.uid == user else 3 if export.gid == group else 0
    mode = export.mode or 0
    shown = f"{export.folder} belongs to {export.uid}:{export.gid} (mode {mode:04o})"
    fix = f"for a storage domain: chown 36:36 {folder}; chmod u+rwx {folder}"
    if (mode >> shift) & 7 != 7:
        return about.fails(f"{shown}: vdsm:kvm (36:36) cannot write to it", fix)
    if (export.uid, export.gid) != (user, group):
        return about.warns(f"{shown}, not to vdsm:kvm (36:36), as oVirt requires", fix)
    return about.passes(f"{export.folder} belongs to vdsm:kvm (36:36)")


# The parts of a file system that are free, below which something has to be done.
_FULL, _NEARLY_FULL = 0.01, 0.05


def _disk(about: About, export: NfsExport) -> Finding:
    where = f"the file system of {export.folder}"
    if export.read_only:
        return about.fails(
            f"{where} is mounted read-only, perhaps because of errors",
            "look at journalctl -k; then mount -o remount,rw",
        )
    if export.free is None or export.size is None:
        return about.skips(f"it is unknown how full {where} is")
    if export.free_files == 0:
        return about.fails(f"{where} has no free inode", "remove files, or extend it")
    share = export.free / export.size if export.size else 1.0
    if share < _NEARLY_FULL:
        return about.finds(
            FAIL if share < _FULL else WARN,
            f"{where} has {export.free >> 20} of {export.size >> 20} MiB free",
            "extend it: VMs pause when it is full",
        )
    if export.read_only is None:
        return about.skips(f"it is unknown if {where} is mounted read-only")
    return about.passes(f"{where} has {export.free >> 20} MiB free")


LISTENER = Rule("SERVER-LISTENER-01", _listener)
RULES = (
    LISTENER,
    _of_server("SERVER-VERS-01", _versions),
    _of_server("SERVER-EXPORT-01", _exports),
    _of_exports("SERVER-OWNER-01", _owner),
    _of_exports("SERVER-DISK-01", _disk),
    _of_server("SERVER-THREADS-01", _threads),
    _of_server("SERVER-RDMA-01", _settings),
)
# What server check uses: those of a hypervisor about adapters and netdevs too.
ALL_RULES = (
    adapters.DRIVERS,
    *RULES,
    nfs.REGISTRATION,
    nfs.PORT,
    ipoib_rules.PORTS,
    ipoib_rules.TSO_A0,
    ipoib_rules.MODE,
    ipoib_rules.NETDEV_MTU,
    roce.MTU,
    roce.GIDS,
    roce.PFC,
    roce.ECN,
    *adapters.HARDWARE,
    host.UNREAD,
)
