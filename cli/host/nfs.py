# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``nfs check`` and ``nfs mount-options``.

``check`` checks step by step whether an export can be
mounted over RDMA, which existing mounts prevent what its rule says, and how to fix a
degraded mount. ``mount-options`` shows the options that VDSM passes to mount, and why.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.host.arguments import (
    HostVerb,
    Source,
    add_facts,
    add_policy,
    export_of,
)
from ovirt_rdma.cli.host.nfs_list import mount_facts
from ovirt_rdma.cli.host.policy import policy_in_question
from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.parser import Parser
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.mounts import MOUNTINFO
from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.exit_code import ExitCode
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.dump import load
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.mount_options import (
    AUTO,
    VERSIONS,
    MountOptions,
    OptionsProblem,
    engine_problems,
    option_string,
)
from ovirt_rdma.host.policy.model import PREFER_RDMA, TCP, NfsRule, RuleMatch, rule_for
from ovirt_rdma.storage import probe
from ovirt_rdma.storage.mounts import (
    DEGRADED,
    NOT_COVERED,
    OTHERS,
    REMOUNT,
    MountReview,
    conflict_clause,
    conflict_fix,
    conflicting_mounts,
    is_mount_of,
    others_step,
    remount_fix,
    review_all,
)
from ovirt_rdma.storage.readiness import (
    NOT_READY,
    READY,
    UNKNOWN,
    ProbeContext,
    Readiness,
    ServerReadiness,
    Step,
    address_in_facts,
    is_ipv6,
    steps_from_facts,
)
from ovirt_rdma.storage.transport import (
    Attempt,
    Choice,
    Families,
    choose,
    stock_warnings,
)
from ovirt_rdma.storage.vdsm.export import NamedExport, Shared


class _OfExport(HostVerb, Source):
    """A verb about one export, which need not be mounted."""

    export: Export
    nfs_version: str

    @classmethod
    def add_export(cls, parser: Parser) -> None:
        """Add the export, and --policy."""
        parser.add_argument(
            "export",
            metavar="SERVER:/PATH",
            type=export_of,
            help="the export, as in the engine",
        )
        add_policy(parser)

    @classmethod
    def add_version(cls, parser: Parser) -> None:
        """Add --nfs-version, and --facts."""
        parser.add_argument(
            "--nfs-version",
            choices=VERSIONS,
            default=AUTO,
            help="the storage connection's NFS version; default: auto",
        )
        add_facts(parser)


class ShowOptions(_OfExport):
    """Show the mount options of VDSM; return 3 if the policy refuses the mount."""

    codes = "0 printed, 3 the policy refuses the mount"
    examples = (
        "nas1:/export/vm --nfs-version 4.2",
        "nas1:/export/vm --engine-options rdma,port=20049",
    )
    more = (
        "Mounts nothing. With --facts no network is used, not even to resolve a\nname."
    )

    engine_options: MountOptions

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        cls.add_export(parser)
        parser.add_argument(
            "--engine-options",
            metavar="OPTIONS",
            type=_engine_options,
            default="",
            help="the storage connection's additional mount options",
        )
        cls.add_version(parser)

    def run(self, context: Context) -> int:
        output, export = context.output, self.export
        policy, source = policy_in_question(self.policy, context)
        match = rule_for(policy, export)
        choice, warnings = _choose(self, match, context.root)
        version = None if self.nfs_version == AUTO else self.nfs_version
        first = _passed(choice.first, version)
        fallback = _passed(choice.fallback, version)
        if output.for_people:
            output.fields(
                [
                    ("options", first or "none: the mount is refused"),
                    ("transport", choice.first.transport if choice.first else "none"),
                    ("why", choice.reason),
                    *([("fix", choice.fix)] if choice.fix else []),
                    *([("fallback", fallback)] if fallback else []),
                    *(("note", note) for note in choice.notes),
                    *(("warning", warning) for warning in warnings),
                    ("policy", source),
                ]
            )
        else:
            output.document(
                "nfs-mount-options",
                {
                    "export": str(export),
                    "rule": match.rule.name if match else None,
                    "transport": choice.first.transport if choice.first else None,
                    "options": first,
                    "fallback": fallback,
                    "degraded": choice.degraded,
                    "reason": choice.reason,
                    "fix": choice.fix,
                    "notes": list(choice.notes),
                    "warnings": list(warnings),
                    "policy": source,
                },
            )
        return ExitCode.CHECKS_FAILED if choice.refused else ExitCode.DONE


def _engine_options(text: str) -> MountOptions:
    """Return the engine's options; for argparse.

    Raises UsageProblem if the engine would refuse them, or if their port is not a
    number, for which mount would refuse all of them.
    """
    problems = engine_problems(text)
    if problems:
        raise UsageProblem(
            "engine-options-refused", "\n".join(problems), "change --engine-options"
        )
    options = MountOptions.parse(text)
    try:
        _ = options.port
    except OptionsProblem as problem:
        raise UsageProblem(problem.id, str(problem), problem.fix) from problem
    return options


def _choose(
    args: ShowOptions, match: Optional[RuleMatch], root: str
) -> tuple[Choice, tuple[str, ...]]:
    """Return the choice, and warnings about its basis."""
    export, engine = args.export, args.engine_options
    if match is None:
        choice = choose(None, engine, Families(), None)
        return choice, stock_warnings(engine, export.address)
    if args.facts is not None:
        return _choose_by_facts(args.facts, export, match, engine)
    shared = Shared(ProbeContext(HostReader(root), probe))
    version = None if args.nfs_version == AUTO else args.nfs_version
    # The same decision as in vdsmd, from the same sources.
    named = NamedExport(export, match, engine, version, shared)
    return named.decide(named.ask_server()), ()


def _choose_by_facts(
    file: str, export: Export, match: RuleMatch, engine: MountOptions
) -> tuple[Choice, tuple[str, ...]]:
    facts = load(file)
    address = address_in_facts(facts, export.server)
    ipv6 = address is not None and is_ipv6(address)
    readiness = steps_from_facts(facts, export.server)
    choice = choose(match, engine, Families(ipv6, ipv6), readiness)
    if address is not None:
        return choice, ()
    return choice, (f"the address of {export.server} is unknown; IPv4 is assumed",)


def _passed(attempt: Optional[Attempt], version: Optional[str]) -> Optional[str]:
    return option_string(version, attempt.extra_options) if attempt else None


_CHECK_TONES = {"PASS": "good", "FAIL": "bad", "UNKNOWN": "doubtful"}


class Check(_OfExport):
    """Check each step of readiness; return 0 if all pass, else 3."""

    codes = "0 ready, 3 a step failed or is unknown"
    examples = ("nas1:/export/vm", "--nfs-version 3 '[fd00:20::1]:/export/vm'")
    more = (
        "Mounts nothing. With --facts no network is used, not even to resolve a\n"
        "name. Port and timeouts are those of the rule that names the export,\n"
        "or built-in defaults."
    )

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        cls.add_export(parser)
        cls.add_version(parser)

    def run(self, context: Context) -> int:
        output, export = context.output, self.export
        policy, source = policy_in_question(self.policy, context)
        match = rule_for(policy, export)
        rule = match.rule if match else _default_rule(export)
        facts = mount_facts(self.facts, context.root)
        if self.facts is not None:
            readiness = _by_facts(export, facts, self.nfs_version)
            addresses = tuple(filter(None, [address_in_facts(facts, export.server)]))
        else:
            readiness, addresses = _ask(export, rule, self.nfs_version, context.root)
        # A remount includes the mounts in the way, so these do not prevent healing.
        healable = readiness.verdict == READY
        others = _others(export, facts, addresses, self.nfs_version)
        readiness = Readiness((*readiness.steps, others))
        over_rdma = _in_the_way_of_tcp(
            match, export, facts, addresses, self.nfs_version
        )
        degraded = [
            review
            for review in review_all(facts, policy)
            if review.verdict in (DEGRADED, NOT_COVERED) and is_mount_of(review, export)
        ]
        ready = readiness.verdict == READY
        if output.for_people:
            _print_check(export, match, source, readiness, output)
            for warning in over_rdma:
                output.line(f"{warning['sentence']}.")
                output.fix(warning["fix"])
            for review in degraded:
                output.line(f"{review.sentence}.")
                output.fix(remount_fix(review, healable))
        else:
            output.document(
                "nfs-check",
                {
                    "export": str(export),
                    "policy": source,
                    "rule": match.rule.name if match else None,
                    "port": rule.port,
                    "verdict": readiness.verdict,
                    "reason": readiness.reason,
                    "steps": [_check_document(step) for step in readiness.steps],
                    "warnings": over_rdma,
                    "degraded": [
                        _mount_document(review, healable) for review in degraded
                    ],
                },
            )
        return ExitCode.DONE if ready else ExitCode.CHECKS_FAILED


def _ask(
    export: Export, rule: NfsRule, version: str, root: str
) -> tuple[Readiness, tuple[str, ...]]:
    server = ServerReadiness(export.server, rule, ProbeContext(HostReader(root), probe))
    steps = list(server.readiness().steps)
    address = server.rdma_address
    if version == "3" and address is not None:
        # The MOUNT protocol has no RDMA; it goes to rpcbind and mountd over TCP.
        steps.append(probe.mountd(address, rule.readiness_timeout))
    return Readiness(tuple(steps)), server.addresses


def _by_facts(export: Export, facts: Facts, version: str) -> Readiness:
    readiness = steps_from_facts(facts, export.server)
    if version != "3":
        return readiness
    mountd = Step(
        "mountd", UNKNOWN, "a facts file does not contain the answer of mountd"
    )
    return Readiness((*readiness.steps, mountd))


def _others(
    export: Export, facts: Facts, addresses: tuple[str, ...], version: str
) -> Step:
    step = others_step(facts.nfs_mounts, export, addresses, version)
    unread = next((text for text in facts.problems if MOUNTINFO in text), None)
    if unread is not None and step.verdict == READY and version != "3":
        return Step(OTHERS, UNKNOWN, f"the mounts are unknown: {unread}")
    return step


def _in_the_way_of_tcp(
    match: Optional[RuleMatch],
    export: Export,
    facts: Facts,
    addresses: tuple[str, ...],
    version: str,
) -> list[dict[str, str]]:
    if match is None or match.rule.transport != TCP:
        return []
    blocking = conflicting_mounts(facts.nfs_mounts, export, addresses, version, TCP)
    if blocking is None:
        return []
    verb = "will use" if blocking.certain else "may use"
    return [
        {
            "sentence": f"{conflict_clause(blocking.mounts)}: {export} {verb} RDMA, "
            f"although {match.rule.title} says {TCP}",
            "fix": f"{conflict_fix(blocking.mounts)}; then {REMOUNT}",
        }
    ]


def _default_rule(export: Export) -> NfsRule:
    # Built-in defaults, so that an export can be checked before its rule is written.
    # The defaults of a policy apply to its rules only.

    return NfsRule(0, "none", export.server, "*", PREFER_RDMA)


def _print_check(
    export: Export,
    match: Optional[RuleMatch],
    source: str,
    readiness: Readiness,
    output: Output,
) -> None:
    if match:
        named = f"{match.rule.title} says {match.rule.transport}: {match.reason}"
    else:
        named = f"no rule names it, so VDSM mounts it as stock ({source})"
    output.line(f"{export}: {named}")
    output.table(
        ("RESULT", "STEP", "DETAIL"),
        [(_result(s), s.name, s.detail) for s in readiness.steps],
        _CHECK_TONES,
    )
    if readiness.verdict == READY:
        output.line(f"{export} is ready for RDMA.")
    elif readiness.verdict == UNKNOWN:
        output.line(f"It is unknown if {export} is ready: {readiness.reason}.")
    else:
        output.line(f"{export} is not ready for RDMA: {readiness.reason}.")
    for step in readiness.steps:
        if step.verdict != READY:
            output.fix(step.fix)


def _mount_document(review: MountReview, ready: bool) -> dict[str, Optional[str]]:
    return {
        "mountpoint": review.mount.mountpoint,
        "transport": review.proof.transport,
        "since": review.since,
        "reason": review.reason,
        "sentence": review.sentence,
        "fix": remount_fix(review, ready),
    }


def _result(step: Step) -> str:
    return {READY: "PASS", NOT_READY: "FAIL", UNKNOWN: "UNKNOWN"}[step.verdict]


def _check_document(step: Step) -> dict[str, str]:
    return {
        "name": step.name,
        "result": _result(step),
        "detail": step.detail,
        "fix": step.fix,
    }
