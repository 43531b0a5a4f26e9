// What the published JavaScript client gets of a cloud, as JSON: one member for each call, what kind of answer it was or
// its error.
//
// Usage: walk.mjs CVM_NAME API_VERSION PACKAGES, with PHALA_CLOUD_API_PREFIX and PHALA_CLOUD_API_KEY.
import { createRequire } from "node:module";
import { join } from "node:path";

const [, , name, version, packages] = process.argv;
const { createClient } = createRequire(join(packages, "x.js"))("@phala/cloud");
const client = createClient({ version });
const seen = {};

async function note(call, ...args) {
  try {
    const answer = await client[call](...args);
    seen[call] = Array.isArray(answer) ? "array" : typeof answer;
    return answer;
  } catch (error) {
    seen[call] = `${error.constructor.name}: ${error.message}`.slice(0, 600);
    return undefined;
  }
}

const cvm = { id: name };
const info = await note("getCvmInfo", cvm);
for (const call of [
  "getCurrentUser", "getAvailableNodes", "listAllInstanceTypeFamilies", "listWorkspaces", "listSshKeys", "getKmsList",
  "getOsImages", "getCvmList", "nextAppIds",
]) await note(call);
await note("listFamilyInstanceTypes", { family: "cpu" });
for (const call of [
  "getCvmComposeFile", "getCvmPreLaunchScript", "getCvmStats", "getCvmNetwork", "getCvmDockerCompose",
  "getCvmContainersStats", "getCvmAttestation", "getAvailableOsImages", "getCvmState",
]) await note(call, cvm);
seen.status = info?.status;
console.log(JSON.stringify(seen));
