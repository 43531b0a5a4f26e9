// The life of a CVM by the published JavaScript client, part by part; prints what it saw as JSON.
//
// Usage: life.mjs PART CVM_NAME VERSION PACKAGES, with PHALA_CLOUD_API_PREFIX, PHALA_CLOUD_API_KEY and COMPOSE_FILE. The parts
// are `begin`, `change` and `end`, in this order; `begin` and `change` seal the name of the part as GREETING.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const [, , part, name, version, packages] = process.argv;
const library = createRequire(join(packages, "x.js"))("@phala/cloud");
const { createClient, encryptEnvVars, getAppCvms, replicateCvm, watchCvmState } = library;
const client = createClient({ version });
const cvm = { id: name };
const compose = () => readFileSync(process.env.COMPOSE_FILE, "utf8");
const seal = (key) => encryptEnvVars([{ key: "GREETING", value: part }], key);
const reaches = (target) => watchCvmState(client, { ...cvm, target, interval: 5, timeout: 600, maxRetries: 3 });

/** Waits until no change of the CVM is under way: the next one is refused before. */
async function rests() {
  while ((await client.get(`/cvms/${name}/state`)).in_progress) await new Promise((next) => setTimeout(next, 200));
}

const parts = {
  async begin() {
    const provision = await client.provisionCvm({
      name, vcpu: 1, memory: 512, disk_size: 20,
      compose_file: { docker_compose_file: compose(), allowed_envs: ["GREETING"] },
    });
    const { app_id, compose_hash, app_env_encrypt_pubkey } = provision;
    const encrypted_env = await seal(app_env_encrypt_pubkey);
    const created = await client.commitCvmProvision({ app_id, compose_hash, encrypted_env });
    const watched = await reaches("running");
    const listed = await client.getCvmList();
    const attestation = await client.getCvmAttestation(cvm);
    const { containers } = await client.getCvmContainersStats(cvm);
    const logs = containers.map((container) => fetch(container.log_endpoint).then((answer) => answer.status));
    return {
      created: created.name, status: watched.status, listed: listed.items.map((item) => item.name),
      certificates: attestation.app_certificates.length, containers: containers.length, logs: await Promise.all(logs),
    };
  },
  async change() {
    const info = await client.getCvmInfo(cvm);
    await client.stopCvm(cvm);
    await reaches("stopped");
    await client.updateDockerCompose({ ...cvm, docker_compose_file: compose() });
    await rests();
    const key = info.kms_info.encrypted_env_pubkey ?? info.encrypted_env_pubkey;
    await client.updateCvmEnvs({ ...cvm, encrypted_env: await seal(key), env_keys: ["GREETING"] });
    await rests();
    await client.updateCvmResources({ ...cvm, memory: 1024, allow_restart: true });
    await rests();
    await client.startCvm(cvm);
    return { status: (await reaches("running")).status };
  },
  async end() {
    const replica = await replicateCvm(client, cvm);
    const info = await client.getCvmInfo(cvm);
    const siblings = await getAppCvms(client, { appId: info.app_id });
    await client.deleteCvm({ id: replica.vm_uuid });
    await client.deleteCvm({ id: info.vm_uuid });
    return { siblings: siblings.length };
  },
};
console.log(JSON.stringify(await parts[part]()));
