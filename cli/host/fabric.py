# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``fabric partitions`` and ``fabric sm``, and ``fabric check``.

All but ``apply``, ``enable`` and ``disable`` only read.
"""

from __future__ import annotations

import difflib
import shlex
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar, Optional

from ovirt_rdma.cli.host.arguments import (
    OTHER_RUN,
    HostVerb,
    add_policy,
)
from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.host.policy import policy_in_question
from ovirt_rdma.cli.host.shown.runs import BACK, RunReport, ThisHost, as_root
from ovirt_rdma.cli.output import Output, count, sentences
from ovirt_rdma.cli.parser import (
    AllowNone,
    Context,
    Parser,
    add_allow_none,
    file_name,
    verdict_code,
)
from ovirt_rdma.host.changes.journal import (
    DONE,
    PARTLY,
    RunResult,
)
from ovirt_rdma.host.changes.run import loaded_policy
from ovirt_rdma.host.errors import ExitCode, Problem, Sentence
from ovirt_rdma.host.fabric.manager import PlannedPort
from ovirt_rdma.host.fabric.partitions import (
    definitions_of,
    findings,
    own_findings,
    remarks,
    text_of,
)
from ovirt_rdma.host.fabric.partitions_conf import (
    INVALID_FIX,
    Definition,
    PartitionsProblem,
    parse,
    render,
)
from ovirt_rdma.host.fabric.subnet import (
    FabricFacts,
    FabricReader,
    LocalPort,
    OpensmProcess,
    Subnet,
)
from ovirt_rdma.host.paths import OPENSM_UNIT, PARTITIONS_FILES, under
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.base import FAIL, PASS, SKIP, WARN
from ovirt_rdma.host.services.opensm import (
    START_TIMEOUT_S,
    SWEEP_TIMEOUT_S,
    OpensmRun,
    Proof,
)
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.host.system.safe_file import read_named
from ovirt_rdma.host.system.signals import delayed_signals
from ovirt_rdma.host.system.tree import FileTree

_VERDICT_TONES = {PASS: "good", WARN: "doubtful", FAIL: "bad"}


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
        text = text_of(definitions)
        if context.output.for_people:
            for line in text.splitlines():
                context.output.line(line)
        else:
            partitions = [asdict(one) for one in definitions]
            content = {"policy": source, "text": text, "partitions": partitions}
            context.output.document("fabric-partitions", content)
        return 0


class Validate(HostVerb):
    """Validate partitions.conf; return 0, or 3 and print all mistakes.

    A default partition that keeps ports from each other is a warning.
    """

    codes = "0 valid, 1 it cannot be read, 3 it has mistakes"
    examples = ("", "partitions.conf")
    more = (
        "opensm exits with 0 for any file, takes what it does not understand\n"
        "for something else, and after some mistakes makes every port a full\n"
        "member of the default partition. All of that is a mistake here."
    )

    file: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        _add_file(parser)

    def run(self, context: Context) -> int:
        name, output = _file(self.file, context), context.output
        errors: tuple[Sentence, ...] = ()
        definitions: tuple[Definition, ...] = ()
        try:
            definitions = parse(_read(name), name)
        except PartitionsProblem as problem:
            errors = problem.reasons
        warnings = () if errors else remarks(definitions)
        if not output.for_people:
            content = {
                "file": name,
                "valid": not errors,
                "errors": sentences(errors),
                "warnings": sentences(warnings),
                "partitions": [asdict(one) for one in definitions],
            }
            output.document("fabric-validate", content)
        else:
            for sentence in (*errors, *(one.about(name) for one in warnings)):
                output.text(f"{sentence} (warning)" if not errors else sentence)
            if errors:
                output.line(f"{name} is invalid: {count(len(errors), 'mistake')}.")
                output.fix(INVALID_FIX)
            else:
                number = len({one.pkey for one in definitions})
                output.line(f"{name} is valid: {count(number, 'partition')}.")
        return ExitCode.CHECKS_FAILED if errors else ExitCode.DONE


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
        desired, source = _of_policy(self.policy, context)
        name, output = _file(self.file, context), context.output
        present = parse(_read(name), name)
        lines: list[str] = []
        if present != desired:
            before, after = (render(one).splitlines() for one in (present, desired))
            lines += difflib.unified_diff(before, after, name, source, lineterm="")
        if not output.for_people:
            content = {
                "file": name,
                "policy": source,
                "same": not lines,
                "diff": lines,
            }
            output.document("fabric-diff", content)
        elif lines:
            for line in lines:
                output.line(line, {"-": "bad", "+": "good"}.get(line[:1]))
            words = ["apply"]
            if self.policy is not None:
                words = ["render", "--policy", self.policy]
            output.next(shlex.join([PROGRAM, "fabric", "partitions", *words]))
        else:
            output.line(f"{name} has the partitions of the policy ({source}).")
        return ExitCode.CHECKS_FAILED if lines and self.exit_code else ExitCode.DONE


class Status(HostVerb):
    """Show each port's subnet managers, and the opensm processes of this host."""

    codes = "0 shown"
    examples = ("", "-o json")

    def run(self, context: Context) -> int:
        fabric, output = _fabric_facts(context), context.output
        if not output.for_people:
            content: dict[str, Any] = {
                "host": fabric.hostname,
                "ports": list(map(_subnet_document, fabric.subnets)),
                "opensm": [
                    {**asdict(one), "ours": one.is_ours} for one in fabric.processes
                ],
            }
            output.document("fabric-sm-status", content)
            return ExitCode.DONE
        _note_problems(fabric, output)
        if not fabric.subnets:
            output.line("This host has no InfiniBand port.")
        else:
            output.table(
                (
                    *("PORT", "GUID", "STATE", "LID"),
                    *("SUBNET MANAGER", "LID", "PRIORITY", "IS"),
                ),
                [row for one in fabric.subnets for row in _rows(one, fabric)],
            )
        for process in fabric.processes:
            output.line(f"opensm is running on this host: {_process(process)}.")
        if not fabric.processes:
            output.line("opensm is not running on this host.")
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
        fabric, output = _fabric_facts(context), context.output
        found = [
            *findings(fabric, definitions_of(policy.fabric)),
            *own_findings(policy.fabric, fabric),
        ]
        verdicts = {one.verdict for one in found}
        if not output.for_people:
            content: dict[str, Any] = {
                "host": fabric.hostname,
                "policy": source,
                "findings": [
                    {"id": getattr(one.sentence, "id", ""), **asdict(one)}
                    for one in found
                ],
            }
            output.document("fabric-check", content)
        else:
            _note_problems(fabric, output)
            widest = max((len(one.subject) for one in found), default=0)
            for one in found:
                output.row(
                    (one.verdict, one.subject, one.sentence),
                    (len(PASS), widest),
                    _VERDICT_TONES.get(one.verdict, ""),
                )
                if one.fix:
                    output.fix(one.fix)
            verdict = "is as it should be"
            if FAIL in verdicts:
                verdict = "is not as it should be"
            elif verdicts <= {SKIP}:
                verdict = "was not checked"
            output.line(f"The fabric of {fabric.hostname} {verdict} ({source}).")
        return verdict_code(
            self, looked_at=not verdicts <= {SKIP}, failed=FAIL in verdicts
        )


class _Changing(HostVerb):
    """A verb that changes this host: recover, decide, carry out, report."""

    # The verb in the journal, the kind of its document, the outcome of a step.
    words: ClassVar[str]
    kind: ClassVar[str]
    word = "done"

    def run(self, context: Context) -> int:
        root, output = context.root, context.output
        as_root(self.words, root)
        report = RunReport(output, word=self.word)
        host = ThisHost(root, self.words, report)
        report.reading()
        host.facts()
        with one_run(root, by=self.words), delayed_signals():
            host.recover()
            result, proof = self.carry_out(OpensmRun(host), report)
        if not output.for_people:
            content = {
                "run": result.run,
                "outcome": result.outcome,
                "sentence": result.sentence,
                "steps": [asdict(line) for line in report.lines],
                "left": [left.document() for left in result.left],
                "notes": [*report.notes, *proof.notes],
                "proven": proof.proven,
                "unlike": sentences(proof.unlike),
            }
            output.document(self.kind, {**content, **self.content()})
        else:
            for note in proof.notes:
                output.message(f"note: {note}")
            output.text(f"{result.sentence}.")
            for left in result.left:
                output.text(f"{left.step} {left.what}: {left.why}".strip())
                output.fix(left.fix)
            if result.outcome == DONE:
                self.tell(proof, output)
        if result.outcome == PARTLY:
            return ExitCode.FAILED
        if result.outcome != DONE:
            return ExitCode.ROLLED_BACK
        return ExitCode.CHECKS_FAILED if proof.proven is False else ExitCode.DONE

    def carry_out(self, run: OpensmRun, report: RunReport) -> tuple[RunResult, Proof]:
        """Do it; the lock is held. Raises Problem."""
        raise NotImplementedError

    def content(self) -> dict[str, Any]:
        """Return what only the document of this verb has."""
        raise NotImplementedError

    def tell(self, proof: Proof, output: Output) -> None:
        """Print what people read after the sentence of a run that is done."""
        raise NotImplementedError


class Apply(_Changing):
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
    words, kind = "fabric partitions apply", "fabric-apply"
    path = ""

    def carry_out(self, run: OpensmRun, report: RunReport) -> tuple[RunResult, Proof]:
        policy = loaded_policy(run.host.root)
        definitions = _definitions(policy.policy, policy.source)
        self.path, step = run.partitions_step(definitions)
        return run.apply(
            step,
            partial(run.partitions_proof, definitions, run.host.facts()),
            policy.digest,
            timeout_s=SWEEP_TIMEOUT_S,
            if_none=f"{self.path} is as the policy says",
        )

    def content(self) -> dict[str, Any]:
        return {"file": self.path}

    def tell(self, proof: Proof, output: Output) -> None:
        if proof.proven:
            output.line("The subnet manager has these partitions.")
        for sentence in proof.unlike:
            output.text(f"{sentence}.")
        if proof.proven is False:
            output.fix(
                "send SIGHUP to opensm, so that it reads the file, and see its log"
            )
        elif proof.unlike:
            output.fix("restart opensm, when no host needs the fabric")


class Enable(_Changing):
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
    words, kind = "fabric sm enable", "fabric-sm-enable"

    def carry_out(self, run: OpensmRun, report: RunReport) -> tuple[RunResult, Proof]:
        policy, facts = loaded_policy(run.host.root), run.host.facts()
        report.reading("asking the subnet manager")
        plan = run.manager_plan(policy.policy.fabric, facts)
        self.ports: tuple[PlannedPort, ...] = plan.ports
        return run.apply(
            plan.step,
            partial(run.manager_proof, plan.ports),
            policy.digest,
            timeout_s=START_TIMEOUT_S,
            if_none="opensm is set up as the policy says",
        )

    def content(self) -> dict[str, Any]:
        ports = [
            {
                "device": one.port.device,
                "port": one.port.number,
                "guid": one.port.guid,
                "priority": one.priority,
                "state": one.state,
                "reason": one.reason,
            }
            for one in self.ports
        ]
        return {"ports": ports}

    def tell(self, proof: Proof, output: Output) -> None:
        for one in self.ports if proof.proven else ():
            why = f"{one.state} at {one.port.title} with priority {one.priority}"
            output.text(f"opensm is {why} ({one.reason}).")
        for sentence in proof.unlike:
            output.text(f"{sentence}.")
        if not proof.proven:
            units = " ".join(OPENSM_UNIT.format(one.port.guid) for one in self.ports)
            output.fix(f"see systemctl status {units}; then: systemctl restart {units}")


class Disable(_Changing):
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
    words, kind = "fabric sm disable", "fabric-sm-disable"
    word = BACK

    def carry_out(self, run: OpensmRun, report: RunReport) -> tuple[RunResult, Proof]:
        fabric = FabricReader(run.tree, run.host.run).facts(run.host.facts())
        ours = {one.guid for one in fabric.ours}
        result = run.disable()
        # The ports behind which ours is the only subnet manager that is known.
        self.alone: list[LocalPort] = [
            one.port
            for one in fabric.subnets
            if result.run is not None
            and one.master
            and one.master.guid in ours
            and len(one.managers or ()) < 2
        ]
        return result, Proof()

    def content(self) -> dict[str, Any]:
        ports = [{"port": one.title, "guid": one.guid} for one in self.alone]
        return {"without_manager": ports}

    def tell(self, proof: Proof, output: Output) -> None:
        for port in self.alone:
            output.text(
                f"No other subnet manager is known at {port.title}: links stay, and "
                "ports that come up later stay INIT."
            )


def _fabric_facts(context: Context) -> FabricFacts:
    host = ThisHost(context.root, "fabric", RunReport(context.output))
    context.output.progress("reading the host")
    facts = host.facts()
    context.output.progress("asking the subnet manager")
    return FabricReader(FileTree(context.root), host.run).facts(facts)


def _note_problems(fabric: FabricFacts, output: Output) -> None:
    for problem in dict.fromkeys(p for one in fabric.subnets for p in one.problems):
        output.message(f"note: {problem}")


def _rows(subnet: Subnet, fabric: FabricFacts) -> list[tuple[str, ...]]:
    port = subnet.port
    own = (port.title, port.guid, port.port.state, str(port.port.lid or "-"))
    managers = subnet.managers or ((subnet.master,) if subnet.master else ())
    if not managers:
        return [(*own, "-", "-", "-", "no answer" if port.port.is_active else "-")]
    rows = []
    for number, one in enumerate(managers):
        where = f"{one.guid} (this host)" if one.guid in fabric.guids else one.guid
        first = own if number == 0 else ("",) * len(own)
        rows.append((*first, where, str(one.lid), str(one.priority), one.state))
    return rows


def _process(process: OpensmProcess) -> str:
    parts = [f"process {process.pid}"]
    if process.guid:
        parts.append(f"port {process.guid}")
    if process.priority is not None:
        parts.append(f"priority {process.priority}")
    if process.partitions:
        parts.append(f"partitions of {process.partitions}")
    if process.is_ours:
        parts.append("started by ovirt-rdma")
    return ", ".join(parts)


def _subnet_document(subnet: Subnet) -> dict[str, Any]:
    port = subnet.port
    return {
        "device": port.device,
        "port": port.number,
        "guid": port.guid,
        "state": port.port.state,
        "lid": port.port.lid,
        "master": subnet.master and asdict(subnet.master),
        "managers": subnet.managers and [asdict(one) for one in subnet.managers],
        "groups": subnet.groups and [asdict(one) for one in subnet.groups],
        "problems": sentences(subnet.problems),
    }


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
