"""The life of a CVM by the published Python client, part by part; prints what it saw as JSON.

Usage: life.py PART CVM_NAME API_VERSION PACKAGES, with PHALA_CLOUD_API_PREFIX, PHALA_CLOUD_API_KEY and COMPOSE_FILE. The
parts are `begin`, `change` and `end`, in this order; `begin` and `change` seal the name of the part as GREETING.
"""

import json
import os
import sys
import time
import urllib.request
from pathlib import Path

from dstack_sdk.encrypt_env_vars import EnvVar, encrypt_env_vars_sync
from phala_cloud import create_client

part, name, version = sys.argv[1:4]
client = create_client(
    base_url=os.environ["PHALA_CLOUD_API_PREFIX"], api_key=os.environ["PHALA_CLOUD_API_KEY"], version=version
)
cvm = {"id": name}


def compose():
    return Path(os.environ["COMPOSE_FILE"]).read_text()


def seal(key):
    return encrypt_env_vars_sync([EnvVar("GREETING", part)], key)


def member(thing, key):
    return thing[key] if isinstance(thing, dict) else getattr(thing, key)


def reaches(target):
    return client.watch_cvm_state({**cvm, "target": target, "timeout": 600, "maxRetries": 3})


def rests():
    """Waits until no change of the CVM is under way: the next one is refused before."""
    while member(client.get(f"/cvms/{name}/state"), "in_progress"):
        time.sleep(0.2)


def begin():
    document = {"docker_compose_file": compose(), "allowed_envs": ["GREETING"]}
    provision = client.provision_cvm(
        {"name": name, "vcpu": 1, "memory": 512, "disk_size": 20, "compose_file": document}
    )
    app_id, compose_hash, key = (
        member(provision, wanted) for wanted in ("app_id", "compose_hash", "app_env_encrypt_pubkey")
    )
    created = client.commit_cvm_provision(
        {"app_id": app_id, "compose_hash": compose_hash, "encrypted_env": seal(key)}
    )
    watched = reaches("running")
    listed = member(client.get_cvm_list(), "items")
    attestation = client.get_cvm_attestation(cvm)
    containers = member(client.get_cvm_containers_stats(cvm), "containers")
    logs = [urllib.request.urlopen(member(container, "log_endpoint")).status for container in containers]  # noqa: S310
    return {
        "created": member(created, "name"),
        "status": member(watched, "status"),
        "listed": [member(item, "name") for item in listed],
        "certificates": len(member(attestation, "app_certificates")),
        "containers": len(containers),
        "logs": logs,
    }


def change():
    info = client.get_cvm_info(cvm)
    client.stop_cvm(cvm)
    reaches("stopped")
    client.update_docker_compose({**cvm, "docker_compose_file": compose()})
    rests()
    key = member(member(info, "kms_info"), "encrypted_env_pubkey")
    client.update_cvm_envs({**cvm, "encrypted_env": seal(key), "env_keys": ["GREETING"]})
    rests()
    client.update_cvm_resources({**cvm, "memory": 1024, "allow_restart": True})
    rests()
    client.start_cvm(cvm)
    return {"status": member(reaches("running"), "status")}


def end():
    replica = client.replicate_cvm(cvm)
    info = client.get_cvm_info(cvm)
    siblings = client.get_app_cvms({"app_id": info.app_id})
    client.delete_cvm({"id": member(replica, "vm_uuid")})
    client.delete_cvm({"id": info.vm_uuid})
    return {"siblings": len(siblings)}


json.dump({"begin": begin, "change": change, "end": end}[part](), sys.stdout)
