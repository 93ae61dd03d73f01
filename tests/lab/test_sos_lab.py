# SPDX-License-Identifier: GPL-2.0-or-later
"""The plugin of sos works in Debian's sos report, on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from lab.cache import cache_folder
from lab.packages import fetched

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="sos report needs root")

TOP = Path(__file__).resolve().parents[2]
LIMIT_S = 600
# sos runs commands with a search path of its own: add that of our command.
PROGRAM = """
import sys
from sos import SoS
from sos.policies.debian import DebianPolicy
DebianPolicy.PATH += ":" + sys.argv.pop(1)
SoS(sys.argv[1:]).execute()
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> dict[str, bytes]:
    """Return the files of a report that has only our plugin."""
    top = tmp_path_factory.mktemp("sos")
    package = fetched(cache_folder(), "sosreport") / "usr/lib/python3/dist-packages"
    shutil.copytree(package / "sos", top / "python/sos")
    plugins = top / "python/sos/report/plugins"
    shutil.copy(TOP / "sos_plugin/ovirt_rdma.py", plugins)
    words = ["report", "--batch", "--only-plugins", "ovirt_rdma", "-z", "gzip"]
    program = [sys.executable, "-c", PROGRAM, str(Path(sys.executable).parent)]
    done = subprocess.run(
        [*program, *words, "--tmp-dir", str(top)],
        env={**os.environ, "PYTHONPATH": str(top / "python")},
        cwd=top,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = top.glob("sosreport-*.tar.gz")
    with tarfile.open(archive) as tar:
        return {
            member.name.partition("/")[2]: tar.extractfile(member).read()
            for member in tar.getmembers()
            if member.isfile()
        }


def test_each_verb_and_tool_is_collected(report):
    commands = {Path(name).name for name in report if "sos_commands/" in name}
    read = ("facts", "status", "check", "plan", "policy_show", "nfs_list_-v")
    verbs = {f"ovirt-rdma-host_{verb}_-o_json" for verb in read}
    assert verbs | {"ovirt-rdma-host_history_-v"} <= commands
    logs = ("units", "launcher-and-hooks", "kernel")
    assert {"units", "vdsmd-unit", *(f"journal-of-{log}" for log in logs)} <= commands
    facts = report["sos_commands/ovirt_rdma/ovirt-rdma-host_facts_-o_json"]
    assert json.loads(facts)["kind"] == "facts"


def test_mounts_are_collected(report):
    assert any(name.endswith("/mountstats") for name in report)
    assert any(name.endswith("/mountinfo") for name in report)
