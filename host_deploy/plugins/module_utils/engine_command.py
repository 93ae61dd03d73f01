# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``ovirt-rdma`` for a module, with the login of ovirt.ovirt's modules."""

from __future__ import annotations

from ansible_collections.ovirt_rdma.host.plugins.module_utils.host_command import (
    HostCommand,
)

# plugins/doc_fragments/engine.py describes them.
ENGINE_ARGUMENTS = {
    "auth": {
        "type": "dict",
        "options": {
            "url": {"type": "str"},
            "hostname": {"type": "str"},
            "username": {"type": "str"},
            "password": {"type": "str", "no_log": True},
            "token": {"type": "str", "no_log": True},
            "ca_file": {"type": "path"},
            # In the fact of ovirt_auth.
            "insecure": {"type": "bool"},
            "timeout": {"type": "int"},
            "compress": {"type": "bool"},
            "kerberos": {"type": "bool"},
            "headers": {"type": "dict"},
        },
    },
    "data_center": {"type": "str"},
    "ssh_key": {"type": "path", "no_log": False},
    "ssh_user": {"type": "str"},
    "inventory": {"type": "path"},
}
_OPTIONS = {
    "data_center": "--datacenter",
    "ssh_key": "--ssh-key",
    "ssh_user": "--ssh-user",
    "inventory": "--inventory",
}


def environment(auth):
    """Return the variables of the command for the value of ``auth``, or None."""
    auth = auth or {}
    found = {
        "OVIRT_URL": auth.get("url") or auth.get("hostname"),
        "OVIRT_USERNAME": auth.get("username"),
        "OVIRT_PASSWORD": auth.get("password"),
        "OVIRT_TOKEN": auth.get("token"),
        "OVIRT_CAFILE": auth.get("ca_file"),
    }
    given = {name: value for name, value in found.items() if value}
    if {"OVIRT_PASSWORD", "OVIRT_TOKEN"} & set(given):
        # The environment's would be for another login.
        given = {"OVIRT_PASSWORD": "", "OVIRT_TOKEN": "", **given}
    return given


class EngineCommand(HostCommand):
    """The command ovirt-rdma on the engine machine, or on another one that has it."""

    program, package = "ovirt-rdma", "ovirt-rdma-engine"

    def __init__(self, module):
        """Find the command; raise Failed if it is missing.

        Another run on the engine may take hours, so it is not waited for.
        """
        super().__init__(module, lock_timeout=0)

    def run(self, *words, also=(), names=()):
        """Run a verb for the engine, with the access to hosts that the module has."""
        params = self._module.params
        options = [
            f"{option}={params[name]}"
            for name, option in _OPTIONS.items()
            if params[name]
        ]
        self._environment = environment(params["auth"])
        return super().run(*words, *options, also=also, names=names)
