# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``nfs list``, ``nfs check`` and ``nfs mount-options``.

``list`` shows each NFS mount with its transport, the verdict of its rule, and if it is
degraded, since when and why. ``check`` checks step by step whether an export can be
mounted over RDMA, which existing mounts prevent what its rule says, and how to fix a
degraded mount. ``mount-options`` shows the options that VDSM passes to mount, and why.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import Any, Optional

from ovirt_rdma.cli.host.arguments import engine_options_of, export_of
from ovirt_rdma.cli.host.policy import policy_in_question
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.parsers.mounts import MOUNTINFO
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.mount_options import AUTO, MountOptions, option_string
from ovirt_rdma.host.policy.model import PREFER_RDMA, TCP, NfsRule, RuleMatch, rule_for
from ovirt_rdma.storage import probe
from ovirt_rdma.storage.proof import UNPROVEN
from ovirt_rdma.storage.readiness import NOT_READY, READY, UNKNOWN, Readiness, Step
from ovirt_rdma.storage.review import (
    DEGRADED,
    NOT_COVERED,
    OK,
    MountReview,
    is_mount_of,
    remount_fix,
    review_all,
)
from ovirt_rdma.storage.server_readiness import (
    ProbeContext,
    ServerReadiness,
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
from ovirt_rdma.storage.trunking import (
    OTHERS,
    REMOUNT,
    conflict_clause,
    conflict_fix,
    conflicting_mounts,
    others_step,
)
from ovirt_rdma.storage.vdsm.context import Shared
from ovirt_rdma.storage.vdsm.managed_export import NamedExport

_LIST_TONES = {OK: "good", DEGRADED: "bad", UNPROVEN: "doubtful", NOT_COVERED: "bad"}


def show_list(args: Namespace, output: Output) -> int:
    """List all NFS mounts; return 3 with --exit-code if one is not as its rule says."""
    policy, source = policy_in_question(args, output)
    facts = mount_facts(args)
    reviews = review_all(facts, policy)
    wrong = [
        review for review in reviews if review.verdict in _LIST_TONES.keys() - {OK}
    ]
    if output.for_people:
        # Otherwise a host that could not be read would look like one without mounts.
        for sentence in facts.problems:
            output.message(f"note: {sentence}")
        _print_list(reviews, source, output)
        _print_verdict(reviews, wrong, source, output)
        if args.verbose:
            for review in reviews:
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
    return 3 if wrong and args.exit_code else 0


def mount_facts(args: Namespace) -> Facts:
    """Return the facts about mounts, of this host or of a facts file."""
    if args.facts is None:
        return HostReader(args.root).mount_facts()
    from ovirt_rdma.host.facts.dump import load

    return load(args.facts)


def _print_list(reviews: list[MountReview], source: str, output: Output) -> None:
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
                    _minute(review.since),
                )
                for review in reviews
            ],
            _LIST_TONES,
        )


def _print_verdict(
    reviews: list[MountReview], wrong: list[MountReview], source: str, output: Output
) -> None:
    named = sum(1 for review in reviews if review.match)
    mounts = "The mount" if named == 1 else f"All {named} mounts"
    if not reviews:
        output.line("This host has no NFS mount.")
    elif not named:
        these = "this mount" if len(reviews) == 1 else "any of these mounts"
        output.line(f"No rule names {these} ({source}).")
    elif not wrong:
        verb = "is" if named == 1 else "are"
        output.line(f"{mounts} named by a rule {verb} as the rule says ({source}).")
    else:
        verb = "is" if len(wrong) == 1 else "are"
        output.line(
            f"{len(wrong)} of {count(named, 'mount')} named by a rule {verb} not as "
            f"the rule says ({source})."
        )
    for review in wrong:
        output.line(f"{review.sentence}.")
        output.fix(review.fix)


def _minute(since: Optional[str]) -> str:
    return since[: len("2026-11-21T02:51")].replace("T", " ") if since else "-"


def _print_proof(review: MountReview, output: Output) -> None:
    output.line()
    output.line(review.mount.source)
    seen = [(signal.source, signal.shown) for signal in review.proof.signals]
    output.fields(
        [("mounted at", review.mount.mountpoint), *(seen or [("proof", "no signal")])],
        indent="  ",
    )


def _list_document(review: MountReview) -> dict[str, Any]:
    return {
        "export": review.mount.source,
        "mountpoint": review.mount.mountpoint,
        "version": review.mount.version,
        "transport": review.proof.transport,
        "rule": review.match.rule.name if review.match else None,
        "verdict": review.verdict,
        "since": review.since,
        "reason": review.reason,
        "sentence": review.sentence,
        "fix": review.fix,
        "signals": [asdict(signal) for signal in review.proof.signals],
    }


def show_options(args: Namespace, output: Output) -> int:
    """Show the mount options of VDSM; return 3 if the policy refuses the mount."""
    export = export_of(args.export)
    engine = engine_options_of(args.engine_options)
    policy, source = policy_in_question(args, output)
    match = rule_for(policy, export)
    choice, warnings = _choose(args, export, match, engine)
    version = None if args.nfs_version == AUTO else args.nfs_version
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
    return 3 if choice.refused else 0


def _choose(
    args: Namespace, export: Export, match: Optional[RuleMatch], engine: MountOptions
) -> tuple[Choice, tuple[str, ...]]:
    """Return the choice, and warnings about its basis."""
    if match is None:
        choice = choose(None, engine, Families(), None)
        return choice, stock_warnings(engine, export.address)
    if args.facts is not None:
        return _choose_by_facts(args.facts, export, match, engine)
    shared = Shared(ProbeContext(HostReader(args.root)))
    version = None if args.nfs_version == AUTO else args.nfs_version
    # The same decision as in vdsmd, from the same sources.
    named = NamedExport(export, match, engine, version, shared)
    return named.decide(named.ask_server()), ()


def _choose_by_facts(
    file: str, export: Export, match: RuleMatch, engine: MountOptions
) -> tuple[Choice, tuple[str, ...]]:
    from ovirt_rdma.host.facts.dump import load

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


_RESULTS = {READY: "PASS", NOT_READY: "FAIL", UNKNOWN: "UNKNOWN"}
_CHECK_TONES = {"PASS": "good", "FAIL": "bad", "UNKNOWN": "doubtful"}


def check(args: Namespace, output: Output) -> int:
    """Check each step of readiness; return 0 if all pass, else 3."""
    export = export_of(args.export)
    policy, source = policy_in_question(args, output)
    match = rule_for(policy, export)
    rule = match.rule if match else _default_rule(export)
    facts = mount_facts(args)
    if args.facts is not None:
        readiness = _by_facts(export, facts, args)
        addresses = tuple(filter(None, [address_in_facts(facts, export.server)]))
    else:
        readiness, addresses = _ask(export, rule, args)
    # A remount includes the mounts in the way, so these do not prevent healing.
    healable = readiness.verdict == READY
    others = _others(export, facts, addresses, args.nfs_version)
    readiness = Readiness((*readiness.steps, others))
    over_rdma = _in_the_way_of_tcp(match, export, facts, addresses, args.nfs_version)
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
                "degraded": [_mount_document(review, healable) for review in degraded],
            },
        )
    return 0 if ready else 3


def _ask(
    export: Export, rule: NfsRule, args: Namespace
) -> tuple[Readiness, tuple[str, ...]]:
    server = ServerReadiness(export.server, rule, ProbeContext(HostReader(args.root)))
    steps = list(server.readiness().steps)
    address = server.rdma_address
    if args.nfs_version == "3" and address is not None:
        # The MOUNT protocol has no RDMA; it goes to rpcbind and mountd over TCP.
        steps.append(probe.mountd(address, rule.readiness_timeout))
    return Readiness(tuple(steps)), server.addresses


def _by_facts(export: Export, facts: Facts, args: Namespace) -> Readiness:
    readiness = steps_from_facts(facts, export.server)
    if args.nfs_version != "3":
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


def _mount_document(review: MountReview, ready: bool) -> dict[str, Optional[str]]:
    return {
        "mountpoint": review.mount.mountpoint,
        "transport": review.proof.transport,
        "since": review.since,
        "reason": review.reason,
        "sentence": review.sentence,
        "fix": remount_fix(review, ready),
    }


def _check_document(step: Step) -> dict[str, str]:
    return {
        "name": step.name,
        "result": _RESULTS[step.verdict],
        "detail": step.detail,
        "fix": step.fix,
    }
