# SPDX-License-Identifier: GPL-2.0-or-later
"""Load policy.yaml strictly, and report all its mistakes at once.

The file is read along the table of fields and checked by the ``validate_`` modules;
each mistake is one sentence with line and key. This module imports PyYAML. Only the
commands import it, nothing that runs inside vdsmd.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.policy.diagnostics import (
    Diagnostic,
    KeyPath,
    Mistake,
    PolicyProblem,
    key_text,
)
from ovirt_rdma.host.policy.fields import POLICY
from ovirt_rdma.host.policy.forms import Reading
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.policy.validate_host import (
    HOST_CHECKS,
    host_mistakes,
    host_policy,
    interfaces_never_winning,
)
from ovirt_rdma.host.policy.validate_nfs import (
    MOST_COMPARED,
    NFS_CHECKS,
    nfs_mistakes,
    rule_name,
    rules_never_winning,
)
from ovirt_rdma.host.policy.yaml_source import YamlDocument, read_yaml

_CHECKS = {**NFS_CHECKS, **HOST_CHECKS}

# Room for some thousand rules; a policy for many hosts may have 60 kB. Reading takes
# some 10 microseconds per byte.
MOST_BYTES = 1_000_000


@dataclass(frozen=True)
class PolicyFile:
    """A valid policy, and the ``document`` that it was read from."""

    policy: Policy
    document: YamlDocument = field(repr=False, compare=False)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """Rules that never win. Computed on request: policies that are not shown, such
        as those that hosts send, cost nothing here.
        """
        return _warnings(self.policy, self.document)


def load_policy_file(path: Union[str, Path], *, own: bool = False) -> PolicyFile:
    """Read the YAML file ``path``. ``own``: it will be loaded, so only root and the
    user of this process may be able to write it.

    Raises PolicyProblem if the file is unreadable, longer than MOST_BYTES, not UTF-8 or
    writable by others, and for what :func:`parse_policy` finds.
    """
    where = str(path)
    try:
        with Path(path).open("rb") as file:
            # Of the open file: another one may have its name by now.
            status = os.fstat(file.fileno())
            raw = file.read(MOST_BYTES + 1)
        if own:
            _check_own(path, status)
    except FileNotFoundError as error:
        fix = "create the file; an empty policy is valid and changes nothing"
        missing = Sentence("policy-file-missing", "there is no such policy file")
        raise _unusable(where, missing, fix) from error
    except IsADirectoryError as error:
        fix = "name the file in it"
        folder = Sentence("policy-file-folder", "is a directory, not a policy file")
        raise _unusable(where, folder, fix) from error
    except OSError as error:
        unreadable = f"cannot be read: {error.strerror}"
        sentence = Sentence("policy-file-unreadable", unreadable)
        raise _unusable(where, sentence) from error
    if len(raw) > MOST_BYTES:
        fix = "name the exports by globs and networks, so that the policy is shorter"
        too_long = f"is longer than {MOST_BYTES} bytes, the limit for a policy"
        raise _unusable(where, Sentence("policy-file-too-long", too_long), fix)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        not_utf8 = f"the byte 0x{raw[error.start]:02x} is not UTF-8"
        remark = Diagnostic(line, "", Sentence("policy-file-not-utf8", not_utf8))
        raise PolicyProblem(where, (remark,), "save the file as UTF-8") from error
    return parse_policy(text, where)


def _check_own(path: Union[str, Path], status: os.stat_result) -> None:
    """Raise PolicyProblem if another user could have written the file: as its owner, by
    its mode, or by replacing it in its folder. A pipe belongs to this process's user.
    """
    _check_writers(path, str(path), status)
    for folder in {Path(path).absolute().parent, Path(os.path.realpath(path)).parent}:
        _check_writers(path, str(folder), folder.stat())


def _check_writers(
    path: Union[str, Path], checked: str, status: os.stat_result
) -> None:
    owner, mode = status.st_uid, stat.S_IMODE(status.st_mode)
    what = "" if checked == str(path) else f"its folder {checked} "
    quoted = shlex.quote(checked)
    if owner not in (0, os.geteuid()):
        raise _unusable(
            str(path),
            Sentence(
                "policy-file-owner",
                f"{what}belongs to the user {owner}, not to root, so it is not loaded",
            ),
            f"check its content, then run: chown root {quoted}",
        )
    # In a sticky folder only its owner and root can replace a file.
    sticky = stat.S_ISDIR(status.st_mode) and mode & stat.S_ISVTX
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
        raise _unusable(
            str(path),
            Sentence(
                "policy-file-mode",
                f"{what}can be written by other users (mode {mode:04o}), so it is not "
                "loaded",
            ),
            f"check its content, then run: chmod go-w {quoted}",
        )


def parse_policy(text: str, where: str) -> PolicyFile:
    """Read a policy from YAML ``text``; ``where`` names the file in sentences.

    Text without content is the empty policy. Raises PolicyProblem with all mistakes,
    sorted by line.
    """
    document = read_yaml(text)
    errors = list(document.mistakes)
    if document.data is None:
        if errors:
            raise PolicyProblem(where, tuple(errors))
        return PolicyFile(Policy(), document)
    reading = Reading(document.texts, document.misread, _CHECKS)
    parts = POLICY.read(document.data, (), reading)
    if isinstance(parts, dict):
        reading.mistakes += nfs_mistakes(parts.get("nfs"))
        reading.mistakes += host_mistakes(parts.get("host"))
    errors += [_remark(document, *mistake) for mistake in reading.mistakes]
    wrong = {(error.line, error.key) for error in errors}
    misread = [_remark(document, *mistake) for mistake in reading.misread_mistakes]
    errors += [error for error in misread if (error.line, error.key) not in wrong]
    if errors:
        raise PolicyProblem(where, tuple(sorted(set(errors), key=_by_line)))
    nfs, host = parts.get("nfs"), parts.get("host")
    policy = Policy(parts["version"], _nfs_policy(nfs or {}), host_policy(host or {}))
    return PolicyFile(policy, document)


def _nfs_policy(nfs: Mapping[str, Any]) -> NfsPolicy:
    defaults = nfs.get("defaults") or {}
    return NfsPolicy(
        tuple(
            _rule({**defaults, **rule}, number)
            for number, rule in enumerate(nfs.get("rules") or (), 1)
        )
    )


def _rule(keys: Mapping[str, Any], number: int) -> NfsRule:
    named = {"path": "*", **keys, "name": rule_name(keys, number)}
    return NfsRule(number=number, **named)


def _warnings(policy: Policy, document: YamlDocument) -> tuple[Diagnostic, ...]:
    return tuple(
        _remark(document, path, sentence)
        for path, sentence in (
            *rules_never_winning(policy),
            *interfaces_never_winning(policy.host),
            *_not_compared(policy),
        )
    )


def _not_compared(policy: Policy) -> Iterator[Mistake]:
    rules, interfaces = policy.nfs.rules, policy.host.interfaces
    for part, many in (("rules", len(rules)), ("interfaces", len(interfaces))):
        if many > MOST_COMPARED:
            yield (
                ("nfs" if part == "rules" else "host", part, MOST_COMPARED),
                Sentence(
                    "rules-not-compared",
                    f"only the first {MOST_COMPARED} {part} are checked for rules that "
                    "never win; this and later ones are not",
                ),
            )


def _remark(document: YamlDocument, path: KeyPath, sentence: Sentence) -> Diagnostic:
    return Diagnostic(document.line(path), key_text(path), sentence)


def _unusable(where: str, sentence: Sentence, fix: str = "") -> PolicyProblem:
    return PolicyProblem(where, (Diagnostic(None, "", sentence),), fix)


def _by_line(remark: Diagnostic) -> tuple[int, str, str]:
    return (remark.line or 0, remark.key, remark.sentence)
