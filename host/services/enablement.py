# SPDX-License-Identifier: GPL-2.0-or-later
"""Enable a mode of the add-on, or disable everything; and report the status, with
advice on what is inconsistent.

The marker says that a mode is enabled, and which one. Mode vdsmd also has a link to the
drop-in that starts vdsmd through the launcher. Mode host has only the marker, which
hooks and units check.

enable writes the marker last, and disable removes it last, so that the next run detects
and completes an interrupted one. Before enable creates a folder it records that, so
that disable can tell it from one that existed before. At every point in between, vdsmd
starts either as stock or through a complete launcher. A foreign file in a place of
ours, or another enabled mode, is a reason to refuse.

``ovirt-rdma-host status`` shows the enabled mode, the package, the running vdsmd and
the policy separately, because each can differ from the others: the package may have
been removed while the launcher is running, or vdsmd not restarted yet.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Optional, Union

from ovirt_rdma.host.collect import software
from ovirt_rdma.host.collect.software import (
    SELinux,
    read_selinux,
    refused_programs,
    running_scripts,
)
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.errors import Problem, Refused, UsageProblem
from ovirt_rdma.host.facts.model import RUNNING
from ovirt_rdma.host.paths import (
    DAEMON_FILE,
    DAEMON_UNIT,
    DROPIN_DIRECTORY,
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    FOLDER_NOTE,
    HOOKS,
    LAUNCHER,
    OTHER_DROPIN_DIRECTORIES,
    POLICY_COPY,
    POLICY_JSON,
    POLICY_YAML,
    RUN_MOUNTS,
    STARTED,
    STOCK_VDSMD,
    SYSTEMD_BOOTED,
    under,
)
from ovirt_rdma.host.policy import store
from ovirt_rdma.host.policy.store import InForce, StoredPolicy
from ovirt_rdma.host.system.commands import CommandFailed, Runner, run_command
from ovirt_rdma.host.system.files import (
    remove_unfinished,
    sync_directory,
    write_atomically,
)
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.text import whole
from ovirt_rdma.host.system.tree import FileTree, conf_texts

# The owner of a file in a place of ours.
ABSENT = "absent"
OURS = "ours"
FOREIGN = "foreign"
PRESENT = "present"

MODE_VDSMD = "vdsmd"
# The marker only: hooks and units are active, NFS mounts are stock.
MODE_HOST = "host"
MODES = (MODE_VDSMD, MODE_HOST)
MARKER_HEADER = (
    "# Written by ovirt-rdma-host enable; ovirt-rdma-host disable removes it."
)
# The note that enable created the folder, so that disable removes it.
NOTE = f"{MARKER_HEADER}\nmade: {DROPIN_DIRECTORY}\n"

# The program that started the running vdsmd.
BY_LAUNCHER = "launcher"
BY_STOCK = "stock"

# VDSM's user may write the file.
_LONGEST_REASON = 1000

# Of the add-on.
VERSION = re.compile(r"[0-9][0-9A-Za-z.+~]{0,39}", re.ASCII)
_SETS_VERSION = re.compile(rb'^__version__ = "([0-9A-Za-z.+~]{1,40})"$', re.MULTILINE)

_SETS_EXEC_START = re.compile(r"^[ \t]*ExecStart[ \t]*=", re.MULTILINE)


@dataclass(frozen=True)
class VdsmdProcess:
    """A running vdsmd: its process id, and its program, BY_LAUNCHER or BY_STOCK.

    ``because``: why the launcher started stock vdsmd; None if it did not. ``version``
    is that of our class in it; None for stock vdsmd, and if it is unknown.
    """

    pid: int
    program: str
    because: Optional[str] = None
    version: Optional[str] = None


@dataclass(frozen=True)
class EnablementState:
    """The state from which enable and disable are planned.

    marker, link, note: ABSENT, OURS or FOREIGN
    marker_mode: the mode in a marker of ours
    directory, entries: vdsmd.service.d: ABSENT, PRESENT or FOREIGN (not a plain
        folder), and the names in it
    overrides: foreign drop-ins that replace vdsmd's ExecStart too
    stock: VDSM has its vdsmd where the launcher expects it
    selinux: None if SELinux is disabled
    daemon_unit: the daemon's unit is installed
    daemon_rests: it is not running, and not masked
    systemd: systemd is running and can be reloaded
    """

    marker: str
    marker_mode: Optional[str]
    note: str
    link: str
    directory: str
    entries: tuple[str, ...]
    overrides: tuple[str, ...]
    launcher: bool
    dropin: bool
    stock: bool
    process: Optional[VdsmdProcess]
    selinux: Optional[SELinux]
    daemon_unit: bool
    systemd: bool
    daemon_rests: bool = False


def marker_text(mode: str) -> str:
    """Return the content of the marker for ``mode``."""
    return f"{MARKER_HEADER}\nmode: {mode}\n"


_MARKERS = {marker_text(mode).encode(): mode for mode in MODES}


def read_state(root: Path) -> EnablementState:
    """Read the state below ``root``. Raises Problem if it cannot be read."""
    folder = under(root, DROPIN_DIRECTORY)
    try:
        marker, mode = _one_of(_MARKERS, under(root, ENABLED))
        note, _ = _one_of({NOTE.encode(): ""}, under(root, FOLDER_NOTE))
        plain = folder.is_dir() and not folder.is_symlink()
        return EnablementState(
            marker=marker,
            marker_mode=mode,
            note=note,
            link=_link_state(under(root, DROPIN_LINK)),
            directory=PRESENT if plain else _presence(folder),
            entries=tuple(entry.name for entry in folder.iterdir()) if plain else (),
            overrides=_overrides(root),
            launcher=under(root, LAUNCHER).is_file(),
            dropin=under(root, DROPIN_SOURCE).is_file(),
            stock=under(root, STOCK_VDSMD).is_file(),
            process=vdsmd_process(root),
            selinux=read_selinux(FileTree(root)),
            daemon_unit=under(root, DAEMON_FILE).is_file(),
            # sd_booted(3): this folder exists only if systemd is the init.
            systemd=under(root, SYSTEMD_BOOTED).is_dir(),
        )
    except OSError as error:
        raise Problem(
            "enablement-unreadable", f"{error.filename}: {error.strerror}"
        ) from error


def marker_mode(root: Path) -> Optional[str]:
    """Return the mode in our marker; None without one, or if it cannot be read."""
    try:
        return _one_of(_MARKERS, under(root, ENABLED))[1]
    except OSError:
        return None


def is_enabled(root: Union[str, Path]) -> bool:
    """Return whether there is a marker, whatever it says, and if that is unknown."""
    try:
        under(root, ENABLED).lstat()
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def vdsmd_process(root: Path) -> Optional[VdsmdProcess]:
    """Find the running vdsmd by its command line; that of the launcher's last note
    without a look at all processes.
    """
    programs = {LAUNCHER: BY_LAUNCHER, STOCK_VDSMD: BY_STOCK}
    tree = FileTree(root)
    data = tree.data(STARTED, others=RUN_MOUNTS) or b""
    note = data.decode("utf-8", "replace").strip()
    first = whole(note.partition(" ")[0])
    for pid, script in running_scripts(tree, programs, first):
        program = programs[script]
        # Stock vdsmd replaces the launcher, so that the id is the same.
        start = f"{pid} {program} "
        noted = note.startswith(start)
        text = note[len(start) :][:_LONGEST_REASON] if noted else None
        if program == BY_STOCK:
            return VdsmdProcess(pid, program, text)
        known = text is not None and VERSION.fullmatch(text)
        return VdsmdProcess(pid, program, version=text if known else None)
    return None


def installed_version() -> Optional[str]:
    """Return the version of the add-on in the package's files; None if it cannot be
    read. A process that was started before an update has an earlier one in memory.
    """
    # Of the package ovirt_rdma.host.
    text = FileTree("/").data(str(Path(__file__).parents[1] / "__init__.py"))
    match = _SETS_VERSION.search(text or b"")
    return match.group(1).decode() if match else None


def _one_of(texts: Mapping[bytes, str], path: Path) -> tuple[str, Optional[str]]:
    """Return the owner of the file ``path`` and the entry of ``texts`` for its text."""
    if path.is_symlink():
        return FOREIGN, None
    try:
        content = read_file(path)
    except FileNotFoundError:
        return ABSENT, None
    except IsADirectoryError:
        return FOREIGN, None
    return (OURS, texts[content]) if content in texts else (FOREIGN, None)


def _presence(path: Path) -> str:
    return FOREIGN if path.is_symlink() or path.exists() else ABSENT


def _link_state(path: Path) -> str:
    ours = path.is_symlink() and str(path.readlink()) == DROPIN_SOURCE
    return OURS if ours else _presence(path)


def _overrides(root: Path) -> tuple[str, ...]:
    """Return drop-ins of vdsmd.service, other than ours, that set ExecStart."""
    folders, ours = (DROPIN_DIRECTORY, *OTHER_DROPIN_DIRECTORIES), Path(DROPIN_LINK)
    # What cannot be read is ignored by systemd too.
    return tuple(
        path
        for path, text in conf_texts(FileTree(root), folders, ".conf", [])
        if Path(path).name != ours.name and _SETS_EXEC_START.search(text)
    )


def modes_on(state: EnablementState) -> tuple[str, ...]:
    """Return the modes that are enabled completely or in part."""
    on = {state.marker_mode, MODE_VDSMD if state.link == OURS else None}
    return tuple(mode for mode in MODES if mode in on)


_LOAD = "ovirt-rdma-host policy load"


@dataclass(frozen=True)
class Advice:
    """An inconsistency, as a sentence, and its fix."""

    sentence: str
    fix: str


def _launcher(state: EnablementState) -> Iterator[Advice]:
    """Yield how marker, link, package and the running vdsmd differ."""
    marked, link = state.marker_mode == MODE_VDSMD, state.link == OURS
    if marked != link:
        places = (ENABLED, DROPIN_LINK)
        present, missing = places if marked else reversed(places)
        yield Advice(
            f"{present} exists and {missing} does not: an enable or disable was "
            "interrupted",
            f"run it again: ovirt-rdma-host enable --mode {MODE_VDSMD}, or disable",
        )
    if marked or link:
        yield from vdsm_advice(state)
        yield from (Advice(str(one), one.fix) for one in _obstacles(state))
    if state.process is None:
        return
    stock, because = state.process.program == BY_STOCK, state.process.because
    if link and stock and because:
        yield Advice(
            f"Enabled, but the launcher started stock vdsmd: {because}",
            "solve that, then: systemctl restart vdsmd",
        )
    elif link and stock:
        yield Advice(
            "Enabled, but the running vdsmd is stock",
            "systemctl restart vdsmd; if it stays stock, the launcher has logged why: "
            "journalctl -t vdsmd",
        )
    elif not link and not stock:
        mode = "Not enabled" if state.marker_mode is None else "Not in mode vdsmd"
        yield Advice(
            f"{mode}, but the running vdsmd was started by the launcher",
            "systemctl restart vdsmd",
        )


def _obstacles(state: EnablementState) -> Iterator[Refused]:
    """Yield what keeps systemd from starting vdsmd through the launcher."""
    for present, path in ((state.launcher, LAUNCHER), (state.dropin, DROPIN_SOURCE)):
        if not present:
            yield Refused(
                "own-file-missing",
                f"{path} is missing",
                "install the package ovirt-rdma-host again",
            )
    if state.overrides:
        yield Refused(
            "drop-in-conflict",
            f"{', '.join(state.overrides)} replaces vdsmd's ExecStart too, and systemd "
            "allows that in one drop-in only",
            "remove ExecStart from that drop-in; or, if mode vdsmd is enabled: "
            "ovirt-rdma-host disable",
        )


def vdsm_advice(state: EnablementState) -> Iterator[Advice]:
    """Yield advice if VDSM is missing, or too old to be started by the launcher."""
    if not state.stock:
        yield Advice(
            f"There is no {STOCK_VDSMD}: VDSM is not installed, or is older than "
            "4.50.0.13, and the launcher cannot start it",
            "install or update the package vdsm, or run: ovirt-rdma-host disable",
        )


def selinux_advice(state: EnablementState) -> Iterator[Advice]:
    """Yield advice if vdsmd is in another SELinux context than stock vdsmd, because
    systemd has not read the present drop-in yet.

    The context of supervdsmd is the reference: both units start the same program first
    (static/usr/lib/systemd/system/{vdsmd,supervdsmd}.service.in), which decides the
    context. Of the domains that may signal stock vdsmd, only sanlock may not signal
    services of systemd in general (selinux-policy, contrib/sanlock.te).
    """
    launched = state.process is not None and state.process.program == BY_LAUNCHER
    if state.selinux is None or not (state.link == OURS or launched):
        return
    contexts = state.selinux.contexts
    ours, stock = contexts.get("vdsmd"), contexts.get("supervdsmd")
    if ours is None or stock is None or ours == stock:
        return
    permissive = "this has no effect while SELinux is permissive; in enforcing mode, "
    when = "" if state.selinux.enforcing else permissive
    yield Advice(
        f"vdsmd runs in the SELinux context {ours}, not as supervdsmd in {stock}: "
        f"{when}if storage is lost, sanlock is not allowed to stop vdsmd, and resets "
        "the host",
        "systemctl daemon-reload, then systemctl restart vdsmd (running VMs and mounts "
        "stay); if that does not help, ovirt-rdma-host disable and restart vdsmd again",
    )


def _policy(state: EnablementState, policy: InForce, fix: str) -> Iterator[Advice]:
    host = MODE_HOST in modes_on(state)
    if policy.problem is not None:
        effect = (
            "a vdsmd that starts now mounts NFS as stock, even where the policy "
            "requires RDMA"
        )
        if policy.stored:
            effect = "its copy is used for NFS mounts"
        if host:
            effect = "VDSM's hooks change nothing"
        sentence = f"The stored policy cannot be used; {effect}"
        yield Advice(sentence, fix)
    elif state.link == OURS and not policy.stored:
        yield Advice("No policy is loaded, so NFS mounts are stock", _LOAD)
    elif host and not policy.stored:
        sentence = (
            "No policy is loaded, so VDSM's hooks only refuse what InfiniBand cannot do"
        )
        yield Advice(sentence, _LOAD)


def _bypass(state: EnablementState, root: Path) -> Iterator[Advice]:
    if state.link != OURS:
        return
    problems: list[str] = []
    options = software.nfs_mount_options(root, problems)
    folders = software.FOLDERS
    for problem in problems:
        yield Advice(problem, f"correct it below {folders}")
    if options is not None and software.replaces_nfs_connections(options):
        yield Advice(
            f"vdsm.conf sets the deprecated {software.OPTION} ({options}): if the "
            "engine sends no NFS version, timeout or retransmissions, VDSM mounts "
            "with these options only, and ignores the policy",
            f"remove it (grep -r {software.OPTION} {folders}), restart vdsmd, and "
            "set the NFS version in the storage connection",
        )


@dataclass(frozen=True)
class Status:
    """The status of a host: the state of enablement, the policy in force, the fix if
    its file cannot be used, why its copy could not replace the file, as a clause, and
    advice on inconsistencies.
    """

    state: EnablementState
    policy: InForce
    fix: str
    copy_problem: Optional[str]
    advice: tuple[Advice, ...]

    @property
    def mode(self) -> Optional[str]:
        """The enabled mode; None unless marker and other files of the mode exist."""
        half = self.state.marker_mode == MODE_VDSMD and self.state.link != OURS
        return None if half else self.state.marker_mode

    def document(self) -> dict[str, Any]:
        """Return it for ``-o json``."""
        state, stored, problem = self.state, self.policy.stored, self.policy.problem
        return {
            "enabled": {
                "mode": self.mode,
                "marker": state.marker,
                "link": state.link,
                "overrides": state.overrides,
            },
            "package": {"launcher": state.launcher, "dropin": state.dropin},
            "running": state.process and asdict(state.process),
            "policy": {
                "loaded": stored is not None,
                "digest": stored and stored.digest,
                "source": stored and stored.source,
                "loaded_at": stored and stored.loaded_at,
                "rules": len(stored.policy.nfs.rules) if stored else 0,
                "problem": problem and str(problem),
                "fix": self.fix,
                "copy_problem": self.copy_problem,
            },
            "advice": [asdict(one) for one in self.advice],
        }


def read_status(root: Union[str, Path] = "/") -> Status:
    """Read the status of the host below ``root``. Raises as :func:`read_state`."""
    root = Path(root)
    state, path = read_state(root), under(root, POLICY_JSON)
    policy = store.in_force(path)
    load, fix, unlike = _load_from(policy.stored, root), "", None
    if policy.problem:
        fix = policy.problem.fix.replace(_LOAD, load)
    elif policy.stored:
        unlike = store.copy_problem(path)
    copy = f"{POLICY_COPY}, which replaces a damaged {POLICY_JSON}, {unlike}"
    return Status(
        state,
        policy,
        fix,
        unlike,
        (
            *([Advice(copy, load)] if unlike else []),
            *_launcher(state),
            *selinux_advice(state),
            *_policy(state, policy, fix),
            *_bypass(state, root),
        ),
    )


def _load_from(stored: Optional[StoredPolicy], root: Path) -> str:
    """Return the command that loads the policy of the same file again."""
    if stored is None or stored.source == str(under(root, POLICY_YAML)):
        return _LOAD
    return f"{_LOAD} {shlex.quote(stored.source)}"


@dataclass(frozen=True)
class Step:
    """One change: its id, which is stable and in JSON, its target, and a sentence."""

    id: str
    target: str
    sentence: str


MAKE_LINK = Step("make-link", DROPIN_LINK, f"link {DROPIN_LINK} to {DROPIN_SOURCE}")
WRITE_NOTE = Step(
    "write-folder-note",
    FOLDER_NOTE,
    f"record in {FOLDER_NOTE} that {DROPIN_DIRECTORY} is new",
)
WRITE_MARKER = Step("write-marker", ENABLED, f"write {ENABLED}")
REMOVE_LINK = Step("remove-link", DROPIN_LINK, f"remove {DROPIN_LINK}")
REMOVE_DIRECTORY = Step(
    "remove-directory",
    DROPIN_DIRECTORY,
    f"remove {DROPIN_DIRECTORY}, which is empty now",
)
REMOVE_NOTE = Step("remove-folder-note", FOLDER_NOTE, f"remove {FOLDER_NOTE}")
REMOVE_MARKER = Step("remove-marker", ENABLED, f"remove {ENABLED}")
RELOAD_SYSTEMD = Step("reload-systemd", "systemd", "make systemd read its units again")
START_DAEMON = Step("start-daemon", DAEMON_UNIT, f"start {DAEMON_UNIT}")
STOP_DAEMON = Step("stop-daemon", DAEMON_UNIT, f"stop {DAEMON_UNIT}")
RESTART_VDSMD = Step("restart-vdsmd", "vdsmd.service", "restart vdsmd")

_COMMANDS = {
    RELOAD_SYSTEMD: ("systemctl", "daemon-reload"),
    START_DAEMON: ("systemctl", "start", "--no-block", DAEMON_UNIT),
    # Not waited for: a process of it may wait in the kernel for a dead server.
    STOP_DAEMON: ("systemctl", "stop", "--no-block", DAEMON_UNIT),
    # Not "restart": a stopped vdsmd stays stopped.
    RESTART_VDSMD: ("systemctl", "try-restart", "vdsmd.service"),
}
_DAEMON_STATE = ("systemctl", "show", "-p", "LoadState,ActiveState", DAEMON_UNIT)
_DAEMON_RUNS = {f"ActiveState={state}" for state in RUNNING}
# vdsmd stops within 10 s and its start runs vdsmd_init_common.sh.
_COMMAND_TIMEOUT_S = 180
_run = partial(run_command, timeout_s=_COMMAND_TIMEOUT_S)


def refuse_foreign(state: EnablementState, *, vdsmd: bool) -> None:
    """Raise Refused if a foreign file is in a place of all modes, or of mode vdsmd."""
    places = [(state.marker, ENABLED), (state.note, FOLDER_NOTE)]
    if vdsmd:
        places.append((state.directory, DROPIN_DIRECTORY))
        places.append((state.link, DROPIN_LINK))
    for owner, path in places:
        if owner == FOREIGN:
            raise Refused(
                "file-not-ours",
                f"{path} exists already and was not written by ovirt-rdma-host",
                "find out what it is for, move it away, and run this command again",
            )


# The program of a vdsmd that needs a restart, by the mode that is enabled.
_OUTDATED = {MODE_VDSMD: BY_STOCK, MODE_HOST: BY_LAUNCHER}


def plan_enable(state: EnablementState, mode: str) -> list[Step]:
    """Return the steps that enable ``mode``: MODE_VDSMD makes the launcher start vdsmd,
    MODE_HOST enables hooks and units without changing NFS mounts. Raises
    Refused.
    """
    for other in modes_on(state):
        if other != mode:
            raise Refused(
                "other-mode-enabled",
                f"mode {other} is enabled, and only one mode can be",
                f"ovirt-rdma-host disable, then ovirt-rdma-host enable --mode {mode}",
            )
    refuse_foreign(state, vdsmd=mode == MODE_VDSMD)
    steps = []
    if mode == MODE_VDSMD:
        for obstacle in _obstacles(state):
            raise obstacle
        if state.link == state.directory == state.note == ABSENT:
            steps.append(WRITE_NOTE)
        if state.link == ABSENT:
            steps.append(MAKE_LINK)
        if ABSENT in {state.link, state.marker}:
            steps.append(RELOAD_SYSTEMD)
    if state.marker == ABSENT:
        steps.append(WRITE_MARKER)
    if state.daemon_rests:
        steps.append(START_DAEMON)
    return steps


def plan_disable(state: EnablementState) -> list[Step]:
    """Return the steps after which vdsmd is as it is shipped.

    The package may be missing. Raises Refused if a foreign file is in a place
    of the enabled mode.
    """
    on = modes_on(state)
    refuse_foreign(state, vdsmd=MODE_VDSMD in on)
    steps, removed = [], set()
    if state.link == OURS:
        steps.append(REMOVE_LINK)
        removed.add(Path(DROPIN_LINK).name)
    # Only a folder that enable has made, and that is empty then.
    made = state.note == OURS and state.directory == PRESENT
    if made and removed.issuperset(state.entries):
        steps.append(REMOVE_DIRECTORY)
    if MODE_VDSMD in on:
        steps.append(RELOAD_SYSTEMD)
    if state.note == OURS:
        steps.append(REMOVE_NOTE)
    if state.marker == OURS:
        steps += (REMOVE_MARKER, STOP_DAEMON)
    return steps


# One file represents all that the launcher loads.
PACKAGE = str(Path(__file__).parents[2])
LOADED = f"{PACKAGE}/storage/vdsm/launch.py"


@dataclass(frozen=True)
class EnablementResult:
    """The steps carried out; none if nothing had to change.

    ``restart_needed``: the running vdsmd was started before the change. ``advice`` is
    about the running vdsmd.
    """

    steps: tuple[Step, ...]
    restart_needed: bool
    advice: tuple[Advice, ...] = ()


def enable(
    root: Union[str, Path] = "/",
    mode: str = MODE_VDSMD,
    run: Optional[Runner] = None,
    restart_vdsmd: bool = False,
) -> EnablementResult:
    """Carry out the plan for ``mode`` below ``root``.

    Commands are run with ``run``; without it only if ``root`` is ``/``, and systemctl
    only if systemd is the init. Raises UsageProblem for an unknown mode,
    Refused, LockHeld during another run, and Problem if a step fails; running the
    same command again completes the work.
    """
    if mode not in MODES:
        raise UsageProblem(
            "mode-unknown", f"there is no mode {mode!r}; allowed: {', '.join(MODES)}"
        )
    root = Path(root)
    with one_run(root, by="enable"):
        state = _state(root, run)
        _refuse_untrusted(root, run, mode)
        rests = state.systemd and state.daemon_unit and _daemon_rests(run or _run)
        steps = plan_enable(replace(state, daemon_rests=rests), mode)
        done = _completed(steps, state, _OUTDATED[mode], restart_vdsmd)
        _carry_out(done.steps, root, run, mode)
    if mode != MODE_VDSMD:
        return done
    restarted = RESTART_VDSMD in done.steps
    advice = (*vdsm_advice(state), *(() if restarted else selinux_advice(state)))
    return replace(done, advice=advice)


def disable(
    root: Union[str, Path] = "/",
    run: Optional[Runner] = None,
    restart_vdsmd: bool = False,
    *,
    wait_s: float = 0.0,
) -> EnablementResult:
    """Carry out :func:`plan_disable` below ``root``; otherwise as :func:`enable`. A run
    that is about to end is waited for, ``wait_s`` seconds.
    """
    root = Path(root)
    with one_run(root, wait_s, by="disable"):
        state = _state(root, run)
        done = _completed(plan_disable(state), state, BY_LAUNCHER, restart_vdsmd)
        _carry_out(done.steps, root, run)
    return done


def _state(root: Path, run: Optional[Runner]) -> EnablementState:
    state = read_state(root)
    own_systemd = root == Path("/") and state.systemd
    return replace(state, systemd=own_systemd or run is not None)


def _daemon_rests(run: Runner) -> bool:
    try:
        said = run(_DAEMON_STATE).split()
    except CommandFailed:
        # Starting it says why.
        return True
    return "LoadState=masked" not in said and not _DAEMON_RUNS.intersection(said)


def _refuse_untrusted(root: Path, run: Optional[Runner], mode: str) -> None:
    """Raise Refused if fapolicyd would not let programs of ours run.

    The launcher opens the package as the user vdsm, who may open only trusted Python
    files (70-trusted-lang.rules). The hooks that open it run as root, who may open any
    (20-dracut.rules); that of after_get_caps, which vdsm runs, opens none.
    """
    programs = HOOKS if mode != MODE_VDSMD else (LAUNCHER, *HOOKS)
    paths = [path for path in programs if under(root, path).is_file()]
    if mode == MODE_VDSMD:
        paths.append(LOADED)
    run = run or (_run if root == Path("/") else None)
    found = refused_programs(FileTree(root), Tools(run), paths)
    refused = [PACKAGE if path == LOADED else path for path in found]
    if refused:
        raise Refused(
            "fapolicyd-untrusted",
            f"fapolicyd is running on this host and does not trust "
            f"{', '.join(refused)}: VDSM could not start these files",
            "install ovirt-rdma-host from its RPM, or run (--file update for a file "
            "that was added before it changed): "
            + "; ".join(
                f"fapolicyd-cli --file add {path} --trust-file ovirt-rdma"
                for path in refused
            )
            + "; fapolicyd-cli --update",
        )


def _completed(
    steps: list[Step], state: EnablementState, outdated: str, restart_vdsmd: bool
) -> EnablementResult:
    """Return ``steps``, as far as the host has what they are for. A vdsmd of the
    program ``outdated`` needs a restart.
    """
    needed = state.process is not None and state.process.program == outdated
    if restart_vdsmd and needed:
        steps.append(RESTART_VDSMD)
    without: set[Step] = set()
    if not state.systemd:
        without = set(_COMMANDS)
    elif not state.daemon_unit:
        without = {STOP_DAEMON}
    done = tuple(step for step in steps if step not in without)
    return EnablementResult(done, needed and RESTART_VDSMD not in done)


def _carry_out(
    steps: Iterable[Step], root: Path, run: Optional[Runner], mode: str = MODE_VDSMD
) -> None:
    for path in (ENABLED, FOLDER_NOTE):
        remove_unfinished(under(root, path).parent)
    texts = {WRITE_MARKER: marker_text(mode), WRITE_NOTE: NOTE}
    for step in steps:
        _carry_out_step(step, root, run or _run, texts)


def _carry_out_step(
    step: Step, root: Path, run: Runner, texts: Mapping[Step, str]
) -> None:
    try:
        if step in _COMMANDS:
            run(_COMMANDS[step])
        else:
            _change_file(step, under(root, step.target), texts)
    except (OSError, CommandFailed) as error:
        raise Problem(
            "enablement-step-failed",
            f"cannot {step.sentence}: {getattr(error, 'strerror', None) or error}",
            "fix the cause (run as root?), then run the same command again to complete "
            "it",
        ) from error


def _change_file(step: Step, path: Path, texts: Mapping[Step, str]) -> None:
    folder = path.parent
    if step in (MAKE_LINK, WRITE_MARKER, WRITE_NOTE) and not folder.is_dir():
        # Not a mode of its own afterwards: a kill in between would leave it closed.
        umask = os.umask(0o022)
        try:
            folder.mkdir()
        finally:
            os.umask(umask)
        sync_directory(folder.parent)
    if step == MAKE_LINK:
        path.symlink_to(DROPIN_SOURCE)
    elif step in texts:
        write_atomically(path, texts[step].encode(), 0o644)
    elif step == REMOVE_DIRECTORY:
        path.rmdir()
    else:
        path.unlink()
    sync_directory(path.parent)
