#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or any later version, v3.0 included
"""Report the transport of storage domains on the hosts."""

from __future__ import annotations

DOCUMENTATION = r"""
module: domain_info
short_description: Report the proven transport of NFS storage domains on each host
version_added: 0.2.0
description:
  - Runs C(ovirt-rdma domain verify) on the engine machine, or on another one that has
    the package. It asks the kernel of each host, and changes nothing.
options:
  names:
    description: The domains. The default is all NFS domains.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Works in check mode.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
extends_documentation_fragment:
  - ovirt_rdma.host.engine
"""

EXAMPLES = r"""
- name: Look at all domains
  ovirt_rdma.host.domain_info:
    auth: "{{ ovirt_auth }}"
  register: storage

- name: Fail unless all mounts are as requested
  ansible.builtin.assert:
    that: storage.worst == 'ok'
"""

RETURN = r"""
worst:
  description:
    - The worst verdict of all mounts. V(unknown) is worse than V(warn), V(none) means
      that no host mounts one of the domains.
  returned: success
  type: str
  sample: ok
mounts:
  description: Each domain on each host of its data center.
  returned: success
  type: list
  elements: dict
  contains:
    domain:
      description: The name of the domain.
      type: str
    host:
      description: The name of the host.
      type: str
    transport:
      description: The proven transport, or why there is none.
      type: str
      sample: rdma
    verdict:
      description: V(ok), V(warn), V(fail), V(unknown); V(none) where it need not be.
      type: str
      sample: ok
    reason:
      description: The reason in one sentence, or nothing.
      type: str
    fix:
      description: What to do, or nothing.
      type: str
attention:
  description: The reasons of all verdicts but V(ok) and V(none), with the fix.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ovirt_rdma.host.plugins.module_utils.engine_command import (
    ENGINE_ARGUMENTS,
    EngineCommand,
)
from ansible_collections.ovirt_rdma.host.plugins.module_utils.host_command import (
    carry_out,
    sentence,
)


def _read(module):
    # 3: a mount is not as requested, or unknown, or there is none.
    matrix = EngineCommand(module).run(
        "domain", "verify", also=(3,), names=module.params["names"]
    )[1]
    mounts = [
        {
            "domain": column["name"],
            "host": row["name"],
            "transport": cell["text"],
            "verdict": cell["verdict"],
            "reason": cell["sentence"],
            "fix": cell["fix"],
        }
        for row, cells in zip(matrix["rows"], matrix["cells"])
        for column, cell in zip(matrix["columns"], cells)
    ]
    bad = [one for one in mounts if one["verdict"] not in ("ok", "none")]
    return {
        "changed": False,
        "worst": matrix["worst"],
        "mounts": mounts,
        "attention": [
            *(sentence(f"{one['host']}: {one['reason']}", one["fix"]) for one in bad),
            *matrix["notes"],
        ],
    }


def main():
    """Run the module."""
    module = AnsibleModule(
        {
            **ENGINE_ARGUMENTS,
            "names": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    carry_out(module, _read)


if __name__ == "__main__":
    main()
