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
from ovirt_rdma.host.commands import Runner, run_command
from ovirt_rdma.host.enablement_advice import Advice, advice_on
from ovirt_rdma.host.enablement_state import (
    MODE_HOST,
    MODE_NFSMOUNT,
    MODE_VDSMD,
    EnablementState,
    VdsmdProcess,
    read_state,
)
from ovirt_rdma.host.nfsmount_conf_file import EDITED, OURS
from ovirt_rdma.host.nfsmount_mode import review, stored_policy
from ovirt_rdma.host.paths import NFSMOUNT_FILE, POLICY_COPY, POLICY_JSON, under
from ovirt_rdma.host.problem import Problem

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Enabled:
    """``marker`` and ``link`` are ``absent``, ``ours`` or ``foreign``; ``conf``, the
    file of mode nfsmount, may be ``edited`` too. ``mode`` is None unless the marker
    and what the mode needs are both there.
    """

    mode: Optional[str]
    marker: str
    link: str
    conf: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Nfsmount:
    """The file of mode nfsmount: how many exports it names, and whether mount.nfs
    reads in it what the policy in force says.
    """

    file: str
    exports: int
    as_policy: bool


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
    nfsmount: Optional[Nfsmount]
    advice: tuple[Advice, ...]
    schema_version: int = SCHEMA_VERSION


def read_status(root: Union[str, Path] = "/", run: Optional[Runner] = None) -> Status:
    """Read the status of the host below ``root``; changes nothing.

    nfsconf is run with ``run``; without it, only where ``root`` is ``/``. Raises
    Problem where a folder of the system cannot be read.
    """
    root = Path(root)
    try:
        state = read_state(root)
    except OSError as error:
        raise Problem(f"{error.filename}: {error.strerror}") from error
    if run is None and root == Path("/"):
        run = run_command
    policy = _loaded_policy(under(root, POLICY_JSON))
    nfsmount, findings = _nfsmount(state, policy, root, run)
    return Status(
        Enabled(
            _mode(state), state.marker, state.link, state.conf.state, state.overrides
        ),
        Package(state.launcher, state.dropin),
        state.process,
        policy,
        nfsmount,
        (
            *findings,
            *_copy(policy),
            *advice_on(state, policy.loaded, policy.problem and policy.fix, root),
        ),
    )


def _mode(state: EnablementState) -> Optional[str]:
    if state.marker_mode == MODE_VDSMD and state.link == OURS:
        return MODE_VDSMD
    if state.marker_mode == MODE_NFSMOUNT and state.conf.state in {OURS, EDITED}:
        return MODE_NFSMOUNT
    return MODE_HOST if state.marker_mode == MODE_HOST else None


def _nfsmount(
    state: EnablementState, policy: LoadedPolicy, root: Path, run: Optional[Runner]
) -> tuple[Optional[Nfsmount], list[Advice]]:
    if state.conf.state == EDITED:
        sentence = f"{NFSMOUNT_FILE} was edited; mount.nfs reads it as it is now"
        fix = (
            "move what you need of it into the policy or into a file of your own, "
            "remove it, then: ovirt-rdma-host enable --mode nfsmount"
        )
        return None, [Advice(sentence, fix)]
    if state.conf.state != OURS or policy.problem:
        return None, []
    found = review(state.conf.text, stored_policy(root), root, run)
    advice = [Advice(sentence, fix) for sentence, fix in found.findings]
    return Nfsmount(NFSMOUNT_FILE, found.exports, not advice), advice


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
