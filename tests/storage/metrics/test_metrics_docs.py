# SPDX-License-Identifier: GPL-2.0-or-later
"""The pages of metrics and alerts are what the metrics and the alert rules say.

WRITE_GOLDEN=1 writes their tables and texts.
"""

from __future__ import annotations

import os
import re
import subprocess

import pytest
import yaml

from ovirt_rdma.storage.metrics.exporter import FAMILIES
from tools import metrics_reference as reference
from tools.metrics_reference import TOP, alerts

INSTALLED = "/usr/share/ovirt-rdma/prometheus/"
LABELS = {family.name: family.labels for family in FAMILIES}


@pytest.mark.parametrize(
    ("path", "made"),
    [(reference.PAGE, reference.tables), (reference.ALERTS, reference.meanings)],
)
def test_the_pages_are_up_to_date(path, made):
    text = path.read_text("utf-8")
    if os.environ.get("WRITE_GOLDEN"):
        path.write_text(reference.page(text, made()), "utf-8")
    assert path.read_text("utf-8") == reference.page(text, made())


def test_a_metric_is_a_counter_exactly_if_its_name_says_so():
    """The page says it once, in place of a column."""
    for family in FAMILIES:
        ends = family.name.endswith("_total")
        assert family.kind == ("counter" if ends else "gauge"), family.name


def test_each_alert_has_a_section_that_says_where_to_look_and_what_to_do():
    parts = re.split(r"^## (.*)$", reference.ALERTS.read_text("utf-8"), flags=re.M)
    sections = dict(zip(parts[1::2], parts[2::2]))
    names = [rule["alert"] for rule in alerts()]
    assert [name for name in sections if name.startswith("Ovirt")] == names
    for name in names:
        assert re.search(r"^- Look: .*`.+`.*\n- Do: .+", sections[name], re.M), name


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_it_means_of_whom(rule):
    texts = rule["annotations"]
    assert sorted(texts) == ["description", "runbook_url", "summary"]
    grouped = re.search(r"by \(([^)]*)\)", rule["expr"])
    having = {"instance", "job"}
    if grouped:
        having = set(grouped[1].split(", "))
    else:
        for name in re.findall(r"ovirt_rdma_\w+", rule["expr"]):
            having |= set(LABELS[name])
    for name in ("summary", "description"):
        # A label that the alert does not have is an empty word.
        used = set(re.findall(r"\$labels\.(\w+)", texts[name]))
        assert used and used <= having, texts[name]
    assert "irtual machines" in texts["description"]


def made_files(folder, *words: str):
    command = ["make", "-s", "install-host-files", f"DESTDIR={folder}", *words]
    subprocess.run(command, cwd=TOP, check=True)
    return folder / INSTALLED.strip("/")


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ([], f"file://{INSTALLED}alerts.md"),
        (
            ["PROJECT_URL=https://example.org/rdma"],
            "https://example.org/rdma/html/docs/alerts.html",
        ),
    ],
    ids=["no address", "address"],
)
def test_each_runbook_is_a_page_that_is_there(tmp_path, words, page):
    """tests/rpm/test_release_repository.py has the page of a release."""
    folder = made_files(tmp_path, *words)
    assert (folder / "alerts.md").read_text() == reference.ALERTS.read_text("utf-8")
    groups = yaml.safe_load((folder / reference.RULES.name).read_text())["groups"]
    for rule in groups[0]["rules"]:
        url = rule["annotations"]["runbook_url"]
        assert url == f"{page}#{rule['alert'].lower()}"
