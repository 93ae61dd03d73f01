# SPDX-License-Identifier: GPL-2.0-or-later
"""Status of enablement, with advice.

What does not fit together on a host: packages, modes, running vdsmd, policy.

What ``ovirt-rdma-host status`` says: enabled, package, running, policy, apart.

The four are separate because each can be true without the others: a package may
be erased under a running launcher, vdsmd may not have been restarted yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.collect.parsers import vdsm_conf
from ovirt_rdma.host.enablement.state import (
    BY_LAUNCHER,
    BY_STOCK,
    EDITED,
    MODE_HOST,
    MODE_NFSMOUNT,
    MODE_VDSMD,
    OURS,
    EnablementState,
    VdsmdProcess,
    modes_on,
    read_state,
)
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import (
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    LAUNCHER,
    NFSMOUNT_FILE,
    POLICY_COPY,
    POLICY_JSON,
    under,
)
from ovirt_rdma.host.policy import store


@dataclass(frozen=True)
class Advice:
    """What does not fit together, in a sentence, and what to do."""

    sentence: str
    fix: str


def advice_on(
    state: EnablementState, loaded: bool, policy_fix: Optional[str], root: Path
) -> tuple[Advice, ...]:
    """Return what to say about ``state``.

    ``loaded`` says whether a policy is in force, that of the copy included;
    ``policy_fix`` is None unless the stored one cannot be used. vdsm.conf is read
    below ``root``.
    """
    return (
        *_half_done(state),
        *_nfsmount(state),
        *_launcher(state),
        *selinux_advice(state),
        *_policy(state, loaded, policy_fix),
        *_bypass(state, root),
    )


def _half_done(state: EnablementState) -> list[Advice]:
    marked = state.marker_mode == MODE_VDSMD
    if marked == (state.link == OURS):
        return []
    places = (ENABLED, DROPIN_LINK)
    there, missing = places if marked else reversed(places)
    return [
        Advice(
            f"{there} is there and {missing} is not: an enable or disable was "
            "interrupted",
            f"run it again: ovirt-rdma-host enable --mode {MODE_VDSMD}, or disable",
        )
    ]


def _nfsmount(state: EnablementState) -> list[Advice]:
    if MODE_NFSMOUNT not in modes_on(state):
        return []
    return [
        Advice(
            "Mode nfsmount of an earlier version is on: mount.nfs reads "
            f"{NFSMOUNT_FILE} as long as it is there, and policy load does not change "
            "it any more",
            "ovirt-rdma-host disable, then ovirt-rdma-host enable --restart-vdsmd, or "
            "give the export the engine's mount options (ovirt-rdma domain convert "
            "NAME --to rdma --engine-options); existing mounts stay",
        )
    ]


def _launcher(state: EnablementState) -> list[Advice]:
    advice = []
    link = state.link == OURS
    for present, path in (
        (state.launcher, LAUNCHER),
        (state.dropin, DROPIN_SOURCE),
    ):
        if MODE_VDSMD in modes_on(state) and not present:
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
        mode = "Not enabled" if state.marker_mode is None else "Not in mode vdsmd"
        advice.append(
            Advice(
                f"{mode}, but the running vdsmd came through the launcher",
                "systemctl restart vdsmd",
            )
        )
    return advice


def selinux_advice(state: EnablementState) -> list[Advice]:
    """Say where vdsmd is in another SELinux context than stock gives it, through a
    drop-in of ours that systemd has not read since.

    supervdsmd tells which: VDSM's two units start the same program first
    (static/usr/lib/systemd/system/{vdsmd,supervdsmd}.service.in), and SELinux decides
    by that. Of the domains that may signal stock vdsmd, sanlock is the one that may not
    signal a service of systemd's in general (selinux-policy, contrib/sanlock.te).
    """
    through_us = state.process is not None and state.process.program == BY_LAUNCHER
    if state.selinux is None or not (state.link == OURS or through_us):
        return []
    contexts = {daemon.name: daemon.context for daemon in state.selinux.daemons}
    ours, stock = contexts.get("vdsmd"), contexts.get("supervdsmd")
    if ours is None or stock is None or ours == stock:
        return []
    what_counts = (
        "when storage is lost sanlock may not end vdsmd, and the host is reset"
    )
    if not state.selinux.enforcing:
        what_counts = (
            f"nothing comes of it while SELinux is permissive, else {what_counts}"
        )
    return [
        Advice(
            f"vdsmd runs in the SELinux context {ours}, not as supervdsmd in {stock}: "
            f"{what_counts}",
            "systemctl daemon-reload, then systemctl restart vdsmd (running VMs and "
            "mounts stay); if that does not help, ovirt-rdma-host disable and restart "
            "vdsmd again",
        )
    ]


def _policy(
    state: EnablementState, loaded: bool, policy_fix: Optional[str]
) -> list[Advice]:
    if policy_fix is not None:
        effect = "a vdsmd that starts now mounts NFS as stock, also what requires RDMA"
        if loaded:
            effect = "its copy counts for NFS mounts"
        if {MODE_HOST, MODE_NFSMOUNT} & {*modes_on(state)}:
            effect = "VDSM's hooks change nothing"
        sentence = f"The stored policy cannot be used; {effect}"
        return [Advice(sentence, policy_fix)]
    if state.link == OURS and not loaded:
        sentence = "No policy is loaded, so NFS mounts are stock"
        return [Advice(sentence, "ovirt-rdma-host policy load")]
    if MODE_HOST in modes_on(state) and not loaded:
        sentence = (
            "No policy is loaded, so VDSM's hooks only refuse what InfiniBand cannot do"
        )
        return [Advice(sentence, "ovirt-rdma-host policy load")]
    return []


def _bypass(state: EnablementState, root: Path) -> list[Advice]:
    if state.link != OURS:
        return []
    problems: list[str] = []
    options = vdsm_conf.nfs_mount_options(root, problems)
    folders = vdsm_conf.FOLDERS
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
        raise Problem(
            "enablement-unreadable", f"{error.filename}: {error.strerror}"
        ) from error
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
    found = store.in_force(path)
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
        None if problem else store.copy_problem(path),
    )


def _copy(policy: LoadedPolicy) -> list[Advice]:
    if policy.copy_problem is None:
        return []
    sentence = (
        f"{POLICY_COPY}, which counts where {POLICY_JSON} is broken, "
        f"{policy.copy_problem}"
    )
    return [Advice(sentence, "ovirt-rdma-host policy load")]
