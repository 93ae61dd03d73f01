# SPDX-License-Identifier: GPL-2.0-or-later
"""The portal's plugin in a browser, against a page that plays the portal, our service
and the engine's double.

Chromium is Debian's; axe-core and PatternFly come from npm, without which only the
tests that need them are skipped.
"""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from engine_double import jobs
from engine_double.answers import Answer
from engine_double.faults import Status
from support.browser import (
    VIOLATIONS,
    axe_core,
    browser,
    chromium,
    package_of_npm,
)
from support.engine.portal_service import portal_site
from support.engine.webadmin import HERE, PATTERNFLY, THEME, Webadmin

from ovirt_rdma.engine_sdk_tools.report.portal_service import DATA

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(not chromium(), reason="there is no chromium"),
]

PAGE = "page.html"
HEBREW, MARKUP = "מארח", '<img src=x onerror="alert(1)">&lt;b>'


@pytest.fixture(scope="module")
def page():
    with browser() as page:
        yield page


@contextmanager
def site(hosts, domains):
    with (
        TemporaryDirectory() as folder,
        portal_site(Path(folder), hosts, domains) as double,
    ):
        yield double, Path(folder)


@pytest.fixture(scope="module")
def four():
    """Four hosts, of which host03 has lost its port."""
    with site(4, ("data1", "data2")) as found:
        yield found


@pytest.fixture
def portal(page, four):
    """Open the portal. ``act.refused``: the browser may say that requests failed."""
    double, folder = four
    kept = (folder / DATA).read_bytes()

    def act(where="", width=1600, **words):
        act.shown = Webadmin(double, folder, **words)
        page.open(act.shown.url + where, width)
        page.until("played.currentPlace !== null")
        return page

    act.folder, act.double, act.refused = folder, double, False
    yield act
    (folder / DATA).write_bytes(kept)
    jobs.jobs_of(double.world).clear()
    assert page.value_of("window.played ? played.faults : []") == []
    said = [one for one in page.console if not act.refused or "status of" not in one]
    assert said == []


def reveal(page, token="rdma"):
    """Go to a place of ours, and return its text once the data are there."""
    page.until(f"'{token}' in played.places || '{token}' in played.tabs")
    page.value_of(f"location.hash = '#{token}'")
    return text_of(page)


def text_of(page, wanted="!document.body.innerText.includes('Reading the data')"):
    page.until(f"document.readyState == 'complete' && {wanted}", PAGE)
    return page.value_of("document.body.innerText", PAGE)


def select(page, entity, **item):
    """As a user: select in the list, then open the tab of what is selected.

    The tab is there once the plugin is in use (PluginManager.java:395-413), which only
    then gets the event of a selection, once (PluginManager.java:221-226).
    """
    token, view = {
        "Storage": ("storage-rdma", "domain"),
        "Host": ("host-rdma", "host"),
    }[entity]
    page.until(f"'{token}' in played.tabs")
    page.value_of(f"played.select('{entity}', {json.dumps(item)})")
    page.value_of(f"location.hash = '#{token}'")
    page.until(f"location.search == '?view={view}&id={item['id']}'", PAGE)
    return text_of(page)


def domain(portal, name):
    id = portal.double.world.domain(name).id
    return {"id": id, "name": name, "type": "nfs", "dataCenterId": "1"}


def host(portal, name):
    id = portal.double.world.host(name).id
    return {"id": id, "name": name, "hostname": f"{name}.example.com", "managed": True}


# -- places


@pytest.mark.parametrize("begins_after_ms", [0, 50, 2000])
def test_the_place_is_no_start_page(portal, begins_after_ms):
    page = portal(begins_after_ms=begins_after_ms)
    page.until("'rdma' in played.places")
    assert page.value_of("played.currentPlace") == "vms"
    assert page.value_of("document.querySelector('nav a').textContent") == "RDMA"


def test_a_portal_that_is_reloaded_at_our_place_shows_it(portal):
    page = portal("#rdma", begins_after_ms=None)
    assert "Of 4 hosts" in text_of(page)
    assert page.value_of("played.currentPlace") == "rdma"


@pytest.mark.parametrize(
    ("link", "token"),
    [
        ("#storage-general;name=data1", "storage-rdma"),
        ("#storage-rdma;x=1;name=data1", "storage-rdma"),
        ("#hosts-general;name=host01", "host-rdma"),
        ("#host-rdma;name=host01", "host-rdma"),
    ],
)
def test_a_link_to_one_object_is_followed(portal, link, token):
    """As a reload at one: the portal selects it before there is a plugin."""
    page = portal(link)
    page.until(f"'{token}' in played.tabs")
    page.value_of(f"location.hash = '#{token}'")
    assert f"RDMA storage: {link.rpartition('=')[2]}" in text_of(page)
    other, entity = (
        (host(portal, "host03"), "Host")
        if token == "host-rdma"
        else (domain(portal, "data2"), "Storage")
    )
    assert f"RDMA storage: {other['name']}" in select(page, entity, **other)


@pytest.mark.parametrize("name", ["fc", "iscsi"])
def test_a_domain_that_is_not_nfs_has_no_tab(portal, name):
    page = portal()
    page.until("'storage-rdma' in played.tabs")
    item = {**domain(portal, "data1"), "type": name}
    page.value_of(f"played.select('Storage', {json.dumps(item)})")
    page.until("!played.tabs['storage-rdma'].accessible")
    page.value_of("played.select('Storage')")
    page.value_of(f"played.select('Storage', {json.dumps({**item, 'type': 'nfs'})})")
    page.until("played.tabs['storage-rdma'].accessible")


@pytest.mark.parametrize(
    "missing",
    [
        ("currentPlace",),
        ("addPrimaryMenuPlace",),
        ("addDetailPlace",),
        ("setPlaceContentUrl", "setPlaceAccessible"),
        ("register",),
        ("ready",),
    ],
    ids=",".join,
)
def test_functions_that_a_portal_lacks_are_not_called(portal, missing):
    page = portal(missing=missing)
    time.sleep(0.5)
    if {"register", "ready"}.isdisjoint(missing):
        page.until("played.state == 'IN_USE'")
        page.value_of(f"played.select('Host', {json.dumps(host(portal, 'host01'))})")
        assert page.value_of("played.state") == "IN_USE"


def test_a_portal_without_tokens(portal):
    page = portal("#rdma", missing=("ssoToken",), begins_after_ms=None)
    assert "a part of the administration portal" in text_of(page)


def test_outside_of_the_portal(portal):
    page = portal()
    page.open(portal.shown.url + "plugin/ovirt-rdma/page.html", 1000)
    page.until("document.body.innerText.includes('a part of the administration')")
    page.open(portal.shown.url + "plugin/ovirt-rdma/host.html", 1000)


def test_the_names_of_the_api_are_those_of_the_source():
    text = (HERE / "webadmin.js").read_text()
    names = set(
        re.findall(r'"(\w+)"', text.partition("FUNCTIONS = [")[2].split("]")[0])
    )
    source = os.environ.get("OVIRT_RDMA_TEST_ENGINE_SOURCE")
    if not source:
        pytest.skip("OVIRT_RDMA_TEST_ENGINE_SOURCE is not set")
    (file,) = Path(source).rglob("webadmin/plugin/PluginManager.java")
    found = re.findall(r"^            (\w+): function", file.read_text(), re.MULTILINE)
    old = {"init"} | {one for one in found if "Tab" in one}
    assert names == set(found) - old
    for name, first, last in re.findall(r"(\w+\.java):\s?(\d+)-(\d+)", text):
        (cited,) = Path(source).rglob(name)
        assert int(first) <= int(last) <= len(cited.read_text().splitlines())


# -- views


def test_the_place_shows_all(portal):
    text = reveal(portal())
    for words in (
        "Of 4 hosts, 1 has a failed check.",
        "3 of 4\nhosts are well",
        "What needs attention: 1",
        "mlx5_0/1 is DOWN",
        "Seen with it: 3",
        "No run is under way",
    ):
        assert words in text
    matrix = text.partition("Domains by hosts")[2].replace("\n", " ")
    assert re.search(r"host03\s+dc1 / cl1\s+✕ Failed\s+✕ +Failed: +tcp", matrix)
    assert re.search(r"host01\s+dc1 / cl1\s+✓ Good\s+✓ +Good: +rdma", matrix)


def test_the_token_goes_in_one_header_and_without_cookies(portal):
    page = portal()
    page.value_of("document.cookie = 'JSESSIONID=secret; path=/'")
    reveal(page)
    (asked,) = portal.shown.asked
    assert asked["authorization"] == f"Bearer {portal.shown.token}"
    assert "cookie" not in asked
    assert "referer" not in asked
    for store in ("localStorage", "sessionStorage"):
        assert page.value_of(f"{store}.length") == 0


def test_findings_say_what_to_do_and_a_command_can_be_copied(portal):
    document = json.loads((portal.folder / DATA).read_text())
    (finding,) = document["findings"]
    other = {**finding, "also": [], "fix": "ovirt-rdma domain heal data1"}
    changed(portal, findings=[finding, other])
    page = portal()
    reveal(page)
    page.value_of("document.querySelector('details').open = true", PAGE)
    text = page.value_of("document.querySelector('.rdma-findings').innerText", PAGE)
    assert "What to do: check the cable" in text
    assert "ovirt-rdma domain heal data1 data2" in text
    codes = (
        "[...document.querySelectorAll('.rdma-findings code')].map(o => o.innerText)"
    )
    assert page.value_of(codes, PAGE) == ["ovirt-rdma domain heal data1"]


def test_a_run_under_way(portal):
    world = portal.double.world
    job = jobs.add(world, "ovirt-rdma: convert to RDMA: data1")
    for name in ("host01", MARKUP):
        step = jobs.begin_step(world, job, "executing", f"{name}: maintenance")
    jobs.end_step(world, job, step, True)
    text = reveal(portal())
    assert "convert to RDMA: data1" in text
    assert f"1 step ended. Last begun: {MARKUP}: maintenance" in text


def test_runs_that_cannot_be_read(portal):
    portal.double.fail_next("GET", "^/jobs$", Status(500))
    text = reveal(portal())
    assert "? Unknown The engine answered HTTP 500." in text
    assert "Of 4 hosts" in text


def test_a_domain_s_tab(portal):
    page = portal()
    text = select(page, "Storage", **domain(portal, "data2"))
    assert text.startswith("RDMA storage: data2")
    for words in (
        "nfs1.example.com:/exports/data2",
        "data2 runs over tcp",
        "ovirt-rdma domain verify data2",
        "ovirt-rdma domain convert data2 --to rdma --rolling --dry-run",
    ):
        assert words in text
    assert "data1 runs" not in text
    # The worst is first.
    first = "document.querySelector('table tbody th').textContent"
    assert page.value_of(first, PAGE) == "host03"
    text = select(page, "Storage", **domain(portal, "data1"))
    assert text.startswith("RDMA storage: data1")
    assert "data2" not in text


def test_a_host_s_tab(portal):
    text = select(portal(), "Host", **host(portal, "host03"))
    assert text.startswith("RDMA storage: host03")
    for words in ("mlx5_0/1 is DOWN", "What needs attention: 1", "rdma ports"):
        assert words in text
    assert "ovirt-rdma hosts check host03" in text


def test_a_host_that_is_well(portal):
    text = select(portal(), "Host", **host(portal, "host01"))
    assert "Nothing needs attention." in text
    assert "host03" not in text


def test_a_host_whose_findings_cannot_be_shown_is_not_called_well(portal):
    hidden = portal.double.world.domains.pop(portal.double.world.domain("data2").id)
    page = portal()
    try:
        text = select(page, "Host", **host(portal, "host03"))
        assert "Not all that needs attention can be shown" in text
        assert "Nothing needs attention." not in text
    finally:
        portal.double.world.domains[hidden.id] = hidden


def test_an_object_that_the_data_do_not_have(portal):
    page = portal()
    item = {**domain(portal, "data1"), "id": "none"}
    assert "The data have no such domain" in select(page, "Storage", **item)
    item = {**host(portal, "host01"), "id": "none"}
    assert "The data have no such host" in select(page, "Host", **item)


def test_a_tab_before_anything_is_selected(portal):
    assert "Select one in the list." in reveal(portal(), "host-rdma")


# -- what goes wrong


def changed(portal, **words):
    file = portal.folder / DATA
    file.write_text(json.dumps({**json.loads(file.read_text()), **words}))


def test_a_host_is_not_called_well_where_not_all_findings_are_there(portal):
    changed(portal, findings_left=3)
    text = select(portal(), "Host", **host(portal, "host01"))
    assert "Nothing needs attention." not in text
    assert "3 more on all hosts: ovirt-rdma report shows them." in text


def test_old_data_are_not_shown_as_good(portal):
    changed(portal, made_at="2026-01-01T00:00:00Z")
    text = reveal(portal())
    assert "The data are old" in text
    assert "ovirt-rdma-portal-data.timer" in text
    assert "Unknown by now. Then: Of 4 hosts" in text
    assert "0 of 4\nhosts are well" in text
    assert "✓" not in text
    assert "? Unknown" in text


@pytest.mark.parametrize("made_at", ["", "yesterday"])
def test_data_without_a_time_are_old(portal, made_at):
    changed(portal, made_at=made_at)
    text = reveal(portal())
    assert "of unknown age" in text
    assert "✓" not in text


INSIDE = "document.querySelector('#place iframe').contentWindow"
LATER = f"(w => {{ const now = w.Date.now; w.Date.now = () => now() + %d }})({INSIDE})"


def tick(page):
    page.value_of("document.dispatchEvent(new Event('visibilitychange'))", PAGE)


def test_a_page_that_nobody_uses_asks_no_more_and_grows_old(portal):
    """It would keep the session of a user who has gone."""
    begun = time.monotonic()
    page = portal()
    reveal(page)
    page.value_of(LATER % (31 * 60_000))
    tick(page)
    text = text_of(page, "document.body.innerText.includes('The data are old')")
    (minutes,) = re.findall(r"(\d+) minutes old", text)
    # On a busy machine the page itself takes minutes.
    assert 31 <= int(minutes) <= 32 + (time.monotonic() - begun) // 60
    assert "✓" not in text
    assert len(portal.shown.asked) == 1
    page.value_of("document.dispatchEvent(new Event('keydown'))", PAGE)
    tick(page)
    text_of(page, "!document.body.innerText.includes('The data are old')")
    assert len(portal.shown.asked) == 2


def test_a_page_is_read_again_while_it_is_used_but_not_while_somebody_types(portal):
    page = portal()
    reveal(page)
    page.value_of("document.querySelector('input[type=search]').focus()", PAGE)
    tick(page)
    assert len(portal.shown.asked) == 1
    focus = "document.activeElement.getAttribute('aria-label')"
    assert page.value_of(focus, PAGE) == "Host or cluster"
    page.value_of("document.querySelector('input[type=checkbox]').focus()", PAGE)
    tick(page)
    page.until(
        "performance.getEntriesByType('resource').filter(o => "
        "o.name.endsWith('/ovirt-rdma/portal')).length == 2",
        PAGE,
    )


def test_no_data_yet(portal):
    (portal.folder / DATA).write_bytes(b"")
    portal.refused = True
    text = reveal(portal())
    assert "There are no data yet." in text
    assert "systemctl enable --now ovirt-rdma-portal.socket" in text


HTML = "text/html"
ANSWERS = {
    "not installed": (
        Answer(404, b"<h1>Not Found", HTML),
        "(HTTP 404)",
        "reload httpd",
    ),
    "off": (Answer(503, b"<h1>Unavailable", HTML), "(HTTP 503)", "enable --now"),
    "engine down": (Answer(502, b'{"sentence": "S1."}', ""), "S1.", ""),
    "not allowed": (Answer(403, b'{"sentence": "S2."}', ""), "S2.", ""),
    "ended": (Answer(401, b"{}", ""), "has ended. Log in to the portal again.", ""),
    "no JSON": (Answer(200, b"<h1>", HTML), "The answer cannot be read.", ""),
    "null": (Answer(200, b"null", ""), "The answer cannot be read.", ""),
    "another": (Answer(200, b'{"kind": "x"}', ""), "The answer cannot be read.", ""),
    "elsewhere": (
        Answer(302, b"", "", {"Location": "http://127.0.0.1:1/"}),
        "The engine's web server did not answer.",
        "",
    ),
    "newer": (
        Answer(200, b'{"kind": "portal", "hosts": [], "schema_version": 2}', ""),
        "The data are of another version.",
        "systemctl start",
    ),
    "broken": (
        Answer(200, b'{"kind": "portal", "hosts": [{}], "schema_version": 1}', ""),
        "The data cannot be shown.",
        "",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_no_data_is_one_sentence(portal, name):
    answer, sentence, command = ANSWERS[name]
    page = portal()
    portal.shown.instead, portal.refused = answer, True
    text = reveal(page)
    assert sentence in text
    assert command in text
    assert len(text) < 400
    page.console[:] = [one for one in page.console if "ERR_" not in one]


def again(page):
    page.value_of("document.querySelector('.rdma-age .btn').click()", PAGE)


def test_a_session_that_ends_in_the_middle_leaves_nothing(portal):
    page = portal()
    assert "host03" in reveal(page)
    portal.refused = True
    portal.double.sso.tokens.discard(portal.shown.token)
    again(page)
    text = text_of(page, "document.body.innerText.includes('Log in to the portal')")
    assert "host03" not in text
    assert page.value_of("document.querySelectorAll('table').length", PAGE) == 0


def test_an_engine_that_restarts_leaves_the_data_with_their_age(portal):
    page = portal()
    reveal(page)
    portal.refused = True
    portal.shown.instead = ANSWERS["engine down"][0]
    for _ in range(2):
        again(page)
        text = text_of(page, "document.body.innerText.includes('S1.')")
    assert "Data of " in text
    assert "host03" in text
    assert text.count("S1.") == 1
    portal.shown.instead = None
    again(page)
    text_of(page, "!document.body.innerText.includes('S1.')")


def test_texts_of_others_stay_texts(portal):
    document = json.loads((portal.folder / DATA).read_text())
    for part in (*document["hosts"], *document["domains"]):
        part["name"] = MARKUP
    document["domains"][1]["name"] = HEBREW
    document["hosts"][0]["name"] = HEBREW
    document["cells"] = [
        [one[0], *[MARKUP] * (len(one) - 1)] for one in document["cells"]
    ]
    document["findings"][0].update(sentence=MARKUP, hosts=[MARKUP], fix=MARKUP)
    document["notes"] = [MARKUP]
    document["sentence"] = document["checks"][0] = MARKUP
    changed(portal, **document)
    page = portal()
    text = reveal(page)
    assert text.count(MARKUP) > 10
    assert HEBREW in text
    assert page.value_of("document.querySelectorAll('img').length", PAGE) == 0
    alone = "[...document.querySelectorAll('bdi')].some(o => o.textContent == '%s')"
    assert page.value_of(alone % HEBREW, PAGE)
    text = select(page, "Host", **host(portal, "host02"))
    assert MARKUP in text
    assert page.value_of("document.querySelectorAll('img').length", PAGE) == 0


def test_the_policy_of_the_pages_refuses_markup_and_other_addresses(portal):
    page = portal()
    reveal(page)
    tries = (
        f"{INSIDE}.document.body.innerHTML = '<b>x</b>'",
        f"{INSIDE}.eval('1')",
        f"new {INSIDE}.Function('return 1')",
        f"{INSIDE}.trustedTypes.createPolicy('x', {{}})",
    )
    for one in tries:
        assert page.value_of(
            f"(() => {{ try {{ {one}; return 0 }} catch {{ return 1 }} }})()"
        )
    elsewhere = f"{INSIDE}.fetch('http://127.0.0.1:1/').then(() => 0, () => 1)"
    assert page.value_of(elsewhere)
    assert any("Content Security Policy" in one for one in page.console)
    page.console.clear()


# -- how it is used


def test_with_the_keyboard_alone(portal):
    page = portal()
    reveal(page)
    page.value_of(f"{INSIDE}.focus()")
    focus = "(o => o.tagName + ' ' + (o.getAttribute('aria-label') || o.textContent))"
    seen = []
    for _ in range(30):
        page.press("Tab", 9)
        seen.append(page.value_of(f"{focus}(document.activeElement)", PAGE))
        if seen[-1] == "BUTTON ✕ Failed":
            break
    assert seen[0] == "BUTTON Read again"
    assert "SUMMARY Seen with it: 3" in seen
    assert "INPUT Host or cluster" in seen
    page.press("Enter", 13, "\r")
    detail = "document.querySelector('.rdma-detail')"
    assert "mlx5_0/1 is DOWN" in page.value_of(f"{detail}.innerText", PAGE)
    assert page.value_of(f"{detail}.getAttribute('role')", PAGE) == "status"
    # Focus and detail stay when the data are read again.
    before = page.value_of(
        "document.querySelector('table.rdma-matrix').isConnected", PAGE
    )
    page.value_of("window.old = document.querySelector('table')", PAGE)
    again(page)
    page.until("!old.isConnected", PAGE)
    assert before
    assert "mlx5_0/1 is DOWN" in page.value_of(f"{detail}.innerText", PAGE)
    assert page.value_of(f"{focus}(document.activeElement)", PAGE) == "BUTTON ✕ Failed"


def shown_hosts(page):
    rows = "[...document.querySelectorAll('.rdma-matrix tbody tr')]"
    return page.value_of(
        f"{rows}.filter(o => !o.hidden).map(o => o.querySelector('th').textContent)",
        PAGE,
    )


def test_hosts_can_be_filtered(portal):
    page = portal()
    reveal(page)
    assert len(shown_hosts(page)) == 4
    page.value_of("document.querySelector('input[type=checkbox]').click()", PAGE)
    assert shown_hosts(page) == ["host03"]
    page.value_of("document.querySelector('input[type=checkbox]').click()", PAGE)
    typed = "(o => { o.value = 'HOST02'; o.dispatchEvent(new Event('input')) })"
    page.value_of(f"{typed}(document.querySelector('input[type=search]'))", PAGE)
    assert shown_hosts(page) == ["host02"]
    assert "1 of 4 hosts" in page.value_of("document.body.innerText", PAGE)
    page.value_of("window.old = document.querySelector('table')", PAGE)
    again(page)
    page.until("!old.isConnected", PAGE)
    assert shown_hosts(page) == ["host02"]


def test_a_command_is_copied_or_selected(portal):
    page = portal()
    select(page, "Storage", **domain(portal, "data1"))
    page.value_of("document.querySelector('.rdma-command button').click()", PAGE)
    said = "document.getElementById('said').textContent"
    page.until(said, PAGE)
    if page.value_of(said, PAGE).startswith("Selected"):
        assert page.value_of("String(getSelection())", PAGE).strip() == (
            "ovirt-rdma domain verify data1"
        )


@pytest.fixture(scope="module")
def axe():
    script = axe_core()
    if script is None:
        pytest.skip("there is no npm to fetch axe-core")
    return script


@pytest.mark.parametrize("width", [1000, 1600])
@pytest.mark.parametrize("view", ["all", "old", "domain", "host", "refused"])
def test_axe_finds_nothing_and_nothing_is_cut(portal, axe, view, width):
    portal.refused = view == "refused"
    if view == "old":
        changed(portal, made_at="2026-01-01T00:00:00Z", notes=["A note."])
    jobs.add(portal.double.world, "ovirt-rdma: heal data1")
    page = portal(width=width)
    if view == "refused":
        portal.shown.instead = ANSWERS["off"][0]
    if view == "domain":
        select(page, "Storage", **domain(portal, "data1"))
    elif view == "host":
        select(page, "Host", **host(portal, "host03"))
    else:
        reveal(page)
        page.value_of("document.querySelector('td button')?.click()", PAGE)
        page.value_of(
            "document.querySelectorAll('details').forEach(o => o.open = true)", PAGE
        )
    page.value_of(f"{axe}; 0", PAGE)
    assert page.value_of(VIOLATIONS, PAGE) == []
    wide = "document.documentElement.scrollWidth > innerWidth"
    assert not page.value_of(wide, PAGE)


def test_the_theme_of_the_portal_is_worn(portal):
    if not package_of_npm(PATTERNFLY):
        pytest.skip("there is no npm to fetch PatternFly")
    page = portal()
    reveal(page)
    sheets = "[...document.querySelectorAll('link')].map(o => new URL(o.href).pathname)"
    found = page.value_of(sheets, PAGE)
    assert [one.rpartition("/")[2] for one in found] == [
        "patternfly.min.css",
        "patternfly-additions.min.css",
        "page.css",
    ]
    assert f"/ovirt-engine/webadmin/{THEME}css/patternfly.min.css" == found[0]


def test_no_hosts(page):
    with site(0, ()) as (double, folder):
        shown = Webadmin(double, folder)
        page.open(shown.url, 1000)
        text = reveal(page)
    assert "The engine has no host." in text
    assert "There is no host." in text
    assert (page.console, page.value_of("played.faults")) == ([], [])


# From the last byte of the answer to the next frame with the new table.
PAINT = """new Promise(done => {
  const main = document.getElementById("page");
  new MutationObserver((_, watch) => {
    watch.disconnect();
    const [{responseEnd}] = performance.getEntriesByName(
      location.origin + "/ovirt-rdma/portal").slice(-1);
    const took = () => done(performance.now() - responseEnd);
    requestAnimationFrame(() => setTimeout(took));
  }).observe(main, {childList: true});
  document.querySelector(".rdma-age .btn").click();
})"""


def test_250_hosts_and_8_domains_are_painted_within_a_second(page):
    with site(250, tuple(f"data{n}" for n in range(1, 9))) as (double, folder):
        page.open(Webadmin(double, folder).url, 1600)
        text = reveal(page)
        assert "Of 250 hosts, 19 have a failed check" in text
        assert len(shown_hosts(page)) == 250
        # The best of three: the machine has other work.
        took = [page.value_of(PAINT, PAGE) for _ in range(3)]
        assert min(took) < 1000, took
        print(f"painted in {min(took):.0f} ms")
    assert (page.console, page.value_of("played.faults")) == ([], [])
