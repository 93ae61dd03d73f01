# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``ansible-test sanity`` over the collection, with the environment's Ansible.

OVIRT_RDMA_TEST_ANSIBLE names the folder of another one. ansible-test makes virtual
environments for its linters, from the package index; .cache keeps them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
# In the place of the script that ansible-test would download to have pip: Python has
# pip with it. The two options are that script's own.
_PIP = """\
import subprocess, sys
words = [w for w in sys.argv[1:] if w not in ("--no-setuptools", "--no-wheel")]
for call in (["ensurepip", "--default-pip"], ["pip", "install", *words]):
    subprocess.run([sys.executable, "-m", *call], check=True)
"""


def bootstrap_script(home: Path, programs: Path) -> Path:
    """Return where ansible-test looks for the script that installs pip."""
    (found,) = programs.parent.glob(
        "lib/python3*/site-packages/ansible_test/_internal/python_requirements.py"
    )
    version = re.search(
        r"default_packages.*\s+pip='([\d.]+)'", found.read_text("utf-8")
    )
    name = version[1].replace(".", "_")
    return home / f".ansible/test/cache/get_pip_{name}.py"


@pytest.mark.selftest
def test_ansible_test_finds_nothing(tmp_path):
    programs = Path(
        os.environ.get("OVIRT_RDMA_TEST_ANSIBLE", sysconfig.get_path("scripts"))
    )
    home = TOP / ".cache/ansible-test"
    script = bootstrap_script(home, programs)
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(_PIP)
    # The user's settings of pip, because HOME is another one.
    settings = home / ".config/pip"
    settings.parent.mkdir(exist_ok=True)
    settings.unlink(missing_ok=True)
    settings.symlink_to(Path.home() / ".config/pip")
    place = tmp_path / "ansible_collections/ovirt_rdma/host"
    shutil.copytree(
        TOP / "host_deploy", place, ignore=shutil.ignore_patterns("__pycache__")
    )
    # It looks at the files that git lists.
    for words in (("init", "-q"), ("add", "-A")):
        subprocess.run(["git", *words], cwd=place, check=True)
    (site,) = programs.parent.glob("lib/python3*")
    python = site.name.removeprefix("python")
    done = subprocess.run(
        [
            *(str(programs / "ansible-test"), "sanity", "--color", "no"),
            *("--requirements", "--python", python),
        ],
        cwd=place,
        env={
            **os.environ,
            "HOME": str(home),
            "PATH": f"{programs}:{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert 'Running sanity test "validate-modules"' in done.stdout
