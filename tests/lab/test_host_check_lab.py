# SPDX-License-Identifier: GPL-2.0-or-later
"""Test ``check``, ``plan`` and ``explain`` for a new user.

They run in a guest without any RDMA device, in one with an unprepared ``ib0``, and on
this machine.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest

from lab.command import Result
from lab.guest import Guest
from lab.infiniband import InfiniBand, PciFunction
from ovirt_rdma.host.rules.registry import RULES

COMMAND = [sys.executable, "-m", "ovirt_rdma.cli.host.main"]
# The first ConnectX with a driver that nevertheless offers TSO, as old ones do.
CONNECTX_A0 = InfiniBand(hcas=1, pci=PciFunction(driver="mlx4_core"))
POLICY = "/etc/ovirt-rdma/policy.yaml"


@pytest.fixture(scope="module")
def unprepared(guest: Guest) -> Guest:
    CONNECTX_A0.load(guest)
    return guest


def run(guest: Guest, line: str) -> Result:
    """Run a line that begins with the command's name."""
    program, *words = shlex.split(line)
    assert program == "ovirt-rdma-host"
    result = guest.run([*COMMAND, *words], cwd="/tmp")
    assert result.stderr == "", line
    return result


def following(result: Result) -> str:
    """Return the command at the end of a result."""
    match = re.search(r"^next: (.*)$", result.stdout, re.MULTILINE)
    assert match, result.stdout
    return match[1]


def rows(result: Result, verdict: str) -> list[tuple[str, str]]:
    """Return rule and subject of each finding with that verdict."""
    found = re.findall(rf"^{verdict}\s+(\S+)\s+(\S+)", result.stdout, re.MULTILINE)
    return [(rule, subject) for rule, subject in found]


# Before there is a fabric.
def test_a_guest_without_rdma_device(guest: Guest) -> None:
    checked = run(guest, "ovirt-rdma-host check")
    assert checked.exit_code == 3, checked.stdout
    assert run(guest, "ovirt-rdma-host check --allow-none").exit_code == 0
    assert "hypervisor has no RDMA device" in checked.stdout
    assert rows(checked, "FAIL") == rows(checked, "WARN") == []
    planned = run(guest, "ovirt-rdma-host plan --diff --exit-code")
    assert planned.exit_code == 0
    assert planned.stdout.startswith("Nothing to change on hypervisor")
    shown = run(guest, "ovirt-rdma-host facts")
    assert (shown.exit_code, "RDMA ports: none" in shown.stdout) == (0, True)


@pytest.mark.faults
def test_doing_what_it_says_until_all_is_well(unprepared: Guest) -> None:
    guest = unprepared
    checked = run(guest, "ovirt-rdma-host check")
    assert checked.exit_code == 3
    assert rows(checked, "FAIL") == [("IPOIB-TSO-01", "ib0")]
    explained = run(guest, following(checked))
    assert explained.exit_code == 0
    assert explained.stdout.startswith("IPOIB-TSO-01: ")
    # The command of the hint is run unchanged.
    (pasted,) = re.findall(r"fix: policy\.yaml, host: (.*)", checked.stdout)
    write = f"mkdir -p /etc/ovirt-rdma && cat > {POLICY}"
    guest.run(write, input=f"version: 1\nhost:\n  {pasted}\n", check=True)
    assert run(guest, "ovirt-rdma-host policy load").exit_code == 0
    checked = run(guest, "ovirt-rdma-host check")
    assert checked.exit_code == 3
    assert rows(checked, "FAIL") == [("IPOIB-TSO-01", "ib0")]
    planned = run(guest, following(checked))
    assert planned.stdout.startswith("IPOIB-TSO-01/ib0  live\n")
    saving = "ovirt-rdma-host plan --diff --exit-code --out hv1-plan.json"
    saved = run(guest, saving)
    assert saved.exit_code == 3
    assert "tx-tcp-segmentation of ib0: on -> off" in saved.stdout
    # Nothing was changed so far.
    assert "tx-tcp-segmentation: on" in guest.run("ethtool -k ib0").stdout
    applying = following(saved)
    assert applying == "ovirt-rdma-host apply hv1-plan.json"
    assert run(guest, applying).exit_code == 0
    assert "tx-tcp-segmentation: off" in guest.run("ethtool -k ib0").stdout
    checked = run(guest, "ovirt-rdma-host check")
    assert (checked.exit_code, rows(checked, "FAIL")) == (0, [])
    assert run(guest, "ovirt-rdma-host plan --exit-code").exit_code == 0


@pytest.mark.faults
def test_a_dump_of_the_guest_is_as_good_as_the_guest(unprepared: Guest) -> None:
    dump = run(unprepared, "ovirt-rdma-host facts -o json").stdout
    unprepared.run("cat > /tmp/hv1.json", input=dump, check=True)
    live = json.loads(run(unprepared, "ovirt-rdma-host check -o json").stdout)
    words = "ovirt-rdma-host check --facts /tmp/hv1.json -o json"
    from_dump = json.loads(run(unprepared, words).stdout)
    assert from_dump["findings"] == live["findings"]
    assert {found["rule"] for found in live["findings"]} == {rule.id for rule in RULES}


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        (["facts"], {0}),
        (["check"], {0, 3}),
        (["check", "--all", "-o", "json"], {0, 3}),
        (["plan", "--diff"], {0}),
        (["plan", "--exit-code"], {0, 3}),
        (["explain", "--list"], {0}),
        (["explain", "IPOIB-NONE-01"], {2}),
    ],
)
def test_on_this_machine(words: list[str], codes: set[int]) -> None:
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode in codes
    assert "Traceback" not in done.stderr
    # Either a result or a message, never parts of both; notes name what was not read.
    said = [line for line in done.stderr.splitlines() if not line.startswith("note: ")]
    assert bool(done.stdout) != bool(said)
