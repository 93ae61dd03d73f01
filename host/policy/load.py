# SPDX-License-Identifier: GPL-2.0-or-later
"""Load policy.yaml and its drop-ins strictly, and report all mistakes at once.

The data is read along the table of keys; each mistake is one sentence with file, line
and key.

Drop-ins are the files ``NN-NAME.yaml`` in the folder ``policy.d`` beside the policy
file. The engine's tools write them, one for each storage domain, so that nobody but the
admin edits the policy file. A drop-in has rules for exports. They come before those of
policy.yaml, in the order of the drop-ins' names, and ``nfs.defaults`` of policy.yaml
are for them too. The policy file and the drop-ins of a host are one value
(:class:`PolicyFiles`), which is compared and restored as a whole.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Optional, Union

from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.export import (
    KINDS,
    MOST_NCONNECT,
    MOST_NCONNECT_OF_VENDORS,
    OF_VENDORS,
    Export,
    MountOptions,
    contradiction,
    kind_of,
    remarks,
)
from ovirt_rdma.host.paths import DROP_INS
from ovirt_rdma.host.policy.forms import (
    Diagnostic,
    Given,
    KeyPath,
    Keys,
    PolicyProblem,
    Source,
)
from ovirt_rdma.host.policy.model import (
    DROP_IN,
    MOUNTING,
    POLICY,
    TCP,
    TRANSPORTS,
    NfsRule,
    Policy,
    is_glob,
    network_of,
    path_match,
    rule_for,
)
from ovirt_rdma.host.system.safe_file import names_of_others, read_file

_FILE, _DROP_INS = "policy.yaml", "policy.d"
# Leaves room for an admin's drop-ins before and after it.
_NUMBER = 50
_HEAD = "# Written by ovirt-rdma, which replaces or removes this file: "


class PolicyFiles(NamedTuple):
    """A host's policy.yaml, None for none, and its drop-ins by name."""

    file: Optional[str] = None
    drop_ins: Mapping[str, str] = MappingProxyType({})

    def __hash__(self) -> int:
        return hash((self.file, frozenset(self.drop_ins.items())))

    @property
    def contents(self) -> dict[str, str]:
        """The contents by name: ``policy.yaml`` or that of a drop-in."""
        return {**({} if self.file is None else {_FILE: self.file}), **self.drop_ins}

    @property
    def size(self) -> int:
        """The bytes of all files."""
        texts = self.contents.values()
        return sum(len(text.encode("utf-8", "replace")) for text in texts)

    def having(self, contents: Mapping[str, Optional[str]]) -> PolicyFiles:
        """Return these files with other ``contents`` of some, by name; None for no such
        file.
        """
        new = {**self.contents, **contents}
        left = {name: text for name, text in sorted(new.items()) if text is not None}
        return PolicyFiles(left.pop(_FILE, None), left)

    def parsed(self, where: str) -> PolicyFile:
        """Read the policy; ``where`` names policy.yaml. Raises PolicyProblem."""
        return parse_policy(self.file or "", where, self.drop_ins)

    def lines(self) -> list[str]:
        """Return the lines of all files, each drop-in after its name."""
        lines = (self.file or "").splitlines() or ["(no policy.yaml)"]
        for name, drop_in in self.drop_ins.items():
            lines += [f"--- {_DROP_INS}/{name}", *drop_in.splitlines()]
        return lines


NO_FILES = PolicyFiles()


def with_rule(
    files: PolicyFiles, export: Export, transport: str, name: str = ""
) -> PolicyFiles:
    """Return ``files`` with ``transport`` for ``export``; unchanged if they say so.

    The rule is in a drop-in of its own, with the other keys of the rule that named the
    export before. ``name`` is its name unless another rule has it. No other file is
    changed.

    Raises PolicyProblem if ``files`` are not a valid policy, Problem if the rule
    would not win, or is not one that a policy can have.
    """
    present = files.parsed(_FILE)
    match = rule_for(present.policy, export)
    old = match.rule if match else None
    if old is not None and old.transport == transport:
        return files
    ours = _drop_ins_for(present, export)
    others = files.having(
        {n: None for n in ours if files.drop_ins.get(n, "").startswith(_HEAD)}
    )
    rest = others.parsed(_FILE)
    below = rule_for(rest.policy, export)
    rule: dict[str, object] = {
        "server": export.server,
        "path": _as_pattern(export.path),
        "transport": transport,
    }
    if name and name not in {other.name for other in rest.policy.nfs.rules}:
        rule = {"name": name, **rule}
    # The defaults of policy.yaml are for drop-ins too, so they are not copied.
    kept = {} if old is None else {key: getattr(old, key) for key in rest.defaults}
    if transport == TCP:
        kept.pop("paths", None)
    elif old is not None and old.transport == TCP:
        # A rule with TCP had to leave them out.
        kept["paths"] = below.rule.paths if below else ()
    for key, default in rest.defaults.items():
        if key not in rule and kept.get(key, default) != default:
            rule[key] = kept[key]
    drop_in = _file_name(
        rest, export, name, rest.drop_in_of(below.rule) if below else ""
    )
    try:
        new = others.having({drop_in: _text(name or str(export), rule)})
        after = new.parsed(_FILE)
    except (Problem, ValueError) as error:
        raise _refusal(rule) from error
    won = rule_for(after.policy, export)
    taken = drop_in in others.drop_ins
    if won is None or after.drop_in_of(won.rule) != drop_in or taken:
        raise _refusal(rule)
    return new


def _drop_ins_for(present: PolicyFile, export: Export) -> list[str]:
    """Return the names of the drop-ins that have one rule, for only ``export``."""
    rules: dict[str, list[NfsRule]] = {}
    for rule in present.policy.nfs.rules:
        rules.setdefault(present.drop_in_of(rule), []).append(rule)
    wanted = [(export.server, _as_pattern(export.path))]
    return [
        n for n, its in rules.items() if [(r.server, r.path) for r in its] == wanted
    ]


def _file_name(rest: PolicyFile, export: Export, name: str, before: str) -> str:
    """Return the name of the drop-in for ``export``: before the drop-in ``before``."""
    number = min(_NUMBER, int(before[:2]) - 1) if before else _NUMBER
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", name or str(export)).strip("-.")[:100]
    code = hashlib.sha256(str(export).encode("utf-8", "replace")).hexdigest()[:8]
    plain = f"{max(number, 0):02}-{slug or code}.yaml"
    if plain in rest.drop_ins:
        return plain.replace(".yaml", f"-{code}.yaml")
    return plain


def _text(what: str, rule: Mapping[str, object]) -> str:
    lines = [f"      {key}: {_scalar(value)}\n" for key, value in rule.items()]
    lines[0] = f"    - {lines[0].lstrip()}"
    head = f"{_HEAD}{what if what.isprintable() else 'a domain'}\n"
    return f"{head}version: 1\nnfs:\n  rules:\n{''.join(lines)}"


def _scalar(value: object) -> str:
    if value in TRANSPORTS:
        return str(value)
    # JSON's strings are YAML's in quotes, but for characters written as two \\u.
    printable = not isinstance(value, str) or value.isprintable()
    return json.dumps(value, ensure_ascii=not printable)


def _refusal(rule: Mapping[str, object]) -> Problem:
    shown = ", ".join(f"{key}: {_scalar(value)}" for key, value in rule.items())
    return Problem(
        "policy-rule-not-added",
        f"{_FILE}: no drop-in can have a rule that wins for "
        f"{rule['server']}:{rule['path']}",
        f"add this rule by hand, before other rules that name the export: {{{shown}}}",
    )


def _as_pattern(path: str) -> str:
    """Return a glob that matches only ``path``."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in path)


# The time to find rules that never win grows with the square of their number: 1.5 s for
# this many.
MOST_COMPARED = 1000

# Room for some thousand rules; a policy for many hosts may have 60 kB. Reading takes
# some 10 microseconds per byte. The limit is for file and drop-ins together.
MOST_BYTES = 1_000_000
_MOST_DROP_INS = 1000

_DROP_IN = re.compile(r"[0-9]{2}-[A-Za-z0-9][A-Za-z0-9._-]{0,200}\.yaml")
# What looks like a drop-in but would not be read, so that a wrong name is noticed.
# Packages and editors leave other names, which are ignored as hidden files are.
_MEANT_AS_ONE = (".yaml", ".yml")


def is_drop_in(name: str) -> bool:
    """Whether a drop-in may have this name: ``50-data1.yaml``."""
    return bool(_DROP_IN.fullmatch(name))


def drop_in_folder(path: Union[str, Path]) -> Path:
    """Return the folder with the drop-ins of the policy file ``path``."""
    return Path(path).parent / Path(DROP_INS).name


def read_policy_files(
    path: Union[str, Path], *, own: bool = False, alone: bool = False
) -> PolicyFiles:
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
            return PolicyFiles(None, drop_ins)
        fix = "create the file; an empty policy is valid and changes nothing"
        missing = "policy-file-missing", "there is no such policy file"
        raise _unusable(path, *missing, fix) from error
    except OSError as error:
        raise _unreadable(path, error) from error
    if len(raw) > left:
        also = " with its drop-ins" if drop_ins else ""
        raise _unusable(
            path,
            "policy-file-too-long",
            f"is{also} longer than {MOST_BYTES} bytes, the limit for a policy",
            "name the exports by globs and networks, so that the policy is shorter",
        )
    return PolicyFiles(_decoded(path, raw), drop_ins)


def read_drop_ins(path: Union[str, Path], *, own: bool = False) -> dict[str, str]:
    """Return the texts of the drop-ins of the policy file ``path``, by name. Raises
    PolicyProblem as :func:`read_policy_files`.
    """
    folder = drop_in_folder(path)
    try:
        names = names_of_others(str(folder), str(folder), _MOST_DROP_INS)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise _unreadable(folder, error) from error
    drop_ins, left = {}, MOST_BYTES
    for name in names:
        file = folder / name
        if not is_drop_in(name):
            if name.endswith(_MEANT_AS_ONE) and not name.startswith("."):
                raise _unusable(
                    file,
                    "drop-in-name",
                    "is not the name of a drop-in",
                    "rename it to NN-NAME.yaml with two digits, such as 50-data1.yaml, "
                    "or remove it",
                )
            continue
        try:
            if own:
                _check_own(file, file.stat())
            raw = read_file(file, left)
        except OSError as error:
            raise _unreadable(file, error) from error
        left -= len(raw)
        drop_ins[name] = _decoded(file, raw)
    return drop_ins


def _decoded(path: Union[str, Path], raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        text = f"the byte 0x{raw[error.start]:02x} is not UTF-8"
        fix = "save the file as UTF-8"
        raise _unusable(path, "policy-file-not-utf8", text, fix, line) from error


def _check_own(path: Union[str, Path], status: os.stat_result) -> None:
    """Raise PolicyProblem if another user could have written the file: as its owner, by
    its mode, or by replacing it in its folder. A pipe belongs to this process's user.
    """
    folders = {Path(path).absolute().parent, Path(os.path.realpath(path)).parent}
    for checked, found in ((path, status), *((one, one.stat()) for one in folders)):
        owner, mode = found.st_uid, stat.S_IMODE(found.st_mode)
        what = "" if checked == path else f"its folder {checked} "
        fix = f"check its content, then run: {{}} {shlex.quote(str(checked))}"
        if owner not in (0, os.geteuid()):
            raise _unusable(
                path,
                "policy-file-owner",
                f"{what}belongs to the user {owner}, not to root, so it is not loaded",
                fix.format("chown root"),
            )
        # In a sticky folder only its owner and root can replace a file.
        sticky = stat.S_ISDIR(found.st_mode) and mode & stat.S_ISVTX
        if mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
            raise _unusable(
                path,
                "policy-file-mode",
                f"{what}can be written by other users (mode {mode:04o}), so it is not "
                "loaded",
                fix.format("chmod go-w"),
            )


def _unreadable(path: Union[str, Path], error: OSError) -> PolicyProblem:
    unreadable = f"cannot be read: {error.strerror}"
    return _unusable(path, "policy-file-unreadable", unreadable)


def _unusable(
    path: Union[str, Path],
    id: str,
    text: str,
    fix: str = "",
    line: Optional[int] = None,
) -> PolicyProblem:
    remark = Diagnostic(line, "", Sentence(id, text), str(path))
    return PolicyProblem(str(path), (remark,), fix)


@dataclass(frozen=True)
class PolicyFile:
    """A valid policy; ``drop_ins`` are the names of those that it was read from."""

    policy: Policy
    drop_ins: tuple[str, ...]
    _main: Source = field(repr=False, compare=False)
    # Where each rule is written: file and position.
    _places: tuple[tuple[Source, int], ...] = field(repr=False, compare=False)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """Rules that never win, and odd mount options. Computed on request: policies
        that are not shown, such as those that hosts send, cost nothing here.
        """
        return (*self._never_winning(), *dict.fromkeys(self._odd_options()))

    @property
    def alone(self) -> Policy:
        """The policy of the file without its drop-ins."""
        if not self.drop_ins:
            return self.policy
        return _policy(
            self._main, [place for place in self._places if place[0] is self._main]
        )

    @property
    def defaults(self) -> dict[str, Any]:
        """The values that count for the keys that a rule does not have."""
        defaults = {name: row.default for name, row in MOUNTING.items()}
        return {**defaults, **self._main.nfs.get("defaults", {})}

    def drop_in_of(self, rule: NfsRule) -> str:
        """Return the name of the drop-in that has ``rule``, "" for policy.yaml."""
        return Path(self._places[rule.number - 1][0].file).name

    def _odd_options(self) -> Iterator[Diagnostic]:
        for rule, (source, position) in zip(self.policy.nfs.rules, self._places):
            given = source.rules[position]
            path: KeyPath = ("nfs", "rules", position, "options")
            place = source
            if given is None or "options" not in given:
                place, path = self._main, ("nfs", "defaults", "options")
            options, kind = MountOptions.parse(rule.options), kind_of(rule.server_kind)
            for sentence in remarks(options, kind):
                yield place.remark(path, sentence)

    def _never_winning(self) -> Iterator[Diagnostic]:
        """Yield which rules for exports never win: an earlier one certainly names all
        that they name; and the first of those that are not compared.
        """
        rules = list(zip(self.policy.nfs.rules, self._places))
        for number, (later, (source, position)) in enumerate(rules[:MOST_COMPARED]):
            before = (one for one in rules[:number] if _names_all_of(one[0], later))
            for earlier, (other, _) in itertools.islice(before, 1):
                file = f" in {other.file}" if other != source else ""
                sentence = Sentence(
                    "rule-never-wins",
                    f"{later.name!r} never wins: {earlier.name!r}{file} is before it "
                    "and names all that it names; write it before that one, or remove "
                    "one of the two",
                )
                yield source.remark(("nfs", "rules", position), sentence)
        for _, (source, position) in rules[MOST_COMPARED : MOST_COMPARED + 1]:
            sentence = Sentence(
                "rules-not-compared",
                f"only the first {MOST_COMPARED} rules are checked for rules that "
                "never win; this and later ones are not",
            )
            yield source.remark(("nfs", "rules", position), sentence)


def load_policy_file(
    path: Union[str, Path], *, own: bool = False, alone: bool = False
) -> PolicyFile:
    """Read the YAML file ``path`` and its drop-ins. ``own``: they will be loaded, so
    only root and the user of this process may be able to write them. ``alone``: it is
    for other hosts, so drop-ins beside it do not belong to it.

    Raises PolicyProblem as :func:`read_policy_files` and :func:`parse_policy`.
    """
    return read_policy_files(path, own=own, alone=alone).parsed(str(path))


def parse_policy(
    text: str, where: str, drop_ins: Optional[Mapping[str, str]] = None
) -> PolicyFile:
    """Read a policy from YAML ``text``, and ``drop_ins`` by name; ``where`` names the
    file in sentences.

    Text without content is the empty policy. Raises PolicyProblem with all mistakes,
    sorted by file and line.
    """
    folder = drop_in_folder(where)
    sources: list[Source] = []
    for name, drop_in in sorted((drop_ins or {}).items()):
        _read_source(str(folder / name), drop_in, DROP_IN, sources)
    main = _read_source("", text, POLICY, sources)
    _check_paths(sources, main)
    for source in sources:
        _check_rules(source, main)
    errors = {mistake for source in sources for mistake in source.mistakes}
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


def _read_source(file: str, text: str, form: Keys, before: list[Source]) -> Source:
    """Read a file, and append it to those ``before``."""
    # Here: vdsmd, hooks and most commands read the stored policy, and need no PyYAML.
    from ovirt_rdma.host.policy.yaml_source import read_yaml  # noqa: PLC0415

    source = read_yaml(text, Source(file, before[-1] if before else None))
    if source.data is not None:
        source.given = form.read(source.data, (), source) or {}
    before.append(source)
    return source


def _check_rules(source: Source, main: Source) -> None:
    """Note the mistakes of rules that depend on ``main``, which has their defaults."""
    defaults = main.nfs.get("defaults", Given((), main))
    for rule in source.rules:
        if rule is not None and "transport" not in rule.written | defaults.written:
            allowed = ", ".join(TRANSPORTS)
            missing = f"is missing here and in nfs.defaults; allowed: {allowed}"
            rule.refuse("transport", "key-missing", missing)
        if rule is not None:
            _check_options(rule, defaults)
    if source is main and not source.rules:
        _check_options(defaults, defaults)


def _check_options(rule: Given, defaults: Given) -> None:
    """Note mount options that the rule's other keys exclude."""
    whole = {**defaults, **rule}
    options = MountOptions.parse(whole.get("options", ""))
    place = rule if "options" in rule.written else defaults
    sentence = contradiction(options, whole.get("transport", TCP) != TCP)
    if sentence:
        place.refuse("options", sentence.id, sentence)
    option, kind = options.last("nconnect"), KINDS.get(whole.get("server_kind", ""))
    vendors = any(one.name in OF_VENDORS for one in options.items)
    most = MOST_NCONNECT
    if vendors or (kind and kind.client_versions):
        most = MOST_NCONNECT_OF_VENDORS
    if option and not 1 <= (options.number("nconnect") or 0) <= most:
        text = f"{option.text} is out of range; allowed: nconnect=1 to {most}"
        place.refuse("options", "value-out-of-range", text)


def _check_paths(sources: Sequence[Source], main: Source) -> None:
    """Note paths of mounts over TCP, and an address in two different lists of paths: a
    connection would be moved to an address of another server, or back and forth.
    """
    whose: dict[str, tuple[list[str], str]] = {}
    default = main.nfs.get("defaults", {}).get("transport")
    rules = ((source, rule) for source in sources for rule in source.rules)
    for number, (source, rule) in enumerate(rules, 1):
        paths = rule.get("paths", ()) if rule is not None else ()
        if rule is None or not paths or None in paths:
            continue
        written = "transport" in rule.written
        if (rule.get("transport") if written else default) == TCP:
            rule.refuse(
                "paths",
                "paths-over-tcp",
                f"are for mounts over RDMA, and transport is {TCP}; remove them, or "
                "write transport: require-rdma or prefer-rdma",
            )
        file = f" in {source.file}" if source.file else ""
        this = f"{rule.get('name', f'rule {number}')!r}{file}"
        for position, address in enumerate(paths):
            others, other = whose.setdefault(address, (paths, this))
            if others != paths:
                rule.refuse(
                    ("paths", position),
                    "paths-differ",
                    f"{address} is in other paths in {other}: {', '.join(others)}; "
                    "write the same list, in the same order, in both rules, or remove "
                    "an address of another server",
                )
                break


def _policy(main: Source, places: Sequence[tuple[Source, int]]) -> Policy:
    """Return the policy with the rules at ``places``, the rest of it from ``main``."""
    nfs = dict(main.nfs)
    defaults = nfs.pop("defaults", {})
    rules = [{**defaults, **(source.rules[n] or {})} for source, n in places]
    policy: Policy = POLICY.build({**main.given, "nfs": {**nfs, "rules": rules}})
    return policy


def _by_line(remark: Diagnostic) -> tuple[str, int, str, str]:
    return (remark.file, remark.line or 0, remark.key, remark.sentence)


def _names_all_of(earlier: NfsRule, later: NfsRule) -> bool:
    """Whether ``earlier`` certainly names all that ``later`` names. Two different globs
    cannot be compared.
    """
    servers = earlier.server, later.server
    one, other = map(network_of, servers)
    if other is not None and earlier.server != "*":
        same = one is not None and one.version == other.version
        if not (same and other.subnet_of(one)):  # type: ignore[arg-type]
            return False
    elif not _covers(*(name.rstrip(".").lower() for name in servers)):
        return False
    return _covers(earlier.path, later.path)


def _covers(wide: str, narrow: str) -> bool:
    return wide in ("*", narrow) or (not is_glob(narrow) and path_match(wide, narrow))
