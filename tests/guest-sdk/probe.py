"""Calls the guest agent with the published SDK and serves the answers as JSON on port 80."""

import hashlib
import http.server
import json
import os
import sys
import traceback
import warnings

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "packages"))

import dstack_sdk  # noqa: E402
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402
from eth_keys import keys  # noqa: E402
from eth_utils import keccak  # noqa: E402

warnings.simplefilter("ignore")

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


def recovered(message, signature):
    """Who signed the Keccak hash of a message: compressed secp256k1 key, hex."""
    signature = keys.Signature(signature_bytes=signature)
    return signature.recover_public_key_from_msg_hash(keccak(message)).to_compressed_bytes().hex()


def key_and_its_chain(client, path, purpose, algorithm):
    """A key, and who vouches for it: the application's key, and the KMS's root."""

    def ask():
        answer = client.get_key(path, purpose, algorithm)
        secret = answer.decode_key()
        if algorithm == "ed25519":
            public = Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()
        else:
            public = keys.PrivateKey(secret).public_key.to_compressed_bytes()
        by_app, by_root = answer.decode_signature_chain()
        app = recovered(f"{purpose}:{public.hex()}".encode(), by_app)
        issued = b"dstack-kms-issued:" + bytes.fromhex(client.info().app_id) + bytes.fromhex(app)
        return {"key": hashlib.sha256(secret).hexdigest(), "app": app, "root": recovered(issued, by_root)}

    return ask


def signed_and_verified(client, algorithm, data):
    def ask():
        signed = client.sign(algorithm, data)
        valid = client.verify(algorithm, data, signed.decode_signature(), signed.decode_public_key())
        forged = client.verify(algorithm, data[:-1] + b"?", signed.decode_signature(), signed.decode_public_key())
        return {"valid": valid.valid, "forged": forged.valid, "chain": len(signed.signature_chain)}

    return ask


def digest_of_variable(name):
    return lambda: hashlib.sha256(os.environ[name].encode()).hexdigest()


def env_key_signer(client):
    """Who signed the key that the environment was sealed to."""
    public, signature = (bytes.fromhex(os.environ[name]) for name in ("ENV_KEY", "ENV_KEY_SIGNATURE"))
    return dstack_sdk.verify_env_encrypt_public_key_legacy(public, signature, client.info().app_id)


def sealed_by_the_sdk():
    """The same environment with another secret, which follows from the present one."""
    names = ("ENV_KEY", "ENV_KEY_SIGNATURE")
    variables = [dstack_sdk.EnvVar(name, os.environ[name]) for name in names]
    secret = hashlib.sha256(os.environ["PLANTED_SECRET"].encode()).hexdigest()
    variables.append(dstack_sdk.EnvVar("PLANTED_SECRET", secret))
    return dstack_sdk.encrypt_env_vars_sync(variables, os.environ["ENV_KEY"])


def boots():
    """How often this program was started with the same volume."""
    path = "/data/boots"
    count = int(open(path).read()) if os.path.exists(path) else 0
    with open(path, "w") as kept:
        kept.write(str(count + 1))
        kept.flush()
        os.fsync(kept.fileno())
    return count + 1


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
        "key": key_and_its_chain(client, "storage/main", "signing", "secp256k1"),
        "ed25519_key": key_and_its_chain(client, "storage/main", "signing", "ed25519"),
        "signature": signed_and_verified(client, "secp256k1", b"data"),
        "ed25519_signature": signed_and_verified(client, "ed25519", b"data"),
        "legacy_key": model(lambda: legacy.derive_key("storage/main")),
        "secret": digest_of_variable("PLANTED_SECRET"),
        "env_key_signer": lambda: env_key_signer(client),
        "sealed": sealed_by_the_sdk,
        "boots": boots,
        "legacy_info": model(legacy.info),
        "legacy_quote": model(lambda: legacy.tdx_quote(b"data", "sha256")),
    }
    return {name: answer_of(ask) for name, ask in calls.items()}


class Handler(http.server.BaseHTTPRequestHandler):
    answers = b""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.answers)))
        self.end_headers()
        self.wfile.write(self.answers)


if __name__ == "__main__":
    Handler.answers = json.dumps(probe()).encode()
    http.server.HTTPServer(("", 80), Handler).serve_forever()
