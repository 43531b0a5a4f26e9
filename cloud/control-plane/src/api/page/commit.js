"use strict";

// The token stands behind the "#": browsers send it to nobody. It leaves the page only in the body of a request
// and in the query of the look, both to the server that the page came from.
const [, kind, cvm] = location.pathname.split("/");
const token = location.hash.slice(1);
const at = (id) => document.getElementById(id);

function say(text, failed = false) {
  at("message").textContent = text;
  at("message").classList.toggle("failed", failed);
}

function words(body) {
  const list = [body.message || body.detail || "The server gave no reason.", ...(body.suggestions || [])];
  return list.filter((text) => typeof text === "string").join(" ");
}

async function call(method, query, body) {
  const path = `/api/v1/cvms/${encodeURIComponent(cvm)}/${encodeURIComponent(kind)}${query}`;
  const answer = await fetch(path, {
    method,
    credentials: "omit",
    referrerPolicy: "no-referrer",
    headers: body ? { "content-type": "application/json" } : {},
    body: body && JSON.stringify(body),
  });
  const json = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(words(json));
  return json;
}

function fact(name, value) {
  if (value === null || value === undefined || value === "") return;
  const [term, text] = [document.createElement("dt"), document.createElement("dd")];
  term.textContent = name;
  text.textContent = String(value);
  at("facts").append(term, text);
}

function standing({ onchain_status: status, onchain_actions: actions }) {
  if (!status) return "Whether it is allowed cannot be told at the moment.";
  if (status.is_allowed) return "Those who decide have allowed it: it can be committed.";
  const missing = status.compose_hash_allowed ? [] : ["the compose hash"];
  if (actions.some((action) => action.method === "addDevice")) missing.push("the device");
  return `Not allowed yet: ${missing.join(" and ")}.`;
}

// Whoever approves a hash should not have to believe the server about what it is the hash of. False when it is not
// that of the document, undefined where the browser cannot tell.
async function hashFits(change) {
  if (!change.app_compose || !globalThis.crypto || !crypto.subtle) return undefined;
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(change.app_compose));
  const hash = [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hash === change.compose_hash;
}

const HASH_WORDS = {
  true: "Your browser computed the compose hash of this document: it is the one above.",
  false: "This document does NOT have the compose hash above.",
  undefined: "Your browser computes hashes only over https.",
};

const STATUS_WORDS = {
  pending: "This change waits.",
  committed: "This change was committed.",
  superseded: "Another change took the place of this one.",
};

async function show(change) {
  const what = change.kind === "replica" ? "A replica of" : "An update of";
  at("title").textContent = `${what} ${change.name}`;
  at("facts").replaceChildren();
  fact("Application", `0x${change.app_id}`);
  fact("Compose hash", `0x${change.compose_hash}`);
  fact("Device", `0x${change.device_id}`);
  fact("Chain", change.chain_id);
  fact("Waits until", new Date(change.expires_at).toLocaleString());
  const isPending = change.status === "pending";
  at("standing").textContent = isPending ? standing(change) : "";
  at("call-list").replaceChildren(
    ...change.onchain_actions.map((action) => {
      const item = document.createElement("li");
      item.textContent = `${action.method} of ${action.to}, calldata ${action.calldata}`;
      return item;
    }),
  );
  at("calls").hidden = !isPending || change.onchain_actions.length === 0;
  at("summary").textContent = change.summary || "Nothing is kept of a change that ended.";
  at("document").textContent = change.app_compose || "";
  const fits = await hashFits(change);
  at("hash-check").textContent = change.app_compose ? HASH_WORDS[fits] : "";
  at("commit").hidden = !isPending || fits === false;
  at("change").hidden = false;
  if (fits === false) say("The server shows another document than the one to be allowed. Do not approve it.", true);
  else say(STATUS_WORDS[change.status] || change.status);
}

async function load() {
  if (!token) {
    say("The address of this page is incomplete: the part behind the # is missing.", true);
    return;
  }
  try {
    await show(await call("GET", `?token=${encodeURIComponent(token)}`));
  } catch (error) {
    say(error.message, true);
  }
}

async function commit(event) {
  event.preventDefault();
  at("button").disabled = true;
  say("Committing…");
  try {
    await call("POST", "", { token, transaction_hash: at("transaction").value.trim() });
    await load();
  } catch (error) {
    say(error.message, true);
  } finally {
    at("button").disabled = false;
  }
}

addEventListener("hashchange", () => location.reload());
at("commit").addEventListener("submit", commit);
load();
