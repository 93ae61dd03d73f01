# SPDX-License-Identifier: GPL-2.0-or-later
"""``nfs check``: can an export be mounted over RDMA, step by step; what of its rule
standing mounts do not let come true; and where it is mounted otherwise than its rule
says, how that is healed.
"""

from __future__ import annotations

from argparse import Namespace
from typing import Optional

from ovirt_rdma.cli.nfs_list_verb import mount_facts
from ovirt_rdma.cli.nfs_words import export_of
from ovirt_rdma.cli.policy_verbs import policy_in_question
from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts import Facts
from ovirt_rdma.host.mountinfo import MOUNTINFO
from ovirt_rdma.host.policy import PREFER_RDMA, TCP, NfsRule, RuleMatch, rule_for
from ovirt_rdma.host.reader import HostReader
from ovirt_rdma.storage import network_probe
from ovirt_rdma.storage.mount_review import (
    DEGRADED,
    NOT_COVERED,
    MountReview,
    heal,
    is_of,
    review_all,
)
from ovirt_rdma.storage.readiness import NOT_READY, READY, UNKNOWN, Readiness, Step
from ovirt_rdma.storage.server_readiness import (
    ServerReadiness,
    Surroundings,
    address_in_facts,
    steps_from_facts,
)
from ovirt_rdma.storage.trunking import (
    OTHERS,
    REMOUNT,
    because,
    in_the_way,
    others_step,
    remedy,
)

_RESULTS = {READY: "PASS", NOT_READY: "FAIL", UNKNOWN: "UNKNOWN"}
_TONES = {"PASS": "good", "FAIL": "bad", "UNKNOWN": "doubtful"}


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
        _print(export, match, source, readiness, screen)
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
                "steps": [_document(step) for step in readiness.steps],
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
        steps.append(network_probe.mountd(address, rule.readiness_timeout))
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


def _print(
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
        _TONES,
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


def _document(step: Step) -> dict[str, str]:
    return {
        "name": step.name,
        "result": _RESULTS[step.verdict],
        "detail": step.detail,
        "fix": step.fix,
    }
