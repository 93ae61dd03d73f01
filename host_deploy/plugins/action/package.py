# SPDX-License-Identifier: GPL-2.0-or-later
# GNU General Public License v2.0 or any later version, v3.0 included
"""Install or remove packages with dnf; report a failure as one sentence with a fix."""

from __future__ import annotations

from pathlib import Path

from ansible.plugins.action import ActionBase
from ansible_collections.ovirt_rdma.host.plugins.module_utils.host_command import (
    sentence,
)

_ARGUMENTS = {
    "name": {"type": "list", "elements": "str", "default": ["ovirt-rdma-host"]},
    "files": {"type": "list", "elements": "path", "default": []},
    "state": {"choices": ["present", "latest", "absent"], "default": "present"},
    "disable_gpg_check": {"type": "bool", "default": False},
}
# What dnf, libdnf and Ansible's dnf.py print, and what helps.
_FIXES = (
    (
        ("No package ", "Unable to find a match", "There are no enabled repo"),
        "enable the repository of ovirt-rdma on the host, or install from RPM files",
    ),
    (("more space needed", "No space left"), "free space on the host's file system"),
    (("lock",), "wait until the other dnf on the host has ended"),
    (("is not signed",), "install signed packages, or set disable_gpg_check"),
    (("GPG",), "import the key of the repository with rpm --import"),
    (
        ("nothing provides",),
        "enable the repositories of the host that have it, such as AppStream",
    ),
    (("Could not import the dnf", "No module named dnf"), "install python3-dnf"),
)
_FIX = "run it on the host, and read what it prints: dnf {} ovirt-rdma-host"


def failure(names, result, *, remove=False):
    """Return the sentence about a failed result of dnf.py."""
    failures = result.get("failures") or []
    reason = "; ".join(map(str, failures)) or str(result.get("msg") or "unknown")
    what = "cannot be removed" if remove else "cannot be installed"
    fixes = (fix for words, fix in _FIXES if any(word in reason for word in words))
    fix = next(fixes, _FIX.format("remove" if remove else "install"))
    return sentence(f"{', '.join(names)} {what}: {reason}", fix)


class ActionModule(ActionBase):
    """The action ovirt_rdma.host.package."""

    TRANSFERS_FILES = True

    def run(self, tmp=None, task_vars=None):
        """Return the result of dnf, with one sentence if it failed."""
        result = super().run(tmp, task_vars)
        params = self.validate_argument_spec(_ARGUMENTS)[1]
        names = params["name"]
        try:
            if params["files"]:
                missing = [path for path in params["files"] if not Path(path).is_file()]
                if missing:
                    what = f"there is no file {missing[0]} on the control machine"
                    return {**result, "failed": True, "msg": sentence(what)}
                names = [self._copied(path) for path in params["files"]]
            ran = self._execute_module(
                # The host's own dnf.py of this name, if an administrator has one.
                module_name="ansible.legacy.dnf",
                module_args={
                    "name": names,
                    "state": params["state"],
                    "disable_gpg_check": params["disable_gpg_check"],
                },
                task_vars=task_vars,
            )
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)
        result.update(ran)
        if result.get("failed"):
            shown = [Path(name).name for name in names]
            remove = params["state"] == "absent"
            result["msg"] = failure(shown, ran, remove=remove)
            result["dnf"] = {key: ran.get(key) for key in ("msg", "failures", "rc")}
            for loud in ("exception", "module_stderr", "module_stdout", "failures"):
                result.pop(loud, None)
        return result

    def _copied(self, path):
        """Copy a file of the control machine to the host; return where it is there."""
        shell = self._connection._shell
        if shell.tmpdir is None:
            self._make_tmp_path()
        place = shell.join_path(shell.tmpdir, Path(path).name)
        self._transfer_file(path, place)
        return place
