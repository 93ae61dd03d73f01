# SPDX-License-Identifier: GPL-2.0-or-later
"""``bundle`` collects what a support case needs, and no secrets."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import time
from pathlib import Path

import pytest
from support.fakes.fake_hosts import connectx3_ib

from ovirt_rdma.host.paths import (
    DROPIN_LINK,
    DROPIN_SOURCE,
    JOURNAL,
    POLICY_YAML,
    RUN_MOUNTS,
    under,
)
from ovirt_rdma.host.services import support_bundle as made
from ovirt_rdma.host.services import support_content as content

SECRET = "hunter2-in-no-bundle"
OURS = "INFO  (jsonrpc/1) [storage.ovirt_rdma] nas1:/vm is mounted over RDMA"
THEIRS = f"INFO  (jsonrpc/1) [vdsm.api] START login password={SECRET}"


def contents(path: Path) -> dict[str, bytes]:
    """Return the files of a bundle, without its folder."""
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert len({member.name.partition("/")[0] for member in members}) == 1
        return {
            member.name.partition("/")[2]: archive.extractfile(member).read()
            for member in members
        }


@pytest.fixture
def tree(tmp_path_factory, monkeypatch):
    """Return the root of a host with an adapter, logs and secrets; no verb is run."""
    root = connectx3_ib(tmp_path_factory.mktemp("root"))
    monkeypatch.setattr(made, "VERBS", ())
    for path, text in (
        (POLICY_YAML, "version: 1\n"),
        (JOURNAL, '{"crc32": 1}\n'),
        (f"{RUN_MOUNTS}/degraded.json", "{}"),
        ("/sys/kernel/sunrpc/xprt-switches/switch-0/xprt-0-rdma/dstaddr", "192.0.2.1"),
        (content.VDSM_LOG, f"{THEIRS}\n{OURS}\n{THEIRS}\n"),
        ("/etc/pki/vdsm/keys/vdsmkey.pem", SECRET),
        ("/etc/NetworkManager/system-connections/wifi.nmconnection", SECRET),
        ("/etc/ovirt-rdma/password", SECRET),
        ("/var/lib/ovirt-rdma/engine/convert.json", SECRET),
    ):
        file = under(root.path, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root.path


def bundle(call, root, path, *more):
    return call("bundle", str(path), "--root", str(root), *more)


def test_a_bundle_of_a_host(call, tree, tmp_path, monkeypatch):
    monkeypatch.setattr(made, "VERBS", (("facts", "-o", "json"), ("history", "-v")))
    # tox installs nothing.
    found_by = {**made.ENVIRONMENT, "PYTHONPATH": os.pathsep.join(sys.path)}
    monkeypatch.setattr(made, "ENVIRONMENT", found_by)
    path = tmp_path / "hv1.tar.xz"
    done = bundle(call, tree, path)
    assert done.code == 0
    assert done.out.startswith(f"{path} is written: ")
    assert path.stat().st_mode & 0o777 == 0o600
    found = contents(path)
    assert json.loads(found["commands/facts.json"])["hostname"] == "hv1"
    assert found[f"files{POLICY_YAML}"] == b"version: 1\n"
    assert found[f"files{content.VDSM_LOG}"].decode() == f"{OURS}\n"
    assert {
        f"files{JOURNAL}",
        f"files{RUN_MOUNTS}/degraded.json",
        "files/sys/kernel/sunrpc/xprt-switches/switch-0/xprt-0-rdma/dstaddr",
        "files/proc/self/mountinfo",
        "commands/history.txt.stderr",
    } <= set(found)
    # Tools would tell of this machine.
    assert b"journalctl was not run" in found["notes.txt"]
    assert SECRET.encode() not in b"".join(found.values())


def test_an_existing_file_is_not_replaced(call, tree, tmp_path):
    path = tmp_path / "hv1.tar.xz"
    path.write_text("precious")
    bundle(call, tree, path).refused(1, f"{path} exists", "fix: name another file")
    assert path.read_text() == "precious"
    (tmp_path / "link.tar.xz").symlink_to(tmp_path / "nowhere")
    bundle(call, tree, tmp_path / "link.tar.xz").refused(1, "exists")
    assert not (tmp_path / "nowhere").exists()


def test_a_file_that_appears_meanwhile_is_not_replaced(tree, tmp_path):
    path = tmp_path / "hv1.tar.xz"
    collected = made.collect(tree)
    path.write_text("precious")
    with pytest.raises(made.Problem, match="exists"):
        made.write(collected, path, tree)
    assert [file.name for file in tmp_path.iterdir()] == ["hv1.tar.xz"]
    assert path.read_text() == "precious"


def test_another_name_is_a_usage_error(call, tree, tmp_path):
    bundle(call, tree, tmp_path / "hv1.zip").refused(2, "does not end in .tar.xz")


def test_a_folder_that_does_not_exist(call, tree, tmp_path):
    done = bundle(call, tree, tmp_path / "no" / "hv1.tar.xz", "-o", "json")
    done.error("file-not-written", 1)


def test_odd_files_are_notes(call, tree, tmp_path):
    marks = under(tree, RUN_MOUNTS)
    os.mkfifo(marks / "pipe")
    (marks / "out").symlink_to(under(tree, "/etc/pki/vdsm/keys/vdsmkey.pem"))
    (marks / "large").write_bytes(b"x" * (made.MOST_BYTES + 1))
    log = under(tree, content.VDSM_LOG)
    log.unlink()
    log.symlink_to("/dev/zero")
    done = bundle(call, tree, tmp_path / "a.tar.xz", "-o", "json")
    notes = done.document["notes"]
    for start in (f"{RUN_MOUNTS}/{name} cannot be read" for name in ("pipe", "large")):
        assert any(note.startswith(start) for note in notes), start
    assert any(note.startswith(f"{content.VDSM_LOG} cannot be read") for note in notes)
    assert f"files{POLICY_YAML}" in done.document["parts"]
    found = contents(tmp_path / "a.tar.xz")
    assert found[f"files{RUN_MOUNTS}/out.link"].endswith(b"/vdsmkey.pem\n")
    assert SECRET.encode() not in b"".join(found.values())


def test_links_of_a_host_in_order_are_no_notes(call, tree, tmp_path):
    """sunrpc has one for each mount (net/sunrpc/sysfs.c, rpc_sysfs_client_setup), and
    enable makes one, which may lead nowhere.
    """
    clients = under(tree, "/sys/kernel/sunrpc/rpc-clients/clnt-0")
    clients.mkdir(parents=True)
    (clients / "switch").symlink_to("../../xprt-switches/switch-0")
    dropin = under(tree, DROPIN_LINK)
    dropin.parent.mkdir(parents=True)
    dropin.symlink_to(DROPIN_SOURCE)
    done = bundle(call, tree, tmp_path / "a.tar.xz", "-o", "json")
    assert [note for note in done.document["notes"] if "cannot be read" in note] == []
    found = contents(tmp_path / "a.tar.xz")
    assert found[f"files{DROPIN_LINK}.link"].decode() == f"{DROPIN_SOURCE}\n"
    assert any(name.endswith("clnt-0/switch.link") for name in found)


def test_a_host_with_nothing(call, tmp_path, monkeypatch):
    monkeypatch.setattr(made, "VERBS", ())
    (tmp_path / "root").mkdir()
    done = bundle(call, tmp_path / "root", tmp_path / "a.tar.xz", "-o", "json")
    assert (done.code, done.document["parts"]) == (0, [])


def program(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", text)


def test_a_command_that_fails_hangs_or_floods_is_a_note(monkeypatch):
    monkeypatch.setattr(made, "MOST_BYTES", 1000)
    collected = made.Bundle(limit_s=60)
    collected.add_output("status", program("print('said'); raise SystemExit(3)"))
    collected.add_output("flood", program("while True: print('x' * 100)"))
    collected.add_output("silent", program("raise SystemExit(7)"))
    collected.add_output("absent", ("/no/such/program",))
    assert collected.parts["status"] == b"said\n"
    assert len(collected.parts["flood"]) == 1000
    text = "\n".join(collected.notes)
    assert "prints more than 1000 bytes" in text
    assert "printed nothing, exit status 7" in text
    assert "/no/such/program failed: No such file or directory" in text
    monkeypatch.setattr(made, "_COMMAND_S", 0.5)
    start = time.monotonic()
    # Its child has the pipe too, and would keep it open.
    collected.add_output("hangs", ("/bin/sh", "-c", "echo begun; sleep 300 & wait"))
    assert time.monotonic() - start < 60
    assert collected.parts["hangs"] == b"begun\n"
    assert "no answer within" in collected.notes[-1]


def test_messages_are_not_in_the_document(monkeypatch):
    """Such as those of ``plan`` about what could not be read: the case of a bundle."""
    collected = made.Bundle(limit_s=60)
    text = "import sys; print('note: odd', file=sys.stderr, flush=True); print('{}')"
    collected.add_output("plan.json", program(text))
    collected.add_output("mute", program("import sys; sys.exit('only this')"))
    assert collected.parts == {
        "plan.json": b"{}\n",
        "plan.json.stderr": b"note: odd\n",
        "mute.stderr": b"only this\n",
    }
    assert collected.notes == []


def test_when_the_time_is_over_the_rest_is_noted():
    collected = made.Bundle(limit_s=0)
    collected.add_output("facts", program("print()"))
    assert collected.parts == {}
    assert collected.notes[0].endswith("was not run: no time was left")


def test_all_parts_together_are_bounded(monkeypatch):
    monkeypatch.setattr(made, "MOST_BYTES_OF_ALL", 10)
    collected = made.Bundle()
    collected.add("one", b"12345678")
    collected.add("two", b"abcdef")
    assert collected.parts == {"one": b"12345678", "two": b"ef"}
    assert collected.notes == ["two is cut: its last 2 of 6 bytes"]
