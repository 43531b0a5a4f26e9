// What the published JavaScript client makes of refusals, as JSON: for each the class of the error that it throws, its
// status, its code or the fields that it names; and whether the form that does not throw tells the same.
//
// Usage: troubles.mjs CVM_NAME VERSION PACKAGES, with PHALA_CLOUD_API_PREFIX, PHALA_CLOUD_API_KEY of an administrator and
// READER_KEY, which may read only. Leaves the workspace with more API keys than it may make in a minute.
import { createRequire } from "node:module";
import { join } from "node:path";

const [, , name, version, packages] = process.argv;
const cloud = createRequire(join(packages, "x.js"))("@phala/cloud");
const client = cloud.createClient({ version });
const seen = {};

function told(error) {
  const more = error.errorCode ?? error.validationErrors?.map((one) => one.field).join() ?? "";
  return `${error.constructor.name.replace(/^_/, "")} ${error.status} ${more}`.trim();
}

async function note(what, who, call, ...args) {
  try {
    await who[call](...args);
    seen[what] = "no error";
    return;
  } catch (error) {
    seen[what] = told(error);
  }
  const safe = who[`safe${call[0].toUpperCase()}${call.slice(1)}`];
  const again = safe && (await safe.call(who, ...args));
  if (again && (again.success || told(again.error) !== seen[what])) {
    seen[what] += `, but ${again.success ? "no error" : told(again.error)}`;
  }
}

const stranger = cloud.createClient({ version, apiKey: "phak_0000" });
const reader = cloud.createClient({ version, apiKey: process.env.READER_KEY });
const document = { name: "", docker_compose_file: "services:\n  web:\n    image: nginx:1\n" };
const configuration = (of) => ({ name: of, compose_file: document, vcpu: 1, memory: 512, disk_size: 20 });

await note("unknown key", stranger, "getCurrentUser");
await note("key without the scope", reader, "stopCvm", { id: name });
await note("unknown CVM", client, "getCvmInfo", { id: "nobody-has-this" });
await note("unknown CVM, changed", client, "restartCvm", { id: "nobody-has-this" });
await note("unknown path", client, "get", "/nothing-here");
await note("unknown instance type", client, "provisionCvm", {
  name: "other-app", compose_file: document, instance_type: "tdx.moon",
});
await note("taken name", client, "provisionCvm", configuration(name));
await note("wrong document", client, "updateDockerCompose", { id: name, docker_compose_file: "services: [" });
await note("missing member", client, "post", "/tokens", {});
// So many in a minute, and a minute may end in between.
const key = { name: "one of many", scope: "read", expires_in_days: 1 };
for (let made = 0; made < 30 && (seen["too many keys"] ?? "no error") === "no error"; made += 1) {
  seen["too many keys"] = await client.post("/tokens", key).then(() => "no error", told);
}
console.log(JSON.stringify(seen));
