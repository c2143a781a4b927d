"""Set up the benchmark: find sandpen and the engines, and create a home directory and projects."""
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile

from bench_compare import Command, Runner

HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
IMAGE = os.environ.get("SANDPEN_BENCH_IMAGE", "localhost/sandpen-busybox:latest")
FILES = 100_000
# sandpen starts Git when this variable is set; the count of zero adds no settings.
START_GIT = {"GIT_CONFIG_COUNT": "0"}


def binary():
    """Return the path of the release build."""
    if named := os.environ.get("SANDPEN_BENCH_BIN"):
        return os.path.abspath(named)
    triple = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    triple = next(line[6:] for line in triple.splitlines() if line.startswith("host: "))
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "target"))
    path = os.path.join(target, triple, "release", "sandpen")
    if not os.path.exists(path):
        sys.exit("bench: no release build found; run `cargo build --release` first")
    return path


def environment(home):
    """Return a minimal environment for all commands, without the caller's configuration."""
    kept = ["PATH", "LANG", "USER", "XDG_RUNTIME_DIR", "DOCKER_HOST", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"]
    env = {name: os.environ[name] for name in kept if name in os.environ}
    if "SANDPEN_TEST_RIG" not in os.environ and subprocess.run([f"{HERE}/scripts/engines", "is-up"], capture_output=True).returncode == 0:
        # The test rig is up: use its engines.
        lines = subprocess.run([f"{HERE}/scripts/engines", "env"], capture_output=True, text=True, check=True).stdout.splitlines()
        pairs = (shlex.split(line)[1].split("=", 1) for line in lines if line.startswith("export "))
        env.update({name: value for name, value in pairs if name == "CONTAINERS_CONF"})
    return {**env, "HOME": home, "TERM": "dumb"}


class Rig:
    """Provides the directories, commands and engines that the sections measure."""

    def __init__(self, rounds):
        self.rounds = rounds
        self.sandpen = binary()
        self._directory = tempfile.TemporaryDirectory(dir="/var/tmp", prefix="sandpen-bench-")
        self.directory = os.path.realpath(self._directory.name)
        self.home = self.make_directory("home")
        self.empty = self.make_directory("home/empty")
        self.runner = Runner(self.empty, environment(self.home))

    def close(self):
        os.chdir("/")
        self._directory.cleanup()

    def make_directory(self, name):
        path = os.path.join(self.directory, name)
        os.makedirs(path, exist_ok=True)
        return path

    def fewer_rounds(self, divisor, least=3):
        return max(least, self.rounds // divisor)

    def has(self, program):
        return shutil.which(program, path=self.runner.env["PATH"])

    def engines(self):
        """Return those of Docker and Podman that can run the image."""
        return [engine for engine in ("docker", "podman")
                if self.has(engine) and not self.runner.failure_reason(Command([engine, "run", "--rm", "--pull", "never", IMAGE, "true"]))]

    def run(self, engine, *flags, agent="off", command=("true",), **where):
        """Return the command that launches a sandbox."""
        image = [] if engine == "native" else ["--image", IMAGE]
        title = " ".join(["sandpen run --engine", engine, *flags, "--", *command])
        return Command([self.sandpen, "run", "--ssh-agent", agent, "--engine", engine, *image, *flags, "--", *command], title=title, **where)

    def bare(self, engine, *flags):
        """Return the engine's command with sandpen's flags, without the helper and unique names."""
        text = subprocess.run([self.sandpen, "explain", "--format", "json", "--ssh-agent", "off", "--engine", engine, "--image", IMAGE,
                               *flags, "--", "true"], cwd=self.empty, env=self.runner.env, capture_output=True, text=True, check=True).stdout
        argv = json.loads(text)["argv"]
        single_use = {"--name", "--cidfile", "--entrypoint", "--label"}
        image = argv.index(IMAGE)
        arguments, at = [], 0
        while at < image:
            if argv[at] in single_use:
                at += 2
                continue
            arguments.append(argv[at])
            at += 1
        title = f"{engine} run with the same flags" + "".join(f" {flag}" for flag in flags)
        return Command(self.with_fixed_session(arguments) + [IMAGE, "true"], title=title)

    def with_fixed_session(self, arguments):
        """Replace the session directory in the arguments by a permanent one with the same files."""
        session = self.make_directory("session")
        for name in ("home", "tmp"):
            self.make_directory(f"session/{name}")
        replaced = []
        for argument in arguments:
            _, separator, after = argument.partition("/SESSION/")
            if separator:
                argument = f"{session}/{after}"
                source = argument.split(":")[0]
                if not os.path.exists(source):
                    open(source, "w").close()
            replaced.append(argument)
        for name, line in (("passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("group", "root:x:0:\n")):
            with open(f"{session}/{name}", "w") as file:
                file.write(line)
        return replaced

    def repository(self, name, files=0, refs=0, includes=False):
        """Create a Git repository, optionally with files, branches, or includes in the configuration."""
        path = self.make_directory(f"home/{name}")
        if os.path.exists(f"{path}/.git"):
            return path
        git = ["git", "-C", path, "-c", "user.name=bench", "-c", "user.email=bench@example.org"]
        call = lambda *arguments: subprocess.run([*git, *arguments], env=self.runner.env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        call("init", "--quiet")
        for number in range(files):
            directory = f"{path}/d{number // 100}"
            if number % 100 == 0:
                os.mkdir(directory)
            open(f"{directory}/f{number}", "w").close()
        if files:
            call("add", "--all")
        call("commit", "--quiet", "--allow-empty", "--message", "a commit")
        if refs:
            branches = "".join(f"create refs/heads/branch-{number} HEAD\n" for number in range(refs))
            subprocess.run([*git, "update-ref", "--stdin"], input=branches, text=True, env=self.runner.env, check=True)
            call("pack-refs", "--all")
        if includes:
            with open(f"{self.home}/.gitconfig", "w") as file:
                file.write("[user]\n\tname = bench\n[include]\n\tpath = ~/included\n[includeIf \"gitdir:~/\"]\n\tpath = ~/included-too\n")
            for other in ("included", "included-too"):
                with open(f"{self.home}/{other}", "w") as file:
                    file.write("[alias]\n\tst = status\n[core]\n\tautocrlf = input\n")
        return path

    def machine(self):
        """Describe the machine, without names and paths."""
        memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal:"))
        model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
        release = ".".join(platform.release().split("-")[0].split(".")[:2])
        return {"cores": os.cpu_count(), "memory_gb": round(memory / 1e6), "processor": model, "kernel": release,
                "user": "root" if os.getuid() == 0 else "an unprivileged user", "load": round(os.getloadavg()[0], 1)}

    def versions(self):
        """Return the version of each tool, or None if it is not installed."""
        commands = {"docker": ["docker", "version", "--format", "{{.Client.Version}} client, {{.Server.Version}} daemon"],
                    "podman": ["podman", "--version"], "bubblewrap": ["bwrap", "--version"], "firejail": ["firejail", "--version"],
                    "unshare": ["unshare", "--version"], "distrobox": ["distrobox", "version"], "devcontainer": ["devcontainer", "--version"],
                    "charliecloud": ["ch-run", "--version"], "srt": ["srt", "--version"], "codex": ["codex", "--version"], "gemini": ["gemini", "--version"],
                    "tinyproxy": ["tinyproxy", "-v"], "git": ["git", "--version"], "sandpen": [self.sandpen, "--version"]}
        found = {}
        for name, argv in commands.items():
            found[name] = None
            if self.has(argv[0]):
                done = subprocess.run(argv, env=self.runner.env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
                lines = done.stdout.strip().splitlines()
                first = lines[0] if lines else "of unknown version"
                found[name] = first if name == "docker" else next((part for part in first.split() if part[0].isdigit()), first)
        return found
