# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``policy push`` and ``policy diff``: send one policy to hosts, or compare it."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from ovirt_rdma.cli.engine.matrix import OnHost, group_by_sentence, show_matrix
from ovirt_rdma.cli.engine.session import (
    NO_ACCESS,
    access_of,
    approve,
    ask_hosts,
    note_no_access,
    open_session,
    work,
)
from ovirt_rdma.cli.host.policy import policy_counts
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.fleet.policy_push import (
    SAME,
    PolicyDrift,
    PolicyPushPlan,
    PolicyPushResult,
    compare,
    matrix_of,
    plan_policy_push,
    push_policy,
    refuse_too_long,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess, HostReport
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.engine_sdk_tools.names import hosts_named, listed
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.host.errors import Problem, UsageProblem
from ovirt_rdma.host.policy.load import load_policy_file

_PUSHED = {"done": "good", "failed": "bad"}
SOME = 5


def push(args: Namespace, output: Output) -> int:
    """Send a policy to hosts; return 0 if all have loaded it, 5 if some, 1 if none."""
    if args.facts_dir is not None and not args.dry_run:
        raise UsageProblem(
            "facts-dir-needs-dry-run",
            "--facts-dir needs --dry-run: it gives no access to hosts",
            "omit --facts-dir, or add --dry-run",
        )
    path = Path(args.file)
    load_policy_file(path, alone=True)  # reports mistakes before any host is asked
    text = path.read_text(encoding="utf-8")
    refuse_too_long(text, str(path))
    with open_session(args) as session:
        engine = read_engine(session)
        hosts = hosts_named(engine, args.hosts, args.datacenter)
        access = access_of(args, engine)
        if access is None and not args.dry_run:
            raise Problem("hosts-no-access", *NO_ACCESS)
        reports = (
            {} if access is None else _reports_without_facts(hosts, access, output)
        )
        plan = plan_policy_push(hosts, text, str(path), reports)
        for remark in plan.warnings:
            output.message(f"warning: {remark.at(str(path))}")
        if args.dry_run:
            _show_plan(plan, path, output)
            return 0
        if not hosts or access is None:
            output.line("There is no host to send the policy to.")
            return 0
        approve(args, output, _lines(plan, path))
        result = _carried_out(args, output, session, access, plan)
    _show_result(plan, result, path, output)
    if not result.failed:
        return 0
    return 1 if len(result.failed) == len(result.pushed) else SOME


def _carried_out(
    args: Namespace,
    output: Output,
    session: Session,
    access: HostAccess,
    plan: PolicyPushPlan,
) -> PolicyPushResult:
    """Send the policy, with a job in the engine unless --no-job is given."""
    title = f"push a policy to {_hosts(plan)}"
    resume = (
        "hosts that were in progress have the old or the new policy, the others keep "
        "theirs; 'ovirt-rdma policy diff' shows which; run the same command again to "
        "continue"
    )
    with work(args, output, session, title, resume=resume) as progress:
        result = push_policy(access, plan, progress.shown, progress.job)
        failed = len(result.failed)
        outcome = f"failed on {failed} of them" if failed else "is on all of them"
        progress.ended(f"{title}: {plan.digest} {outcome}", succeeded=not failed)
    return result


def _hosts(plan: PolicyPushPlan) -> str:
    return count(len(plan.hosts), "host")


def diff(args: Namespace, output: Output) -> int:
    """Compare a policy with those of hosts; return 3 if one differs or is unknown."""
    path = Path(args.file)
    policy = load_policy_file(path, alone=True).policy
    text = path.read_text(encoding="utf-8")
    with open_session(args) as session:
        engine = read_engine(session)
    hosts = hosts_named(engine, args.hosts or (), args.datacenter)
    access = access_of(args, engine)
    note_no_access(access, output)
    drifts = [
        compare(host, report, text, policy, str(path))
        for host, report in ask_hosts(hosts, access, output)
    ]
    if output.for_people:
        _show_drift(drifts, args.diff, output)
    else:
        output.document(
            "policy-diff",
            {"file": str(path), "hosts": [asdict(drift) for drift in drifts]},
        )
    return 3 if any(drift.verdict != SAME for drift in drifts) else 0


def _reports_without_facts(
    hosts: Sequence[Host], access: HostAccess, output: Output
) -> dict[str, HostReport]:
    """Return the reports without their facts, which no policy needs."""
    return {
        host.name: replace(report, facts=None)
        for host, report in ask_hosts(hosts, access, output)
    }


def _lines(plan: PolicyPushPlan, path: Path) -> list[str]:
    lines = [f"{path}: {policy_counts(plan.policy)}, {plan.digest}"]
    for change in ("changed", "same", "unknown"):
        names = [host.name for host in plan.hosts if plan.change(host) == change]
        if names:
            shown = "with an unknown policy" if change == "unknown" else change
            lines.append(f"{count(len(names), 'host')} {shown}: {listed(names)}")
    return lines


def _show_plan(plan: PolicyPushPlan, path: Path, output: Output) -> None:
    if output.for_people:
        for line in _lines(plan, path):
            output.text(line)
        output.line("Nothing was sent (--dry-run).")
        return
    output.document(
        "policy-push",
        {
            "dry_run": True,
            "file": str(path),
            "digest": plan.digest,
            "hosts": [
                {
                    "host": host.name,
                    "change": plan.change(host),
                    "before": plan.before.get(host.name),
                }
                for host in plan.hosts
            ],
        },
    )


def _show_result(
    plan: PolicyPushPlan, result: PolicyPushResult, path: Path, output: Output
) -> None:
    if not output.for_people:
        output.document(
            "policy-push",
            {
                "dry_run": False,
                "file": str(path),
                "digest": plan.digest,
                "hosts": [
                    {
                        "host": pushed.host,
                        "done": not pushed.problem,
                        "digest": pushed.digest,
                        "problem": pushed.problem,
                        "fix": pushed.fix,
                    }
                    for pushed in result.pushed.values()
                ],
            },
        )
        return
    output.table(
        ("HOST", "RESULT", "POLICY"),
        [
            (pushed.host, "failed" if pushed.problem else "done", pushed.digest or "-")
            for pushed in result.pushed.values()
        ],
        _PUSHED,
    )
    addresses = {host.name: host.address for host in plan.hosts}
    for failure in group_by_sentence(
        OnHost(pushed.host, addresses.get(pushed.host, ""), pushed.problem, pushed.fix)
        for pushed in result.failed
    ):
        output.text(failure.line)
        output.fix(failure.fix)
    done = len(result.pushed) - len(result.failed)
    output.line(
        f"The policy is loaded on {done} of {count(len(result.pushed), 'host')}. "
        "Existing mounts keep their transport until they are remounted."
    )


def _show_drift(drifts: list[PolicyDrift], with_diff: bool, output: Output) -> None:
    show_matrix(output, matrix_of(drifts))
    if not with_diff:
        return
    hosts: dict[tuple[str, ...], list[str]] = {}
    for drift in drifts:
        if drift.diff:
            hosts.setdefault(drift.diff, []).append(drift.host)
    for lines, names in hosts.items():
        output.line()
        output.text(f"{listed(names)}:")
        for line in lines:
            output.line(line)
