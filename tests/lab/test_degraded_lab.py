# SPDX-License-Identifier: GPL-2.0-or-later
"""Test a degraded mount from the fallback to healing, on a real kernel."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from lab.topology import Topology
from lab.vdsm_daemon import VdsmDaemon, local_path

pytestmark = pytest.mark.faults

EXPORT = "10.99.0.1:/srv/degraded"
CONNECTION = {"connection": EXPORT}
NOT_LISTENING = "10.99.0.1 refuses RDMA connections on port 20049"
POLICY = """\
version: 1
nfs:
  defaults: {readiness_timeout: 30}    # emulated guests are slow
  rules:
    - {name: prefer, server: 10.99.0.1, path: /srv/degraded, transport: prefer-rdma}
"""
# The policy with which the fixture vdsmd starts.
EXPORT_PATHS = ("/srv/degraded",)


def document(vdsmd: VdsmDaemon, *words: str) -> Any:
    return json.loads(vdsmd.command(*words, "-o", "json").stdout)


def warnings(vdsmd: VdsmDaemon) -> list[str]:
    """Connect successfully; return the warnings of vdsm.log."""
    outcome = vdsmd.connect(CONNECTION)
    assert outcome.statuses == [0], outcome
    return [line for line in outcome.log if line.startswith(("WARNING", "ERROR"))]


def test_from_fallback_to_healing(vdsmd: VdsmDaemon, two_guests: Topology) -> None:
    two_guests.nfs.restart(rdma_port=None)
    try:
        (told,) = warnings(vdsmd)
        assert "FALLING BACK TO TCP" in told

        # Time and reason are shown everywhere.
        (mark,) = document(vdsmd, "facts")["degraded_marks"]
        assert (mark["export"], mark["reason"]) == (EXPORT, NOT_LISTENING)
        assert re.fullmatch(r"\d{4}(-\d\d){2}T\d\d(:\d\d){2}Z", mark["since"])
        since = mark["since"].replace("T", " ").replace("Z", " UTC")
        history = f"since {since}, because {NOT_LISTENING}.\n"
        assert history in vdsmd.command("nfs", "list").stdout
        checked = vdsmd.command("nfs", "check", EXPORT)
        assert checked.exit_code == 3
        assert history in checked.stdout
        assert "fix: once it is ready, put the host into maintenance" in checked.stdout

        # Logged once, also by a restarted vdsmd.
        vdsmd.stop()
        vdsmd.start()
        assert warnings(vdsmd) == []
        status = vdsmd.command("status").stdout
        assert "\ndegraded  1 mount\n" in status
        assert history in status
    finally:
        two_guests.nfs.restart()

    # The server is fixed: the mount is unchanged until it is remounted.
    assert warnings(vdsmd) == []
    checked = vdsmd.command("nfs", "check", EXPORT)
    assert checked.exit_code == 0, checked
    assert f"{EXPORT} is ready for RDMA.\n{EXPORT} runs over tcp" in checked.stdout
    assert history in checked.stdout
    then = "(if not done yet); then put the host into maintenance in the engine"
    assert then in checked.stdout

    # As in maintenance and activation.
    assert vdsmd.disconnect(CONNECTION).statuses == [0]
    assert warnings(vdsmd) == []
    (listed,) = document(vdsmd, "nfs", "list")["mounts"]
    assert (listed["transport"], listed["verdict"]) == ("rdma", "ok")
    assert listed["since"] > mark["since"]
    assert document(vdsmd, "status")["degraded"] == []
    assert document(vdsmd, "facts")["degraded_marks"] == []


def test_a_mount_made_by_hand_is_told_once(vdsmd: VdsmDaemon) -> None:
    place = local_path(EXPORT)
    by_hand = f"mkdir -p {place} && mount -t nfs -o tcp {EXPORT} {place}"
    vdsmd.guest.run(by_hand, check=True)
    (told,) = warnings(vdsmd)
    assert "already mounted over tcp" in told
    assert warnings(vdsmd) == []
    (first,) = document(vdsmd, "nfs", "list")["mounts"]
    assert first["reason"].startswith("it was already mounted when vdsmd first found")

    # The kernel often gives a new mount the number of the old one; its time differs.
    vdsmd.guest.run(f"umount {place} && sleep 7 && {by_hand}", check=True)
    (told,) = warnings(vdsmd)
    assert "already mounted over tcp" in told
    (second,) = document(vdsmd, "nfs", "list")["mounts"]
    assert second["since"] > first["since"]
