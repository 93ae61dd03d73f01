# SPDX-License-Identifier: GPL-2.0-or-later
"""``status``: what is enabled, running, loaded, changed and degraded.

What ``status`` says of the changes that are held. Pure but for the reading.

``status``: what is enabled, running, loaded, changed and degraded, each apart.
"""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Optional

from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.host.policy import policy_counts
from ovirt_rdma.cli.output import Screen, count, when, when_iso
from ovirt_rdma.host.changes.status import ChangeStatus
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.enablement.state import BY_LAUNCHER
from ovirt_rdma.host.enablement.status import Status, read_status
from ovirt_rdma.host.paths import JOURNAL, POLICY_JSON, under
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import in_force
from ovirt_rdma.host.system.lock import holder_of
from ovirt_rdma.storage.review import DEGRADED, NOT_COVERED, MountReview, review_all


def read_changes(root: str) -> ChangeStatus:
    """Return what is held on the host below ``root``."""
    if not under(root, JOURNAL).exists():
        return ChangeStatus()
    # What only a host needs on which something was changed.
    from ovirt_rdma.cli.host import runs
    from ovirt_rdma.host.changes.journal import Journal
    from ovirt_rdma.host.changes.status import change_status

    return change_status(runs.door(root), Journal(root), root)


def change_lines(
    found: ChangeStatus, loaded_digest: Optional[str], *, at_work: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield a name and what it is, for each thing there is to say; ``at_work`` as for
    :func:`change_advice`.
    """
    if found.problem:
        yield "changes", f"not known: {found.problem}"
        return
    if not found.held:
        yield "changes", "none held"
    else:
        since = when_iso(found.since or "")
        told = f"{count(len(found.held), 'change')} held, since {since}"
        if loaded_digest is not None and found.policies != (loaded_digest,):
            told += ", not all by the policy that is loaded now"
        yield "changes", told
    if found.at_boot:
        yield "at boot", f"{count(found.at_boot, 'value')} set again by our units"
    if found.awaiting is not None and found.confirm_by is not None:
        until = when(found.confirm_by)
        yield "confirm", f"run {found.awaiting} is taken back at {until}"
    if found.interrupted is not None and not at_work:
        yield "interrupted", f"run {found.interrupted}"


def change_advice(
    found: ChangeStatus, *, at_work: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield a sentence and a fix for each thing that somebody should look at.
    ``at_work``: a run holds the lock, so the one that is open was not interrupted.
    """
    if found.problem:
        yield "The changes that are held are not known", found.fix
    if found.awaiting is not None:
        yield f"Run {found.awaiting} waits to be confirmed", f"{PROGRAM} confirm"
    if found.interrupted is not None and not at_work:
        yield (
            f"Run {found.interrupted} was interrupted",
            f"{PROGRAM} apply, or revert: each puts that in order first",
        )
    if found.not_at_boot:
        values = count(found.not_at_boot, "value")
        yield f"Nothing sets {values} again at the next boot", f"{PROGRAM} apply"
    for sentence in found.kept:
        yield f"{sentence}; revert would leave it", ""


def change_document(
    found: ChangeStatus, loaded_digest: Optional[str]
) -> Optional[dict[str, Any]]:
    """Return what is held for a document, None where that is not known."""
    if found.problem:
        return None
    content = asdict(found)
    del content["problem"], content["fix"]
    content["by_loaded_policy"] = (
        found.policies == (loaded_digest,) if found.held and loaded_digest else None
    )
    return content


def status(words: Namespace, screen: Screen) -> int:
    """Show what is enabled, installed, running, loaded, changed, degraded, apart: 0,
    or 3 where the stored policy cannot be used.
    """
    found = read_status(words.root)
    changes, digest = read_changes(words.root), found.policy.digest
    holder = holder_of(words.root)
    policy = _in_force(words.root)
    exit_code = 0 if found.policy.problem is None else 3
    degraded, unknown, problems = _degraded(words.root, policy)
    if not screen.for_people:
        content = dataclasses.asdict(found)
        listed = [_document(one) for one in degraded]
        content["degraded"] = None if unknown else listed
        content["changes"] = change_document(changes, digest)
        content["at_work"] = holder and dataclasses.asdict(holder)
        problems += [changes.problem] if changes.problem else []
        first = {"schema_version": found.schema_version, "kind": "status"}
        screen.raw_document({**first, **content, "problems": problems})
        return exit_code
    for sentence in problems:
        screen.message(f"note: {sentence}")
    count_shown = count(len(degraded), "mount") if degraded else "none"
    shown = f"not known: {unknown}" if unknown else count_shown
    screen.fields(
        [
            *_status_lines(found, policy or Policy()),
            *change_lines(changes, digest, at_work=holder is not None),
            *([("at work", str(holder))] if holder else []),
            ("degraded", shown),
        ]
    )
    for one in degraded:
        screen.line(f"{one.sentence}.")
        screen.fix(one.fix)
    for sentence, fix in (
        *change_advice(changes, at_work=holder is not None),
        *((advice.sentence, advice.fix) for advice in found.advice),
    ):
        screen.text(f"{sentence}.")
        screen.fix(fix)
    return exit_code


def _in_force(root: str) -> Optional[Policy]:
    """Return the policy in force, None where what is stored cannot be used."""
    found = in_force(under(root, POLICY_JSON))
    if found.stored is None:
        return None if found.problem else Policy()
    return found.stored.policy


def _degraded(
    root: str, policy: Optional[Policy]
) -> tuple[list[MountReview], str, list[str]]:
    """Return the degraded mounts, or why they are not known, and what could not be
    read of them.
    """
    if policy is None:
        return [], "the stored policy cannot be used", []
    reader = HostReader(root)
    unread: list[str] = []
    reader.nfs_mounts(unread)
    if unread:
        return [], unread[0], []
    facts = reader.mount_facts(cm_ids=False)
    reviews = review_all(facts, policy)
    degraded = [one for one in reviews if one.verdict in (DEGRADED, NOT_COVERED)]
    return degraded, "", list(facts.problems)


def _document(found: MountReview) -> dict[str, Optional[str]]:
    return {
        "export": found.mount.source,
        "mountpoint": found.mount.mountpoint,
        "transport": found.proof.transport,
        "rule": found.match.rule.name if found.match else None,
        "since": found.since,
        "reason": found.reason,
        "fix": found.fix,
    }


def _status_lines(found: Status, policy: Policy) -> list[tuple[str, str]]:
    files = dataclasses.asdict(found.package)
    missing = [name for name, present in files.items() if not present]
    if not missing:
        package = "complete"
    elif len(missing) == len(files):
        package = "not installed"
    else:
        package = f"incomplete, missing: {', '.join(missing)}"
    running = "vdsmd does not run"
    if found.running:
        by = "the launcher" if found.running.program == BY_LAUNCHER else "stock vdsmd"
        running = f"{by} (process {found.running.pid})"
    loaded = "none loaded"
    if found.policy.loaded:
        loaded = (
            f"{policy_counts(policy)} from {found.policy.source}, "
            f"loaded {found.policy.loaded_at}"
        )
    if found.policy.problem is not None:
        copy = f"; its copy counts: {loaded}" if found.policy.loaded else ""
        loaded = f"{found.policy.problem}{copy}"
    return [
        ("enabled", f"yes, mode {found.enabled.mode}" if found.enabled.mode else "no"),
        ("package", package),
        ("running", running),
        ("policy", loaded),
    ]
