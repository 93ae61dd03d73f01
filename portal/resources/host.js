// SPDX-License-Identifier: GPL-2.0-or-later
// @ts-check
/**
 * Enters the plugin in the administration portal, which loads this into a hidden frame:
 * a place in the menu, and a tab of storage domains and of hosts. docs/portal.md.
 *
 * An exception in an event's function ends the plugin for good (PluginManager.java:
 * 274-287), so functions that a portal lacks are not called.
 */

const NAME = "ovirt-rdma";
const PLACE = "rdma";
const PAGE = "plugin/ovirt-rdma/page.html";
// The tab of each kind of object, and links to one: a tab of it, and its name.
const TABS = [
  { entity: "Storage", token: "storage-rdma", view: "domain", event: "StorageSelectionChange", link: /^#storage-[^;]*;(?:.*;)?name=([^;]+)/ },
  { entity: "Host", token: "host-rdma", view: "host", event: "HostSelectionChange", link: /^#hosts?-[^;]*;(?:.*;)?name=([^;]+)/ },
];
// Storage types of EntityObject.java:65-70 that can be mounted over NFS.
const NFS = ["nfs", "posixfs"];
const POLL_MS = 200;

/** @type {any} */
const portal = window.parent;
const api = typeof portal.pluginApi === "function" ? portal.pluginApi(NAME) : null;
// The user has reloaded the portal here, or follows a link.
const begun = portal.location.hash;
const begunHere = new RegExp(`^#${PLACE}(;|$)`).test(begun);

/** @param {string} name */
const has = (name) => typeof api[name] === "function";

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function addPlace() {
  if (!has("addPrimaryMenuPlace")) return;
  // Every place of a plugin becomes the portal's start page, whatever its options say
  // (PluginUiFunctions.java:123-129): ours is added once the portal has shown one.
  if (!begunHere && has("currentPlace") && !api.currentPlace()) {
    setTimeout(addPlace, POLL_MS);
    return;
  }
  api.addPrimaryMenuPlace("RDMA", PLACE, `${PAGE}?view=all`, { priority: 4, icon: "fa-bolt" });
}

/** @param {{token: string, view: string}} tab @param {any[]} selected */
function show(tab, selected) {
  const one = selected && selected.length === 1 ? selected[0] : null;
  if (one && has("setPlaceContentUrl")) {
    const query = new URLSearchParams({ view: tab.view, id: one.id });
    api.setPlaceContentUrl(tab.token, `${PAGE}?${query}`);
  }
  if (one && tab.view === "domain" && has("setPlaceAccessible")) {
    api.setPlaceAccessible(tab.token, NFS.includes(one.type));
  }
}

if (api && has("register") && has("ready")) {
  /** @type {Record<string, Function>} */
  const events = {
    UiInit() {
      if (has("addDetailPlace")) {
        for (const tab of TABS) {
          const query = new URLSearchParams({ view: tab.view });
          // What a link selects is selected before a plugin is in use, which gets no
          // event of it then (PluginEventHandler.java:60-68, PluginManager.java:221-226).
          const name = (begun.match(tab.link) || [])[1];
          if (name) query.set("name", decoded(name));
          api.addDetailPlace(tab.entity, "RDMA", tab.token, `${PAGE}?${query}`);
        }
      }
      addPlace();
    },
  };
  for (const tab of TABS) {
    events[tab.event] = (/** @type {any[]} */ selected) => show(tab, selected);
  }
  api.register(events);
  api.ready();
}
