// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Plays the administration portal for our plugin: the part of its plugin API that the
 * plugin uses, strictly. Each behaviour has the class and lines of ovirt-engine 4.5.7 that
 * it rests on, below frontend/webadmin/modules: `tests/engine/portal/` compares the names
 * with the source. `played` is for tests; what the portal would ignore or lose is in
 * played.faults.
 */
"use strict";

const settings = JSON.parse(document.getElementById("settings").textContent);

// PluginManager.java:473-657: the names of the API, without the deprecated ones.
const FUNCTIONS = [
  "addDetailPlace", "addDetailPlaceActionButton", "addMenuPlaceActionButton",
  "addPrimaryMenuContainer", "addPrimaryMenuPlace", "addSecondaryMenuPlace", "closeDialog",
  "configObject", "currentLocale", "currentPlace", "engineBaseUrl", "logger", "loginUserId",
  "loginUserName", "options", "ready", "register", "reportFatalError", "revealPlace",
  "rootTag", "setDialogContentUrl", "setPlaceAccessible", "setPlaceContentUrl",
  "setPlaceUnloadHandler", "setSearchString", "showAlert", "showDialog", "showToast",
  "ssoToken",
];
// EntityType.java: those with a tab panel that we use.
const ENTITIES = ["DataCenter", "Cluster", "Host", "Storage"];
// EntityObject.java:59-70: all that a plugin gets of them.
const FIELDS = { Host: ["hostname", "id", "managed", "name"], Storage: ["dataCenterId", "id", "name", "type"] };

const played = {
  settings, faults: [], state: "DEFINED", handlers: null, frame: null,
  // WebAdminPlaceManager.java:20-31: what it is before a plugin sets another.
  defaultPlace: "vms", currentPlace: null,
  places: {}, tabs: {}, events: [],
};
const fault = (text) => played.faults.push(text);

// Scheduler.scheduleDeferred
const deferred = (action) => setTimeout(action, 0);

// PluginManager.java:300-309: what comes too early is ignored.
const acts = (name) => {
  if (["INITIALIZING", "IN_USE"].includes(played.state)) return true;
  fault(`${name} in state ${played.state} is ignored`);
  return false;
};
const safe = (name) => (played.state === "LOADING" ? true : acts(name));

// PluginManager.java:274-287: an exception ends the plugin.
function invoke(name, ...words) {
  const handler = played.handlers && played.handlers[name];
  // JsFunction.java:43-58: what is missing or no function does nothing.
  if (typeof handler !== "function") return true;
  try {
    handler(...words);
    return true;
  } catch (error) {
    fault(`${name} threw ${error}`);
    played.frame.remove();
    played.state = "FAILED";
    return false;
  }
}

function text(value, name) {
  if (typeof value !== "string" || !value) fault(`${name} is ${JSON.stringify(value)}`);
  return value;
}

// TabOptions.java:21-50: types are checked, others are ignored.
function options(value) {
  const types = { priority: "number", icon: "string", defaultPlace: "boolean", searchPrefix: "string" };
  for (const [name, one] of Object.entries(value || {})) {
    if (typeof one !== types[name]) fault(`an option ${name}: ${JSON.stringify(one)} is ignored`);
  }
}

const api = {
  // PluginManager.java:314-327: only once.
  register(handlers) {
    if (played.handlers) fault("registered twice");
    else played.handlers = handlers;
  },
  // PluginManager.java:345-367 and 395-413
  ready() {
    if (played.state !== "LOADING") return fault(`ready in state ${played.state}`);
    if (!played.handlers) return fault("ready without handlers");
    played.state = "INITIALIZING";
    if (invoke("UiInit")) played.state = "IN_USE";
    if (settings.begins_after_ms === null) played.begin();
    return undefined;
  },
  // PluginUiFunctions.java:95-99 and 123-129: it becomes the start page.
  addPrimaryMenuPlace(label, token, url, its) {
    if (!acts("addPrimaryMenuPlace")) return;
    options(its);
    played.places[text(token, "token")] = { label: text(label, "label"), url: text(url, "url") };
    const link = document.createElement("a");
    link.href = `#${token}`;
    link.textContent = label;
    document.getElementById("menu").append(link);
    played.defaultPlace = token;
  },
  // PluginUiFunctions.java:134-160: nothing for an entity without a tab panel.
  addDetailPlace(entity, label, token, url, its) {
    if (!acts("addDetailPlace")) return;
    options(its);
    if (!ENTITIES.includes(entity)) return void fault(`no entity ${entity}`);
    played.tabs[text(token, "token")] = { entity, label: text(label, "label"), url: text(url, "url"), accessible: true };
  },
  // PluginUiFunctions.java:165-168, DynamicUrlContentTabPresenter.java:37-41
  setPlaceContentUrl(token, url) {
    if (!acts("setPlaceContentUrl")) return;
    deferred(() => {
      const place = played.tabs[token] || played.places[token];
      if (!place) return void fault(`setPlaceContentUrl: no place ${token}`);
      place.url = text(url, "url");
      if (played.currentPlace === token) played.show(token);
    });
  },
  // PluginUiFunctions.java:173-176
  setPlaceAccessible(token, accessible) {
    if (!acts("setPlaceAccessible")) return;
    if (typeof accessible !== "boolean") fault(`accessible is ${accessible}`);
    deferred(() => { played.tabs[token].accessible = accessible; });
  },
  // PluginUiFunctions.java:352-354: null before the first place.
  currentPlace() {
    return safe("currentPlace") ? played.currentPlace : undefined;
  },
  // PluginManager.java:616-620: what CurrentUser has; it stays when the session ends.
  ssoToken() {
    return safe("ssoToken") ? settings.token : undefined;
  },
};

// PluginManager.java:468-470. What is not there in any version is a fault.
window.pluginApi = (name) => {
  if (name !== "ovirt-rdma") fault(`the plugin calls itself ${name}`);
  return new Proxy(api, {
    get(target, key) {
      if (!FUNCTIONS.includes(key)) fault(`there is no ${String(key)}`);
      if (settings.missing.includes(key)) return undefined;
      if (!(key in target)) fault(`${String(key)} is not played`);
      return target[key];
    },
  });
};

// AbstractDynamicUrlContentView.java:61-63: a frame with the address, as the page has it.
played.show = (token) => {
  const place = played.tabs[token] || played.places[token];
  played.currentPlace = token;
  document.getElementById("tabs").textContent = played.tabs[token] ? `${played.tabs[token].entity}: RDMA` : "";
  const frame = document.createElement("iframe");
  frame.title = "RDMA";
  if (place) frame.src = place.url;
  document.getElementById("place").replaceChildren(...(place ? [frame] : []));
};

// ApplicationInit.java:72-80, ApplicationPlaceManager.java:63-81 and 91-93: the first
// place is that of the address; an unknown one leads to the default place.
played.begin = () => {
  const token = location.hash.slice(1).split(";")[0];
  const known = ["vms", "hosts", "storage", "hosts-general", "storage-general"].includes(token) || token in played.places || token in played.tabs;
  played.show(token && known ? token : played.defaultPlace);
  // PluginEventHandler.java:44-51
  if (played.state === "IN_USE") invoke("UserLogin", "admin", "1");
};
window.addEventListener("hashchange", played.begin);

// PluginEventHandler.java:60-68: only plugins that are in use get it.
played.select = (entity, ...items) => {
  for (const item of items) {
    for (const name of Object.keys(item)) if (!FIELDS[entity].includes(name)) throw new Error(`no field ${name}`);
  }
  if (played.state === "IN_USE") invoke(`${entity}SelectionChange`, items);
};

// PluginManager.java:172-204
window.addEventListener("load", () => {
  played.frame = document.createElement("iframe");
  played.frame.src = settings.descriptor.url;
  played.frame.title = "plugin";
  played.frame.style.cssText = "position: absolute; width: 0; height: 0; border: 0";
  document.body.append(played.frame);
  played.state = "LOADING";
  // The plugin may be in use before the first place is shown, or after it: as tests say.
  if (settings.begins_after_ms !== null) setTimeout(played.begin, settings.begins_after_ms);
});
