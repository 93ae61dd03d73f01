# SPDX-License-Identifier: GPL-2.0-or-later
"""The portal's socket and service under systemd, in their sandbox.

An engine is not there: that it was asked is what the answer says.
"""

from __future__ import annotations

import json

import pytest

from lab import installed_host
from lab.guest import Guest

FOLDER = "/var/lib/ovirt-rdma/portal"
_BEGIN = f"""
set -e
systemd-tmpfiles --create ovirt-rdma-portal.conf
: > {FOLDER}/report.json
systemctl start ovirt-rdma-portal.socket
"""
DATA = {"kind": "portal", "engine_url": "https://127.0.0.1:9/ovirt-engine/api"}
_ASK = r"""
exec 3<> /dev/tcp/127.0.0.1/290
printf 'GET /ovirt-rdma/portal HTTP/1.1\r\nHost: x\r\n%b\r\n' "$1" >&3
timeout 100 cat <&3
"""
TOKEN = r"Authorization: Bearer a-token-of-somebody\r\n"


def asked(guest: Guest, header: str) -> tuple[int, str]:
    """Send a request; return the status and the sentence of the answer."""
    done = guest.run(f"bash -s -- '{header}'", input=_ASK, timeout=120, check=True)
    head, _, body = done.stdout.partition("\r\n\r\n")
    assert "WWW-Authenticate" not in head
    sentence: str = json.loads(body)["sentence"]
    return int(head.split()[1]), sentence


@pytest.mark.kernels("6.1", "6.12")
def test_a_request_is_answered_in_the_sandbox(kernel: str) -> None:
    with Guest("engine", systemd=True) as guest:
        installed_host.install(guest, portal=True)
        guest.run(_BEGIN, check=True)
        assert asked(guest, "") == (401, "The session has ended.")
        assert asked(guest, TOKEN) == (503, "There are no data yet.")
        guest.run(f"cat > {FOLDER}/report.json", input=json.dumps(DATA), check=True)
        status, sentence = asked(guest, TOKEN)
        assert status == 502
        assert "did not answer" in sentence and "127.0.0.1" in sentence
        # Nobody else reads the data, and nothing stays.
        assert guest.run(f"stat -c %a {FOLDER}").stdout.strip() == "700"
        wait = "until [ -z \"$(systemctl list-units -q 'ovirt-rdma-portal@*')\" ]"
        guest.run(f"{wait}; do sleep 0.5; done", timeout=60, check=True)
        shown = guest.run("journalctl -q -p warning -u 'ovirt-rdma-portal@*'").stdout
        assert shown == ""
