"""Measure what a key that is outside costs: the launch, the throughput of a download, the first byte of a
stream, and many streams at once. mitmproxy is measured beside it if it is installed.

The server and the client are the same in each route: TLS straight to the server, or through sandpen's proxy,
which ends TLS, sets the key and searches the answer for it.
"""
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

MEGABYTES = int(os.environ.get("SANDPEN_BENCH_KEYS_MB", "256"))
STREAMS = 200
PYTHON = "/usr/bin/python3"

SERVER = r"""
import socket, ssl, sys, threading, time
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("server.pem", "server.key")
block = b"data: 0123456789 abcdefghijklmnopqrstuvwxyz\n\n" * 20000
def serve(raw):
    with context.wrap_socket(raw, server_side=True) as s:
        while True:
            head = b""
            while b"\r\n\r\n" not in head:
                got = s.recv(4096)
                if not got: return
                head += got
            path = head.split()[1]
            if path == b"/stream":
                s.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
                for _ in range(5):
                    s.sendall(b"6\r\ndata\n\n\r\n")
                    time.sleep(0.2)
                s.sendall(b"0\r\n\r\n")
                continue
            left = int(path.rsplit(b"/", 1)[1]) << 20
            s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
            while left > 0:
                s.sendall(block[:left])
                left -= len(block)
def guarded(raw):
    try: serve(raw)
    except OSError: pass
l = socket.create_server(("127.0.0.1", 0), backlog=1024)
print(l.getsockname()[1], flush=True)
while True:
    threading.Thread(target=guarded, args=(l.accept()[0],), daemon=True).start()
"""

CLIENT = r"""
import base64, os, socket, ssl, sys, threading, time, urllib.parse
port, megabytes, streams = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
proxy = urllib.parse.urlsplit(os.environ.get("HTTPS_PROXY", ""))
context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
def connect():
    if not proxy.hostname:
        raw = socket.create_connection(("127.0.0.1", port))
    else:
        raw = socket.create_connection((proxy.hostname, proxy.port))
        login = base64.b64encode(f"{proxy.username}:{proxy.password}".encode()).decode()
        raw.sendall(f"CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\nProxy-Authorization: Basic {login}\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"): head += raw.recv(4096)
        assert b" 200 " in head, head
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(raw, server_hostname="localhost")
def ask(s, path): s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n".encode())
s, buffer = connect(), bytearray(1 << 20)
started = time.perf_counter(); ask(s, f"/{megabytes}"); total = 0
while total < megabytes << 20: total += s.recv_into(buffer)
bulk = time.perf_counter() - started
firsts = []
for _ in range(5):
    started = time.perf_counter(); ask(s, "/stream"); got = b""
    while b"data\n\n" not in got: got += s.recv(4096)
    firsts.append(time.perf_counter() - started)
    while b"0\r\n\r\n" not in got: got += s.recv(4096)
held = []
def stream():
    s, got = connect(), b""
    ask(s, "/stream")
    while b"0\r\n\r\n" not in got:
        part = s.recv(4096)
        if not part: return
        got += part
    if got.count(b"data\n\n") == 5: held.append(1)
threads = [threading.Thread(target=stream) for _ in range(streams)]
for t in threads: t.start()
for t in threads: t.join()
print(bulk, sorted(firsts)[2], len(held))
"""


def certificates(directory):
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, cwd=directory, capture_output=True)
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *curve, "-keyout", "roots.key", "-out", "roots.pem", "-days", "2", "-subj", "/CN=roots")
    openssl("req", *curve, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    with open(os.path.join(directory, "names"), "w") as file:
        file.write("subjectAltName=DNS:localhost")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "roots.pem", "-CAkey", "roots.key", "-CAcreateserial",
            "-out", "server.pem", "-days", "2", "-extfile", "names")


def mitmproxy(directory):
    if not shutil.which("mitmdump"):
        return None, None
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = ["mitmdump", "--quiet", "--listen-host", "127.0.0.1", "--listen-port", str(port), "--set", f"confdir={directory}",
               "--set", "stream_large_bodies=1", "--set", f"ssl_verify_upstream_trusted_ca={directory}/roots.pem"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not os.path.exists(f"{directory}/mitmproxy-ca-cert.pem"):
        time.sleep(0.2)
    return process, port


def launches(sandpen, env, port, rounds):
    """Compare launches with and without a key that is outside."""
    base = [sandpen, "run", "--engine", "native", "--ssh-agent", "off"]
    routes = {"without": [*base, "--", "true"], "with": [*base, "--secret", f"A_KEY@localhost:{port}", "--", "true"]}
    times = {name: [] for name in routes}
    for _ in range(rounds):
        for name, command in routes.items():
            started = time.perf_counter()
            subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=True)
            times[name].append(time.perf_counter() - started)
    more = [own - other for own, other in zip(times["with"], times["without"])]
    return {**{name: statistics.median(taken) * 1000 for name, taken in times.items()}, "more_ms": statistics.median(more) * 1000}


def measure(sandpen, rounds):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        # The working directory must not contain the home.
        for name in ("home", "project"):
            os.mkdir(f"{directory}/{name}")
        os.chdir(f"{directory}/project")
        certificates(directory)
        server = subprocess.Popen([sys.executable, "-c", SERVER], cwd=directory, stdout=subprocess.PIPE, text=True)
        port = server.stdout.readline().strip()
        other, other_port = mitmproxy(directory)
        env = {"HOME": f"{directory}/home", "PATH": os.environ["PATH"], "SSL_CERT_FILE": f"{directory}/roots.pem",
               "A_KEY": "sk-bench-0123456789abcdefghijklmnop"}
        client = [PYTHON, "-c", CLIENT, port, str(MEGABYTES), str(STREAMS)]
        guest = [sandpen, "run", "--engine", "native", "--ssh-agent", "off", "--secret", f"A_KEY@localhost:{port}", "--"]
        routes = {"direct": (client, env), "sandpen": (guest + client, env)}
        if other_port:
            routes["mitmproxy"] = (client, {**env, "HTTPS_PROXY": f"http://x:x@127.0.0.1:{other_port}",
                                            "SSL_CERT_FILE": f"{directory}/mitmproxy-ca-cert.pem"})
        results, taken = {}, {name: [] for name in routes}
        try:
            results["launch"] = launches(sandpen, env, port, rounds * 10)
            for _ in range(rounds):
                for name, (command, variables) in routes.items():
                    done = subprocess.run(command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
                    taken[name].append([float(field) for field in done.stdout.split()])
        finally:
            server.kill()
            if other:
                other.kill()
            os.chdir("/")
    launch = results["launch"]
    print(f"\nkeys outside ({rounds} rounds): a launch takes {launch['more_ms']:.2f} ms more ({launch['without']:.1f} ms without)")
    for name, rows in taken.items():
        ratio = statistics.median(direct[0] / own[0] for own, direct in zip(rows, taken["direct"]))
        later = statistics.median(own[1] - direct[1] for own, direct in zip(rows, taken["direct"])) * 1000
        speed = MEGABYTES / statistics.median(row[0] for row in rows)
        held = min(row[2] for row in rows)
        results[name] = {"mb_per_s": speed, "ratio_throughput": ratio, "first_byte_later_ms": later, "streams": held}
        print(f"  {name:10} {speed:6.0f} MB/s ({ratio:.2f})  first byte {later:+.2f} ms  {held:.0f} of {STREAMS} streams")
    if not other_port:
        print("  mitmproxy: not installed")
    return results
