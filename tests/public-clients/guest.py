"""What the published Python SDK for guests gets of an agent's socket with its asynchronous clients, as guest.mjs.

Usage: guest.py SOCKET SEAL PACKAGES. The synchronous clients run in a virtual machine (tests/guest-sdk).
"""

import asyncio
import hashlib
import json
import sys
import warnings

import dstack_sdk

warnings.simplefilter("ignore")
socket, seal = sys.argv[1], json.loads(sys.argv[2])
seen = {}


async def note(name, ask):
    try:
        answer = await ask()
        seen[name] = {"answer": answer.model_dump(mode="json") if hasattr(answer, "model_dump") else answer}
    except Exception as error:  # noqa: BLE001: whatever the SDK raises is to be seen
        seen[name] = {"error": f"{type(error).__name__}: {error}"}


async def signed(client, algorithm, data, other):
    made = await client.sign(algorithm, data)
    signature, key = made.decode_signature(), made.decode_public_key()
    verdicts = [(await client.verify(algorithm, what, signature, key)).valid for what in (data, other)]
    return {"valid": verdicts[0], "forged": verdicts[1], "chain": len(made.signature_chain)}


async def quoted(ask):
    answer = await ask
    return {"quote": answer.quote, "replayed": list(answer.replay_rtmrs().values())}


async def event(client):
    await client.emit_event("probe", b"payload")
    return await quoted(client.get_quote(b"data"))


async def key(client):
    made = await client.get_key("storage/main", "signing")
    return {"key": made.decode_key().hex(), "chain": [part.hex() for part in made.decode_signature_chain()]}


async def tls_key(client):
    made = await client.get_tls_key(
        subject="probe.example", alt_names=["probe.example"], usage_ra_tls=True, with_app_info=True
    )
    return {"chain": len(made.certificate_chain), "key": len(made.as_uint8array(32))}


async def main():
    digest = [hashlib.sha256(text).digest() for text in (b"data", b"other")]
    async with dstack_sdk.AsyncDstackClient(socket, timeout=60) as client:
        await note("reachable", client.is_reachable)
        await note("version", client.version)
        await note("info", client.info)
        await note("quote", lambda: quoted(client.get_quote(b"data")))
        await note("long_quote", lambda: client.get_quote(b"x" * 65))
        await note("attest", lambda: client.attest(b"\x01\x02"))
        await note("event", lambda: event(client))
        await note("key", lambda: key(client))
        await note("tls_key", lambda: tls_key(client))
        await note("secp256k1", lambda: signed(client, "secp256k1", b"data", b"other"))
        await note("ed25519", lambda: signed(client, "ed25519", b"data", b"other"))
        await note("secp256k1_prehashed", lambda: signed(client, "secp256k1_prehashed", *digest))
        await note("sealed", lambda: dstack_sdk.encrypt_env_vars([dstack_sdk.EnvVar("SECRET", "ä=b")], seal["publicKey"]))
    async with dstack_sdk.AsyncTappdClient(socket, timeout=60) as legacy:
        await note("legacy_info", legacy.info)
        await note("legacy_key", lambda: legacy.derive_key("/", "probe.example"))
        await note("legacy_quote", lambda: quoted(legacy.tdx_quote(b"data", "raw")))
        await note("legacy_quote_of_hash", lambda: quoted(legacy.tdx_quote(b"data", "sha256")))


asyncio.run(main())
json.dump(seen, sys.stdout)
