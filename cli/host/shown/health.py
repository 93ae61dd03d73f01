# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the health of NFS mounts: a table, and why, and what to do."""

from __future__ import annotations

from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.storage.health.state import MountHealth

TONES = {
    "ok": "good",
    "slow": "doubtful",
    "stalled": "bad",
    "dead": "bad",
    "unknown": "doubtful",
}


def print_health(mounts: tuple[MountHealth, ...], output: Output) -> None:
    """Print a table, one sentence in all, and for each mount that is not ok why, and
    what to do.
    """
    if not mounts:
        output.line("This host has no NFS mount.")
        return
    output.table(
        ("HEALTH", "EXPORT", "TRANSPORT", "NFS", "ANSWER", "CAUSE"),
        [
            (
                mount.state,
                mount.export,
                mount.transport or "unproven",
                mount.version or "-",
                "-"
                if mount.answered_s is None
                else f"{mount.answered_s * 1000:.1f} ms",
                _cause(mount),
            )
            for mount in mounts
        ],
        TONES,
    )
    bad = [mount for mount in mounts if mount.state != "ok"]
    if bad:
        verb = "is" if len(bad) == 1 else "are"
        output.line(f"{len(bad)} of {count(len(mounts), 'mount')} {verb} not ok.")
    elif len(mounts) == 1:
        output.line("The mount is ok.")
    else:
        output.line(f"All {len(mounts)} mounts are ok.")
    said: set[str] = set()
    for mount in bad:
        # Mounts of one server fail together: said once.
        also = f"{mount.reason} {mount.sentence} {mount.fix}"
        if also in said:
            continue
        said.add(also)
        output.text(f"{_exports(mount)} {mount.state}: {mount.sentence}.")
        output.fix(mount.fix)
        for seen in mount.evidence:
            output.text(seen, "  ", "- ")


def _exports(mount: MountHealth) -> str:
    if not mount.shared:
        return f"{mount.export} is"
    return f"{mount.export} and {', '.join(mount.shared)} (the same server) are"


def _cause(mount: MountHealth) -> str:
    if mount.cause is None:
        return "-"
    return mount.cause if mount.certain else f"{mount.cause}, probably"
