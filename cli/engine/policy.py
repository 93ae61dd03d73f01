# SPDX-License-Identifier: GPL-2.0-or-later
"""``policy push`` and ``policy diff``: one policy file and many hosts."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from ovirt_rdma.cli.engine.matrix import OnHost, said_once, show_matrix
from ovirt_rdma.cli.engine.session import (
    NO_WAY,
    approve,
    asked,
    door_of,
    opened,
    say_no_way,
    work,
)
from ovirt_rdma.cli.host.policy import policy_counts
from ovirt_rdma.cli.output import Screen, count
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.fleet.policy_push import (
    SAME,
    PolicyDrift,
    PolicyPushPlan,
    PolicyPushResult,
    carry_out,
    compare,
    matrix_of,
    plan_policy_push,
    refuse_too_long,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostDoor, HostReport
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.engine_sdk_tools.names import hosts_named, listed
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.host.errors import Problem, UsageProblem
from ovirt_rdma.host.policy.load import load_policy_file

_PUSHED = {"done": "good", "failed": "bad"}
SOME = 5


def push(words: Namespace, screen: Screen) -> int:
    """Send a policy to hosts: 0 in force on all, 5 on some, 1 on none."""
    if words.facts_dir is not None and not words.dry_run:
        raise UsageProblem(
            "facts-dir-needs-dry-run",
            "nothing can be sent to a host through a folder of dumps",
            "leave out --facts-dir, or add --dry-run",
        )
    path = Path(words.file)
    load_policy_file(path)  # whatever is wrong with it, before anybody is asked
    text = path.read_text(encoding="utf-8")
    refuse_too_long(text, str(path))
    with opened(words) as session:
        engine = read_engine(session)
        hosts = hosts_named(engine, words.hosts, words.datacenter)
        door = door_of(words, engine)
        if door is None and not words.dry_run:
            raise Problem("hosts-no-access", *NO_WAY)
        reports = {} if door is None else _slim(hosts, door, screen)
        plan = plan_policy_push(hosts, text, str(path), reports)
        for remark in plan.warnings:
            screen.message(f"warning: {remark.at(str(path))}")
        if words.dry_run:
            _show_plan(plan, path, screen)
            return 0
        if not hosts or door is None:
            screen.line("There is no host to send it to.")
            return 0
        approve(words, screen, _lines(plan, path))
        result = _carried_out(words, screen, session, door, plan)
    _show_result(plan, result, path, screen)
    if not result.failed:
        return 0
    return 1 if len(result.failed) == len(result.pushed) else SOME


def _carried_out(
    words: Namespace,
    screen: Screen,
    session: Session,
    door: HostDoor,
    plan: PolicyPushPlan,
) -> PolicyPushResult:
    """Send the policy, with a job of the engine's unless the words say not to."""
    what = f"push a policy to {_hosts(plan)}"
    go_on = (
        "a host that was at work has the old policy or the new, those that it did not "
        "reach keep theirs; 'ovirt-rdma policy diff' tells, and the same command goes "
        "on"
    )
    with work(words, screen, session, what, go_on=go_on) as shown:
        result = carry_out(door, plan, shown.shown, shown.job)
        failed = len(result.failed)
        says = f"failed on {failed} of them" if failed else "is on all of them"
        shown.ended(f"{what}: {plan.digest} {says}", succeeded=not failed)
    return result


def _hosts(plan: PolicyPushPlan) -> str:
    return count(len(plan.hosts), "host")


def diff(words: Namespace, screen: Screen) -> int:
    """Compare a policy with the hosts': 3 where one differs, or is not known."""
    path = Path(words.file)
    policy = load_policy_file(path).policy
    text = path.read_text(encoding="utf-8")
    with opened(words) as session:
        engine = read_engine(session)
    hosts = hosts_named(engine, words.hosts or (), words.datacenter)
    door = door_of(words, engine)
    say_no_way(door, screen)
    found = [
        compare(host, report, text, policy, str(path))
        for host, report in asked(hosts, door, screen)
    ]
    if screen.for_people:
        _show_drift(found, words.diff, screen)
    else:
        screen.document(
            "policy-diff",
            {"file": str(path), "hosts": [asdict(one) for one in found]},
        )
    return 3 if any(one.verdict != SAME for one in found) else 0


def _slim(
    hosts: Sequence[Host], door: HostDoor, screen: Screen
) -> dict[str, HostReport]:
    """Return the reports without the facts, which a policy does not need."""
    return {
        host.name: replace(report, facts=None)
        for host, report in asked(hosts, door, screen)
    }


def _lines(plan: PolicyPushPlan, path: Path) -> list[str]:
    lines = [f"{path}: {policy_counts(plan.policy)}, {plan.digest}"]
    for change in ("changed", "same", "unknown"):
        names = [host.name for host in plan.hosts if plan.change(host) == change]
        if names:
            shown = "not known what they have" if change == "unknown" else change
            lines.append(f"{count(len(names), 'host')} {shown}: {listed(names)}")
    return lines


def _show_plan(plan: PolicyPushPlan, path: Path, screen: Screen) -> None:
    if screen.for_people:
        for line in _lines(plan, path):
            screen.text(line)
        screen.line("Nothing was sent (--dry-run).")
        return
    screen.document(
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
    plan: PolicyPushPlan, result: PolicyPushResult, path: Path, screen: Screen
) -> None:
    if not screen.for_people:
        screen.document(
            "policy-push",
            {
                "dry_run": False,
                "file": str(path),
                "digest": plan.digest,
                "hosts": [
                    {
                        "host": one.host,
                        "done": not one.problem,
                        "digest": one.digest,
                        "problem": one.problem,
                        "fix": one.fix,
                    }
                    for one in result.pushed.values()
                ],
            },
        )
        return
    screen.table(
        ("HOST", "RESULT", "POLICY"),
        [
            (one.host, "failed" if one.problem else "done", one.digest or "-")
            for one in result.pushed.values()
        ],
        _PUSHED,
    )
    addresses = {host.name: host.address for host in plan.hosts}
    for said in said_once(
        OnHost(one.host, addresses.get(one.host, ""), one.problem, one.fix)
        for one in result.failed
    ):
        screen.text(said.line)
        screen.fix(said.fix)
    done = len(result.pushed) - len(result.failed)
    screen.line(
        f"The policy is in force on {done} of {count(len(result.pushed), 'host')}. "
        "Mounts that stand keep their transport until they are made anew."
    )


def _show_drift(found: list[PolicyDrift], with_diff: bool, screen: Screen) -> None:
    show_matrix(screen, matrix_of(found))
    if not with_diff:
        return
    hosts: dict[tuple[str, ...], list[str]] = {}
    for one in found:
        if one.diff:
            hosts.setdefault(one.diff, []).append(one.host)
    for lines, names in hosts.items():
        screen.line()
        screen.text(f"{listed(names)}:")
        for line in lines:
            screen.line(line)
