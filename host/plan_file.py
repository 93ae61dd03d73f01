# SPDX-License-Identifier: GPL-2.0-or-later
"""A plan as JSON and back: what ``plan -o json`` prints and ``plan --out`` saves.

Strict on the way in, as facts files are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union

from ovirt_rdma.host.atomic_file import write_atomically
from ovirt_rdma.host.json_file import UnreadableJson, read_json
from ovirt_rdma.host.json_records import Records, WrongRecord, kind, plain
from ovirt_rdma.host.plan_values import Value
from ovirt_rdma.host.problem import Problem
from ovirt_rdma.host.rules.rule import Step

SCHEMA_VERSION = 1
KIND = "plan"

# A plan is meant to be carried out by root: nobody else may change it, and it names
# storage that not everybody need know.
FILE_MODE = 0o600

_MAKE = "ovirt-rdma-host plan --out FILE"
_FIX = f"make it anew, on the host it is about: {_MAKE}"


class PlanFileProblem(Problem):
    """The file is no plan file of this schema version, or cannot be written."""


@dataclass(frozen=True)
class PlannedBy:
    """The policy that a plan follows: where it is from, and its ``sha256:`` digest."""

    source: str
    digest: str


@dataclass(frozen=True)
class Plan:
    """The steps for one host, refused ones too, and what they rest on.

    ``made_at`` is ISO 8601 in UTC.
    """

    hostname: str
    kernel_release: str
    made_at: str
    policy: PlannedBy
    steps: tuple[Step, ...] = ()
    values: tuple[Value, ...] = ()


def to_json_dict(plan: Plan) -> dict[str, Any]:
    """Return the plan as dicts, lists, strings and None, after ``schema_version`` and
    ``kind``; each step has its ``id`` first.
    """
    data = plain(plan)
    data["steps"] = [{"id": step.id, **plain(step)} for step in plan.steps]
    return {"schema_version": SCHEMA_VERSION, "kind": KIND, **data}


def from_json_dict(data: object, where: str) -> Plan:
    """Return the plan in ``data``, as :func:`to_json_dict` made it.

    ``where`` names the source in errors. Raises PlanFileProblem with the key path of
    what is wrong.
    """
    if not isinstance(data, dict):
        raise PlanFileProblem(f"{where}: not a plan, {kind(data)} at the top", _FIX)
    for key, wanted in (("schema_version", SCHEMA_VERSION), ("kind", KIND)):
        if data.get(key) != wanted or isinstance(data[key], bool):
            shown = ascii(data[key]) if key in data else "missing"
            raise PlanFileProblem(f"{where}: {key} is {shown}, not {wanted!r}", _FIX)
    rest = {key: data[key] for key in data if key not in ("schema_version", "kind")}
    ids: list[object] = []
    if isinstance(data.get("steps"), list):
        rest["steps"] = [_without_id(step, ids) for step in data["steps"]]
    try:
        plan = Records("the plan").read(Plan, rest)
    except WrongRecord as wrong:
        raise PlanFileProblem(f"{where}: {wrong}", _FIX) from None
    for number, (step, found) in enumerate(zip(plan.steps, ids)):
        if step.id != found:
            raise PlanFileProblem(
                f"{where}: steps[{number}].id is {found!a}, not {step.id!a}", _FIX
            )
    return plan


def load(path: Union[str, Path]) -> Plan:
    """Return the plan in a file.

    Raises PlanFileProblem where it cannot be read, is not JSON or not a plan.
    """
    where = f"plan file {path}"
    try:
        data = read_json(path)
    except UnreadableJson as error:
        fix = _FIX if error.is_file else f"give the name of a file made with: {_MAKE}"
        raise PlanFileProblem(f"{where} {error}", fix) from None
    return from_json_dict(data, where)


def save(plan: Plan, path: Path) -> None:
    """Write ``plan`` to ``path``, whole or not at all, readable by its owner only.

    Only a plan file, of any version, or an empty file is replaced. Raises
    PlanFileProblem for any other, and where the file cannot be written.
    """
    if not _may_replace(path):
        raise PlanFileProblem(
            f"{path} is there and is no plan file: it is not overwritten",
            "give the name of a new file, or of an older plan",
        )
    text = json.dumps(to_json_dict(plan), indent=2) + "\n"
    try:
        write_atomically(path, text.encode("ascii"), FILE_MODE)
    except OSError as error:
        raise PlanFileProblem(
            f"{path}: the plan cannot be saved: {error.strerror or error}",
            "give the name of a file in a folder that you may write to",
        ) from None


def _may_replace(path: Path) -> bool:
    try:
        if not path.exists() and not path.is_symlink():
            return True
        if path.is_file() and not path.stat().st_size:
            return True  # as mktemp leaves it
        data = read_json(path) if path.is_file() else None
    except (OSError, UnreadableJson):
        return False
    return isinstance(data, dict) and data.get("kind") == KIND and "steps" in data


def _without_id(step: object, ids: list[object]) -> object:
    if not isinstance(step, dict):
        return step
    ids.append(step.get("id"))
    return {key: value for key, value in step.items() if key != "id"}
