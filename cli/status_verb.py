# SPDX-License-Identifier: GPL-2.0-or-later
"""``status``: what is enabled, running, loaded, changed and degraded, each apart."""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from typing import Optional

from ovirt_rdma.cli.policy_host_words import policy_counts
from ovirt_rdma.cli.screen import Screen, count
from ovirt_rdma.cli.status_changes import (
    change_advice,
    change_document,
    change_lines,
    read_changes,
)
from ovirt_rdma.host.enablement_state import BY_LAUNCHER
from ovirt_rdma.host.enablement_status import Status, read_status
from ovirt_rdma.host.lock_holder import holder_of
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy import Policy
from ovirt_rdma.host.policy_store import in_force
from ovirt_rdma.host.reader import HostReader
from ovirt_rdma.storage.mount_review import (
    DEGRADED,
    NOT_COVERED,
    MountReview,
    review_all,
)


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
