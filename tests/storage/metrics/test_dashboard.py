# SPDX-License-Identifier: GPL-2.0-or-later
"""Our dashboard for Grafana, in both forms; tests/lab/test_dashboard_lab.py asks a
Prometheus its queries.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from ovirt_rdma.storage.metrics.exporter import FAMILIES
from tools import dashboard
from tools.metrics_reference import TOP, alerts

OLD, NEW = map(dashboard.board, dashboard.FORMS.values())
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def targets(board: dict) -> list[dict]:
    return [one for panel in board["panels"] for one in panel.get("targets", ())]


def test_expressions_name_metrics_and_labels_that_exist():
    known = {family.name: family for family in FAMILIES}
    queries = [target["expr"] for target in targets(OLD)]
    for expression in (*queries, *(rule["expr"] for rule in alerts())):
        names = re.findall(r"\bovirt_rdma_\w+", expression)
        assert names, expression
        assert set(names) <= set(known), expression
        for name, inside in re.findall(r"(ovirt_rdma_\w+)\{([^}]*)\}", expression):
            labels = set(re.findall(r"(\w+) *(?:=|!=)~?", inside))
            assert labels <= {*known[name].labels, "instance", "job"}, expression
    assert len(queries) > 20
    variables = {form.split("(")[1].split(",")[0] for form in definitions(OLD)}
    assert variables <= set(known)


def definitions(board: dict) -> list[str]:
    listed = board["templating"]["list"]
    return [one["definition"] for one in listed if one["type"] == "query"]


def test_both_forms_ask_and_say_the_same():
    shown = [
        [
            (
                *(panel[key] for key in ("title", "gridPos", "description")),
                *((one["expr"], one["legendFormat"]) for one in panel["targets"]),
            )
            for panel in board["panels"]
            if "targets" in panel
        ]
        for board in (OLD, NEW)
    ]
    assert shown[0] == shown[1]
    assert definitions(OLD) == definitions(NEW)
    # One replaces the other.
    assert OLD["uid"] == NEW["uid"] == "ovirt-rdma"


@pytest.mark.parametrize("board", [OLD, NEW], ids=list(dashboard.FORMS))
def test_panels_have_places_and_the_data_source_that_is_chosen(board):
    assert board["id"] is None
    (source,) = (
        one for one in board["templating"]["list"] if one["type"] == "datasource"
    )
    assert (source["name"], source["query"]) == ("datasource", "prometheus")
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"] in ("$datasource", DATASOURCE)
            assert panel["description"], panel["title"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_the_form_that_grafana_of_the_data_warehouse_loads():
    """oVirt's own dashboards (ovirt-dwh 4.5.9, packaging/conf/grafana-dashboards) have
    schemaVersion 22 and panels of the type graph. ovirt-engine-dwh requires Grafana
    7.3, which writes 26; later ones migrate it (DashboardMigrator.ts, up to 39, has no
    step that loses one of these).
    """
    assert OLD["schemaVersion"] == 26
    # Panels that 7.3 has; timeseries came with 7.4.
    kinds = {panel["type"] for panel in OLD["panels"]}
    assert kinds == {"row", "graph", "stat", "table"}
    # @grafana/data of 7.5, 9.2 and 10.2 knows each: getValueFormats(), fieldReducers,
    # standardTransformers.
    units = set()
    for panel in OLD["panels"]:
        units |= {axis["format"] for axis in panel.get("yaxes", ())}
        if panel["type"] == "stat":
            units.add(panel["fieldConfig"]["defaults"]["unit"])
            assert panel["options"]["reduceOptions"]["calcs"] == ["lastNotNull"]
        for one in panel.get("transformations", ()):
            assert one["id"] == "organize"
    assert units == {"short", "Bps", "ops", "s"}


def test_the_form_for_grafana_10():
    """Grafana 10.0 writes schemaVersion 38. From 11 on the panel graph is gone, and
    with 36 a data source became an object (DashboardMigrator.ts).
    """
    assert NEW["schemaVersion"] == 38
    kinds = {panel["type"] for panel in NEW["panels"]}
    assert kinds == {"row", "timeseries", "stat", "table"}
    assert '"$datasource"' not in json.dumps(NEW)
    assert all(target["datasource"] == DATASOURCE for target in targets(NEW))
    units = [
        [
            (panel.get("yaxes") or [{}])[0].get("format")
            or panel.get("fieldConfig", {}).get("defaults", {}).get("unit")
            for panel in board["panels"]
        ]
        for board in (OLD, NEW)
    ]
    assert units[0] == units[1]


def test_packages_are_built_with_it(tmp_path):
    """Without our modules, and what a virtual environment has."""
    words = [sys.executable, "-I", "-S", str(TOP / "tools/dashboard.py"), str(tmp_path)]
    subprocess.run(words, check=True)
    assert {path.name: json.loads(path.read_text()) for path in tmp_path.iterdir()} == {
        name: dashboard.board(form) for name, form in dashboard.FORMS.items()
    }
