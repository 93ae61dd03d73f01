# SPDX-License-Identifier: GPL-2.0-or-later
import errno
import json
import logging
import os
import re
import stat
import threading
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.killed import killed_at_each_line
from support.problems import problem

from ovirt_rdma.host.policy import store as policy_store
from ovirt_rdma.host.policy.model import (
    HostPolicy,
    InterfaceRule,
    NfsPolicy,
    NfsRule,
    Policy,
    digest,
    from_json_dict,
    to_json_dict,
)
from ovirt_rdma.host.policy.store import (
    PolicySource,
    copy_of,
    copy_problem,
    in_force,
    read,
    signature_of,
    store,
)
from ovirt_rdma.host.system import files
from ovirt_rdma.host.system.json_codec import digest_of

INVALID = "{}: the stored policy is invalid: "
LOAD_AGAIN = "load the policy again: ovirt-rdma-host policy load"


def policy(server="nas1", transport="require-rdma"):
    return Policy(nfs=NfsPolicy((NfsRule(1, "rule 1", server, "*", transport),)))


def is_finite(whole):
    """No policy has a time that is infinite or no number."""
    times = ("readiness_timeout", "settle_timeout", "failure_cache")
    return all(isfinite(getattr(r, time)) for r in whole.nfs.rules for time in times)


# Of all keys, any values of their types.
policies = st.from_type(Policy).map(lambda one: replace(one, version=1))
policies = policies.filter(is_finite)


@given(policies)
def test_a_policy_survives_json(original):
    text = json.dumps(to_json_dict(original))
    copy = from_json_dict(json.loads(text))
    assert copy == original
    assert digest(copy) == digest(original)


@given(policies, policies)
def test_other_policies_have_other_digests(one, other):
    same = digest(one) == digest(other)
    assert same == (one == other)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lib" / "policy.json"


class TestStore:
    def test_what_is_stored_can_be_read_by_everyone(self, path):
        before = os.umask(0o077)
        try:
            changed, _ = store(policy(), "/etc/ovirt-rdma/policy.yaml", path)
        finally:
            os.umask(before)
        assert changed
        assert read(path).policy == policy()
        assert read(path).source == "/etc/ovirt-rdma/policy.yaml"
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755
        loaded_at = datetime.fromisoformat(read(path).loaded_at)
        assert loaded_at.utcoffset() == timedelta(0)
        assert abs(datetime.now(timezone.utc) - loaded_at) < timedelta(minutes=1)

    def test_the_same_policy_again_leaves_the_file_alone(self, path):
        store(policy(), "p.yaml", path)
        before = signature_of(path)
        assert store(policy(), "elsewhere.yaml", path) == (False, [])
        assert read(path).source == "p.yaml"
        assert signature_of(path) == before

    def test_another_policy_replaces_it(self, path):
        store(policy("nas1"), "p.yaml", path)
        assert store(policy("nas2"), "p.yaml", path)[0]
        assert read(path).policy == policy("nas2")

    def test_a_broken_or_unreadable_file_is_replaced(self, path):
        store(policy(), "p.yaml", path)
        path.write_text("{")
        assert store(policy(), "p.yaml", path)[0]
        path.chmod(0o600)
        assert store(policy(), "p.yaml", path)[0]
        assert stat.S_IMODE(path.stat().st_mode) == 0o644

    def test_a_place_that_cannot_be_written_is_a_sentence(self, tmp_path):
        (tmp_path / "lib").touch()
        path = tmp_path / "lib" / "policy.json"
        with problem("policy-not-stored", path, "File exists"):
            store(policy(), "p.yaml", path)

    def test_a_full_disk_leaves_the_old_policy_and_its_copy(self, path, monkeypatch):
        def full(_):
            raise OSError(errno.ENOSPC, no_space)

        no_space = os.strerror(errno.ENOSPC)
        store(policy("nas1"), "p.yaml", path)
        monkeypatch.setattr(os, "fsync", full)
        with problem("policy-not-stored", path, no_space) as caught:
            store(policy("nas2"), "p.yaml", path)
        assert str(path.parent) in caught.value.fix
        assert read(path).policy == read(copy_of(path)).policy == policy("nas1")

    def test_a_copy_that_cannot_be_written_is_said_and_the_old_one_goes(
        self, path, monkeypatch
    ):
        """Otherwise an earlier policy could be used again."""
        store(policy("nas1"), "p.yaml", path)
        replace = type(path).replace

        def full(self, target):
            if target == copy_of(path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return replace(self, target)

        monkeypatch.setattr(type(path), "replace", full)
        changed, (remark,) = store(policy("nas2"), "p.yaml", path)
        assert changed
        assert remark.startswith(f"{copy_of(path)}, ")
        assert f"cannot be written: {os.strerror(errno.ENOSPC)}; " in remark
        assert remark.endswith("load the policy again")
        assert read(path).policy == policy("nas2")
        assert list(path.parent.iterdir()) == [path]
        monkeypatch.undo()
        assert store(policy("nas2"), "p.yaml", path) == (False, [])
        assert copy_of(path).read_bytes() == path.read_bytes()

    def test_a_folder_that_cannot_be_synced_is_not_a_policy_that_is_not_stored(
        self, path, monkeypatch
    ):
        """It is in force, so a run must not restore the old policy.yaml."""
        store(policy("nas1"), "p.yaml", path)
        fsync = os.fsync

        def unsynced(descriptor):
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", unsynced)
        changed, (first, second) = store(policy("nas2"), "p.yaml", path)
        assert changed
        assert first.startswith(f"{path}: ")
        assert f": {os.strerror(errno.EIO)}; " in first
        assert first.endswith("journalctl -k")
        assert second.startswith(f"{copy_of(path)}: ")
        assert read(path).policy == policy("nas2")

    @pytest.mark.hypervisor
    def test_killed_anywhere_file_or_copy_is_whole_and_nothing_is_left(self, path):
        new = Policy()
        store(policy("nas1"), "p.yaml", path)
        kills = 0
        for _ in killed_at_each_line(
            lambda: store(new, "p.yaml", path), policy_store, files
        ):
            kills += 1
            policies = (policy("nas1"), new)
            assert in_force(path).stored.policy in policies
            assert in_force(path).problem is None
            now = path.read_bytes()
            path.write_bytes(bytes(len(now)))
            assert in_force(path).stored.policy in policies
            path.write_bytes(now)
            store(in_force(path).stored.policy, "p.yaml", path)
            assert copy_of(path).read_bytes() == path.read_bytes()
            assert set(path.parent.iterdir()) == {path, copy_of(path)}
            store(policy("nas1"), "p.yaml", path)
        assert kills > 50
        assert in_force(path).stored.policy == new

    @pytest.mark.parametrize(
        ("harm", "words"),
        [
            (lambda copy: copy.unlink(), "is missing"),
            (
                lambda copy: copy.write_text("{"),
                "has another policy than the one in force",
            ),
            (lambda copy: copy.chmod(0o600), "cannot be read by vdsmd"),
        ],
    )
    def test_a_copy_that_is_no_good_is_said_and_mended(self, path, harm, words):
        store(policy(), "p.yaml", path)
        assert copy_problem(path) is None
        before = path.read_bytes()
        harm(copy_of(path))
        assert copy_problem(path) == words
        assert not store(policy(), "p.yaml", path)[0]
        assert copy_problem(path) is None
        assert path.read_bytes() == before


WHOLE = to_json_dict(Policy())
NAMED = InterfaceRule(1, "interface 1", device="mlx4_0")
WITH_RULES = Policy(nfs=policy().nfs, host=HostPolicy((NAMED,)))
RULE, NETDEV, HOST = "nfs.rules[0].", "host.interfaces[0].", "host."
CHILDREN, INTERVAL = "pkey_children", "partitions_interval"
OPTIONS, OPTION = "module_options", {"module": "m", "name": "n"}


class TestRead:
    def test_never_loaded_is_none(self, path):
        assert read(path) is None

    def broken(self, path, **changes):
        store(policy(), "p.yaml", path)
        content = json.loads(path.read_text())
        if "policy" in changes:
            content["digest"] = digest_of(changes["policy"])
        content.update(changes)
        path.write_text(json.dumps({k: v for k, v in content.items() if v != "gone"}))
        return self.sentence(path)

    def sentence(self, path):
        with problem("stored-policy-invalid") as caught:
            read(path)
        assert caught.value.fix == LOAD_AGAIN
        assert str(caught.value).startswith(INVALID.format(path))
        return str(caught.value).removeprefix(INVALID.format(path))

    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            (
                {"schema_version": 2},
                "it was written by a newer version of ovirt-rdma (schema version 2; "
                "this one reads 1)",
            ),
            (
                {"source": "gone", "extra": 1},
                "keys are missing or unknown: extra, source",
            ),
            ({"loaded_at": 5}, "loaded_at is not of type str"),
        ],
    )
    def test_keys_that_are_none_of_this_version(self, path, change, sentence):
        assert self.broken(path, **change) == sentence

    def test_a_changed_digest(self, path):
        edited = to_json_dict(policy("nas9"))
        for change in ({"digest": "sha256:0"}, {"policy": edited, "digest": "gone"}):
            assert self.broken(path, **change) == (
                "it is damaged, or was edited by hand (its digest differs)"
            )

    @pytest.mark.parametrize(
        ("place", "change", "wrong"),
        [
            (RULE, {"port": "20049"}, "port is a string, not a whole number"),
            (RULE, {"port": True}, "port is true or false, not a whole number"),
            (RULE, {"server": None}, "server is null, not a string"),
            (RULE, {"protocol": "x"}, "protocol is not a key of the policy"),
            (RULE, {"path": "gone"}, "path is missing"),
            (NETDEV, {"port": "1"}, "port is a string, not a whole number"),
            (NETDEV, {"port": True}, "port is true or false, not a whole number"),
            (NETDEV, {"mtu": 1.5}, "mtu is a number, not a whole number or a string"),
            (NETDEV, {"name": None}, "name is null, not a string"),
            (NETDEV, {CHILDREN: "0x8001"}, f"{CHILDREN} is a string, not an array"),
            (NETDEV, {CHILDREN: [1]}, f"{CHILDREN}[0] is a number, not a string"),
            (NETDEV, {"netdev": "ib0"}, "netdev is not a key of the policy"),
            (NETDEV, {"guid": "gone"}, "guid is missing"),
            (HOST, {"modules": None}, "modules is null, not an array"),
            (HOST, {"modules": [1]}, "modules[0] is a number, not a string"),
            (HOST, {INTERVAL: "30"}, f"{INTERVAL} is a string, not a whole number"),
            (HOST, {INTERVAL: 1.5}, f"{INTERVAL} is a number, not a whole number"),
            (
                HOST,
                {INTERVAL: True},
                f"{INTERVAL} is true or false, not a whole number",
            ),
            (HOST, {OPTIONS: {}}, f"{OPTIONS} is an object, not an array"),
            (HOST, {OPTIONS: [OPTION]}, f"{OPTIONS}[0].value is missing"),
            (
                HOST,
                {OPTIONS: [{**OPTION, "value": 1}]},
                f"{OPTIONS}[0].value is a number, not a string",
            ),
            ("nfs.", {"rules": "gone"}, "rules is missing"),
            ("nfs.", {"rules": {}}, "rules is an object, not an array"),
            ("nfs.", {"rules": [1]}, "rules[0] is a number, not an object"),
        ],
    )
    def test_a_policy_changed_by_hand(self, path, place, change, wrong):
        content = to_json_dict(WITH_RULES)
        part = content
        for key in re.findall(r"\w+", place):
            part = part[int(key) if key.isdigit() else key]
        part.update(change)
        for key in [key for key, value in change.items() if value == "gone"]:
            del part[key]
        assert self.broken(path, policy=content) == f"{place}{wrong}"

    @pytest.mark.parametrize(
        ("content", "sentence"),
        [
            ({"version": 2, "more": 1}, "version is 2; allowed: 1"),
            ({"version": 1}, "nfs is missing"),
            ({**WHOLE, "nfs": {}}, "nfs.rules is missing"),
            ({**WHOLE, "host": []}, "host is an array, not an object"),
            ({**WHOLE, "host": {}}, "host.interfaces is missing"),
            ([], "it is an array, not an object"),
        ],
    )
    def test_a_policy_that_is_none(self, path, content, sentence):
        assert self.broken(path, policy=content) == sentence

    def test_a_number_with_too_many_digits(self, path):
        content = to_json_dict(policy())
        content["nfs"]["rules"][0]["settle_timeout"] = 10**400
        sentence = "it has a number with too many digits"
        assert self.broken(path, policy=content) == sentence

    @pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"[" * 100000])
    def test_what_is_no_stored_policy_at_all(self, path, data):
        path.parent.mkdir()
        path.write_bytes(data)
        assert self.sentence(path)

    def test_a_directory_in_its_place(self, path):
        path.mkdir(parents=True)
        with problem("stored-policy-unreadable", path, "Is a directory"):
            read(path)


class TestPolicySource:
    """The policy that vdsmd sees, and the lines that it logs."""

    @pytest.fixture
    def log(self, caplog):
        caplog.set_level(logging.DEBUG, "storage.ovirt_rdma")

        def new_lines():
            lines = [f"{r.levelname} {r.getMessage()}" for r in caplog.records]
            caplog.clear()
            return lines

        return new_lines

    @pytest.fixture
    def followed(self, path, log):
        """A source whose policy is in force, as the log says."""
        store(policy(), "p.yaml", path)
        source = PolicySource(path)
        source.current()
        log()
        return source

    def in_force(self, loaded):
        return f"INFO policy {digest(loaded)} of p.yaml is in force (NFS rules: 1)"

    def copy_used(self):
        return f"; its copy is used: policy {digest(policy())} of p.yaml"

    def test_never_loaded_is_the_empty_policy_and_silent(self, path, log):
        source = PolicySource(path)
        assert source.current() == Policy()
        assert source.current() == Policy()
        assert log() == []

    def test_a_policy_comes_into_force_while_vdsmd_runs(self, path, log):
        source = PolicySource(path)
        source.current()
        store(policy(), "p.yaml", path)
        assert source.current() == policy()
        assert source.current() == policy()
        assert log() == [self.in_force(policy())]

    def test_an_edit_is_followed(self, path, log):
        source = PolicySource(path)
        for server in ("nas1", "nas2", "nas1"):
            store(policy(server), "p.yaml", path)
            assert source.current() == policy(server)
            assert log() == [self.in_force(policy(server))]

    @pytest.mark.parametrize("text", [None, "{"])
    def test_an_untouched_file_is_not_read_again(self, path, monkeypatch, text):
        store(policy(), "p.yaml", path)
        if text:
            path.write_text(text)
        source = PolicySource(path)
        source.current()
        monkeypatch.setattr(policy_store, "read_file", lambda _: pytest.fail("read"))
        assert source.current() == policy()

    def test_an_edit_that_keeps_size_and_time_is_followed(self, path):
        other = path.with_name("other.json")
        store(policy("nas2"), "p.yaml", other)
        store(policy("nas1"), "p.yaml", path)
        source = PolicySource(path)
        assert source.current() == policy("nas1")
        before = path.stat()
        while path.stat().st_ctime_ns == before.st_ctime_ns:  # the clock has ticks
            path.write_bytes(other.read_bytes())
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        after = path.stat()
        assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size)
        assert after.st_mtime_ns == before.st_mtime_ns
        assert source.current() == policy("nas2")

    def test_a_broken_edit_leaves_the_last_good_policy_and_one_line(
        self, path, log, followed
    ):
        path.write_text("{}")
        for _ in range(3):
            assert followed.current() == policy()
        (line,) = log()
        assert line.startswith(f"ERROR {INVALID.format(path)}")
        assert line.endswith(f"{self.copy_used()}; {LOAD_AGAIN}")

    def test_broken_with_its_copy_the_last_good_policy_stays(self, path, log, followed):
        copy_of(path).unlink()
        path.write_text("{}")
        for _ in range(3):
            assert followed.current() == policy()
        (line,) = log()
        assert f"; policy {digest(policy())} stays in force; " in line

    @pytest.mark.parametrize(
        "harm",
        [
            pytest.param(lambda data: bytes(len(data)), id="zeros"),
            pytest.param(lambda data: data[: len(data) // 2], id="truncated"),
            pytest.param(lambda data: b"", id="empty"),
            pytest.param(
                lambda data: data.replace(
                    b'"schema_version": 1', b'"schema_version": 2'
                ),
                id="of a newer version",
            ),
            pytest.param(lambda data: data.replace(b"nas1", b"nas2"), id="edited"),
        ],
    )
    def test_over_a_restart_the_copy_of_a_broken_file_counts(self, path, log, harm):
        """An export that requires RDMA is never mounted over TCP for a broken file."""
        store(policy(), "p.yaml", path)
        path.write_bytes(harm(path.read_bytes()))
        source = PolicySource(path)
        for _ in range(3):
            assert source.current() == policy()
        (line,) = log()
        assert line.startswith(f"ERROR {INVALID.format(path)}")
        assert line.endswith(f"{self.copy_used()}; {LOAD_AGAIN}")
        store(policy("nas3"), "p.yaml", path)
        assert source.current() == policy("nas3")

    def test_a_file_and_a_copy_broken_from_the_start_mean_stock(self, path, log):
        store(policy(), "p.yaml", path)
        path.write_text("{}")
        copy_of(path).write_text("{}")
        source = PolicySource(path)
        assert source.current() == Policy()
        (line,) = log()
        assert "; no policy is in force, NFS mounts are stock; " in line

    def test_a_policy_taken_out_of_force_does_not_come_back(self, path):
        store(policy(), "p.yaml", path)
        store(Policy(), "p.yaml", path)
        path.write_text("{")
        assert PolicySource(path).current() == Policy()

    def test_a_file_that_somebody_took_away_does_not_come_back(self, path, log):
        store(policy(), "p.yaml", path)
        path.unlink()
        assert PolicySource(path).current() == Policy()
        assert log() == []

    def test_a_vanished_file_leaves_the_last_good_policy_and_one_line(
        self, path, log, followed
    ):
        path.unlink()
        for _ in range(3):
            assert followed.current() == policy()
        (line,) = log()
        assert line.startswith(f"WARNING {path} ")
        assert line.endswith(f"; policy {digest(policy())} stays in force")

    @pytest.mark.parametrize("harm", ["broken", "vanished"])
    def test_a_restored_file_is_in_force_again(self, path, log, followed, harm):
        path.write_text("{") if harm == "broken" else path.unlink()
        followed.current()
        log()
        store(policy(), "p.yaml", path)
        assert followed.current() == policy()
        assert log() == [self.in_force(policy())]
        path.unlink()
        followed.current()
        assert len(log()) == 1

    def test_an_error_that_passes_without_a_change_is_overcome(
        self, path, log, monkeypatch
    ):
        store(policy(), "p.yaml", path)
        source = PolicySource(path)

        def too_many(_):
            raise OSError(24, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(policy_store, "read_file", too_many)
            assert source.current() == Policy()
            assert source.current() == Policy()
        assert len(log()) == 1
        assert source.current() == policy()
        assert log() == [self.in_force(policy())]

    def test_threads_see_whole_policies_while_the_file_changes(self, path):
        store(policy("nas1"), "p.yaml", path)
        source = PolicySource(path)
        seen, stop = set(), threading.Event()

        def look():
            while not stop.is_set():
                seen.add(source.current())

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for number in range(50):
            store(policy(f"nas{number % 2 + 1}"), "p.yaml", path)
        stop.set()
        for thread in threads:
            thread.join()
        assert seen <= {policy("nas1"), policy("nas2")}
        assert source.current() == policy("nas2")


def test_what_runs_inside_vdsmd_loads_no_yaml():
    import subprocess
    import sys

    code = (
        "import sys, ovirt_rdma.host.policy.store\n"
        "assert not {'yaml', 'difflib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
