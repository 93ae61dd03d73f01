# SPDX-License-Identifier: GPL-2.0-or-later
"""Load policy.yaml and its drop-ins strictly, and report all mistakes at once.

The files are read along the table of fields and checked by the ``validate_`` modules;
each mistake is one sentence with file, line and key. This module imports PyYAML. Only
the commands import it, nothing that runs inside vdsmd.

A drop-in has rules for exports. They come before those of policy.yaml, in the order of
the drop-ins' names, and ``nfs.defaults`` of policy.yaml are for them too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Union

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.policy.diagnostics import (
    Diagnostic,
    KeyPath,
    PolicyProblem,
    key_text,
)
from ovirt_rdma.host.policy.fields import DROP_IN, POLICY
from ovirt_rdma.host.policy.files import drop_in_folder, read_policy_texts
from ovirt_rdma.host.policy.forms import Form, Reading
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.policy.validate_block import (
    BLOCK_CHECKS,
    block_mistakes,
    block_policy,
)
from ovirt_rdma.host.policy.validate_fabric import (
    FABRIC_CHECKS,
    fabric_mistakes,
    fabric_policy,
)
from ovirt_rdma.host.policy.validate_host import (
    HOST_CHECKS,
    host_mistakes,
    host_policy,
    interfaces_never_winning,
)
from ovirt_rdma.host.policy.validate_nfs import (
    MOST_COMPARED,
    NFS_CHECKS,
    RuleNames,
    nfs_mistakes,
    rule_name,
    rules_never_winning,
)

if TYPE_CHECKING:  # PyYAML is needed only where a policy file is read
    from ovirt_rdma.host.policy.yaml_source import YamlDocument

_CHECKS = {**NFS_CHECKS, **HOST_CHECKS, **FABRIC_CHECKS, **BLOCK_CHECKS}


class _Source(NamedTuple):
    """A file: ``file`` is its path if it is a drop-in, else "". ``parts`` are its
    data in the form of the model; empty without content.
    """

    file: str
    document: YamlDocument
    reading: Reading
    parts: Any

    @property
    def nfs(self) -> Mapping[str, Any]:
        """The ``nfs:`` part, empty if it is missing or wrong."""
        nfs = self.parts.get("nfs") if isinstance(self.parts, dict) else None
        return nfs if isinstance(nfs, dict) else {}

    def remark(self, path: KeyPath, sentence: Sentence) -> Diagnostic:
        """Return the sentence about the value at ``path`` with its line."""
        line = self.document.line(path)
        return Diagnostic(line, key_text(path), sentence, self.file)


@dataclass(frozen=True)
class PolicyFile:
    """A valid policy; ``drop_ins`` are the names of those that it was read from."""

    policy: Policy
    drop_ins: tuple[str, ...] = ()
    _main: Optional[_Source] = field(default=None, repr=False, compare=False)
    # Where each rule is written: file and position.
    _places: tuple[tuple[_Source, int], ...] = field(
        default=(), repr=False, compare=False
    )

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """Rules that never win. Computed on request: policies that are not shown, such
        as those that hosts send, cost nothing here.
        """
        return tuple(self._warnings())

    @property
    def alone(self) -> Policy:
        """The policy of the file without its drop-ins."""
        if self._main is None or not self.drop_ins:
            return self.policy
        return _policy(
            self._main, [place for place in self._places if place[0] is self._main]
        )

    def drop_in_of(self, rule: NfsRule) -> str:
        """Return the name of the drop-in that has ``rule``, "" for policy.yaml."""
        return Path(self._places[rule.number - 1][0].file).name

    def _warnings(self) -> Iterator[Diagnostic]:
        for later, earlier in rules_never_winning(self.policy):
            source, position = self._places[later.number - 1]
            other = self._places[earlier.number - 1][0].file
            elsewhere = other != source.file
            fix = "remove one of the two" if elsewhere else "move it up, or remove it"
            sentence = (
                f"{later.name!r} never wins: {earlier.name!r}"
                f"{f' in {other}' if elsewhere else ''} is before it and names all its "
                f"exports; {fix}"
            )
            path: KeyPath = ("nfs", "rules", position)
            yield source.remark(path, Sentence("rule-never-wins", sentence))
        if self._main is not None:
            for path, sentence in interfaces_never_winning(self.policy.host):
                yield self._main.remark(path, sentence)
        if len(self._places) > MOST_COMPARED:
            source, position = self._places[MOST_COMPARED]
            yield source.remark(("nfs", "rules", position), _not_compared("rules"))
        if self._main and len(self.policy.host.interfaces) > MOST_COMPARED:
            path = ("host", "interfaces", MOST_COMPARED)
            yield self._main.remark(path, _not_compared("interfaces"))


def _not_compared(part: str) -> Sentence:
    return Sentence(
        "rules-not-compared",
        f"only the first {MOST_COMPARED} {part} are checked for rules that never win; "
        "this and later ones are not",
    )


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
    main = _source("", text, POLICY)
    sources = [
        _source(str(folder / name), drop_in, DROP_IN)
        for name, drop_in in sorted((drop_ins or {}).items())
    ]
    sources.append(main)
    errors = _mistakes(sources, main)
    if errors:
        raise PolicyProblem(where, tuple(sorted(errors, key=_by_line)))
    places = tuple(
        (source, position)
        for source in sources
        for position in range(len(source.nfs.get("rules") or ()))
    )
    return PolicyFile(
        _policy(main, places), tuple(sorted(drop_ins or ())), main, places
    )


def _policy(main: _Source, places: Sequence[tuple[_Source, int]]) -> Policy:
    """Return the policy with the rules at ``places``, the rest of it from ``main``."""
    defaults = main.nfs.get("defaults") or {}
    rules = tuple(
        _rule({**defaults, **source.nfs["rules"][position]}, number)
        for number, (source, position) in enumerate(places, 1)
    )
    return Policy(
        nfs=NfsPolicy(rules, main.nfs.get("health_interval")),
        host=host_policy(main.parts.get("host") or {}),
        fabric=fabric_policy(main.parts.get("fabric") or {}),
        block=block_policy(main.parts.get("block") or {}),
    )


def _source(file: str, text: str, form: Form) -> _Source:
    from ovirt_rdma.host.policy.yaml_source import read_yaml  # noqa: PLC0415

    document = read_yaml(text)
    reading = Reading(document.texts, document.misread, _CHECKS)
    parts: Any = {}
    if document.data is not None:
        parts = form.read(document.data, (), reading)
    return _Source(file, document, reading, parts)


def _mistakes(sources: list[_Source], main: _Source) -> set[Diagnostic]:
    errors: set[Diagnostic] = set()
    names: RuleNames = {}
    defaults = main.nfs.get("defaults")
    before = 0
    for source in sources:
        found = source.reading.mistakes
        found += nfs_mistakes(source.nfs, defaults, names, before, source.file)
        rules = source.nfs.get("rules")
        before += len(rules) if isinstance(rules, list) else 0
        if source is main and isinstance(main.parts, dict):
            found += host_mistakes(main.parts.get("host"))
            found += fabric_mistakes(main.parts.get("fabric"))
            found += block_mistakes(main.parts.get("block"))
        mistakes = [source.remark(*mistake) for mistake in found]
        mistakes += (
            error._replace(file=source.file) for error in source.document.mistakes
        )
        wrong = {(error.line, error.key) for error in mistakes}
        misread = (source.remark(*each) for each in source.reading.misread_mistakes)
        mistakes += (error for error in misread if error[:2] not in wrong)
        errors.update(mistakes)
    return errors


def _rule(keys: Mapping[str, Any], number: int) -> NfsRule:
    named = {"path": "*", **keys, "name": rule_name(keys, number)}
    return NfsRule(number=number, **named)


def _by_line(remark: Diagnostic) -> tuple[str, int, str, str]:
    return (remark.file, remark.line or 0, remark.key, remark.sentence)
