"""Calls the guest agent with the published SDK and serves the answers as JSON on port 80."""

import http.server
import json
import sys
import traceback

sys.path.insert(0, "/app/packages")

import dstack_sdk  # noqa: E402

TIMEOUT = 60


def answer_of(ask):
    """What a call answered, or the error that the SDK raised."""
    try:
        return {"answer": ask()}
    except Exception as error:  # the test wants to see whatever the SDK raises
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def model(ask):
    return lambda: ask().model_dump(mode="json")


def quote(client, data):
    def ask():
        answer = client.get_quote(data)
        return answer.model_dump(mode="json") | {"replayed": answer.replay_rtmrs()}

    return ask


def replayed_after(client, name, payload):
    def ask():
        client.emit_event(name, payload)
        return quote(client, b"after the event")()

    return ask


def probe():
    client = dstack_sdk.DstackClient(timeout=TIMEOUT)
    own = dstack_sdk.DstackClient("/var/run/cloister.sock", timeout=TIMEOUT)
    legacy = dstack_sdk.TappdClient(timeout=TIMEOUT)
    calls = {
        "reachable": client.is_reachable,
        "version": model(client.version),
        "info": model(client.info),
        "own_info": model(own.info),
        "quote": quote(client, b"\x01\x02"),
        "long_quote": model(lambda: client.get_quote(b"x" * 65)),
        "attest": model(lambda: client.attest(b"\x01\x02")),
        "event": replayed_after(client, "probe", b"payload"),
        "platform_event": lambda: client.emit_event("compose-hash", b"forged"),
        "tls_key": model(lambda: client.get_tls_key(subject="probe.example", usage_ra_tls=True)),
        "key": model(lambda: client.get_key("storage/main", "signing")),
        "legacy_info": model(legacy.info),
        "legacy_quote": model(lambda: legacy.tdx_quote(b"data", "sha256")),
    }
    return {name: answer_of(ask) for name, ask in calls.items()}


ANSWERS = json.dumps(probe()).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(ANSWERS)))
        self.end_headers()
        self.wfile.write(ANSWERS)


http.server.HTTPServer(("", 80), Handler).serve_forever()
