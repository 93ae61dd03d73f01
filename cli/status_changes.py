# SPDX-License-Identifier: GPL-2.0-or-later
"""What ``status`` says of the changes that are held. Pure but for the reading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Optional

from ovirt_rdma.cli.host_words import PROGRAM
from ovirt_rdma.cli.screen import count
from ovirt_rdma.cli.times import when, when_iso
from ovirt_rdma.host.effects.change_status import ChangeStatus
from ovirt_rdma.host.paths import JOURNAL, under


def read_changes(root: str) -> ChangeStatus:
    """Return what is held on the host below ``root``."""
    if not under(root, JOURNAL).exists():
        return ChangeStatus()
    # What only a host needs on which something was changed.
    from ovirt_rdma.cli import this_host
    from ovirt_rdma.host.effects.journal import Journal
    from ovirt_rdma.host.effects.read_change_status import change_status

    return change_status(this_host.door(root), Journal(root), root)


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
