"use strict";

// The API key leaves the page only in a header, to the server that the page came from.
const at = (id) => document.getElementById(id);

function say(text, failed = false) {
  at("message").textContent = text;
  at("message").classList.toggle("failed", failed);
}

function words(body) {
  const detail = Array.isArray(body.detail) ? body.detail.map((fault) => fault.msg).join(" ") : body.detail;
  return [body.message || detail || "The server gave no reason.", ...(body.suggestions || [])].join(" ");
}

async function call(method, path, body) {
  const answer = await fetch(`/api/v1/auth/device/${path}`, {
    method,
    credentials: "omit",
    referrerPolicy: "no-referrer",
    headers: { "x-api-key": at("key").value.trim(), ...(body ? { "content-type": "application/json" } : {}) },
    body: body && JSON.stringify(body),
  });
  const json = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(words(json));
  return json;
}

function fact(name, value) {
  const [term, text] = [document.createElement("dt"), document.createElement("dd")];
  term.textContent = name;
  text.textContent = value;
  at("facts").append(term, text);
}

let shown = "";

async function look(event) {
  event.preventDefault();
  at("decide").hidden = true;
  say("Looking…");
  try {
    const device = await call("GET", encodeURIComponent(at("code").value.trim()));
    shown = device.user_code;
    at("facts").replaceChildren();
    fact("Code", device.user_code);
    fact("Calls itself", device.client_id);
    fact("Waits until", new Date(device.expires_at).toLocaleTimeString());
    at("decide").hidden = false;
    say("");
  } catch (error) {
    say(error.message, true);
  }
}

async function decide(approve) {
  try {
    const scope = approve ? at("scope").value : undefined;
    const { client_id: name } = await call("POST", "decision", { user_code: shown, approve, scope });
    at("decide").hidden = true;
    at("look").hidden = true;
    at("key").value = "";
    say(approve ? `${name} was let in. You can close this page.` : `${name} was refused. You can close this page.`);
  } catch (error) {
    say(error.message, true);
  }
}

at("code").value = new URLSearchParams(location.search).get("user_code") || "";
at("look").addEventListener("submit", look);
at("decide").addEventListener("submit", (event) => {
  event.preventDefault();
  decide(true);
});
at("deny").addEventListener("click", () => decide(false));
