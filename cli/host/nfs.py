# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the verbs about NFS mounts and exports: ``nfs``, and ``watch``."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any, Optional

from ovirt_rdma.cli.command import Ended
from ovirt_rdma.cli.host.arguments import (
    HostVerb,
    Source,
    add_facts,
    add_only_export,
    add_policy,
    export_of,
)
from ovirt_rdma.cli.host.mounts import print_health, print_paths, print_rows, rows
from ovirt_rdma.cli.host.policy import policy_in_question
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import (
    AllowNone,
    Context,
    Parser,
    add_allow_none,
    number,
    time_span,
    verdict_code,
)
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.statistics import read_statistics
from ovirt_rdma.host.collect.storage import MOUNTINFO
from ovirt_rdma.host.errors import ExitCode, Problem, UsageProblem
from ovirt_rdma.host.export import (
    AUTO,
    VERSIONS,
    Export,
    MountOptions,
    OptionsProblem,
    contradiction,
    engine_problems,
    kind_of,
    option_string,
    remarks,
)
from ovirt_rdma.host.facts.model import Facts, NfsMount, load
from ovirt_rdma.host.policy.model import PREFER_RDMA, TCP, NfsRule, RuleMatch, rule_for
from ovirt_rdma.host.system.json_codec import plain
from ovirt_rdma.host.system.tree import FileTree
from ovirt_rdma.storage.health.look import Looker
from ovirt_rdma.storage.health.state import OK as HEALTH_OK
from ovirt_rdma.storage.health.state import read_state
from ovirt_rdma.storage.mounts import (
    DEGRADED,
    NOT_COVERED,
    OK,
    OTHERS,
    REMOUNT,
    UNPROVEN,
    MountReview,
    conflict_clause,
    conflict_fix,
    conflicting_mounts,
    others_step,
    remount_fix,
    review_all,
)
from ovirt_rdma.storage.paths.state import ServerPaths, read_paths
from ovirt_rdma.storage.readiness import (
    NOT_READY,
    READY,
    UNKNOWN,
    ProbeContext,
    Readiness,
    ServerReadiness,
    Step,
)
from ovirt_rdma.storage.transport import choose, stock_warnings
from ovirt_rdma.storage.vdsm.export import NamedExport, Shared


class ListMounts(HostVerb, Source, AllowNone):
    """List all NFS mounts; return 3 with --exit-code if one is not as its rule
    says.
    """

    codes = (
        "0 listed; with --exit-code 3 if a mount is not as its rule says,\n"
        "or there is none"
    )
    examples = ("", "--exit-code", "-v --facts hv1.json")

    exit_code: bool
    verbose: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_policy(parser)
        parser.add_argument(
            "--exit-code",
            action="store_true",
            help="exit with 3 if a mount is degraded, unproven or not covered",
        )
        add_allow_none(parser, "NFS mount")
        parser.add_argument(
            "-v",
            "--verbose",
            action="store_true",
            help="also show each mount's proof, connections and request sizes",
        )
        add_facts(parser)

    def run(self, context: Context) -> int:
        output = context.output
        policy, source = policy_in_question(self.policy, context)
        reader = HostReader(context.root)
        facts = load(self.facts) if self.facts else reader.mount_facts()
        reviews = review_all(facts, policy)
        wrong = [one for one in reviews if one.verdict in _TONES and one.verdict != OK]
        if output.for_people:
            # Otherwise a host that could not be read would look like one without.
            for sentence in facts.problems:
                output.message(f"note: {sentence}")
            _print_list(reviews, output)
            if not reviews and any(MOUNTINFO in one for one in facts.problems):
                output.line("The NFS mounts of this host are not known.")
            else:
                _print_verdict(reviews, wrong, source, output)
            for review in reviews if self.verbose else ():
                _print_proof(review, output)
        else:
            output.document(
                "nfs-mounts",
                {
                    "policy": source,
                    "mounts": [_list_document(review) for review in reviews],
                    "problems": list(facts.problems),
                },
            )
        if not self.exit_code:
            return ExitCode.DONE
        return verdict_code(self, looked_at=bool(reviews), failed=bool(wrong))


_TONES = {OK: "good", DEGRADED: "bad", UNPROVEN: "doubtful", NOT_COVERED: "bad"}


def _print_list(reviews: list[MountReview], output: Output) -> None:
    if reviews:
        output.table(
            ("EXPORT", "TRANSPORT", "NFS", "RULE", "VERDICT", "SINCE (UTC)"),
            [
                (
                    review.mount.source,
                    review.proof.transport or "unproven",
                    review.mount.version or "-",
                    review.match.rule.name if review.match else "-",
                    review.verdict,
                    # To the minute.
                    (review.since or "-")[:16].replace("T", " "),
                )
                for review in reviews
            ],
            _TONES,
            minor=("NFS", "RULE"),
        )


def _print_verdict(
    reviews: list[MountReview], wrong: list[MountReview], source: str, output: Output
) -> None:
    named = sum(1 for review in reviews if review.match)
    verb = "is" if (len(wrong) or named) == 1 else "are"
    as_ruled = f"as the rule says ({source})."
    if not reviews:
        output.line("This host has no NFS mount.")
    elif not named:
        these = "this mount" if len(reviews) == 1 else "any of these mounts"
        output.line(f"No rule names {these} ({source}).")
    elif wrong:
        of = f"{len(wrong)} of {count(named, 'mount')}"
        output.line(f"{of} named by a rule {verb} not {as_ruled}")
    else:
        mounts = "The mount" if named == 1 else f"All {named} mounts"
        output.line(f"{mounts} named by a rule {verb} {as_ruled}")
    for review in wrong:
        output.line(f"{review.sentence}.")
        output.fix(review.fix)


def _print_proof(review: MountReview, output: Output) -> None:
    output.line()
    output.line(review.mount.source)
    seen = [(signal.source, signal.shown) for signal in review.proof.signals]
    output.fields(
        [
            ("mounted at", review.mount.mountpoint),
            *(seen or [("proof", "no signal")]),
            *((k, str(n or "unknown")) for k, n in _negotiated(review.mount).items()),
        ],
        indent="  ",
    )


def _list_document(review: MountReview) -> dict[str, Any]:
    return {
        **review.document(),
        "version": review.mount.version,
        "verdict": review.verdict,
        "sentence": review.sentence,
        "signals": [asdict(signal) for signal in review.proof.signals],
        **_negotiated(review.mount),
    }


def _negotiated(mount: NfsMount) -> dict[str, Optional[int]]:
    options = MountOptions.parse(mount.options)
    sizes = {name: options.number(name) for name in ("rsize", "wsize")}
    return {"connections": len(mount.protocols) or None, **sizes}


class CheckHealth(HostVerb, AllowNone):
    """Ask each mount's server; return 0 if all are ok, else 3."""

    codes = (
        "0 every mount is ok, 3 one is slow, stalled, dead or unknown,\n"
        "or there is none"
    )
    examples = ("", "nas1:/export/vm", "-o json")
    more = (
        "Looks up a name that cannot exist on each mount, which no cache answers,\n"
        "and reads 4 KiB of each storage domain without the page cache. An answer\n"
        "is waited for 2 s. If one is late, the server is asked for TCP and RDMA\n"
        "connections, to name the cause: server, path, slots, fabric or host."
    )

    export: Optional[Export]
    policy: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_only_export(parser, "only this export")
        add_policy(parser)
        add_allow_none(parser, "NFS mount")

    def run(self, context: Context) -> int:
        output = context.output
        policy, _ = policy_in_question(self.policy, context)
        state = Looker(context.root).look(policy, self.export, read=True)
        problems = list(state.problems)
        paths = read_paths(context.root, problems)
        if self.export and not state.mounts:
            raise Problem(
                "export-not-mounted",
                f"{self.export} is not mounted on this host",
                "ovirt-rdma-host nfs list shows what is",
            )
        if output.for_people:
            for sentence in problems:
                output.message(f"note: {sentence}")
            print_health(state.mounts, paths, output)
        else:
            content = {"worst": state.worst, **plain(state), "problems": problems}
            content["paths"] = paths and plain(paths)
            output.document("nfs-health", content)
        return verdict_code(
            self, looked_at=bool(state.mounts), failed=state.worst != HEALTH_OK
        )


class ShowPaths(HostVerb, AllowNone):
    """Show the paths; return 0 if all are up and each connection has its own, else
    3.
    """

    codes = (
        "0 all paths are up, and each connection uses its own,\n"
        "3 that is not so, or unknown, or there are no paths"
    )
    examples = ("", "nas1:/export/vm", "-o json")
    more = (
        "Shows what the daemon knows of the servers' addresses that the policy\n"
        "has in 'paths': which can be used, what runs over each, and when and\n"
        "why connections were last moved to another. Asks no server."
    )

    export: Optional[Export]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        add_only_export(parser, "only the paths of this export")
        add_allow_none(parser, "path")

    def run(self, context: Context) -> int:
        output, problems = context.output, list[str]()
        state = read_paths(context.root, problems)
        found = state.servers if state else ()
        if state and self.export:
            found = tuple(one for one in found if _has(one, self.export))
            if not found:
                raise Problem(
                    "export-without-paths",
                    f"{self.export} is not mounted with paths on this host",
                    "ovirt-rdma-host nfs paths shows what is",
                )
        reason, fix, wanted = "No mount on this host has paths", "", False
        if state is None:
            policy, _ = policy_in_question(None, context)
            wanted = any(rule.paths for rule in policy.nfs.rules)
            reason = "No rule of the policy has paths"
            fix = "add paths to the rule of the server: ovirt-rdma-policy(5)"
        if wanted:
            reason = "The paths are unknown: nobody keeps their state"
            fix = "ovirt-rdma-host daemon status shows why"
        if not output.for_people:
            content = {
                "reason": "" if found else reason,
                "fix": fix,
                "taken_at": state and state.taken_at,
                "servers": plain(found),
                "problems": problems,
            }
            output.document("nfs-paths", content)
        else:
            for sentence in problems:
                output.message(f"note: {sentence}")
            if found:
                print_paths(found, output)
            else:
                output.text(f"{reason}.")
                output.fix(fix)
        failed = wanted or not all(one.is_whole for one in found)
        return verdict_code(self, looked_at=bool(found), failed=failed)


def _has(server: ServerPaths, export: Export) -> bool:
    return any(export.same_as(Export.maybe(one)) for one in server.exports)


class Watch(HostVerb):
    """Show what each mount does, once per interval; return 0 at the end."""

    codes = "0 after --count samples, or Ctrl-C"
    examples = ("", "--interval 5", "-o json --count 10")
    more = (
        "Shows throughput, round-trip and execution times, connections made, calls\n"
        "sent again, and calls that wait for a slot. Reads the kernel's statistics\n"
        "only, so a mount that hangs is shown too. HEALTH is from\n"
        "the daemon; '-' if it is not running. With -o json there is\n"
        "one line per sample."
    )

    interval: float
    count: Optional[int]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "--interval",
            metavar="TIME",
            type=time_span(0.1, 3600, float),
            default=1.0,
            help="between two samples, 0.1 to 3600 s; default: 1",
        )
        parser.add_argument(
            "--count", metavar="N", type=number(1, 10**9), help="end after N samples"
        )

    def run(self, context: Context) -> int:
        try:
            self._watch(context)
        except Ended:
            raise
        except KeyboardInterrupt:  # the way to end it
            pass
        return ExitCode.DONE

    def _watch(self, context: Context) -> None:
        output, tree = context.output, FileTree(context.root)
        # Ports are not shown, and each of their counters is asked of the firmware.
        before, shown = read_statistics(tree, ports=False), 0
        while output.is_read and shown != self.count:
            time.sleep(self.interval)
            after = read_statistics(tree, ports=False)
            problems = list(after.problems)
            health = read_state(context.root)
            found = rows(before, after, health, read_paths(context.root, problems))
            if output.for_people:
                output.begin_screen()
                print_rows(found, problems, output)
                output.show_screen()
            else:
                content = {"at": time.time(), "mounts": found, "problems": problems}
                output.one_of_many("nfs-watch", content)
            before, shown = after, shown + 1


class _OfExport(HostVerb):
    """A verb about one export, which need not be mounted."""

    export: Export
    policy: Optional[str]
    nfs_version: str

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "export",
            metavar="SERVER:/PATH",
            type=export_of,
            help="the export, as in the engine",
        )
        add_policy(parser)
        parser.add_argument(
            "--nfs-version",
            choices=VERSIONS,
            default=AUTO,
            help="the storage connection's NFS version; default: auto",
        )


class ShowOptions(_OfExport):
    """Show the mount options of VDSM; return 3 if the policy refuses the mount."""

    codes = "0 printed, 3 the policy refuses the mount"
    examples = (
        "nas1:/export/vm --nfs-version 4.2",
        "nas1:/export/vm --engine-options rdma,port=20049",
    )
    more = "Mounts nothing."

    engine_options: MountOptions

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--engine-options",
            metavar="OPTIONS",
            type=_engine_options,
            default="",
            help="the storage connection's additional mount options",
        )

    def run(self, context: Context) -> int:
        output, export = context.output, self.export
        policy, source = policy_in_question(self.policy, context)
        match = rule_for(policy, export)
        rule, engine = match.rule if match else None, self.engine_options
        version = None if self.nfs_version == AUTO else self.nfs_version
        kind = kind_of(rule.server_kind) if rule else None
        tls = contradiction(engine, bool(rule and rule.transport != TCP))
        warnings = [*remarks(engine, kind), *([tls] if tls else ())]
        if match is None:
            choice = choose(None, engine)
            warnings = [*stock_warnings(engine), *warnings]
        else:
            # The same decision as in vdsmd, from the same sources.
            shared = Shared(ProbeContext(HostReader(context.root)))
            named = NamedExport(export, match, engine, version, shared)
            choice = named.decide(named.ask_server())
        first, fallback = (
            option_string(version, one.extra_options) if one else None
            for one in (choice.first, choice.fallback)
        )
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
                    "warnings": warnings,
                    "policy": source,
                },
            )
        return ExitCode.DONE if choice.first else ExitCode.CHECKS_FAILED


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


_RESULTS = {READY: "PASS", NOT_READY: "FAIL", UNKNOWN: "UNKNOWN"}
_CHECK_TONES = {"PASS": "good", "FAIL": "bad", "UNKNOWN": "doubtful"}


class Check(_OfExport):
    """Check each step of readiness; return 0 if all pass, else 3."""

    codes = "0 ready, 3 a step failed or is unknown"
    examples = ("nas1:/export/vm", "--nfs-version 3 '[fd00:20::1]:/export/vm'")
    more = (
        "Mounts nothing. Port and timeouts are those of the rule that names the\n"
        "export, or built-in defaults."
    )

    def run(self, context: Context) -> int:
        output, export = context.output, self.export
        policy, source = policy_in_question(self.policy, context)
        match = rule_for(policy, export)
        # Built-in defaults, so that an export can be checked before its rule is
        # written. The defaults of a policy apply to its rules only.
        rule = NfsRule(0, "none", export.server, "*", PREFER_RDMA)
        rule = match.rule if match else rule
        reader = HostReader(context.root)
        facts = reader.mount_facts()
        around = ProbeContext(reader)
        server = ServerReadiness(export.server, rule, around)
        readiness, addresses = server.readiness(), server.addresses
        if self.nfs_version == "3" and server.rdma_address is not None:
            # The MOUNT protocol has no RDMA; it goes to rpcbind and mountd by TCP.
            ask = around.network.mountd
            step = ask(server.rdma_address, rule.readiness_timeout)
            readiness = Readiness((*readiness.steps, step))
        # A remount includes the mounts in the way, so these do not prevent healing.
        healable = readiness.verdict == READY
        readiness = Readiness((*readiness.steps, self._others(facts, addresses)))
        warnings = self._in_the_way_of_tcp(match, facts, addresses)
        degraded = [
            review
            for review in review_all(facts, policy)
            if review.verdict in (DEGRADED, NOT_COVERED)
            and export.same_as(Export.maybe(review.mount.source))
        ]
        if output.for_people:
            _print_check(export, match, source, readiness, output)
            for sentence, fix in (
                *warnings,
                *((one.sentence, remount_fix(one, healable)) for one in degraded),
            ):
                output.line(f"{sentence}.")
                output.fix(fix)
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
                    "steps": [
                        {**plain(step), "result": _RESULTS[step.verdict]}
                        for step in readiness.steps
                    ],
                    "warnings": [
                        {"sentence": sentence, "fix": fix} for sentence, fix in warnings
                    ],
                    "degraded": [
                        {**_list_document(one), "fix": remount_fix(one, healable)}
                        for one in degraded
                    ],
                },
            )
        ready = readiness.verdict == READY
        return ExitCode.DONE if ready else ExitCode.CHECKS_FAILED

    def _others(self, facts: Facts, addresses: tuple[str, ...]) -> Step:
        version = self.nfs_version
        step = others_step(facts.nfs_mounts, self.export, addresses, version)
        unread = next((text for text in facts.problems if MOUNTINFO in text), None)
        if unread is not None and step.verdict == READY and version != "3":
            return Step(OTHERS, UNKNOWN, f"the mounts are unknown: {unread}")
        return step

    def _in_the_way_of_tcp(
        self, match: Optional[RuleMatch], facts: Facts, addresses: tuple[str, ...]
    ) -> list[tuple[str, str]]:
        if match is None or match.rule.transport != TCP:
            return []
        mounts, export, version = facts.nfs_mounts, self.export, self.nfs_version
        blocking = conflicting_mounts(mounts, export, addresses, version, TCP)
        if blocking is None:
            return []
        verb = "will use" if blocking.certain else "may use"
        sentence = (
            f"{conflict_clause(blocking.mounts)}: {export} {verb} RDMA, "
            f"although {match.rule.title} says {TCP}"
        )
        return [(sentence, f"{conflict_fix(blocking.mounts)}; then {REMOUNT}")]


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
        [(_RESULTS[s.verdict], s.name, s.detail) for s in readiness.steps],
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
