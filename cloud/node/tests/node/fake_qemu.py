#!/usr/bin/env python3
"""Stands in for qemu-system-x86_64: same command line, same lock, same sockets, no machine.

Words of the kernel command line decide how it behaves: `die` ends at start, `deaf` ignores the guest's
shutdown, `stuck` ignores the monitor's quit as well, `crash` and `panic` end by themselves once the
guest is up, the latter not without a word, `sick` says that its application fails.
"""
import contextlib, fcntl, http.server, json, os, socket, sys, threading

args = sys.argv[1:]
if "--version" in args:
    print("QEMU emulator version 0.0 (fake)")
    sys.exit(0)
if "-object" in args and "help" in args:
    sys.exit(0)


def values(flag):
    return [args[i + 1] for i, arg in enumerate(args) if arg == flag]


def option(flag, identifier, name):
    for value in values(flag):
        fields = dict(field.partition("=")[::2] for field in value.split(","))
        if fields.get("id") == identifier:
            return fields.get(name)


mode = values("-append")[0].split()
if "die" in mode:
    print("qemu-system-x86_64: cannot set up guest memory 'pc.ram': Cannot allocate memory", file=sys.stderr)
    sys.exit(1)

ready, done = os.pipe()
if os.fork():
    os.close(done)
    sys.exit(0 if os.read(ready, 1) else 1)
os.setsid()
if os.fork():
    os._exit(0)

pid_file = os.open(values("-pidfile")[0], os.O_RDWR | os.O_CREAT, 0o600)
try:
    fcntl.lockf(pid_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("qemu-system-x86_64: cannot create PID file: Cannot lock pid file", file=sys.stderr)
    os._exit(1)
os.ftruncate(pid_file, 0)
os.write(pid_file, f"{os.getpid()}\n".encode())


def listen(path):
    if os.path.exists(path):
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(8)
    return listener


monitor = listen(option("-chardev", "monitor", "path"))
events = listen(option("-chardev", "events", "path"))
status = listen(option("-chardev", "status", "path"))
# The port to the hardware; a test plays the guest at the second socket.
hardware = listen(option("-chardev", "tee", "path"))
guest = listen(option("-chardev", "tee", "path") + ".guest")
with open(option("-chardev", "serial", "logfile") or option("-chardev", "serial", "path"), "a") as serial:
    serial.write("".join(f"line {i}\n" for i in range(5)))
forwards = {}


NUMBERS = (
    "num_cpus total_memory available_memory used_memory free_memory total_swap used_swap free_swap uptime "
    "loadavg_one loadavg_five loadavg_fifteen"
).split()
STATS = {
    "os_name": "Debian\u001b[31m", "os_version": "12", "kernel_version": "6.1", "cpu_model": "x" * 20_000,
    "disks": [{"name": "vda", "mount_point": "/", "total_size": 2, "free_size": 1}], "secret": "not asked for",
} | {name: index for index, name in enumerate(NUMBERS)}


class Agent(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answer = {"path": self.path, "token": self.headers.get("x-cloister-node")}
        body = json.dumps(STATS if self.path == "/stats" else answer).encode()
        self.send_response(404 if "absent" in self.path else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


servers = {}


def listen_for(protocol, address, port):
    if protocol == "udp":
        server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind((address, port))
        return server
    server = http.server.ThreadingHTTPServer((address, port), Agent)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    servers[server.socket] = server
    return server.socket


def close(listener):
    server = servers.pop(listener, None)
    if server:
        server.shutdown()
    listener.close()


def human(line):
    words = line.split()
    if words[0] == "hostfwd_add":
        host, _, guest = words[2].partition("-")
        protocol, address, host_port = host.split(":")
        port = int(guest.rsplit(":", 1)[1])
        try:
            if port == 6:
                raise OSError
            server = listen_for(protocol, address, int(host_port))
        except OSError:
            return f"Could not set up host forwarding rule '{words[2]}'\r\n"
        forwards[protocol, address, server.getsockname()[1]] = (port, server)
    elif words[0] == "hostfwd_remove":
        protocol, address, port = words[2].split(":")
        _, server = forwards.pop((protocol, address, int(port)))
        close(server)
        return f"host forwarding rule for {words[2]} removed\r\n"
    else:
        shown = lambda address: "*" if address == "0.0.0.0" else address
        table = (
            f"  {p.upper()}[HOST_FORWARD]  9  {shown(a)} {h}  10.0.2.15 {g}  0  0\r\n" for (p, a, h), (g, _) in forwards.items()
        )
        return "Hub -1 (net0):\r\n" + "".join(table)
    return ""


def serve(listener, talk):
    """A node may be gone before it was heard: the machine runs on and hears the next one."""
    while True:
        peer, _ = listener.accept()
        with contextlib.suppress(OSError, json.JSONDecodeError):
            talk(peer.makefile("rw"))
        peer.close()


def monitor_talk(lines):
    lines.write('{"QMP": {}}\n')
    lines.flush()
    for line in lines:
        request = json.loads(line)
        if request["execute"] == "quit" and "stuck" not in mode:
            os._exit(0)
        result = {}
        if request["execute"] == "human-monitor-command":
            result = human(request["arguments"]["command-line"])
        lines.write('{"event": "NOISE"}\n' + json.dumps({"return": result}) + "\n")
        lines.flush()


heard = threading.Event()
listeners = []


def events_talk(lines):
    lines.write('{"QMP": {}}\n')
    lines.flush()
    for _ in lines:
        lines.write('{"return": {}}\n{"event": "RESUME"}\n')
        lines.flush()
        listeners.append(lines)
        heard.set()


def tell(event, data):
    for lines in listeners:
        lines.write(json.dumps({"event": event, "data": data}) + "\n")
        lines.flush()


def status_talk(lines):
    report = {
        "boot_id": "00000000-0000-0000-0000-000000000001",
        "instance_id": "ab" * 20,
        "phases": [{"phase": "agent_started", "uptime_ms": 1}, {"phase": "done", "uptime_ms": 2}],
        "detail": None,
        "boot_error": None,
        "shutdown_progress": None,
    }
    if "sick" in mode:
        report |= {"health": "unhealthy", "health_detail": "web: exited with 1"}
    lines.write("half a line}\n" + json.dumps(report) + "\n")
    lines.flush()
    if {"crash", "panic"} & set(mode):
        heard.wait()
        if "panic" in mode:
            tell("SHUTDOWN", {"guest": True, "reason": "guest-reset"})
        os._exit(1)
    for line in lines:
        if json.loads(line)["type"] == "shutdown" and not {"deaf", "stuck"} & set(mode):
            os._exit(0)


sides = {}


def serve_side(name, listener, other):
    """Node and guest come and go; what one says while the other is away is lost."""
    while True:
        sides[name], _ = listener.accept()
        try:
            while chunk := sides[name].recv(65536):
                sides[other].sendall(chunk)
        except (KeyError, OSError):
            sides[name].close()


null = os.open(os.devnull, os.O_RDWR)
os.write(done, b"1")
for stream in (0, 1, 2):
    os.dup2(null, stream)
for channel in ((monitor, monitor_talk), (events, events_talk)):
    threading.Thread(target=serve, args=channel, daemon=True).start()
for side in (("node", hardware, "guest"), ("guest", guest, "node")):
    threading.Thread(target=serve_side, args=side, daemon=True).start()
serve(status, status_talk)
