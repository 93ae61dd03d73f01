#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or any later version, v3.0 included
"""Report what ovirt-rdma-host says about a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_info
short_description: Report the RDMA hardware of a host and the state of ovirt-rdma-host
version_added: 0.2.0
description:
  - Reads the version of C(ovirt-rdma-host), the RDMA devices and adapters of the host,
    and what is enabled and loaded. Changes nothing.
  - Fails if the command is too old for this collection.
options:
  require_command:
    description:
      - Whether to fail if C(ovirt-rdma-host) is missing on the host.
    type: bool
    default: true
  without_hardware:
    description:
      - Whether the module fails on a host without RDMA hardware. V(skip) and
        V(continue) are the same here; the role knows the difference.
    type: str
    choices: [skip, fail, continue]
    default: skip
attributes:
  check_mode:
    description: Works in check mode.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
author:
  - The ovirt-rdma developers (@oVirt)
"""

EXAMPLES = r"""
- name: Read what the host has
  ovirt_rdma.host.host_info:
  register: host
"""

RETURN = r"""
installed:
  description: Whether the command is on the host.
  returned: always
  type: bool
version:
  description: The version of ovirt-rdma-host.
  returned: if it is installed
  type: str
  sample: 0.2.0
hardware:
  description: Whether the host has an RDMA device, or an adapter that could be one.
  returned: if it is installed
  type: bool
devices:
  description: The RDMA devices.
  returned: if it is installed
  type: list
  elements: str
  sample: [mlx5_0]
adapters:
  description: The PCI addresses of the RDMA adapters, also of those without a driver.
  returned: if it is installed
  type: list
  elements: str
  sample: ["0000:3b:00.0"]
mode:
  description: The mode that is enabled, or null.
  returned: if it is installed
  type: str
  sample: vdsmd
policy_digest:
  description: The digest of the loaded policy, or null.
  returned: if it is installed
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ovirt_rdma.host.plugins.module_utils.host_command import (
    Failed,
    HostCommand,
    carry_out,
)


def _read(module):
    if not module.params["require_command"] and HostCommand.find(module) is None:
        return {"changed": False, "installed": False}
    command = HostCommand(module)
    version = command.version()
    facts = command.run("facts")[1]
    # 3: the stored policy cannot be used; loading another is what follows.
    status = command.run("status", also=(3,))[1]
    devices = [device["name"] for device in facts["rdma_devices"]]
    adapters = [adapter["pci"]["address"] for adapter in facts["adapters"]]
    hardware = bool(devices or adapters)
    if not hardware and module.params["without_hardware"] == "fail":
        raise Failed(
            f"{facts['hostname']} has no RDMA device and no RDMA adapter",
            "look for the adapter with lspci, and at its driver",
            "hardware-missing",
        )
    return {
        "changed": False,
        "installed": True,
        "version": version,
        "hardware": hardware,
        "devices": devices,
        "adapters": adapters,
        "mode": status["enabled"]["mode"],
        "policy_digest": status["policy"]["digest"],
    }


def main():
    """Run the module."""
    module = AnsibleModule(
        {
            "require_command": {"type": "bool", "default": True},
            "without_hardware": {
                "choices": ["skip", "fail", "continue"],
                "default": "skip",
            },
        },
        supports_check_mode=True,
    )
    carry_out(module, _read)


if __name__ == "__main__":
    main()
