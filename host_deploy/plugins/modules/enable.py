#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or any later version, v3.0 included
"""Enable or disable ovirt-rdma on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: enable
short_description: Let VDSM use the policy on a host, or stop that
version_added: 0.2.0
description:
  - Runs C(ovirt-rdma-host enable) or C(ovirt-rdma-host disable).
  - vdsmd is not restarted unless O(restart_vdsmd) says so. A running vdsmd mounts as
    before until its next start.
options:
  mode:
    description:
      - V(vdsmd) lets vdsmd mount NFS storage as the policy says, and VDSM's hooks and
        the units of ovirt-rdma act.
      - V(host) lets only the hooks and units act.
      - V(disabled) undoes either.
    type: str
    choices: [vdsmd, host, disabled]
    default: vdsmd
  restart_vdsmd:
    description:
      - Whether to restart vdsmd at once, if it is not the one that the mode needs.
    type: bool
    default: false
attributes:
  check_mode:
    description: Compares the mode with the one that is enabled.
    support: full
  diff_mode:
    description: Shows the mode before and after.
    support: full
author:
  - The ovirt-rdma developers (@oVirt)
"""

EXAMPLES = r"""
- name: Let vdsmd use the policy from its next start on
  ovirt_rdma.host.enable:
    mode: vdsmd
"""

RETURN = r"""
mode:
  description: The mode that is enabled now.
  returned: success
  type: str
restart_needed:
  description: Whether the running vdsmd was started before the change.
  returned: success, not in check mode
  type: bool
attention:
  description: Sentences about what does not fit together.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ovirt_rdma.host.plugins.module_utils.host_command import (
    HostCommand,
    advice,
    carry_out,
)


def _enable(module):
    wanted = module.params["mode"]
    command = HostCommand(module)
    # 3: the stored policy cannot be used, which does not concern the mode.
    before = command.run("status", also=(3,))[1]["enabled"]["mode"] or "disabled"
    result = {
        "changed": before != wanted,
        "mode": wanted,
        "diff": {"before": f"mode: {before}\n", "after": f"mode: {wanted}\n"},
    }
    if module.check_mode:
        return result
    words = ["disable"] if wanted == "disabled" else ["enable", "--mode", wanted]
    if module.params["restart_vdsmd"]:
        words.append("--restart-vdsmd")
    document = command.run(*words)[1]
    attention = [advice(one) for one in document["advice"]]
    if document["restart_needed"]:
        attention.append(
            "the running vdsmd has not been restarted yet; fix: systemctl restart "
            "vdsmd, or reboot the host"
        )
    return {
        **result,
        "changed": document["changed"],
        "restart_needed": document["restart_needed"],
        "attention": attention,
    }


def main():
    """Run the module."""
    module = AnsibleModule(
        {
            "mode": {"default": "vdsmd", "choices": ["vdsmd", "host", "disabled"]},
            "restart_vdsmd": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    carry_out(module, _enable)


if __name__ == "__main__":
    main()
