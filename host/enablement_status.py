# SPDX-License-Identifier: GPL-2.0-or-later
"""What ``ovirt-rdma-host status`` says: enabled, package, running, policy, apart.

The four are separate because each can be true without the others: a package may
be erased under a running launcher, vdsmd may not have been restarted yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host import policy_store
from ovirt_rdma.host.enablement_advice import Advice, advice_on
from ovirt_rdma.host.enablement_state import (
    EDITED,
    MODE_HOST,
    MODE_NFSMOUNT,
    MODE_VDSMD,
    OURS,
    EnablementState,
    VdsmdProcess,
    read_state,
)
from ovirt_rdma.host.paths import POLICY_COPY, POLICY_JSON, under
from ovirt_rdma.host.problem import Problem

SCHEMA_VERSION = 2  # 1 had "nfsmount", for the mode of that name


@dataclass(frozen=True)
class Enabled:
    """``marker`` and ``link`` are ``absent``, ``ours`` or ``foreign``; ``conf``, the
    file of mode nfsmount of earlier versions, may be ``edited`` too. ``mode`` is None
    unless the marker and what the mode needs are both there.
    """

    mode: Optional[str]
    marker: str
    link: str
    conf: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Package:
    """Which of the package's files are there."""

    launcher: bool
    dropin: bool


@dataclass(frozen=True)
class LoadedPolicy:
    """The policy in force. ``problem`` and ``fix`` say why the stored one cannot be
    used; ``loaded`` tells then whether its copy is in force, or none. ``copy_problem``
    says why the copy could not take its place.
    """

    loaded: bool
    digest: Optional[str] = None
    source: Optional[str] = None
    loaded_at: Optional[str] = None
    rules: int = 0
    problem: Optional[str] = None
    fix: str = ""
    copy_problem: Optional[str] = None


@dataclass(frozen=True)
class Status:
    """The whole answer; ``advice`` is about what does not fit together."""

    enabled: Enabled
    package: Package
    running: Optional[VdsmdProcess]
    policy: LoadedPolicy
    advice: tuple[Advice, ...]
    schema_version: int = SCHEMA_VERSION


def read_status(root: Union[str, Path] = "/") -> Status:
    """Read the status of the host below ``root``; changes nothing.

    Raises Problem where a folder of the system cannot be read.
    """
    root = Path(root)
    try:
        state = read_state(root)
    except OSError as error:
        raise Problem(f"{error.filename}: {error.strerror}") from error
    policy = _loaded_policy(under(root, POLICY_JSON))
    return Status(
        Enabled(_mode(state), state.marker, state.link, state.conf, state.overrides),
        Package(state.launcher, state.dropin),
        state.process,
        policy,
        (
            *_copy(policy),
            *advice_on(state, policy.loaded, policy.problem and policy.fix, root),
        ),
    )


def _mode(state: EnablementState) -> Optional[str]:
    if state.marker_mode == MODE_VDSMD and state.link == OURS:
        return MODE_VDSMD
    if state.marker_mode == MODE_NFSMOUNT and state.conf in {OURS, EDITED}:
        return MODE_NFSMOUNT
    return MODE_HOST if state.marker_mode == MODE_HOST else None


def _loaded_policy(path: Path) -> LoadedPolicy:
    found = policy_store.in_force(path)
    stored, problem = found.stored, found.problem
    words, fix = (str(problem), problem.fix) if problem else (None, "")
    if stored is None:
        return LoadedPolicy(False, problem=words, fix=fix)
    return LoadedPolicy(
        True,
        stored.digest,
        stored.source,
        stored.loaded_at,
        len(stored.policy.nfs.rules),
        words,
        fix,
        None if problem else policy_store.copy_problem(path),
    )


def _copy(policy: LoadedPolicy) -> list[Advice]:
    if policy.copy_problem is None:
        return []
    sentence = (
        f"{POLICY_COPY}, which counts where {POLICY_JSON} is broken, "
        f"{policy.copy_problem}"
    )
    return [Advice(sentence, "ovirt-rdma-host policy load")]
