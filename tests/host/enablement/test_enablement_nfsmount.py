# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts on which an earlier version enabled mode nfsmount.

``tests/data/hosts-in-mode-nfsmount.json`` has the files that that version, at commit
68ac580, added to a host: each path with its text, None for a folder. Some of its runs
were killed.
"""

import json
from pathlib import Path

import pytest
from support.fakes.fake_enablement import Host, killed_at_step, rdma_rule
from support.problems import problem

from ovirt_rdma.host.enablement.state import MODES, EnablementRefused
from ovirt_rdma.host.enablement.status import read_status
from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.paths import (
    ENABLED,
    NFSMOUNT_DIRECTORY,
    NFSMOUNT_FILE,
    NFSMOUNT_SAVED,
    POLICY_JSON,
    STOCK_VDSMD,
    under,
)
from ovirt_rdma.host.services.capabilities import has_features

pytestmark = pytest.mark.hypervisor

DATA = Path(__file__).parents[2] / "data" / "hosts-in-mode-nfsmount.json"
WRITTEN = json.loads(DATA.read_text(encoding="utf-8"))
OTHER = f"{NFSMOUNT_DIRECTORY}/other.conf"
# The cases in which the file or the marker exists.
ON = [case for case in WRITTEN if {NFSMOUNT_FILE, ENABLED} & {*WRITTEN[case]}]
# disable takes four steps, and one more for each thing that a killed run left.
MOST_STEPS = 6


@pytest.fixture
def host(tmp_path):
    host = Host(tmp_path)
    host.load(rdma_rule())
    return host


def bring_to(host, case):
    """Add the files of the earlier version; return the tree before."""
    if "folder there before" in case:
        host.write(OTHER, "# mine\n")
    before = host.tree()
    for path, text in WRITTEN[case].items():
        place = under(host.root, path)
        if text is None:
            place.mkdir(0o755)
        else:
            place.write_text(text, encoding="utf-8")
            place.chmod(0o644)
    return before


def ids(result):
    return [step.id for step in result.steps]


def edit(host, more=b"rsize=4096\n# \xff\n"):
    """Append lines of the operator to the file; return the whole text."""
    path = under(host.root, NFSMOUNT_FILE)
    path.write_bytes(path.read_bytes() + more)
    return path.read_bytes()


def refused(host, run):
    before = host.tree()
    with pytest.raises(EnablementRefused) as caught:
        run()
    assert caught.value.exit_code == 4
    assert host.tree() == before
    return caught.value


class TestDisable:
    @pytest.mark.parametrize("case", WRITTEN)
    def test_the_host_is_as_before(self, host, case):
        before = bring_to(host, case)
        assert host.disable().changed
        assert host.tree() == before
        assert not host.disable().changed

    @pytest.mark.parametrize("case", WRITTEN)
    def test_killed_before_each_step_and_run_again(self, tmp_path_factory, case):
        done, killed = 0, True
        while killed:
            host = Host(tmp_path_factory.mktemp("host"))
            before = bring_to(host, case)
            killed = killed_at_step(host.disable, done)
            assert host.disable().changed == killed
            assert host.tree() == before
            done += 1
        assert 1 < done <= MOST_STEPS + 1

    @pytest.mark.parametrize("case", ["enabled", "enabled, folder there before"])
    def test_an_edited_file_is_kept_where_mount_nfs_does_not_read_it(
        self, tmp_path_factory, case
    ):
        done, killed = 0, True
        while killed:
            host = Host(tmp_path_factory.mktemp("host"))
            before = bring_to(host, case)
            text = edit(host)
            killed = killed_at_step(host.disable, done)
            assert host.disable().changed == killed
            assert under(host.root, NFSMOUNT_SAVED).read_bytes() == text
            host.remove(NFSMOUNT_SAVED)
            if "there before" not in case:
                under(host.root, NFSMOUNT_DIRECTORY).rmdir()
            assert host.tree() == before
            done += 1
        assert done > 2

    def test_a_file_kept_earlier_is_not_overwritten(self, host):
        bring_to(host, "enabled")
        edit(host)
        host.write(NFSMOUNT_SAVED, "earlier")
        refusal = refused(host, host.disable)
        assert refusal.id == "nfsmount-conf-edited"
        assert NFSMOUNT_SAVED in str(refusal)

    @pytest.mark.parametrize("case", WRITTEN)
    def test_files_that_others_have_written_since_stay(self, host, case):
        before = bring_to(host, case)
        mine = f"{NFSMOUNT_DIRECTORY}/60-mine.conf"
        host.write(mine, "[ NFSMount_Global_Options ]\nhard=True\n")
        host.disable()
        assert under(host.root, mine).read_text().endswith("hard=True\n")
        host.remove(mine)
        if "folder there before" not in case:
            under(host.root, NFSMOUNT_DIRECTORY).rmdir()
        assert host.tree() == before

    @pytest.mark.parametrize("kind", ["file", "link", "folder"])
    def test_what_somebody_has_put_in_its_place_stays(self, host, kind):
        bring_to(host, "enabled")
        host.remove(NFSMOUNT_FILE)
        if kind == "file":
            host.write(NFSMOUNT_FILE, "[ NFSMount_Global_Options ]\nsoft=True\n")
        elif kind == "link":
            host.link(NFSMOUNT_FILE, "/nowhere")
        else:
            under(host.root, NFSMOUNT_FILE).mkdir()
        refusal = refused(host, host.disable)
        assert refusal.id == "file-not-ours"
        assert NFSMOUNT_FILE in str(refusal)

    @pytest.mark.parametrize(
        "change",
        [
            lambda text: text.replace("sha256:", "sha256:0"),
            lambda text: text[:-1],
            lambda text: "".join(text.splitlines(keepends=True)[:2]),
        ],
    )
    def test_any_change_counts_as_edited(self, host, change):
        bring_to(host, "enabled")
        path = under(host.root, NFSMOUNT_FILE)
        changed = change(path.read_text(encoding="utf-8"))
        path.write_text(changed, encoding="utf-8")
        assert read_status(host.root).enabled.conf == "edited"
        assert "save-nfsmount-conf" in ids(host.disable())
        saved = under(host.root, NFSMOUNT_SAVED).read_text(encoding="utf-8")
        assert saved == changed

    def test_systemd_and_vdsmd_are_left_alone(self, host):
        bring_to(host, "enabled")
        host.process(700, "/usr/bin/python3", STOCK_VDSMD)
        assert not host.disable(restart_vdsmd=True).restart_needed
        assert host.commands == []


class TestEnable:
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("case", ["enabled", "enable killed after step 2"])
    def test_is_refused_until_disable(self, host, mode, case):
        before = bring_to(host, case)
        refusal = refused(host, lambda: host.enable(mode))
        assert refusal.id == "other-mode-enabled"
        assert "mode nfsmount" in str(refusal)
        first, then = refusal.fix.split(", then ")
        assert first == "ovirt-rdma-host disable"
        assert then == f"ovirt-rdma-host enable --mode {mode}"
        host.disable()
        assert host.enable(mode).changed
        host.disable()
        assert host.tree() == before

    @pytest.mark.parametrize("case", [None, "enabled"])
    def test_the_mode_is_a_usage_error(self, host, case):
        if case:
            bring_to(host, case)
        before = host.tree()
        with problem("mode-removed", "mode nfsmount", "--mode") as caught:
            host.enable("nfsmount")
        assert isinstance(caught.value, UsageProblem)
        assert "ovirt-rdma domain convert NAME --to rdma --engine-options" in (
            caught.value.fix
        )
        assert host.tree() == before

    def test_a_file_of_another_is_no_matter(self, host):
        host.write(NFSMOUNT_FILE, "# of another\n")
        before = host.tree()
        assert host.enable().changed
        assert host.disable().changed
        assert host.tree() == before


class TestStatus:
    def advice(self, host):
        advice = read_status(host.root).advice
        return [a for a in advice if "Mode nfsmount" in a.sentence]

    @pytest.mark.parametrize("case", ON)
    def test_it_tells_the_mode_and_what_to_do(self, host, case):
        bring_to(host, case)
        (advice,) = self.advice(host)
        assert NFSMOUNT_FILE in advice.sentence
        assert advice.fix.startswith("ovirt-rdma-host disable, then ")
        host.disable()
        assert self.advice(host) == []

    def test_the_mode_is_named(self, host):
        assert read_status(host.root).enabled.conf == "absent"
        bring_to(host, "enabled")
        enabled = read_status(host.root).enabled
        assert (enabled.mode, enabled.conf) == ("nfsmount", "ours")
        edit(host)
        enabled = read_status(host.root).enabled
        assert (enabled.mode, enabled.conf) == ("nfsmount", "edited")
        assert len(self.advice(host)) == 1
        host.remove(ENABLED)
        assert read_status(host.root).enabled.mode is None
        assert len(self.advice(host)) == 1

    def test_a_policy_that_is_not_loaded_or_broken(self, host):
        bring_to(host, "enabled")
        host.write(POLICY_JSON, "{")
        host.remove(f"{POLICY_JSON}.last")
        advice = read_status(host.root).advice
        assert len(advice) == 2
        assert advice[1].sentence.endswith("VDSM's hooks change nothing")
        host.remove(POLICY_JSON)
        assert len(read_status(host.root).advice) == 1


def test_the_engine_is_told_of_the_feature_until_disable(host):
    bring_to(host, "enabled")
    assert has_features(host.root)
    host.disable()
    assert not has_features(host.root)
