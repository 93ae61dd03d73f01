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
// The tab of each kind of object, and which objects have one.
const TABS = [
  { entity: "Storage", token: "storage-rdma", view: "domain", event: "StorageSelectionChange" },
  { entity: "Host", token: "host-rdma", view: "host", event: "HostSelectionChange" },
];
// Storage types of EntityObject.java:65-70 that can be mounted over NFS.
const NFS = ["nfs", "posixfs"];
const POLL_MS = 200;

/** @type {any} */
const portal = window.parent;
const api = typeof portal.pluginApi === "function" ? portal.pluginApi(NAME) : null;
// The user has reloaded the portal here, or follows a link.
const begunHere = new RegExp(`^#${PLACE}(;|$)`).test(portal.location.hash);

/** @param {string} name */
const has = (name) => typeof api[name] === "function";

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
          api.addDetailPlace(tab.entity, "RDMA", tab.token, `${PAGE}?view=${tab.view}`);
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
