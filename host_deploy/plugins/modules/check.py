#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or any later version, v3.0 included
"""Check a host with the rules of ovirt-rdma-host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: check
short_description: Check a host with the rules of ovirt-rdma-host
version_added: 0.2.0
description:
  - Runs C(ovirt-rdma-host check), which changes nothing.
options:
  require:
    description:
      - Whether to fail if a check fails. Otherwise each is a sentence in
        RV(attention).
    type: bool
    default: false
attributes:
  check_mode:
    description: Works in check mode, and says how the host is now.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
author:
  - The ovirt-rdma developers (@oVirt)
"""

EXAMPLES = r"""
- name: Fail if the host does not pass the checks
  ovirt_rdma.host.check:
    require: true
"""

RETURN = r"""
verdict:
  description: The summary, as the command prints it.
  returned: success
  type: str
  sample: 24 checks passed on hv1, 3 skipped.
attention:
  description: Sentences about the checks that failed.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ovirt_rdma.host.plugins.module_utils.host_command import (
    Failed,
    HostCommand,
    carry_out,
    sentence,
)


def _check(module):
    # 3: checks failed.
    document = HostCommand(module).run("check", also=(3,))[1]
    failed = [
        sentence(f"{one['rule']} {one['subject']}: {one['sentence']}", one["fix"])
        for one in document["findings"]
        if one["verdict"] == "FAIL"
    ]
    verdict = document["verdict"]
    if failed and module.params["require"]:
        what = f"{verdict} {failed[0]}"
        raise Failed(what, "", "checks-failed", failed_checks=failed)
    return {"changed": False, "verdict": verdict, "attention": failed}


def main():
    """Run the module."""
    module = AnsibleModule(
        {"require": {"type": "bool", "default": False}}, supports_check_mode=True
    )
    carry_out(module, _check)


if __name__ == "__main__":
    main()
