# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the versions of a host: what is installed, what vdsmd and the daemon have
loaded, the policy in force, VDSM and the kernel; and say what has to be restarted.

A process keeps what it has loaded when the package is updated. vdsmd's version is what
the launcher noted when it started it, the daemon's is in its state. What cannot be read
is unknown, and never the installed version.

``status``, the metrics and, from ``status``, the engine's side show these.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.daemon.loop import read_daemon
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.model import UNKNOWN
from ovirt_rdma.host.paths import DAEMON_UNIT, VDSMD_UNIT
from ovirt_rdma.host.policy.store import StoredPolicy
from ovirt_rdma.host.services.enablement import (
    BY_LAUNCHER,
    BY_STOCK,
    MODE_VDSMD,
    Advice,
    VdsmdProcess,
    installed_version,
    marker_mode,
    vdsmd_process,
)
from ovirt_rdma.host.system.tree import state_and_start


@dataclass(frozen=True)
class Loaded:
    """A running service, and what it has loaded.

    pid: its process, None if unknown
    since: its start, in seconds since 1970, None if unknown
    version: of the add-on in it, BY_STOCK for stock vdsmd, None if it is unknown
    restart_needed: whether a start now would load something else; None if unknown
    """

    pid: Optional[int]
    since: Optional[int]
    version: Optional[str]
    restart_needed: Optional[bool]

    def __str__(self) -> str:
        version = self.version or f"{UNKNOWN} version"
        return f"{version}, restart needed" if self.restart_needed else version


@dataclass(frozen=True)
class Versions:
    """The versions of a host. None: unknown; of a service: it is not running.

    add_on: of the installed package
    policy, policy_loaded_at: the digest of the policy in force, and when it was loaded
        (ISO 8601); None too if there is none
    vdsm: of VDSM's package; None too if it is not installed
    """

    add_on: Optional[str]
    python: str
    policy: Optional[str]
    policy_loaded_at: Optional[str]
    vdsmd: Optional[Loaded]
    daemon: Optional[Loaded]
    vdsm: Optional[str]
    kernel: Optional[str]

    @property
    def services(self) -> tuple[tuple[str, Optional[Loaded]], ...]:
        """The units with what runs of them."""
        return ((VDSMD_UNIT, self.vdsmd), (DAEMON_UNIT, self.daemon))


def read_versions(
    root: Union[str, Path] = "/",
    problems: Optional[list[str]] = None,
    policy: Optional[StoredPolicy] = None,
    *,
    with_vdsm: bool = True,
) -> Versions:
    """Return the versions of the host below ``root``, with the ``policy`` in force;
    ``problems`` gets sentences about what cannot be read. That of VDSM, which only rpm
    knows, is None if not ``with_vdsm``: the metrics are written every 15 s.
    """
    root, problems = Path(root), [] if problems is None else problems
    reader, installed = HostReader(root), installed_version()
    kernel = reader.kernel_release()
    if installed is None:
        problems.append("the version of the installed package cannot be read")
    process = vdsmd_process(root)
    return Versions(
        add_on=installed,
        python=".".join(map(str, sys.version_info[:3])),
        policy=policy.digest if policy else None,
        policy_loaded_at=policy.loaded_at if policy else None,
        vdsmd=_vdsmd(root, process, installed) if process else None,
        daemon=_daemon(root, installed, problems),
        vdsm=reader.vdsm_version(problems) if with_vdsm else None,
        kernel=None if kernel == UNKNOWN else kernel,
    )


def _vdsmd(root: Path, process: VdsmdProcess, installed: Optional[str]) -> Loaded:
    ours = process.program == BY_LAUNCHER
    version = process.version if ours else BY_STOCK
    restart: Optional[bool] = ours != (marker_mode(root) == MODE_VDSMD)
    if ours and not restart:
        restart = _differs(version, installed)
    elif restart and process.because:
        # The launcher would start stock vdsmd again, unless that was solved.
        restart = None
    return Loaded(process.pid, _since(root, process.pid), version, restart)


def _daemon(
    root: Path, installed: Optional[str], problems: list[str]
) -> Optional[Loaded]:
    try:
        state = read_daemon(root)
    except Problem as problem:
        problems.append(problem.one_line)
        return Loaded(None, None, None, None)
    if state is None:
        return None
    restart = _differs(state.version, installed)
    return Loaded(state.pid, _since(root, state.pid), state.version, restart)


def _differs(loaded: Optional[str], installed: Optional[str]) -> Optional[bool]:
    return None if loaded is None or installed is None else loaded != installed


def _since(root: Path, pid: int) -> Optional[int]:
    booted = HostReader(root).booted_at()
    try:
        ticks = state_and_start(pid, str(root).rstrip("/"))[1]
    except (OSError, ValueError):
        return None
    return booted and booted + ticks // os.sysconf("SC_CLK_TCK")


def version_advice(versions: Versions) -> Iterator[Advice]:
    """Yield what has to be restarted because it has loaded another version than is
    installed, and what is unknown. Pure.
    """
    for unit, loaded in versions.services:
        # The state of a daemon without a process cannot be read, as `problems` says.
        if loaded is None or loaded.pid is None or loaded.version == BY_STOCK:
            continue
        differs = _differs(loaded.version, versions.add_on)
        if differs is None:
            yield unknown_version(unit)
        elif differs:
            yield Advice(
                f"{unit} still runs version {loaded.version} of the add-on, and "
                f"{versions.add_on} is installed",
                _restart_fix(unit),
            )


def unknown_version(unit: str) -> Advice:
    """Return the advice for a service that may have loaded another version."""
    return Advice(
        f"Whether {unit} has loaded the installed version of the add-on is unknown",
        _restart_fix(unit),
    )


def _restart_fix(unit: str) -> str:
    """Return the command that restarts ``unit``, with what stays."""
    stays = " (running VMs and mounts stay)" if unit == VDSMD_UNIT else ""
    return f"systemctl restart {unit.removesuffix('.service')}{stays}"
