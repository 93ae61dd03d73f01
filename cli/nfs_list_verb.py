# SPDX-License-Identifier: GPL-2.0-or-later
"""``nfs list``: every NFS mount, its transport, whether its rule agrees, and if not,
since when and why.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import Any, Optional

from ovirt_rdma.cli.policy_verbs import policy_in_question
from ovirt_rdma.cli.screen import Screen, count
from ovirt_rdma.host.facts import Facts
from ovirt_rdma.host.reader import HostReader
from ovirt_rdma.storage.mount_review import (
    DEGRADED,
    NOT_COVERED,
    OK,
    MountReview,
    review_all,
)
from ovirt_rdma.storage.proof import UNPROVEN

_TONES = {OK: "good", DEGRADED: "bad", UNPROVEN: "doubtful", NOT_COVERED: "bad"}


def show(words: Namespace, screen: Screen) -> int:
    """List all NFS mounts; 3 with --exit-code when one is not as its rule says."""
    policy, source = policy_in_question(words, screen)
    facts = mount_facts(words)
    reviews = review_all(facts, policy)
    wrong = [found for found in reviews if found.verdict in _TONES.keys() - {OK}]
    if screen.for_people:
        # Without these a host that could not be read would look like one without.
        for sentence in facts.problems:
            screen.message(f"note: {sentence}")
        _print(reviews, source, screen)
        _print_verdict(reviews, wrong, source, screen)
        if words.verbose:
            for found in reviews:
                _print_proof(found, screen)
    else:
        screen.document(
            "nfs-mounts",
            {
                "policy": source,
                "mounts": [_document(found) for found in reviews],
                "problems": list(facts.problems),
            },
        )
    return 3 if wrong and words.exit_code else 0


def mount_facts(words: Namespace) -> Facts:
    """Return the facts about mounts: of this host, or of a facts file."""
    if words.facts is None:
        return HostReader(words.root).mount_facts()
    from ovirt_rdma.host.facts_file import load

    return load(words.facts)


def _print(reviews: list[MountReview], source: str, screen: Screen) -> None:
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
            _TONES,
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


def _document(found: MountReview) -> dict[str, Any]:
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
