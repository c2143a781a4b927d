"""Measure what the gates of SSH cost: the throughput of fetches and pushes through `--push` beside bare Git
over the same sshd, the memory of the launcher meanwhile, and the time of a signature by the agent.
"""
import getpass
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time

MEGABYTES = int(os.environ.get("SANDPEN_BENCH_PUSH_MB", "256"))
SIGNATURES = 500
PYTHON = "/usr/bin/python3"

# Prints the seconds that the command took.
TIMED = 'set -e; start=$EPOCHREALTIME; "$@" >/dev/null 2>&1; end=$EPOCHREALTIME; echo $(( ${end/./} - ${start/./} ))'

SIGNER = r"""
import os, socket, struct, sys, time
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["SSH_AUTH_SOCK"])
def ask(m):
    s.sendall(struct.pack(">I", len(m)) + m)
    def read(n):
        got = b""
        while len(got) < n: got += s.recv(n - len(got))
        return got
    return read(struct.unpack(">I", read(4))[0])
text = lambda b: struct.pack(">I", len(b)) + b
keys = ask(b"\x0b"); length = struct.unpack(">I", keys[5:9])[0]; key = keys[9:9 + length]
data = text(b"s" * 32) + b"\x32" + text(b"git") + text(b"ssh-connection") + text(b"publickey") + b"\x01" + text(b"ssh-ed25519") + text(key)
request = b"\x0d" + text(key) + text(data) + bytes(4)
taken = []
for _ in range(int(sys.argv[1])):
    start = time.perf_counter(); answer = ask(request); taken.append(time.perf_counter() - start)
    assert answer[0] == 14, answer
print(sorted(taken)[len(taken) // 2] * 1000)
"""


class Server:
    """Runs sshd and an SSH agent, and holds a repository and a clone of it."""

    def __init__(self, rig, directory):
        self.directory, self.sandpen = directory, rig.sandpen
        self.home, self.project, self.repository = (os.path.join(directory, name) for name in ("home", "project", "app.git"))
        os.makedirs(f"{self.home}/.ssh", mode=0o700)
        os.chmod(directory, 0o755)
        self.env = {"HOME": self.home, "PATH": os.environ["PATH"], "LANG": "C", "GIT_CONFIG_NOSYSTEM": "1"}
        for name in ("host", "user"):
            self.call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{directory}/{name}")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        with open(f"{directory}/sshd_config", "w") as file:
            file.write(f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {directory}/host\nAuthorizedKeysFile {directory}/user.pub\n"
                       "StrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\nAcceptEnv GIT_PROTOCOL\n")
        known = open(f"{directory}/host.pub").read()
        with open(f"{self.home}/.ssh/known_hosts", "w") as file:
            file.write(f"[127.0.0.1]:{self.port} {known}")
        with open(f"{self.home}/.gitconfig", "w") as file:
            file.write(f"[user]\n\tname = bench\n\temail = bench@example.org\n[safe]\n\tdirectory = *\n[core]\n\tsshCommand = ssh -F none -i {directory}/user "
                       f"-o UserKnownHostsFile={self.home}/.ssh/known_hosts\n[gc]\n\tauto = 0\n")
        if os.getuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)
        self.sshd = subprocess.Popen(["/usr/sbin/sshd", "-D", "-f", f"{directory}/sshd_config"], stderr=subprocess.DEVNULL)
        self.env["SSH_AUTH_SOCK"] = f"{directory}/agent"
        self.agent = subprocess.Popen(["ssh-agent", "-D", "-a", self.env["SSH_AUTH_SOCK"]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not (os.path.exists(self.env["SSH_AUTH_SOCK"]) and self.answers()):
            time.sleep(0.05)
        self.call("ssh-add", "-q", f"{directory}/user")

    def answers(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def close(self):
        self.sshd.kill()
        self.agent.kill()

    def call(self, *command, cwd=None):
        return subprocess.run(command, cwd=cwd or self.directory, env=self.env, check=True, capture_output=True, text=True).stdout.strip()

    def fill(self, megabytes):
        """Make a repository with one small commit, and a clone with a commit of random files behind it."""
        seed = os.path.join(self.directory, "seed")
        self.call("git", "init", "-q", "-b", "main", seed)
        self.call("git", "commit", "-q", "--allow-empty", "-m", "first", cwd=seed)
        self.call("git", "clone", "-q", "--bare", seed, self.repository)
        self.url = f"ssh://{getpass.getuser()}@127.0.0.1:{self.port}{self.repository}"
        self.call("git", "clone", "-q", self.url, self.project)
        for number in range(megabytes // 16):
            with open(f"{self.project}/random-{number}", "wb") as file:
                for _ in range(16):
                    file.write(os.urandom(1 << 20))
        self.call("git", "add", "--all", cwd=self.project)
        self.call("git", "-c", "core.compression=1", "commit", "-q", "-m", "random", cwd=self.project)
        self.call("git", "repack", "-adq", cwd=self.project)

    def reset(self, kind):
        """Bring the server and the clone to the state before a transfer."""
        shutil.rmtree(self.repository)
        seed = os.path.join(self.directory, "seed")
        if kind == "fetch":
            self.call("git", "clone", "-q", "--bare", self.project, self.repository)
            shutil.rmtree(f"{self.directory}/empty", ignore_errors=True)
            self.call("git", "clone", "-q", seed, f"{self.directory}/empty")
            self.call("git", "remote", "set-url", "origin", self.url, cwd=f"{self.directory}/empty")
        else:
            self.call("git", "clone", "-q", "--bare", seed, self.repository)
            self.call("git", "branch", "-q", "agent/old", "main", cwd=self.repository)
        os.sync()

    def transfer(self, kind, is_bare):
        """Return the seconds of a transfer, and the most memory of the launcher."""
        self.reset(kind)
        work = f"{self.directory}/empty" if kind == "fetch" else self.project
        git = {"new": ["git", "push", "-q", "origin", "HEAD:refs/heads/agent/new"],
               "forward": ["git", "push", "-q", "origin", "HEAD:refs/heads/agent/old"],
               "fetch": ["git", "fetch", "-q", "origin", "main:refs/remotes/origin/big"]}[kind]
        timed = ["bash", "-c", TIMED, "bash", *git]
        command = timed if is_bare else [self.sandpen, "run", "--engine", "native", "--ssh-agent", "off", "--push", "agent/*", "--", *timed]
        process = subprocess.Popen(command, cwd=work, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        memory = Memory(process.pid)
        seconds = process.communicate()[0].strip()
        if process.returncode or not seconds:
            raise RuntimeError(f"{kind}: exit code {process.returncode}")
        return int(seconds) / 1e6, memory.end()


class Memory:
    """Watches the most memory that a process has used."""

    def __init__(self, pid):
        self.path, self.most, self.is_over = f"/proc/{pid}/status", 0, False
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        while not self.is_over:
            try:
                line = next(line for line in open(self.path) if line.startswith("VmHWM"))
                self.most = max(self.most, int(line.split()[1]) / 1024)
            except (OSError, StopIteration):
                pass
            time.sleep(0.05)

    def end(self):
        self.is_over = True
        self.thread.join()
        return self.most


def transfers(rig, rounds):
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="sandpen-push-") as directory:
        server = Server(rig, directory)
        try:
            server.fill(MEGABYTES)
            results = {}
            for kind in ("new", "forward", "fetch"):
                taken = [[server.transfer(kind, is_bare) for is_bare in (True, False)] for _ in range(rounds)]
                ratio = statistics.median(bare[0] / own[0] for bare, own in taken)
                results[kind] = {"bare_mb_per_s": MEGABYTES / statistics.median(bare[0] for bare, _ in taken),
                                 "mb_per_s": MEGABYTES / statistics.median(own[0] for _, own in taken),
                                 "ratio_throughput": ratio, "launcher_mb": max(own[1] for _, own in taken)}
        finally:
            server.close()
    print(f"\n--push over SSH ({rounds} rounds, {MEGABYTES} MB each), throughput beside bare Git")
    names = {"new": "a push that makes a branch", "forward": "a push that is checked to be a fast-forward", "fetch": "a fetch"}
    for kind, row in results.items():
        print(f"  {names[kind]:44} {row['mb_per_s']:6.0f} MB/s, bare {row['bare_mb_per_s']:6.0f} MB/s ({row['ratio_throughput']:.2f}); "
              f"launcher {row['launcher_mb']:.1f} MB")
    return results


def signatures(rig, rounds):
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="sandpen-agent-") as directory:
        server = Server(rig, directory)
        os.mkdir(server.project)
        run = lambda *more: [rig.sandpen, "run", "--engine", "native", *more, "--"]
        client = [PYTHON, "-c", SIGNER, str(SIGNATURES)]
        routes = {"raw": run("--ssh-agent", "raw") + client, "gate": run("--ssh-agent", "on") + client}
        launches = {"off": run("--ssh-agent", "off") + ["true"], "on": run("--ssh-agent", "on") + ["true"]}
        signed, launched = {name: [] for name in routes}, {name: [] for name in launches}
        try:
            for _ in range(rounds):
                for name, command in routes.items():
                    done = subprocess.run(command, cwd=server.project, env=server.env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
                    signed[name].append(float(done.stdout))
            for _ in range(rounds * 10):
                for name, command in launches.items():
                    started = time.perf_counter()
                    subprocess.run(command, cwd=server.project, env=server.env, stdin=subprocess.DEVNULL, capture_output=True, check=True)
                    launched[name].append(time.perf_counter() - started)
        finally:
            server.close()
    more = statistics.median(own - raw for own, raw in zip(signed["gate"], signed["raw"]))
    ratio = statistics.median(own / other for own, other in zip(launched["on"], launched["off"]))
    result = {"signature_raw_ms": statistics.median(signed["raw"]), "signature_more_ms": more, "ratio_launch": ratio}
    print(f"\nSSH agent ({rounds} rounds of {SIGNATURES} signatures): a signature takes {more:.3f} ms more than the agent's own "
          f"({result['signature_raw_ms']:.3f} ms); a launch with the agent takes {ratio:.2f} of one without")
    return result


def measure(rig):
    return {"transfers": transfers(rig, rig.fewer_rounds(10)), "signatures": signatures(rig, rig.fewer_rounds(3))}
