# SPDX-License-Identifier: GPL-2.0-or-later
import importlib.util
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fakes.fake_enablement import (
    RELOAD,
    RESTART,
    START,
    STOP,
    Host,
    policy_of,
    rdma_rule,
)
from support.fakes.fake_processes import VDSM, end_process, run_process
from support.problems import problem

from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.paths import (
    DAEMON_FILE,
    DROPIN_DIRECTORY,
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    FOLDER_NOTE,
    LAUNCHER,
    POLICY_JSON,
    RUN_LOCK,
    STARTED,
    STOCK_VDSMD,
    VDSM_CONF,
    under,
)
from ovirt_rdma.host.policy.model import NfsRule, digest
from ovirt_rdma.host.policy.store import store
from ovirt_rdma.host.services import enablement
from ovirt_rdma.host.services.enablement import (
    LOADED,
    MODES,
    PACKAGE,
    Advice,
    VdsmdProcess,
    disable,
    enable,
    marker_text,
    read_status,
    vdsmd_process,
)
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.host.system.tree import FileTree

pytestmark = pytest.mark.hypervisor

BECAUSE = "ovirt-rdma does not support this VDSM: it has no main()"
OTHER_DROPIN = "/usr/lib/systemd/system/vdsmd.service.d/10-other.conf"


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def ids(result):
    return [step.id for step in result.steps]


class TestEnable:
    def test_the_launcher_stands_before_vdsmd_and_systemd_knows(self, host):
        result = host.enable()
        assert str(under(host.root, DROPIN_LINK).readlink()) == DROPIN_SOURCE
        assert under(host.root, ENABLED).read_text().splitlines()[1] == "mode: vdsmd"
        assert host.commands == [RELOAD]
        assert ids(result) == [
            "write-folder-note",
            "make-link",
            "reload-systemd",
            "write-marker",
        ]

    def test_a_second_run_changes_nothing(self, host):
        host.enable()
        before = host.tree()
        host.commands.clear()
        assert not host.enable().steps
        assert host.tree() == before
        assert host.commands == []

    def test_the_marker_is_readable_by_the_user_vdsm(self, host):
        host.enable()
        assert under(host.root, ENABLED).stat().st_mode & 0o777 == 0o644
        assert under(host.root, DROPIN_DIRECTORY).stat().st_mode & 0o777 == 0o755

    def test_another_root_reloads_nothing_by_itself(self, host):
        under(host.root, "/run/systemd/system").mkdir(parents=True)
        assert "reload-systemd" not in ids(enable(host.root))
        assert "reload-systemd" not in ids(disable(host.root))

    @pytest.mark.parametrize("mode", ["hosts", ""])
    def test_a_mode_of_another_version_is_a_usage_error(self, host, mode):
        before = host.tree()
        with pytest.raises(UsageProblem) as caught:
            host.enable(mode=mode)
        assert str(caught.value) == (f"there is no mode {mode!r}; allowed: vdsmd, host")
        assert host.tree() == before


def expect_refusal(host, id, *arguments, verb="enable", **mode):
    """Expect a refusal that names ``arguments`` and changes nothing."""
    before = host.tree()
    with problem(id, *arguments) as caught:
        getattr(host, verb)(**mode)
    assert caught.value.exit_code == 4
    assert caught.value.fix
    assert host.tree() == before
    assert host.commands == []


class TestRefusals:
    @pytest.mark.parametrize("path", [LAUNCHER, DROPIN_SOURCE])
    def test_a_package_that_is_not_whole(self, host, path):
        host.remove(path)
        expect_refusal(host, "own-file-missing", path)

    @pytest.mark.parametrize("verb", ["enable", "disable"])
    @pytest.mark.parametrize("path", [ENABLED, FOLDER_NOTE, DROPIN_LINK])
    @pytest.mark.parametrize("kind", ["file", "link", "dangling link", "folder"])
    def test_what_is_not_ours_stays(self, host, verb, path, kind):
        if verb == "disable" and path == DROPIN_LINK:
            host.write(ENABLED, marker_text("vdsmd"))
        if kind == "file":
            host.write(path, "mine\n")
        elif kind == "folder":
            under(host.root, path).mkdir(parents=True)
        else:
            host.link(path, "/dev/null" if kind == "link" else "/nowhere")
        expect_refusal(host, "file-not-ours", path, verb=verb)
        if verb == "enable" and path != DROPIN_LINK:
            expect_refusal(host, "file-not-ours", path, mode="host")

    def test_a_drop_in_folder_that_is_a_symlink(self, host):
        host.link(DROPIN_DIRECTORY, "/usr/lib/systemd/system/vdsmd.service.d")
        expect_refusal(host, "file-not-ours", DROPIN_DIRECTORY)

    @pytest.mark.parametrize(
        "path",
        [
            f"{DROPIN_DIRECTORY}/99-other.conf",
            "/run/systemd/system/vdsmd.service.d/10-other.conf",
            OTHER_DROPIN,
        ],
    )
    @pytest.mark.parametrize(
        "text", ["[Service]\nExecStart=\nExecStart=/other\n", "  ExecStart = /other"]
    )
    def test_another_drop_in_that_replaces_execstart(self, host, path, text):
        host.write(path, text)
        expect_refusal(host, "drop-in-conflict", path, "ExecStart")

    def test_other_drop_ins_do_no_harm(self, host):
        text = "[Service]\nExecStartPre=/x\n#ExecStart=/y\nNice=1\n"
        host.write(f"{DROPIN_DIRECTORY}/other.conf", text)
        replaces = "[Service]\nExecStart=/x\n"
        host.write(f"{DROPIN_DIRECTORY}/other.conf.rpmsave", replaces)
        # One that the admin has masked, and one of a package that is gone.
        host.write(OTHER_DROPIN, replaces)
        host.link(f"{DROPIN_DIRECTORY}/{Path(OTHER_DROPIN).name}", "/dev/null")
        host.link(f"{DROPIN_DIRECTORY}/gone.conf", "/nowhere")
        assert host.enable().steps


class TestDisable:
    def test_the_tree_is_as_before(self, host):
        before = host.tree()
        host.enable()
        host.commands.clear()
        result = host.disable()
        assert host.tree() == before
        assert host.commands == [RELOAD]
        assert ids(result) == [
            "remove-link",
            "remove-directory",
            "reload-systemd",
            "remove-folder-note",
            "remove-marker",
        ]

    def test_a_second_run_changes_nothing(self, host):
        host.enable()
        host.disable()
        host.commands.clear()
        assert not host.disable().steps
        assert host.commands == []

    def test_on_a_host_that_never_was_enabled_nothing_happens(self, host):
        under(host.root, DROPIN_DIRECTORY).mkdir()
        before = host.tree()
        assert not host.disable().steps
        assert host.tree() == before

    @pytest.mark.parametrize("there", [True, False])
    def test_an_empty_folder_stays_if_it_was_there_before(self, host, there):
        if there:
            under(host.root, DROPIN_DIRECTORY).mkdir()
        before = host.tree()
        host.enable()
        host.enable()
        host.disable()
        assert host.tree() == before

    def test_a_file_of_another_in_our_folder_keeps_it(self, host):
        host.enable()
        other = f"{DROPIN_DIRECTORY}/other.conf"
        host.write(other, "[Service]\nNice=1\n")
        host.disable()
        assert [p.name for p in under(host.root, DROPIN_DIRECTORY).iterdir()] == [
            "other.conf"
        ]
        # Now it is another's, also once it is empty.
        host.enable()
        host.remove(other)
        host.disable()
        assert under(host.root, DROPIN_DIRECTORY).is_dir()

    def test_drop_ins_of_others_stay(self, host):
        host.write(f"{DROPIN_DIRECTORY}/other.conf", "[Service]\nNice=1\n")
        before = host.tree()
        host.enable()
        host.disable()
        assert host.tree() == before

    def test_a_package_that_is_gone_does_not_matter(self, host):
        host.enable()
        for path in (LAUNCHER, DROPIN_SOURCE):
            host.remove(path)
        host.disable()
        assert not under(host.root, DROPIN_DIRECTORY).exists()
        assert not under(host.root, ENABLED).exists()


@given(
    st.data(),
    st.booleans(),
    st.dictionaries(
        st.sampled_from(["10-a.conf", "50-ovirt.conf", "90-z.conf"]),
        st.sampled_from(["", "[Service]\nNice=1\n"]),
        min_size=1,
    ),
    st.sampled_from(MODES),
    st.lists(st.sampled_from(["enable", "disable"]), max_size=4),
)
def test_after_any_runs_disable_restores_and_enable_completes(
    tmp_path_factory, data, has_dropins, dropins, mode, verbs
):
    host = Host(tmp_path_factory.mktemp("host"))
    for name, text in dropins.items() if has_dropins else ():
        host.write(f"{DROPIN_DIRECTORY}/{name}", text)
    stock = host.tree()
    for verb in verbs:
        host.enable(mode) if verb == "enable" else host.disable()
    host.disable()
    assert host.tree() == stock
    host.enable(mode)
    enabled = host.tree()
    # Remove any of our files: enable restores it, disable removes the others.
    ours = {"vdsmd": [DROPIN_LINK], "host": []}
    host.remove(data.draw(st.sampled_from([ENABLED, *ours[mode]])))
    if data.draw(st.booleans()):
        host.enable(mode)
        assert host.tree() == enabled
    host.disable()
    assert host.tree() == stock


def test_a_systemctl_that_fails_is_a_sentence_and_the_next_run_completes(host):
    def fail(_):
        raise CommandFailed("Failed to connect to bus")

    with problem("enablement-step-failed", "systemd", "Failed to connect to bus"):
        enable(host.root, run=fail)
    assert ids(host.enable()) == ["reload-systemd", "write-marker"]


def test_a_folder_that_cannot_be_written_is_a_sentence(host, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    under(host.root, RUN_LOCK).parent.mkdir(parents=True)
    monkeypatch.setattr(type(host.root), "mkdir", refuse)
    with problem(
        "enablement-step-failed", DROPIN_LINK, DROPIN_SOURCE, "Permission denied"
    ):
        host.enable()


ADAPTER = "/usr/libexec/vdsm/daemonAdapter"
STOCK = ("/usr/bin/python3", STOCK_VDSMD)
OURS = ("/usr/bin/python3", LAUNCHER)


class TestRestart:
    def test_vdsmd_is_left_running_unless_asked(self, host):
        host.process(700, *STOCK)
        result = host.enable()
        assert result.restart_needed
        assert RESTART not in host.commands

    def test_restart_is_the_last_step_and_only_where_it_changes_something(self, host):
        host.process(700, *STOCK)
        result = host.enable(restart_vdsmd=True)
        assert ids(result)[-1] == "restart-vdsmd"
        assert host.commands == [RELOAD, RESTART]
        assert not result.restart_needed
        host.process(700, *OURS)
        assert not host.enable(restart_vdsmd=True).steps
        assert ids(host.disable(restart_vdsmd=True))[-1] == "restart-vdsmd"

    def test_a_stopped_vdsmd_is_not_started(self, host):
        result = host.enable(restart_vdsmd=True)
        assert host.commands == [RELOAD]
        assert not result.restart_needed


class TestModeHost:
    """Mode host has only the marker, which VDSM's hooks check."""

    def test_nothing_but_the_marker_is_made_and_nothing_restarted(self, host):
        before = host.tree()
        host.process(700, *STOCK)
        result = host.enable(mode="host")
        assert ids(result) == ["write-marker"]
        assert not result.restart_needed
        assert host.commands == []
        assert under(host.root, ENABLED).read_text() == marker_text("host")
        assert ids(host.enable(mode="host")) == []
        assert ids(host.disable()) == ["remove-marker"]
        end_process(host.root, 700)
        under(host.root, "/proc").rmdir() if "proc" not in before else None
        assert host.tree() == before

    def test_it_needs_no_launcher(self, host):
        host.remove(LAUNCHER)
        assert host.enable(mode="host").steps

    def test_status_shows_it_and_asks_for_a_policy(self, host):
        host.enable(mode="host")
        status = read_status(host.root)
        assert status.mode == "host"
        assert status.advice == (
            Advice(
                "No policy is loaded, so VDSM's hooks only refuse what InfiniBand "
                "cannot do",
                "ovirt-rdma-host policy load",
            ),
        )
        host.load()
        assert read_status(host.root).advice == ()

    @pytest.mark.parametrize("mode", MODES)
    def test_the_daemon_runs_while_the_host_is_enabled(self, host, mode):
        host.write(DAEMON_FILE, "packaged\n")
        host.load(rdma_rule())
        assert ids(host.enable(mode=mode))[-2:] == ["write-marker", "start-daemon"]
        assert host.commands[-1] == START
        assert ids(host.enable(mode=mode)) == []
        host.daemon[1] = "failed"
        assert ids(host.enable(mode=mode)) == ["start-daemon"]
        assert ids(host.disable())[-2:] == ["remove-marker", "stop-daemon"]
        assert host.commands[-1] == STOP

    def test_a_daemon_that_the_administrator_masked_stays_off(self, host):
        host.write(DAEMON_FILE, "packaged\n")
        host.daemon[0] = "masked"
        assert "start-daemon" not in ids(host.enable())

    def test_a_launcher_of_before_is_told(self, host):
        host.process(700, *OURS)
        assert host.enable(mode="host").restart_needed


class TestStatus:
    def test_a_host_with_the_package_only(self, host):
        status = read_status(host.root)
        assert status.document() == {
            "enabled": {
                "mode": None,
                "marker": "absent",
                "link": "absent",
                "overrides": (),
            },
            "package": {"launcher": True, "dropin": True},
            "running": None,
            "policy": {
                "loaded": False,
                "digest": None,
                "source": None,
                "loaded_at": None,
                "rules": 0,
                "problem": None,
                "fix": "",
                "copy_problem": None,
            },
            "advice": [],
        }
        json.dumps(status.document())

    def test_all_in_order(self, host):
        host.enable()
        host.process(700, *OURS)
        policy = policy_of(NfsRule(1, "rule 1", "nas", "*", "tcp"))
        store(policy, "p.yaml", under(host.root, POLICY_JSON))
        status = read_status(host.root)
        assert status.mode == "vdsmd"
        assert (status.state.process.pid, status.state.process.program) == (
            700,
            "launcher",
        )
        assert status.document()["policy"]["rules"] == 1
        assert status.policy.stored.digest == digest(policy)
        assert status.advice == ()

    @pytest.mark.parametrize(
        ("argv", "program"),
        [
            (STOCK, "stock"),
            (OURS, "launcher"),
            (("/usr/bin/python3", "-s", LAUNCHER), "launcher"),
            (("/usr/bin/python3.9", STOCK_VDSMD), "stock"),
            (("/usr/bin/python3", ADAPTER, "-0", "/dev/null", LAUNCHER), None),
            (("vim", LAUNCHER), None),
            (("/usr/bin/python3", "/usr/libexec/vdsm/supervdsmd"), None),
            (("/usr/bin/python3",), None),
            (("",), None),
        ],
    )
    def test_which_vdsmd_runs(self, host, argv, program):
        host.write("/proc/self/cmdline", "x")
        host.write("/proc/1/cmdline", "/sbin/init\0")
        under(host.root, "/proc/2").mkdir()
        host.process(700, *argv)
        running = read_status(host.root).state.process
        assert (running.program if running else None) == program

    @pytest.mark.parametrize(
        ("user", "program"),
        [
            (1000, "/usr/bin/python3.9"),
            (0, "/usr/bin/python3.9"),
            ("1000\t36\t36\t36", "/usr/bin/python3.9"),
            (VDSM, "/usr/bin/cat"),
        ],
        ids=["a user's", "root's", "set-user-ID", "another program"],
    )
    def test_a_process_with_vdsmds_words_is_not_taken_for_it(self, host, user, program):
        """Any user could have hidden by one what the running vdsmd is."""
        run_process(host.root, 699, *OURS, user=user, program=program)
        assert read_status(host.root).state.process is None
        host.process(700, *STOCK)
        assert read_status(host.root).state.process.pid == 700

    def test_who_may_not_see_what_vdsmd_executes_believes_its_user(self, host):
        host.process(700, *STOCK)
        host.remove("/proc/700/exe")
        assert read_status(host.root).state.process.pid == 700

    def advice(self, host):
        return read_status(host.root).advice

    def test_enabled_but_not_restarted_and_without_policy(self, host):
        host.enable()
        host.process(700, *STOCK)
        assert self.advice(host) == (
            Advice(
                "Enabled, but the running vdsmd is stock",
                "systemctl restart vdsmd; if it stays stock, the launcher has logged "
                "why: journalctl -t vdsmd",
            ),
            Advice(
                "No policy is loaded, so NFS mounts are stock",
                "ovirt-rdma-host policy load",
            ),
        )

    def test_a_host_without_vdsm_is_one_sentence(self, host):
        host.remove(STOCK_VDSMD)
        (said,) = host.enable().advice
        assert said.sentence.startswith(f"There is no {STOCK_VDSMD}: VDSM is not ")
        assert "install or update the package vdsm" in said.fix
        assert self.advice(host)[0] == said
        host.disable()
        assert self.advice(host) == ()

    @pytest.mark.parametrize(
        ("argv", "text", "because", "version"),
        [
            (STOCK, f"700 stock {BECAUSE}\n", BECAUSE, None),
            (OURS, "700 launcher 0.1.9\n", None, "0.1.9"),
            # Of another start, or damaged.
            *(
                (STOCK, text, None, None)
                for text in (
                    *("", "701 stock earlier", "700", "700 ", "700 stock "),
                    *("700 launcher 0.2.0", "\udcff", "x" * 2_000_000),
                )
            ),
            *(
                (OURS, text, None, None)
                for text in (
                    *("", "701 launcher 0.1.9", "700 stock 0.1.9", "700 launcher "),
                    *("700 launcher newest", "700 launcher 0.1.9 x"),
                    *("700 launcher 1\x1b[1m", f"700 launcher 0.{'1' * 100}"),
                )
            ),
        ],
    )
    def test_what_the_launcher_noted(self, host, argv, text, because, version):
        host.enable()
        host.process(700, *argv)
        host.write(STARTED, "")
        data = text.encode("utf-8", "surrogateescape")
        under(host.root, STARTED).write_bytes(data)
        status = read_status(host.root)
        process = status.state.process
        assert (process.because, process.version) == (because, version)
        if because:
            assert status.advice[0] == Advice(
                f"Enabled, but the launcher started stock vdsmd: {because}",
                "solve that, then: systemctl restart vdsmd",
            )

    def test_a_pipe_in_place_of_the_reason_does_not_hang(self, host):
        host.enable()
        host.process(700, *STOCK)
        under(host.root, STARTED).parent.mkdir(parents=True)
        os.mkfifo(under(host.root, STARTED))
        assert read_status(host.root).state.process.because is None

    def test_vdsmd_is_looked_for_where_the_launcher_noted_it(self, host, monkeypatch):
        """The exporter reads it every 15 s: not of all processes."""
        for pid in (600, 700):
            host.process(pid, *OURS)
        host.write(STARTED, "700 launcher 0.1.9\n")
        read = []
        data = FileTree.data

        def watched(tree, path, *rest, **keys):
            read.append(path)
            return data(tree, path, *rest, **keys)

        monkeypatch.setattr(FileTree, "data", watched)
        assert vdsmd_process(host.root).pid == 700
        assert "/proc/600/cmdline" not in read
        host.process(700, "/usr/bin/python3", "/usr/bin/other")
        assert vdsmd_process(host.root) == VdsmdProcess(600, "launcher")

    def test_disabled_but_not_restarted(self, host):
        host.process(700, *OURS)
        assert self.advice(host) == (
            Advice(
                "Not enabled, but the running vdsmd was started by the launcher",
                "systemctl restart vdsmd",
            ),
        )

    def test_half_enabled(self, host):
        host.write(ENABLED, marker_text("vdsmd"))
        assert self.advice(host)[0] == Advice(
            f"{ENABLED} exists and {DROPIN_LINK} does not: an enable or disable was "
            "interrupted",
            "run it again: ovirt-rdma-host enable --mode vdsmd, or disable",
        )
        assert read_status(host.root).mode is None

    def test_a_package_that_vanished_while_enabled(self, host):
        host.enable()
        host.remove(LAUNCHER)
        assert Advice(
            f"{LAUNCHER} is missing", "install the package ovirt-rdma-host again"
        ) in self.advice(host)

    def test_another_override_that_came_later(self, host):
        host.enable()
        host.write(OTHER_DROPIN, "[Service]\nExecStart=/x\n")
        assert any(
            advice.sentence.startswith(f"{OTHER_DROPIN} replaces vdsmd's ExecStart")
            for advice in self.advice(host)
        )

    def test_nfs_options_of_vdsm_conf_count_only_where_the_launcher_runs(self, host):
        host.write(VDSM_CONF, "[irs]\nnfs_mount_options = soft\n")
        assert self.advice(host) == ()
        host.enable()
        sentence = self.advice(host)[-1].sentence
        assert sentence.startswith("vdsm.conf sets the deprecated nfs_mount_options")
        host.write(VDSM_CONF, "no section")
        sentence = self.advice(host)[-1].sentence
        assert sentence.startswith("vdsm.conf or a drop-in of it cannot be read: ")

    def test_a_broken_policy_is_not_loaded_and_says_why(self, host):
        host.write(POLICY_JSON, "{")
        status = read_status(host.root)
        assert status.policy.stored is None
        assert "the stored policy is invalid" in str(status.policy.problem)
        assert "ovirt-rdma-host policy load" in status.advice[0].fix


SUPERVDSMD = ("/usr/bin/python3", "/usr/libexec/vdsm/supervdsmd")
VIRTD = "system_u:system_r:virtd_t:s0-s0:c0.c1023"
SERVICE = "system_u:system_r:unconfined_service_t:s0"


class TestSELinux:
    """vdsmd is in another SELinux domain than supervdsmd."""

    @pytest.fixture
    def wrong(self, host):
        host.load(rdma_rule())
        host.enable()
        host.write("/sys/fs/selinux/enforce", "1")
        self.run(host, 699, VIRTD, SUPERVDSMD)
        self.run(host, 700, SERVICE, OURS)
        host.commands.clear()
        return host

    def run(self, host, pid, context, argv):
        host.process(pid, *argv)
        host.write(f"/proc/{pid}/attr/current", f"{context}\0")

    def advice(self, host):
        return read_status(host.root).advice

    def test_status_says_it_and_what_to_do(self, wrong):
        (advice,) = self.advice(wrong)
        assert f"vdsmd runs in the SELinux context {SERVICE}" in advice.sentence
        assert f"not as supervdsmd in {VIRTD}: if storage" in advice.sentence
        assert advice.fix.startswith("systemctl daemon-reload, then systemctl restart")

    def test_another_level_alone_counts(self, wrong):
        self.run(wrong, 700, "system_u:system_r:virtd_t:s0", OURS)
        assert len(self.advice(wrong)) == 1

    def test_stock_by_way_of_the_drop_in_counts(self, wrong):
        self.run(wrong, 700, SERVICE, STOCK)
        assert any("SELinux context" in a.sentence for a in self.advice(wrong))

    def test_permissive_says_that_nothing_comes_of_it_yet(self, wrong):
        wrong.write("/sys/fs/selinux/enforce", "0")
        (advice,) = self.advice(wrong)
        assert "no effect while SELinux is permissive" in advice.sentence

    def test_off_is_nothing_to_say(self, wrong):
        wrong.remove("/sys/fs/selinux/enforce")
        assert self.advice(wrong) == ()

    @pytest.mark.parametrize("context", [VIRTD, SERVICE])
    def test_the_same_context_is_right_whichever_it_is(self, wrong, context):
        """Before May 2022 stock vdsmd is not in virtd_t either."""
        self.run(wrong, 699, context, SUPERVDSMD)
        self.run(wrong, 700, context, OURS)
        assert self.advice(wrong) == ()

    @pytest.mark.parametrize("pid", [699, 700])
    def test_one_that_does_not_run_is_nothing_to_say(self, wrong, pid):
        wrong.remove(f"/proc/{pid}/cmdline")
        assert not any("SELinux" in a.sentence for a in self.advice(wrong))

    def test_without_us_it_is_not_ours_to_judge(self, wrong):
        wrong.disable()
        self.run(wrong, 700, SERVICE, STOCK)
        assert self.advice(wrong) == ()

    def test_enable_says_it_and_changes_nothing(self, wrong):
        result = wrong.enable()
        assert (result.steps, wrong.commands) == ((), [])
        assert result.advice == self.advice(wrong)


HOOK = "/usr/libexec/vdsm/hooks/before_network_setup/50_ovirt_rdma"


class TestFapolicyd:
    """fapolicyd trusts files that an RPM owns or a trust file names."""

    @pytest.fixture
    def fapolicyd(self, host):
        host.write(
            "/etc/fapolicyd/fapolicyd.conf", "permissive = 0\nintegrity = none\n"
        )
        host.write(HOOK, "hook\n")
        host.trusted = [LAUNCHER, HOOK, LOADED]
        return host

    def test_what_is_trusted_is_enabled(self, fapolicyd):
        assert fapolicyd.enable().steps

    @pytest.mark.parametrize(
        "mode, path, added",
        [
            ("vdsmd", LAUNCHER, LAUNCHER),
            ("vdsmd", HOOK, HOOK),
            ("host", HOOK, HOOK),
            # The user vdsm may open only trusted Python files.
            ("vdsmd", LOADED, PACKAGE),
        ],
    )
    def test_what_is_not_trusted_is_refused(self, fapolicyd, mode, path, added):
        fapolicyd.trusted.remove(path)
        before = fapolicyd.tree()
        with problem("fapolicyd-untrusted", f"does not trust {added}: ") as caught:
            fapolicyd.enable(mode)
        add = f"fapolicyd-cli --file add {added} --trust-file ovirt-rdma"
        assert caught.value.fix.endswith(f"{add}; fapolicyd-cli --update")
        assert fapolicyd.tree() == before

    def test_what_stands_for_the_package_is_a_file_of_it(self):
        """`--file add` of another folder would leave it refused for ever."""
        module = importlib.util.find_spec("ovirt_rdma.storage.vdsm.launch")
        assert Path(LOADED).samefile(module.origin)
        assert Path(PACKAGE, "host/services/enablement.py").samefile(
            enablement.__file__
        )

    @pytest.mark.parametrize("integrity", ["size", "ima", "sha256"])
    def test_a_trusted_file_that_changed_is_refused(self, fapolicyd, integrity):
        """fapolicyd 1.4.5 refused it to vdsm, and --file add found nothing to add."""
        conf = f"permissive = 0\nintegrity = {integrity}\n"
        fapolicyd.write("/etc/fapolicyd/fapolicyd.conf", conf)
        fapolicyd.write(HOOK, "x" * fapolicyd.size)
        assert fapolicyd.enable("host").steps
        fapolicyd.disable()
        fapolicyd.write(HOOK, "x" * (fapolicyd.size + 1))
        with problem("fapolicyd-untrusted", f"does not trust {HOOK}: ") as caught:
            fapolicyd.enable("host")
        assert "--file update for a file that was added before it" in caught.value.fix

    def test_mode_host_needs_no_trusted_launcher(self, fapolicyd):
        fapolicyd.trusted.remove(LAUNCHER)
        fapolicyd.trusted.remove(LOADED)
        assert fapolicyd.enable("host").steps

    def test_disable_needs_no_trust(self, fapolicyd):
        fapolicyd.enable()
        fapolicyd.trusted.clear()
        assert fapolicyd.disable().steps

    def test_not_running_permissive_or_mute_is_no_reason(self, fapolicyd):
        fapolicyd.trusted.clear()
        for fapolicyd.fapolicyd in ("inactive", "mute"):
            assert fapolicyd.enable().steps
            fapolicyd.disable()
        fapolicyd.fapolicyd = "active"
        fapolicyd.write("/etc/fapolicyd/fapolicyd.conf", "permissive = 1\n")
        assert fapolicyd.enable().steps
