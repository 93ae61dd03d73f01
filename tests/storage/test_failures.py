# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.storage.messages import MOUNT, classify, known_in


@pytest.mark.parametrize(
    "text, about_export, about_server, fix",
    [
        (b"mount.nfs: Connection refused\n", False, True, "rdma=y"),
        (b"mount.nfs: Protocol error\n", False, True, "RDMA netdev"),
        (b"mount.nfs: Connection timed out\n", False, True, "ACTIVE"),
        (b"mount.nfs: No route to host\n", False, True, "network"),
        (b"mount.nfs: Network is unreachable\n", False, True, "network attachment"),
        (b"mount.nfs: an incorrect mount option was specified\n", False, False,
         "modprobe rpcrdma"),
        (b"mount.nfs: access denied by server while mounting s:/e\n", True, False,
         "exports"),
        (b"mount.nfs: mounting s:/e failed, reason given by server: "
         b"No such file or directory\n", True, False, "exports"),
        (b"mount.nfs: No such device\n", False, True, "loopback"),
    ],
)  # fmt: skip
def test_known_texts(text, about_export, about_server, fix):
    failure = classify(text, over_rdma=True)
    assert failure.about_export is about_export
    assert failure.about_server is about_server
    assert fix in failure.fix
    assert failure.text == text.decode().strip()


@pytest.mark.parametrize("text", [b"Connection refused", b"Protocol error"])
def test_tcp_gets_no_advice_about_rdma(text):
    failure = classify(b"mount.nfs: " + text, over_rdma=False)
    assert "rdma" not in (failure.fix + failure.meaning).lower()


# The last one is of nfs-utils 2.8, where a mount point follows.
FOLLOWED = ("", " for /x", " for 10.20.0.1:/x on /x")


@pytest.mark.parametrize("after", FOLLOWED)
@pytest.mark.parametrize("over_rdma", [True, False])
@pytest.mark.parametrize(
    "text, fix",
    [
        ("Cannot allocate memory", "memory"),
        ("mount system call failed", "journalctl -k"),
        ("Invalid argument", "xprtsec"),
        ("Operation not permitted", "insecure"),
        ("Input/output error", "journalctl -k"),
        ("Protocol not supported", "NFS version"),
        (
            "Failed to resolve server nas1: Name or service not known",
            "getent hosts",
        ),
        ("Permission denied", "exportfs -v"),
        ("Stale file handle", "exportfs -ra"),
        ("Cannot assign requested address", "clientaddr"),
        ("an incorrect mount option was specified", "mount options"),
        ("Transport endpoint is not connected", "server's log"),
        ("Required key not available", "rpc-gssd"),
    ],
)
def test_texts_of_all_versions(text, fix, over_rdma, after):
    failure = classify(f"mount.nfs: {text}{after}\n".encode(), over_rdma)
    assert failure.meaning != "the cause is unknown"
    # What was never measured keeps nobody from trying TCP, nor other exports from
    # trying RDMA: a server may refuse the ports of RDMA connections with EPERM.
    known = text == "an incorrect mount option was specified"
    assert known or not (failure.about_export or failure.about_server)
    assert over_rdma or fix in failure.fix
    assert failure.fix


def test_rdma_has_its_own_advice_about_memory():
    failure = classify(b"mount.nfs: Cannot allocate memory for /x", over_rdma=True)
    assert "rdma_slot_table_entries" in failure.fix


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("rpcrdma: Recv: local length error (1/0xd7)", "update the kernels"),
        ("ib0: multicast join failed for ff12:401b, status -22", "IPOIB-PKEY-01"),
        ("mlx5_core: disagrees about version of symbol mlxfw_x", "dracut -f"),
        ("ice 0000:89:00.5: RDMA is not supported on this device", "firmware"),
        ("mlx5_poll_one:527:(pid 0): Responder error cqe on cqn 0x406", "other side"),
        (
            "write /sys/bus/pci/devices/0000:3b:00.1/sriov_numvfs: cannot allocate "
            "memory",
            "BIOS",
        ),
        ("not enough MMIO resources for SR-IOV", "BIOS"),
        ("The device could not be readied for configuration", "datagram"),
        ("Driver bnxt_re does not support the kernel ABI of 6", "rdma-core"),
        ("mount.nfs: Stale file handle", "exportfs -ra"),
    ],
)
def test_messages_are_found_by_their_words(text, words):
    assert words in " ".join(one.fix for one in known_in(text))


def test_a_page_of_messages_that_is_missing_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr("ovirt_rdma.storage.messages.PAGES", (tmp_path / "no.md",))
    with pytest.raises(Problem, match=r"the messages, .*no\.md, cannot be read"):
        known_in("local length error")


def test_each_message_finds_itself_and_other_words_find_nothing():
    for known in MOUNT:
        assert known in known_in(known.text)
    assert known_in("FOO-01") == []
    assert known_in("") == []
