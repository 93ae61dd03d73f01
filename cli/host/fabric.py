# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``fabric partitions`` and ``fabric sm``, and ``fabric check``.

All but ``apply``, ``enable`` and ``disable`` only read.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Optional

from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.host.arguments import (
    OTHER_RUN,
    HostVerb,
    add_facts,
    add_policy,
    refuse_facts,
)
from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.host.policy import policy_in_question
from ovirt_rdma.cli.host.shown.fabric import (
    show_applied,
    show_diff,
    show_findings,
    show_rendered,
    show_status,
    show_validated,
)
from ovirt_rdma.cli.host.shown.manager import show_disabled, show_enabled
from ovirt_rdma.cli.host.shown.runs import BACK, RunReport, ThisHost, as_root
from ovirt_rdma.cli.parser import Parser, file_name
from ovirt_rdma.cli.verdict import AllowNone, add_allow_none, verdict_code
from ovirt_rdma.host.changes.kinds.model import DONE, PARTLY, RunResult
from ovirt_rdma.host.changes.prepare import loaded_policy
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.parsers.ibnetdiscover import fabric_ports
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.exit_code import ExitCode
from ovirt_rdma.host.fabric.grammar import PartitionsProblem, parse
from ovirt_rdma.host.fabric.model import Definition
from ovirt_rdma.host.fabric.render import render
from ovirt_rdma.host.fabric.review import FabricPort, ports_of, remarks
from ovirt_rdma.host.facts.dump import load
from ovirt_rdma.host.opensm.partitions import definitions_of
from ovirt_rdma.host.opensm.read import FabricFacts, FabricReader
from ovirt_rdma.host.opensm.review import findings, own_findings, unmanaged
from ovirt_rdma.host.paths import PARTITIONS_FILES, under
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.base import FAIL, SKIP
from ovirt_rdma.host.services.opensm_manager import ManagerRun
from ovirt_rdma.host.services.opensm_partitions import PartitionsRun
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.host.system.safe_file import read_named
from ovirt_rdma.host.system.signals import delayed_signals
from ovirt_rdma.host.system.tree import FileTree


class Render(HostVerb):
    """Print partitions.conf as the policy describes it."""

    codes = "0 printed, 1 the policy has no partitions"
    examples = ("", "--policy new.yaml")

    policy: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_policy(parser)

    def run(self, context: Context) -> int:
        definitions, source = _of_policy(self.policy, context)
        show_rendered(definitions, source, context.output)
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
        name = _file(self.file, context)
        data = _read(name)
        ports = self._ports(context)
        errors: tuple[Sentence, ...] = ()
        warnings: tuple[Sentence, ...] = ()
        definitions: tuple[Definition, ...] = ()
        try:
            definitions = parse(data, name)
            warnings = remarks(definitions, ports, whole=self.topology is not None)
        except PartitionsProblem as problem:
            errors = problem.reasons
        show_validated(name, definitions, errors, warnings, context.output)
        return ExitCode.CHECKS_FAILED if errors else ExitCode.DONE

    def _ports(self, context: Context) -> tuple[FabricPort, ...]:
        """Return the ports of the topology, and those of this host or facts file."""
        found = () if self.topology is None else _ports(self.topology)
        if self.facts is not None:
            found += ports_of(load(self.facts))
        elif self.file is None:
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
        wanted, source = _of_policy(self.policy, context)
        name = _file(self.file, context)
        lines = _diff(parse(_read(name), name), wanted, name, source)
        words = (
            ["apply"] if self.policy is None else ["render", "--policy", self.policy]
        )
        show_diff(lines, name, source, words, context.output)
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
            return _code_of(result)
        return ExitCode.CHECKS_FAILED if proof.proven is False else ExitCode.DONE


class Status(HostVerb):
    """Show each port's subnet managers, and the opensm processes of this host."""

    codes = "0 shown"
    examples = ("", "-o json")

    def run(self, context: Context) -> int:
        show_status(_fabric_facts(context), context.output)
        return ExitCode.DONE


class Check(HostVerb, AllowNone):
    """Check the fabric at each port; return 3 if something is not as it should be."""

    codes = "0 all is as it should be, 3 something is not, or there is no active port"
    examples = ("", "--policy new.yaml")

    policy: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_policy(parser)
        add_allow_none(parser, "active InfiniBand port")

    def run(self, context: Context) -> int:
        policy, source = policy_in_question(self.policy, context)
        fabric = _fabric_facts(context)
        found = (
            *findings(fabric, definitions_of(policy.fabric)),
            *own_findings(policy.fabric, fabric),
        )
        show_findings(found, fabric, source, context.output)
        return verdict_code(
            self,
            looked_at=any(one.verdict != SKIP for one in found),
            failed=any(one.verdict == FAIL for one in found),
        )


class Enable(HostVerb):
    """Run opensm on this host as the policy says, and prove that it is what it says."""

    codes = (
        "0 done or nothing to do, 1 failed, 3 opensm is not as the policy says,\n"
        f"4 refused, 6 failed, and everything was rolled back, {OTHER_RUN}"
    )
    examples = ("", "-o json")
    more = (
        "Reads the loaded policy (fabric.subnet_managers). Refused if the policy\n"
        "does not name this host, or if the fabric has a subnet manager that the\n"
        "policy does not know of. A subnet manager on the switch is preferred."
    )

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        refuse_facts(parser)

    def run(self, context: Context) -> int:
        root = context.root
        as_root("fabric sm enable", root)
        host, report = ThisHost(root), RunReport(context.output)
        report.reading()
        host.facts()
        with one_run(root, by="fabric sm enable"), delayed_signals():
            host.recover(report)
            policy, facts = loaded_policy(root), host.facts()
            run = _manager_run(host, report)
            report.reading("asking the subnet manager")
            plan = run.plan(policy.policy.fabric, facts)
            if plan.step is None:
                result = RunResult(None, DONE, "opensm is set up as the policy says")
                proof = run.prove(plan.ports)
            else:
                by = f"{PROGRAM} fabric sm enable"
                result, proof = run.apply(plan.step, plan.ports, policy, facts, by)
                host.finish(report)
        show_enabled(plan, result, proof, report, context.output)
        if result.outcome != DONE:
            return _code_of(result)
        return ExitCode.DONE if proof.proven else ExitCode.CHECKS_FAILED


class Disable(HostVerb):
    """Undo enable; a second run changes nothing."""

    codes = (
        "0 done or nothing to do, 1 something could not be undone, 4 refused,\n"
        f"{OTHER_RUN}"
    )
    examples = ("",)
    more = (
        "Links and traffic stay as they are. Without another subnet manager, a\n"
        "port that comes up later stays without an address (INIT)."
    )

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        refuse_facts(parser)

    def run(self, context: Context) -> int:
        root = context.root
        as_root("fabric sm disable", root)
        host, report = ThisHost(root), RunReport(context.output, word=BACK)
        report.reading()
        host.facts()
        with one_run(root, by="fabric sm disable"), delayed_signals():
            host.recover(report)
            lonely = unmanaged(_fabric_facts(context, host))
            run = _manager_run(host, report)
            result = run.disable(host.facts(), f"{PROGRAM} fabric sm disable")
            if result.run is not None:
                host.finish(report)
        show_disabled(result, lonely, report, context.output)
        return ExitCode.DONE if result.outcome == DONE else ExitCode.FAILED


def _manager_run(host: ThisHost, report: RunReport) -> ManagerRun:
    return ManagerRun(host.root, host.run, host.effects, host.journal, report)


def _code_of(result: RunResult) -> int:
    failed = result.outcome == PARTLY
    return ExitCode.FAILED if failed else ExitCode.ROLLED_BACK


def _fabric_facts(context: Context, host: Optional[ThisHost] = None) -> FabricFacts:
    host = host or ThisHost(context.root)
    context.output.progress("reading the host")
    facts = host.facts()
    context.output.progress("asking the subnet manager")
    return FabricReader(FileTree(context.root), host.run).facts(facts)


def _add_file(parser: Parser) -> None:
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=file_name,
        help=f"the file of opensm; default: {' or '.join(PARTITIONS_FILES)}",
    )


def _file(file: Optional[str], context: Context) -> str:
    if file is not None:
        return file
    paths = [under(context.root, path) for path in PARTITIONS_FILES]
    return str(next((path for path in paths if path.exists()), paths[0]))


def _read(name: str) -> bytes:
    try:
        return read_named(name)
    except OSError as error:
        raise Problem(
            "file-unreadable",
            f"{name} cannot be read: {error.strerror}",
            "name the file that opensm reads: opensm(8), option -P",
        ) from error


def _ports(topology: str) -> tuple[FabricPort, ...]:
    try:
        return fabric_ports(_read(topology).decode("utf-8", "replace"))
    except ValueError as error:
        raise Problem(
            "topology-invalid",
            f"{topology} is not from ibnetdiscover: {error}",
            "on a host of the fabric, write the output of ibnetdiscover to a file",
        ) from error


def _of_policy(
    policy: Optional[str], context: Context
) -> tuple[tuple[Definition, ...], str]:
    found, source = policy_in_question(policy, context)
    return _definitions(found, source), source


def _definitions(policy: Policy, source: str) -> tuple[Definition, ...]:
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
    if tuple(present) == tuple(wanted):
        return []
    before, after = render(present).splitlines(), render(wanted).splitlines()
    return list(difflib.unified_diff(before, after, name, source, lineterm=""))
