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
from typing import Any

from ovirt_rdma.host.policy import block_fields
from ovirt_rdma.host.policy.block_fields import BlockPolicy
from ovirt_rdma.host.policy.fabric import FabricHost, FabricPolicy, PartitionRule
from ovirt_rdma.host.policy.fields import (
    HOST,
    INTERFACE,
    MATCH,
    POLICY,
    RULE,
    VF_MATCH,
    VIRTUAL_FUNCTIONS,
)
from ovirt_rdma.host.policy.forms import (
    Field,
    Form,
    Keys,
    ListOf,
    Number,
    Reading,
    Text,
)
from ovirt_rdma.host.policy.model import (
    OFF,
    ON,
    PARTITIONS_INTERVAL_S,
    HostPolicy,
    InterfaceRule,
    ModuleOption,
    NfsPolicy,
    NfsRule,
    Policy,
    VfRule,
)
from ovirt_rdma.host.system.json_document import digest_of

# Keys that the first version of this form did not have.
_LATER = {"partitions", "port_type"}
_LATER_OF_HOST = {"partitions_interval", "virtual_functions", "metrics_folder"}


def _stored(field: Field, nullable: bool = False) -> Field:
    """Return the field as it is stored: always there, but for later ones."""
    later = _LATER | _LATER_OF_HOST
    form = field.form.or_null(nullable)
    return Field(field.name, form, required=field.name not in later)


def _needed(name: str, form: Form) -> Field:
    return Field(name, form.or_null(False), required=True)


# Only for sentences.
_MOST_RULES = 1_000_000
# The stored form differs from the file's: a rule has its number and all values, an
# interface rule has the keys of its match beside the others.
_RULE = Keys(
    _needed("number", Number(1, _MOST_RULES)),
    *(_stored(field) for field in RULE.fields.values()),
)
_INTERFACE = Keys(
    _needed("number", Number(1, _MOST_RULES)),
    _stored(INTERFACE.fields["name"]),
    *(_stored(field, nullable=True) for field in MATCH.fields.values()),
    *(
        _stored(field, nullable=field.name != "pkey_children")
        for field in INTERFACE.fields.values()
        if field.name not in ("name", "match")
    ),
)
_VFS = Keys(
    _needed("number", Number(1, _MOST_RULES)),
    *(_stored(field, nullable=True) for field in VF_MATCH.fields.values()),
    *(
        _stored(field, nullable=field.name == "link_state")
        for field in VIRTUAL_FUNCTIONS.fields.values()
        if field.name != "match"
    ),
)
_OPTION = Keys(*(_needed(key, Text()) for key in ("module", "name", "value")))
_HOST = Keys(
    _needed("interfaces", ListOf(_INTERFACE)),
    _stored(HOST.fields["modules"]),
    _needed("module_options", ListOf(_OPTION)),
    Field("virtual_functions", ListOf(_VFS)),
    _stored(HOST.fields["partitions_interval"]),
    _stored(HOST.fields["metrics_folder"]),
)
_TEXTS = ListOf(Text())
_FABRIC = Keys(
    _needed("pkeys_are_vlans", Text(choices=(ON, OFF))),
    _needed("hosts", ListOf(Keys(_needed("name", Text()), _needed("guids", _TEXTS)))),
    _needed(
        "partitions",
        ListOf(
            Keys(
                *(_needed(key, Text()) for key in ("name", "pkey")),
                _needed("members", _TEXTS),
                _needed("ipoib", Text(choices=(ON, OFF))),
                *(Field(key, Number(1).or_null()) for key in ("mtu", "rate", "vlan")),
            )
        ),
    ),
)
_POLICY = Keys(
    POLICY.fields["version"],
    _needed("nfs", Keys(_needed("rules", ListOf(_RULE)))),
    Field("host", _HOST),
    Field("fabric", _FABRIC),
    Field("block", block_fields.STORED),
)


def to_json_dict(policy: Policy) -> dict[str, object]:
    """Return the policy as dicts, lists, strings and numbers."""
    data: dict[str, object] = {
        "version": policy.version,
        "nfs": {"rules": [dataclasses.asdict(rule) for rule in policy.nfs.rules]},
        "host": host_to_json_dict(policy.host),
    }
    if policy.fabric != FabricPolicy():
        data["fabric"] = fabric_to_json_dict(policy.fabric)
    if policy.block != BlockPolicy():
        data["block"] = block_fields.to_json_dict(policy.block)
    return data


def fabric_to_json_dict(fabric: FabricPolicy) -> dict[str, object]:
    """Return the ``fabric:`` part of it."""
    return {
        "pkeys_are_vlans": ON if fabric.pkeys_are_vlans else OFF,
        "hosts": [
            {"name": host.name, "guids": list(host.guids)} for host in fabric.hosts
        ],
        "partitions": [
            {
                **dataclasses.asdict(rule),
                "members": list(rule.members),
                "ipoib": ON if rule.ipoib else OFF,
            }
            for rule in fabric.partitions
        ],
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
    if host.virtual_functions:
        data["virtual_functions"] = [
            {**dataclasses.asdict(rule), "pkeys": list(rule.pkeys)}
            for rule in host.virtual_functions
        ]
    if host.metrics_folder is not None:
        data["metrics_folder"] = host.metrics_folder
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
    reading = Reading()
    parts = _POLICY.read(data, ("policy",), reading)
    if reading.mistakes:
        # vdsmd needs it for a damaged policy only.
        from ovirt_rdma.host.policy.diagnostics import key_text  # noqa: PLC0415

        # Another version explains all other mistakes.
        first = min(
            reading.mistakes, key=lambda mistake: mistake[0][1:] != ("version",)
        )
        raise ValueError(f"{key_text(first[0])}: {first[1]}")
    return Policy(
        nfs=NfsPolicy(tuple(NfsRule(**rule) for rule in parts["nfs"]["rules"])),
        host=_host(parts["host"]) if "host" in parts else HostPolicy(),
        fabric=_fabric(parts["fabric"]) if "fabric" in parts else FabricPolicy(),
        block=_block(parts["block"]) if "block" in parts else BlockPolicy(),
    )


def _fabric(parts: dict[str, Any]) -> FabricPolicy:
    return FabricPolicy(
        tuple(FabricHost(h["name"], tuple(h["guids"])) for h in parts["hosts"]),
        tuple(
            PartitionRule(
                **{
                    **rule,
                    "members": tuple(rule["members"]),
                    "ipoib": rule["ipoib"] == ON,
                }
            )
            for rule in parts["partitions"]
        ),
        parts["pkeys_are_vlans"] == ON,
    )


def _host(parts: dict[str, Any]) -> HostPolicy:
    interval = parts.get("partitions_interval", PARTITIONS_INTERVAL_S)
    if interval <= 0:
        raise ValueError("policy.host.partitions_interval: must be more than 0")
    return HostPolicy(
        tuple(
            InterfaceRule(**{**rule, "pkey_children": tuple(rule["pkey_children"])})
            for rule in parts["interfaces"]
        ),
        tuple(parts["modules"]),
        tuple(ModuleOption(**option) for option in parts["module_options"]),
        interval,
        tuple(
            VfRule(**{**rule, "pkeys": tuple(rule["pkeys"])})
            for rule in parts.get("virtual_functions", ())
        ),
        parts.get("metrics_folder"),
    )


def _block(parts: dict[str, Any]) -> BlockPolicy:
    block = block_fields.from_json_parts(parts)
    if block.login_timeout <= 0 or (block.rescan_interval or 1) <= 0:
        raise ValueError("policy.block: a time must be more than 0")
    return block


def digest(policy: Policy) -> str:
    """Return ``sha256:…`` over the policy's content: equal policies, equal digests."""
    return digest_of(to_json_dict(policy))
