"""Measure package caches: installing inside with nothing cached, and again with the network off.

Needs the registries of npm, crates.io and PyPI; a tool that is missing or whose registry cannot be
reached is left out. The second run has an empty project again, except for cargo's target directory.
"""
import json
import os
import shutil
import statistics
import subprocess
import time

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


def npm(rig, project):
    with open(f"{project}/package.json", "w") as file:
        json.dump(NPM, file)
    rig.host(["npm", "install", "--package-lock-only", "--no-audit", "--no-fund"], project)
    return [".npm/_cacache"], "rm -rf node_modules; npm ci --prefer-offline --no-audit --no-fund --ignore-scripts", []


def cargo(rig, project):
    os.makedirs(f"{project}/src")
    with open(f"{project}/src/main.rs", "w") as file:
        file.write("fn main() {}\n")
    with open(f"{project}/Cargo.toml", "w") as file:
        file.write(CARGO)
    toolchain = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    rig.host([f"{toolchain}/bin/cargo", "generate-lockfile"], project)
    return [".cargo/registry"], "cargo build --quiet", ["--mount", toolchain, "--env", f"PATH={toolchain}/bin:/usr/bin:/bin"]


def pip(rig, project):
    """Writes requirements with addresses: pip asks its index each time, which needs the network."""
    rig.host(["/usr/bin/python3", "-m", "venv", "venv"], project)
    report = rig.host(["venv/bin/pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-", *PIP], project)
    found = [(one["metadata"]["name"], one["download_info"]["url"]) for one in json.loads(report)["install"]]
    if not all(url.startswith("http") for _, url in found):
        raise ValueError("packages are not taken from a registry")
    with open(f"{project}/requirements.txt", "w") as file:
        file.writelines(f"{name} @ {url}\n" for name, url in found)
    return [".cache/pip"], "rm -rf packages; venv/bin/pip install --quiet --no-deps --target packages -r requirements.txt", []


class Host:
    """A home directory without caches, and the programs of the host."""

    def __init__(self, rig):
        self.rig = rig

    def host(self, words, directory):
        env = {**self.rig.runner.env, "HOME": f"{directory}/../home-outside"}
        return subprocess.run(words, cwd=directory, env=env, capture_output=True, text=True, check=True, timeout=300).stdout


def run(rig, home, project, flags, script):
    command = [rig.sandpen, "run", "--engine", "native", "--ssh-agent", "off", *flags, "--", "sh", "-ec", script]
    started = time.perf_counter()
    found = subprocess.run(command, cwd=project, env={**rig.runner.env, "HOME": home}, capture_output=True, text=True, timeout=900)
    if found.returncode:
        raise ValueError(found.stderr.strip()[-300:])
    return time.perf_counter() - started


def measure(rig):
    results = {}
    for prepare in (npm, cargo, pip):
        name, cold, again = prepare.__name__, [], []
        for number in range(3):
            home = rig.make_directory(f"caches/{name}-{number}")
            project = rig.make_directory(f"caches/{name}-{number}/project")
            try:
                caches, script, flags = prepare(Host(rig), project)
                for cache in caches:
                    os.makedirs(f"{home}/{cache}", exist_ok=True)
                cold.append(run(rig, home, project, flags, script))
                again.append(run(rig, home, project, [*flags, "--network", "off"], script))
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                detail = getattr(error, "stderr", None) or error
                print(f"  {name}: left out: {str(detail).strip()[-300:]}")
                break
            finally:
                shutil.rmtree(home, ignore_errors=True)
        if len(again) == 3:
            ratio = statistics.median(first / second for first, second in zip(cold, again))
            results[name] = {"cold_s": statistics.median(cold), "again_s": statistics.median(again), "ratio": ratio}
            print(f"  {name:6} first {results[name]['cold_s']:6.2f} s, again without network {results[name]['again_s']:6.2f} s, ratio {ratio:.1f}")
    return results
