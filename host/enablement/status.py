# SPDX-License-Identifier: GPL-2.0-or-later
"""Report the status of enablement, with advice on what is inconsistent.

``ovirt-rdma-host status`` shows the enabled mode, the package, the running vdsmd and
the policy separately, because each can differ from the others: the package may have
been removed while the launcher is running, or vdsmd not restarted yet.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.collect import vdsm_conf
from ovirt_rdma.host.enablement.state import (
    BY_LAUNCHER,
    BY_STOCK,
    MODE_HOST,
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
    POLICY_COPY,
    POLICY_JSON,
    POLICY_YAML,
    STOCK_VDSMD,
    under,
)
from ovirt_rdma.host.policy import store

_LOAD = "ovirt-rdma-host policy load"


@dataclass(frozen=True)
class Advice:
    """An inconsistency, as a sentence, and its fix."""

    sentence: str
    fix: str


def advice_on(
    state: EnablementState, loaded: bool, policy_fix: Optional[str], root: Path
) -> tuple[Advice, ...]:
    """Return the advice on ``state``.

    ``loaded``: a policy is in force, if only from the copy. ``policy_fix`` is None
    unless the stored policy cannot be used. vdsm.conf is read below ``root``.
    """
    return (
        *_half_done(state),
        *(vdsm_advice(state) if MODE_VDSMD in modes_on(state) else ()),
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
    present, missing = places if marked else reversed(places)
    return [
        Advice(
            f"{present} exists and {missing} does not: an enable or disable was "
            "interrupted",
            f"run it again: ovirt-rdma-host enable --mode {MODE_VDSMD}, or disable",
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
                f"{names} replaces vdsmd's ExecStart too, and only one is used",
                "remove ExecStart from it, or run: ovirt-rdma-host disable",
            )
        )
    program = state.process.program if state.process else None
    because = state.process.because if state.process else None
    if link and program == BY_STOCK and because:
        advice.append(
            Advice(
                f"Enabled, but the launcher started stock vdsmd: {because}",
                "solve that, then: systemctl restart vdsmd",
            )
        )
    elif link and program == BY_STOCK:
        advice.append(
            Advice(
                "Enabled, but the running vdsmd is stock",
                "systemctl restart vdsmd; if it stays stock, the launcher has logged "
                "why: journalctl -t vdsmd",
            )
        )
    if not link and program == BY_LAUNCHER:
        mode = "Not enabled" if state.marker_mode is None else "Not in mode vdsmd"
        advice.append(
            Advice(
                f"{mode}, but the running vdsmd was started by the launcher",
                "systemctl restart vdsmd",
            )
        )
    return advice


def vdsm_advice(state: EnablementState) -> list[Advice]:
    """Return advice if VDSM is missing, or too old to be started by the launcher."""
    if state.stock:
        return []
    return [
        Advice(
            f"There is no {STOCK_VDSMD}: VDSM is not installed, or is older than "
            "4.50.0.13, and the launcher cannot start it",
            "install or update the package vdsm, or run: ovirt-rdma-host disable",
        )
    ]


def selinux_advice(state: EnablementState) -> list[Advice]:
    """Return advice if vdsmd is in another SELinux context than stock vdsmd, because
    systemd has not read the present drop-in yet.

    The context of supervdsmd is the reference: both units start the same program first
    (static/usr/lib/systemd/system/{vdsmd,supervdsmd}.service.in), which decides the
    context. Of the domains that may signal stock vdsmd, only sanlock may not signal
    services of systemd in general (selinux-policy, contrib/sanlock.te).
    """
    launched = state.process is not None and state.process.program == BY_LAUNCHER
    if state.selinux is None or not (state.link == OURS or launched):
        return []
    contexts = {daemon.name: daemon.context for daemon in state.selinux.daemons}
    ours, stock = contexts.get("vdsmd"), contexts.get("supervdsmd")
    if ours is None or stock is None or ours == stock:
        return []
    effect = (
        "if storage is lost, sanlock is not allowed to stop vdsmd, and resets the host"
    )
    if not state.selinux.enforcing:
        effect = (
            "this has no effect while SELinux is permissive; in enforcing mode, "
            f"{effect}"
        )
    return [
        Advice(
            f"vdsmd runs in the SELinux context {ours}, not as supervdsmd in {stock}: "
            f"{effect}",
            "systemctl daemon-reload, then systemctl restart vdsmd (running VMs and "
            "mounts stay); if that does not help, ovirt-rdma-host disable and restart "
            "vdsmd again",
        )
    ]


def _policy(
    state: EnablementState, loaded: bool, policy_fix: Optional[str]
) -> list[Advice]:
    if policy_fix is not None:
        effect = (
            "a vdsmd that starts now mounts NFS as stock, even where the policy "
            "requires RDMA"
        )
        if loaded:
            effect = "its copy is used for NFS mounts"
        if MODE_HOST in modes_on(state):
            effect = "VDSM's hooks change nothing"
        sentence = f"The stored policy cannot be used; {effect}"
        return [Advice(sentence, policy_fix)]
    if state.link == OURS and not loaded:
        sentence = "No policy is loaded, so NFS mounts are stock"
        return [Advice(sentence, _LOAD)]
    if MODE_HOST in modes_on(state) and not loaded:
        sentence = (
            "No policy is loaded, so VDSM's hooks only refuse what InfiniBand cannot do"
        )
        return [Advice(sentence, _LOAD)]
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
                f"vdsm.conf sets the deprecated {vdsm_conf.OPTION} ({options}): if the "
                "engine sends no NFS version, timeout or retransmissions, VDSM mounts "
                "with these options only, and ignores the policy",
                f"remove it (grep -r {vdsm_conf.OPTION} {folders}), restart vdsmd, and "
                "set the NFS version in the storage connection",
            )
        )
    return advice


@dataclass(frozen=True)
class Enabled:
    """The enabled mode and its files.

    ``marker`` and ``link`` are ``absent``, ``ours`` or ``foreign``. ``mode`` is None
    unless the marker and the other files of the mode exist.
    """

    mode: Optional[str]
    marker: str
    link: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Package:
    """The files of the package that exist."""

    launcher: bool
    dropin: bool


@dataclass(frozen=True)
class LoadedPolicy:
    """The policy in force.

    ``problem`` and ``fix`` say why the stored policy cannot be used; then ``loaded``
    says if its copy is in force. ``copy_problem`` says why the copy could not replace
    the file.
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
    """The status of a host, with advice on inconsistencies."""

    enabled: Enabled
    package: Package
    running: Optional[VdsmdProcess]
    policy: LoadedPolicy
    advice: tuple[Advice, ...]


def read_status(root: Union[str, Path] = "/") -> Status:
    """Read the status of the host below ``root``. Changes nothing.

    Raises Problem if a folder of the system cannot be read.
    """
    root = Path(root)
    try:
        state = read_state(root)
    except OSError as error:
        raise Problem(
            "enablement-unreadable", f"{error.filename}: {error.strerror}"
        ) from error
    policy = _loaded_policy(root)
    return Status(
        Enabled(_mode(state), state.marker, state.link, state.overrides),
        Package(state.launcher, state.dropin),
        state.process,
        policy,
        (
            *_copy(policy, root),
            *advice_on(state, policy.loaded, policy.problem and policy.fix, root),
        ),
    )


def _mode(state: EnablementState) -> Optional[str]:
    if state.marker_mode == MODE_VDSMD and state.link == OURS:
        return MODE_VDSMD
    return MODE_HOST if state.marker_mode == MODE_HOST else None


def _loaded_policy(root: Path) -> LoadedPolicy:
    path = under(root, POLICY_JSON)
    in_force = store.in_force(path)
    stored, problem = in_force.stored, in_force.problem
    sentence, fix = (str(problem), problem.fix) if problem else (None, "")
    if stored is None:
        return LoadedPolicy(False, problem=sentence, fix=fix)
    return LoadedPolicy(
        True,
        stored.digest,
        stored.source,
        stored.loaded_at,
        len(stored.policy.nfs.rules),
        sentence,
        fix.replace(_LOAD, _load_from(stored.source, root)),
        None if problem else store.copy_problem(path),
    )


def _load_from(source: Optional[str], root: Path) -> str:
    """Return the command that loads the policy of ``source`` again."""
    if source in (None, str(under(root, POLICY_YAML))):
        return _LOAD
    return f"{_LOAD} {shlex.quote(source)}"


def _copy(policy: LoadedPolicy, root: Path) -> list[Advice]:
    if policy.copy_problem is None:
        return []
    sentence = (
        f"{POLICY_COPY}, which replaces a damaged {POLICY_JSON}, {policy.copy_problem}"
    )
    return [Advice(sentence, _load_from(policy.source, root))]
