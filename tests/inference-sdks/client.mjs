// Every surface of the inference gateway, by the published JavaScript clients of OpenAI and Anthropic, unmodified.
//
// usage: node client.mjs GATEWAY_URL PACKAGES, with the key in INFERENCE_KEY. PACKAGES is the directory that has
// node_modules. Prints one JSON object of what came back.

import { createHash } from "node:crypto";
import { createRequire } from "node:module";
import { join } from "node:path";
import process from "node:process";

const [url, packages] = process.argv.slice(2);
const require = createRequire(join(packages, "package.json"));
const { default: OpenAI } = require("openai");
const { default: Anthropic } = require("@anthropic-ai/sdk");

const apiKey = process.env.INFERENCE_KEY;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
const seen = {};

const messages = [{ role: "user", content: "hello" }];
const raw = await client.chat.completions.create({ model: "echo", messages }).asResponse();
seen.receipt_id = raw.headers.get("x-receipt-id");
const bytes = Buffer.from(await raw.arrayBuffer());
seen.body_sha256 = createHash("sha256").update(bytes).digest("hex");
const answer = JSON.parse(bytes);
seen.chat = answer.choices[0].message.content;
seen.finish_reason = answer.choices[0].finish_reason;
seen.total_tokens = answer.usage.total_tokens;
seen.model = answer.model;

const stream = await client.chat.completions.create({
  model: "echo",
  messages,
  stream: true,
  stream_options: { include_usage: true },
});
const chunks = [];
for await (const chunk of stream) chunks.push(chunk);
seen.stream = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
seen.stream_usage = chunks.at(-1).usage.total_tokens;
seen.stream_ids = new Set(chunks.map((chunk) => chunk.id)).size;

seen.completion = (await client.completions.create({ model: "echo", prompt: "hello" })).choices[0].text;
const embeddings = await client.embeddings.create({ model: "echo", input: ["hello", "world"] });
seen.embeddings = embeddings.data.map((entry) => entry.embedding.length > 0);
seen.responses = (await client.responses.create({ model: "echo", input: "hello" })).output_text;
const events = client.responses.stream({ model: "echo", input: "hello" });
seen.responses_stream = (await events.finalResponse()).output_text;
seen.models = [];
for await (const model of client.models.list()) seen.models.push(model.id);

const confidential = new Anthropic({ baseURL: url, apiKey, maxRetries: 0 });
const message = await confidential.messages.create({ model: "echo", max_tokens: 100, messages });
seen.messages = message.content[0].text;
seen.stop_reason = message.stop_reason;
const spoken = confidential.messages.stream({ model: "echo", max_tokens: 100, messages });
seen.messages_stream = await spoken.finalText();

// The status, type and code with which a request is refused.
async function refusal(ask) {
  try {
    await ask();
  } catch (error) {
    const body = error.error?.error ?? error.error ?? {};
    return [error.constructor.name, error.status, body.type ?? null, body.code ?? null];
  }
  return null;
}

const chat = (body, asking = client) => asking.chat.completions.create(body);
seen.unknown_model = await refusal(() => chat({ model: "nobody/nothing", messages }));
seen.zdr = await refusal(() => chat({ model: "stored", messages, provider: { zdr: true } }));
const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong", maxRetries: 0 });
seen.stranger = await refusal(() => chat({ model: "echo", messages }, stranger));
seen.malformed = await refusal(() => chat({ model: "echo", messages: "hello" }));
seen.anthropic_unknown = await refusal(() =>
  confidential.messages.create({ model: "nobody", max_tokens: 1, messages }),
);

// With a key that may not do everything.
const asking = (name) => {
  const limited = `${apiKey}-${name}`;
  const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: limited, maxRetries: 0 });
  const anthropic = new Anthropic({ baseURL: url, apiKey: limited, maxRetries: 0 });
  return [
    () => chat({ model: "echo", messages }, openai),
    () => anthropic.messages.create({ model: "echo", max_tokens: 1, messages }),
  ];
};
for (const name of ["poor", "narrow"]) {
  const [ask, confide] = asking(name);
  seen[name] = await refusal(ask);
  seen[`anthropic_${name}`] = await refusal(confide);
}
const [ask, confide] = asking("slow");
await ask();
seen.slow = await refusal(ask);
seen.anthropic_slow = await refusal(confide);
const huge = [{ role: "user", content: "x".repeat(33 << 20) }];
seen.too_large = await refusal(() => chat({ model: "echo", messages: huge }));
seen.anthropic_too_large = await refusal(() =>
  confidential.messages.create({ model: "echo", max_tokens: 1, messages: huge }),
);
process.stdout.write(JSON.stringify(seen));
