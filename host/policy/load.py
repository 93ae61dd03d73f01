# SPDX-License-Identifier: GPL-2.0-or-later
"""Load policy.yaml, with a sentence for each mistake.

Validate policy data against the schema; each error as a sentence for a person.

The admin's policy file, policy.yaml, read strictly: all its mistakes at once.

Nothing that runs inside vdsmd imports this module: it brings PyYAML and
jsonschema, which only the commands load.
"""

from __future__ import annotations

import difflib
import math
import os
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union, cast

from jsonschema import Draft7Validator, ValidationError, validators

from ovirt_rdma.host.policy.diagnostics import KeyPath, PolicyProblem, Remark, key_text
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.policy.schema import POLICY_SCHEMA, Schema
from ovirt_rdma.host.policy.validate_host import (
    host_mistakes,
    host_policy,
    never_winning_interfaces,
)
from ovirt_rdma.host.policy.validate_nfs import (
    MOST_COMPARED,
    never_winning,
    nfs_mistakes,
    rule_name,
)
from ovirt_rdma.host.policy.yaml_source import (
    YamlDocument,
    as_written,
    misread_numbers,
    read_yaml,
)

_NOUNS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "object": "a mapping of keys",
    "array": "a list",
}


def _is_integer(_checker: object, value: object) -> bool:
    # JSON Schema calls 20049.0 an integer; an admin who wrote it erred.
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_checker: object, value: object) -> bool:
    # YAML's .nan and .inf pass every range.
    return _is_integer(None, value) or (
        isinstance(value, float) and math.isfinite(value)
    )


_Validator = validators.extend(  # type: ignore[no-untyped-call]
    Draft7Validator,
    type_checker=Draft7Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_integer, "number": _is_number}
    ),
)


def schema_remarks(document: YamlDocument) -> Iterator[Remark]:
    """Yield a Remark for everything in ``document`` that the schema refuses."""
    errors = [
        (tuple(error.absolute_path), error)
        for error in _Validator(POLICY_SCHEMA).iter_errors(document.data)
    ]
    # A value of the wrong type is none of the allowed ones either; once is enough.
    mistyped = {path for path, error in errors if error.validator == "type"}
    for path, error in errors:
        if path in mistyped and error.validator != "type":
            continue
        for place, sentence in _sentences(error, path, document):
            yield Remark(document.line(place), key_text(place), sentence)


def _sentences(
    error: ValidationError, path: KeyPath, document: YamlDocument
) -> Iterator[tuple[KeyPath, str]]:
    schema = cast(Schema, error.schema)
    instance: Any = error.instance
    rule = error.validator
    text = document.texts.get(path, "")
    if rule == "additionalProperties":
        known = list(schema["properties"])
        for key in instance:
            if key not in known:
                # The schema's own sentence, or what any unknown key gets.
                why = schema.get("not_offered", {}).get(key)
                unknown = _unknown(f"unknown key{_allowed(schema)}", key, known)
                yield (*path, key), why or unknown
    elif rule == "required":
        for key in schema["required"]:
            if key not in instance:
                allowed = _allowed(schema["properties"][key])
                yield (*path, key), f"is missing{allowed}"
    elif rule == "type":
        yield path, _wrong_type(schema, instance, text)
    elif rule == "enum":
        sentence = f"{instance!r} is not known{_allowed(schema)}"
        yield path, _unknown(sentence, text, schema["enum"])
    elif rule == "pattern":
        yield path, _not_matching(schema, instance)
    elif rule == "minLength":
        yield path, f"is empty{_allowed(schema)}"
    elif rule in {"minimum", "maximum"}:
        yield path, f"{text} is out of range{_allowed(schema)}"
    else:
        raise AssertionError(f"no sentence for the schema keyword {rule}")


def _not_matching(schema: Schema, text: str) -> str:
    # Where a number or one word is allowed, a number in quotes is neither.
    if "integer" in schema["type"] and text.isdecimal():
        return _wrong_type(schema, text, text)
    return f"{text!r} is not known{_allowed(schema)}"


def _unknown(sentence: str, word: str, known: list[Any]) -> str:
    near = difflib.get_close_matches(word, [str(value) for value in known], n=1)
    return f"{sentence}; did you mean {near[0]}?" if near else sentence


def _wrong_type(schema: Schema, value: object, text: str) -> str:
    wanted = schema["type"]
    noun = _NOUNS[wanted if isinstance(wanted, str) else wanted[0]]
    sentence = f"must be {noun}, not {_described(value, text)}"
    if wanted == "string" and text and not schema.get("as_written"):
        sentence += "; write it in quotes"
    return sentence + _allowed(schema)


def _described(value: object, text: str) -> str:
    for kind, shown in (
        (type(None), "nothing"),
        (bool, f"the truth value {text}"),
        (int, f"the number {text}"),
        (float, f"the number {text}" if _is_number(None, value) else text),
        (str, f"the text {text!r}"),
        (list, _NOUNS["array"]),
        (dict, _NOUNS["object"]),
    ):
        if isinstance(value, kind):
            return shown
    return f"the date {text}"


def _allowed(schema: Schema) -> str:
    if "enum" in schema:
        return "; allowed: " + ", ".join(str(value) for value in schema["enum"])
    if "description" in schema:
        return f"; allowed: {schema['description']}"
    if "minimum" in schema:
        return f"; allowed: {schema['minimum']} to {schema['maximum']}"
    if "properties" in schema:
        return "; allowed: " + ", ".join(schema["properties"])
    return ""


# Some thousand rules; a policy for many hosts may have 60 kB. Reading takes some 10
# microseconds a byte.
MOST_BYTES = 1_000_000


@dataclass(frozen=True)
class PolicyFile:
    """A policy in order, and the ``document`` that it was read from."""

    policy: Policy
    document: YamlDocument = field(repr=False, compare=False)

    @property
    def warnings(self) -> tuple[Remark, ...]:
        """What looks odd in the file. Looked for when asked: policies that nobody
        shows, such as those that hosts send, cost nothing here.
        """
        return _warnings(self.policy, self.document)


def load_policy_file(path: Union[str, Path], *, own: bool = False) -> PolicyFile:
    """Read the YAML file ``path``; ``own`` where it is to come into force, so that
    nobody but root and who runs this may have written it.

    Raises PolicyProblem: the file is unreadable, longer than MOST_BYTES, not UTF-8 or
    somebody else's, or what :func:`parse_policy` finds.
    """
    where = str(path)
    try:
        with Path(path).open("rb") as file:
            # The file that is read, whatever has its name by now.
            found = os.fstat(file.fileno())
            raw = file.read(MOST_BYTES + 1)
        if own:
            _check_own(path, found)
    except FileNotFoundError as error:
        fix = "write one; an empty file is a policy too, it touches nothing"
        raise _unusable(where, "there is no such policy file", fix) from error
    except IsADirectoryError as error:
        fix = "name the file in it"
        raise _unusable(where, "is a directory, not a policy file", fix) from error
    except OSError as error:
        raise _unusable(where, f"cannot be read: {error.strerror}") from error
    if len(raw) > MOST_BYTES:
        fix = "let globs and networks name the exports, so that it is shorter"
        sentence = f"is longer than {MOST_BYTES} bytes, which no policy needs"
        raise _unusable(where, sentence, fix)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        sentence = f"the byte 0x{raw[error.start]:02x} is not UTF-8"
        fix = "save the file as UTF-8"
        raise PolicyProblem(where, (Remark(line, "", sentence),), fix) from error
    return parse_policy(text, where)


def _check_own(path: Union[str, Path], found: os.stat_result) -> None:
    """Raise PolicyProblem where others could have written the file: it is theirs, they
    may write to it, or may put another one into its folder. A pipe is who runs this's.
    """
    _check_writers(path, str(path), found)
    for folder in {Path(path).absolute().parent, Path(os.path.realpath(path)).parent}:
        _check_writers(path, str(folder), folder.stat())


def _check_writers(path: Union[str, Path], checked: str, found: os.stat_result) -> None:
    owner, mode = found.st_uid, stat.S_IMODE(found.st_mode)
    what = "" if checked == str(path) else f"its folder {checked} "
    quoted = shlex.quote(checked)
    if owner not in (0, os.geteuid()):
        raise _unusable(
            str(path),
            f"{what}belongs to the user {owner}, not to root, so it is not put into "
            "force",
            f"look at what it says, then: chown root {quoted}",
        )
    # In a sticky folder only its owner, and root, may replace a file.
    sticky = stat.S_ISDIR(found.st_mode) and mode & stat.S_ISVTX
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
        raise _unusable(
            str(path),
            f"{what}may be written to by others (mode {mode:04o}), so it is not put "
            "into force",
            f"look at what it says, then: chmod go-w {quoted}",
        )


def parse_policy(text: str, where: str) -> PolicyFile:
    """Read a policy from YAML ``text``; ``where`` names it in sentences.

    Text without content is the empty policy. Raises PolicyProblem with every
    mistake, in the order of their lines.
    """
    document = read_yaml(text)
    errors = list(document.mistakes)
    if document.data is None:
        if errors:
            raise PolicyProblem(where, tuple(errors))
        return PolicyFile(Policy(), document)
    document.data = as_written(document.data, POLICY_SCHEMA, document.texts)
    errors += schema_remarks(document)
    parts = document.data if isinstance(document.data, dict) else {}
    nfs, host = parts.get("nfs"), parts.get("host")
    errors += [
        Remark(document.line(path), key_text(path), sentence)
        for path, sentence in (*nfs_mistakes(nfs), *host_mistakes(host))
    ]
    wrong = {(error.line, error.key) for error in errors}
    errors += [
        Remark(line, key, sentence)
        for path, sentence in misread_numbers(document.data, document.texts)
        for line, key in ((document.line(path), key_text(path)),)
        if (line, key) not in wrong
    ]
    if errors:
        raise PolicyProblem(where, tuple(sorted(set(errors), key=_by_line)))
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
    for key in ("readiness_timeout", "settle_timeout", "failure_cache"):
        if key in named:
            named[key] = float(named[key])
    return NfsRule(number=number, **named)


def _warnings(policy: Policy, document: YamlDocument) -> tuple[Remark, ...]:
    return tuple(
        Remark(document.line(path), key_text(path), sentence)
        for path, sentence in (
            *never_winning(policy),
            *never_winning_interfaces(policy.host),
            *_not_looked_at(policy),
        )
    )


def _not_looked_at(policy: Policy) -> Iterator[tuple[KeyPath, str]]:
    rules, interfaces = policy.nfs.rules, policy.host.interfaces
    for part, many in (("rules", len(rules)), ("interfaces", len(interfaces))):
        if many > MOST_COMPARED:
            yield (
                ("nfs" if part == "rules" else "host", part, MOST_COMPARED),
                f"whether this and later {part} ever win is not looked at: only of the "
                f"first {MOST_COMPARED}",
            )


def _unusable(where: str, sentence: str, fix: str = "") -> PolicyProblem:
    return PolicyProblem(where, (Remark(None, "", sentence),), fix)


def _by_line(remark: Remark) -> tuple[int, str, str]:
    return (remark.line or 0, remark.key, remark.sentence)
