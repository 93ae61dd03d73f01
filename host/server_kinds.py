# SPDX-License-Identifier: GPL-2.0-or-later
"""List what vendors' documents say of NFS over RDMA with their servers, and the mount
options that the Linux client knows. Pure.

docs/servers.md has the documents, and what else they say. What none says is None or
empty here, and never a limit. vdsmd loads this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.errors import Sentence, did_you_mean
from ovirt_rdma.host.export import MountOptions

AUTO = "auto"
# NFS_MAX_CONNECTIONS in the kernel's fs/nfs/internal.h; what VAST's client takes.
MOST_NCONNECT, MOST_NCONNECT_OF_VENDORS = 16, 64


@dataclass(frozen=True)
class ServerKind:
    """The NFS servers of a vendor.

    versions: those over RDMA, with the kernel's own client; empty if none is named
    client_versions: with the vendor's client for Linux; empty if there is none
    largest: the largest rsize and wsize in bytes
    programs: how a server of it calls itself (NfsMount.server_program), in part
    """

    name: str
    title: str
    versions: tuple[str, ...] = ()
    client_versions: tuple[str, ...] = ()
    largest: Optional[int] = None
    programs: tuple[str, ...] = ()

    @property
    def options(self) -> str:
        """The mount options that its document asks for."""
        size = self.largest
        return "" if size is None else f"rsize={size},wsize={size}"


_ALL = ("3", "4.0", "4.1", "4.2")
KINDS = {
    kind.name: kind
    for kind in (
        ServerKind("linux", "Linux", _ALL, programs=("(kernel.org)",)),
        ServerKind(
            "ontap",
            "NetApp ONTAP",
            versions=("3", "4.0", "4.1"),
            largest=1 << 16,
            programs=("(netapp.com)",),
        ),
        ServerKind(
            "powerscale",
            "Dell PowerScale (OneFS)",
            versions=("3",),
            client_versions=("3", "4.1", "4.2"),
        ),
        ServerKind("vast", "VAST", client_versions=("3", "4.1")),
        ServerKind("truenas", "TrueNAS", programs=("truenas",)),
        ServerKind("solaris", "Oracle Solaris"),
        ServerKind("ganesha", "NFS-Ganesha", _ALL),
    )
}
CHOICES = (AUTO, *KINDS)


def kind_of(named: str, program: Optional[str] = None) -> Optional[ServerKind]:
    """Return the kind that a rule names; for AUTO, that of what the server says it is;
    None if nothing tells.
    """
    if named != AUTO:
        return KINDS.get(named)
    said = (program or "").lower()
    # TrueNAS runs Linux, and so its program is both.
    found = [k for k in KINDS.values() if any(p in said for p in k.programs)]
    return found[-1] if found else None


# Mount options. Those of nfs(5) in nfs-utils 2.9.1, and of fs/nfs/fs_context.c in Linux
# 6.18 that it does not list.
_NFS = (
    "ac acdirmax acdirmin acl acregmax acregmin actimeo bg bsize clientaddr cto fg fsc "
    "fatal_neterrors hard intr local_lock lock lookupcache max_connect migration "
    "minorversion mountaddr mounthost mountport mountproto mountvers namlen nconnect "
    "nfsvers noac noacl noalignwrite alignwrite nocto nofsc nointr nolock nomigration "
    "nordirplus noresvport nosharecache nosoftreval notrunkdiscovery port posix proto "
    "rdirplus rdma rdma6 resvport retrans retry rsize sec sharecache sloppy soft "
    "softerr softreval tcp tcp6 timeo trunkdiscovery udp udp6 v2 v3 v4 v4.0 v4.1 v4.2 "
    "vers write wsize xprtsec cert_serial privkey_serial addr"
)
# mount(8), options of every file system; x-… and X-… are for user space.
_MOUNT = (
    "async atime auto comment context defaults defcontext dev diratime dirsync exec "
    "fscontext group iversion lazytime loud mand _netdev noatime noauto nodev "
    "nodiratime noexec nofail noiversion nolazytime nomand norelatime nostrictatime "
    "nosuid nosymfollow nouser owner relatime remount ro rootcontext rw silent "
    "strictatime suid sync user users"
)
KNOWN = frozenset(f"{_NFS} {_MOUNT}".split())
# Of the clients of VAST and PowerScale (their documents above), not of the kernel's.
_VENDORS = (
    "localports localports_failover mdconnect noextend noidlexprt optlockflush "
    "pconnect remoteports remoteports_offset spread_reads spread_writes"
)
OF_VENDORS = frozenset(_VENDORS.split())


def needs_vendors_client(options: MountOptions) -> tuple[str, ...]:
    """Return the options that only a vendor's client takes."""
    names = [one.text for one in options.items if one.name in OF_VENDORS]
    if (options.number("nconnect") or 0) > MOST_NCONNECT:
        names.append(f"nconnect={options.number('nconnect')}")
    return tuple(names)


def contradiction(options: MountOptions, over_rdma: bool) -> Optional[Sentence]:
    """Return why a mount over RDMA can never have these options, and what works."""
    option = options.last("xprtsec")
    if option is None or not over_rdma or option.value not in ("tls", "mtls"):
        return None
    return Sentence(
        "option-not-over-rdma",
        f"{option.text} is for TCP only, so every mount over RDMA fails; write "
        "transport: tcp in this rule, or remove the option (over RDMA, sec=krb5 "
        "authenticates hosts, and sec=krb5p encrypts)",
    )


def remarks(
    options: MountOptions, kind: Optional[ServerKind] = None
) -> Iterator[Sentence]:
    """Yield what may be wrong with mount options for a server of ``kind``."""
    known = KNOWN | OF_VENDORS
    for option in options.items:
        name = option.name
        if not name or name[:2].lower() == "x-":
            continue
        if name not in known:
            near = did_you_mean(name, sorted(known))
            yield Sentence(
                "option-unknown",
                f"{name} is in neither nfs(5) nor mount(8), and the kernel's client "
                f"refuses the mount for it{near and '; '}{near}",
            )
    needed = needs_vendors_client(options)
    if needed and not (kind and kind.client_versions):
        yield Sentence(
            "option-of-vendor",
            f"{', '.join(needed)}: only the client driver of PowerScale or VAST takes "
            "this, and the kernel's own client refuses the mount; each host needs it",
        )
    if kind is not None and kind.largest is not None:
        for name in ("rsize", "wsize"):
            if (options.number(name) or 0) > kind.largest:
                yield Sentence(
                    "option-beyond-server",
                    f"{name}={options.number(name)} is more than {kind.title} takes "
                    f"well over RDMA: {kind.largest}",
                )
