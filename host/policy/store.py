# SPDX-License-Identifier: GPL-2.0-or-later
"""The loaded policy on disk, and how vdsmd follows it.

``policy load`` writes it, vdsmd and the hooks read it; no YAML here. The file
carries a digest of its policy, so an edit by hand is found.

A copy stands beside it, a file of its own with the same content. Where the file is
broken the copy counts for vdsmd and for all that only looks: a rule that requires RDMA
is a promise, and it is not to end with a disk's fault or a version that cannot read the
file. The copy is written after the file, so that it never has a policy that was not in
force; each is written whole, so that after a kill at least one is. Where the file is
gone, somebody took it away, and the copy does not count.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import POLICY_COPY, POLICY_JSON
from ovirt_rdma.host.policy import json_form
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.system.files import (
    NotDurable,
    how_to_mend,
    remove_unfinished,
    write_atomically,
)
from ovirt_rdma.host.system.safe_file import read_file

SCHEMA_VERSION = 1

# Written by root, read by the user vdsm.
FILE_MODE = 0o644
DIRECTORY_MODE = 0o755

_LOAD_AGAIN = "load the policy again: ovirt-rdma-host policy load"

_log = logging.getLogger("storage.ovirt_rdma")


class StoredPolicyProblem(Problem):
    """The stored policy cannot be written, read or believed."""


@dataclass(frozen=True)
class StoredPolicy:
    """A policy with where it came from.

    ``digest`` is ``sha256:`` and hex digits, ``source`` the YAML file's path,
    ``loaded_at`` ISO 8601 in UTC.
    """

    policy: Policy
    digest: str
    source: str
    loaded_at: str


@dataclass(frozen=True)
class StoreResult:
    """What :func:`store` left on disk, and whether another policy was in force before,
    or none. ``remarks`` are sentences about what of it went wrong; the policy is in
    force all the same.
    """

    stored: StoredPolicy
    changed: bool
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class InForce:
    """The policy that counts: of the file, or of its copy, None for none. ``problem``
    is why the file itself cannot be used.
    """

    stored: Optional[StoredPolicy]
    problem: Optional[StoredPolicyProblem] = None

    @property
    def consequence(self) -> str:
        """What follows from ``problem``, as a clause."""
        if self.stored is None:
            return "no policy is in force, NFS mounts are stock"
        return f"its copy counts: policy {self.stored.digest} of {self.stored.source}"


def store(policy: Policy, source: str, path: Path = Path(POLICY_JSON)) -> StoreResult:
    """Write ``policy`` to ``path``, and beside it the copy, unless the same policy is
    there already.

    A missing directory is made. A broken file is replaced. Raises
    StoredPolicyProblem where the file cannot be written; the old policy stays then.
    """
    remove_unfinished(path.parent)
    digest = json_form.digest(policy)
    present = _intact(path)
    if present is not None and present.digest == digest:
        missing = copy_problem(path) is not None
        return StoreResult(present, False, tuple(_copied(path)) if missing else ())
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    stored = StoredPolicy(policy, digest, source, now)
    content = {
        "schema_version": SCHEMA_VERSION,
        "digest": digest,
        "source": source,
        "loaded_at": now,
        "policy": json_form.to_json_dict(policy),
    }
    remarks = []
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
            path.parent.chmod(DIRECTORY_MODE)
        write_atomically(
            path, json.dumps(content, indent=2).encode("ascii") + b"\n", FILE_MODE
        )
    except NotDurable as error:
        remarks.append(f"{path}: {error.strerror}; {how_to_mend(error, path)}")
    except OSError as error:
        raise StoredPolicyProblem(
            "policy-not-stored",
            f"{path}: the policy cannot be stored: {error.strerror}",
            how_to_mend(error, path),
        ) from error
    return StoreResult(stored, True, (*remarks, *_copied(path)))


def copy_of(path: Path) -> Path:
    """Return where the copy of the stored policy ``path`` is."""
    return path.with_name(Path(POLICY_COPY).name)


def copy_problem(path: Path) -> Optional[str]:
    """Say, as a clause about the copy of ``path``, why it could not take the place of
    the file; None where it could.
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
    """Bring the copy in line with ``path``; return what went wrong, as a sentence."""
    copy = copy_of(path)
    try:
        write_atomically(copy, read_file(path), FILE_MODE)
    except NotDurable as error:
        return [f"{copy}: {error.strerror}; {how_to_mend(error, copy)}"]
    except OSError as error:
        # Rather none than that of a policy which was taken out of force.
        with contextlib.suppress(OSError):
            copy.unlink()
        return [
            f"{copy}, which counts where {path.name} is broken, cannot be written: "
            f"{error.strerror}; {how_to_mend(error, copy)}, and load the policy again"
        ]
    return []


def in_force(path: Path = Path(POLICY_JSON)) -> InForce:
    """Return the policy that counts for vdsmd and for those who look. Where neither
    the file nor its copy can be used that is none: no rule is known then, so NFS mounts
    are stock, and nothing is left that could be refused.
    """
    try:
        return InForce(read(path))
    except StoredPolicyProblem as problem:
        try:
            return InForce(read(copy_of(path)), problem)
        except StoredPolicyProblem:
            return InForce(None, problem)


def read(path: Path = Path(POLICY_JSON)) -> Optional[StoredPolicy]:
    """Return the stored policy, or None where none was ever loaded. For those who
    change the host: they wait until the file itself is whole.

    Raises StoredPolicyProblem for a file that is unreadable, no JSON, of another
    schema version, or whose policy does not have the digest it claims.
    """
    try:
        raw = read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoredPolicyProblem(
            "policy-unreadable",
            f"{path}: the stored policy cannot be read: {error.strerror}",
            "it should be a file with mode 0644 in a directory with mode 0755",
        ) from error
    try:
        return _decoded(json.loads(raw.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        raise StoredPolicyProblem(
            "stored-policy-invalid",
            f"{path}: the stored policy is broken: {error}",
            _LOAD_AGAIN,
        ) from error


def _decoded(data: object) -> StoredPolicy:
    if not isinstance(data, dict):
        raise ValueError("it is not an object")
    version = data.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"its schema version is {version!r}, this program reads {SCHEMA_VERSION}"
        )
    wanted = {"schema_version", "digest", "source", "loaded_at", "policy"}
    if set(data) != wanted:
        odd = ", ".join(sorted(set(data) ^ wanted))
        raise ValueError(f"keys are missing or unknown: {odd}")
    for key in ("digest", "source", "loaded_at"):
        if not isinstance(data[key], str):
            raise ValueError(f"{key} is not of type str")
    policy = json_form.from_json_dict(data["policy"])
    if json_form.digest_as_stored(data["policy"]) != data["digest"]:
        raise ValueError("its policy was changed by hand (the digest differs)")
    # Where an earlier version wrote the file, that of the same policy in this version.
    digest = json_form.digest(policy)
    return StoredPolicy(policy, digest, data["source"], data["loaded_at"])


def _intact(path: Path) -> Optional[StoredPolicy]:
    try:
        if path.stat().st_mode & 0o777 != FILE_MODE:
            return None
        return read(path)
    except (OSError, StoredPolicyProblem):
        return None


Signature = tuple[int, int, int, int]


def signature_of(path: Path) -> Optional[Signature]:
    """Return what changes with the file ``path``; None where it cannot be told."""
    try:
        found = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    # The change time too: cp -p and rsync -t give a file an older one's time.
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


class PolicySource:
    """The policy in force inside vdsmd: the last good one, followed as it changes.

    Thread-safe. Where the file is broken or unreadable its copy counts, without one
    the policy stays as it is; a vanished file leaves it, too. Each writes one line to
    the log; so does every policy that comes into force. A look is one stat(2) as long
    as the file stays as it is.
    """

    def __init__(self, path: Path = Path(POLICY_JSON)) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._policy = Policy()
        self._digest: Optional[str] = None
        self._seen: Optional[Signature] = None
        self._said = ""

    def current(self) -> Policy:
        """Return the policy in force; empty before the first load. Never raises."""
        with self._lock:
            signature = signature_of(self._path)
            if signature is None or signature != self._seen:
                self._follow(signature)
            return self._policy

    def _follow(self, signature: Optional[Signature]) -> None:
        found = in_force(self._path)
        stored, problem = found.stored, found.problem
        if problem is not None:
            # An error of the system may pass without any change to the file.
            failed_to_read = isinstance(problem.__cause__, OSError)
            self._seen = None if failed_to_read else signature
            if stored is not None and stored.digest != self._digest:
                self._policy, self._digest = stored.policy, stored.digest
            words = found.consequence if stored is not None else self._in_force()
            self._say(logging.ERROR, f"{problem}; {words}; {problem.fix}")
            return
        self._seen = signature
        if stored is None:
            if self._digest is not None:
                self._say(
                    logging.WARNING, f"{self._path} has vanished; {self._in_force()}"
                )
            return
        came_back = bool(self._said)
        self._said = ""
        if stored.digest != self._digest or came_back:
            self._policy, self._digest = stored.policy, stored.digest
            rules = len(stored.policy.nfs.rules)
            _log.info(
                "policy %s of %s is in force (NFS rules: %d)",
                stored.digest,
                stored.source,
                rules,
            )

    def _in_force(self) -> str:
        if self._digest is None:
            return InForce(None).consequence
        return f"policy {self._digest} stays in force"

    def _say(self, level: int, sentence: str) -> None:
        if sentence != self._said:
            self._said = sentence
            _log.log(level, "%s", sentence)
