# SPDX-License-Identifier: GPL-2.0-or-later
"""A policy is pushed with the real Ansible and the module of our collection; ssh is a
double that runs commands here, and ovirt-rdma-host one that knows what the module asks.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path

import pytest
from support.engine.policy_module import PLUGINS
from test_push_over_ansible import COMMAND

from ovirt_rdma.engine_sdk_tools.hosts.ansible import AnsibleHosts
from ovirt_rdma.engine_sdk_tools.model import Host
from ovirt_rdma.host.policy.load import PolicyFiles

pytestmark = [pytest.mark.engine, pytest.mark.hypervisor]

# Each host has a folder by its address, with its command, policy and home.
SSH = """#!/bin/sh
for last; do :; done
case $* in
*192.0.2.3*) echo "ssh: connect to host: No route to host" >&2; exit 255 ;;
*192.0.2.4*) echo "Host key verification failed." >&2; exit 255 ;;
esac
for address in $*; do case $address in 192.0.2.*) break ;; esac; done
host={top}/$address
case $last in
*python*) [ ! -e "$host/ssh" ] || { cat >/dev/null; . "$host/ssh"; } ;;
esac
export HOME="$host" PATH="$host/bin:/usr/bin:/bin" POLICY="$host/etc/policy.yaml"
exec /bin/sh -c "$last"
"""


DROP_INS = {"50-a.yaml": "{{ lookup('pipe', 'id') }}\n"}


class Site:
    """Hosts by their address, and the access to them."""

    def __init__(self, top: Path) -> None:
        self.top = top
        (top / "bin").mkdir()
        (top / "bin/ssh").write_text(SSH.replace("{top}", str(top)))
        (top / "bin/ssh").chmod(0o755)
        folder = top / "collections/ansible_collections/ovirt_rdma/host"
        shutil.copytree(PLUGINS.parent, folder)
        # The host's own path would be that of this machine.
        module = folder / "plugins/modules/policy.py"
        default = '"default": "/etc/ovirt-rdma/policy.yaml"'
        assert default in module.read_text()
        own = '"default": os.environ["POLICY"]'
        module.write_text(module.read_text().replace(default, own))

    def host(self, number: int, ssh: str = "") -> Host:
        top = self.top / f"192.0.2.{number}"
        (top / "bin").mkdir(parents=True)
        (top / "etc").mkdir()
        (top / "bin/ovirt-rdma-host").write_text(COMMAND)
        (top / "bin/ovirt-rdma-host").chmod(0o755)
        (top / "etc/policy.yaml").write_text("old\n")
        if ssh:
            (top / "ssh").write_text(ssh)
        return Host(str(number), f"hv{number}", top.name, "c")

    def policy(self, host: Host) -> str:
        return (self.top / host.address / "etc/policy.yaml").read_text()


@pytest.fixture
def site(tmp_path, monkeypatch) -> Site:
    made = Site(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("OVIRT_RDMA_COLLECTIONS", str(tmp_path / "collections"))
    return made


def test_each_host_has_its_own_result(site):
    hosts = {
        "good": site.host(1),
        "refuses": site.host(2),
        "away": site.host(3),
        "other key": site.host(4),
        "sudo": site.host(5, "echo 'sudo: a password is required' >&2; exit 1"),
        "words": site.host(6, "echo Welcome to hv6; exit 0"),
        "nothing": site.host(7, "exit 0"),
        "200 MB": site.host(8, "head -c 200000000 /dev/zero | tr '\\0' x; exit 0"),
        "number": site.host(9, """echo '{"digest": 5, "file_digest": 5}'; exit 0"""),
        "list": site.host(10, "echo '[1, 2]'; exit 0"),
        "no load": site.host(11),
        "no Python": site.host(12, "echo 'sh: python3: not found' >&2; exit 127"),
        "good too": site.host(13),
    }
    refuses = site.top / "192.0.2.2/bin/ovirt-rdma-host"
    refuses.write_text(COMMAND.replace("grep -q broken", "grep -q new"))
    (site.top / "192.0.2.11/load-status").write_text("1\n")
    text = "new: {{ x }} '\"$(id) é\r\n"
    pushed = AnsibleHosts().push_policy([*hosts.values()], PolicyFiles(text, DROP_INS))
    problems = {name: pushed[host.name].problem for name, host in hosts.items()}
    for name in ("good", "good too"):
        assert problems.pop(name) == ""
        top = site.top / hosts[name].address
        assert (top / "etc/policy.yaml").read_bytes() == text.encode()
        assert (top / "etc/policy.d/50-a.yaml").read_text() == DROP_INS["50-a.yaml"]
        loaded = (top / "loaded").read_text().strip()
        assert pushed[hosts[name].name].digest == loaded
        assert {p.name for p in (top / "etc").iterdir()} == {"policy.yaml", "policy.d"}
    for name in problems:
        assert site.policy(hosts[name]) == "old\n"
        assert len(problems[name]) < 1000
        assert hosts[name].name in problems[name]
    invalid = "on hv2: the policy is invalid: line 1: nfs: is odd"
    assert problems["refuses"] == invalid
    assert "hv3 cannot be reached by SSH" in problems["away"]
    assert "neither the engine nor known_hosts has" in problems["other key"]
    assert problems["sudo"] == "hv5 requires a password for sudo"
    assert problems["words"].startswith("hv6 did not answer as it should: ")
    assert problems["nothing"].startswith("hv7 did not answer as it should: ")
    assert problems["200 MB"] == "hv8 sent more than 1 MB"
    assert problems["number"] == "hv9 reports no digest"
    assert problems["list"].startswith("hv10 ")
    restored = f"the earlier {site.top}/192.0.2.11/etc/policy.yaml was restored"
    assert problems["no load"] == f"on hv11: it cannot be loaded; {restored}"
    assert "python3: not found" in problems["no Python"]


def test_a_host_that_hangs_is_given_up_and_its_processes_end(site):
    hanging, good = (
        site.host(1, f"touch {site.top}/began; exec sleep 6543"),
        site.host(2),
    )
    start = time.monotonic()
    pushed = AnsibleHosts(host_limit_s=20).push_policy([hanging, good], "new\n")
    assert pushed["hv1"].problem == "hv1 did not answer in time"
    assert pushed["hv2"].problem == ""
    assert (site.top / "began").exists()
    assert time.monotonic() - start < 150
    assert b"sleep\x006543\x00" not in {*command_lines()}


def command_lines():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield path.read_bytes()
