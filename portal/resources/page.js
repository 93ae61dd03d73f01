// SPDX-License-Identifier: GPL-2.0-or-later
// @ts-check
/**
 * Shows the data of one view: all, a domain, or a host. The frame's address names it:
 * page.html?view=domain&id=ID, or name=NAME where the portal has only that.
 *
 * All texts come from hosts and the engine, so they only ever become text nodes; the
 * page's policy (require-trusted-types-for) refuses anything else. The token of the
 * portal goes to our service in a header and nowhere else, without cookies.
 *
 * @typedef {[string, string, string?, string?]} Cell verdict, text, sentence, fix
 * @typedef {{verdict: string, hosts: string[], sentence: string, fix: string, domains: string, also: Finding[]}} Finding
 * @typedef {{id: string, description: string, status: string, started_at: string, ended?: number, last?: string}} Run
 * @typedef {{id: string, name: string, cluster: string, status: string | null, worst: string, problem: string, fix: string, row: number, commands: string[]}} Host
 * @typedef {{id: string, name: string, data_center: string, status: string | null, export: string, nfs_version: string | null, engine_asks: string, used: Record<string, number>, commands: string[]}} Domain
 * @typedef {{made_at: string, now: string, version: string, sentence: string, checks: string[], domains: Domain[], hosts: Host[], cells: Cell[], rows: number[][], findings: Finding[], findings_left: number, findings_hidden?: boolean, notes: string[], runs: Run[] | null, runs_problem?: string}} Data
 */

const SERVICE = "/ovirt-rdma/portal";
const REFRESH_MS = 60_000;
const LIMIT_MS = 60_000;
// A session of the portal ends after 30 minutes without use.
const IDLE_MS = 5 * 60_000;
// Three times the timer's.
const STALE_MS = 30 * 60_000;
const SHOWN = 6;
/** The worst first, as in docs/matrix.md. */
const VERDICTS = ["fail", "unknown", "warn", "ok", "none"];
const WORDS = /** @type {Record<string, string>} */ ({
  fail: "Failed", unknown: "Unknown", warn: "Warning", ok: "Good", none: "Does not apply",
});
const SIGNS = /** @type {Record<string, string>} */ ({ fail: "✕", unknown: "?", warn: "!", ok: "✓", none: "-" });
const MOUNTS = /** @type {Record<string, string>} */ ({
  rdma: "mounts over RDMA", tcp: "mounts over TCP", "not mounted": "not mounted",
  unproven: "mounts not proven", unknown: "mounts unknown",
});
const LOG_IN = "Log in to the portal again.";
const FIXES = /** @type {Record<number, string>} */ ({
  404: "systemctl reload httpd",
  503: "systemctl enable --now ovirt-rdma-portal.socket ovirt-rdma-portal-data.timer",
});

const page = /** @type {HTMLElement} */ (document.getElementById("page"));
const said = /** @type {HTMLElement} */ (document.getElementById("said"));
const query = new URLSearchParams(location.search);
const view = query.get("view") || "all";
/** What the user has chosen, kept when the data are read again. */
const chosen = { filter: "", only: false, detail: "" };
let stale = false;
/** @type {{data: Data, at: number} | null} what was read last, and when by this clock */
let last = null;
/** When the page was used last. */
let used = Date.now();

/** An answer that is no data: a sentence, and a command to run on the engine machine. */
class Refused extends Error {
  /** @param {string} sentence @param {string} [command] @param {boolean} [ended] */
  constructor(sentence, command = "", ended = false) {
    super(sentence);
    this.command = command;
    this.ended = ended;
  }
}

/**
 * Makes an element. Strings among the children become text.
 * @param {string} tag @param {Record<string, any>} [properties]
 * @param {...(Node | string | null | undefined)} children
 */
function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) /** @type {any} */ (element)[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((one) => one !== null && one !== undefined));
  return element;
}

/** A name, whatever direction it is written in. @param {string} name */
const named = (name) => make("bdi", {}, name);

/** @param {string[]} names */
function listed(names) {
  const first = names.slice(0, SHOWN).flatMap((name, n) => (n ? [", ", named(name)] : [named(name)]));
  return names.length > SHOWN ? [...first, ` and ${names.length - SHOWN} more`] : first;
}

/** @param {number} number @param {string} noun */
const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

/** @param {string} sentence */
function say(sentence) {
  said.textContent = sentence;
}

/** What was good may not be so any more. @param {string} verdict */
const now = (verdict) => (stale && verdict === "ok" ? "unknown" : verdict);

/** @param {string[]} verdicts */
const worst = (verdicts) => VERDICTS.find((one) => verdicts.includes(one)) || "none";

/** @param {string} verdict @param {string} [text] */
function sign(verdict, text = WORDS[verdict]) {
  const word = text === WORDS[verdict] ? null : make("span", { className: "rdma-hidden" }, `${WORDS[verdict]}: `);
  const mark = make("span", { "aria-hidden": "true" }, `${SIGNS[verdict] || "?"} `);
  return make("span", { className: `rdma-verdict rdma-${verdict}` }, mark, word, text === "-" ? null : text);
}

/** @param {string} command @param {string} [what] */
function copied(command, what = "") {
  const code = make("code", {}, command);
  const button = make("button", { type: "button", className: "btn btn-default btn-xs" }, "Copy");
  button.setAttribute("aria-label", `Copy ${command}`);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
      say("Copied.");
    } catch {
      /** @type {Selection} */ (getSelection()).selectAllChildren(code);
      say("Selected: copy it with Ctrl+C.");
    }
  });
  return make("div", { className: "rdma-command" }, what ? make("span", { className: "rdma-what" }, what) : null, code, button);
}

/** A command to copy, or what else to do. @param {string} [fix] */
function fixed(fix) {
  if (!fix) return null;
  return /^ovirt-rdma(-host)? /.test(fix) ? copied(fix) : make("p", { className: "rdma-fix" }, "What to do: ", named(fix));
}

/** @param {string} kind @param {string} sentence @param {string} [command] */
function alerted(kind, sentence, command = "") {
  const more = command ? [copied(command, "On the engine machine")] : [];
  return make("div", { className: `rdma-alert rdma-${kind}`, role: "alert" }, sign(kind), ` ${sentence}`, ...more);
}

/** @param {number} ms */
function aged(ms) {
  const minutes = Math.max(0, Math.round(ms / 60_000));
  if (minutes < 120) return counted(minutes, "minute");
  return minutes < 2880 ? counted(Math.round(minutes / 60), "hour") : counted(Math.round(minutes / 1440), "day");
}

/** @param {string} text */
const at = (text) => (/^[0-9-]{10}T[0-9:]{5}/.test(text) ? `${text.slice(0, 10)} ${text.slice(11, 16)}` : text);

// -- the data

/** Reads the data. Throws Refused. @returns {Promise<Data>} */
async function read() {
  const portal = /** @type {any} */ (window.parent);
  const api = portal !== window && typeof portal.pluginApi === "function" ? portal.pluginApi("ovirt-rdma") : null;
  if (!api || typeof api.ssoToken !== "function") {
    throw new Refused("This page is a part of the administration portal: open it there.");
  }
  const token = api.ssoToken();
  if (!token) throw new Refused(`There is no session. ${LOG_IN}`, "", true);
  let answer;
  try {
    answer = await fetch(SERVICE, {
      headers: { Accept: "application/json", Authorization: `Bearer ${token}` },
      cache: "no-store", credentials: "omit", redirect: "error", signal: AbortSignal.timeout(LIMIT_MS),
    });
  } catch {
    throw new Refused("The engine's web server did not answer.");
  }
  let data = null;
  try {
    data = await answer.json();
  } catch {
    data = null;
  }
  const sentence = data && typeof data.sentence === "string" ? data.sentence : "";
  if (answer.status === 401) throw new Refused(`${sentence || "The session has ended."} ${LOG_IN}`, "", true);
  if (answer.status === 403) throw new Refused(sentence || "You may not see these data.", "", true);
  if (!answer.ok) {
    throw new Refused(sentence || `The service of the data does not answer (HTTP ${answer.status}).`, FIXES[answer.status]);
  }
  if (!data || data.kind !== "portal" || !Array.isArray(data.hosts)) throw new Refused("The answer cannot be read.");
  if (data.schema_version !== 1) throw new Refused("The data are of another version.", "systemctl start ovirt-rdma-portal-data.service");
  return data;
}

/** @param {Data} data @param {Host} host @returns {Cell[]} */
const cellsOf = (data, host) => data.rows[host.row].map((number) => data.cells[number]);

// -- parts of a view

/** @param {Data} data */
function figures(data) {
  const well = data.hosts.filter((host) => now(host.worst) === "ok").length;
  /** @type {Record<string, number>} */
  const used = {};
  for (const domain of data.domains) {
    for (const [word, number] of Object.entries(domain.used)) used[word] = (used[word] || 0) + number;
  }
  const all = [[`${well} of ${data.hosts.length}`, "hosts are well"], [`${data.domains.length}`, "NFS domains"]];
  for (const [word, noun] of Object.entries(MOUNTS)) if (used[word]) all.push([`${used[word]}`, noun]);
  return make("ul", { className: "rdma-figures" }, ...all.map(([number, noun]) => make("li", {}, make("strong", {}, number), noun)));
}

/** @param {Finding} one @param {boolean} [inner] @returns {HTMLElement} */
function finding(one, inner = false) {
  const also = one.also.length
    ? make("details", {}, make("summary", {}, `Seen with it: ${one.also.length}`), ...one.also.map((other) => finding(other, true)))
    : null;
  const where = make("p", {}, sign(one.verdict), `, ${counted(one.hosts.length, "host")}: `, ...listed(one.hosts));
  const domains = one.domains ? make("p", {}, "Domains: ", named(one.domains)) : null;
  const parts = [where, make("p", {}, named(one.sentence)), domains, fixed(one.fix), also];
  return inner ? make("div", { className: `rdma-${one.verdict}` }, ...parts) : make("li", { className: `rdma-${one.verdict}` }, ...parts);
}

/** @param {Finding[]} findings @param {number} left @param {boolean} [hidden] whether the engine hides others */
function attention(findings, left, hidden) {
  const none = stale ? "Nothing needed attention at that time." : "Nothing needs attention.";
  const some = "Not all that needs attention can be shown: the engine does not list all hosts and domains for you.";
  return make(
    "section", {}, make("h2", {}, `What needs attention: ${findings.length}${hidden ? " or more" : ""}`),
    findings.length ? make("ol", { className: "rdma-findings" }, ...findings.map((one) => finding(one))) : null,
    hidden ? make("p", {}, sign("unknown"), ` ${some}`) : findings.length || left ? null : make("p", {}, none),
    left ? make("p", {}, `${left} more on all hosts: ovirt-rdma report shows them.`) : null,
  );
}

/** @param {Data} data */
function runs(data) {
  const parts = [];
  if (!data.runs) parts.push(make("p", {}, sign("unknown"), ` ${data.runs_problem || ""}`));
  else if (!data.runs.length) parts.push(make("p", {}, "No run is under way, and none ended lately."));
  else {
    const rows = data.runs.map((run) => {
      const steps = run.status === "started" ? `${counted(run.ended || 0, "step")} ended. Last begun: ${run.last || "-"}` : "";
      return make("tr", {}, make("th", { scope: "row" }, named(run.description)), make("td", {}, run.status), make("td", {}, named(steps)), make("td", {}, at(run.started_at)));
    });
    parts.push(table("Runs of ovirt-rdma among the engine's tasks", ["Run", "State", "Progress", "Started"], rows));
  }
  return make("section", {}, make("h2", {}, "Runs"), ...parts);
}

/** @param {string} caption @param {(string | Node)[]} heads @param {HTMLElement[]} rows */
function table(caption, heads, rows) {
  const head = make("thead", {}, make("tr", {}, ...heads.map((one) => make("th", { scope: "col" }, one))));
  const inside = make("table", { className: "rdma-matrix" }, make("caption", {}, caption), head, make("tbody", {}, ...rows));
  return make("div", { className: "rdma-scroll", tabIndex: 0, role: "region", "aria-label": caption }, inside);
}

/**
 * A cell of a matrix; with sentences it is a button that shows them below the table.
 * @param {string} verdict @param {string} text @param {string} about
 * @param {Cell[]} sentences @param {HTMLElement} detail
 */
function cell(verdict, text, about, sentences, detail) {
  const shown = sign(now(verdict), text);
  const saying = sentences.filter((one) => one[2]);
  if (!saying.length) return make("td", {}, shown);
  const button = make("button", { type: "button", className: `rdma-${now(verdict)}` }, shown);
  const show = () => {
    chosen.detail = about;
    detail.replaceChildren(
      make("h3", {}, named(about)),
      ...saying.map((one) => make("div", {}, make("p", {}, sign(now(one[0])), " ", named(one[2] || "")), fixed(one[3]))),
    );
    detail.hidden = false;
  };
  button.addEventListener("click", show);
  if (chosen.detail === about) show();
  return make("td", {}, button);
}

/** Domains by hosts, with one column for all checks of a host. @param {Data} data */
function matrix(data) {
  const detail = make("div", { className: "rdma-detail", role: "status", hidden: true });
  const rows = data.hosts.map((host) => {
    const all = cellsOf(data, host);
    const checks = all.slice(0, data.checks.length);
    const verdict = worst(checks.map((one) => one[0]));
    const its = [
      cell(verdict, WORDS[now(verdict)], `${host.name}, checks`, checks, detail),
      ...all.slice(data.checks.length).map((one, n) => cell(one[0], one[1], `${host.name}, ${data.domains[n].name}`, [one], detail)),
    ];
    const row = make("tr", {}, make("th", { scope: "row" }, named(host.name)), make("td", {}, named(host.cluster)), ...its);
    return { row, name: `${host.name} ${host.cluster}`.toLowerCase(), bad: VERDICTS.indexOf(now(host.worst)) < VERDICTS.indexOf("ok") };
  });
  const heads = ["Host", "Cluster", "Checks", ...data.domains.map((domain) => named(domain.name))];
  const count = make("span", { role: "status" });
  const filter = /** @type {HTMLInputElement} */ (make("input", { type: "search", className: "form-control input-sm", value: chosen.filter, "aria-label": "Host or cluster" }));
  const only = /** @type {HTMLInputElement} */ (make("input", { type: "checkbox", checked: chosen.only, "aria-label": "Only what needs attention" }));
  const choose = () => {
    chosen.filter = filter.value;
    chosen.only = only.checked;
    let shown = 0;
    for (const one of rows) {
      one.row.hidden = !one.name.includes(filter.value.trim().toLowerCase()) || (only.checked && !one.bad);
      if (!one.row.hidden) shown += 1;
    }
    count.textContent = `${shown} of ${counted(rows.length, "host")}`;
  };
  filter.addEventListener("input", choose);
  only.addEventListener("change", choose);
  choose();
  const tools = make("div", { className: "rdma-tools" }, make("label", {}, "Host or cluster", filter), make("label", {}, only, " Only what needs attention"), count);
  const empty = data.hosts.length ? [tools, table("The transport of each domain on each host", heads, rows.map((one) => one.row)), detail] : [make("p", {}, "There is no host.")];
  return make("section", {}, make("h2", {}, "Domains by hosts"), ...empty);
}

/** @param {[string, string | null][]} facts */
const facts = (facts) => make("dl", { className: "rdma-facts" }, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, named(value || "-"))]));

/** @param {string[]} commands */
function commands(commands) {
  const what = /** @type {[RegExp, string][]} */ ([
    [/ verify /, "Verify"], [/ heal /, "Heal"], [/--to rdma/, "Convert to RDMA"], [/--to tcp/, "Convert to TCP"], [/ revert /, "Revert"], [/ check /, "Check"],
  ]);
  const name = (/** @type {string} */ one) => (what.find(([pattern]) => pattern.test(one)) || ["", ""])[1];
  return make(
    "section", {}, make("h2", {}, "Commands"),
    make("p", {}, "To be run on the engine machine. With --dry-run a command shows its requests and changes nothing; without it, it shows its plan and asks."),
    ...commands.map((one) => copied(one, name(one))),
  );
}

/** @param {string} what @param {Cell} one */
function detailed(what, one) {
  const sentence = make("td", {}, named(one[2] || ""), fixed(one[3]));
  return make("tr", {}, make("th", { scope: "row" }, named(what)), make("td", {}, sign(now(one[0]), one[1])), sentence);
}

/** @param {Data} data @param {Domain} domain */
function ofDomain(data, domain) {
  const column = data.checks.length + data.domains.indexOf(domain);
  const order = (/** @type {Host} */ host) => VERDICTS.indexOf(now(cellsOf(data, host)[column][0]));
  const hosts = data.hosts.filter((host) => cellsOf(data, host)[column][0] !== "none");
  const rows = [...hosts].sort((one, other) => order(one) - order(other)).map((host) => detailed(host.name, cellsOf(data, host)[column]));
  return [
    facts([["Export", domain.export], ["NFS version", domain.nfs_version], ["Engine's options", domain.engine_asks], ["Status", domain.status], ["Data center", domain.data_center]]),
    make("section", {}, make("h2", {}, "Transport by host"), rows.length ? table("The transport of this domain on each host", ["Host", "Transport", "Why, and what to do"], rows) : make("p", {}, "No host uses this domain.")),
    commands(domain.commands),
  ];
}

/** @param {Data} data @param {Host} host */
function ofHost(data, host) {
  const all = cellsOf(data, host);
  const heads = ["Check", "Result", "Why, and what to do"];
  const checks = data.checks.map((name, n) => detailed(name, all[n]));
  const domains = data.domains.map((domain, n) => detailed(domain.name, all[data.checks.length + n]));
  return [
    host.problem ? alerted("unknown", host.problem, host.fix) : null,
    facts([["Status", host.status], ["Cluster", host.cluster]]),
    attention(data.findings.filter((one) => one.hosts.includes(host.name)), data.findings_left, data.findings_hidden),
    make("section", {}, make("h2", {}, "Domains"), domains.length ? table("The transport of each domain on this host", ["Domain", ...heads.slice(1)], domains) : make("p", {}, "There is no NFS domain.")),
    make("section", {}, make("h2", {}, "Checks"), table("The checks of this host", heads, checks)),
    commands(host.commands),
  ];
}

// -- the page

/** @param {Data} data @param {number} since it was read, in milliseconds */
function show(data, since) {
  const age = Date.parse(data.now) - Date.parse(data.made_at) + since;
  stale = !(age < STALE_MS);
  const again = make("button", { type: "button", className: "btn btn-default btn-xs" }, "Read again");
  again.addEventListener("click", () => refresh(true));
  const [id, name] = [query.get("id"), query.get("name")];
  const isIt = (/** @type {{id: string, name: string}} */ one) => (id ? one.id === id : one.name === name);
  const domain = view === "domain" ? data.domains.find(isIt) : undefined;
  const host = view === "host" ? data.hosts.find(isIt) : undefined;
  const title = make("h1", {}, "RDMA storage", ...(domain || host ? [": ", named((domain || host || { name: "" }).name)] : []));
  const head = [
    title,
    make("p", { className: "rdma-age" }, `Data of ${at(data.made_at)} UTC, ${Number.isNaN(age) ? "of unknown age" : `${aged(age)} old`}`, again),
    stale ? alerted("warn", "The data are old: what they show may have changed since.", "systemctl status ovirt-rdma-portal-data.timer ovirt-rdma-portal-data.service") : null,
  ];
  let parts;
  if (view === "all") {
    parts = [
      make("p", { className: "rdma-sentence" }, stale ? `Unknown by now. Then: ${data.sentence}` : data.sentence),
      figures(data), ...data.notes.map((note) => make("p", {}, named(note))),
      attention(data.findings, data.findings_left, data.findings_hidden), runs(data), matrix(data),
    ];
  } else if (domain) parts = ofDomain(data, domain);
  else if (host) parts = ofHost(data, host);
  else if (!id && !name) parts = [make("p", {}, "Select one in the list.")];
  else {
    const which = view === "domain" ? "The data have no such domain: it is not mounted over NFS, or newer than they are." : "The data have no such host: it is newer than they are.";
    parts = [make("p", {}, which)];
  }
  page.replaceChildren(...[...head, ...parts].filter((one) => one !== null));
}

/** Shows what was read last, with its age, and leaves focus and place as they are. */
function draw() {
  if (!last) return;
  const top = scrollY;
  const active = /** @type {HTMLElement} */ (document.activeElement);
  const label = labelOf(active);
  const caret = active instanceof HTMLInputElement && active.type === "search" ? active.selectionStart : null;
  show(last.data, Date.now() - last.at);
  const again = label ? [...page.querySelectorAll(active.tagName)].find((one) => labelOf(one) === label) : null;
  if (again) /** @type {HTMLElement} */ (again).focus();
  if (again && caret !== null) /** @type {HTMLInputElement} */ (again).setSelectionRange(caret, caret);
  scrollTo(0, top);
}

/** @param {Element} one */
const labelOf = (one) => (one === document.body ? "" : one.getAttribute("aria-label") || one.textContent);

/** @param {boolean} asked by the user */
async function refresh(asked) {
  try {
    const data = await read();
    last = { data, at: Date.now() };
    draw();
    if (asked) say("The data were read.");
  } catch (error) {
    const refused = error instanceof Refused ? error : new Refused("The data cannot be shown.");
    const shown = alerted("fail", refused.message, refused.command);
    // Without a session nothing stays to be seen; else the data do, with their age.
    if (refused.ended || !(error instanceof Refused)) last = null;
    if (!last) page.replaceChildren(make("h1", {}, "RDMA storage"), shown);
    else {
      draw();
      page.querySelector("h1")?.after(shown);
    }
  }
}

/**
 * Reads again, but not for a page that nobody uses: each request may keep the session from
 * its end. The age is shown all the same, so that nothing stays good.
 */
function tick() {
  if (document.hidden) return;
  const active = document.activeElement;
  const typing = active instanceof HTMLInputElement && active.type === "search";
  const idle = Date.now() - used > IDLE_MS || typing;
  if (idle) draw();
  else refresh(false);
}

/** The portal's own style sheets: a frame inherits none, and each brand has its own. */
function wear() {
  const ours = document.querySelector("link");
  for (const link of window.parent.document.querySelectorAll("link")) {
    if (new URL(link.href).origin === location.origin && /\/patternfly(-additions)?(\.min)?\.css$/.test(link.href)) {
      ours?.before(make("link", { rel: "stylesheet", href: link.href }));
    }
  }
}

wear();
refresh(false);
setInterval(tick, REFRESH_MS);
document.addEventListener("visibilitychange", tick);
for (const name of ["pointerdown", "keydown", "wheel"]) {
  document.addEventListener(name, () => {
    used = Date.now();
  });
}
