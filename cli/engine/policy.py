# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``policy push`` and ``policy diff``: send one policy to hosts, or compare it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Optional

from ovirt_rdma.cli.engine.main import (
    AccessOptions,
    ChangeOptions,
    EngineVerb,
    add_change_options,
    add_data_center,
    add_host_access,
    add_hosts,
)
from ovirt_rdma.cli.engine.session import (
    Approver,
    changing,
    open_session,
    rdma_engine,
    refuse_dumps,
    show_matrix,
)
from ovirt_rdma.cli.host.policy import policy_counts
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import Context, Parser, file_name
from ovirt_rdma.engine_sdk_tools.fleet.policy_push import (
    SAME,
    PolicyDrift,
    PolicyPushPlan,
    PolicyPushResult,
    check_policy,
    matrix_of,
)
from ovirt_rdma.engine_sdk_tools.model import OnHost, group_by_sentence, listed
from ovirt_rdma.host.errors import ExitCode
from ovirt_rdma.host.policy.load import parse_policy, read_policy_files

_CHANGES = {
    "changed": "would get this policy",
    "same": "with this policy already",
    "unknown": "with an unknown policy",
}
_PUSHED = {"done": "good", "failed": "bad"}


class Push(EngineVerb, AccessOptions, ChangeOptions):
    """Return 0 if all hosts have loaded the policy, 5 if some, 1 if none."""

    codes = (
        "0 loaded on all hosts, 1 failed, 3 the file has mistakes,\n"
        "4 refused or declined,\n"
        "5 done on some hosts, not on others"
    )
    examples = ("policy.yaml --hosts 'hv*'", "policy.yaml --hosts hv1 --dry-run")
    more = (
        "The policy is validated here first. Each host then reports which\n"
        "policy it uses."
    )

    file: str
    hosts: tuple[str, ...]
    datacenter: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "file", metavar="FILE", type=file_name, help="the policy file"
        )
        add_hosts(parser)
        add_data_center(parser)
        add_change_options(parser)
        add_host_access(parser)

    def run(self, context: Context) -> int:
        output = context.output
        refuse_dumps(self)
        path = Path(self.file)
        text = read_policy_files(path, alone=True).file or ""
        check_policy(text, str(path))  # mistakes come before the login
        ask = Approver(
            self,
            output,
            lambda plan: _lines(plan, path),
            lambda plan: _show_plan(plan, path, output),
        )
        with changing(self, context) as rdma:
            result = rdma.push_policy(
                text,
                *self.hosts,
                where=str(path),
                data_center=self.datacenter,
                approve=ask,
                dry_run=self.dry_run,
            )
        if result is None:
            return 0
        if not result.pushed:
            output.line("There is no host to send the policy to.")
            return 0
        _show_result(ask.plan, result, path, output)
        if not result.failed:
            return 0
        none = len(result.failed) == len(result.pushed)
        return ExitCode.FAILED if none else ExitCode.SOME


class Diff(EngineVerb, AccessOptions):
    """Compare a policy with those of hosts; return 3 if one differs, or unknown."""

    codes = "0 all equal, 1 failed, 3 a host differs or is unknown"
    examples = ("policy.yaml", "policy.yaml --hosts 'hv*' --diff")

    file: str
    hosts: Optional[tuple[str, ...]]
    diff: bool
    datacenter: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "file", metavar="FILE", type=file_name, help="the policy file"
        )
        add_hosts(parser, required=False)
        parser.add_argument(
            "--diff",
            action="store_true",
            help="also show the differences, line by line",
        )
        add_data_center(parser)
        add_host_access(parser)

    def run(self, context: Context) -> int:
        output = context.output
        path = Path(self.file)
        text = read_policy_files(path, alone=True).file or ""
        parse_policy(text, str(path))  # mistakes come before the login
        with open_session(self, output) as session:
            drifts = rdma_engine(self, context, session).compare_policy(
                text, *(self.hosts or ()), where=str(path), data_center=self.datacenter
            )
        if output.for_people:
            _show_drift(drifts, self.diff, output)
        else:
            output.document(
                "policy-diff",
                {"file": str(path), "hosts": [asdict(drift) for drift in drifts]},
            )
        apart = any(drift.verdict != SAME for drift in drifts)
        return ExitCode.CHECKS_FAILED if apart else ExitCode.DONE


def _lines(plan: PolicyPushPlan, path: Path) -> list[str]:
    lines = [f"{path}: {policy_counts(plan.policy)}, {plan.digest}"]
    for change, shown in _CHANGES.items():
        names = [host.name for host in plan.hosts if plan.change(host) == change]
        if names:
            lines.append(f"{count(len(names), 'host')} {shown}: {listed(names)}")
    for effect in plan.effects:
        lines.append(f"{listed(effect.hosts)}:")
        lines += [f"  {sentence}" for sentence in effect.sentences]
    return lines


def _show_plan(plan: PolicyPushPlan, path: Path, output: Output) -> None:
    if output.for_people:
        for line in _lines(plan, path):
            output.text(line)
        return
    hosts = [
        {
            "host": host.name,
            "change": plan.change(host),
            "before": plan.before.get(host.name),
        }
        for host in plan.hosts
    ]
    content = {"dry_run": True, "file": str(path), "digest": plan.digest}
    effects = [asdict(effect) for effect in plan.effects]
    output.document("policy-push", {**content, "hosts": hosts, "effects": effects})


def _show_result(
    plan: PolicyPushPlan, result: PolicyPushResult, path: Path, output: Output
) -> None:
    if not output.for_people:
        keys = ("host", "digest", "problem", "fix")
        hosts = [
            {**{key: getattr(one, key) for key in keys}, "done": not one.problem}
            for one in result.pushed.values()
        ]
        content = {"dry_run": False, "file": str(path), "digest": plan.digest}
        output.document("policy-push", {**content, "hosts": hosts})
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
