"""Measure throughput and connections per second: direct, through sandpen's proxy and tinyproxy.

All three carry the same requests from the same client to the same server, in turn. The client runs
in a native sandbox for sandpen, and on the host for the others.
"""
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

MEGABYTES = 512
CONNECTIONS = 300
# All clients use the system's Python, because a native guest sees no other.
PYTHON = "/usr/bin/python3"

SERVER = r"""
import socket, sys, threading
block = bytes(1 << 20)
def serve(s):
    with s:
        head = b""
        while b"\r\n\r\n" not in head:
            got = s.recv(4096)
            if not got: return
            head += got
        size = int(head.split()[1].rsplit(b"/", 1)[1])
        s.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (size << 20))
        for _ in range(size): s.sendall(block)
l = socket.create_server(("127.0.0.1", 0), backlog=1024)
print(l.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
"""

CLIENT = r"""
import socket, sys, time
kind, proxy, port, megabytes, connections = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
buffer = bytearray(1 << 20)
def fetch(size):
    s = socket.create_connection(("127.0.0.1", proxy or port))
    target = f"127.0.0.1:{port}"
    if proxy and kind == "tunnel":
        s.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"): head += s.recv(4096)
        assert b" 200 " in head, head
    where = f"http://{target}" if proxy and kind == "plain" else ""
    s.sendall(f"GET {where}/{size} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    total = 0
    while got := s.recv_into(buffer): total += got
    assert total >= size << 20, total
started = time.perf_counter(); fetch(megabytes); bulk = time.perf_counter() - started
started = time.perf_counter()
for _ in range(connections): fetch(0)
print(bulk, time.perf_counter() - started)
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def tinyproxy(directory):
    if not shutil.which("tinyproxy"):
        return None, None
    port, config = free_port(), os.path.join(directory, "tinyproxy.conf")
    with open(config, "w") as file:
        file.write(f"Port {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 1000\nLogLevel Critical\nAllow 127.0.0.1\n")
    process = subprocess.Popen(["tinyproxy", "-d", "-c", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    return process, port


def measure(sandpen, rounds):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        os.chdir(directory)
        server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
        port = server.stdout.readline().strip()
        other, other_port = tinyproxy(directory)
        results = {}
        try:
            for kind in ("plain", "tunnel"):
                results[kind] = compare(sandpen, kind, port, other_port, rounds)
        finally:
            server.kill()
            if other:
                other.kill()
            os.chdir("/")
    return results


def compare(sandpen, kind, port, other_port, rounds):
    client = [PYTHON, "-c", CLIENT, kind]
    end = [port, str(MEGABYTES), str(CONNECTIONS)]
    guest = [sandpen, "run", "--engine", "native", "--ssh-agent", "off", "--allow-host", f"127.0.0.1:{port}", "--"]
    routes = {"direct": client + ["0"] + end, "sandpen": guest + client + ["8877"] + end}
    if other_port:
        routes["tinyproxy"] = client + [str(other_port)] + end
    times = {name: [] for name in routes}
    for _ in range(rounds):
        for name, command in routes.items():
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
            times[name].append([float(field) for field in done.stdout.split()])
    print(f"\nproxy, {kind} ({rounds} rounds, {MEGABYTES} MB and {CONNECTIONS} connections each)")
    table = {}
    for name, taken in times.items():
        ratios = [[own[part] / other[part] for own, other in zip(taken, times["direct"])] for part in (0, 1)]
        bulk, single = (statistics.median(values) for values in zip(*taken))
        table[name] = {"mb_per_s": MEGABYTES / bulk, "connections_per_s": CONNECTIONS / single,
                       "ratio_throughput": 1 / statistics.median(ratios[0]), "ratio_connections": 1 / statistics.median(ratios[1])}
        row = table[name]
        print(f"  {name:12} {row['mb_per_s']:8.0f} MB/s ({row['ratio_throughput']:.2f})  "
              f"{row['connections_per_s']:7.0f} connections/s ({row['ratio_connections']:.2f})")
    if not other_port:
        print("  tinyproxy: not installed")
    return table
