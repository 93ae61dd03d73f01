# SPDX-License-Identifier: GPL-2.0-or-later
import os
import stat
from pathlib import Path

import pytest

from ovirt_rdma.host.atomic_file import write_atomically


@pytest.fixture(params=[0o022, 0o077])
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_the_file_has_the_content_and_the_mode_asked_for(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a longer text of before")
    write_atomically(path, b"new", 0o644)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_who_has_the_old_file_open_keeps_it(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        write_atomically(path, b"new", 0o644)
        assert reader.read() == b"old"


def test_a_symlink_is_replaced_and_its_target_left_alone(tmp_path):
    target, path = tmp_path / "target", tmp_path / "file"
    target.write_bytes(b"old")
    path.symlink_to(target)
    write_atomically(path, b"new", 0o600)
    assert not path.is_symlink()
    assert target.read_bytes() == b"old"


@pytest.mark.parametrize("broken", ["write", "fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_beside_it(
    tmp_path, monkeypatch, broken
):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def no_space(*_):
        raise OSError(28, "No space left on device")

    data = b"new"
    if broken == "write":
        data = "not bytes"
    elif broken == "fsync":
        monkeypatch.setattr(os, "fsync", no_space)
    else:
        monkeypatch.setattr(type(path), "replace", no_space)
    with pytest.raises((OSError, TypeError)):
        write_atomically(path, data, 0o644)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_it_is_made_in_the_folder_that_it_ends_in(tmp_path, monkeypatch):
    """SELinux gives a new file the type of its folder, and a rename keeps it."""
    made = []
    rename = Path.replace

    def noted(path, target):
        made.append(path)
        return rename(path, target)

    monkeypatch.setattr(Path, "replace", noted)
    write_atomically(tmp_path / "file", b"new", 0o644)
    assert [path.parent for path in made] == [tmp_path]
