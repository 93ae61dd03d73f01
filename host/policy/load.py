# SPDX-License-Identifier: GPL-2.0-or-later
"""Load policy.yaml strictly, and report all its mistakes at once.

The file is checked against the schema and by the ``validate_`` modules; each mistake is
one sentence with line and key. This module imports PyYAML and jsonschema. Only the
commands import it, nothing that runs inside vdsmd.
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

from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.policy.diagnostics import (
    Diagnostic,
    KeyPath,
    Mistake,
    PolicyProblem,
    key_text,
)
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.policy.schema import POLICY_SCHEMA, Schema
from ovirt_rdma.host.policy.validate_host import (
    host_mistakes,
    host_policy,
    interfaces_never_winning,
)
from ovirt_rdma.host.policy.validate_nfs import (
    MOST_COMPARED,
    nfs_mistakes,
    rule_name,
    rules_never_winning,
)
from ovirt_rdma.host.policy.yaml_source import (
    YamlDocument,
    as_written,
    number_mistakes,
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
    # JSON Schema accepts 20049.0 as an integer; in a policy it is a mistake.
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(_checker: object, value: object) -> bool:
    # Every range of JSON Schema accepts YAML's .nan and .inf.
    return _is_integer(None, value) or (
        isinstance(value, float) and math.isfinite(value)
    )


_Validator = validators.extend(  # type: ignore[no-untyped-call]
    Draft7Validator,
    type_checker=Draft7Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_integer, "number": _is_number}
    ),
)


def schema_mistakes(document: YamlDocument) -> Iterator[Diagnostic]:
    """Yield a Remark for each part of ``document`` that does not match the schema."""
    errors = [
        (tuple(error.absolute_path), error)
        for error in _Validator(POLICY_SCHEMA).iter_errors(document.data)
    ]
    # A value of the wrong type is not in the list of values either: report it once.
    mistyped = {path for path, error in errors if error.validator == "type"}
    for path, error in errors:
        if path in mistyped and error.validator != "type":
            continue
        for place, sentence in _sentences(error, path, document):
            yield _remark(document, place, sentence)


def _sentences(
    error: ValidationError, path: KeyPath, document: YamlDocument
) -> Iterator[Mistake]:
    schema = cast(Schema, error.schema)
    instance: Any = error.instance
    rule = error.validator
    text = document.texts.get(path, "")
    if rule == "additionalProperties":
        known = list(schema["properties"])
        for key in instance:
            if key not in known:
                # The schema has sentences of its own for some keys.
                why = schema.get("not_offered", {}).get(key)
                unknown = _suggesting(f"unknown key{_allowed(schema)}", key, known)
                yield (*path, key), why or Sentence("key-unknown", unknown)
    elif rule == "required":
        for key in schema["required"]:
            if key not in instance:
                allowed = _allowed(schema["properties"][key])
                yield (*path, key), Sentence("key-missing", f"is missing{allowed}")
    elif rule == "type":
        yield path, _wrong_type(schema, instance, text)
    elif rule == "enum":
        unknown = f"{instance!r} is unknown{_allowed(schema)}"
        suggesting = _suggesting(unknown, text, schema["enum"])
        yield path, Sentence("value-unknown", suggesting)
    elif rule == "pattern":
        yield path, _not_matching(schema, instance)
    elif rule == "minLength":
        yield path, Sentence("value-empty", f"is empty{_allowed(schema)}")
    elif rule in {"minimum", "maximum"}:
        out_of_range = f"{text} is out of range{_allowed(schema)}"
        yield path, Sentence("value-out-of-range", out_of_range)
    else:
        raise AssertionError(f"no sentence for the schema keyword {rule}")


def _not_matching(schema: Schema, text: str) -> Sentence:
    # A number in quotes has the wrong type; it is not an unknown word.
    if "integer" in schema["type"] and text.isdecimal():
        return _wrong_type(schema, text, text)
    return Sentence("value-unknown", f"{text!r} is unknown{_allowed(schema)}")


def _suggesting(sentence: str, word: str, known: list[Any]) -> str:
    near = difflib.get_close_matches(word, [str(value) for value in known], n=1)
    return f"{sentence}; did you mean {near[0]}?" if near else sentence


def _wrong_type(schema: Schema, value: object, text: str) -> Sentence:
    wanted = schema["type"]
    noun = _NOUNS[wanted if isinstance(wanted, str) else wanted[0]]
    sentence = f"must be {noun}, not {_described(value, text)}"
    if wanted == "string" and text and not schema.get("as_written"):
        sentence += "; write it in quotes"
    return Sentence("value-type-wrong", sentence + _allowed(schema))


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
    document.data = as_written(document.data, POLICY_SCHEMA, document.texts)
    errors += schema_mistakes(document)
    parts = document.data if isinstance(document.data, dict) else {}
    nfs, host = parts.get("nfs"), parts.get("host")
    errors += [
        _remark(document, path, sentence)
        for path, sentence in (*nfs_mistakes(nfs), *host_mistakes(host))
    ]
    wrong = {(error.line, error.key) for error in errors}
    errors += [
        remark
        for path, sentence in number_mistakes(document.data, document.texts)
        for remark in (_remark(document, path, sentence),)
        if (remark.line, remark.key) not in wrong
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
