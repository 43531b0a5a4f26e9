"""What the published Python clients make of trouble, of tools, of structured outputs and of images.

usage: troubles.py GATEWAY_URL, with the key in INFERENCE_KEY. The models are moods of the upstream. Prints one JSON
object of what came back.
"""

import json
import os
import sys

import anthropic
import openai
import pydantic

url, key = sys.argv[1], os.environ["INFERENCE_KEY"]
client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=2)
confidential = anthropic.Anthropic(base_url=url, api_key=key, max_retries=2)
hello = [{"role": "user", "content": "hello"}]
pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
seen = {}


def chat(model, **more):
    return client.chat.completions.create(model=model, messages=hello, **more)


def message(model, messages=hello, **more):
    return confidential.messages.create(model=model, max_tokens=100, messages=messages, **more)


def trouble(ask):
    """The exception that a question ends with."""
    try:
        ask()
    except (openai.OpenAIError, anthropic.AnthropicError) as error:
        return type(error).__name__
    return None


# Refusals that pass: the clients ask again by themselves, and not before they are told to.
for mood in ("busy", "broken"):
    seen[f"{mood}/chat"] = chat(f"{mood}/chat").choices[0].message.content
    chunks = list(chat(f"{mood}/stream", stream=True))
    seen[f"{mood}/stream"] = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    seen[f"{mood}/messages"] = message(f"{mood}/messages").content[0].text
alone = client.with_options(max_retries=0)
seen["busy/alone"] = trouble(lambda: alone.chat.completions.create(model="busy/alone", messages=hello))
seen["broken/alone"] = trouble(lambda: alone.chat.completions.create(model="broken/alone", messages=hello))

# An upstream that says nothing: the clients' own patience ends.
impatient = client.with_options(max_retries=0, timeout=1)
seen["silent/chat"] = trouble(lambda: impatient.chat.completions.create(model="silent/chat", messages=hello))
restless = confidential.with_options(max_retries=0, timeout=1)
seen["silent/messages"] = trouble(
    lambda: restless.messages.create(model="silent/messages", max_tokens=1, messages=hello)
)


# Streams that break off: the text so far, whether an exception came, and whether it looked whole before that.
def cut(events, text_of, ends):
    text, whole = "", False
    try:
        for event in events:
            text += text_of(event) or ""
            whole = whole or bool(ends(event))
    except (openai.APIError, anthropic.APIError):
        return [text, True, whole]
    return [text, False, whole]


def delta(chunk):
    return chunk.choices[0].delta.content if chunk.choices else ""


def finished(chunk):
    return chunk.choices and chunk.choices[0].finish_reason


def spoken(event):
    return event.delta.text if event.type == "content_block_delta" else ""


for mood in ("breaks", "trails"):
    seen[f"{mood}/chat"] = cut(chat(f"{mood}/chat", stream=True), delta, finished)
    events = message(f"{mood}/messages", stream=True)
    seen[f"{mood}/messages"] = cut(events, spoken, lambda event: event.type == "message_stop")

# Tools, whole and in pieces.
parameters = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}
tools = [{"type": "function", "function": {"name": "weather", "parameters": parameters}}]


def called(completion):
    call = completion.choices[0].message.tool_calls[0]
    return [call.function.name, json.loads(call.function.arguments), completion.choices[0].finish_reason]


seen["tools/chat"] = called(chat("tools/chat", tools=tools))
with client.chat.completions.stream(model="tools/stream", messages=hello, tools=tools) as events:
    seen["tools/stream"] = called(events.until_done().get_final_completion())
tools = [{"name": "weather", "input_schema": parameters}]


def used(answer):
    block = next(block for block in answer.content if block.type == "tool_use")
    return [block.name, block.input, answer.stop_reason]


seen["tools/messages"] = used(message("tools/messages", tools=tools))
with confidential.messages.stream(
    model="tools/messages-stream", max_tokens=100, messages=hello, tools=tools
) as events:
    seen["tools/messages-stream"] = used(events.get_final_message())


# Structured outputs, whole and in pieces.
class Weather(pydantic.BaseModel):
    city: str
    degrees: int


def parsed(completion):
    return completion.choices[0].message.parsed.model_dump()


seen["structured/chat"] = parsed(
    client.chat.completions.parse(model="structured/chat", messages=hello, response_format=Weather)
)
with client.chat.completions.stream(
    model="structured/stream", messages=hello, response_format=Weather
) as events:
    seen["structured/stream"] = parsed(events.until_done().get_final_completion())

# Streams that do not say whose the text is.
with client.chat.completions.stream(model="terse/stream", messages=hello) as events:
    seen["terse/stream"] = events.until_done().get_final_completion().choices[0].message.content

# Images go in as they are, or in the other format.
image = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pixel}", "detail": "low"}}
question = [{"type": "text", "text": "What is this?"}, image]
answer = client.chat.completions.create(
    model="sees/chat", messages=[{"role": "user", "content": question}]
)
seen["sees/chat"] = answer.choices[0].message.content
source = {"type": "base64", "media_type": "image/png", "data": pixel}
question = [{"type": "image", "source": source}, {"type": "text", "text": "What is this?"}]
seen["sees/messages"] = message("sees/messages", [{"role": "user", "content": question}]).content[0].text
json.dump(seen, sys.stdout)
