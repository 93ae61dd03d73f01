# SPDX-License-Identifier: GPL-2.0-or-later
"""The files of the package ovirt-rdma-portal, what they agree on, and systemd."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
from support.browser import package_of_npm
from support.engine.webadmin import DESCRIPTOR, RESOURCES
from support.guide import TOP

from ovirt_rdma.engine_sdk_tools.report import portal_service

pytestmark = pytest.mark.engine

UNITS = sorted((TOP / "portal/systemd").iterdir())
UNITS_SOCKET = "systemd/ovirt-rdma-portal.socket"
REPORT = "/var/lib/ovirt-rdma/portal/report.json"


def text(name):
    return (TOP / "portal" / name).read_text()


def test_all_say_the_same_place_port_and_path():
    service = text("systemd/ovirt-rdma-portal@.service")
    assert f"LoadCredential={portal_service.DATA}:{REPORT}" in service
    data = text("systemd/ovirt-rdma-portal-data.service")
    assert f" --portal {REPORT}" in data
    settings = "/etc/ovirt-rdma/portal.conf"
    assert f"report --config-file {settings} " in data
    assert f"ConditionPathExists={settings}" in data
    assert f"login --config-file {settings} " in (TOP / "docs/portal.md").read_text()
    tmpfiles = text("tmpfiles.d/ovirt-rdma-portal.conf")
    assert f"f {REPORT} 0600 root root" in tmpfiles
    assert f"d {REPORT.rpartition('/')[0]} 0700 root root" in tmpfiles
    apache = text("httpd/ovirt-rdma-portal.conf")
    listens = "127.0.0.1:290"
    assert f"ListenStream={listens}" in text("systemd/ovirt-rdma-portal.socket")
    assert f'"http://{listens}{portal_service.PATH}"' in apache
    assert f'<Location "{portal_service.PATH}">' in apache
    assert f'SERVICE = "{portal_service.PATH}"' in text("resources/page.js")
    assert portal_service.__name__ in service
    assert f"Environment={portal_service.CA_FILE}=" in service


def test_a_token_goes_over_tls_alone_and_to_a_port_of_root():
    apache = text("httpd/ovirt-rdma-portal.conf")
    assert """Require expr "%{HTTPS} == 'on'\"""" in apache
    assert "disablereuse=On" in apache
    port = re.search(r"ListenStream=127\.0\.0\.1:(\d+)\n", text(UNITS_SOCKET))
    assert int(port[1]) < 1024


def test_the_service_has_a_user_of_its_own_and_limits():
    lines = text("systemd/ovirt-rdma-portal@.service").splitlines()
    for line in (
        "DynamicUser=yes",
        "ProtectHome=yes",
        "ProtectSystem=strict",
        "CapabilityBoundingSet=",
        # Otherwise standard output is the connection, too.
        "StandardOutput=journal",
        "RuntimeMaxSec=90",
        "MemoryMax=512M",
    ):
        assert line in lines
    for line in ("Accept=yes", "MaxConnections=16"):
        assert line in text(UNITS_SOCKET).splitlines()


def test_data_are_old_after_three_times_the_timer():
    (minutes,) = re.findall(
        r"OnUnitInactiveSec=(\d+)min", text("systemd/ovirt-rdma-portal-data.timer")
    )
    (stale,) = re.findall(r"STALE_MS = (\d+) \* 60_000", text("resources/page.js"))
    assert int(stale) == 3 * int(minutes)


@pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed"
)
def test_systemd_takes_the_units(tmp_path):
    names = []
    for unit in UNITS:
        shown = re.sub("=/usr/bin/.*", "=/bin/true", unit.read_text())
        # Both: systemd looks for the template, and verifies an instance.
        for name in {unit.name, unit.name.replace("@", "@1")}:
            (tmp_path / name).write_text(shown)
            names += [str(tmp_path / name)] if "@." not in name else []
    words = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no"]
    done = subprocess.run([*words, *names], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    instance = str(tmp_path / "ovirt-rdma-portal@1.service")
    words = ["systemd-analyze", "security", "--offline=yes", "--no-pager", instance]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if "Unknown" in done.stderr or "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze cannot do without a running systemd")
    (exposed,) = re.findall(r"Overall exposure level for .*: ([0-9.]+)", done.stdout)
    assert float(exposed) < 2.0


def test_the_types_in_the_scripts_comments_hold(tmp_path):
    archive, node = package_of_npm("typescript-5.9.3"), shutil.which("node")
    if archive is None or node is None:
        pytest.skip("there is no npm to fetch TypeScript")
    shutil.unpack_archive(archive, tmp_path, "gztar")
    words = ["--noEmit", "--allowJs", "--checkJs", "--strict", "--module", "es2022"]
    words += ["--target", "es2022", "--lib", "es2023,dom,dom.iterable"]
    command = [node, tmp_path / "package/lib/tsc.js", *words, *RESOURCES.glob("*.js")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_descriptor_is_as_the_portal_wants_it():
    # PluginData.java:22-31; a plugin that is loaded first, and fails, would keep the
    # portal from its start (ApplicationInit.java:72-80).
    assert set(DESCRIPTOR) == {"name", "url", "resourcePath", "lazyLoad"}
    assert DESCRIPTOR["lazyLoad"] is True
    assert DESCRIPTOR["name"] == "ovirt-rdma"
    for file in RESOURCES.glob("*.html"):
        assert file.read_text().startswith("<!DOCTYPE html>")
    assert json.loads(text("ovirt-rdma.json")) == DESCRIPTOR


def test_the_sources_have_no_way_to_markup_and_start_no_playbook():
    for file in (TOP / "portal").rglob("*"):
        text = file.read_text() if file.is_file() else ""
        for word in ("innerHTML", "outerHTML", "insertAdjacent", "document.write"):
            assert word not in text, file
        for word in ("eval(", "services/ansible", "localStorage", "console."):
            assert word not in text, file
        if file.suffix == ".html":
            assert "default-src 'none'" in text
            assert "require-trusted-types-for 'script'" in text
            assert "unsafe" not in text


def test_the_resources_are_all_that_a_browser_gets():
    names = {file.name for file in RESOURCES.iterdir()}
    assert names == {"host.html", "host.js", "page.html", "page.js", "page.css"}
