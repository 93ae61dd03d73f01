#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or any later version, v3.0 included
"""Apply the loaded policy to a host, or revert that."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apply
short_description: Apply the loaded policy to a host and verify it, or revert that
version_added: 0.2.0
description:
  - Runs C(ovirt-rdma-host apply). What it changes can be undone with
    C(ovirt-rdma-host revert) on the host.
  - A step that would interrupt a netdev in use is refused, and nothing is changed.
  - In check mode the plan is made, and shown as the diff; of a revert, the steps are
    listed.
options:
  state:
    description:
      - V(applied) applies the policy.
      - V(confirmed) keeps an earlier run that had O(confirm_timeout).
      - V(reverted) restores the values from before all runs.
    type: str
    choices: [applied, confirmed, reverted]
    default: applied
  live_only:
    description:
      - Whether to apply only steps without disruption, and steps that take effect at
        the next boot. The other steps are listed in RV(attention).
    type: bool
    default: false
  allow_link_down:
    description:
      - Whether to apply also steps that interrupt a netdev in use for a moment.
    type: bool
    default: false
  confirm_timeout:
    description:
      - Roll back the run unless it is confirmed within this many seconds, 10 to 86400;
        V(0) for a run that needs no confirmation.
    type: int
    default: 0
  policy_text:
    description:
      - In check mode only, plan with this policy, which is not loaded yet.
    type: str
attributes:
  check_mode:
    description: Makes the plan and applies nothing.
    support: full
  diff_mode:
    description: Shows the value of each step before and after.
    support: full
author:
  - The ovirt-rdma developers (@oVirt)
"""

EXAMPLES = r"""
- name: Apply the policy, without disruption
  ovirt_rdma.host.apply:
    live_only: true

- name: Apply the policy, and roll it back unless it is confirmed within two minutes
  ovirt_rdma.host.apply:
    confirm_timeout: 120

- name: Keep the run
  ovirt_rdma.host.apply:
    state: confirmed
"""

RETURN = r"""
steps:
  description:
    - The ids of the steps that were applied or reverted, in check mode those planned.
  returned: success
  type: list
  elements: str
  sample: [IPOIB-MTU-01/ib0]
run:
  description: The number of the run, or null if nothing was to do.
  returned: success, not in check mode
  type: int
awaits_confirmation:
  description: Whether the run is rolled back unless it is confirmed.
  returned: success
  type: bool
attention:
  description: Sentences about steps that were left or refused, and notes.
  returned: success
  type: list
  elements: str
"""

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ovirt_rdma.host.plugins.module_utils.host_command import (
    HostCommand,
    advice,
    carry_out,
)


def _diff(steps):
    """Return the diff of steps with ``id``, ``before`` and ``after``."""
    texts = {
        side: "".join(f"{step['id']}: {step[side]}\n" for step in steps)
        for side in ("before", "after")
    }
    return {"before_header": "host", "after_header": "policy", **texts}


def _refused(step_id, why):
    return f"{step_id} is refused: {why}"


def _planned(module, command):
    """Return the result in check mode."""
    words = ["plan"]
    text = module.params["policy_text"]
    if text is not None:
        handle, path = tempfile.mkstemp(dir=module.tmpdir, suffix=".yaml")
        module.add_cleanup_file(path)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        words += ["--policy", path]
    now, attention = [], []
    for step in command.run(*words)[1]["steps"]:
        users = ", ".join(step["users"])
        if step["refused"]:
            attention.append(_refused(step["id"], step["refused"]))
        elif step["effect"] != "link-down":
            now.append(step)
        elif module.params["live_only"]:
            attention.append(f"{step['id']} would be left, because it is link-down")
        elif users and not module.params["allow_link_down"]:
            attention.append(f"apply would be refused: {step['id']} interrupts {users}")
        else:
            now.append(step)
    return {
        "changed": bool(now),
        "steps": [step["id"] for step in now],
        "diff": _diff(now),
        "attention": attention,
        "awaits_confirmation": False,
    }


def _applied(module, command):
    words = ["apply"]
    for option in ("live_only", "allow_link_down"):
        if module.params[option]:
            words.append("--" + option.replace("_", "-"))
    if module.params["confirm_timeout"]:
        words += ["--confirm-timeout", str(module.params["confirm_timeout"])]
    document = command.run(*words)[1]
    steps = [step for step in document["steps"] if step["outcome"] == "applied"]
    recovered = document["recovered"]
    return {
        "changed": document["run"] is not None,
        "run": document["run"],
        "steps": [step["id"] for step in steps],
        "diff": _diff(steps),
        "attention": [
            *map(advice, document["left"]),
            *(_refused(one["id"], one["why"]) for one in document["refused"]),
            *document["notes"],
            *([recovered] if recovered else []),
        ],
        "awaits_confirmation": document["confirm_by"] is not None,
    }


def _confirmed(module, command):
    result = {"changed": False, "steps": [], "awaits_confirmation": False}
    if not module.check_mode:
        result["changed"] = command.run("confirm")[1]["confirmed"] is not None
    return result


def _reverted(module, command):
    if module.check_mode:
        # 3: the stored policy cannot be used, which does not concern the changes.
        steps = command.run("status", also=(3,))[1]["changes"]["held"]
        return {"changed": bool(steps), "steps": steps, "awaits_confirmation": False}
    words = ["revert"]
    if module.params["allow_link_down"]:
        words.append("--allow-link-down")
    document = command.run(*words)[1]
    return {
        "changed": document["run"] is not None,
        "run": document["run"],
        "steps": [step["id"] for step in document["steps"]],
        "attention": [*map(advice, document["left"]), *document["notes"]],
        "awaits_confirmation": False,
    }


def _work(module):
    command, state = HostCommand(module), module.params["state"]
    applied = _planned if module.check_mode else _applied
    work = {"confirmed": _confirmed, "reverted": _reverted}.get(state, applied)
    return work(module, command)


def main():
    """Run the module."""
    module = AnsibleModule(
        {
            "state": {
                "default": "applied",
                "choices": ["applied", "confirmed", "reverted"],
            },
            "live_only": {"type": "bool", "default": False},
            "allow_link_down": {"type": "bool", "default": False},
            "confirm_timeout": {"type": "int", "default": 0},
            "policy_text": {"type": "str"},
        },
        supports_check_mode=True,
    )
    carry_out(module, _work)


if __name__ == "__main__":
    main()
