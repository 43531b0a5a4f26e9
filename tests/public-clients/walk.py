"""What the published Python client gets of a cloud, as JSON: one member for each call, its answer in short or its error.

Usage: walk.py CVM_NAME API_VERSION PACKAGES, with PHALA_CLOUD_API_PREFIX and PHALA_CLOUD_API_KEY.
"""

import json
import os
import sys
import urllib.request

from phala_cloud import create_client

name, version = sys.argv[1:3]
client = create_client(
    base_url=os.environ["PHALA_CLOUD_API_PREFIX"],
    api_key=os.environ["PHALA_CLOUD_API_KEY"],
    version=version,
)
seen = {}


def note(call, *args):
    try:
        answer = getattr(client, call)(*args)
        seen[call] = type(answer).__name__
        return answer
    except Exception as error:  # noqa: BLE001: everything that a client can throw is what is to be seen
        seen[call] = f"{type(error).__name__}: {error}"[:600]
        return None


def member(thing, key):
    return thing.get(key) if isinstance(thing, dict) else getattr(thing, key, None)


# The names of things without the client, which in some versions does not read what it gets.
plain = urllib.request.Request(f"{os.environ['PHALA_CLOUD_API_PREFIX']}/cvms/{name}")
plain.add_header("X-API-Key", os.environ["PHALA_CLOUD_API_KEY"])
plain.add_header("X-Phala-Version", "2026-01-21")
with urllib.request.urlopen(plain) as answer:
    info = json.load(answer)
cvm, app = {"id": name}, {"app_id": info["app_id"]}
note("get_cvm_info", cvm)
for call in (
    "get_current_user", "get_available_nodes", "list_all_instance_type_families", "list_workspaces", "list_ssh_keys",
    "get_app_list", "get_app_filter_options", "get_kms_list", "get_os_images", "get_cvm_list", "next_app_ids",
):
    note(call)
for call in (
    "get_cvm_compose_file", "get_cvm_pre_launch_script", "get_cvm_stats", "get_cvm_network", "get_cvm_docker_compose",
    "get_cvm_containers_stats", "get_cvm_attestation", "get_available_os_images", "get_cvm_state",
    "get_cvm_user_config", "refresh_cvm_instance_id",
):
    note(call, cvm)
for call in ("get_app_info", "get_app_cvms", "get_app_revisions", "get_app_attestation", "get_app_device_allowlist"):
    note(call, app)
note("get", "/teepods/cvm-create-resources")
note("list_family_instance_types", {"family": "cpu"})
note("get_cvm_status_batch", {"vm_uuids": [info["vm_uuid"]]})
slug = member(member(client.list_workspaces(), "data")[0], "slug")
for call in ("get_workspace", "get_workspace_nodes", "get_workspace_quotas"):
    note(call, {"team_slug": slug})
seen["status"] = info["status"]
json.dump(seen, sys.stdout)
