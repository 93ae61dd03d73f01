# SPDX-License-Identifier: GPL-2.0-or-later
"""A policy as JSON data and back, strictly, and its digest. Pure, stdlib only.

This is the form that vdsmd reads, so every field is written out, defaults too:
a later version with other defaults reads the same policy.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, get_args, get_type_hints

from ovirt_rdma.host.policy import (
    POLICY_VERSION,
    TRANSPORTS,
    NfsPolicy,
    NfsRule,
    Policy,
)
from ovirt_rdma.host.policy_host import (
    AUTO,
    LINK_LAYERS,
    OFFLOAD_CHOICES,
    PORT_MTUS,
    TRANSPORT_MODES,
    HostPolicy,
    InterfaceRule,
    ModuleOption,
)

_RULE_TYPES = get_type_hints(NfsRule)
# Of Optional[X] and Union[X, Y, None] their parts.
_INTERFACE_TYPES = {
    key: get_args(wanted) or (wanted,)
    for key, wanted in get_type_hints(InterfaceRule).items()
    if key != "pkey_children"
}
_INTERFACE_CHOICES: dict[str, tuple[object, ...]] = {
    "link_layer": LINK_LAYERS,
    "transport_mode": TRANSPORT_MODES,
    "tso": OFFLOAD_CHOICES,
    "port_mtu": PORT_MTUS,
}
_OPTION_KEYS = {field.name for field in dataclasses.fields(ModuleOption)}


def to_json_dict(policy: Policy) -> dict[str, object]:
    """Return the policy as dicts, lists, strings and numbers."""
    return {
        "version": policy.version,
        "nfs": {"rules": [dataclasses.asdict(rule) for rule in policy.nfs.rules]},
        "host": host_to_json_dict(policy.host),
    }


def host_to_json_dict(host: HostPolicy) -> dict[str, object]:
    """Return the ``host:`` part of it."""
    return {
        "interfaces": [
            {**dataclasses.asdict(rule), "pkey_children": list(rule.pkey_children)}
            for rule in host.interfaces
        ],
        "modules": list(host.modules),
        "module_options": [dataclasses.asdict(one) for one in host.module_options],
    }


def from_json_dict(data: object) -> Policy:
    """Read what :func:`to_json_dict` made.

    Raises ValueError, with a sentence that names the key, for a key too many or
    too few, a value of another type, or another policy version.
    """
    parts = _mapping(data, {"version", "nfs", "host"}, "policy")
    if parts["version"] != POLICY_VERSION:
        raise ValueError(f"policy.version is not {POLICY_VERSION}")
    nfs = _mapping(parts["nfs"], {"rules"}, "policy.nfs")
    rules = _list(nfs["rules"], "policy.nfs.rules")
    return Policy(
        nfs=NfsPolicy(tuple(_rule(rule, where) for where, rule in rules)),
        host=_host(parts["host"], "policy.host"),
    )


def digest(policy: Policy) -> str:
    """Return ``sha256:…`` over the policy's content: equal policies, equal digests."""
    text = json.dumps(to_json_dict(policy), sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


def _host(data: object, where: str) -> HostPolicy:
    parts = _mapping(data, {"interfaces", "modules", "module_options"}, where)
    interfaces = _list(parts["interfaces"], f"{where}.interfaces")
    modules = _list(parts["modules"], f"{where}.modules")
    options = _list(parts["module_options"], f"{where}.module_options")
    return HostPolicy(
        tuple(_interface(rule, place) for place, rule in interfaces),
        tuple(_text(name, place) for place, name in modules),
        tuple(_option(option, place) for place, option in options),
    )


def _interface(data: object, where: str) -> InterfaceRule:
    values = _mapping(data, {*_INTERFACE_TYPES, "pkey_children"}, where)
    children = _list(values["pkey_children"], f"{where}.pkey_children")
    arguments: dict[str, Any] = {
        key: _one_of(values[key], wanted, f"{where}.{key}")
        for key, wanted in _INTERFACE_TYPES.items()
    }
    for key, choices in _INTERFACE_CHOICES.items():
        if arguments[key] not in {None, *choices}:
            allowed = ", ".join(map(str, choices))
            raise ValueError(f"{where}.{key} is not one of {allowed}")
    if isinstance(arguments["mtu"], str) and arguments["mtu"] != AUTO:
        raise ValueError(f"{where}.mtu is neither a number nor {AUTO}")
    arguments["pkey_children"] = tuple(_text(key, place) for place, key in children)
    return InterfaceRule(**arguments)


def _option(data: object, where: str) -> ModuleOption:
    values = _mapping(data, _OPTION_KEYS, where)
    return ModuleOption(
        **{key: _text(value, f"{where}.{key}") for key, value in values.items()}
    )


def _one_of(value: object, wanted: tuple[type, ...], where: str) -> object:
    if isinstance(value, wanted) and not isinstance(value, bool):
        return value
    shown = " or ".join(one.__name__ for one in wanted if one is not type(None))
    raise ValueError(f"{where} is not of type {shown}")


def _text(value: object, where: str) -> str:
    if isinstance(value, str):
        return value
    raise ValueError(f"{where} is not of type str")


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


def _list(data: object, where: str) -> list[tuple[str, object]]:
    """Return the items of a list, each with its place."""
    if not isinstance(data, list):
        raise ValueError(f"{where} is not a list")
    return [(f"{where}[{number}]", item) for number, item in enumerate(data, 1)]


def _mapping(data: object, keys: set[str], where: str) -> dict[str, object]:
    if not isinstance(data, dict):
        raise ValueError(f"{where} is not an object")
    for key in sorted(keys - set(data)):
        raise ValueError(f"{where}.{key} is missing")
    for key in sorted(set(data) - keys):
        raise ValueError(f"{where}.{key} is unknown")
    return data
