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
  - If the policy cannot be loaded, the earlier files are restored, and the policy that
    was loaded stays in force.
options:
  src:
    description:
      - The policy file on the control machine, or a folder with C(policy.yaml) and
        C(policy.d). The drop-ins in it replace all of the host's, if it has
        C(policy.d); without C(policy.yaml) in it, that of the host is removed.
      - Without O(src) and O(content) the host's own file is loaded.
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
      - Whether to keep the files that are replaced, with the time in their names.
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
import signal
import tempfile
import time
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.ovirt_rdma.host.plugins.module_utils.host_command import (
    Failed,
    HostCommand,
    carry_out,
    one_line,
)

_MISTAKES_SHOWN = 3
# No command of the policy needs so long.
_LIMIT_S = 60


class _Files:
    """The policy.yaml of the host, its drop-ins, and what replaces them.

    ``content`` is None for nothing, a text for policy.yaml, or what the action plugin
    has read in a folder.
    """

    def __init__(self, module, content):
        self._module, self._exchanged = module, {}
        self.path = Path(module.params["path"])
        self._folder = self.path.parent / "policy.d"
        self.before, self.backups = self._read(self.path), {}
        whole = isinstance(content, dict)
        text = content["policy.yaml"] if whole else content
        self._drop_ins = content["policy.d"] if whole else None
        # Only a file can be loaded: an empty one is removed after it.
        self.removed = whole and text is None
        self.after = self.before if content is None else (text or "").encode("utf-8")
        new = {} if content is None else {self.path: self.after}
        if self._drop_ins is not None:
            for name, drop_in in self._drop_ins.items():
                new[self._folder / name] = drop_in.encode("utf-8")
            for path in sorted(self._folder.glob("[0-9][0-9]-*.yaml")):
                new.setdefault(path)
        self._new = {
            path: data
            for path, data in new.items()
            if data is None or self._read(path) != data
        }
        last = None if self.removed else self.after
        self.changed = last != self.before or bool(self._new.keys() - {self.path})

    def _failed(self, path, verb, error):
        return Failed(
            f"{path} cannot be {verb}: {error.strerror}",
            "look at its folder, the file system and the space on it",
            "policy-file",
        )

    def _read(self, path):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._failed(path, "read", error) from error

    def draft(self):
        """Write the files as they will be where nothing reads; return policy.yaml."""
        if not self._new:
            return self.path
        # Ansible removes its folder.
        folder = Path(tempfile.mkdtemp(dir=self._module.tmpdir))
        (folder / "policy.yaml").write_bytes(self.after)
        if self._drop_ins is None:
            # A link: what the command takes for a drop-in, and refuses, is its matter.
            (folder / "policy.d").symlink_to(self._folder.absolute())
        else:
            (folder / "policy.d").mkdir()
            for name, text in self._drop_ins.items():
                (folder / "policy.d" / name).write_text(text, "utf-8")
        return folder / "policy.yaml"

    def replace(self):
        """Replace the files; raise Failed and leave them otherwise.

        One after the other, the new ones first: whenever this is cut off, each file is
        complete, none is missing, and the earlier ones are beside them.
        """
        if not self._new:
            return
        # From here to the end of the load, the files and the loaded policy differ.
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        os.umask(0o022)
        path = self.path
        try:
            for path, data in self._new.items():
                self._exchange(path, data)
            for folder in {path.parent for path in self._new}:
                handle = os.open(folder, os.O_RDONLY)
                os.fsync(handle)
                os.close(handle)
        except OSError as error:
            self.restore()
            raise self._failed(path, "written", error) from error

    def _exchange(self, path, data):
        path.parent.mkdir(mode=0o755, exist_ok=True)
        old, new = self._beside(path)
        there = os.path.lexists(path)
        if there:
            os.link(path, old, follow_symlinks=False)
        self._exchanged[path] = there
        if data is None:
            path.unlink()
            return
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
        self._module.set_default_selinux_context(str(path), False)

    def _beside(self, path):
        """Return names for the earlier and the new file, which nothing reads."""
        name = f".{path.name}.{os.getpid()}"
        return path.with_name(f"{name}.old"), path.with_name(f"{name}.new")

    def restore(self):
        """Put the earlier files back; return how that went, "" if there is nothing."""
        try:
            for path, there in self._exchanged.items():
                old, new = self._beside(path)
                if there:
                    old.replace(path)
                    old.unlink(missing_ok=True)  # still the same file as path
                new.unlink(missing_ok=True)
            for path, there in self._exchanged.items():
                if not there:
                    path.unlink(missing_ok=True)
        except OSError:
            return "could not be"
        return "was" if self._exchanged else ""

    def finish(self):
        """Make the backup, and remove what was there only to be loaded."""
        end = time.strftime(f"{os.getpid()}.%Y-%m-%d@%H:%M:%S~")  # as Ansible's backups
        path = self.path
        try:
            for path in (path for path, there in self._exchanged.items() if there):
                old = self._beside(path)[0]
                if self._module.params["backup"]:
                    self.backups[path] = old.rename(
                        path.with_name(f"{path.name}.{end}")
                    )
                else:
                    old.unlink()
            if self.removed:
                self.path.unlink()
        except OSError as error:
            raise self._failed(path, "removed", error) from error


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
    content = module.params["content"]
    command, files = HostCommand(module, limit_s=_LIMIT_S), _Files(module, content)
    draft, path = files.draft(), str(files.path)
    src = module.params["src"] if isinstance(content, str) else None
    shown = path if content is None else src or "the policy"
    attention = _warnings(command, draft, shown)
    before, text = (
        (data or b"").decode("utf-8", "replace") for data in (files.before, files.after)
    )
    result = {"text": text}
    if module._diff:
        headers = {"before_header": path, "after_header": path}
        result["diff"] = {**headers, "before": before, "after": text}
    if module.check_mode:
        document = command.run("policy", "load", str(draft), "--dry-run")[1]
        return {
            **result,
            "changed": files.changed or document["changed"],
            "digest": document["digest"],
            "attention": attention + document["doubts"],
        }
    files.replace()
    try:
        document = command.run("policy", "load", path, "-y")[1]
    except BaseException as error:
        restored = files.restore()
        if restored and isinstance(error, Failed):
            error.what += f"; the earlier {path} {restored} restored"
        raise
    files.finish()
    digest = document["digest"]
    has = command.run("status", also=(3,))[1]["policy"]["digest"]
    if has != digest:
        raise Failed(
            f"the policy in force is not the one just loaded: {has}, not {digest}",
            "somebody else has loaded a policy at the same time; load it again",
            "policy-overwritten",
        )
    if files.path in files.backups:
        result["backup_file"] = str(files.backups[files.path])
    return {
        **result,
        "changed": files.changed or document["changed"],
        "digest": digest,
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
