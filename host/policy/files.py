# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the text of a policy file and of its drop-ins.

Drop-ins are the files ``NN-NAME.yaml`` in the folder ``policy.d`` beside the policy
file. The engine's tools write them, one for each storage domain, so that nobody but the
admin edits the policy file.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from pathlib import Path
from typing import NamedTuple, Union

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.paths import DROP_INS
from ovirt_rdma.host.policy.diagnostics import Diagnostic, PolicyProblem
from ovirt_rdma.host.system.safe_file import names_of_others, read_file

# Room for some thousand rules; a policy for many hosts may have 60 kB. Reading takes
# some 10 microseconds per byte. The limit is for file and drop-ins together.
MOST_BYTES = 1_000_000
_TOO_LONG_FIX = "name the exports by globs and networks, so that the policy is shorter"
_MOST_DROP_INS = 1000

_DROP_IN = re.compile(r"[0-9]{2}-[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.yaml")
# What looks like a drop-in but would not be read, so that a wrong name is noticed.
# Packages and editors leave other names, which are ignored as hidden files are.
_MEANT_AS_ONE = (".yaml", ".yml")


class PolicyTexts(NamedTuple):
    """The text of a policy file, and of its drop-ins by name."""

    text: str
    drop_ins: dict[str, str]


def is_drop_in(name: str) -> bool:
    """Whether a drop-in may have this name: ``50-data1.yaml``."""
    return bool(_DROP_IN.fullmatch(name))


def drop_in_folder(path: Union[str, Path]) -> Path:
    """Return the folder with the drop-ins of the policy file ``path``."""
    return Path(path).parent / Path(DROP_INS).name


def read_policy_texts(
    path: Union[str, Path], *, own: bool = False, alone: bool = False
) -> PolicyTexts:
    """Read the policy file ``path`` and, unless ``alone``, its drop-ins. ``own``: they
    will be loaded, so only root and the user of this process may be able to write them.

    The file itself may be missing if there are drop-ins, and may be a pipe, which has
    none. Raises PolicyProblem if a file is unreadable, not UTF-8 or writable by others,
    or if all have more than MOST_BYTES.
    """
    drop_ins = {} if alone else read_drop_ins(path, own=own)
    left = MOST_BYTES - sum(len(text.encode()) for text in drop_ins.values())
    try:
        with Path(path).open("rb") as opened:
            # Of the open file: another one may have its name by now.
            status = os.fstat(opened.fileno())
            raw = opened.read(left + 1)
        if own:
            _check_own(path, status)
    except FileNotFoundError as error:
        if drop_ins:
            return PolicyTexts("", drop_ins)
        fix = "create the file; an empty policy is valid and changes nothing"
        missing = Sentence("policy-file-missing", "there is no such policy file")
        raise _unusable(path, missing, fix) from error
    except IsADirectoryError as error:
        fix = "name the file in it"
        folder = Sentence("policy-file-folder", "is a directory, not a policy file")
        raise _unusable(path, folder, fix) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(raw) > left:
        also = " with its drop-ins" if drop_ins else ""
        too_long = f"is{also} longer than {MOST_BYTES} bytes, the limit for a policy"
        sentence = Sentence("policy-file-too-long", too_long)
        raise _unusable(path, sentence, _TOO_LONG_FIX)
    return PolicyTexts(_decoded(path, raw), drop_ins)


def read_drop_ins(path: Union[str, Path], *, own: bool = False) -> dict[str, str]:
    """Return the texts of the drop-ins of the policy file ``path``, by name. Raises
    PolicyProblem as :func:`read_policy_texts`.
    """
    drop_ins = {}
    left = MOST_BYTES
    for file in _drop_ins_of(path):
        try:
            if own:
                _check_own(file, file.stat())
            raw = read_file(file, left)
        except OSError as error:
            raise _unreadable(file, error) from error
        left -= len(raw)
        drop_ins[file.name] = _decoded(file, raw)
    return drop_ins


def _drop_ins_of(path: Union[str, Path]) -> list[Path]:
    folder = drop_in_folder(path)
    try:
        names = names_of_others(str(folder), str(folder), _MOST_DROP_INS)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(folder, error) from error
    for name in names:
        meant = name.endswith(_MEANT_AS_ONE) and not name.startswith(".")
        if meant and not is_drop_in(name):
            raise _unusable(
                folder / name,
                Sentence("drop-in-name", "is not the name of a drop-in"),
                "rename it to NN-NAME.yaml with two digits, such as 50-data1.yaml, or "
                "remove it",
            )
    return [folder / name for name in names if is_drop_in(name)]


def _decoded(path: Union[str, Path], raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        not_utf8 = f"the byte 0x{raw[error.start]:02x} is not UTF-8"
        sentence = Sentence("policy-file-not-utf8", not_utf8)
        remark = Diagnostic(line, "", sentence, str(path))
        fix = "save the file as UTF-8"
        raise PolicyProblem(str(path), (remark,), fix) from error


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
            path,
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
            path,
            Sentence(
                "policy-file-mode",
                f"{what}can be written by other users (mode {mode:04o}), so it is not "
                "loaded",
            ),
            f"check its content, then run: chmod go-w {quoted}",
        )


def _unreadable(path: Union[str, Path], error: OSError) -> PolicyProblem:
    unreadable = f"cannot be read: {error.strerror}"
    return _unusable(path, Sentence("policy-file-unreadable", unreadable))


def _unusable(
    path: Union[str, Path], sentence: Sentence, fix: str = ""
) -> PolicyProblem:
    remark = Diagnostic(None, "", sentence, str(path))
    return PolicyProblem(str(path), (remark,), fix)
