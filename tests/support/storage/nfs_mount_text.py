# SPDX-License-Identifier: GPL-2.0-or-later
"""Read an option string as mount.nfs does, and show the mount as the kernel does.

The reading follows nfs-utils (utils/mount/network.c). The text has the fields and the
order of Linux 6.1, but not every field: a parser that passes here must also pass in
the lab. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

BARE_TRANSPORTS = ("tcp", "udp", "rdma")  # rdma6 etc. only after proto=
TRANSPORTS = (*BARE_TRANSPORTS, "tcp6", "udp6", "rdma6")
STANDARD_PORT = {"tcp": 2049, "udp": 2049, "rdma": 20049}

_SHOWN_FLAGS = ("soft", "softerr", "nolock", "nosharecache")  # in the kernel's order
_COUNTERS = {
    "tcp": "790 1 1 0 0 44 44 0 60 0 2 0 0",
    "udp": "790 1 44 44 0 60 0 2 0 0",
    "rdma": "0 0 1 0 0 44 44 0 80 0 37 64 4 8411456 8389512 0 0 64320 3 0 0 0 0 44 96"
    " 0 0",
}


def split_spec(spec: str) -> tuple[str, str]:
    """Split ``server:/path`` or ``[v6]:/path``."""
    found = re.fullmatch(r"(?:\[(?P<v6>[^]]+)]|(?P<name>[^:]+)):(?P<path>.*)", spec)
    assert found, f"mount.nfs would refuse {spec!r}"
    return found["v6"] or found["name"], found["path"]


def last_value(options: str, name: str) -> Optional[str]:
    """Return the value of the last ``name=value``, which wins."""
    values = [
        o.split("=", 1)[1] for o in options.split(",") if o.startswith(name + "=")
    ]
    return values[-1] if values else None


def named_transport(options: str) -> Optional[str]:
    """Return the transport of the last option that names one, as written."""
    named = None
    for option in options.split(","):
        if option in BARE_TRANSPORTS:
            named = option
        elif option.startswith("proto="):
            named = option[len("proto=") :]
    return named


def escape(text: str) -> str:
    """Write blanks, tabs, newlines and backslashes as the kernel's mangle() does."""
    return re.sub(r"[ \t\n\\]", lambda found: f"\\{ord(found[0]):03o}", text)


@dataclass(frozen=True)
class ShownMount:
    """A mount as /proc shows it; ``protocol`` with the 6 of IPv6, ``age_s`` in
    seconds.
    """

    spec: str
    file: str
    vfstype: str
    options: str
    protocol: str
    age_s: int = 3

    @property
    def connection(self) -> Optional[tuple[str, str]]:
        """The identity of the connection that NFS 4 mounts share."""
        version = last_value(self.options, "vers") or ""
        address = last_value(self.options, "addr") or ""
        return (version, address) if version.startswith("4") else None

    def mounts_line(self) -> str:
        """Return the line of /proc/self/mounts."""
        names = f"{escape(self.spec)} {escape(self.file)} {self.vfstype}"
        return f"{names} rw,relatime,{self.options} 0 0\n"

    def mountinfo_line(self, number: int) -> str:
        """Return the line of /proc/self/mountinfo."""
        return (
            f"{100 + number} 25 0:{50 + number} / {escape(self.file)} rw,relatime"
            f" shared:60 - {self.vfstype} {escape(self.spec)} rw,{self.options}\n"
        )

    def mountstats_block(self) -> str:
        """Return the block of /proc/self/mountstats."""
        transport = self.protocol.rstrip("6")  # mountstats writes no 6
        return (
            f"device {escape(self.spec)} mounted on {escape(self.file)}"
            f" with fstype {self.vfstype} statvers=1.1\n"
            f"\topts:\trw,{self.options}\n"
            f"\tage:\t{self.age_s}\n"
            "\tcaps:\tcaps=0x3ffdf,wtmult=512,dtsize=1048576,bsize=0,namlen=255\n"
            "\tsec:\tflavor=1,pseudoflavor=1\n"
            f"\tevents:\t{'0 ' * 27}\n"
            f"\tbytes:\t{'0 ' * 8}\n"
            "\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)\n"
            f"\txprt:\t{transport} {_COUNTERS[transport]}\n"
            "\tper-op statistics\n"
            "\t        NULL: 1 1 0 44 24 0 0 0 0\n"
            "\n"
        )


def shown(spec: str, file: str, options: str, protocol: str, addr: str) -> ShownMount:
    """Return what /proc shows for a mount of ``spec`` over ``protocol`` (with the 6 of
    IPv6) from the address ``addr``.
    """
    given = options.split(",")
    version = _version(options)
    texts = [f"vers={version}"]
    for size in ("rsize", "wsize"):
        texts.append(f"{size}={last_value(options, size) or 1048576}")
    texts.append("namlen=255")
    texts += [flag for flag in _SHOWN_FLAGS if flag in given]
    if not {"soft", "softerr"} & set(given):
        texts.append("hard")
    texts.append(f"proto={protocol}")
    port = last_value(options, "port")
    # The requested port, even if the connection belongs to another mount.
    if (named_transport(options) or "").startswith("rdma"):
        port = port or str(STANDARD_PORT["rdma"])
    if port and (version == "3" or port != str(STANDARD_PORT["tcp"])):
        texts.append(f"port={port}")
    texts.append(f"timeo={last_value(options, 'timeo') or 600}")
    texts.append(f"retrans={last_value(options, 'retrans') or 2}")
    texts.append("sec=sys")
    if version == "3":
        lock = "all" if "nolock" in given else "none"
        mountd = "tcp6" if protocol.endswith("6") else "tcp"
        texts += [f"mountaddr={addr}", "mountvers=3", f"mountproto={mountd}"]
        texts += [f"local_lock={lock}", f"addr={addr}"]
        return ShownMount(spec, file, "nfs", ",".join(texts), protocol)
    texts += ["clientaddr=192.0.2.1", "local_lock=none", f"addr={addr}"]
    return ShownMount(spec, file, "nfs4", ",".join(texts), protocol)


def _version(options: str) -> str:
    version = last_value(options, "nfsvers") or last_value(options, "vers") or "4.2"
    if version == "4":
        return f"4.{last_value(options, 'minorversion') or 2}"
    return version
