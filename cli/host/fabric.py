# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``fabric partitions`` and ``fabric sm``, and ``fabric check``.

All but ``apply``, ``enable`` and ``disable`` only read.
"""

from __future__ import annotations

from ovirt_rdma.cli.host.arguments import (
    OTHER_RUN,
    HostVerb,
    add_facts,
    add_policy,
    refuse_facts,
)
from ovirt_rdma.cli.output import count
from ovirt_rdma.cli.parser import Parser, Verb, file_name
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.exit_code import ExitCode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Optional

    from ovirt_rdma.cli.context import Context
    from ovirt_rdma.host.errors import Sentence
    from ovirt_rdma.host.fabric.model import Definition
    from ovirt_rdma.host.fabric.review import FabricPort
    from ovirt_rdma.host.opensm.read import FabricFacts
    from ovirt_rdma.host.policy.model import Policy


class Render(HostVerb):
    """Print partitions.conf as the policy describes it."""

    codes = "0 printed, 1 the policy has no partitions"
    examples = ("", "--policy new.yaml")

    policy: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_policy(parser)

    def run(self, context: Context) -> int:
        from dataclasses import asdict

        from ovirt_rdma.host.opensm.partitions import text_of

        definitions, source = _of_policy(self.policy, context)
        text = text_of(definitions)
        if context.output.for_people:
            for line in text.splitlines():
                context.output.line(line)
        else:
            context.output.document(
                "fabric-partitions",
                {
                    "policy": source,
                    "text": text,
                    "partitions": [asdict(one) for one in definitions],
                },
            )
        return 0


class Validate(HostVerb):
    """Validate partitions.conf; return 0, or 3 and print all mistakes.

    What is valid and may not be meant is a warning.
    """

    codes = "0 valid, 1 it cannot be read, 3 it has mistakes"
    examples = ("", "partitions.conf --topology ibnetdiscover.txt")
    more = (
        "opensm exits with 0 for any file, takes what it does not understand\n"
        "for something else, and after some mistakes makes every port a full\n"
        "member of the default partition. All of that is a mistake here."
    )

    file: Optional[str]
    topology: Optional[str]
    facts: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        _add_file(parser)
        parser.add_argument(
            "--topology",
            metavar="FILE",
            type=file_name,
            help="the output of ibnetdiscover: also report GUIDs that the fabric does "
            "not have, and ports that are too slow for a group",
        )
        add_facts(parser)

    def run(self, context: Context) -> int:
        from dataclasses import asdict

        from ovirt_rdma.host.fabric.grammar import PartitionsProblem, parse
        from ovirt_rdma.host.fabric.review import remarks

        output = context.output
        name = _file(self.file, context)
        data = _read(name)
        ports = self._ports(context)
        errors: tuple[Sentence, ...] = ()
        warnings: tuple[Sentence, ...] = ()
        definitions: tuple[Definition, ...] = ()
        fix = ""
        try:
            definitions = parse(data, name)
            warnings = remarks(definitions, ports, whole=self.topology is not None)
        except PartitionsProblem as problem:
            errors, fix = problem.reasons, problem.fix
        partitions = {one.pkey for one in definitions}
        if output.for_people:
            for sentence in errors:
                output.text(sentence)
            for sentence in warnings:
                output.text(f"{name}: {sentence} (warning)")
            if errors:
                output.line(f"{name} is invalid: {count(len(errors), 'mistake')}.")
                output.fix(fix)
            else:
                output.line(f"{name} is valid: {count(len(partitions), 'partition')}.")
        else:
            output.document(
                "fabric-validate",
                {
                    "file": name,
                    "valid": not errors,
                    "errors": list(map(_remark, errors)),
                    "warnings": list(map(_remark, warnings)),
                    "partitions": [asdict(one) for one in definitions],
                },
            )
        return ExitCode.CHECKS_FAILED if errors else ExitCode.DONE

    def _ports(self, context: Context) -> tuple[FabricPort, ...]:
        """Return the ports of the topology, and those of this host or facts file."""
        from ovirt_rdma.host.fabric.review import ports_of

        found = () if self.topology is None else _ports(self.topology)
        if self.facts is not None:
            from ovirt_rdma.host.facts.dump import load

            found += ports_of(load(self.facts))
        elif self.file is None:
            from ovirt_rdma.host.collect.collector import HostReader

            found += ports_of(HostReader(context.root).facts())
        return found


class Diff(HostVerb):
    """Compare partitions.conf with the policy, by its meaning."""

    codes = "0 compared; with --exit-code 3 if they differ"
    examples = ("", "partitions.conf --policy new.yaml --exit-code")
    more = "Comments, spaces and the way in which numbers are written do not count."

    file: Optional[str]
    policy: Optional[str]
    exit_code: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        _add_file(parser)
        add_policy(parser)
        parser.add_argument(
            "--exit-code", action="store_true", help="exit with 3 if they differ"
        )

    def run(self, context: Context) -> int:
        from ovirt_rdma.host.fabric.grammar import parse

        output = context.output
        wanted, source = _of_policy(self.policy, context)
        name = _file(self.file, context)
        lines = _diff(parse(_read(name), name), wanted, name, source)
        if not output.for_people:
            output.document(
                "fabric-diff",
                {"file": name, "policy": source, "same": not lines, "diff": lines},
            )
        elif lines:
            for line in lines:
                output.line(line, {"-": "bad", "+": "good"}.get(line[:1]))
            import shlex

            from ovirt_rdma.cli.host.main import PROGRAM

            verb = "apply" if self.policy is None else "render"
            words = [PROGRAM, "fabric", "partitions", verb]
            if self.policy is not None:
                words += ["--policy", self.policy]
            output.next(shlex.join(words))
        else:
            output.line(f"{name} has the partitions of the policy ({source}).")
        return ExitCode.CHECKS_FAILED if lines and self.exit_code else ExitCode.DONE


class Apply(HostVerb):
    """Write partitions.conf as the policy says, and let opensm read it."""

    codes = (
        "0 done or nothing to do, 1 failed, 3 opensm has not what the file says,\n"
        f"4 refused, 6 failed, and everything was rolled back, {OTHER_RUN}"
    )
    examples = ("",)
    more = (
        "Reads the loaded policy. The earlier file is in the journal; revert\n"
        "restores it."
    )

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        refuse_facts(parser)

    def run(self, context: Context) -> int:
        from ovirt_rdma.cli.host.main import PROGRAM
        from ovirt_rdma.cli.host.shown.fabric import show_applied
        from ovirt_rdma.cli.host.shown.runs import RunReport, ThisHost, as_root
        from ovirt_rdma.host.changes.kinds.model import DONE, PARTLY, RunResult
        from ovirt_rdma.host.changes.prepare import loaded_policy
        from ovirt_rdma.host.services.opensm_partitions import PartitionsRun
        from ovirt_rdma.host.system.lock import one_run
        from ovirt_rdma.host.system.signals import delayed_signals

        root, output = context.root, context.output
        as_root("fabric partitions apply", root)
        host, report = ThisHost(root), RunReport(output)
        report.reading()
        host.facts()
        with one_run(root, by="fabric partitions apply"), delayed_signals():
            host.recover(report)
            policy, facts = loaded_policy(root), host.facts()
            definitions = _definitions(policy.policy, policy.source)
            run = PartitionsRun(root, host.run, host.effects, host.journal, report)
            path, step = run.step(definitions)
            if step is None:
                result = RunResult(None, DONE, f"{path} is as the policy says")
                proof = run.prove(definitions, facts)
            else:
                by = f"{PROGRAM} fabric partitions apply"
                result, proof = run.apply(step, definitions, policy, facts, by)
                host.finish(report)
        show_applied(result, proof, path, report, output)
        if result.outcome != DONE:
            failed = result.outcome == PARTLY
            return ExitCode.FAILED if failed else ExitCode.ROLLED_BACK
        return ExitCode.CHECKS_FAILED if proof.proven is False else ExitCode.DONE


class Status(HostVerb):
    """Show each port's subnet managers, and the opensm processes of this host."""

    codes = "0 shown"
    examples = ("", "-o json")

    def run(self, context: Context) -> int:
        from ovirt_rdma.cli.host.shown.fabric import show_status

        show_status(_fabric_facts(context), context.output)
        return ExitCode.DONE


class Check(HostVerb):
    """Check the fabric at each port; return 3 if something is not as it should be."""

    codes = "0 all is as it should be, 3 something is not"
    examples = ("", "--policy new.yaml")

    policy: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_policy(parser)

    def run(self, context: Context) -> int:
        from ovirt_rdma.cli.host.policy import policy_in_question
        from ovirt_rdma.cli.host.shown.fabric import show_findings
        from ovirt_rdma.host.opensm.partitions import definitions_of
        from ovirt_rdma.host.opensm.review import findings
        from ovirt_rdma.host.rules.base import FAIL

        policy, source = policy_in_question(self.policy, context)
        fabric = _fabric_facts(context)
        found = findings(fabric, definitions_of(policy.fabric))
        show_findings(found, fabric, source, context.output)
        failed = any(one.verdict == FAIL for one in found)
        return ExitCode.CHECKS_FAILED if failed else ExitCode.DONE


VERBS: dict[str, type[Verb]] = {
    "render": Render,
    "validate": Validate,
    "diff": Diff,
    "apply": Apply,
    "status": Status,
    "check": Check,
}


def _fabric_facts(context: Context) -> FabricFacts:
    from ovirt_rdma.cli.host.shown.runs import ThisHost
    from ovirt_rdma.host.opensm.read import FabricReader
    from ovirt_rdma.host.system.tree import FileTree

    host = ThisHost(context.root)
    context.output.progress("reading the host")
    facts = host.facts()
    context.output.progress("asking the subnet manager")
    return FabricReader(FileTree(context.root), host.run).facts(facts)


def _add_file(parser: Parser) -> None:
    from ovirt_rdma.host.paths import PARTITIONS_FILES

    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=file_name,
        help=f"the file of opensm; default: {' or '.join(PARTITIONS_FILES)}",
    )


def _file(file: Optional[str], context: Context) -> str:
    from ovirt_rdma.host.paths import PARTITIONS_FILES, under

    if file is not None:
        return file
    paths = [under(context.root, path) for path in PARTITIONS_FILES]
    return str(next((path for path in paths if path.exists()), paths[0]))


def _read(name: str) -> bytes:
    from ovirt_rdma.host.system.safe_file import read_named

    try:
        return read_named(name)
    except OSError as error:
        raise Problem(
            "file-unreadable",
            f"{name} cannot be read: {error.strerror}",
            "name the file that opensm reads: opensm(8), option -P",
        ) from error


def _ports(topology: str) -> tuple[FabricPort, ...]:
    from ovirt_rdma.host.collect.parsers.ibnetdiscover import fabric_ports

    try:
        return fabric_ports(_read(topology).decode("utf-8", "replace"))
    except ValueError as error:
        raise Problem(
            "topology-invalid",
            f"{topology} is not from ibnetdiscover: {error}",
            "make it on a host of the fabric: ibnetdiscover > FILE",
        ) from error


def _of_policy(
    policy: Optional[str], context: Context
) -> tuple[tuple[Definition, ...], str]:
    from ovirt_rdma.cli.host.policy import policy_in_question

    found, source = policy_in_question(policy, context)
    return _definitions(found, source), source


def _definitions(policy: Policy, source: str) -> tuple[Definition, ...]:
    from ovirt_rdma.host.opensm.partitions import definitions_of

    definitions = definitions_of(policy.fabric)
    if not definitions:
        raise Problem(
            "policy-without-partitions",
            f"the policy has no partitions ({source})",
            "write fabric.partitions: ovirt-rdma-policy(5)",
        )
    return definitions


def _diff(
    present: Sequence[Definition], wanted: Sequence[Definition], name: str, source: str
) -> list[str]:
    import difflib

    from ovirt_rdma.host.fabric.render import render

    if tuple(present) == tuple(wanted):
        return []
    before, after = render(present).splitlines(), render(wanted).splitlines()
    return list(difflib.unified_diff(before, after, name, source, lineterm=""))


def _remark(sentence: Sentence) -> dict[str, str]:
    return {"id": sentence.id, "sentence": sentence}
