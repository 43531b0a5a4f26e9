// What the published JavaScript SDK for guests gets of an agent's socket, as JSON: one member for each call, its answer or
// its error.
//
// Usage: guest.mjs SOCKET SEAL PACKAGES. SEAL is JSON: what signs the key for environments, see the test.
import { createHash } from "node:crypto";
import { createRequire } from "node:module";
import { join } from "node:path";

const [, , socket, seal, packages] = process.argv;
const require = createRequire(join(packages, "x.js"));
const sdk = require("dstack-sdk-guest");
const { encryptEnvVars } = require("dstack-sdk-guest/encrypt-env-vars");
const { getComposeHash } = require("dstack-sdk-guest/get-compose-hash");
const { verifyEnvEncryptPublicKey, verifyEnvEncryptPublicKeyLegacy } =
  require("dstack-sdk-guest/verify-env-encrypt-public-key");
const viem = require("dstack-sdk-guest/viem");
const solana = require("dstack-sdk-guest/solana");
console.warn = () => {};

const client = new sdk.DstackClient(socket);
const legacy = new sdk.TappdClient(socket);
const hex = (bytes) => Buffer.from(bytes).toString("hex");
const bytes = (text) => new Uint8Array(Buffer.from(text, "hex"));
const { publicKey, signature, signatureNow, timestamp, appId } = JSON.parse(seal);
const seen = {};

async function note(name, ask) {
  try {
    seen[name] = { answer: (await ask()) ?? null };
  } catch (error) {
    seen[name] = { error: `${error.constructor.name}: ${error.message}` };
  }
}

async function signed(algorithm, data, other) {
  const made = await client.sign(algorithm, data);
  const valid = (what) => client.verify(algorithm, what, made.signature, made.public_key).then((it) => it.valid);
  return { valid: await valid(data), forged: await valid(other), chain: made.signature_chain.length };
}

async function quoted(ask) {
  const answer = await ask;
  return { quote: answer.quote, replayed: answer.replayRtmrs() };
}

// It waits half a second only, which may pass on a busy machine.
async function reached(who) {
  for (let tries = 0; tries < 20; tries += 1) if (await who.isReachable()) return true;
  return false;
}

const digest = (text) => createHash("sha256").update(text).digest();
const ecdsa = await client.getKey("storage/main", "signing").catch(() => undefined);
await note("reachable", () => reached(client));
await note("version", () => client.version());
await note("info", () => client.info());
await note("quote", () => quoted(client.getQuote("data")));
await note("long_quote", () => client.getQuote("x".repeat(65)));
await note("attest", () => client.attest(new Uint8Array([1, 2])).then((it) => it.attestation));
await note("event", async () => {
  await client.emitEvent("probe", "payload");
  return quoted(client.getQuote("data"));
});
await note("key", async () => ({ key: hex(ecdsa.key), chain: ecdsa.signature_chain.map(hex) }));
await note("ed25519_key", async () => hex((await client.getKey("storage/main", "signing", "ed25519")).key));
await note("tls_key", async () => {
  const made = await client.getTlsKey({
    subject: "probe.example", altNames: ["probe.example"], usageRaTls: true, withAppInfo: true,
  });
  return { chain: made.certificate_chain.length, key: made.asUint8Array(32).length };
});
await note("secp256k1", () => signed("secp256k1", "data", "other"));
await note("ed25519", () => signed("ed25519", "data", "other"));
await note("secp256k1_prehashed", () => signed("secp256k1_prehashed", digest("data"), digest("other")));
await note("ethereum_account", () => viem.toViemAccountSecure(ecdsa).address);
await note("ethereum_account_plain", () => viem.toViemAccount(ecdsa).address);
await note("solana_account", () => solana.toKeypairSecure(ecdsa).publicKey.toBase58());
await note("compose_hash", async () => getComposeHash(JSON.parse((await client.info()).tcb_info.app_compose)));
await note("seal_signer", () => verifyEnvEncryptPublicKeyLegacy(bytes(publicKey), bytes(signature), appId));
await note("seal_signer_now", () =>
  verifyEnvEncryptPublicKey(bytes(publicKey), bytes(signatureNow), appId, timestamp));
await note("sealed", () => encryptEnvVars([{ key: "SECRET", value: "ä=b" }], publicKey));
await note("legacy_reachable", () => reached(legacy));
await note("legacy_info", () => legacy.info());
await note("legacy_key", async () => (await legacy.deriveKey("/", "probe.example")).asUint8Array(32).length);
await note("legacy_quote", () => quoted(legacy.tdxQuote("data", "raw")));
await note("legacy_quote_of_hash", () => quoted(legacy.tdxQuote("data", "sha256")));
console.log(JSON.stringify(seen));
