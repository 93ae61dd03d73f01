# SPDX-License-Identifier: GPL-2.0-or-later
"""Run hooks as VDSM's common/hooks.py does: environment, data file, exit codes.

It is stricter than VDSM: a hook that VDSM would warn about fails the test.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from vdsm.common import exception

P_VDSM_HOOKS = "/usr/libexec/vdsm/hooks"
HOOKING = "/usr/lib/python3/site-packages/vdsm/hook"


def _scripts(point: str) -> Sequence[str]:
    found = Path(P_VDSM_HOOKS, point).glob("*")
    return sorted(str(s) for s in found if s.is_file() and os.access(s, os.X_OK))


def _run(data: Optional[str], point: str, variable: str, raise_error: bool) -> str:
    errors = []
    descriptor, name = tempfile.mkstemp()
    try:
        os.write(descriptor, (data or "").encode("utf-8"))
        os.close(descriptor)
        environment = dict(os.environ)
        path = environment.get("PYTHONPATH", "")
        environment["PYTHONPATH"] = f"{path}:{HOOKING}"
        environment[variable] = name
        for script in _scripts(point):
            any_cpu = f"0-{os.sysconf('SC_NPROCESSORS_CONF') - 1}"
            process = subprocess.Popen(
                ["/usr/bin/taskset", "--cpu-list", any_cpu, script],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
            )
            out, err = process.communicate()
            code = process.returncode
            logging.info("%s: rc=%s err=%s", script, code, err)
            # VDSM discards stdout, and warns about other codes.
            assert out == b"", f"{script} wrote to stdout: {out!r}"
            assert code in (0, 1, 2), f"{script}: unexpected return code {code}"
            if code:
                errors.append(err)
            if code == 2:
                break
        if errors and raise_error:
            raise exception.HookError(err)
        return Path(name).read_text(encoding="utf-8")
    finally:
        Path(name).unlink()


def _run_json(data: Any, point: str, raise_error: bool) -> Any:
    if not _scripts(point):
        return data
    text = _run(json.dumps(data), point, "_hook_json", raise_error)
    return json.loads(text)


def before_vdsm_start() -> Optional[str]:
    if not _scripts("before_vdsm_start"):
        return None
    return _run(None, "before_vdsm_start", "_hook_domxml", raise_error=False)


def before_network_setup(network_config_dict: Any) -> Any:
    return _run_json(network_config_dict, "before_network_setup", raise_error=True)


def after_network_setup(network_config_dict: Any) -> Any:
    return _run_json(network_config_dict, "after_network_setup", raise_error=False)


def after_get_caps(caps: Any) -> Any:
    return _run_json(caps, "after_get_caps", raise_error=False)
