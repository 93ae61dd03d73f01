# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``status``, which shows what is enabled, running, loaded, changed and degraded;
and ``enable`` and ``disable``.

In ``status`` each is read and shown separately: one that is unknown does not hide the
others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Optional

from ovirt_rdma.cli.host import runs
from ovirt_rdma.cli.host.arguments import HostVerb
from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.host.mounts import print_flaws
from ovirt_rdma.cli.host.policy import policy_counts
from ovirt_rdma.cli.output import Output, count, when, when_iso
from ovirt_rdma.cli.parser import Context, Parser
from ovirt_rdma.host import __version__
from ovirt_rdma.host.changes.boot import boot_settings
from ovirt_rdma.host.changes.journal import Journal
from ovirt_rdma.host.changes.run import ChangeStatus, change_status
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.daemon.loop import NOT_RUNNING, START, read_daemon
from ovirt_rdma.host.daemon.versions import Versions, read_versions, version_advice
from ovirt_rdma.host.errors import ExitCode, Problem
from ovirt_rdma.host.facts.model import UNKNOWN
from ovirt_rdma.host.paths import POLICY_YAML, SYSTEMD_BOOTED, under
from ovirt_rdma.host.policy.forms import PolicyProblem
from ovirt_rdma.host.policy.load import read_drop_ins
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.services import enablement
from ovirt_rdma.host.services.enablement import (
    BY_LAUNCHER,
    MODE_HOST,
    Advice,
    EnablementResult,
    Status,
    marker_mode,
    read_status,
)
from ovirt_rdma.host.system.json_codec import plain
from ovirt_rdma.host.system.lock import holder_of
from ovirt_rdma.storage.health.state import OK, STATES, HealthState, read_state
from ovirt_rdma.storage.mounts import DEGRADED, NOT_COVERED, MountReview, review_all
from ovirt_rdma.storage.paths.state import UP, ServerPaths, read_paths


def _change_lines(
    changes: ChangeStatus, loaded_digest: Optional[str], at_work: bool
) -> Iterator[tuple[str, str]]:
    """Yield the names and values to show; ``at_work`` as for :func:`change_advice`."""
    if changes.problem:
        yield "changes", f"unknown: {changes.problem}"
        return
    ledger, runs = changes.ledger, changes.runs
    text = "nothing to revert"
    if runs:
        steps = count(len(ledger.applied_steps), "step")
        text = f"{steps} applied, since {when_iso(runs[0].at)}"
        if changes.follow(loaded_digest) is False:
            text += ", not all by the policy that is loaded now"
    yield "changes", text
    at_boot = len(boot_settings(ledger))
    if at_boot:
        yield "at boot", f"{count(at_boot, 'value')} set by our units"
    run = ledger.awaiting
    if run and run.confirm_by is not None:
        yield "confirm", f"run {run.number} is rolled back at {when(run.confirm_by)}"
    if ledger.interrupted and not at_work:
        yield "interrupted", f"run {ledger.interrupted.number}"


def change_advice(changes: ChangeStatus, at_work: bool) -> Iterator[Advice]:
    """Yield what to do about the changes.

    ``at_work``: a run holds the lock, so the run without an end was not interrupted.
    """
    if changes.problem:
        yield Advice(
            "The changes that can be reverted are unknown", changes.problem.fix
        )
    awaiting, interrupted = changes.ledger.awaiting, changes.ledger.interrupted
    if awaiting:
        yield Advice(f"Run {awaiting.number} awaits confirmation", f"{PROGRAM} confirm")
    if interrupted and not at_work:
        yield Advice(
            f"Run {interrupted.number} was interrupted",
            f"{PROGRAM} apply or {PROGRAM} revert: each rolls it back first",
        )
    for sentence in changes.kept:
        yield Advice(f"{sentence}; revert would not change it", "")


def _daemon_advice(root: str) -> Iterator[Advice]:
    """Yield what is wrong with the daemon, if this host is enabled."""
    if marker_mode(Path(root)) is None or not under(root, SYSTEMD_BOOTED).is_dir():
        return
    try:
        if read_daemon(root) is None:
            yield Advice(NOT_RUNNING, START)
    except Problem as problem:
        yield Advice(problem.one_line, problem.fix)


class ShowStatus(HostVerb):
    """Show the status; return 0, or 3 if the stored policy cannot be used."""

    codes = "0 printed, 3 the stored policy cannot be used"
    examples = ("", "-o json")

    def run(self, context: Context) -> int:
        output, root = context.output, context.root
        report = read_status(root)
        unread: list[str] = []
        versions = read_versions(root, unread, report.policy.stored)
        advice = (*report.advice, *_daemon_advice(root), *version_advice(versions))
        report = replace(report, advice=advice)
        changes = change_status(runs.host_effects(root), Journal(root))
        stored, problem = report.policy.stored, report.policy.problem
        digest = stored.digest if stored else None
        holder = holder_of(root)
        policy = stored.policy if stored else None if problem else Policy()
        degraded, unknown, problems = _degraded(root, policy)
        health = read_state(root, problems)
        paths = read_paths(root, problems)
        said = {one.sentence for one in advice}
        problems += [sentence for sentence in unread if sentence not in said]
        exit_code = ExitCode.CHECKS_FAILED if problem else ExitCode.DONE
        if not output.for_people:
            content = {"version": __version__, **report.document()}
            content["versions"] = plain(versions)
            content["policy"]["drop_ins"] = _drop_ins(root, problems)
            listed = [review.document() for review in degraded]
            content["degraded"] = None if unknown else listed
            content["changes"] = changes.document(digest)
            content["health"] = health and plain(health)
            content["paths"] = paths and plain(paths)
            content["at_work"] = holder and asdict(holder)
            problems += [str(changes.problem)] if changes.problem else []
            content["problems"] = problems
            output.document("status", content)
            return exit_code
        for sentence in problems:
            output.message(f"note: {sentence}")
        shown = count(len(degraded), "mount") if degraded else "none"
        servers = sorted(paths.servers if paths else (), key=lambda one: one.is_whole)
        output.fields(
            [
                *_status_lines(report, versions),
                *_change_lines(changes, digest, holder is not None),
                *([("locked by", str(holder))] if holder else []),
                ("degraded", f"unknown: {unknown}" if unknown else shown),
                *([("health", _health_shown(health))] if health else []),
                *(("paths", _paths_shown(one)) for one in servers),
            ]
        )
        for mount in health.mounts if health else ():
            if mount.state != OK:
                output.text(f"{mount.export} is {mount.state}: {mount.sentence}.")
                output.fix(mount.fix)
        print_flaws(servers, output)
        for review in degraded:
            output.line(f"{review.sentence}.")
            output.fix(review.fix)
        _print(change_advice(changes, holder is not None), output)
        _print(advice, output)
        return exit_code


def _print(advice: Iterable[Advice], output: Output) -> None:
    for one in advice:
        output.text(f"{one.sentence}.")
        output.fix(one.fix)


def _health_shown(health: HealthState) -> str:
    counted = Counter(mount.state for mount in health.mounts)
    shown = [f"{counted[state]} {state}" for state in STATES if counted[state]]
    return ", ".join(shown) or "no mount"


def _paths_shown(server: ServerPaths) -> str:
    bad = [
        f"{path.address} {path.state}"
        + ("" if path.since is None else f" since {when(path.since)}")
        for path in server.worst_first
        if path.state != UP
    ]
    return f"{server.server}: {server.shown}" + (f" ({', '.join(bad)})" if bad else "")


def _degraded(
    root: str, policy: Optional[Policy]
) -> tuple[list[MountReview], str, list[str]]:
    """Return the degraded mounts, or why they are unknown, and read errors."""
    if policy is None:
        return [], "the stored policy cannot be used", []
    reader = HostReader(root)
    unread: list[str] = []
    reader.nfs_mounts(unread)
    if unread:
        return [], unread[0], []
    facts = reader.mount_facts(cm_ids=False)
    reviews = review_all(facts, policy)
    degraded = [r for r in reviews if r.verdict in (DEGRADED, NOT_COVERED)]
    return degraded, "", list(facts.problems)


def _drop_ins(root: str, problems: list[str]) -> Optional[dict[str, str]]:
    """Return the texts of drop-ins, for the engine's tools; None if unreadable."""
    try:
        return read_drop_ins(under(root, POLICY_YAML))
    except PolicyProblem as problem:
        problems.append(problem.one_line)
        return None


def _status_lines(report: Status, versions: Versions) -> list[tuple[str, str]]:
    state, process = report.state, report.state.process
    package = f"complete, version {versions.add_on or UNKNOWN}"
    if not (state.launcher or state.dropin):
        package = "not installed"
    elif not (state.launcher and state.dropin):
        package = f"incomplete, missing: {'dropin' if state.launcher else 'launcher'}"
    running = "vdsmd is not running"
    if process:
        by = "the launcher" if process.program == BY_LAUNCHER else "stock vdsmd"
        running = f"{by} (process {process.pid})"
        if process.program == BY_LAUNCHER:
            running += f", version {process.version or UNKNOWN}"
    loaded = "none loaded"
    stored, problem = report.policy.stored, report.policy.problem
    if stored:
        shown = policy_counts(stored.policy)
        loaded = f"{shown} from {stored.source}, loaded {stored.loaded_at}"
    if problem:
        copy = f"; its copy is used: {loaded}" if stored else ""
        loaded = f"{problem}{copy}"
    return [
        ("enabled", f"yes, mode {report.mode}" if report.mode else "no"),
        ("package", package),
        ("running", running),
        ("policy", loaded),
    ]


_ENABLE_CODES = (
    "0 done or nothing to do, 1 failed, 4 refused as unsafe,\n"
    "75 another run is changing this host"
)


class Enable(HostVerb):
    """Turn a mode on; a second run at most starts the daemon."""

    codes = _ENABLE_CODES
    examples = ("", "--restart-vdsmd", "--mode host")
    more = (
        "A second run changes nothing but that a daemon that is not running is\n"
        "started. In mode vdsmd, vdsmd uses the policy from its next start on,\n"
        "and VDSM's hooks and our units act. In mode host only the hooks and\n"
        "units act, and NFS is left to the engine. Only one mode can be on."
    )

    mode: str
    restart_vdsmd: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "--mode",
            metavar="MODE",
            default="vdsmd",
            help="vdsmd or host; default: vdsmd",
        )
        _add_restart(parser)

    def run(self, context: Context) -> int:
        result = enablement.enable(
            context.root, self.mode, restart_vdsmd=self.restart_vdsmd
        )
        code = _report("enable", "enabled", result, context.output)
        if context.output.for_people and self.mode == MODE_HOST:
            context.output.line(
                "VDSM runs the hooks from now on; NFS is mounted as before."
            )
        return code


class Disable(HostVerb):
    """Undo enable; a second run changes nothing."""

    codes = _ENABLE_CODES
    examples = ("", "--restart-vdsmd")
    more = (
        "A second run changes nothing. A running vdsmd is unchanged until it is\n"
        "restarted."
    )

    restart_vdsmd: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        _add_restart(parser)

    def run(self, context: Context) -> int:
        result = enablement.disable(context.root, restart_vdsmd=self.restart_vdsmd)
        return _report("disable", "disabled", result, context.output)


def _add_restart(parser: Parser) -> None:
    parser.add_argument(
        "--restart-vdsmd",
        action="store_true",
        help="restart vdsmd at once, if it is not the one that the mode needs",
    )


def _report(verb: str, state: str, result: EnablementResult, output: Output) -> int:
    if not output.for_people:
        output.document(
            verb,
            {
                "changed": bool(result.steps),
                "restart_needed": result.restart_needed,
                "advice": [asdict(advice) for advice in result.advice],
                "steps": [asdict(step) for step in result.steps],
            },
        )
        return 0
    for step in result.steps:
        output.line(f"done: {step.sentence}")
    if result.steps:
        output.line(f"Now {state}.")
    else:
        output.line(f"Nothing to do: already {state}.")
    if result.restart_needed:
        output.line("The running vdsmd has not been restarted yet.")
        output.fix("systemctl restart vdsmd (running VMs and mounts stay)")
    _print(result.advice, output)
    return 0
