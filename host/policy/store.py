# SPDX-License-Identifier: GPL-2.0-or-later
"""Store the loaded policy, and let vdsmd follow it.

``policy load`` writes the file, vdsmd and the hooks read it; no YAML is needed. The
file has a digest of its policy, so that an edit by hand is detected.

Beside it is a copy, a separate file with the same content. If the file is damaged,
vdsmd and everything that only reads uses the copy: a rule that requires RDMA is a
promise, and must hold even if the disk is faulty or this version cannot read the file.
The copy is written after the file, so it never has a policy that was not in force. Each
is written atomically, so that after a kill at least one is complete. If the file is
missing, somebody removed it, and the copy is not used.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import POLICY_COPY, POLICY_JSON
from ovirt_rdma.host.policy.model import Policy, from_json_dict, to_json_dict
from ovirt_rdma.host.policy.model import digest as digest_of
from ovirt_rdma.host.system.files import (
    NotDurable,
    fix_for,
    remove_unfinished,
    write_atomically,
)
from ovirt_rdma.host.system.json_codec import Envelope, json_value
from ovirt_rdma.host.system.safe_file import read_file

# Written by root, read by the user vdsm.
FILE_MODE = 0o644
DIRECTORY_MODE = 0o755

_LOAD_AGAIN = "load the policy again: ovirt-rdma-host policy load"
# What a version stores that this one cannot read gets another schema version.
STORED = Envelope("stored-policy", digested="policy")

_log = logging.getLogger("storage.ovirt_rdma")


class StoredPolicyProblem(Problem):
    """The stored policy cannot be written, or cannot be read, or is invalid."""


@dataclass(frozen=True)
class StoredPolicy:
    """A policy and its origin.

    ``digest`` is ``sha256:`` and hex digits, ``source`` the YAML file's path,
    ``loaded_at`` ISO 8601 in UTC.
    """

    policy: Policy
    digest: str
    source: str
    loaded_at: str


@dataclass(frozen=True)
class InForce:
    """The policy in force, from the file or its copy, or None.

    ``problem`` says why the file itself cannot be used.
    """

    stored: Optional[StoredPolicy]
    problem: Optional[StoredPolicyProblem] = None

    @property
    def consequence(self) -> str:
        """The consequence of ``problem``, as a clause."""
        if self.stored is None:
            return "no policy is in force, NFS mounts are stock"
        return f"its copy is used: policy {self.stored.digest} of {self.stored.source}"


def store(
    policy: Policy, source: str, path: Path = Path(POLICY_JSON)
) -> tuple[bool, list[str]]:
    """Write ``policy`` to ``path`` and to its copy, unless they have it already.

    Return whether another policy, or none, was in force before, and sentences about
    errors that do not keep this one from being in force. A missing directory is
    created, a damaged file replaced. Raises StoredPolicyProblem if the file cannot be
    written; then the old policy stays in force.
    """
    remove_unfinished(path.parent)
    if _has(path, policy):
        return False, _copied(path) if copy_problem(path) else []
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    content = {"source": source, "loaded_at": now, "policy": to_json_dict(policy)}
    remarks = []
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
            path.parent.chmod(DIRECTORY_MODE)
        write_atomically(path, STORED.text(content).encode("ascii"), FILE_MODE)
    except NotDurable as error:
        remarks.append(f"{path}: {error.strerror}; {fix_for(error, path)}")
    except OSError as error:
        raise StoredPolicyProblem(
            "policy-not-stored",
            f"{path}: the policy cannot be stored: {error.strerror}",
            fix_for(error, path),
        ) from error
    return True, [*remarks, *_copied(path)]


def _has(path: Path, policy: Policy) -> bool:
    try:
        stored = read(path) if path.stat().st_mode & 0o777 == FILE_MODE else None
    except (OSError, StoredPolicyProblem):
        return False
    return stored is not None and stored.digest == digest_of(policy)


def copy_of(path: Path) -> Path:
    """Return the path of the copy of the stored policy ``path``."""
    return path.with_name(Path(POLICY_COPY).name)


def copy_problem(path: Path) -> Optional[str]:
    """Return, as a clause, why the copy of ``path`` could not replace the file; None if
    it could.
    """
    try:
        if read_file(copy_of(path)) != read_file(path):
            return "has another policy than the one in force"
        if copy_of(path).stat().st_mode & 0o777 != FILE_MODE:
            return "cannot be read by vdsmd"
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None


def _copied(path: Path) -> list[str]:
    """Update the copy of ``path``; return errors as sentences."""
    copy = copy_of(path)
    try:
        write_atomically(copy, read_file(path), FILE_MODE)
    except NotDurable as error:
        return [f"{copy}: {error.strerror}; {fix_for(error, copy)}"]
    except OSError as error:
        # No copy is better than one of a policy that is no longer in force.
        with contextlib.suppress(OSError):
            copy.unlink()
        return [
            f"{copy}, which replaces a damaged {path.name}, cannot be written: "
            f"{error.strerror}; {fix_for(error, copy)}, and load the policy again"
        ]
    return []


def in_force(path: Path = Path(POLICY_JSON)) -> InForce:
    """Return the policy in force, for vdsmd and for code that only reads.

    If neither the file nor its copy can be used there is none: no rule is known, NFS
    mounts are stock, and none can be refused.
    """
    try:
        return InForce(read(path))
    except StoredPolicyProblem as problem:
        try:
            return InForce(read(copy_of(path)), problem)
        except StoredPolicyProblem:
            return InForce(None, problem)


def read(path: Path = Path(POLICY_JSON)) -> Optional[StoredPolicy]:
    """Return the stored policy, or None if none was ever loaded.

    For code that changes the host: it needs the file itself and ignores the copy.
    Raises StoredPolicyProblem if the file is unreadable or not JSON, has another schema
    version, or its digest does not match its policy.
    """
    try:
        raw = read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoredPolicyProblem(
            "stored-policy-unreadable",
            f"{path}: the stored policy cannot be read: {error.strerror}",
            "make it a file with mode 0644 in a directory with mode 0755",
        ) from error
    try:
        return _decoded(STORED.content(json_value(raw)))
    except (ValueError, RecursionError) as error:
        raise StoredPolicyProblem(
            "stored-policy-invalid",
            f"{path}: the stored policy is invalid: {error}",
            _LOAD_AGAIN,
        ) from error


def _decoded(content: dict[str, Any]) -> StoredPolicy:
    wanted = {"source", "loaded_at", "policy"}
    if set(content) != wanted:
        keys = ", ".join(sorted(set(content) ^ wanted))
        raise ValueError(f"keys are missing or unknown: {keys}")
    for key in ("source", "loaded_at"):
        if not isinstance(content[key], str):
            raise ValueError(f"{key} is not of type str")
    policy = from_json_dict(content["policy"])
    digest = digest_of(policy)
    return StoredPolicy(policy, digest, content["source"], content["loaded_at"])


Signature = tuple[int, int, int, int]


def signature_of(path: Path) -> Optional[Signature]:
    """Return values that change when the file ``path`` does; None if it has none."""
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    # The change time too: cp -p and rsync -t set an old modification time.
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)


class FollowedPolicy:
    """The policy in force at ``path``, for a service that runs on."""

    def __init__(self, path: Path = Path(POLICY_JSON)) -> None:
        self._path = path
        self._seen: Optional[Signature] = None
        self.loaded = InForce(None)

    def follow(self) -> bool:
        """Read the policy again if its file has changed; return whether there is
        another policy, or problem, than before. Never raises.
        """
        signature = signature_of(self._path)
        if signature is not None and signature == self._seen:
            return False
        before, self.loaded = self.loaded, in_force(self._path)
        problem = self.loaded.problem
        # A system error can go away without a change to the file.
        failed_to_read = problem and isinstance(problem.__cause__, OSError)
        self._seen = None if failed_to_read else signature
        return _origin(before) != _origin(self.loaded)


def _origin(loaded: InForce) -> tuple[str, str]:
    digest = loaded.stored.digest if loaded.stored else ""
    return digest, loaded.problem.one_line if loaded.problem else ""


class PolicySource:
    """The policy in force inside vdsmd: the last valid one, updated when it changes.

    Thread-safe. If the file is damaged or unreadable, its copy is used; without a copy,
    or if the file is missing, the policy stays. Each of these writes one line to the
    log, and so does every new policy. While the file is unchanged, a call costs one
    stat(2).
    """

    def __init__(self, path: Path = Path(POLICY_JSON)) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._followed = FollowedPolicy(path)
        self._last: Optional[StoredPolicy] = None

    def current(self) -> Policy:
        """Return the policy in force; empty before the first load. Never raises."""
        with self._lock:
            if self._followed.follow():
                self._take(self._followed.loaded)
            return self._last.policy if self._last else Policy()

    def _take(self, loaded: InForce) -> None:
        stored, problem = loaded.stored, loaded.problem
        self._last = last = stored or self._last
        stays = f"policy {last.digest} stays in force" if last else loaded.consequence
        if problem is not None:
            consequence = loaded.consequence if stored else stays
            _log.error("%s; %s; %s", problem, consequence, problem.fix)
        elif stored is None:
            _log.warning("%s is missing; %s", self._path, stays)
        else:
            _log.info(
                "policy %s of %s is in force (NFS rules: %d)",
                stored.digest,
                stored.source,
                len(stored.policy.nfs.rules),
            )
