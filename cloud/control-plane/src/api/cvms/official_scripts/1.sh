# Official pre-launch script 1: logs in to a registry with names from the sealed environment, so that the compose
# file may use private images.
#
#   DSTACK_DOCKER_USERNAME, DSTACK_DOCKER_PASSWORD  who pulls; without both nothing is done
#   DSTACK_DOCKER_REGISTRY                          host[:port] of the registry; Docker Hub if empty
#
# Put their names into allowed_envs. What is written stays in memory, readable by root of this machine only.
if [ -n "${DSTACK_DOCKER_USERNAME:-}" ] && [ -n "${DSTACK_DOCKER_PASSWORD:-}" ]; then
    case "${DSTACK_DOCKER_REGISTRY:-}" in
    '' | docker.io) cloister_registry=https://index.docker.io/v1/ ;;
    *[!A-Za-z0-9.:-]*)
        echo "DSTACK_DOCKER_REGISTRY is not host[:port]: correct it and update the environment" >&2
        exit 1
        ;;
    *) cloister_registry=$DSTACK_DOCKER_REGISTRY ;;
    esac
    export DOCKER_CONFIG="${DOCKER_CONFIG:-/run/cloister-registry-login}"
    (
        umask 077
        mkdir -p "$DOCKER_CONFIG" &&
            printf '{"auths":{"%s":{"auth":"%s"}}}\n' "$cloister_registry" \
                "$(printf '%s:%s' "$DSTACK_DOCKER_USERNAME" "$DSTACK_DOCKER_PASSWORD" | base64 -w0)" \
                >"$DOCKER_CONFIG/config.json"
    ) || exit
    echo "logs in to $cloister_registry as $DSTACK_DOCKER_USERNAME"
    unset cloister_registry
fi
