# SPDX-License-Identifier: GPL-2.0-or-later
"""A policy as JSON data and back, strictly, and its digest. Pure, stdlib only.

This is the form that vdsmd reads, so every field is written out, defaults too:
a later version with other defaults reads the same policy.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, get_type_hints

from ovirt_rdma.host.policy import (
    POLICY_VERSION,
    TRANSPORTS,
    NfsPolicy,
    NfsRule,
    Policy,
)

_RULE_TYPES = get_type_hints(NfsRule)


def to_json_dict(policy: Policy) -> dict[str, object]:
    """Return the policy as dicts, lists, strings and numbers."""
    return {
        "version": policy.version,
        "nfs": {"rules": [dataclasses.asdict(rule) for rule in policy.nfs.rules]},
    }


def from_json_dict(data: object) -> Policy:
    """Read what :func:`to_json_dict` made.

    Raises ValueError, with a sentence that names the key, for a key too many or
    too few, a value of another type, or another policy version.
    """
    parts = _mapping(data, {"version", "nfs"}, "policy")
    if parts["version"] != POLICY_VERSION:
        raise ValueError(f"policy.version is not {POLICY_VERSION}")
    rules = _mapping(parts["nfs"], {"rules"}, "policy.nfs")["rules"]
    if not isinstance(rules, list):
        raise ValueError("policy.nfs.rules is not a list")
    return Policy(
        nfs=NfsPolicy(
            tuple(
                _rule(rule, f"policy.nfs.rules[{number}]")
                for number, rule in enumerate(rules, 1)
            )
        )
    )


def digest(policy: Policy) -> str:
    """Return ``sha256:…`` over the policy's content: equal policies, equal digests."""
    text = json.dumps(to_json_dict(policy), sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


def _rule(data: object, where: str) -> NfsRule:
    values = _mapping(data, set(_RULE_TYPES), where)
    arguments: dict[str, Any] = {
        key: _value(values[key], wanted, f"{where}.{key}")
        for key, wanted in _RULE_TYPES.items()
    }
    if arguments["transport"] not in TRANSPORTS:
        raise ValueError(f"{where}.transport is not one of {', '.join(TRANSPORTS)}")
    return NfsRule(**arguments)


def _value(value: object, wanted: type, where: str) -> object:
    if wanted is float and type(value) is int:
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"{where} is a number too large") from None
    if isinstance(value, wanted) and not isinstance(value, bool):
        return value
    raise ValueError(f"{where} is not of type {wanted.__name__}")


def _mapping(data: object, keys: set[str], where: str) -> dict[str, object]:
    if not isinstance(data, dict):
        raise ValueError(f"{where} is not an object")
    for key in sorted(keys - set(data)):
        raise ValueError(f"{where}.{key} is missing")
    for key in sorted(set(data) - keys):
        raise ValueError(f"{where}.{key} is unknown")
    return data
