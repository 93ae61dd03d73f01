# SPDX-License-Identifier: GPL-2.0-or-later
"""NFS mounts: mountinfo joined with mountstats by mount point. Pure."""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.facts import NfsMount
from ovirt_rdma.host.mountinfo import normalised_source, parse_mountinfo, visible
from ovirt_rdma.host.mountstats import parse_ages, parse_mountstats

NFS_TYPES = ("nfs", "nfs4")


def nfs_mounts(
    mountinfo: bytes, mountstats: bytes, problems: list[str]
) -> tuple[NfsMount, ...]:
    """Return the NFS mounts that are seen, in the kernel's order.

    Takes the two files as read; lines that cannot be understood get a sentence in
    ``problems`` and do not hide the others.
    """
    entries, odd_mounts = parse_mountinfo(mountinfo)
    transports, odd_stats = parse_mountstats(mountstats)
    ages = parse_ages(mountstats)
    problems += [*odd_mounts, *odd_stats]
    mounts = []
    for entry in visible(entries):
        if entry.fstype not in NFS_TYPES:
            continue
        values = dict(
            option.split("=", 1) for option in entry.options.split(",") if "=" in option
        )
        mounts.append(
            NfsMount(
                source=normalised_source(entry.source),
                mountpoint=entry.mountpoint,
                fstype=entry.fstype,
                options=entry.options,
                version=values.get("vers"),
                protocol=values.get("proto"),
                port=_port(values.get("port")),
                address=values.get("addr"),
                age_s=ages.get(entry.mountpoint),
                transports=transports.get(entry.mountpoint, ()),
            )
        )
    return tuple(mounts)


def _port(text: Optional[str]) -> Optional[int]:
    if text is None or not text.isdecimal() or len(text) > 5:
        return None
    return int(text)
