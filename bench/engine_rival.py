# SPDX-License-Identifier: GPL-2.0-or-later
"""Install and run the rival of :mod:`bench.engine_fleet`: the collection ovirt.ovirt.

It comes with PyPI's ``ansible``, in its own virtual environment below .cache. 12.3.0 is
the newest ``ansible`` that runs on Python 3.11.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.rounds import CHECKOUT, BenchmarkFailed

PLAYBOOK = CHECKOUT / "bench/engine_rival.yml"
VENV = CHECKOUT / ".cache/engine-rival"
ANSIBLE, CORE, SDK = "ansible==12.3.0", "ansible-core==2.19.14", "4.6.3"
_REQUIREMENTS = (ANSIBLE, CORE, f"ovirt-engine-sdk-python=={SDK}")
_MANIFEST = "lib/python*/site-packages/ansible_collections/ovirt/ovirt/MANIFEST.json"
# Much more than it takes.
_TIMEOUT_S = 3600


class NotInstalled(Exception):
    """The rival could not be installed; the text is a sentence."""


def install(venv: Path = VENV) -> None:
    """Install the rival once: 600 MB, a minute or two. Raises NotInstalled."""
    wanted = "\n".join(_REQUIREMENTS)
    done = venv / "installed.txt"
    if done.is_file() and done.read_text(encoding="ascii") == wanted:
        return
    print("  installing ansible into .cache, once", flush=True)
    pip = [str(venv / "bin/pip"), "install", "--quiet", *_REQUIREMENTS]
    for command in ([sys.executable, "-m", "venv", "--clear", str(venv)], pip):
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            error = (ended.stderr.strip() or "no error message").splitlines()[-1]
            raise NotInstalled(f"{ANSIBLE} cannot be installed: {error}")
    done.write_text(wanted, encoding="ascii")


def collection_version(venv: Path = VENV) -> str:
    """Return the version of ovirt.ovirt that is installed."""
    (manifest,) = venv.glob(_MANIFEST)
    data = json.loads(manifest.read_bytes())
    return str(data["collection_info"]["version"])


def play(hosts: int, environment: Mapping[str, str], folder: Path) -> None:
    """Read the engine that ``environment`` names, with ``hosts`` hosts.

    Ansible writes its own files to ``folder``. Raises BenchmarkFailed.
    """
    settings = folder / "ansible.cfg"
    settings.touch()
    ended = subprocess.run(
        [
            str(VENV / "bin/ansible-playbook"),
            *("--extra-vars", f"expected_hosts={hosts}"),
            str(PLAYBOOK),
        ],
        # Only Ansible's default settings and no inventory: localhost is then the Python
        # that runs Ansible itself.
        cwd=folder,
        env={
            **os.environ,
            **environment,
            "ANSIBLE_HOME": str(folder),
            "ANSIBLE_CONFIG": str(settings),
        },
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if ended.returncode:
        raise BenchmarkFailed(f"{PLAYBOOK.name} failed:\n{ended.stdout}{ended.stderr}")
