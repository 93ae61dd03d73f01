# SPDX-License-Identifier: GPL-2.0-or-later
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.storage.transport import classify


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


@given(st.binary(), st.booleans())
def test_never_raises_and_always_says_something(text, over_rdma):
    failure = classify(text, over_rdma)
    assert failure.text
    assert failure.meaning
