# SPDX-License-Identifier: GPL-2.0-or-later
"""The ``host:`` part as data, from what the file says after all checks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ovirt_rdma.host.policy_host import (
    PARTITIONS_INTERVAL_S,
    HostPolicy,
    InterfaceRule,
    ModuleOption,
)
from ovirt_rdma.host.policy_host_values import (
    child_pkey,
    pci_address,
    pkey,
    port_guid,
)
from ovirt_rdma.host.policy_module_checks import kernel_name

# How the parts of ``match`` that can be written in several ways become one form.
NORMAL_FORM = {"pci": pci_address, "guid": port_guid, "pkey": pkey}


def interface_name(rule: Mapping[str, Any], number: int) -> str:
    """Return the admin's name of a rule, or ``interface N``, counted from 1."""
    return str(rule.get("name", f"interface {number}"))


def host_policy(host: Mapping[str, Any]) -> HostPolicy:
    """Return the policy that a ``host:`` part without mistakes says."""
    return HostPolicy(
        interfaces=tuple(
            _interface(rule, number)
            for number, rule in enumerate(host.get("interfaces") or (), 1)
        ),
        modules=tuple(kernel_name(name) for name in host.get("modules") or ()),
        module_options=tuple(_options(host.get("module_options") or {})),
        partitions_interval=host.get("partitions_interval", PARTITIONS_INTERVAL_S),
    )


def _interface(rule: Mapping[str, Any], number: int) -> InterfaceRule:
    keys = {key: value for key, value in rule.items() if key != "match"}
    keys.update(
        {
            key: NORMAL_FORM[key](value) if key in NORMAL_FORM else value
            for key, value in rule["match"].items()
        }
    )
    keys["name"] = interface_name(rule, number)
    keys["pkey_children"] = tuple(map(child_pkey, rule.get("pkey_children") or ()))
    return InterfaceRule(number=number, **keys)


def _options(modules: Mapping[str, Any]) -> Iterator[ModuleOption]:
    for module, options in modules.items():
        for name, value in (options or {}).items():
            yield ModuleOption(kernel_name(module), kernel_name(name), value)
