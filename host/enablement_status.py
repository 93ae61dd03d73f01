# SPDX-License-Identifier: GPL-2.0-or-later
"""What ``ovirt-rdma-host status`` says: enabled, package, running, policy, apart.

The four are separate because each can be true without the others: a package may
be erased under a running launcher, vdsmd may not have been restarted yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host import policy_store, vdsm_conf
from ovirt_rdma.host.enablement_state import (
    BY_LAUNCHER,
    BY_STOCK,
    MODE_VDSMD,
    OURS,
    EnablementState,
    VdsmdProcess,
    read_state,
)
from ovirt_rdma.host.paths import (
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    LAUNCHER,
    POLICY_JSON,
    under,
)
from ovirt_rdma.host.problem import Problem

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Enabled:
    """``marker`` and ``link`` are ``absent``, ``ours`` or ``foreign``; ``mode`` is
    None unless both are ours.
    """

    mode: Optional[str]
    marker: str
    link: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Package:
    """Which of the package's files are there."""

    launcher: bool
    dropin: bool


@dataclass(frozen=True)
class LoadedPolicy:
    """The stored policy; ``problem`` and ``fix`` say why it cannot be used."""

    loaded: bool
    digest: Optional[str] = None
    source: Optional[str] = None
    loaded_at: Optional[str] = None
    rules: int = 0
    problem: Optional[str] = None
    fix: str = ""


@dataclass(frozen=True)
class Advice:
    """What does not fit together, in a sentence, and what to do."""

    sentence: str
    fix: str


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
    try:
        state = read_state(Path(root))
    except OSError as error:
        raise Problem(f"{error.filename}: {error.strerror}") from error
    policy = _loaded_policy(under(root, POLICY_JSON))
    enabled = state.marker == OURS and state.link == OURS
    return Status(
        Enabled(
            MODE_VDSMD if enabled else None, state.marker, state.link, state.overrides
        ),
        Package(state.launcher, state.dropin),
        state.process,
        policy,
        (*_advice(state, policy), *_bypass_advice(state, Path(root))),
    )


def _loaded_policy(path: Path) -> LoadedPolicy:
    try:
        stored = policy_store.read(path)
    except policy_store.StoredPolicyProblem as problem:
        return LoadedPolicy(False, problem=str(problem), fix=problem.fix)
    if stored is None:
        return LoadedPolicy(False)
    return LoadedPolicy(
        True,
        stored.digest,
        stored.source,
        stored.loaded_at,
        len(stored.policy.nfs.rules),
    )


def _advice(state: EnablementState, policy: LoadedPolicy) -> list[Advice]:
    advice = []
    marker, link = state.marker == OURS, state.link == OURS
    if marker != link:
        there, missing = (ENABLED, DROPIN_LINK) if marker else (DROPIN_LINK, ENABLED)
        advice.append(
            Advice(
                f"{there} is there and {missing} is not: an enable or disable was "
                "interrupted",
                "run it again: ovirt-rdma-host enable, or disable",
            )
        )
    for present, path in (
        (state.launcher, LAUNCHER),
        (state.dropin, DROPIN_SOURCE),
    ):
        if (marker or link) and not present:
            advice.append(Advice(f"{path} is missing", "install ovirt-rdma-host again"))
    if link and state.overrides:
        names = ", ".join(state.overrides)
        advice.append(
            Advice(
                f"{names} replaces vdsmd's ExecStart too, and only one can win",
                "remove ExecStart from it, or run: ovirt-rdma-host disable",
            )
        )
    program = state.process.program if state.process else None
    if link and program == BY_STOCK:
        advice.append(
            Advice(
                "Enabled, but the running vdsmd is stock",
                "systemctl restart vdsmd; if it stays stock, the launcher has said "
                "why: journalctl -t vdsmd",
            )
        )
    if not link and program == BY_LAUNCHER:
        advice.append(
            Advice(
                "Not enabled, but the running vdsmd came through the launcher",
                "systemctl restart vdsmd",
            )
        )
    if policy.problem:
        advice.append(
            Advice(
                "The stored policy cannot be used; a vdsmd that starts now mounts "
                "NFS as stock",
                policy.fix,
            )
        )
    elif link and not policy.loaded:
        advice.append(
            Advice(
                "No policy is loaded, so NFS mounts are stock",
                "ovirt-rdma-host policy load",
            )
        )
    return advice


def _bypass_advice(state: EnablementState, root: Path) -> list[Advice]:
    if state.link != OURS:
        return []
    problems: list[str] = []
    options = vdsm_conf.nfs_mount_options(root, problems)
    folders = "/etc/vdsm /run/vdsm /usr/lib/vdsm"
    advice = [Advice(problem, f"correct it below {folders}") for problem in problems]
    if options is not None and vdsm_conf.replaces_nfs_connections(options):
        advice.append(
            Advice(
                f"vdsm.conf sets the deprecated {vdsm_conf.OPTION} ({options}): where "
                "the engine sends no NFS version, timeout or retransmissions, VDSM "
                "mounts with these options alone, and no rule of the policy counts",
                f"remove it (grep -r {vdsm_conf.OPTION} {folders}), restart vdsmd, and "
                "set the NFS version in the storage connection",
            )
        )
    return advice
