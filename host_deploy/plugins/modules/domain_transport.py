#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or any later version, v3.0 included
"""Convert storage domains to RDMA or TCP."""

from __future__ import annotations

DOCUMENTATION = r"""
module: domain_transport
short_description: Convert NFS storage domains of an engine to RDMA, or back to TCP
version_added: 0.2.0
description:
  - Runs C(ovirt-rdma domain convert) on the engine machine, or on another one that has
    the package.
  - All checks are made before anything is changed. A conversion that was interrupted is
    resumed by the same task. C(ovirt-rdma domain revert) undoes one.
  - A failure is one sentence with a fix, which names the options of that command.
    C(--allow-datacenter-down) is O(allow_datacenter_down), C(--rolling) is
    O(strategy=rolling).
  - It takes some minutes for each host. Use C(async) if the connection to the machine
    may not last as long.
options:
  names:
    description:
      - The domains, of one data center. Those that share a connection of the kernel
        must be converted together.
    type: list
    elements: str
    required: true
  state:
    description: The transport.
    type: str
    choices: [rdma, tcp]
    default: rdma
  strategy:
    description:
      - V(rolling) moves host by host to maintenance and back, while virtual machines
        run.
      - V(offline) moves the domains to maintenance meanwhile. No running virtual
        machine may use them.
    type: str
    choices: [rolling, offline]
    default: rolling
  batch:
    description: How many hosts are in maintenance at a time.
    type: int
    default: 1
  rule:
    description: The transport of the rule in the policy of the hosts.
    type: str
    choices: [require-rdma, prefer-rdma]
    default: require-rdma
  without:
    description: The names of hosts to leave out, for example those that are down.
    type: list
    elements: str
    default: []
  allow_datacenter_down:
    description:
      - Whether to convert even if no other data domain is active, or with V(rolling) no
        other host is up.
    type: bool
    default: false
attributes:
  check_mode:
    description: Makes the checks, and returns every request that would be sent.
    support: full
  diff_mode:
    description: Shows the steps in check mode.
    support: partial
extends_documentation_fragment:
  - ovirt_rdma.host.engine
"""

EXAMPLES = r"""
- name: Log in
  ovirt.ovirt.ovirt_auth:
    url: https://engine.example.com/ovirt-engine/api
    username: admin@ovirt@internalsso
    password: "{{ engine_password }}"
    ca_file: /etc/pki/ovirt-engine/ca.pem

- name: Mount a domain over RDMA, host by host
  ovirt_rdma.host.domain_transport:
    auth: "{{ ovirt_auth }}"
    names: [data1]
    state: rdma

- name: Mount it over TCP again, two hosts at a time
  ovirt_rdma.host.domain_transport:
    auth: "{{ ovirt_auth }}"
    names: [data1]
    state: tcp
    batch: 2
"""

RETURN = r"""
sentence:
  description: The result in one sentence.
  returned: success, not in check mode
  type: str
  sample: Domain data1 is converted to RDMA
hosts:
  description: The hosts that were converted, and those that were left out.
  returned: success, not in check mode
  type: list
  elements: dict
  contains:
    host:
      description: The name of the host.
      type: str
    outcome:
      description: What was done.
      type: str
      sample: converted
    sentence:
      description: More about it, or nothing.
      type: str
calls:
  description:
    - The steps, in order. Each has C(doing), C(about), and the request to the engine
      with C(method), C(path), C(query) and C(body), or the C(policy) that a host gets.
  returned: success, in check mode
  type: list
  elements: dict
attention:
  description: Warnings of the checks.
  returned: success, in check mode
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
)


def _convert(module):
    params = module.params
    words = ["domain", "convert", f"--to={params['state']}"]
    words += [f"--batch={params['batch']}", f"--policy-rule={params['rule']}"]
    words += [f"--without={host}" for host in params["without"]]
    if params["strategy"] == "rolling":
        words.append("--rolling")
    if params["allow_datacenter_down"]:
        words.append("--allow-datacenter-down")
    words.append("--dry-run" if module.check_mode else "--assume-yes")
    document = EngineCommand(module).run(*words, names=params["names"])[1]
    if module.check_mode:
        calls = document["calls"]
        steps = "".join(f"{call['doing']}\n" for call in calls)
        return {
            "changed": bool(calls),
            "calls": calls,
            "attention": document["warnings"],
            "diff": {"prepared": steps},
        }
    return {
        "changed": document["stage"] != "nothing to do",
        "sentence": document["sentence"],
        "hosts": document["hosts"],
    }


def main():
    """Run the module."""
    module = AnsibleModule(
        {
            **ENGINE_ARGUMENTS,
            "names": {"type": "list", "elements": "str", "required": True},
            "state": {"default": "rdma", "choices": ["rdma", "tcp"]},
            "strategy": {"default": "rolling", "choices": ["rolling", "offline"]},
            "batch": {"type": "int", "default": 1},
            "rule": {
                "default": "require-rdma",
                "choices": ["require-rdma", "prefer-rdma"],
            },
            "without": {"type": "list", "elements": "str", "default": []},
            "allow_datacenter_down": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    carry_out(module, _convert)


if __name__ == "__main__":
    main()
