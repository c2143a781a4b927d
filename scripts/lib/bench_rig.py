"""What is measured, and on what: the program, the engines that answer, a home and projects of the benchmark's own."""
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile

from bench_race import Command, Track

HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
IMAGE = os.environ.get("SANDPEN_BENCH_IMAGE", "localhost/sandpen-busybox:latest")
FILES = 100_000
# Settings from the environment are Git's to read; there are none.
ASK_GIT = {"GIT_CONFIG_COUNT": "0"}


def binary():
    """The release build."""
    if named := os.environ.get("SANDPEN_BENCH_BIN"):
        return os.path.abspath(named)
    triple = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    triple = next(line[6:] for line in triple.splitlines() if line.startswith("host: "))
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "target"))
    path = os.path.join(target, triple, "release", "sandpen")
    if not os.path.exists(path):
        sys.exit("bench: there is no release build; run `cargo build --release` first")
    return path


def environment(home):
    """The same for everything that is run: little, and nothing of the caller's own configuration."""
    kept = ["PATH", "LANG", "USER", "XDG_RUNTIME_DIR", "DOCKER_HOST", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF"]
    env = {name: os.environ[name] for name in kept if name in os.environ}
    if "SANDPEN_TEST_RIG" not in os.environ and subprocess.run([f"{HERE}/scripts/engines", "is-up"], capture_output=True).returncode == 0:
        # The engines of the test rig, when they are up.
        lines = subprocess.run([f"{HERE}/scripts/engines", "env"], capture_output=True, text=True, check=True).stdout.splitlines()
        pairs = (shlex.split(line)[1].split("=", 1) for line in lines if line.startswith("export "))
        env.update({name: value for name, value in pairs if name == "CONTAINERS_CONF"})
    return {**env, "HOME": home, "TERM": "dumb"}


class Rig:
    """Everything a section needs."""

    def __init__(self, rounds):
        self.rounds = rounds
        self.sandpen = binary()
        self._directory = tempfile.TemporaryDirectory(dir="/var/tmp", prefix="sandpen-bench-")
        self.directory = os.path.realpath(self._directory.name)
        self.home = self.place("home")
        self.empty = self.place("home/empty")
        self.track = Track(self.empty, environment(self.home))

    def close(self):
        os.chdir("/")
        self._directory.cleanup()

    def place(self, name):
        path = os.path.join(self.directory, name)
        os.makedirs(path, exist_ok=True)
        return path

    def few(self, divisor, least=3):
        return max(least, self.rounds // divisor)

    def has(self, program):
        return shutil.which(program, path=self.track.env["PATH"])

    def engines(self):
        """Docker and Podman, as far as they run the image."""
        return [engine for engine in ("docker", "podman")
                if self.has(engine) and not self.track.trouble(Command([engine, "run", "--rm", "--pull", "never", IMAGE, "true"]))]

    def run(self, engine, *flags, agent="off", command=("true",), **where):
        """A launch of sandpen."""
        image = [] if engine == "native" else ["--image", IMAGE]
        shown = " ".join(["sandpen run --engine", engine, *flags, "--", *command])
        return Command([self.sandpen, "run", "--ssh-agent", agent, "--engine", engine, *image, *flags, "--", *command], shown=shown, **where)

    def bare(self, engine, *flags):
        """The engine with the flags that sandpen gives it – all but the helper, and what can be used but once."""
        text = subprocess.run([self.sandpen, "explain", "--format", "json", "--ssh-agent", "off", "--engine", engine, "--image", IMAGE,
                               *flags, "--", "true"], cwd=self.empty, env=self.track.env, capture_output=True, text=True, check=True).stdout
        argv = json.loads(text)["argv"]
        once = {"--name", "--cidfile", "--entrypoint", "--label"}
        image = argv.index(IMAGE)
        words, at = [], 0
        while at < image:
            if argv[at] in once:
                at += 2
                continue
            words.append(argv[at])
            at += 1
        frozen = self.freeze(words)
        shown = f"{engine} run with the same flags" + "".join(f" {flag}" for flag in flags)
        return Command(frozen + [IMAGE, "true"], shown=shown)

    def freeze(self, words):
        """The same words, with a session's directory that stays. Its files are made as sandpen makes them."""
        session = self.place("session")
        for name in ("home", "tmp"):
            self.place(f"session/{name}")
        frozen = []
        for word in words:
            before, mark, after = word.partition("/SESSION/")
            if mark:
                word = f"{session}/{after}"
                source = word.split(":")[0]
                if not os.path.exists(source):
                    open(source, "w").close()
            frozen.append(word)
        for name, line in (("passwd", "root:x:0:0:root:/root:/bin/sh\n"), ("group", "root:x:0:\n")):
            with open(f"{session}/{name}", "w") as file:
                file.write(line)
        return frozen

    def repository(self, name, files=0, includes=False):
        """A Git repository; with files in it, or with a configuration that includes others."""
        path = self.place(f"home/{name}")
        if os.path.exists(f"{path}/.git"):
            return path
        git = ["git", "-C", path, "-c", "user.name=bench", "-c", "user.email=bench@example.org"]
        call = lambda *words: subprocess.run([*git, *words], env=self.track.env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        call("init", "--quiet")
        for number in range(files):
            directory = f"{path}/d{number // 100}"
            if number % 100 == 0:
                os.mkdir(directory)
            open(f"{directory}/f{number}", "w").close()
        if files:
            call("add", "--all")
        call("commit", "--quiet", "--allow-empty", "--message", "a commit")
        if includes:
            with open(f"{self.home}/.gitconfig", "w") as file:
                file.write("[user]\n\tname = bench\n[include]\n\tpath = ~/included\n[includeIf \"gitdir:~/\"]\n\tpath = ~/included-too\n")
            for other in ("included", "included-too"):
                with open(f"{self.home}/{other}", "w") as file:
                    file.write("[alias]\n\tst = status\n[core]\n\tautocrlf = input\n")
        return path

    def machine(self):
        """What the figures were taken on; no names, no paths."""
        memory = next(int(line.split()[1]) for line in open("/proc/meminfo") if line.startswith("MemTotal:"))
        model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
        release = ".".join(platform.release().split("-")[0].split(".")[:2])
        return {"cores": os.cpu_count(), "memory_gb": round(memory / 1e6), "processor": model, "kernel": release,
                "user": "root" if os.getuid() == 0 else "an ordinary user", "load": round(os.getloadavg()[0], 1)}

    def versions(self):
        """Of what is compared; None where it is absent."""
        asks = {"docker": ["docker", "version", "--format", "{{.Client.Version}} client, {{.Server.Version}} daemon"],
                "podman": ["podman", "--version"], "bubblewrap": ["bwrap", "--version"], "firejail": ["firejail", "--version"],
                "unshare": ["unshare", "--version"], "distrobox": ["distrobox", "version"], "devcontainer": ["devcontainer", "--version"],
                "srt": ["srt", "--version"], "codex": ["codex", "--version"], "gemini": ["gemini", "--version"],
                "tinyproxy": ["tinyproxy", "-v"], "git": ["git", "--version"], "sandpen": [self.sandpen, "--version"]}
        found = {}
        for name, argv in asks.items():
            found[name] = None
            if self.has(argv[0]):
                done = subprocess.run(argv, env=self.track.env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
                lines = done.stdout.strip().splitlines()
                words = lines[0] if lines else "of unknown version"
                found[name] = words if name == "docker" else next((word for word in words.split() if word[0].isdigit()), words)
        return found
