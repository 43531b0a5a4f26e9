/// A name, or all names that begin alike, and what a value could do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DangerousName {
    /// The name; a `*` at its end stands for any further characters, none included.
    pub pattern: &'static str,
    /// What it does, as the end of a sentence that begins with "it".
    pub reason: &'static str,
}

const fn row(pattern: &'static str, reason: &'static str) -> DangerousName {
    DangerousName { pattern, reason }
}

const LOADER: &str = "makes the dynamic linker load other code into every program";
const LIBRARY: &str = "makes the C library load or read other files in every program";
const RESOLVER: &str = "changes how names of hosts are resolved";
const SHELL: &str = "makes shells run other code, or read a script differently";
const PROGRAMS: &str = "changes which programs are run";
const FILES: &str = "changes where programs look for their configuration and credentials";
const PYTHON: &str = "makes Python run other code";
const INTERPRETER: &str = "makes an interpreter or virtual machine run other code";
const GO: &str = "weakens the runtime and the TLS checks of programs in Go, such as the compose front end";
const ENGINE: &str = "points tools at another container engine, or at other credentials";
const COMPOSE: &str = "changes which compose files, services and projects are run";
const PROXY: &str = "sends what the guest fetches and asks for through somebody else's machine";
const ROOTS: &str = "makes programs trust other certificate authorities, or other code for cryptography";
const GIT: &str = "makes git run other code or fetch from other places";
const SSH: &str = "makes ssh run other code or use other keys";
const SERVICE: &str = "belongs to the conversation between the guest's own services";
const AGENT: &str = "points applications at another guest agent, which would vouch for anything";

/// Names that no environment may set. Who seals an environment is not known and its values are not measured,
/// while the pre-launch script and the compose front end run with it: a value of these would replace what the
/// measured document says. Inside a container a compose file can set any of them by itself, measured.
pub const DANGEROUS_NAMES: &[DangerousName] = &[
    row("LD_*", LOADER),
    row("GLIBC_TUNABLES", LIBRARY),
    row("GCONV_PATH", LIBRARY),
    row("LOCPATH", LIBRARY),
    row("NLSPATH", LIBRARY),
    row("GETCONF_DIR", LIBRARY),
    row("TZDIR", LIBRARY),
    row("RES_OPTIONS", RESOLVER),
    row("RESOLV_*", RESOLVER),
    row("HOSTALIASES", RESOLVER),
    row("LOCALDOMAIN", RESOLVER),
    row("NIS_PATH", RESOLVER),
    row("ENV", SHELL),
    row("BASH_*", SHELL),
    row("BASHOPTS", SHELL),
    row("SHELLOPTS", SHELL),
    row("POSIXLY_CORRECT", SHELL),
    row("IFS", SHELL),
    row("CDPATH", SHELL),
    row("GLOBIGNORE", SHELL),
    row("PS4", SHELL),
    row("PROMPT_COMMAND", SHELL),
    row("PATH", PROGRAMS),
    row("SHELL", PROGRAMS),
    row("EDITOR", PROGRAMS),
    row("VISUAL", PROGRAMS),
    row("PAGER", PROGRAMS),
    row("LESSOPEN", PROGRAMS),
    row("LESSCLOSE", PROGRAMS),
    row("HOME", FILES),
    row("XDG_*", FILES),
    row("TMPDIR", FILES),
    row("PWD", FILES),
    row("OLDPWD", FILES),
    row("CURL_HOME", FILES),
    row("WGETRC", FILES),
    row("SYSTEM_WGETRC", FILES),
    row("NETRC", FILES),
    row("PYTHON*", PYTHON),
    row("VIRTUAL_ENV", PYTHON),
    row("NODE_OPTIONS", INTERPRETER),
    row("NODE_PATH", INTERPRETER),
    row("PERL5*", INTERPRETER),
    row("PERLLIB", INTERPRETER),
    row("RUBYOPT", INTERPRETER),
    row("RUBYLIB", INTERPRETER),
    row("LUA_*", INTERPRETER),
    row("AWKPATH", INTERPRETER),
    row("AWKLIBPATH", INTERPRETER),
    row("PHPRC", INTERPRETER),
    row("PHP_INI_SCAN_DIR", INTERPRETER),
    row("JAVA_TOOL_OPTIONS", INTERPRETER),
    row("JDK_JAVA_OPTIONS", INTERPRETER),
    row("_JAVA_OPTIONS", INTERPRETER),
    row("CLASSPATH", INTERPRETER),
    row("GODEBUG", GO),
    row("GOCOVERDIR", GO),
    row("DOCKER_HOST", ENGINE),
    row("DOCKER_CONTEXT", ENGINE),
    row("DOCKER_CONFIG", ENGINE),
    row("DOCKER_AUTH_CONFIG", ENGINE),
    row("DOCKER_CERT_PATH", ENGINE),
    row("DOCKER_TLS*", ENGINE),
    row("DOCKER_API_VERSION", ENGINE),
    row("DOCKER_CLI_*", ENGINE),
    row("DOCKER_CONTENT_TRUST*", ENGINE),
    row("DOCKER_DEFAULT_PLATFORM", ENGINE),
    row("DOCKER_BUILDKIT", ENGINE),
    row("DOCKER_CUSTOM_HEADERS", ENGINE),
    row("BUILDKIT_*", ENGINE),
    row("BUILDX_*", ENGINE),
    row("BUILDAH_*", ENGINE),
    row("PODMAN_*", ENGINE),
    row("CONTAINER*", ENGINE),
    row("REGISTRY_AUTH_FILE", ENGINE),
    row("REGISTRIES_CONFIG_PATH", ENGINE),
    row("STORAGE_DRIVER", ENGINE),
    row("STORAGE_OPTS", ENGINE),
    row("_CONTAINERS_*", ENGINE),
    row("COMPOSE_*", COMPOSE),
    row("HTTP_PROXY", PROXY),
    row("http_proxy", PROXY),
    row("HTTPS_PROXY", PROXY),
    row("https_proxy", PROXY),
    row("FTP_PROXY", PROXY),
    row("ftp_proxy", PROXY),
    row("ALL_PROXY", PROXY),
    row("all_proxy", PROXY),
    row("NO_PROXY", PROXY),
    row("no_proxy", PROXY),
    row("SSL_CERT_*", ROOTS),
    row("CURL_CA_BUNDLE", ROOTS),
    row("REQUESTS_CA_BUNDLE", ROOTS),
    row("NODE_EXTRA_CA_CERTS", ROOTS),
    row("NODE_TLS_REJECT_UNAUTHORIZED", ROOTS),
    row("OPENSSL_*", ROOTS),
    row("GNUTLS_*", ROOTS),
    row("SSLKEYLOGFILE", "makes programs write down the keys of their TLS connections"),
    row("GIT_ASKPASS", GIT),
    row("GIT_CONFIG*", GIT),
    row("GIT_DIR", GIT),
    row("GIT_EDITOR", GIT),
    row("GIT_EXEC_PATH", GIT),
    row("GIT_EXTERNAL_DIFF", GIT),
    row("GIT_PAGER", GIT),
    row("GIT_PROXY_COMMAND", GIT),
    row("GIT_SSH*", GIT),
    row("GIT_SSL_*", GIT),
    row("GIT_TEMPLATE_DIR", GIT),
    row("GIT_WORK_TREE", GIT),
    row("SSH_ASKPASS*", SSH),
    row("SSH_AUTH_SOCK", SSH),
    row("SSH_SK_PROVIDER", SSH),
    row("NOTIFY_SOCKET", SERVICE),
    row("LISTEN_FDS", SERVICE),
    row("LISTEN_FDNAMES", SERVICE),
    row("LISTEN_PID", SERVICE),
    row("DBUS_*", SERVICE),
    row("DSTACK_SIMULATOR_ENDPOINT", AGENT),
    row("TAPPD_SIMULATOR_ENDPOINT", AGENT),
    row("DSTACK_AGENT_ADDRESS", AGENT),
];

/// What a name could do, if it is in [`DANGEROUS_NAMES`].
#[must_use]
pub fn danger(name: &str) -> Option<&'static str> {
    let matches = |row: &&DangerousName| match row.pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == row.pattern,
    };
    DANGEROUS_NAMES.iter().find(matches).map(|row| row.reason)
}

/// Whether no environment may set a name.
#[must_use]
pub fn is_dangerous(name: &str) -> bool {
    danger(name).is_some()
}
