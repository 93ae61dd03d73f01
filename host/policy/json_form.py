# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert a policy to JSON data and back, strictly, and compute its digest.

Pure; needs only the standard library.

vdsmd reads this form. Every field is written, defaults too, so that a later version
with other defaults reads the same policy. Only fields of later versions are left out
where they have their default: then the digest of the policy is the same in all
versions, and an earlier version can read it after a downgrade. A field that an earlier
version did not write has its default.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection
from typing import Any, get_args, get_type_hints

from ovirt_rdma.host.policy.model import (
    AUTO,
    LINK_LAYERS,
    OFFLOAD_CHOICES,
    PARTITIONS,
    PARTITIONS_INTERVAL_S,
    POLICY_VERSION,
    PORT_MTUS,
    TRANSPORT_MODES,
    TRANSPORTS,
    HostPolicy,
    InterfaceRule,
    ModuleOption,
    NfsPolicy,
    NfsRule,
    Policy,
)

_RULE_TYPES = get_type_hints(NfsRule)
# The parts of Optional[X] and Union[X, Y, None].
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
    "partitions": PARTITIONS,
}
# Keys that the first version of this form did not have.
_LATER = {"partitions"}
_LATER_OF_HOST = {"partitions_interval"}
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
    data: dict[str, object] = {
        "interfaces": [_interface_to_json(rule) for rule in host.interfaces],
        "modules": list(host.modules),
        "module_options": [dataclasses.asdict(o) for o in host.module_options],
    }
    if host.follows_partitions or host.partitions_interval != PARTITIONS_INTERVAL_S:
        data["partitions_interval"] = host.partitions_interval
    return data


def _interface_to_json(rule: InterfaceRule) -> dict[str, object]:
    fields = dataclasses.asdict(rule)
    fields["pkey_children"] = list(rule.pkey_children)
    return {
        key: value
        for key, value in fields.items()
        if key not in _LATER or value is not None
    }


def from_json_dict(data: object) -> Policy:
    """Read the result of :func:`to_json_dict`.

    Raises ValueError, with a sentence that names the key, for an unknown or missing
    key, a value of the wrong type or another policy version.
    """
    parts = _mapping(data, {"version", "nfs", "host"}, "policy", {"host"})
    if parts["version"] != POLICY_VERSION:
        raise ValueError(f"policy.version is not {POLICY_VERSION}")
    nfs = _mapping(parts["nfs"], {"rules"}, "policy.nfs")
    rules = _list(nfs["rules"], "policy.nfs.rules")
    return Policy(
        nfs=NfsPolicy(tuple(_rule(rule, where) for where, rule in rules)),
        host=_host(parts["host"], "policy.host") if "host" in parts else HostPolicy(),
    )


def digest(policy: Policy) -> str:
    """Return ``sha256:…`` over the policy's content: equal policies, equal digests."""
    return digest_as_stored(to_json_dict(policy))


def digest_as_stored(data: object) -> str:
    """Return the digest over a policy in its JSON form, also of an earlier version."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


def _host(data: object, where: str) -> HostPolicy:
    keys = {"interfaces", "modules", "module_options", *_LATER_OF_HOST}
    parts = _mapping(data, keys, where, _LATER_OF_HOST)
    interfaces = _list(parts["interfaces"], f"{where}.interfaces")
    modules = _list(parts["modules"], f"{where}.modules")
    options = _list(parts["module_options"], f"{where}.module_options")
    return HostPolicy(
        tuple(_interface(rule, place) for place, rule in interfaces),
        tuple(_text(name, place) for place, name in modules),
        tuple(_option(option, place) for place, option in options),
        _seconds(parts.get("partitions_interval"), f"{where}.partitions_interval"),
    )


def _seconds(value: object, where: str) -> int:
    if value is None:
        return PARTITIONS_INTERVAL_S
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError(f"{where} is not a number of seconds")


def _interface(data: object, where: str) -> InterfaceRule:
    keys = {*_INTERFACE_TYPES, "pkey_children"}
    values = _mapping(data, keys, where, _LATER)
    children = _list(values["pkey_children"], f"{where}.pkey_children")
    arguments: dict[str, Any] = {
        key: _one_of(values.get(key), wanted, f"{where}.{key}")
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
    shown = " or ".join(t.__name__ for t in wanted if t is not type(None))
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
            raise ValueError(f"{where} is too large") from None
    if isinstance(value, wanted) and not isinstance(value, bool):
        return value
    raise ValueError(f"{where} is not of type {wanted.__name__}")


def _list(data: object, where: str) -> list[tuple[str, object]]:
    """Return the items of a list, each with its place."""
    if not isinstance(data, list):
        raise ValueError(f"{where} is not a list")
    return [(f"{where}[{number}]", item) for number, item in enumerate(data, 1)]


def _mapping(
    data: object, keys: set[str], where: str, later: Collection[str] = ()
) -> dict[str, object]:
    """Return an object with ``keys``; those in ``later`` may be missing."""
    if not isinstance(data, dict):
        raise ValueError(f"{where} is not an object")
    for key in sorted(keys - set(data) - set(later)):
        raise ValueError(f"{where}.{key} is missing")
    for key in sorted(set(data) - keys):
        raise ValueError(f"{where}.{key} is unknown")
    return data
