# SPDX-License-Identifier: GPL-2.0-or-later
"""Load policy.yaml and its drop-ins strictly, and report all mistakes at once.

The data is read along the table of keys; each mistake is one sentence with file, line
and key. This module imports PyYAML. Only the commands import it, nothing that runs
inside vdsmd.

Drop-ins are the files ``NN-NAME.yaml`` in the folder ``policy.d`` beside the policy
file. The engine's tools write them, one for each storage domain, so that nobody but the
admin edits the policy file. A drop-in has rules for exports. They come before those of
policy.yaml, in the order of the drop-ins' names, and ``nfs.defaults`` of policy.yaml
are for them too.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional, TypeVar, Union

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.pkeys import partition_of
from ovirt_rdma.host.paths import DROP_INS
from ovirt_rdma.host.policy.forms import (
    Diagnostic,
    Given,
    KeyPath,
    Keys,
    PolicyProblem,
    Reading,
    key_text,
)
from ovirt_rdma.host.policy.model import (
    DROP_IN,
    INFINIBAND,
    POLICY,
    TRANSPORTS,
    InterfaceRule,
    NfsRule,
    Policy,
    is_glob,
    network_of,
    path_match,
    server_match,
)
from ovirt_rdma.host.system.safe_file import names_of_others, read_file

if TYPE_CHECKING:
    from ovirt_rdma.host.policy.yaml_source import YamlDocument

# The time to find rules that never win grows with the square of their number: 1.5 s for
# this many.
MOST_COMPARED = 1000

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


class _Source(NamedTuple):
    """A file: ``file`` is its path if it is a drop-in, else "". ``given`` are the valid
    values in it.
    """

    file: str
    document: YamlDocument
    reading: Reading
    given: Mapping[str, Any]

    @property
    def nfs(self) -> Mapping[str, Any]:
        """The valid values of the ``nfs:`` part."""
        nfs: Mapping[str, Any] = self.given.get("nfs", {})
        return nfs

    @property
    def rules(self) -> Sequence[Optional[Given]]:
        """The rules for exports; None for one that is no mapping."""
        rules: Sequence[Optional[Given]] = self.nfs.get("rules", ())
        return rules

    def remark(self, path: KeyPath, sentence: Sentence) -> Diagnostic:
        """Return the sentence about the value at ``path`` with its line."""
        line = self.document.line(path)
        return Diagnostic(line, key_text(path), sentence, self.file)


@dataclass(frozen=True)
class PolicyFile:
    """A valid policy; ``drop_ins`` are the names of those that it was read from."""

    policy: Policy
    drop_ins: tuple[str, ...]
    _main: _Source = field(repr=False, compare=False)
    # Where each rule is written: file and position.
    _places: tuple[tuple[_Source, int], ...] = field(repr=False, compare=False)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """Rules that never win. Computed on request: policies that are not shown, such
        as those that hosts send, cost nothing here.
        """
        return tuple(self._warnings())

    @property
    def alone(self) -> Policy:
        """The policy of the file without its drop-ins."""
        if not self.drop_ins:
            return self.policy
        return _policy(
            self._main, [place for place in self._places if place[0] is self._main]
        )

    def drop_in_of(self, rule: NfsRule) -> str:
        """Return the name of the drop-in that has ``rule``, "" for policy.yaml."""
        return Path(self._places[rule.number - 1][0].file).name

    def _warnings(self) -> Iterator[Diagnostic]:
        rules, interfaces = self.policy.nfs.rules, self.policy.host.interfaces
        for later, earlier in _never_winning(rules, _names_all_exports_of):
            other = self._places[earlier.number - 1][0].file
            elsewhere = f" in {other}"
            if other == self._places[later.number - 1][0].file:
                elsewhere = ""
            yield self._remark(
                later,
                "rule-never-wins",
                f"{later.name!r} never wins: {earlier.name!r}{elsewhere} is before it "
                "and names all its exports; "
                + ("remove one of the two" if elsewhere else _MOVE),
            )
        for one, first in _never_winning(interfaces, _names_all_netdevs_of):
            yield self._remark(
                one,
                "rule-never-wins",
                f"{one.name!r} never wins: {first.name!r} is before it and names all "
                f"its netdevs; {_MOVE}",
            )
        for kind, entries in (("rules", rules), ("interfaces", interfaces)):
            if len(entries) > MOST_COMPARED:
                yield self._remark(
                    entries[MOST_COMPARED],
                    "rules-not-compared",
                    f"only the first {MOST_COMPARED} {kind} are checked for rules that "
                    "never win; this and later ones are not",
                )

    def _remark(
        self, entry: Union[NfsRule, InterfaceRule], id: str, text: str
    ) -> Diagnostic:
        if isinstance(entry, NfsRule):
            source, position = self._places[entry.number - 1]
            return source.remark(("nfs", "rules", position), Sentence(id, text))
        path = ("host", "interfaces", entry.number - 1)
        return self._main.remark(path, Sentence(id, text))


_MOVE = "move it up, or remove it"


def load_policy_file(
    path: Union[str, Path], *, own: bool = False, alone: bool = False
) -> PolicyFile:
    """Read the YAML file ``path`` and its drop-ins. ``own``: they will be loaded, so
    only root and the user of this process may be able to write them. ``alone``: it is
    for other hosts, so drop-ins beside it do not belong to it.

    Raises PolicyProblem as :func:`~.files.read_policy_texts` and :func:`parse_policy`.
    """
    texts = read_policy_texts(path, own=own, alone=alone)
    return parse_policy(texts.text, str(path), texts.drop_ins)


def parse_policy(
    text: str, where: str, drop_ins: Optional[Mapping[str, str]] = None
) -> PolicyFile:
    """Read a policy from YAML ``text``, and ``drop_ins`` by name; ``where`` names the
    file in sentences.

    Text without content is the empty policy. Raises PolicyProblem with all mistakes,
    sorted by file and line.
    """
    folder = drop_in_folder(where)
    sources: list[_Source] = []
    for name, drop_in in sorted((drop_ins or {}).items()):
        sources.append(_source(str(folder / name), drop_in, DROP_IN, sources))
    main = _source("", text, POLICY, sources)
    sources.append(main)
    errors = {error for source in sources for error in _mistakes(source, main)}
    if errors:
        raise PolicyProblem(where, tuple(sorted(errors, key=_by_line)))
    places = tuple(
        (source, position)
        for source in sources
        for position in range(len(source.rules))
    )
    return PolicyFile(
        _policy(main, places), tuple(sorted(drop_ins or ())), main, places
    )


def _source(file: str, text: str, form: Keys, before: list[_Source]) -> _Source:
    # Here: vdsmd, hooks and most commands read the stored policy, and need no PyYAML.
    from ovirt_rdma.host.policy.yaml_source import read_yaml  # noqa: PLC0415

    document = read_yaml(text)
    reading = Reading(
        document.texts, document.misread, file, before[-1].reading if before else None
    )
    empty = document.data is None
    given = None if empty else form.read(document.data, (), reading)
    return _Source(file, document, reading, given or {})


def _mistakes(source: _Source, main: _Source) -> Iterator[Diagnostic]:
    """Yield the mistakes of a file; ``main`` has the defaults of its rules."""
    defaults = main.nfs.get("defaults", Given((), main.reading))
    for rule in source.rules:
        if rule is not None and "transport" not in rule.written | defaults.written:
            allowed = ", ".join(TRANSPORTS)
            missing = f"is missing here and in nfs.defaults; allowed: {allowed}"
            rule.refuse("transport", "key-missing", missing)
    mistakes = [source.remark(*mistake) for mistake in source.reading.mistakes]
    mistakes += (error._replace(file=source.file) for error in source.document.mistakes)
    yield from mistakes
    wrong = {(error.line, error.key) for error in mistakes}
    misread = (source.remark(*each) for each in source.reading.misread_mistakes)
    yield from (error for error in misread if error[:2] not in wrong)


def _policy(main: _Source, places: Sequence[tuple[_Source, int]]) -> Policy:
    """Return the policy with the rules at ``places``, the rest of it from ``main``."""
    nfs = dict(main.nfs)
    defaults = nfs.pop("defaults", {})
    rules = [{**defaults, **(source.rules[n] or {})} for source, n in places]
    policy: Policy = POLICY.build({**main.given, "nfs": {**nfs, "rules": rules}})
    return policy


def _by_line(remark: Diagnostic) -> tuple[str, int, str, str]:
    return (remark.file, remark.line or 0, remark.key, remark.sentence)


# Rules that never win

_Rule = TypeVar("_Rule", NfsRule, InterfaceRule)


def _never_winning(
    rules: Sequence[_Rule], names_all_of: Callable[[_Rule, _Rule], bool]
) -> Iterator[tuple[_Rule, _Rule]]:
    """Yield each rule for which an earlier one certainly names all that it names, and
    that one.

    Each of the first MOST_COMPARED rules is compared with all before it.
    """
    compared = rules[:MOST_COMPARED]
    for position, later in enumerate(compared):
        earlier = next((r for r in compared[:position] if names_all_of(r, later)), None)
        if earlier is not None:
            yield later, earlier


def _names_all_exports_of(earlier: NfsRule, later: NfsRule) -> bool:
    # A glob names more than its own text. Two different globs cannot be compared.
    if is_glob(later.path):
        paths = earlier.path in {"*", later.path}
    else:
        paths = path_match(earlier.path, later.path)
    return paths and _names_all_servers_of(earlier.server, later.server)


def _names_all_servers_of(earlier: str, later: str) -> bool:
    """Whether ``earlier`` certainly names every server that ``later`` names.

    Two different globs cannot be compared.
    """
    if earlier == "*":
        return True
    network = network_of(later)
    if network is not None:
        wider = network_of(earlier)
        return (
            wider is not None
            and wider.version == network.version
            and network.subnet_of(wider)  # type: ignore[arg-type]
        )
    if is_glob(later):
        return earlier.rstrip(".").lower() == later.rstrip(".").lower()
    return bool(server_match(earlier, Export(later, "/")))


def _names_all_netdevs_of(earlier: InterfaceRule, later: InterfaceRule) -> bool:
    # Only IPoIB has P_Keys.
    layer = later.link_layer or (INFINIBAND if later.pkey else None)
    return (
        earlier.link_layer in {None, layer}
        and _names_all_devices_of(earlier.device, later.device)
        and earlier.pci in {None, later.pci}
        and earlier.port in {None, later.port}
        and earlier.guid in {None, later.guid}
        and (
            earlier.pkey is None
            or (
                later.pkey is not None
                and partition_of(earlier.pkey) == partition_of(later.pkey)
            )
        )
    )


def _names_all_devices_of(earlier: Optional[str], later: Optional[str]) -> bool:
    if earlier in {None, "*", later}:
        return True
    # Two different globs cannot be compared.
    return (
        earlier is not None
        and later is not None
        and not is_glob(later)
        and fnmatch.fnmatchcase(later, earlier)
    )
