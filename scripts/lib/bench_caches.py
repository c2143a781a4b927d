"""Measure package caches: installing inside with nothing cached, and again with the network off.

Needs the registries of npm, crates.io and PyPI; a tool that is missing or whose registry cannot be
reached is left out. What the first run has installed or built is removed before the second. The same is
measured without sandpen, where the network stays on: a tool that spends its time on unpacking and compiling is
as slow there.

pip is given an index on this machine that passes requests on to PyPI, and sends what PyPI says about caching:
mirrors may leave it out, and then pip caches nothing.
"""
import http.server
import json
import os
import shutil
import statistics
import subprocess
import threading
import time
import urllib.error
import urllib.request

NPM = {"name": "app", "version": "1.0.0", "dependencies": {"express": "4.21.2", "lodash": "4.17.21", "typescript": "5.6.3", "eslint": "9.14.0"}}
CARGO = """[package]
name = "app"
version = "0.1.0"
edition = "2021"
[dependencies]
regex = "=1.11.1"
serde_json = "=1.0.132"
"""
PIP = ["numpy==2.1.3", "pandas==2.2.3"]


class Index(http.server.BaseHTTPRequestHandler):
    """Passes requests on to PyPI, with links that lead back here."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        is_page = self.path.startswith("/simple/")
        try:
            with urllib.request.urlopen(("https://pypi.org" if is_page else "https://files.pythonhosted.org") + self.path, timeout=60) as answer:
                kind, body = answer.headers["content-type"], answer.read()
        except urllib.error.HTTPError as error:
            return self.send_error(error.code)
        if is_page:
            body = body.replace(b"https://files.pythonhosted.org", f"http://127.0.0.1:{self.server.server_port}".encode())
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("cache-control", "max-age=600, public" if is_page else "max-age=365000000, immutable, public")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def npm(home, project):
    with open(f"{project}/package.json", "w") as file:
        json.dump(NPM, file)
    home.execute(["npm", "install", "--package-lock-only", "--no-audit", "--no-fund"], project, cache=False)
    return [".npm/_cacache"], "npm ci --no-audit --no-fund --ignore-scripts", "rm -rf node_modules", []


def cargo(home, project):
    os.makedirs(f"{project}/src")
    with open(f"{project}/src/main.rs", "w") as file:
        file.write("fn main() {}\n")
    with open(f"{project}/Cargo.toml", "w") as file:
        file.write(CARGO)
    toolchain = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    home.execute([f"{toolchain}/bin/cargo", "generate-lockfile"], project, cache=False)
    flags = ["--mount", toolchain, "--env", f"PATH={toolchain}/bin:/usr/bin:/bin"]
    return [".cargo/registry"], "cargo build --quiet", "rm -rf target", flags


def pip(home, project):
    home.execute(["/usr/bin/python3", "-m", "venv", "venv"], project, cache=False)
    with open(f"{project}/venv/pip.conf", "w") as file:
        file.write(f"[global]\nindex-url = http://127.0.0.1:{home.index_port}/simple/\ntrusted-host = 127.0.0.1\n")
    return [".cache/pip"], f"venv/bin/pip install --quiet --target packages {' '.join(PIP)}", "rm -rf packages", []


class Home:
    """A home directory without caches, in which commands run with sandpen or without."""

    def __init__(self, rig, directory, index_port):
        self.rig, self.directory, self.index_port = rig, directory, index_port

    def execute(self, words, project, cache=True):
        home = self.directory if cache else f"{self.directory}-preparation"
        os.makedirs(home, exist_ok=True)
        env = {**self.rig.runner.env, "HOME": home}
        started = time.perf_counter()
        found = subprocess.run(words, cwd=project, env=env, capture_output=True, text=True, timeout=900)
        if found.returncode:
            raise ValueError(found.stderr.strip()[-300:])
        return time.perf_counter() - started

    def sandboxed(self, flags, script):
        return [self.rig.sandpen, "run", "--engine", "native", "--ssh-agent", "off", *flags, "--", "sh", "-ec", script]


def first_and_again(rig, prepare, name, index_port, is_inside):
    """Return how long both installations took."""
    home = Home(rig, rig.make_directory(name), index_port)
    project = rig.make_directory(f"{name}/project")
    try:
        caches, install, remove, flags = prepare(home, project)
        for cache in caches:
            os.makedirs(f"{home.directory}/{cache}", exist_ok=True)
        path = next((flag.removeprefix("PATH=") for flag in flags if flag.startswith("PATH=")), rig.runner.env["PATH"])
        outside = ["env", f"PATH={path}", "sh", "-ec", install]
        times = []
        for network in ("on", "off"):
            words = home.sandboxed([*flags, "--network", network], install) if is_inside else outside
            times.append(home.execute(words, project))
            subprocess.run(["sh", "-ec", remove], cwd=project, check=True)
        return times
    finally:
        shutil.rmtree(home.directory, ignore_errors=True)
        shutil.rmtree(f"{home.directory}-preparation", ignore_errors=True)


def measure(rig):
    index = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=index.serve_forever, daemon=True).start()
    results = {}
    for prepare in (npm, cargo, pip):
        name, inside, outside = prepare.__name__, [], []
        try:
            for number in range(3):
                for times, is_inside in ((inside, True), (outside, False)):
                    place = f"caches/{name}-{number}-{'inside' if is_inside else 'outside'}"
                    times.append(first_and_again(rig, prepare, place, index.server_port, is_inside))
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            print(f"  {name}: left out: {str(error).strip()[-300:]}")
            continue
        ratio = lambda times: statistics.median(first / again for first, again in times)
        results[name] = {
            "cold_s": statistics.median(first for first, _ in inside),
            "again_s": statistics.median(again for _, again in inside),
            "ratio": ratio(inside),
            "outside_again_s": statistics.median(again for _, again in outside),
            "outside_ratio": ratio(outside),
        }
        line = results[name]
        print(f"  {name:6} first {line['cold_s']:6.2f} s, again without network {line['again_s']:6.2f} s, ratio {line['ratio']:.1f}; "
              f"without sandpen again {line['outside_again_s']:6.2f} s, ratio {line['outside_ratio']:.1f}")
    index.shutdown()
    return results
