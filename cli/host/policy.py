# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``policy init``, ``check``, ``load`` and ``show``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Optional

from ovirt_rdma.cli.host.arguments import OTHER_RUN, HostVerb, add_facts, add_policy
from ovirt_rdma.cli.output import count
from ovirt_rdma.cli.parser import (
    Approval,
    Context,
    Parser,
    add_assume_yes,
    approve,
    file_name,
)
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.storage import MOUNTINFO
from ovirt_rdma.host.errors import NOTHING_CHANGED, ExitCode
from ovirt_rdma.host.facts.model import load as load_facts
from ovirt_rdma.host.paths import POLICY_JSON, POLICY_YAML, under
from ovirt_rdma.host.policy.forms import Diagnostic, PolicyProblem
from ovirt_rdma.host.policy.load import PolicyFile, load_policy_file
from ovirt_rdma.host.policy.model import (
    TCP,
    Policy,
    RuleChange,
    differing_lines,
    digest,
    rule_changes,
    said_by,
    to_json_dict,
)
from ovirt_rdma.host.policy.store import in_force, store
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.storage.policy_proposal import proposed


def policy_counts(policy: Policy) -> str:
    """Return ``2 NFS rules, 1 interface``; without host settings that are not used."""
    host = policy.host
    settings = (
        (host.interfaces, "interface"),
        (host.modules, "module"),
        (host.module_options, "module option"),
        (host.virtual_functions, "VF rule"),
        (policy.fabric.partitions, "partition"),
        (policy.block.srp, "SRP target"),
        (policy.block.iser, "iSER target"),
    )
    used = [count(len(each), noun) for each, noun in settings if each]
    return ", ".join([count(len(policy.nfs.rules), "NFS rule"), *used])


class Check(HostVerb):
    """Validate a policy file; return 0, or 3 and print all mistakes.

    Raises PolicyProblem if the file cannot be read.
    """

    codes = "0 valid, 1 it cannot be read, 3 it has mistakes"
    examples = ("", "new.yaml")

    file: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        _add_file(parser)

    def run(self, context: Context) -> int:
        output = context.output
        path = _file(self.file, context)
        errors: tuple[Diagnostic, ...] = ()
        warnings: tuple[Diagnostic, ...] = ()
        drop_ins: tuple[str, ...] = ()
        fix, counts = "", ""
        try:
            loaded = load_policy_file(path)
            warnings = loaded.warnings
            counts, drop_ins = policy_counts(loaded.policy), loaded.drop_ins
        except PolicyProblem as problem:
            if problem.exit_code == ExitCode.FAILED:
                raise
            errors, fix = problem.errors, problem.fix
        if output.for_people:
            for remark in errors:
                output.line(remark.at(str(path)))
            for remark in warnings:
                output.line(f"{remark.at(str(path))} (warning)")
            if errors:
                output.line(f"{path} is invalid: {count(len(errors), 'mistake')}.")
                output.fix(fix)
            else:
                output.line(f"{path}{_with(drop_ins)} is valid: {counts}.")
        else:
            output.document(
                "policy-check",
                {
                    "file": str(path),
                    "drop_ins": list(drop_ins),
                    "in_order": not errors,
                    "errors": [_remark(one, path) for one in errors],
                    "warnings": [_remark(one, path) for one in warnings],
                },
            )
        return ExitCode.CHECKS_FAILED if errors else ExitCode.DONE


def _remark(remark: Diagnostic, path: Path) -> dict[str, object]:
    file = remark.file or str(path)
    return {"id": remark.sentence.id, **remark._replace(file=file)._asdict()}


def _with(drop_ins: Sequence[str]) -> str:
    return f" with {count(len(drop_ins), 'drop-in')}" if drop_ins else ""


class Load(HostVerb, Approval):
    """Validate a policy file and load it, and show what that changes."""

    codes = (
        "0 loaded,\n"
        "1 it cannot be read, is writable by others than root, or not stored,\n"
        f"3 it has mistakes, 4 declined, {OTHER_RUN}"
    )
    examples = ("", "new.yaml --dry-run", "new.yaml -y")
    more = (
        "vdsmd uses the policy from its next connect on. Existing mounts stay\n"
        "as they are. Asks first if another rule, or none, would win for an\n"
        "export that is mounted and has a rule now."
    )

    file: Optional[str]
    dry_run: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        _add_file(parser)
        parser.add_argument(
            "-n", "--dry-run", action="store_true", help="show what would change"
        )
        add_assume_yes(parser)

    def run(self, context: Context) -> int:
        output = context.output
        path = _file(self.file, context)
        loaded = load_policy_file(path, own=True)
        _warn(loaded, path, context)
        effect = _Effect(loaded.policy, context)
        if output.for_people:
            for line in effect.shown:
                output.text(line)
        changed = effect.changed
        notes: list[str] = []
        if not self.dry_run:
            if effect.doubts:
                shown = () if output.for_people else effect.shown
                approve(self, output, shown, effect.doubts)
            source, target = str(path.absolute()), under(context.root, POLICY_JSON)
            with one_run(context.root, by="policy load"):
                changed, notes = store(loaded.policy, source, target)
        for remark in notes:
            output.message(f"warning: {remark}")
        policy, new = loaded.policy, digest(loaded.policy)
        if not output.for_people:
            output.document(
                "policy-load",
                {
                    "dry_run": self.dry_run,
                    "file": str(path),
                    "drop_ins": list(loaded.drop_ins),
                    "changed": changed,
                    "digest": new,
                    # To compare it with a file for many hosts: drop-ins are the host's.
                    "file_digest": digest(loaded.alone),
                    "rules": len(policy.nfs.rules),
                    "notes": notes,
                    "differences": list(effect.lines),
                    "rule_changes": [asdict(change) for change in effect.changes],
                    "doubts": list(effect.doubts),
                },
            )
        elif self.dry_run:
            output.line(NOTHING_CHANGED)
        else:
            verb = "is loaded" if changed else "was already loaded"
            what = f"{policy_counts(policy)}, {new}"
            output.line(f"{path}{_with(loaded.drop_ins)} {verb}: {what}.")
        return ExitCode.DONE


class _Effect:
    """What ``new`` changes against the policy in force on this host."""

    def __init__(self, new: Policy, context: Context) -> None:
        stored = in_force(under(context.root, POLICY_JSON)).stored
        present = stored.policy if stored else Policy()
        # Without an earlier one all is new.
        self.lines = differing_lines(present, new) if stored else ()
        self.changed = stored is None or stored.digest != digest(new)
        self.changes: tuple[RuleChange, ...] = ()
        problems: list[str] = []
        if present.nfs != new.nfs:
            mounts = HostReader(context.root).nfs_mounts(problems)
            exports = {one.source: f"mounted at {one.mountpoint}" for one in mounts}
            self.changes = rule_changes(present, new, exports)
        unread = [one for one in problems if present.nfs.rules and MOUNTINFO in one]
        self.doubts = (
            *(str(change) for change in self.changes if change.loses),
            *(f"not all mounts are known: {problem}" for problem in unread),
        )

    @property
    def shown(self) -> tuple[str, ...]:
        """The differences for people, line by line; the doubts are last."""
        gained = [str(change) for change in self.changes if not change.loses]
        return (*self.lines, *gained, *self.doubts)


class Init(HostVerb):
    """Print a commented policy for what is mounted and plugged in now."""

    codes = "0 printed"
    examples = ("> policy.yaml", "--facts hv1.json")
    more = (
        "Changes nothing. Names the exports that are reached by an RDMA port, with\n"
        "prefer-rdma, and the InfiniBand ports that are up, and says why each line\n"
        "is there and what is left out."
    )

    facts: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_facts(parser)

    def run(self, context: Context) -> int:
        output = context.output
        if self.facts is None:
            facts = HostReader(context.root).facts()
        else:
            facts = load_facts(self.facts)
        for sentence in facts.problems:
            output.message(f"note: {sentence}")
        text = proposed(facts)
        if not output.for_people:
            output.document("policy-proposal", {"text": text})
            return ExitCode.DONE
        for line in text.splitlines():
            output.line(line)
        return ExitCode.DONE


class Show(HostVerb):
    """Show the whole policy."""

    codes = "0 printed"
    examples = ("", "--policy new.yaml")
    more = "nfs check names the rule for an export."

    policy: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_policy(parser)

    def run(self, context: Context) -> int:
        policy, source = policy_in_question(self.policy, context)
        output, rules = context.output, policy.nfs.rules
        if not output.for_people:
            output.document("policy", {"source": source, **to_json_dict(policy)})
            return ExitCode.DONE
        if rules:
            output.table(
                ("RULE", "SERVER", "PATH", "TRANSPORT", "PORT", "OPTIONS"),
                [
                    (
                        *(one.name, one.server, one.path, one.transport),
                        "-" if one.transport == TCP else str(one.port),
                        one.options or "-",
                    )
                    for one in rules
                ],
            )
            order = "; the first that names an export wins" if len(rules) > 1 else ""
            output.line(f"{count(len(rules), 'NFS rule')}{order} ({source}).")
        else:
            output.line(f"No NFS rule: VDSM mounts every export as stock ({source}).")
        for line in said_by(policy):
            if not line.startswith("nfs.rules:"):
                output.line(line)
        return ExitCode.DONE


def _add_file(parser: Parser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=file_name,
        help=f"the policy file; default: {POLICY_YAML}",
    )


def policy_in_question(file: Optional[str], context: Context) -> tuple[Policy, str]:
    """Return the policy in ``file``, or the loaded one, and where it is from.

    Warnings about a policy file go to stderr.
    """
    output = context.output
    if file is not None:
        path = Path(file)
        loaded = load_policy_file(path)
        _warn(loaded, path, context)
        return loaded.policy, str(path)
    current = in_force(under(context.root, POLICY_JSON))
    stored, problem = current.stored, current.problem
    if problem is not None and stored is None:
        raise problem
    if problem is not None:
        output.message(f"warning: {problem}; {current.consequence}; fix: {problem.fix}")
    if stored is None:
        return Policy(), "no policy is loaded"
    copy = ", from its copy" if problem else ""
    return stored.policy, f"{stored.source}, loaded {stored.loaded_at}{copy}"


def _file(file: Optional[str], context: Context) -> Path:
    return under(context.root, POLICY_YAML) if file is None else Path(file)


def _warn(loaded: PolicyFile, path: Path, context: Context) -> None:
    for remark in loaded.warnings:
        context.output.message(f"warning: {remark.at(str(path))}")
