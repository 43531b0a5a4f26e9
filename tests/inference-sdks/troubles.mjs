// What the published JavaScript clients make of trouble, of tools, of structured outputs and of images.
//
// usage: node troubles.mjs GATEWAY_URL PACKAGES, with the key in INFERENCE_KEY. PACKAGES is the directory that has
// node_modules. The models are moods of the upstream. Prints one JSON object of what came back.

import { createRequire } from "node:module";
import { join } from "node:path";
import process from "node:process";

const [url, packages] = process.argv.slice(2);
const require = createRequire(join(packages, "package.json"));
const { default: OpenAI } = require("openai");
const { default: Anthropic } = require("@anthropic-ai/sdk");

const apiKey = process.env.INFERENCE_KEY;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 2 });
const confidential = new Anthropic({ baseURL: url, apiKey, maxRetries: 2 });
const hello = [{ role: "user", content: "hello" }];
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const seen = {};

const chat = (model, more = {}, options = {}) =>
  client.chat.completions.create({ model, messages: hello, ...more }, options);
const message = (model, more = {}, options = {}) =>
  confidential.messages.create({ model, max_tokens: 100, messages: hello, ...more }, options);

// The exception that a question ends with.
async function trouble(ask) {
  try {
    await ask();
  } catch (error) {
    return error.constructor.name;
  }
  return null;
}

// Refusals that pass: the clients ask again by themselves, and not before they are told to.
for (const mood of ["busy", "broken"]) {
  seen[`${mood}/chat`] = (await chat(`${mood}/chat`)).choices[0].message.content;
  let text = "";
  for await (const chunk of await chat(`${mood}/stream`, { stream: true })) {
    text += chunk.choices[0]?.delta.content ?? "";
  }
  seen[`${mood}/stream`] = text;
  seen[`${mood}/messages`] = (await message(`${mood}/messages`)).content[0].text;
  seen[`${mood}/alone`] = await trouble(() => chat(`${mood}/alone`, {}, { maxRetries: 0 }));
}

// An upstream that says nothing: the clients' own patience ends.
const impatient = { maxRetries: 0, timeout: 1000 };
seen["silent/chat"] = await trouble(() => chat("silent/chat", {}, impatient));
seen["silent/messages"] = await trouble(() => message("silent/messages", {}, impatient));

// Streams that break off: the text so far, whether an exception came, and whether it looked whole before that.
async function cut(asked, textOf, ends) {
  let text = "";
  let whole = false;
  try {
    for await (const event of await asked) {
      text += textOf(event) ?? "";
      whole ||= Boolean(ends(event));
    }
  } catch {
    return [text, true, whole];
  }
  return [text, false, whole];
}

const delta = (chunk) => chunk.choices[0]?.delta.content;
const finished = (chunk) => chunk.choices[0]?.finish_reason;
const spoken = (event) => (event.type === "content_block_delta" ? event.delta.text : "");
const stopped = (event) => event.type === "message_stop";
for (const mood of ["breaks", "trails"]) {
  seen[`${mood}/chat`] = await cut(chat(`${mood}/chat`, { stream: true }), delta, finished);
  seen[`${mood}/messages`] = await cut(message(`${mood}/messages`, { stream: true }), spoken, stopped);
}

// Tools, whole and in pieces.
const parameters = { type: "object", properties: { city: { type: "string" }, days: { type: "integer" } } };
const functions = [{ type: "function", function: { name: "weather", parameters } }];
const called = (completion) => {
  const [choice] = completion.choices;
  const [call] = choice.message.tool_calls;
  return [call.function.name, JSON.parse(call.function.arguments), choice.finish_reason];
};
seen["tools/chat"] = called(await chat("tools/chat", { tools: functions }));
const pieces = client.chat.completions.stream({ model: "tools/stream", messages: hello, tools: functions });
seen["tools/stream"] = called(await pieces.finalChatCompletion());
const tools = [{ name: "weather", input_schema: parameters }];
const used = (answer) => {
  const block = answer.content.find((block) => block.type === "tool_use");
  return [block.name, block.input, answer.stop_reason];
};
seen["tools/messages"] = used(await message("tools/messages", { tools }));
const blocks = confidential.messages.stream({
  model: "tools/messages-stream",
  max_tokens: 100,
  messages: hello,
  tools,
});
seen["tools/messages-stream"] = used(await blocks.finalMessage());

// Structured outputs, whole and in pieces.
const schema = {
  type: "object",
  properties: { city: { type: "string" }, degrees: { type: "integer" } },
  required: ["city", "degrees"],
  additionalProperties: false,
};
const response_format = { type: "json_schema", json_schema: { name: "weather", strict: true, schema } };
const whole = await client.chat.completions.parse({ model: "structured/chat", messages: hello, response_format });
seen["structured/chat"] = JSON.parse(whole.choices[0].message.content);
const parts = client.chat.completions.stream({ model: "structured/stream", messages: hello, response_format });
seen["structured/stream"] = JSON.parse((await parts.finalChatCompletion()).choices[0].message.content);

// Streams that do not say whose the text is.
seen["terse/stream"] = await client.chat.completions
  .stream({ model: "terse/stream", messages: hello })
  .finalContent();

// Images go in as they are, or in the other format.
const picture = { type: "image_url", image_url: { url: `data:image/png;base64,${pixel}`, detail: "low" } };
const question = [{ type: "text", text: "What is this?" }, picture];
const looked = await client.chat.completions.create({
  model: "sees/chat",
  messages: [{ role: "user", content: question }],
});
seen["sees/chat"] = looked.choices[0].message.content;
const source = { type: "base64", media_type: "image/png", data: pixel };
const shown = [{ type: "image", source }, { type: "text", text: "What is this?" }];
seen["sees/messages"] = (
  await message("sees/messages", { messages: [{ role: "user", content: shown }] })
).content[0].text;
process.stdout.write(JSON.stringify(seen));
