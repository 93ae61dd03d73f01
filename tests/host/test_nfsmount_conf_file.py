# SPDX-License-Identifier: GPL-2.0-or-later
import pytest

from ovirt_rdma.host.nfsmount_conf_file import (
    ABSENT,
    EDITED,
    FOREIGN,
    OURS,
    families_of,
    read_conf_file,
    with_header,
)

BODY = '\n# rule 1\n[ MountPoint "/rhev/data-center/mnt/nas:_a" ]\nProto=rdma\n'


@pytest.mark.parametrize("body", ["", BODY, "# n\u00e4me\n"])
def test_ours(tmp_path, body):
    path = tmp_path / "file.conf"
    path.write_text(with_header(body), encoding="utf-8")
    found = read_conf_file(path)
    assert (found.state, found.text) == (OURS, with_header(body))


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text + "rsize=1\n",
        lambda text: text.replace("rdma\n", "tcp\n"),
        lambda text: text[:-1],
        lambda text: text.replace("sha256:", "sha256:0"),
        lambda text: "".join(text.splitlines(keepends=True)[:2]),
    ],
)
def test_edited(tmp_path, edit):
    path = tmp_path / "file.conf"
    path.write_text(edit(with_header(BODY)))
    assert read_conf_file(path).state == EDITED


def test_of_another(tmp_path):
    path = tmp_path / "file.conf"
    assert read_conf_file(path).state == ABSENT
    path.write_bytes(b"\xff[ Server ]\n")
    assert read_conf_file(path).state == FOREIGN
    link = tmp_path / "link.conf"
    path.write_text(with_header(BODY))
    link.symlink_to(path)
    assert read_conf_file(link).state == FOREIGN
    assert read_conf_file(tmp_path).state == FOREIGN


def test_families_that_a_file_has():
    place = '[ MountPoint "/rhev/data-center/mnt/{}" ]\nProto={}\nRetry=0\n'
    text = place.format("nas:_a", "rdma") + place.format("nas6:_a", "rdma6")
    assert families_of(text)("nas6") == ("::1",)
    for name in ("nas", "nas60", "other"):
        assert families_of(text)(name) == ("127.0.0.1",)
