# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``fabric partitions`` and ``fabric sm``, and ``fabric check``.

All but ``apply``, ``enable`` and ``disable`` only read.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar, NamedTuple, Optional

from ovirt_rdma.cli.host.arguments import OTHER_RUN, HostVerb, add_policy, as_root
from ovirt_rdma.cli.host.policy import policy_in_question
from ovirt_rdma.cli.host.runs import BACK, RunReport, ThisHost
from ovirt_rdma.cli.output import count, sentences
from ovirt_rdma.cli.parser import (
    AllowNone,
    Context,
    Parser,
    add_allow_none,
    file_name,
    verdict_code,
)
from ovirt_rdma.host.changes.journal import DONE, PARTLY, RunResult
from ovirt_rdma.host.changes.run import loaded_policy
from ovirt_rdma.host.errors import ExitCode, Problem
from ovirt_rdma.host.fabric.decisions import (
    definitions_of,
    findings,
    remarks,
)
from ovirt_rdma.host.fabric.partitions_conf import Definition, parse, render
from ovirt_rdma.host.fabric.subnet import FabricReader
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
        policy, source = policy_in_question(self.policy, context)
        definitions = _definitions(policy, source)
        text = render(definitions)
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
        parser.add_argument(
            "file",
            metavar="FILE",
            nargs="?",
            type=file_name,
            help=f"the file of opensm; default: {' or '.join(PARTITIONS_FILES)}",
        )

    def run(self, context: Context) -> int:
        output = context.output
        paths = [under(context.root, path) for path in PARTITIONS_FILES]
        present = next((path for path in paths if path.exists()), paths[0])
        name = self.file or str(present)
        try:
            data = read_named(name)
        except OSError as error:
            raise Problem(
                "file-unreadable",
                f"{name} cannot be read: {error.strerror}",
                "name the file that opensm reads: opensm(8), option -P",
            ) from error
        definitions = parse(data, name)
        warnings = remarks(definitions)
        if not output.for_people:
            content = {
                "file": name,
                "warnings": sentences(warnings),
                "partitions": [asdict(one) for one in definitions],
            }
            output.document("fabric-validate", content)
        else:
            for sentence in warnings:
                output.text(f"{name}: {sentence} (warning)")
            number = len({one.pkey for one in definitions})
            output.line(f"{name} is valid: {count(number, 'partition')}.")
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
        output = context.output
        host = ThisHost(context.root, "fabric", RunReport(output))
        output.progress("reading the host")
        facts = host.facts()
        output.progress("asking the subnet manager")
        fabric = FabricReader(FileTree(context.root), host.run).facts(facts)
        found = [*findings(policy.fabric, fabric)]
        verdicts = {one.verdict for one in found}
        if not output.for_people:
            content: dict[str, Any] = {
                "host": fabric.hostname,
                "policy": source,
                "findings": [asdict(one) for one in found],
            }
            output.document("fabric-check", content)
        else:
            problems = [p for one in fabric.subnets for p in one.problems]
            for problem in dict.fromkeys(problems):
                output.message(f"note: {problem}")
            widest = max((len(one.subject) for one in found), default=0)
            for one in found:
                output.row(
                    (one.verdict, one.subject, one.sentence),
                    (len(PASS), widest),
                    _VERDICT_TONES.get(one.verdict, ""),
                )
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


class _Outcome(NamedTuple):
    """The end of a run: ``content`` is what only the document of its verb has,
    ``said`` and ``fix`` are for people, if it is done.
    """

    result: RunResult
    proof: Proof
    content: dict[str, Any]
    said: list[str]
    fix: str = ""


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
            outcome = self.carry_out(OpensmRun(host), report)
        result, proof = outcome.result, outcome.proof
        if not output.for_people:
            content = {
                **report.document(result),
                "notes": [*report.notes, *proof.notes],
                "proven": proof.proven,
                "unlike": sentences(proof.unlike),
            }
            output.document(self.kind, {**content, **outcome.content})
        else:
            for note in proof.notes:
                output.message(f"note: {note}")
            output.text(f"{result.sentence}.")
            for left in result.left:
                output.text(f"{left.step} {left.what}: {left.why}".strip())
                output.fix(left.fix)
            if result.outcome == DONE:
                for text in (*outcome.said, *(f"{one}." for one in proof.unlike)):
                    output.text(text)
                output.fix(outcome.fix)
        if result.outcome == PARTLY:
            return ExitCode.FAILED
        if result.outcome != DONE:
            return ExitCode.ROLLED_BACK
        return ExitCode.CHECKS_FAILED if proof.proven is False else ExitCode.DONE

    def carry_out(self, run: OpensmRun, report: RunReport) -> _Outcome:
        """Do it; the lock is held. Raises Problem."""
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

    def carry_out(self, run: OpensmRun, report: RunReport) -> _Outcome:
        policy = loaded_policy(run.host.root)
        definitions = _definitions(policy.policy, policy.source)
        path, step = run.partitions_step(definitions)
        result, proof = run.apply(
            step,
            partial(run.partitions_proof, definitions, run.host.facts()),
            policy.digest,
            timeout_s=SWEEP_TIMEOUT_S,
            if_none=f"{path} is as the policy says",
        )
        said, fix = [], ""
        if proof.proven:
            said.append("The subnet manager has these partitions.")
        if proof.proven is False:
            fix = "send SIGHUP to opensm, so that it reads the file, and see its log"
        elif proof.unlike:
            fix = "restart opensm, when no host needs the fabric"
        return _Outcome(result, proof, {"file": path}, said, fix)


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

    def carry_out(self, run: OpensmRun, report: RunReport) -> _Outcome:
        policy, facts = loaded_policy(run.host.root), run.host.facts()
        report.reading("asking the subnet manager")
        plan = run.manager_plan(policy.policy.fabric, facts)
        result, proof = run.apply(
            plan.step,
            partial(run.manager_proof, plan.ports),
            policy.digest,
            timeout_s=START_TIMEOUT_S,
            if_none="opensm is set up as the policy says",
        )
        ports, said, fix = [], [], ""
        for one in plan.ports:
            port, guid = one.port.number, one.port.guid
            own = {"device": one.port.device, "port": port, "guid": guid}
            state = {"priority": one.priority, "state": one.state, "reason": one.reason}
            ports.append({**own, **state})
            why = f"{one.state} at {one.port.title} with priority {one.priority}"
            said.append(f"opensm is {why} ({one.reason}).")
        if not proof.proven:
            said = []
            units = " ".join(OPENSM_UNIT.format(one.port.guid) for one in plan.ports)
            fix = f"see systemctl status {units}; then: systemctl restart {units}"
        return _Outcome(result, proof, {"ports": ports}, said, fix)


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

    def carry_out(self, run: OpensmRun, report: RunReport) -> _Outcome:
        fabric = FabricReader(run.tree, run.host.run).facts(run.host.facts())
        ours = {one.guid for one in fabric.ours}
        result = run.disable()
        # The ports behind which ours is the only subnet manager that is known.
        alone = [
            one.port
            for one in fabric.subnets
            if result.run is not None
            and one.master
            and one.master.guid in ours
            and len(one.managers or ()) < 2
        ]
        said = [
            f"No other subnet manager is known at {port.title}: links stay, and "
            "ports that come up later stay INIT."
            for port in alone
        ]
        ports = [{"port": one.title, "guid": one.guid} for one in alone]
        return _Outcome(result, Proof(), {"without_manager": ports}, said)


def _definitions(policy: Policy, source: str) -> tuple[Definition, ...]:
    definitions = definitions_of(policy.fabric)
    if not definitions:
        raise Problem(
            "policy-without-partitions",
            f"the policy has no partitions ({source})",
            "write fabric.partitions: ovirt-rdma-policy(5)",
        )
    return definitions
