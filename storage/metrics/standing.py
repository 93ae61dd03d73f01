# SPDX-License-Identifier: GPL-2.0-or-later
"""Read what seldom changes: the verdict on each mount, and the policy.

To judge mounts takes longer than to read all counters, so the unit keeps the result in
/run, and judges again when an input has changed: the mounts, the policy, or vdsmd's
marks of degraded mounts.
"""

from __future__ import annotations

import os
import zlib
from calendar import timegm
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from time import strptime
from typing import Any, Optional

from ovirt_rdma.host import __version__
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.mounts import MOUNTINFO
from ovirt_rdma.host.facts.statistics import Statistics
from ovirt_rdma.host.paths import DEGRADED_JSON, POLICY_COPY, POLICY_JSON, under
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import in_force
from ovirt_rdma.host.system.tree import FileTree
from ovirt_rdma.storage.mounts import DEGRADED, UNPROVEN, review_all

# Increased when the form of the kept values changes.
_FORM = 1
# Ages are whole seconds, and uptime is read a moment after them (storage/mounts).
_SLACK_S = 5.0
_INPUTS = (POLICY_JSON, POLICY_COPY, DEGRADED_JSON)


@dataclass(frozen=True)
class Standing:
    """Verdicts and policy, as JSON values.

    mounts: of each NFS mount ``export``, ``mountpoint``, ``version``, ``address``,
        ``transport`` (proven, or ``unproven``), ``wanted`` and ``rule`` (None: no rule
        names it), ``verdict``, ``degraded_since`` (in seconds since 1970, or None)
    digest: of the policy in force, None if there is none
    usable: whether the stored policy itself can be used; None if none was loaded
    loaded_at: when it was loaded, in seconds since 1970
    folder: where the policy wants the metrics; None: nowhere
    problems: sentences about what could not be read
    """

    mounts: Sequence[dict[str, Any]]
    digest: Optional[str] = None
    usable: Optional[bool] = None
    loaded_at: Optional[float] = None
    folder: Optional[str] = None
    problems: Sequence[str] = ()


def judge(root: str) -> Standing:
    """Judge the mounts of the host below ``root``, without asking any tool, and read
    its policy. Never raises.
    """
    problems: list[str] = []
    loaded = in_force(under(root, POLICY_JSON))
    if loaded.problem is not None:
        problems.append(f"{loaded.problem.one_line}; {loaded.consequence}")
    policy = loaded.stored.policy if loaded.stored else Policy()
    facts = HostReader(root).mount_facts(problems, cm_ids=False)
    mounts = []
    # Whom a mount shares its connection with is no metric.
    for one in review_all(facts, policy, sharing=False):
        since = None
        if one.verdict == DEGRADED and one.since is not None:
            since = timegm(strptime(one.since, "%Y-%m-%dT%H:%M:%SZ"))
        mounts.append(
            {
                "export": one.mount.source,
                "mountpoint": one.mount.mountpoint,
                "version": one.mount.version,
                "address": one.mount.address,
                "transport": one.proof.transport or UNPROVEN,
                "wanted": one.match and one.match.rule.transport,
                "rule": one.match and one.match.rule.title,
                "verdict": one.verdict.replace(" ", "_"),
                "degraded_since": since,
            }
        )
    if loaded.stored is None:
        unusable = None if loaded.problem is None else False
        return Standing(mounts, usable=unusable, problems=problems)
    return Standing(
        mounts,
        digest=loaded.stored.digest,
        usable=loaded.problem is None,
        loaded_at=datetime.fromisoformat(loaded.stored.loaded_at).timestamp(),
        folder=policy.host.metrics_folder,
        problems=problems,
    )


def inputs(tree: FileTree, statistics: Statistics) -> dict[str, Any]:
    """Return values that change when the result of :func:`judge` does, as JSON."""
    return {
        "form": _FORM,
        "version": __version__,
        "files": [_signature(tree.below(path)) for path in _INPUTS],
        "mountinfo": zlib.crc32(tree.data(MOUNTINFO) or b""),
        "protocols": [
            [mount.mountpoint, *(one.protocol for one in mount.transports)]
            for mount in statistics.mounts
        ],
        # The kernel uses the ids of mounts again: the time tells two mounts apart.
        "made": [
            None if mount.age_s is None else statistics.taken_s - mount.age_s
            for mount in statistics.mounts
        ],
    }


def is_same(kept: object, now: dict[str, Any]) -> bool:
    """Whether ``kept``, from a file, are the inputs ``now``, but for the time that
    passed between two reads.
    """
    if not isinstance(kept, dict) or kept.keys() != now.keys():
        return False
    if any(kept[key] != now[key] for key in now if key != "made"):
        return False
    times = kept["made"]
    if not isinstance(times, list) or len(times) != len(now["made"]):
        return False
    return all(
        before == made
        or (
            isinstance(before, (int, float))
            and made is not None
            and abs(before - made) <= _SLACK_S
        )
        for before, made in zip(times, now["made"])
    )


def _signature(path: str) -> Optional[list[int]]:
    try:
        # vdsmd's file may be a link to anything: no file system of others is asked.
        status = os.lstat(path)
    except OSError:
        return None
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return [*times, status.st_size, status.st_ino]
