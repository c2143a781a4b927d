#!/usr/bin/env python3
"""Plays the network of the vendors of coding agents, for scripts/test-keys.

Usage: vendor-network.py DIRECTORY MODEL_PORT

Makes a certificate authority in DIRECTORY (roots.pem) and listens as the proxy of a company network; prints
its port. Ends TLS for every host, passes requests on to the stand-in of the model on MODEL_PORT, and writes
each request's host, path and credentials to DIRECTORY/requests.jsonl. If DIRECTORY/login.json has the tokens
of a login, whose texts contain `g0`, it refreshes them once to the next ones, and refuses the old ones.
"""

import http.client
import json
import pathlib
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import urllib.parse

DIRECTORY, MODEL_PORT = pathlib.Path(sys.argv[1]), int(sys.argv[2])
NAMES = ["api.anthropic.com", "api.openai.com", "generativelanguage.googleapis.com", "openrouter.ai", "chatgpt.com",
         "auth.openai.com", "platform.claude.com", "console.anthropic.com", "oauth2.googleapis.com",
         "cloudcode-pa.googleapis.com", "github.com", "api.github.com", "claude.ai"]
TOKEN_PATHS = ["/v1/oauth/token", "/oauth/token", "/token"]
CREDENTIALS = ["authorization", "x-api-key", "x-goog-api-key", "cookie"]
lock = threading.Lock()


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, cwd=DIRECTORY, capture_output=True)


def certificates():
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    openssl("req", "-x509", *curve, "-keyout", "roots.key", "-out", "roots.pem", "-days", "2", "-subj", "/CN=test roots")
    openssl("req", *curve, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    (DIRECTORY / "names").write_text("subjectAltName=" + ",".join(f"DNS:{name}" for name in NAMES))
    openssl("x509", "-req", "-in", "server.csr", "-CA", "roots.pem", "-CAkey", "roots.key", "-CAcreateserial",
            "-out", "server.pem", "-days", "2", "-extfile", "names")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(DIRECTORY / "server.pem", DIRECTORY / "server.key")
    context.set_alpn_protocols(["http/1.1"])
    return context


def read_head(stream):
    lines = []
    while (line := stream.readline()) not in (b"\r\n", b""):
        lines.append(line.decode("latin-1").rstrip("\r\n"))
    return lines


def read_body(stream, headers):
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b""
        while size := int(stream.readline().split(b";")[0], 16):
            body += stream.read(size)
            stream.readline()
        stream.readline()
        return body
    return stream.read(int(headers.get("content-length", 0)))


def login_answer(path, body, credentials):
    """Answers as a vendor that has ended the tokens with `g0`; None for other requests."""
    file = DIRECTORY / "login.json"
    if not file.exists():
        return None
    with lock:
        login = json.loads(file.read_text())
        if path in TOKEN_PATHS:
            sent = urllib.parse.unquote(body.decode("latin-1"))
            is_present = login["tokens"]["refresh_token"] in sent
            login["refreshes" if is_present else "misuses"] += 1
            if is_present:
                login["tokens"] = login["next"]
            file.write_text(json.dumps(login))
            answer = {**login["tokens"], "expires_in": 3600, "token_type": "Bearer", "scope": login["scope"]}
            return (200, answer) if is_present else (400, {"error": "invalid_grant"})
    if path == "/tokeninfo":
        return 200, {"expires_in": 3600, "scope": login["scope"]}
    if any("g0" in value for value in credentials.values()):
        return 401, {"error": {"type": "authentication_error", "message": "expired"}}
    if path.endswith("/accounts/check"):
        account = {"id": "account-1", "workspace_backend_origin": "https://chatgpt.com", "account_routing_override": "us"}
        return 200, {"accounts": [account]}
    return None


class Tunnel(socketserver.StreamRequestHandler):
    def handle(self):
        head = read_head(self.rfile)
        if not head or not head[0].startswith("CONNECT "):
            return
        host = head[0].split(" ")[1].rsplit(":", 1)[0]
        if host not in NAMES:
            with lock, open(DIRECTORY / "requests.jsonl", "a") as log:
                log.write(json.dumps({"host": host, "refused": True}) + "\n")
            self.wfile.write(b"HTTP/1.1 502 No such host\r\n\r\n")
            return
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            with CONTEXT.wrap_socket(self.connection, server_side=True) as tls:
                stream = tls.makefile("rwb")
                while self.answer(host, stream):
                    pass
        except (OSError, ValueError):
            pass

    def answer(self, host, stream):
        lines = read_head(stream)
        if not lines:
            return False
        headers = {key.lower(): value for key, value in (line.split(": ", 1) for line in lines[1:] if ": " in line)}
        body = read_body(stream, headers)
        method, path, _ = lines[0].split(" ", 2)
        found = {name: headers[name] for name in CREDENTIALS if name in headers}
        with lock, open(DIRECTORY / "requests.jsonl", "a") as log:
            log.write(json.dumps({"host": host, "method": method, "path": path, "credentials": found}) + "\n")
        if answer := login_answer(path, body, found):
            status, data = answer[0], json.dumps(answer[1]).encode()
            kind = "Content-Type: application/json\r\n"
            stream.write(f"HTTP/1.1 {status} X\r\n{kind}Content-Length: {len(data)}\r\n\r\n".encode() + data)
            stream.flush()
            return True
        # The stand-in knows paths only.
        model = http.client.HTTPConnection("127.0.0.1", MODEL_PORT, timeout=60)
        kept = {key: value for key, value in headers.items() if key in ("content-type", "content-encoding", "accept")}
        model.request(method, path, body, kept)
        got = model.getresponse()
        data = got.read()
        kept = "".join(f"{key}: {value}\r\n" for key, value in got.getheaders()
                       if key.lower() not in ("transfer-encoding", "content-length", "connection"))
        stream.write(f"HTTP/1.1 {got.status} {got.reason}\r\n{kept}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        stream.flush()
        return True


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


CONTEXT = certificates()
with Server(("127.0.0.1", 0), Tunnel) as server:
    print(server.server_address[1], flush=True)
    server.serve_forever()
