# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the collection's module ``policy`` as Ansible does, without Ansible: in a process
of its own, whose stdin has the parameters and whose stdout gets the result.

``OVIRT_RDMA_TEST_SPOIL`` names a function of this file, and its argument.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any
from unittest import mock

PLUGINS = Path(__file__).resolve().parents[3] / "host_deploy" / "plugins"
_OURS = "ansible_collections.ovirt_rdma.host.plugins.module_utils.host_command"
# What changes a folder.
_CHANGES = ("os.rename", "os.remove", "os.link")


def load(path: Path, name: str) -> Any:
    """Import the file ``path``."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class AnsibleModule:
    """What the module needs of Ansible's class."""

    check_mode = _diff = False

    def __init__(self, spec: dict[str, dict[str, Any]], **_: Any) -> None:
        given = json.load(sys.stdin)
        assert given.keys() <= spec.keys()
        self.params = {n: given.get(n, o.get("default")) for n, o in spec.items()}
        self.tmpdir = os.environ["TMPDIR"]

    def get_bin_path(self, name: str, opt_dirs: Any = ()) -> Any:
        return shutil.which(name)

    def run_command(self, argv: Any, **_: Any) -> tuple[int, str, str]:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def set_default_selinux_context(self, path: str, changed: bool) -> None:
        assert Path(path).is_file()

    def exit_json(self, **result: Any) -> None:
        print(json.dumps(result), flush=True)
        raise SystemExit(0)

    def fail_json(self, msg: str, **result: Any) -> None:
        print(json.dumps({"failed": True, "msg": msg, **result}), flush=True)
        raise SystemExit(1)


def load_action() -> Any:
    """Import the action plugin, which reads on the control machine."""
    with mock.patch.dict(sys.modules):  # the real Ansible stays importable
        _stand_in("ansible.plugins.action", ActionBase=object)
        load(PLUGINS / "module_utils" / "host_command.py", _OURS)
        return load(PLUGINS / "action" / "policy.py", "policy_action")


def _stand_in(name: str, **content: Any) -> None:
    sys.modules.setdefault("ansible", types.ModuleType("ansible"))
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(content)


class Clock:
    """The module ``time``: sleeping is a program, and takes no time but here."""

    def __init__(self) -> None:
        self._slept = 0.0

    def time(self) -> float:
        return time.time() + self._slept

    def sleep(self, seconds: float) -> None:
        subprocess.run(["sleep", str(seconds)], check=True)
        self._slept += seconds


def limit(policy: Any, seconds: str) -> None:
    """Let no command take longer."""
    policy._LIMIT_S = float(seconds)


def seen(policy: Any, file: str) -> None:
    """Write the drop-ins that are there to ``file``: a line before each change."""
    folder = Path(os.environ["POLICY"]).parent / "policy.d"
    lines = Path(file).open("w")  # noqa: SIM115

    def look(event: str, _: Any) -> None:
        if event in _CHANGES:
            print(*sorted(p.name for p in folder.glob("[!.]*")), file=lines, flush=True)

    sys.addaudithook(look)


def killed(policy: Any, number: str) -> None:
    """Be killed before the change of this ``number``."""
    left = int(number)

    def count(event: str, _: Any) -> None:
        nonlocal left
        left -= event in _CHANGES
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


if __name__ == "__main__":
    _stand_in("ansible.module_utils")
    _stand_in("ansible.module_utils.basic", AnsibleModule=AnsibleModule)
    host_command = load(PLUGINS / "module_utils" / "host_command.py", _OURS)
    host_command.time = Clock()
    module = load(PLUGINS / "modules" / "policy.py", "policy_module")
    if spoil := os.environ.get("OVIRT_RDMA_TEST_SPOIL"):
        function, _, word = spoil.partition(" ")
        globals()[function](module, word)
    module.main()
