# SPDX-License-Identifier: GPL-2.0-or-later
import pytest
from support.storage.vdsm_fixtures import kernel, loaded_vdsm, vdsm
from support.storage.vdsm_site import site

__all__ = ["kernel", "loaded_vdsm", "site", "vdsm"]


@pytest.fixture
def nfsmount_conf(site, monkeypatch) -> None:
    """mount(8) appends options, as an /etc/nfsmount.conf would."""

    def mount(spec, file, mntOpts=None, vfstype=None, cgroup=None):
        options = f"{mntOpts},proto=tcp,port=2049"
        site.kernel.mount(spec, file, options, vfstype, cgroup)

    monkeypatch.setattr(site.vdsm.mount, "_mount", mount)
