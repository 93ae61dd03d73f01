# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or any later version, v3.0 included
"""Make the policy's text on the control machine; the module policy does the rest."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from ansible.plugins.action import ActionBase
from ansible_collections.ovirt_rdma.host.plugins.module_utils.host_command import (
    sentence,
)


def _read(path):
    """Return the text of a file, byte for byte, or the texts of a folder by name."""
    if not path.is_dir():
        return path.read_bytes().decode("utf-8")
    file, drop_ins = path / "policy.yaml", path / "policy.d"
    found = sorted(drop_ins.glob("[0-9][0-9]-*.yaml"))
    return {
        "policy.yaml": _read(file) if file.exists() else None,
        "policy.d": {p.name: _read(p) for p in found} if drop_ins.is_dir() else None,
    }


class ActionModule(ActionBase):
    """The action ovirt_rdma.host.policy."""

    def run(self, tmp=None, task_vars=None):
        """Return the result of the module."""
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        content = arguments.get("content")
        if content is not None:
            arguments.pop("src", None)
            if not isinstance(content, str):
                # Of plain types: Ansible's own ones cannot be dumped.
                plain = json.loads(json.dumps(content, default=str))
                arguments["content"] = yaml.safe_dump(plain, sort_keys=False)
        elif arguments.get("src"):
            try:
                arguments["content"] = _read(Path(arguments["src"]))
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "it is not UTF-8"
                message = sentence(
                    f"the policy {arguments['src']} of the control machine cannot be "
                    f"read: {reason}",
                    "let the user who runs Ansible read it (the engine's is ovirt)",
                )
                return {**result, "failed": True, "msg": message}
        result.update(
            self._execute_module(
                module_name="ovirt_rdma.host.policy",
                module_args=arguments,
                task_vars=task_vars,
            )
        )
        return result
