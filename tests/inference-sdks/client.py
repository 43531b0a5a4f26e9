"""Every surface of the inference gateway, by the published Python clients of OpenAI and Anthropic, unmodified.

usage: client.py GATEWAY_URL, with the key in INFERENCE_KEY. Prints one JSON object of what came back.
"""

import hashlib
import json
import os
import sys

import anthropic
import openai

url, key = sys.argv[1], os.environ["INFERENCE_KEY"]
client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
seen = {}

hello = [{"role": "user", "content": "hello"}]
raw = client.chat.completions.with_raw_response.create(model="echo", messages=hello)
seen["receipt_id"] = raw.headers["x-receipt-id"]
seen["body_sha256"] = hashlib.sha256(raw.content).hexdigest()
answer = raw.parse()
seen["chat"] = answer.choices[0].message.content
seen["finish_reason"] = answer.choices[0].finish_reason
seen["total_tokens"] = answer.usage.total_tokens
seen["model"] = answer.model

stream = client.chat.completions.create(
    model="echo", messages=hello, stream=True, stream_options={"include_usage": True}
)
chunks = list(stream)
seen["stream"] = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
seen["stream_usage"] = chunks[-1].usage.total_tokens
seen["stream_ids"] = len({chunk.id for chunk in chunks})

seen["completion"] = client.completions.create(model="echo", prompt="hello").choices[0].text
embeddings = client.embeddings.create(model="echo", input=["hello", "world"])
seen["embeddings"] = [len(entry.embedding) > 0 for entry in embeddings.data]
seen["responses"] = client.responses.create(model="echo", input="hello").output_text
with client.responses.stream(model="echo", input="hello") as events:
    seen["responses_stream"] = events.get_final_response().output_text
seen["models"] = [model.id for model in client.models.list()]

confidential = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)
message = confidential.messages.create(model="echo", max_tokens=100, messages=hello)
seen["messages"] = message.content[0].text
seen["stop_reason"] = message.stop_reason
with confidential.messages.stream(model="echo", max_tokens=100, messages=hello) as events:
    seen["messages_stream"] = events.get_final_text()


def refusal(ask):
    """The status, type and code with which a request is refused."""
    try:
        ask()
    except (openai.APIStatusError, anthropic.APIStatusError) as error:
        body = error.body.get("error", error.body) if isinstance(error.body, dict) else {}
        return [type(error).__name__, error.status_code, body.get("type"), body.get("code")]
    return None


chat = client.chat.completions.create
seen["unknown_model"] = refusal(lambda: chat(model="nobody/nothing", messages=hello))
seen["zdr"] = refusal(
    lambda: chat(model="stored", messages=hello, extra_body={"provider": {"zdr": True}})
)
stranger = openai.OpenAI(base_url=f"{url}/v1", api_key="wrong", max_retries=0)
seen["stranger"] = refusal(lambda: stranger.chat.completions.create(model="echo", messages=hello))
seen["malformed"] = refusal(lambda: chat(model="echo", messages="hello"))
seen["anthropic_unknown"] = refusal(
    lambda: confidential.messages.create(model="nobody", max_tokens=1, messages=hello)
)


def of(name):
    """Clients with a key that may not do everything."""
    limited = f"{key}-{name}"
    return (
        openai.OpenAI(base_url=f"{url}/v1", api_key=limited, max_retries=0).chat.completions.create,
        anthropic.Anthropic(base_url=url, api_key=limited, max_retries=0).messages.create,
    )


for name in ["poor", "narrow"]:
    ask, confide = of(name)
    seen[name] = refusal(lambda: ask(model="echo", messages=hello))
    seen[f"anthropic_{name}"] = refusal(
        lambda: confide(model="echo", max_tokens=1, messages=hello)
    )
ask, confide = of("slow")
ask(model="echo", messages=hello)
seen["slow"] = refusal(lambda: ask(model="echo", messages=hello))
seen["anthropic_slow"] = refusal(lambda: confide(model="echo", max_tokens=1, messages=hello))
huge = [{"role": "user", "content": "x" * (33 << 20)}]
seen["too_large"] = refusal(lambda: chat(model="echo", messages=huge))
seen["anthropic_too_large"] = refusal(
    lambda: confidential.messages.create(model="echo", max_tokens=1, messages=huge)
)
json.dump(seen, sys.stdout)
