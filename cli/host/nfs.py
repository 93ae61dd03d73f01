# SPDX-License-Identifier: GPL-2.0-or-later
"""``nfs list``, ``nfs check`` and ``nfs mount-options``.

``nfs list``: every NFS mount, its transport, whether its rule agrees, and if not,
since when and why.

``nfs mount-options``: the option string that VDSM passes to mount, and why.

``nfs check``: can an export be mounted over RDMA, step by step; what of its rule
standing mounts do not let come true; and where it is mounted otherwise than its rule
says, how that is healed.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import Any, Optional

from ovirt_rdma.cli.host.arguments import engine_options_of, export_of
from ovirt_rdma.cli.host.policy import policy_in_question
from ovirt_rdma.cli.output import Screen, count
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.parsers.mounts import MOUNTINFO
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.model import PREFER_RDMA, TCP, NfsRule, RuleMatch, rule_for
from ovirt_rdma.storage import probe
from ovirt_rdma.storage.mount_options import AUTO, option_string, stock_warnings
from ovirt_rdma.storage.proof import UNPROVEN
from ovirt_rdma.storage.readiness import NOT_READY, READY, UNKNOWN, Readiness, Step
from ovirt_rdma.storage.review import (
    DEGRADED,
    NOT_COVERED,
    OK,
    MountReview,
    heal,
    is_of,
    review_all,
)
from ovirt_rdma.storage.server_readiness import (
    ServerReadiness,
    Surroundings,
    address_in_facts,
    is_ipv6,
    steps_from_facts,
)
from ovirt_rdma.storage.transport import Attempt, Choice, Families, choose
from ovirt_rdma.storage.trunking import (
    OTHERS,
    REMOUNT,
    because,
    in_the_way,
    others_step,
    remedy,
)
from ovirt_rdma.storage.vdsm.context import Shared
from ovirt_rdma.storage.vdsm.managed_export import NamedExport

_LIST_TONES = {OK: "good", DEGRADED: "bad", UNPROVEN: "doubtful", NOT_COVERED: "bad"}


def show_list(words: Namespace, screen: Screen) -> int:
    """List all NFS mounts; 3 with --exit-code when one is not as its rule says."""
    policy, source = policy_in_question(words, screen)
    facts = mount_facts(words)
    reviews = review_all(facts, policy)
    wrong = [found for found in reviews if found.verdict in _LIST_TONES.keys() - {OK}]
    if screen.for_people:
        # Without these a host that could not be read would look like one without.
        for sentence in facts.problems:
            screen.message(f"note: {sentence}")
        _print_list(reviews, source, screen)
        _print_verdict(reviews, wrong, source, screen)
        if words.verbose:
            for found in reviews:
                _print_proof(found, screen)
    else:
        screen.document(
            "nfs-mounts",
            {
                "policy": source,
                "mounts": [_list_document(found) for found in reviews],
                "problems": list(facts.problems),
            },
        )
    return 3 if wrong and words.exit_code else 0


def mount_facts(words: Namespace) -> Facts:
    """Return the facts about mounts: of this host, or of a facts file."""
    if words.facts is None:
        return HostReader(words.root).mount_facts()
    from ovirt_rdma.host.facts.dump import load

    return load(words.facts)


def _print_list(reviews: list[MountReview], source: str, screen: Screen) -> None:
    if reviews:
        screen.table(
            ("EXPORT", "TRANSPORT", "NFS", "RULE", "VERDICT", "SINCE (UTC)"),
            [
                (
                    found.mount.source,
                    found.proof.transport or "unproven",
                    found.mount.version or "-",
                    found.match.rule.name if found.match else "-",
                    found.verdict,
                    _minute(found.since),
                )
                for found in reviews
            ],
            _LIST_TONES,
        )


def _print_verdict(
    reviews: list[MountReview], wrong: list[MountReview], source: str, screen: Screen
) -> None:
    named = sum(1 for found in reviews if found.match)
    mounts = "The mount" if named == 1 else f"All {named} mounts"
    if not reviews:
        screen.line("This host has no NFS mount.")
    elif not named:
        these = "this mount" if len(reviews) == 1 else "any of these mounts"
        screen.line(f"No rule names {these} ({source}).")
    elif not wrong:
        verb = "is" if named == 1 else "are"
        screen.line(f"{mounts} named by a rule {verb} as the rule says ({source}).")
    else:
        verb = "is" if len(wrong) == 1 else "are"
        screen.line(
            f"{len(wrong)} of {count(named, 'mount')} named by a rule {verb} not as "
            f"the rule says ({source})."
        )
    for found in wrong:
        screen.line(f"{found.sentence}.")
        screen.fix(found.fix)


def _minute(since: Optional[str]) -> str:
    return since[: len("2026-11-21T02:51")].replace("T", " ") if since else "-"


def _print_proof(found: MountReview, screen: Screen) -> None:
    screen.line()
    screen.line(found.mount.source)
    seen = [(signal.source, signal.shown) for signal in found.proof.signals]
    screen.fields(
        [("mounted at", found.mount.mountpoint), *(seen or [("proof", "no signal")])],
        indent="  ",
    )


def _list_document(found: MountReview) -> dict[str, Any]:
    return {
        "export": found.mount.source,
        "mountpoint": found.mount.mountpoint,
        "version": found.mount.version,
        "transport": found.proof.transport,
        "rule": found.match.rule.name if found.match else None,
        "verdict": found.verdict,
        "since": found.since,
        "reason": found.reason,
        "sentence": found.sentence,
        "fix": found.fix,
        "signals": [asdict(signal) for signal in found.proof.signals],
    }


def show_options(words: Namespace, screen: Screen) -> int:
    """Show what VDSM would pass to mount; 3 when the policy refuses the mount."""
    export = export_of(words.export)
    engine_options = engine_options_of(words.engine_options)
    policy, source = policy_in_question(words, screen)
    match = rule_for(policy, export)
    choice, warnings = _choose(words, export, match, engine_options)
    version = None if words.nfs_version == AUTO else words.nfs_version
    first = _passed(choice.first, version)
    fallback = _passed(choice.fallback, version)
    if screen.for_people:
        screen.fields(
            [
                ("options", first or "none, the mount is refused"),
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
        screen.document(
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
    words: Namespace, export: Export, match: Optional[RuleMatch], engine_options: str
) -> tuple[Choice, tuple[str, ...]]:
    """Return the choice, and warnings about what it was made from."""
    if match is None:
        choice = choose(None, engine_options, Families(), None)
        return choice, stock_warnings(engine_options, export.address)
    if words.facts is not None:
        return _choose_by_facts(words.facts, export, match, engine_options)
    shared = Shared(Surroundings(HostReader(words.root)))
    version = None if words.nfs_version == AUTO else words.nfs_version
    # The same decision that vdsmd makes, asked at the same places.
    named = NamedExport(export, match, engine_options, version, shared)
    return named.decide(named.ask_server()), ()


def _choose_by_facts(
    file: str, export: Export, match: RuleMatch, engine_options: str
) -> tuple[Choice, tuple[str, ...]]:
    from ovirt_rdma.host.facts.dump import load

    facts = load(file)
    address = address_in_facts(facts, export.server)
    ipv6 = address is not None and is_ipv6(address)
    readiness = steps_from_facts(facts, export.server)
    choice = choose(match, engine_options, Families(ipv6, ipv6), readiness)
    if address is not None:
        return choice, ()
    return choice, (f"the address of {export.server} is not known, taken to be IPv4",)


def _passed(attempt: Optional[Attempt], version: Optional[str]) -> Optional[str]:
    return option_string(version, attempt.extra_options) if attempt else None


_RESULTS = {READY: "PASS", NOT_READY: "FAIL", UNKNOWN: "UNKNOWN"}
_CHECK_TONES = {"PASS": "good", "FAIL": "bad", "UNKNOWN": "doubtful"}


def check(words: Namespace, screen: Screen) -> int:
    """Try each step of readiness; 0 when all pass, else 3."""
    export = export_of(words.export)
    policy, source = policy_in_question(words, screen)
    match = rule_for(policy, export)
    rule = match.rule if match else _stand_in(export)
    facts = mount_facts(words)
    if words.facts is not None:
        readiness = _by_facts(export, facts, words)
        addresses = tuple(filter(None, [address_in_facts(facts, export.server)]))
    else:
        readiness, addresses = _ask(export, rule, words)
    # Mounted anew with all that stands in its way, a mount is not in it any more.
    healable = readiness.verdict == READY
    others = _others(export, facts, addresses, words.nfs_version)
    readiness = Readiness((*readiness.steps, others))
    over_rdma = _in_the_way_of_tcp(match, export, facts, addresses, words.nfs_version)
    degraded = [
        found
        for found in review_all(facts, policy)
        if found.verdict in (DEGRADED, NOT_COVERED) and is_of(found, export)
    ]
    ready = readiness.verdict == READY
    if screen.for_people:
        _print_check(export, match, source, readiness, screen)
        for warning in over_rdma:
            screen.line(f"{warning['sentence']}.")
            screen.fix(warning["fix"])
        for found in degraded:
            screen.line(f"{found.sentence}.")
            screen.fix(heal(found, healable))
    else:
        screen.document(
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
                "degraded": [_mount_document(found, healable) for found in degraded],
            },
        )
    return 0 if ready else 3


def _ask(
    export: Export, rule: NfsRule, words: Namespace
) -> tuple[Readiness, tuple[str, ...]]:
    server = ServerReadiness(export.server, rule, Surroundings(HostReader(words.root)))
    steps = list(server.readiness().steps)
    address = server.rdma_address
    if words.nfs_version == "3" and address is not None:
        # The MOUNT protocol has no RDMA; it goes to rpcbind and mountd over TCP.
        steps.append(probe.mountd(address, rule.readiness_timeout))
    return Readiness(tuple(steps)), server.addresses


def _by_facts(export: Export, facts: Facts, words: Namespace) -> Readiness:
    readiness = steps_from_facts(facts, export.server)
    if words.nfs_version != "3":
        return readiness
    mountd = Step(
        "mountd", UNKNOWN, "a facts file does not tell whether mountd answers"
    )
    return Readiness((*readiness.steps, mountd))


def _others(
    export: Export, facts: Facts, addresses: tuple[str, ...], version: str
) -> Step:
    step = others_step(facts.nfs_mounts, export, addresses, version)
    unread = next((told for told in facts.problems if MOUNTINFO in told), None)
    if unread is not None and step.verdict == READY and version != "3":
        return Step(OTHERS, UNKNOWN, f"what is mounted is not known: {unread}")
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
    found = in_the_way(facts.nfs_mounts, export, addresses, version, TCP)
    if found is None:
        return []
    comes = "comes" if found.certain else "may come"
    return [
        {
            "sentence": f"{because(found.mounts)}: {export} {comes} up over RDMA too, "
            f"although {match.rule.title} says {TCP}",
            "fix": f"{remedy(found.mounts)}; then {REMOUNT}",
        }
    ]


def _stand_in(export: Export) -> NfsRule:
    # Checking is useful before a rule is written: built-in defaults stand in for
    # it. A policy's own defaults are for its rules and went into them at loading.
    return NfsRule(0, "none", export.server, "*", PREFER_RDMA)


def _print_check(
    export: Export,
    match: Optional[RuleMatch],
    source: str,
    readiness: Readiness,
    screen: Screen,
) -> None:
    if match:
        named = f"{match.rule.title} says {match.rule.transport}: {match.reason}"
    else:
        named = f"no rule names it, so VDSM mounts it as stock ({source})"
    screen.line(f"{export}: {named}")
    screen.table(
        ("RESULT", "STEP", "SEEN"),
        [(_RESULTS[s.verdict], s.name, s.detail) for s in readiness.steps],
        _CHECK_TONES,
    )
    if readiness.verdict == READY:
        screen.line(f"{export} is ready for RDMA.")
    elif readiness.verdict == UNKNOWN:
        screen.line(f"Whether {export} is ready is unknown: {readiness.reason}.")
    else:
        screen.line(f"{export} is not ready for RDMA: {readiness.reason}.")
    for step in readiness.steps:
        if step.verdict != READY:
            screen.fix(step.fix)


def _mount_document(found: MountReview, ready: bool) -> dict[str, Optional[str]]:
    return {
        "mountpoint": found.mount.mountpoint,
        "transport": found.proof.transport,
        "since": found.since,
        "reason": found.reason,
        "sentence": found.sentence,
        "fix": heal(found, ready),
    }


def _check_document(step: Step) -> dict[str, str]:
    return {
        "name": step.name,
        "result": _RESULTS[step.verdict],
        "detail": step.detail,
        "fix": step.fix,
    }
