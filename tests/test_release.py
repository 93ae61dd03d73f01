# SPDX-License-Identifier: GPL-2.0-or-later
"""The version has one source, and spec and CHANGELOG.md agree with it."""

from __future__ import annotations

import re

import pytest

from tools import packages

MODULE = '__version__ = "1.2.0"\n'
CHANGELOG = """# Changelog

## Unreleased

### Added
- Something.

## 1.1.0 - 2026-03-04
## 1.0.0 - 2026-01-31
"""
SPEC = """Version:        1.2.0
%changelog
* Thu May 07 2026 ovirt-rdma developers - 1.2.0-1
- Something
* Wed Mar 04 2026 ovirt-rdma developers - 1.1.0-1
* Sat Jan 31 2026 ovirt-rdma developers - 1.0.0-1
"""
RELEASED = CHANGELOG.replace("## Unreleased", "## 1.2.0 - 2026-05-07")


def found(module=MODULE, spec=SPEC, changelog=CHANGELOG):
    release = packages.release_of(module, spec, changelog)
    return list(packages.contradictions(release))


def test_the_checkout():
    release = packages.checked_release()
    assert release.entries[0][0] == release.version


@pytest.mark.parametrize("page", ["docs/install.md", "docs/packages.md"])
def test_files_that_a_page_names_are_of_this_version(page):
    text = (packages.CHECKOUT / page).read_text()
    found = set(re.findall(r"ovirt-rdma(?:-host)?-(\d[\d.]*\d)[-.]", text))
    assert found == {packages.checked_release().version}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"module": '__version__ = "1.3.0"\n'},
            "the spec has version 1.2.0, host/__init__.py has 1.3.0",
        ),
        (
            {"spec": SPEC.replace("1.2.0-1", "1.1.9-1")},
            "the spec's newest changelog entry is for 1.1.9, the version is 1.2.0",
        ),
        # Released in CHANGELOG.md, on another day than in the spec.
        (
            {"changelog": RELEASED.replace("2026-05-07", "2026-05-08")},
            "the versions and days of CHANGELOG.md and of the spec's changelog differ: "
            "1.2.0 of 2026-05-08, 1.1.0 of 2026-03-04, 1.0.0 of 2026-01-31; "
            "1.2.0 of 2026-05-07, 1.1.0 of 2026-03-04, 1.0.0 of 2026-01-31",
        ),
    ],
)
def test_contradictions(change, sentence):
    assert found() == found(changelog=RELEASED) == []
    assert sentence in found(**change)


def test_dist_refuses_a_contradiction(tmp_path):
    for name, text in (
        ("host/__init__.py", MODULE),
        ("rpm/ovirt-rdma.spec", SPEC.replace("Version:        1.2.0", "Version: 9")),
        ("CHANGELOG.md", CHANGELOG),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(packages.PackageProblem, match="the spec has version 9"):
        packages.source_archive(tmp_path / "dist", tmp_path)
    assert not (tmp_path / "dist").exists()
