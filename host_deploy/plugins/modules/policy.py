#!/usr/bin/python
# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or any later version, v3.0 included
"""Place a policy on a host, and load it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: policy
short_description: Place a policy on a host, and load it
version_added: 0.2.0
description:
  - Validates a policy with C(ovirt-rdma-host policy check) before it replaces the
    host's, keeps a backup, and runs C(ovirt-rdma-host policy load).
  - Drop-ins of the host, in the folder C(policy.d) beside the file, are loaded with it,
    and stay as they are.
  - If the policy cannot be loaded, the earlier file is restored, and the policy that
    was loaded stays in force.
options:
  src:
    description:
      - The policy file on the control machine. Without O(src) and O(content) the
        host's own file is loaded.
    type: path
  content:
    description:
      - The policy itself, as YAML or as its text, in place of O(src).
    type: raw
  path:
    description:
      - The policy file of the host.
    type: path
    default: /etc/ovirt-rdma/policy.yaml
  backup:
    description:
      - Whether to keep the file that is replaced, with the time in its name.
    type: bool
    default: true
attributes:
  check_mode:
    description: Validates the policy on the host, and compares it.
    support: full
  diff_mode:
    description: Shows the file before and after.
    support: full
author:
  - The ovirt-rdma developers (@oVirt)
"""

EXAMPLES = r"""
- name: Place the policy of the engine machine, and load it
  ovirt_rdma.host.policy:
    src: /etc/ovirt-rdma/policy.yaml

- name: Load a policy that is written here
  ovirt_rdma.host.policy:
    content:
      version: 1
      nfs:
        rules:
          - name: nas
            server: nas1.example.com
            transport: require-rdma

- name: Load the policy that is on the host
  ovirt_rdma.host.policy:
"""

RETURN = r"""
digest:
  description: The digest of the policy.
  returned: success
  type: str
  sample: sha256:5c7b
file_digest:
  description: The digest of the policy without the drop-ins of the host.
  returned: success, not in check mode
  type: str
  sample: sha256:5c7b
text:
  description: The text of the policy.
  returned: success
  type: str
backup_file:
  description: The backup of the file that was replaced.
  returned: if there is one
  type: str
attention:
  description: Warnings about the policy, and the mounted exports that lose their rule.
  returned: success
  type: list
  elements: str
"""

import os
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ovirt_rdma.host.plugins.module_utils.host_command import (
    Failed,
    HostCommand,
    carry_out,
    one_line,
)

_MISTAKES_SHOWN = 3


class _PolicyFile:
    """The policy file of the host: its content before, and its replacement."""

    def __init__(self, module):
        self._module = module
        self.path = Path(module.params["path"])
        self.backup_file = None
        try:
            self.before = self.path.read_bytes()
        except FileNotFoundError:
            self.before = None
        except OSError as error:
            raise self._failed("read", error) from error

    def _failed(self, verb, error):
        return Failed(
            f"{self.path} cannot be {verb}: {error.strerror}",
            "look at its folder, the file system and the space on it",
            "policy-file",
        )

    def replace(self, data):
        """Make the backup and replace the file; raise Failed and leave it otherwise."""
        if self.before is not None and self._module.params["backup"]:
            # It fails by itself, with a sentence.
            self.backup_file = self._module.backup_local(str(self.path))
        self._write(data)

    def _write(self, data):
        temporary = None
        try:
            self.path.parent.mkdir(mode=0o755, exist_ok=True)
            handle, temporary = tempfile.mkstemp(
                dir=self.path.parent, prefix=".policy.yaml."
            )
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), 0o644)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).rename(self.path)
        except OSError as error:
            if temporary is not None:
                Path(temporary).unlink()
            raise self._failed("written", error) from error
        self._module.set_default_selinux_context(str(self.path), False)

    def restore(self):
        """Put the earlier content back, and remove the backup."""
        if self.before is None:
            self.path.unlink()
        else:
            self._write(self.before)
        if self.backup_file:
            Path(self.backup_file).unlink()


def _warnings(command, path, shown):
    """Return the warnings about the policy in ``path``; raise Failed if it is invalid.

    ``shown`` names it in the sentence.
    """
    code, document = command.run("policy", "check", str(path), also=(3,))
    if code == 0:
        return [_remark(one) for one in document["warnings"]]
    mistakes = [_remark(one) for one in document["errors"]]
    first = "; ".join(mistakes[:_MISTAKES_SHOWN])
    more = len(mistakes) - _MISTAKES_SHOWN
    raise Failed(
        f"{shown} is invalid: {first}" + (f"; and {more} more" if more > 0 else ""),
        "correct it, and validate it with ovirt-rdma-host policy check FILE",
        "policy-invalid",
        mistakes=mistakes,
    )


def _remark(one):
    # The draft's folder is Ansible's.
    *folders, name = one["file"].split("/")
    file = f"policy.d/{name}: " if folders[-1:] == ["policy.d"] else ""
    line = f"line {one['line']}: " if one["line"] is not None else ""
    key = f"{one['key']}: " if one["key"] else ""
    return one_line(f"{file}{line}{key}{one['sentence']}")


def _place_and_load(module):
    command, file = HostCommand(module), _PolicyFile(module)
    content, path = module.params["content"], str(file.path)
    after = file.before if content is None else content.encode("utf-8")
    replaced = after != file.before
    draft = file.path
    if replaced:
        folder = Path(tempfile.mkdtemp(dir=module.tmpdir))  # Ansible removes its folder
        # A link: what the command takes for a drop-in, and refuses, is its own matter.
        (folder / "policy.d").symlink_to(file.path.parent.absolute() / "policy.d")
        draft = folder / "policy.yaml"
        draft.write_bytes(after)
    shown = path if content is None else module.params["src"] or "the policy"
    attention = _warnings(command, draft, shown)
    before, text = (
        (data or b"").decode("utf-8", "replace") for data in (file.before, after)
    )
    diff = {"before_header": path, "after_header": path}
    result = {"text": text, "diff": {**diff, "before": before, "after": text}}
    if module.check_mode:
        document = command.run("policy", "load", str(draft), "--dry-run")[1]
        return {
            **result,
            "changed": replaced or document["changed"],
            "digest": document["digest"],
            "attention": attention + document["doubts"],
        }
    if replaced:
        file.replace(after)
    try:
        document = command.run("policy", "load", path, "-y")[1]
    except Failed as failed:
        if replaced:
            file.restore()
            failed.what += f"; the earlier {path} was restored"
        raise
    if file.backup_file:
        result["backup_file"] = file.backup_file
    return {
        **result,
        "changed": replaced or document["changed"],
        "digest": document["digest"],
        "file_digest": document["file_digest"],
        "attention": attention + document["notes"] + document["doubts"],
    }


def main():
    """Run the module."""
    module = AnsibleModule(
        {
            "src": {"type": "path"},
            "content": {"type": "raw"},
            "path": {"type": "path", "default": "/etc/ovirt-rdma/policy.yaml"},
            "backup": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    carry_out(module, _place_and_load)


if __name__ == "__main__":
    main()
