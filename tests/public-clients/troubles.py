"""What the published Python client, synchronous and asynchronous, makes of refusals, as JSON: class of the error, status,
and its code.

Usage: troubles.py CVM_NAME API_VERSION PACKAGES, with PHALA_CLOUD_API_PREFIX, PHALA_CLOUD_API_KEY of an administrator and
READER_KEY, which may read only.
"""

import asyncio
import json
import os
import sys

from phala_cloud import create_async_client, create_client

name, version = sys.argv[1:3]
base, key = os.environ["PHALA_CLOUD_API_PREFIX"], os.environ["PHALA_CLOUD_API_KEY"]
seen = {}


def told(error):
    parts = [type(error).__name__, getattr(error, "status_code", None)]
    return " ".join(str(part) for part in [*parts, getattr(error, "error_code", None)] if part)


async def asked(what, ask):
    try:
        answer = ask()
        if asyncio.iscoroutine(answer):
            await answer
        return "no error"
    except Exception as error:  # noqa: BLE001: the error is what is to be seen
        return told(error)


async def main():
    document = {"name": "", "docker_compose_file": "services:\n  web:\n    image: nginx:1\n"}
    for kind, create in (("", create_client), ("async ", create_async_client)):

        def client(with_key, create=create):
            return create(base_url=base, api_key=with_key, version=version)

        taken = {"name": name, "compose_file": document, "vcpu": 1, "memory": 512, "disk_size": 20}
        for what, who, call, arguments in (
            ("unknown key", "phak_0000", "get_current_user", ()),
            ("key without the scope", os.environ["READER_KEY"], "stop_cvm", ({"id": name},)),
            ("unknown CVM", key, "get_cvm_state", ({"id": "nobody-has-this"},)),
            ("unknown path", key, "get", ("/nothing-here",)),
            ("taken name", key, "provision_cvm", (taken,)),
            ("missing member", key, "post", ("/tokens",)),
        ):
            seen[kind + what] = await asked(what, lambda: getattr(client(who), call)(*arguments))


asyncio.run(main())
json.dump(seen, sys.stdout)
