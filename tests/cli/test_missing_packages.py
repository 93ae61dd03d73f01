# SPDX-License-Identifier: GPL-2.0-or-later
"""A Python package that is not installed is one sentence, where it is needed only."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.hypervisor

POLICY = str(Path(__file__).parents[2] / "docs/policy.yaml")
PROGRAM = """
import json, sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
from ovirt_rdma.cli.{room}.main import main
for words in json.loads(sys.argv[2]):
    code = main(words)
sys.exit(code)
"""


def run(room: str, missing: str, *lines: list[str]) -> tuple[int, str, str]:
    """Run the command lines in one process without the packages ``missing``."""
    program = PROGRAM.format(room=room)
    done = subprocess.run(
        [sys.executable, "-c", program, missing, json.dumps(lines)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("room", "missing", "words", "package"),
    [
        ("host", "yaml", ["policy", "check", POLICY], "python3-pyyaml"),
        ("engine", "ovirtsdk4", ["hosts", "list"], "python3-ovirt-engine-sdk4"),
        ("engine", "pycurl", ["hosts", "list"], "python3-pycurl"),
        ("engine", "jinja2", ["report", "/tmp/fabric.html"], "python3-jinja2"),
    ],
)
def test_the_package_is_named(room, missing, words, package):
    program = {"host": "ovirt-rdma-host", "engine": "ovirt-rdma"}[room]
    code, out, err = run(room, missing, words)
    assert (code, out) == (1, "")
    sentence, fix = err.splitlines()
    assert (
        sentence
        == f"{program}: {package} is not installed; {program} needs it for this"
    )
    assert fix.startswith(f"fix: dnf install {package}, or pip install ")


def test_a_yaml_document_without_pyyaml_is_json(tmp_path):
    code, out, _ = run(
        "host", "yaml", ["status", "-o", "yaml", "--root", str(tmp_path)]
    )
    assert code == 0
    assert json.loads(out)["kind"] == "status"


def test_a_hypervisor_works_without_it(tmp_path):
    """With the policy that was loaded: no verb or unit but policy's reads YAML."""
    root = ["--root", str(tmp_path)]
    verbs = (["check"], ["plan"], ["status"], ["daemon", "status"], ["unit", "block"])
    code, _, err = run("host", "yaml", *([*verb, *root] for verb in verbs))
    assert code == 0
    assert "bug" not in err
    assert "not installed" not in err


def test_another_missing_module_is_a_bug_of_ours():
    code, _, err = run("host", "ovirt_rdma.cli.host.status", ["status"])
    assert code == 1
    assert "this is a bug, please report it: ModuleNotFoundError" in err
