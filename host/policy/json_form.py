# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert a policy to JSON data and back, strictly, and compute its digest.

Pure; needs only the standard library.

vdsmd reads this form. Every field is written, defaults too, so that a later version
with other defaults reads the same policy. A missing or unknown field is refused.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ovirt_rdma.host.policy import block_fields
from ovirt_rdma.host.policy.block_fields import BlockPolicy
from ovirt_rdma.host.policy.fabric import (
    FabricHost,
    FabricPolicy,
    PartitionRule,
    SubnetManagerRule,
)
from ovirt_rdma.host.policy.fields import (
    HOST,
    INTERFACE,
    MATCH,
    NFS,
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
    HostPolicy,
    InterfaceRule,
    ModuleOption,
    NfsPolicy,
    NfsRule,
    Policy,
    VfRule,
)
from ovirt_rdma.host.system.json_document import digest_of


def _needed(name: str, form: Form, nullable: bool = False) -> Field:
    return Field(name, form.or_null(nullable), required=True)


def _stored(field: Field, nullable: bool = False) -> Field:
    """Return the field as it is stored: always there."""
    return _needed(field.name, field.form, nullable)


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
    _needed("virtual_functions", ListOf(_VFS)),
    _stored(HOST.fields["partitions_interval"]),
    _stored(HOST.fields["metrics_folder"], nullable=True),
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
                *(_needed(key, Number(1), True) for key in ("mtu", "rate", "vlan")),
            )
        ),
    ),
    _needed(
        "subnet_managers",
        ListOf(
            Keys(
                _needed("host", Text()),
                _needed("priority", Number()),
                _needed("ports", _TEXTS),
                _needed("standby", Text(choices=(ON, OFF))),
            )
        ),
    ),
)
_POLICY = Keys(
    POLICY.fields["version"],
    _needed(
        "nfs",
        Keys(
            _needed("rules", ListOf(_RULE)),
            _stored(NFS.fields["health_interval"], nullable=True),
        ),
    ),
    _needed("host", _HOST),
    _needed("fabric", _FABRIC),
    _needed("block", block_fields.STORED),
)


def to_json_dict(policy: Policy) -> dict[str, object]:
    """Return the policy as dicts, lists, strings and numbers."""
    return {
        "version": policy.version,
        "nfs": {
            "rules": [dataclasses.asdict(rule) for rule in policy.nfs.rules],
            "health_interval": policy.nfs.health_interval,
        },
        "host": _host_to_json(policy.host),
        "fabric": _fabric_to_json(policy.fabric),
        "block": block_fields.to_json_dict(policy.block),
    }


def _fabric_to_json(fabric: FabricPolicy) -> dict[str, object]:
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
        "subnet_managers": [
            {
                **dataclasses.asdict(rule),
                "ports": list(rule.ports),
                "standby": ON if rule.standby else OFF,
            }
            for rule in fabric.subnet_managers
        ],
    }


def _host_to_json(host: HostPolicy) -> dict[str, object]:
    return {
        "interfaces": [
            {**dataclasses.asdict(rule), "pkey_children": list(rule.pkey_children)}
            for rule in host.interfaces
        ],
        "modules": list(host.modules),
        "module_options": [dataclasses.asdict(o) for o in host.module_options],
        "virtual_functions": [
            {**dataclasses.asdict(rule), "pkeys": list(rule.pkeys)}
            for rule in host.virtual_functions
        ],
        "partitions_interval": host.partitions_interval,
        "metrics_folder": host.metrics_folder,
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
        nfs=NfsPolicy(
            tuple(NfsRule(**rule) for rule in parts["nfs"]["rules"]),
            parts["nfs"]["health_interval"],
        ),
        host=_host(parts["host"]),
        fabric=_fabric(parts["fabric"]),
        block=_block(parts["block"]),
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
        tuple(
            SubnetManagerRule(
                rule["host"],
                rule["priority"],
                tuple(rule["ports"]),
                rule["standby"] == ON,
            )
            for rule in parts["subnet_managers"]
        ),
    )


def _host(parts: dict[str, Any]) -> HostPolicy:
    interval = parts["partitions_interval"]
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
            for rule in parts["virtual_functions"]
        ),
        parts["metrics_folder"],
    )


def _block(parts: dict[str, Any]) -> BlockPolicy:
    block = block_fields.from_json_parts(parts)
    if block.login_timeout <= 0 or (block.rescan_interval or 1) <= 0:
        raise ValueError("policy.block: a time must be more than 0")
    return block


def digest(policy: Policy) -> str:
    """Return ``sha256:…`` over the policy's content: equal policies, equal digests."""
    return digest_of(to_json_dict(policy))
