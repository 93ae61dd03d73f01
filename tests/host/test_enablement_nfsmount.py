# SPDX-License-Identifier: GPL-2.0-or-later
"""Mode nfsmount on and off, its file kept up to date, and what status says."""

import json
from dataclasses import asdict
from itertools import permutations

import pytest
from host_fake_enablement import Host, policy_of, rdma_rule

from ovirt_rdma.host.commands import CommandFailed
from ovirt_rdma.host.enablement import enable, file_for, write_file
from ovirt_rdma.host.enablement_advice import Advice
from ovirt_rdma.host.enablement_refusals import EnablementRefused
from ovirt_rdma.host.enablement_state import MODES
from ovirt_rdma.host.enablement_status import Nfsmount, read_status
from ovirt_rdma.host.nfsmount_conf import NfsmountRefused
from ovirt_rdma.host.paths import (
    DROPIN_DIRECTORY,
    DROPIN_LINK,
    DROPIN_SOURCE,
    ENABLED,
    LAUNCHER,
    NFSMOUNT_CONF,
    NFSMOUNT_DIRECTORY,
    NFSMOUNT_FILE,
    NFSMOUNT_SAVED,
    POLICY_JSON,
    STOCK_VDSMD,
    VDSM_CONF,
    under,
)

STOCK = ("/usr/bin/python3", STOCK_VDSMD)
OURS = ("/usr/bin/python3", LAUNCHER)


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def ids(result):
    return [step.id for step in result.steps]


NFSMOUNT = "nfsmount"


class TestNfsmountMode:
    def test_the_file_says_what_the_policy_says(self, host):
        host.load(rdma_rule())
        result = host.enable(NFSMOUNT)
        text = under(host.root, NFSMOUNT_FILE).read_text()
        assert (
            '[ MountPoint "/rhev/data-center/mnt/10.0.0.1:_vm" ]\nProto=rdma\n' in text
        )
        assert ids(result) == [
            "write-folder-note",
            "write-nfsmount-conf",
            "write-marker",
        ]
        assert under(host.root, ENABLED).read_text().endswith("mode: nfsmount\n")
        assert under(host.root, NFSMOUNT_FILE).stat().st_mode & 0o777 == 0o644
        assert under(host.root, NFSMOUNT_DIRECTORY).stat().st_mode & 0o777 == 0o755

    def test_systemd_and_vdsmd_are_left_alone(self, host):
        host.process(700, *STOCK)
        assert not host.enable(NFSMOUNT, restart_vdsmd=True).restart_needed
        assert not host.disable(restart_vdsmd=True).restart_needed
        assert host.commands == []

    def test_a_vdsmd_that_the_launcher_started_must_go(self, host):
        host.process(700, *OURS)
        assert host.enable(NFSMOUNT).restart_needed
        assert ids(host.enable(NFSMOUNT, restart_vdsmd=True)) == ["restart-vdsmd"]

    def test_a_second_run_changes_nothing(self, host):
        host.load(rdma_rule())
        host.enable(NFSMOUNT)
        before = host.tree()
        assert not host.enable(NFSMOUNT).changed
        assert host.tree() == before

    def test_the_package_need_not_be_whole(self, host):
        host.remove(LAUNCHER)
        host.remove(DROPIN_SOURCE)
        assert host.enable(NFSMOUNT).changed

    @pytest.mark.parametrize("first, second", list(permutations(MODES, 2)))
    def test_only_one_mode(self, host, first, second):
        host.enable(first)
        host.commands.clear()
        before = host.tree()
        with pytest.raises(EnablementRefused) as caught:
            host.enable(second)
        assert str(caught.value) == f"mode {first} is on, and only one mode can be"
        assert caught.value.fix == (
            f"ovirt-rdma-host disable, then ovirt-rdma-host enable --mode {second}"
        )
        assert host.tree() == before
        host.disable()
        assert host.enable(second).changed

    def test_a_policy_that_does_not_fit_changes_nothing(self, host):
        host.load(rdma_rule(path="*"))
        before = host.tree()
        with pytest.raises(NfsmountRefused):
            host.enable(NFSMOUNT)
        assert host.tree() == before

    @pytest.mark.parametrize("verb", ["enable", "disable"])
    @pytest.mark.parametrize("kind", ["file", "link", "folder"])
    def test_what_is_not_ours_stays(self, host, verb, kind):
        if verb == "disable":
            host.enable(NFSMOUNT)
            host.remove(NFSMOUNT_FILE)
        if kind == "file":
            host.write(NFSMOUNT_FILE, "[ NFSMount_Global_Options ]\nsoft=True\n")
        elif kind == "link":
            host.link(NFSMOUNT_FILE, "/nowhere")
        else:
            under(host.root, NFSMOUNT_FILE).mkdir(parents=True)
        before = host.tree()
        with pytest.raises(EnablementRefused) as caught:
            host.enable(NFSMOUNT) if verb == "enable" else host.disable()
        assert str(caught.value) == f"{NFSMOUNT_FILE} is there already and is not ours"
        assert host.tree() == before

    def test_the_file_of_another_is_no_matter_of_mode_vdsmd(self, host):
        host.write(NFSMOUNT_FILE, "# of another\n")
        before = host.tree()
        host.enable()
        host.disable()
        assert host.tree() == before

    @pytest.mark.parametrize("kind", ["folder link", "file", "link"])
    def test_what_stands_in_place_of_mode_vdsmd_does_not_matter(self, host, kind):
        host.load(rdma_rule())
        if kind == "folder link":
            host.link(DROPIN_DIRECTORY, "/usr/lib/systemd/system/vdsmd.service.d")
        elif kind == "file":
            host.write(DROPIN_LINK, "# of another\n")
        else:
            host.link(DROPIN_LINK, "/nowhere")
        under(host.root, NFSMOUNT_DIRECTORY).mkdir()
        before = host.tree()
        host.enable(NFSMOUNT)
        host.disable()
        assert host.tree() == before

    def test_disable_leaves_the_tree_as_before(self, host):
        host.write(f"{NFSMOUNT_DIRECTORY}/other.conf", "# mine\n")
        host.load(rdma_rule())
        before = host.tree()
        host.enable(NFSMOUNT)
        result = host.disable()
        assert host.tree() == before
        assert ids(result) == ["remove-nfsmount-conf", "remove-marker"]
        assert not host.disable().changed


class TestAnEditedFile:
    @pytest.fixture
    def edited(self, host):
        host.load(rdma_rule())
        host.enable(NFSMOUNT)
        path = under(host.root, NFSMOUNT_FILE)
        path.write_text(path.read_text() + "rsize=4096\n")
        return host

    def test_enable_and_policy_load_do_not_overwrite_it(self, edited):
        before = edited.tree()
        for run in (
            lambda: edited.enable(NFSMOUNT),
            lambda: file_for(policy_of(), edited.root, edited.run),
        ):
            with pytest.raises(EnablementRefused) as caught:
                run()
            assert str(caught.value) == (
                f"{NFSMOUNT_FILE} was edited since ovirt-rdma-host wrote it"
            )
            assert edited.tree() == before

    def test_disable_keeps_it_where_mount_nfs_does_not_read_it(self, edited):
        text = under(edited.root, NFSMOUNT_FILE).read_text()
        result = edited.disable()
        assert ids(result) == [
            "save-nfsmount-conf",
            "remove-folder-note",
            "remove-marker",
        ]
        assert not under(edited.root, NFSMOUNT_FILE).exists()
        assert under(edited.root, NFSMOUNT_SAVED).read_text() == text
        assert not edited.disable().changed

    def test_a_copy_kept_earlier_is_not_overwritten(self, edited):
        edited.write(NFSMOUNT_SAVED, "earlier")
        before = edited.tree()
        with pytest.raises(EnablementRefused) as caught:
            edited.disable()
        assert f"{NFSMOUNT_SAVED}, which is there already" in str(caught.value)
        assert edited.tree() == before

    def test_status_says_so(self, edited):
        status = read_status(edited.root, run=edited.run)
        assert status.enabled.mode == NFSMOUNT
        assert status.enabled.conf == "edited"
        assert status.nfsmount is None
        assert status.advice[0].sentence.startswith(f"{NFSMOUNT_FILE} was edited")


class TestPolicyLoadInModeNfsmount:
    def test_the_file_follows(self, host):
        host.load(rdma_rule())
        host.enable(NFSMOUNT)
        wanted = file_for(policy_of(rdma_rule(path="/new")), host.root, host.run)
        assert "_new" not in under(host.root, NFSMOUNT_FILE).read_text()
        assert ids(write_file(wanted, host.root, host.run)) == ["write-nfsmount-conf"]
        assert "_new" in under(host.root, NFSMOUNT_FILE).read_text()
        assert ids(write_file(wanted, host.root, host.run)) == []

    def test_a_file_that_is_missing_comes_back(self, host):
        host.load(rdma_rule())
        host.enable(NFSMOUNT)
        enabled = host.tree()
        host.remove(NFSMOUNT_FILE)
        write_file(file_for(policy_of(rdma_rule()), host.root, host.run), host.root)
        assert host.tree() == enabled

    def test_a_disable_that_came_between_stays(self, host):
        host.load(rdma_rule())
        before = host.tree()
        host.enable(NFSMOUNT)
        wanted = file_for(policy_of(rdma_rule()), host.root, host.run)
        host.disable()
        assert not write_file(wanted, host.root, host.run).changed
        assert host.tree() == before

    def test_other_modes_do_not_care(self, host):
        anything = policy_of(rdma_rule(path="*"))
        assert file_for(anything, host.root, host.run) is None
        host.enable()
        assert file_for(anything, host.root, host.run) is None

    def test_a_policy_that_does_not_fit(self, host):
        host.enable(NFSMOUNT)
        with pytest.raises(NfsmountRefused):
            file_for(policy_of(rdma_rule(path="*")), host.root, host.run)

    def test_a_load_does_not_complete_an_interrupted_enable(self, host):
        host.enable(NFSMOUNT)
        host.remove(ENABLED)
        wanted = file_for(policy_of(rdma_rule()), host.root, host.run)
        assert ids(write_file(wanted, host.root, host.run)) == ["write-nfsmount-conf"]
        assert not under(host.root, ENABLED).exists()


class TestSectionsThatClash:
    """nfs-utils up to 2.8.2 keeps the last of several MountPoint sections."""

    RULES = (rdma_rule(1, "/a"), rdma_rule(2, "/b"))

    def test_two_exports_of_ours(self, host):
        host.load(*self.RULES)
        host.sections_clash = True
        before = host.tree()
        with pytest.raises(NfsmountRefused) as caught:
            host.enable(NFSMOUNT)
        assert str(caught.value) == (
            "mount.nfs of this host keeps only the last of several sections of one "
            'kind, and would not read: [mountpoint "/rhev/data-center/mnt/10.0.0.1:_a"]'
        )
        assert "2.8.3" in caught.value.fix
        assert host.tree() == before
        host.sections_clash = False
        assert host.enable(NFSMOUNT).changed

    @pytest.mark.parametrize("name", ["10-other.conf", "90-other.conf"])
    def test_a_section_of_another_is_not_taken_away_either(self, host, name):
        host.load(rdma_rule())
        host.write(
            f"{NFSMOUNT_DIRECTORY}/{name}", '[ MountPoint "/home" ]\nProto=tcp\n'
        )
        host.sections_clash = True
        with pytest.raises(NfsmountRefused) as caught:
            host.enable(NFSMOUNT)
        lost = "/home" if name < "50" else "/rhev/data-center/mnt/10.0.0.1:_vm"
        assert f'would not read: [mountpoint "{lost}"]' in str(caught.value)

    def test_one_export_beside_sections_of_another_kind(self, host):
        host.load(rdma_rule())
        host.write(NFSMOUNT_CONF, '[ Server "nas" ]\nProto=tcp\n[ nfsmount ]\na=b\n')
        host.sections_clash = True
        assert host.enable(NFSMOUNT).changed

    def test_a_host_without_nfsconf(self, host):
        def run(argv):
            raise CommandFailed("No such file or directory")

        with pytest.raises(NfsmountRefused) as caught:
            enable(host.root, mode=NFSMOUNT, run=run)
        assert "nfsconf failed: No such file or directory" in str(caught.value)
        assert "nfs-utils" in caught.value.fix

    def test_status_sees_a_section_that_came_later(self, host):
        host.load(rdma_rule())
        host.sections_clash = True
        host.enable(NFSMOUNT)
        host.write(f"{NFSMOUNT_DIRECTORY}/60-x.conf", '[MountPoint "/x"]\nProto=tcp\n')
        status = read_status(host.root, run=host.run)
        assert status.nfsmount == Nfsmount(NFSMOUNT_FILE, 1, as_policy=False)
        assert status.advice[0].sentence.startswith("mount.nfs does not read [mountpo")


class TestVdsmThatMountsElsewhere:
    ELSEWHERE = "[irs]\nrepository = /data\n"

    def test_enable_and_policy_load_refuse(self, host):
        host.load(rdma_rule())
        host.write(VDSM_CONF, self.ELSEWHERE)
        before = host.tree()
        with pytest.raises(NfsmountRefused) as caught:
            host.enable(NFSMOUNT)
        assert "[irs] repository, so VDSM mounts below /data/mnt" in str(caught.value)
        assert "grep -r repository /etc/vdsm" in caught.value.fix
        assert host.tree() == before
        host.remove(VDSM_CONF)
        host.enable(NFSMOUNT)
        host.write(VDSM_CONF, self.ELSEWHERE)
        with pytest.raises(NfsmountRefused):
            file_for(policy_of(rdma_rule()), host.root, host.run)

    def test_a_broken_vdsm_conf_is_refused_too(self, host):
        host.write(VDSM_CONF, "no section")
        with pytest.raises(NfsmountRefused) as caught:
            host.enable(NFSMOUNT)
        assert "vdsm.conf or a drop-in of it cannot be read" in str(caught.value)

    def test_mode_vdsmd_and_disable_do_not_care(self, host):
        host.enable(NFSMOUNT)
        host.write(VDSM_CONF, self.ELSEWHERE)
        assert host.disable().changed
        assert host.enable().changed

    @pytest.mark.parametrize(
        "conf, start",
        [
            (ELSEWHERE, "vdsm.conf sets [irs] repository, so VDSM mounts below"),
            ("no section", "vdsm.conf or a drop-in of it cannot be read: "),
        ],
    )
    def test_status_tells_of_what_came_later(self, host, conf, start):
        host.load(rdma_rule())
        host.enable(NFSMOUNT)
        host.write(VDSM_CONF, conf)
        status = read_status(host.root, run=host.run)
        assert [advice.sentence.startswith(start) for advice in status.advice] == [True]
        assert not status.nfsmount.as_policy


class TestStatusInModeNfsmount:
    def test_all_in_order(self, host):
        host.load(rdma_rule(1, "/a"), rdma_rule(2, "/b"))
        host.enable(NFSMOUNT)
        host.process(700, *STOCK)
        status = read_status(host.root, run=host.run)
        assert (status.enabled.mode, status.enabled.conf) == (NFSMOUNT, "ours")
        assert status.nfsmount == Nfsmount(NFSMOUNT_FILE, 2, as_policy=True)
        assert status.advice == ()
        json.dumps(asdict(status))

    def test_names_are_not_looked_up(self, host):
        host.load(rdma_rule(server="nas"), rdma_rule(2, server="nas6"))
        addresses = {"nas": ("10.0.0.1",), "nas6": ("fd00::1",)}
        host.enable(NFSMOUNT, resolve=addresses.__getitem__)
        status = read_status(host.root, run=host.run)
        assert status.nfsmount.as_policy
        assert status.advice == ()

    def test_el9_needs_no_port(self, host):
        # Its kernel has the default port, so that proto=tcp is still mounted over TCP.
        host.write("/proc/sys/kernel/osrelease", "5.14.0-503.el9.x86_64\n")
        host.load(rdma_rule())
        host.enable(NFSMOUNT)
        assert "Port" not in under(host.root, NFSMOUNT_FILE).read_text()

    def test_a_file_that_is_out_of_date(self, host):
        host.load(rdma_rule())
        host.enable(NFSMOUNT)
        host.load(rdma_rule(path="/new"))
        status = read_status(host.root, run=host.run)
        assert not status.nfsmount.as_policy
        assert status.advice == (
            Advice(
                f"{NFSMOUNT_FILE} is not what the policy in force says",
                "ovirt-rdma-host enable --mode nfsmount",
            ),
        )
        host.enable(NFSMOUNT)
        assert read_status(host.root, run=host.run).advice == ()

    def test_a_policy_that_came_into_force_elsewhere_and_does_not_fit(self, host):
        host.load(rdma_rule())
        host.enable(NFSMOUNT)
        host.load(rdma_rule(path="*"))
        (advice,) = read_status(host.root, run=host.run).advice
        assert advice.sentence.startswith("The policy in force does not fit mode nfs")

    @pytest.mark.parametrize(
        "gone, left", [(ENABLED, NFSMOUNT_FILE), (NFSMOUNT_FILE, ENABLED)]
    )
    def test_half_enabled(self, host, gone, left):
        host.load(rdma_rule())
        host.enable(NFSMOUNT)
        host.remove(gone)
        status = read_status(host.root, run=host.run)
        assert status.enabled.mode is None
        assert status.advice[0] == Advice(
            f"{left} is there and {gone} is not: an enable or disable was interrupted",
            "run it again: ovirt-rdma-host enable --mode nfsmount, or disable",
        )

    def test_no_policy(self, host):
        host.enable(NFSMOUNT)
        (advice,) = read_status(host.root, run=host.run).advice
        assert advice.sentence == "No policy is loaded, so NFS mounts are stock"

    def test_a_broken_policy(self, host):
        host.load(rdma_rule())
        host.enable(NFSMOUNT)
        host.write(POLICY_JSON, "{")
        (advice,) = read_status(host.root, run=host.run).advice
        assert advice.sentence.endswith(f"mount.nfs goes on with {NFSMOUNT_FILE}")
