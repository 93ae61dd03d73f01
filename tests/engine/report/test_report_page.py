# SPDX-License-Identifier: GPL-2.0-or-later
"""The page is whole, readable without colour and script, and escapes what hosts say."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import fields, is_dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engine.report_page import read_page
from support.engine.told_hosts import (
    SERVER,
    domain,
    engine,
    facts,
    host,
    mount,
    report,
    rules,
    status,
    versions,
)
from support.storage.benchmarks import TCP, benchmark, counted, rates

from ovirt_rdma.engine_sdk_tools.model import Cell
from ovirt_rdma.engine_sdk_tools.report import page
from ovirt_rdma.engine_sdk_tools.report.model import Fallen, PlanStep, report_of, row_of
from ovirt_rdma.engine_sdk_tools.report.page import (
    MOST_RESULTS,
    MOST_SHOWN,
    html_of,
)
from ovirt_rdma.host import __version__
from ovirt_rdma.host.facts.devices import Neighbour

pytestmark = pytest.mark.engine

AT = "2026-11-20T08:00:00Z"
STEP = PlanStep("IPOIB-MTU-01/ib0", "link-down", "set the MTU", "2044", "65520", "why")
REFUSED = replace(STEP, id="IPOIB-MODE-01/ib0", refused="the driver has no such mode")
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'onmouseover='alert(1)",
    "javascript:alert(1)",
    "</style><b>",
    "</title><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;&#60;b&#62;",
    "a\x00b\x1b[31m\x7f\u0085",
    "\u202egnp.exe\u2066\u200b\u00ad",
    "]]><!-- -->",
    "\ud800",
)


RESULT = replace(
    benchmark(), hostname="hv1.other.org", export=f"{SERVER}:/exports/data1"
)


def on_leaf(facts, number):
    """Return ``facts`` of a host whose ports are cabled to the switch of its rack."""
    leaf = Neighbour(
        kind="switch",
        id=f"00:1c:73:aa:00:{number // 42:02x}",
        name=f"leaf{number // 42}",
        port=f"Ethernet1/{number % 42}",
        description=None,
        netdev="eth0",
    )
    (device,) = facts.rdma_devices
    ports = tuple(replace(port, neighbours=(leaf,)) for port in device.ports)
    return replace(facts, rdma_devices=(replace(device, ports=ports),))


def made(hosts=3, domains=("data1", "data2"), silent=(3,), results=(RESULT,)):
    """Return a report: the second host is on TCP, those of ``silent`` say nothing."""
    engines_domains = tuple(domain(name) for name in domains)
    text = rules("prefer-rdma")
    told, its = [], []
    for number in range(1, hosts + 1):
        name = f"hv{number}"
        its.append(host(name))
        transport = "tcp" if number % 25 == 2 else "rdma"
        mounts = [mount(f"{SERVER}:/exports/{one}", transport) for one in domains]
        told.append(
            report(name, problem=f"{name} does not answer", fix="wake it")
            if number in silent
            else report(
                name,
                facts=on_leaf(facts(*mounts), number),
                status=status(text),
                policy_text=text,
            )
        )
    its_engine = engine(*its, domains=engines_domains)
    rows = [
        row_of(its_engine, one, report, None, engines_domains)
        for one, report in zip(its, told)
    ]
    found = report_of(
        its_engine,
        rows,
        None,
        engines_domains,
        made_at="2026-11-23T16:00:00Z",
        version="0.2.0",
        results=results,
        notes=("A note.",),
    )
    if not hosts:
        return found
    first = replace(
        found.hosts[0],
        steps=(STEP, REFUSED),
        fallen=(Fallen(f"{SERVER}:/exports/data1", "tcp", "nas", "no listener", AT),),
    )
    return replace(found, hosts=(first, *found.hosts[1:]))


@pytest.fixture(scope="module")
def small():
    return made()


@pytest.fixture(scope="module")
def shown(small):
    return read_page(html_of(small))


def part(html, id):
    """Return the section that the heading with this id names."""
    return next(s for s in html.all("section") if s.attributes["aria-labelledby"] == id)


def rows(table):
    return [
        [cell.text for cell in row.children]
        for row in table.all("tr")
        if row.attributes.get("class") != "cluster"
    ]


def test_the_tables_say_what_the_matrices_have(shown, small):
    (table,) = part(shown, "transports").all("table")
    # The worst first.
    assert rows(table)[0] == ["Host", "data1", "data2"]
    found = {row[0]: row[1:] for row in rows(table)[1:]}
    assert found["hv1"] == ["rdma", "rdma"]
    assert found["hv2"] == ["FAIL tcp", "FAIL tcp"]
    assert found["hv3"] == ["? unknown", "? unknown"]
    table, _ = part(shown, "checks").all("table")
    assert rows(table)[0][1:] == [column.name for column in small.checks.columns]


def test_the_versions_of_each_host(shown, small):
    _, table = part(shown, "checks").all("table")
    digest = small.hosts[0].versions.policy[:15]
    kernel = "5.14.0-427.el9.x86_64"
    assert rows(table)[1:] == [
        ["hv1", *[__version__] * 3, digest, "4.50.5.1", kernel],
        ["hv2", *[__version__] * 3, digest, "4.50.5.1", kernel],
        ["hv3", "unknown"],
    ]
    odd = versions(loaded="0.1.9")
    odd = replace(odd, add_on=None, policy=None, vdsm=None, daemon=None)
    report = replace(small, hosts=(replace(small.hosts[0], versions=odd),))
    _, table = part(read_page(html_of(report)), "checks").all("table")
    assert rows(table)[1] == (
        ["hv1", "unknown", "0.1.9, restart needed", "not running", "none", "-", kernel]
    )


def test_the_domains_have_their_exports_and_who_uses_them(shown):
    (table,) = part(shown, "domains").all("table")
    head, first, _ = rows(table)
    found = dict(zip(head, first))
    assert found["Export"] == f"{SERVER}:/exports/data1"
    assert (found["NFS"], found["Engine requests"]) == ("4.2", "tcp")
    assert found["Hosts use"].strip() == "1 rdma, 1 tcp, 1 unknown"


def test_what_needs_attention_comes_first(shown):
    (table,) = part(shown, "transports").all("table")
    assert [row[0] for row in rows(table)[1:]] == ["hv2", "hv3", "hv1"]


def test_a_cell_leads_to_its_reason(shown):
    links = part(shown, "transports").all("a")
    assert links
    reasons = {
        item.attributes["id"]: item.text for item in part(shown, "problems").all("li")
    }
    for link in links:
        reason = reasons[link.attributes["href"].lstrip("#")]
        words = "runs over tcp" if "tcp" in link.text else "does not answer"
        assert words in reason


def test_a_host_that_is_unknown_is_not_well(shown):
    """hv1 has fallen back in a domain, hv2 is on TCP, hv3 says nothing."""
    report = made(3)
    well = replace(report.hosts[0], worst="ok")
    page = html_of(replace(report, hosts=(well, *report.hosts[1:]))).decode()
    assert report.hosts[2].worst == "unknown"
    figure = re.search(r"hosts are well</dt><dd [^>]*>([^<]*)<", page)
    assert figure[1] == "1 of 3"


def test_problems_come_worst_first_then_those_of_most_hosts():
    report = made(6, silent=())
    lines = [
        [("warn", "W")],
        [("fail", "F of one")],
        [("unknown", "U")],
        [("fail", "F of two")],
        [("fail", "F of two")],
        [("warn", "W")],
    ]
    none = replace(report.checks.cells[0][0], verdict="ok", sentence="", fix="")
    width = len(report.checks.columns)
    cells = tuple(
        tuple(
            replace(none, verdict=line[0][0], sentence=line[0][1]) if n == 0 else none
            for n in range(width)
        )
        for line in lines
    )
    quiet = tuple(tuple(none for _ in row) for row in report.transports.cells)
    page = read_page(
        html_of(
            replace(
                report,
                checks=replace(report.checks, cells=cells),
                transports=replace(report.transports, cells=quiet),
            )
        )
    )
    items = [item.text for item in part(page, "problems").all("li")]
    words = ("F of two", "F of one", "U", "W")
    assert len(items) == len(words)
    assert [word in item for word, item in zip(words, items)] == [True] * len(words)


def test_what_the_same_hosts_have_is_one_entry_as_bad_as_the_worst():
    """The cause comes first, whatever its verdict, and warnings last."""
    report = made(1, ("data1",), silent=())
    columns = [column.name for column in report.checks.columns]
    said = {"hooks": ("warn", "W"), "package": ("unknown", "U")}
    pairs = [said.get(name, ("ok", "")) for name in columns]
    cells = [Cell(verdict, "", sentence) for verdict, sentence in pairs]
    failed = Cell("fail", "tcp", "F")
    report = replace(
        report,
        checks=replace(report.checks, cells=(tuple(cells),)),
        transports=replace(report.transports, cells=((failed,),)),
    )
    (problem,) = page.problems_of(report)
    assert (problem.verdict, problem.sentence) == ("fail", "U")
    assert [one.sentence for one in problem.also] == ["F", "W"]


def test_a_sentence_is_shown_once_for_its_hosts():
    found = read_page(html_of(made(40, silent=(5, 6, 7, 9))))
    (item,) = [i for i in part(found, "problems").all("li") if "not answer" in i.text]
    assert "4 hosts:" in item.text
    assert "hv5 to hv7, hv9" in item.text
    assert "wake it" in item.text


def test_what_is_true_of_several_domains_is_said_once():
    found = made(3, ("data1", "data10", "data2"), silent=())
    names = [column.name for column in found.transports.columns]
    # hv1 lacks one domain, hv2 and hv3 all of them.
    cells = tuple(
        tuple(
            replace(
                cell,
                verdict="ok" if n == 0 and m != 1 else "fail",
                text="away",
                sentence=f"{name} is away",
                fix=f"heal {name}",
            )
            for m, (name, cell) in enumerate(zip(names, line))
        )
        for n, line in enumerate(found.transports.cells)
    )
    report = replace(found, transports=replace(found.transports, cells=cells))
    html = read_page(html_of(report))
    items = [i.text for i in part(html, "problems").all("li") if "is away" in i.text]
    assert ["data10 is away" in item and "hv1 to hv3" in item for item in items] == [
        True,
        False,
    ]
    for words in ("hv2, hv3", "Domains:", "data1, data2", "DOMAIN is away"):
        assert words in items[1]
    assert "heal DOMAIN" in items[1]
    links = [a for a in part(html, "transports").all("a") if "away" in a.text]
    assert len(links) == 7
    assert len({a.attributes["href"] for a in links}) == 2


def test_every_cable_is_in_a_table(shown):
    (table,) = part(shown, "cables").all("table")
    here = ["rxe0/1, eth0", "10.0.0.0/24, fd00::/64"]
    assert rows(table) == [
        ["Cabled to", "Its port", "Its id", "Host", "Port", "Networks"],
        ["leaf0", "Ethernet1/1", "00:1c:73:aa:00:00", "hv1", *here],
        ["leaf0", "Ethernet1/2", "00:1c:73:aa:00:00", "hv2", *here],
    ]
    assert "It is not known" not in part(shown, "cables").text
    assert "No switch is drawn" not in part(shown, "fabric").text


def test_a_cable_that_is_unknown_is_said_to_be(small):
    """hv1's port is cabled to another host, hv2's is not known."""
    back = Neighbour("host", "0002:c903", "hv9 mlx5_0", "1", None, None)

    def cabled(host, *neighbours):
        (device,) = host.devices
        ports = tuple(replace(one, neighbours=neighbours) for one in device.ports)
        return replace(host, devices=(replace(device, ports=ports),))

    first, second, silent = small.hosts
    hosts = (cabled(first, back), cabled(second), silent)
    html = read_page(html_of(replace(small, hosts=hosts)))
    section = part(html, "cables")
    assert [row[0] for row in rows(section.all("table")[0])[1:]] == [
        "hv9 mlx5_0 (host)"
    ]
    assert section.text.endswith("cabled to: hv2.")
    assert "No switch is drawn" in part(html, "fabric").text
    none = replace(small, hosts=(cabled(first), cabled(second), silent))
    section = part(read_page(html_of(none)), "cables")
    assert section.all("table") == []
    assert "hv1, hv2" in section.text
    section = part(read_page(html_of(replace(small, hosts=(silent,)))), "cables")
    assert section.text.endswith("No host reported an active RDMA port.")


def test_the_first_cables_are_shown_and_the_others_counted(small):
    first = small.hosts[0]
    (device,) = first.devices
    (leaf,) = device.ports[0].neighbours
    many = [replace(leaf, port=f"swp{n}") for n in range(MOST_SHOWN + 9)]
    port = replace(device.ports[0], neighbours=tuple(reversed(many)))
    host = replace(first, devices=(replace(device, ports=(port,)),))
    html = read_page(html_of(replace(small, hosts=(host, *small.hosts[1:]))))
    section = part(html, "cables")
    found = rows(section.all("table")[0])
    assert len(found) == MOST_SHOWN + 1
    # By switch and its port, swp2 before swp10.
    assert [row[1] for row in found[1:4]] == ["Ethernet1/2", "swp0", "swp1"]
    assert "10 more are not shown" in section.text


def test_plans_and_notes_are_there(shown):
    plans = part(shown, "plans").text
    assert "IPOIB-MTU-01/ib0" in plans
    assert "65520" in plans
    assert "the driver has no such mode" in plans
    assert "A note." in part(shown, "summary").text


def test_a_benchmark_has_its_chart_verdict_limit_and_figures():
    slow = rates("rdma", {"sequential-read": 1e9})
    one = replace(
        benchmark(slow, counted("rdma", busiest_cpu=1.0)),
        hostname="hv2",
        export=f"{SERVER}:/exports/data2",
        skipped=("fio is old",),
    )
    report = made(results=(RESULT, one))
    html = read_page(html_of(report))
    section = part(html, "benchmarks")
    first, second = section.all("article")
    assert first.all("h3")[0].text == f"hv1: data1, {SERVER}:/exports/data1"
    assert first.all("strong")[0].text == (
        "RDMA reads 2.0 times TCP here: keep it; no limit was found."
    )
    for words in (
        "TCP reads 4.0 times RDMA",
        "Limit of large reads",
        "100% busy",
        "Not measured: fio is old",
        "mlx5_0 / 1, Ethernet 100 Gb/s, MTU 4096",
    ):
        assert words.replace(" ", "") in second.text.replace(" ", "")
    (table,) = second.all("table")
    found = {(row[0], row[1]): row[3:] for row in rows(table)[1:]}
    assert len(found) == 10
    assert found["sequential-read 1 MiB, depth 32", "NFS 4.2 over TCP"][:2] == [
        "4,000 (3,960 to 4,040) MB/s",
        "1",
    ]
    for svg, bar in zip(table.all("svg"), page.bars_of(report.benchmarks[1])):
        (drawn,) = svg.all("rect")
        assert drawn.attributes["width"] == str(bar.middle)
        spread, *limit = [path.attributes["d"] for path in svg.all("path")]
        assert spread == f"M{bar.least} 10H{bar.most}"
        assert limit == ([f"M{bar.limit} 0V12"] if bar.limit else [])


def test_a_benchmark_of_somebody_else_is_said_to_be():
    one = replace(benchmark(settings=(TCP,)), hostname="elsewhere", path=None)
    (article,) = part(read_page(html_of(made(results=(one,)))), "benchmarks").all(
        "article"
    )
    assert "no host of this engine has that name" in article.text
    assert "the export is no domain of this report" in article.text


def test_without_results_the_page_says_how_to_get_them():
    html = read_page(html_of(made(results=())))
    assert "--bench FILE" in part(html, "benchmarks").text
    assert part(html, "benchmarks").all("svg") == []


def test_an_engine_without_anything_is_a_page():
    html = read_page(html_of(made(0, (), results=())))
    assert "The engine has no host." in part(html, "summary").text
    assert "There is nothing to show." in part(html, "checks").text


# ------------------------------------------------------------------ for every reader


def test_every_table_has_a_caption_and_heads_with_a_scope(shown):
    tables = shown.all("table")
    assert len(tables) >= 5
    for table in tables:
        assert table.children[0].tag == "caption"
        assert all(head.attributes.get("scope") for head in table.all("th"))
        for row in table.all("tr"):
            assert any(cell.tag == "th" for cell in row.children)


def test_the_page_has_landmarks_and_a_way_past_the_contents(shown):
    for tag in ("header", "nav", "main", "footer", "h1", "title"):
        assert len(shown.all(tag)) >= 1, tag
    assert shown.attributes["lang"] == "en"
    first = shown.all("a")[0]
    ids = [one.attributes["id"] for one in shown.all() if "id" in one.attributes]
    assert len(set(ids)) == len(ids)
    assert first.attributes["href"].lstrip("#") in ids
    for link in shown.all("a"):
        assert link.attributes["href"].startswith("#")
        assert link.attributes["href"][1:] in ids
    for one in shown.all():
        named = one.attributes.get("aria-labelledby", "").split()
        assert set(named) <= set(ids)
        if one.attributes.get("tabindex") == "0":
            assert one.attributes["role"] == "region"
            assert named or one.attributes["aria-label"]


def test_no_two_landmarks_have_the_same_name(shown):
    """A screen reader lists them by name (ARIA practices, landmark regions)."""
    texts = {one.attributes.get("id"): one.text for one in shown.all()}
    names = []
    for one in shown.all():
        if one.tag == "section" or one.attributes.get("role") == "region":
            label = one.attributes.get("aria-label")
            names.append(label or texts[one.attributes["aria-labelledby"]])
    assert len(names) > 12
    assert sorted(set(names)) == sorted(names)


def test_pictures_have_words(shown):
    for picture in shown.all("svg"):
        if picture.attributes.get("aria-hidden") == "true":
            continue
        assert picture.attributes["role"] == "img"
        title, text = picture.children[:2]
        assert (title.tag, text.tag) == ("title", "desc")
        assert len(text.text) > 50


def test_no_verdict_is_a_colour_alone(shown):
    signs = {"warn": ("!", "WARN"), "fail": ("✕", "FAIL"), "unknown": ("?",)}
    for one in shown.all():
        words = (one.attributes.get("class") or "").split()
        for verdict in (
            signs.keys() & set(words) if one.tag in ("td", "li", "text") else ()
        ):
            known = (*signs[verdict], "refused", "link-down", "reboot", "no report")
            assert any(sign in one.text for sign in known), one.text


CONTRAST = 4.5


def _colours(style, dark):
    """Return the colours of the style sheet, those for dark over those for light."""
    blocks = re.findall(r":root \{(.*?)\}", style, re.S)
    light, darker, printed = (
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block)) for block in blocks
    )
    assert set(light) == set(darker)
    assert set(printed) <= set(light)
    return {"light": light, "dark": {**light, **darker}, "print": {**light, **printed}}[
        dark
    ]


def _luminance(colour):
    """Return the relative luminance (WCAG 2.2)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    r, g, b = (
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    )
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


@pytest.mark.parametrize("mode", ["light", "dark", "print"])
def test_texts_have_contrast(mode):
    style = (page._TEMPLATES / "report.css").read_text()
    colours = _colours(style, mode)
    pairs = [
        (text, back)
        for text in ("text", "muted", "link", "ok", "warn", "fail", "unknown")
        for back in ("page", "shade")
    ]
    pairs += [(one, f"{one}-back") for one in ("ok", "warn", "fail", "unknown")]
    for text, back in pairs:
        light, dark = sorted((_luminance(colours[text]), _luminance(colours[back])))[
            ::-1
        ]
        ratio = (light + 0.05) / (dark + 0.05)
        assert ratio >= CONTRAST, (text, back, round(ratio, 2))
    for line in ("rdma", "tcp", "cable"):  # graphics need 3 (WCAG 1.4.11)
        light, dark = sorted((_luminance(colours[line]), _luminance(colours["page"])))[
            ::-1
        ]
        assert (light + 0.05) / (dark + 0.05) >= 3, line


# ------------------------------------------------------------------ hostile hosts


def test_nothing_is_loaded_and_only_our_script_runs(small):
    text = html_of(small).decode()
    html = read_page(html_of(small))
    (script,), (style,) = html.all("script"), html.all("style")
    policy = html.all("meta")[1].attributes["content"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for tag in ("script", "style"):
        inside = re.search(rf"<{tag}>(.*?)</{tag}>", text, re.S)[1]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert (script.attributes, style.attributes) == ({}, {})
    assert not re.search(r"url\(|@import|innerHTML|eval\(", text)
    for one in html.all():
        names = set(one.attributes)
        assert not names & {
            "src",
            "style",
            "srcset",
            "action",
            "formaction",
            "xlink:href",
        }
        assert not [name for name in names if name.startswith("on")]


def _with(value, text):
    """Return ``value`` with ``text`` in place of every text in it."""
    if isinstance(value, str):
        return text
    if isinstance(value, tuple):
        return tuple(_with(one, text) for one in value)
    if is_dataclass(value):
        made = {
            one.name: _with(getattr(value, one.name), text) for one in fields(value)
        }
        return replace(value, **made)
    return value


def _drawn(devices):
    """Return ``devices`` with ports that are active and cabled to switches."""
    return devices and tuple(
        replace(
            device,
            ports=tuple(
                replace(
                    port,
                    state="ACTIVE",
                    neighbours=tuple(
                        replace(one, kind="switch") for one in port.neighbours
                    ),
                )
                for port in device.ports
            ),
        )
        for device in devices
    )


def _hostile(small, text):
    """Return the report with ``text`` for all that comes from engine or hosts."""
    verdicts = [[cell.verdict for cell in line] for line in small.transports.cells]
    changed = _with(small, text)
    matrix = replace(
        changed.transports,
        cells=tuple(
            tuple(replace(cell, verdict=v) for cell, v in zip(line, those))
            for line, those in zip(changed.transports.cells, verdicts)
        ),
    )
    hosts = tuple(
        replace(
            one,
            worst=was.worst,
            name=f"{text}{number}",
            status=text,
            devices=_drawn(one.devices),
        )
        for number, (one, was) in enumerate(zip(changed.hosts, small.hosts))
    )
    empty = replace(matrix, cells=tuple(() for _ in matrix.cells), columns=())
    return replace(changed, hosts=hosts, transports=matrix, checks=empty)


def test_a_long_text_of_a_file_is_cut():
    long = replace(RESULT, hostname="h" * 10_000, kernel="k" * 10_000)
    long = replace(long, skipped=("s" * 10_000,) * 30)
    jobs = tuple(
        replace(
            job,
            setting=replace(job.setting, version="v" * 10_000),
            load=replace(job.load, name=f"{'o' * 10_000}{job.load.name}")
            if job.load.depth == 1
            else job.load,
        )
        for job in RESULT.jobs
    )
    long = replace(long, jobs=jobs)
    assert len(html_of(made(results=(long,)))) < 60_000


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-11-23T12:00:00Z", "2026-11-23 12:00 UTC"),
        ("2026-11-23T12:00:00+02:00", "2026-11-23T12:00:00+02:00"),
        ("2026-11-23T12:00:00", "2026-11-23T12:00:00"),
        ("yesterday", "yesterday"),
    ],
)
def test_only_a_time_in_utc_is_shown_as_such(text, shown):
    html = read_page(html_of(made(results=(replace(RESULT, taken_at=text),))))
    assert f"Measured {shown} on " in part(html, "benchmarks").text


def _shape(html):
    """Return the tags and attributes of a page, without texts."""
    return [(one.tag, sorted(one.attributes)) for one in html.all()]


def _check_hostile(small, text):
    quiet = read_page(html_of(_hostile(small, "quiet")))
    html = read_page(html_of(_hostile(small, text)))
    assert [one.tag for one in html.all("script")] == ["script"]
    allowed = {tag for tag, _ in _shape(quiet)} | {"title"}
    assert {tag for tag, _ in _shape(html)} <= allowed
    names = {name for _, attributes in _shape(quiet) for name in attributes}
    assert {n for _, attributes in _shape(html) for n in attributes} <= names
    for one in html.all("a"):
        assert re.fullmatch("#[a-z]+[0-9]*", one.attributes["href"])
    for one in html.all():
        if one.tag not in ("script", "style"):
            for said in one.own_text:
                assert all(c.isprintable() or c == "\n" for c in said)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_shown_and_do_nothing(small, text):
    _check_hostile(small, text)


@given(
    st.text(max_size=30)
    | st.sampled_from(HOSTILE).flatmap(
        lambda text: st.text(max_size=5).map(lambda more: more + text)
    )
)
def test_any_text_is_escaped(text):
    _check_hostile(_SMALL, text)


_SMALL = made(1, ("data1",), silent=())


# ------------------------------------------------------------------ many hosts


@pytest.mark.parametrize(
    ("hosts", "most"), [(3, 48_000), (50, 150_000), (250, 1_500_000)]
)
def test_the_page_is_small(hosts, most):
    """1.5 MB is the promise for 250 hosts with 8 domains."""
    domains = tuple(f"data{n}" for n in range(1, 9))
    found = html_of(made(hosts, domains, silent=(9, 30)))
    assert len(found) < most
    html = read_page(found)
    (table,) = part(html, "transports").all("table")
    assert len(rows(table)) == hosts + 1
    # Equal hosts are drawn once.
    assert len(html.all("svg")[0].all("rect")) < 40


def test_hosts_that_all_differ_stay_within_the_limit():
    """Each host has its own sentences and plan."""
    found = made(250, tuple(f"data{n}" for n in range(1, 9)), silent=())
    steps = tuple(replace(STEP, id=f"IPOIB-MTU-01/ib{n}") for n in range(9))
    hosts = tuple(
        replace(
            one,
            steps=(replace(STEP, reason=f"reason of {number}"), *steps),
            devices=tuple(replace(d, name=f"rxe{number}") for d in one.devices),
        )
        for number, one in enumerate(found.hosts)
    )
    cells = tuple(
        tuple(
            replace(cell, verdict="fail", sentence=f"{n} {m} " + "x" * 200)
            for m, cell in enumerate(line)
        )
        for n, line in enumerate(found.transports.cells)
    )
    odd = replace(found, hosts=hosts, transports=replace(found.transports, cells=cells))
    page_ = html_of(odd)
    assert len(page_) < 1_500_000
    # Twice as many results as are drawn.
    many = tuple(replace(RESULT, hostname=f"hv{n}") for n in range(2 * MOST_RESULTS))
    with_charts = replace(odd, benchmarks=made(250, results=many).benchmarks)
    page_ = html_of(with_charts)
    assert len(page_) < 1_500_000
    assert f"{MOST_RESULTS} more are not shown" in page_.decode()
    text = read_page(page_).text
    assert "more are not shown" in text
