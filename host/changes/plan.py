# SPDX-License-Identifier: GPL-2.0-or-later
"""Plans: the steps for one host by one policy; which may be done now, and how they
differ from now.

A step that the rules refuse is never done. If a step takes down a link that is in use,
the whole plan is refused, unless that is allowed. If a step is left out, the steps that
depend on it are left out too: a change of a profile or netdev that it would have made,
an MTU or offload that was decided for the mode that it would have set.

A plan is printed by ``plan -o json`` and saved by ``plan --out``. Each change has the
value that it replaces (``before``). A saved plan is never carried out: it is compared
with what would be done now. The changes of a step can be shown line by line.
"""

from __future__ import annotations

import difflib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.host.changes.journal import Left
from ovirt_rdma.host.changes.kinds.netdev import MODE_FILE
from ovirt_rdma.host.changes.kinds.registry import kind_of
from ovirt_rdma.host.errors import Problem, Refused, Sentence
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.rules.base import LINK_DOWN, Change, Step
from ovirt_rdma.host.rules.ipoib import CHILDREN, CONNECTION_TYPE
from ovirt_rdma.host.system.files import write_atomically
from ovirt_rdma.host.system.json_codec import (
    Envelope,
    UnreadableJson,
    WrongRecord,
    WrongVersion,
    plain,
    read_json,
)

# Root will apply the plan, so nobody else may change it. It also names storage, which
# other users need not know.
FILE_MODE = 0o600

_FIX = "regenerate it with plan --out on the host that it describes"
PLAN = Envelope("plan")


def plan_document(
    facts: Facts, source: str, digest: str, steps: Iterable[Step]
) -> dict[str, Any]:
    """Return the plan of ``steps``, refused ones too, for the host with these facts, as
    JSON; each step has its ``id`` first. ``source`` and ``digest`` are the policy's.
    """
    return PLAN.around(
        {
            "hostname": facts.hostname,
            "kernel_release": facts.kernel_release,
            "made_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "policy": {"source": source, "digest": digest},
            "steps": [{"id": step.id, **plain(step)} for step in steps],
        }
    )


@dataclass(frozen=True)
class SavedPlan:
    """What is compared of the plan in the file ``path``: the host, the policy's digest,
    and the changes, as JSON, of each step that was not refused, by its id.
    """

    path: str
    hostname: str
    digest: str
    steps: dict[str, Any]


def load(path: str) -> SavedPlan:
    """Return the plan in a file. Raises Problem if it has none that can be read."""
    where = f"plan file {path}"
    try:
        saved = PLAN.content(read_json(path))
        digest = saved["policy"]["digest"]
        steps = {s["id"]: s["changes"] for s in saved["steps"] if not s["refused"]}
        return SavedPlan(path, str(saved["hostname"]), str(digest), steps)
    except UnreadableJson as error:
        fix = _FIX if error.is_file else "give the name of a file from plan --out"
        raise Problem("plan-file-unreadable", f"{where}: {error}", fix) from None
    except WrongVersion as older:
        raise Problem("plan-file-version", f"{where}: {older}", _FIX) from None
    except (WrongRecord, KeyError, TypeError) as wrong:
        why = wrong if isinstance(wrong, WrongRecord) else "it was edited by hand"
        raise Problem("plan-file-invalid", f"{where}: {why}", _FIX) from None


def save(document: Mapping[str, Any], path: Path) -> None:
    """Write a plan to ``path`` atomically; only its owner can read it.

    Only a plan file, of any version, or an empty file is replaced. Raises
    Problem for any other file, and where the file cannot be written.
    """
    kept = _why_kept(path)
    if kept:
        raise Problem(
            "plan-file-exists",
            f"{path} exists, and {kept}; it was not overwritten",
            "give the name of a new file, or of an older plan",
        )
    text = json.dumps(document, indent=2) + "\n"
    try:
        write_atomically(path, text.encode("ascii"), FILE_MODE)
    except OSError as error:
        raise Problem(
            "plan-file-not-written",
            f"{path}: the plan cannot be saved: {error.strerror or error}",
            "give the name of a file in a folder that you can write to",
        ) from None


def _why_kept(path: Path) -> str:
    """Return why the file that ``path`` names must not be replaced, or ""."""
    try:
        if not path.exists() and not path.is_symlink():
            return ""
        if path.is_file() and not path.stat().st_size:
            return ""  # as mktemp(1) makes it
        data = read_json(path) if path.is_file() else None
    except OSError:
        return ""  # the write says why: the folder may not be entered
    except UnreadableJson as error:
        return "is not a plan file" if error.is_file else str(error)
    if isinstance(data, dict) and data.get("kind") == PLAN.kind and "steps" in data:
        return ""
    return "is not a plan file"


def differences(
    plan: SavedPlan, hostname: str, digest: str, steps: Iterable[Step]
) -> tuple[Sentence, ...]:
    """Return the differences between ``plan`` and now, one sentence each; none if the
    plan is up to date. Pure.

    ``steps``, which are not refused, are decided now for the host ``hostname`` and the
    loaded policy, whose digest is ``digest``. If the plan is for another host or
    another policy, that is the only sentence, because all else would follow from it.
    """
    if plan.hostname != hostname:
        text = f"the plan is for {plan.hostname}, this host is {hostname}"
        return (Sentence("plan-host-differs", text),)
    if plan.digest != digest:
        # As long as git's: enough to distinguish two policies.
        made, loaded = (one[: len("sha256:") + 12] for one in (plan.digest, digest))
        text = f"the plan is for policy {made}, loaded is {loaded}"
        return (Sentence("plan-policy-differs", text),)
    then = plan.steps
    now = {step.id: plain(step)["changes"] for step in steps}
    found = []
    for step_id in dict.fromkeys((*then, *now)):
        if step_id not in now:
            text = f"{step_id} is no longer planned"
            found.append(Sentence("step-no-longer-planned", text))
        elif step_id not in then:
            text = f"{step_id} is planned now, and was not"
            found.append(Sentence("step-not-in-plan", text))
        elif then[step_id] != now[step_id]:
            text = f"{step_id} would make other changes than the plan says"
            found.append(Sentence("step-changes-differ", text))
    if then.keys() == now.keys() and list(then) != list(now):
        text = "the order of the steps has changed"
        found.append(Sentence("step-order-differs", text))
    return tuple(found)


_WAITS = (
    "put the host into maintenance and run this again, allow it with "
    "--allow-link-down, or apply only the live steps with --live-only"
)
_LIVE_ONLY = Sentence(
    "step-not-live", "it takes the link down, and only live steps were requested"
)


@dataclass(frozen=True)
class Gated:
    """``steps`` may be done, in this order; ``left`` has the others, with reasons."""

    steps: tuple[Step, ...]
    left: tuple[Left, ...]


def gate(
    steps: Sequence[Step], *, allow_link_down: bool = False, live_only: bool = False
) -> Gated:
    """Return which of ``steps`` may be done. Raises Refused, with each such step and
    its users, if one takes down a link that is in use, unless that is allowed or only
    live steps are requested.
    """
    allowed: list[Step] = []
    out: list[Step] = []
    left: list[Left] = []
    for step in steps:
        why = _why_left(step, out, live_only)
        if why:
            out.append(step)
            fix = _WAITS if why is _LIVE_ONLY else ""
            left.append(Left(step.id, "", why, fix))
        else:
            allowed.append(step)
    reasons = [
        link_in_use(step.id, step.users)
        for step in allowed
        if step.effect == LINK_DOWN and step.users
    ]
    if reasons and not allow_link_down:
        sentence = "refused: the interfaces are in use"
        raise Refused("netdevs-in-use", sentence, _WAITS, reasons=reasons)
    return Gated(tuple(allowed), tuple(left))


def _why_left(step: Step, out: Iterable[Step], live_only: bool) -> Optional[Sentence]:
    """Return why ``step`` is left out, given the earlier steps ``out`` that are."""
    if step.refused:
        return Sentence("step-refused", step.refused)
    if live_only and step.effect == LINK_DOWN:
        return _LIVE_ONLY
    for base in out:
        if _depends_on(step, base):
            return Sentence(
                "step-dependency-left-out",
                f"it depends on {base.id}, which is left out",
            )
    return None


def link_in_use(step_id: str, users: Iterable[str]) -> Sentence:
    """Return the sentence that a step takes the link down for ``users``."""
    return Sentence(
        "link-in-use", f"{step_id} takes the link down for {', '.join(users)}"
    )


def _depends_on(step: Step, base: Step) -> bool:
    """Whether ``step`` was decided for what ``base``, an earlier step, leaves."""
    made = {c.target for c in base.changes if c.name == CONNECTION_TYPE}
    child = base.subject if base.rule == CHILDREN.id else None
    # A refused step has no changes: the rules have decided the others without it.
    modes = [kind_of(change) for change in base.changes]
    new_mode = step.subject in {k.netdev for k in modes if k.sysfs_file == MODE_FILE}
    port_mtu = any(kind.port for kind in modes)
    return any(
        kind.change.target in made
        or (child is not None and kind.netdev == child)
        or (port_mtu and kind.is_mtu)
        or any(maker.is_maker and maker.owns(kind) for maker in modes)
        or (new_mode and kind.goes_with_mode)
        for kind in map(kind_of, step.changes)
    )


def diff(changes: Iterable[Change]) -> Iterator[str]:
    """Yield the lines for ``changes``, without line ends: a file's as diff(1) shows
    them, a setting with its values.
    """
    for change in changes:
        kind = kind_of(change)
        if not kind.is_text:
            values = map(kind.value_text, (change.before, change.after))
            yield f"{kind.describe()}: {' -> '.join(values)}"
            continue
        # Not str.splitlines: for it a form feed ends a line.
        texts = (change.before, change.after)
        before, after = (list(io.StringIO(text or "")) for text in texts)
        names = ["/dev/null" if text is None else change.target for text in texts]
        for line in difflib.unified_diff(before, after, names[0], names[1]):
            yield line.rstrip("\n")
