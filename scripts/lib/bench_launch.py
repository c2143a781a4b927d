"""A launch of `true`, end to end: sandpen beside the bare engines and beside other launchers, as far as they are installed."""
import json
import os
import subprocess

from bench_race import Command, show
from bench_rig import ASK_GIT, IMAGE

BWRAP = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "true"]
# The same with the host's network, as sandpen's default has it.
BWRAP_SHARED = [*BWRAP[:-1], "--share-net", "true"]
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--ipc", "--uts", "--net", "--mount-proc", "true"]
FIREJAIL = ["firejail", "--quiet", "--noprofile", "--net=none", "true"]
# gemini starts a container of this name's image and in it `gemini`, which is here `true`.
GEMINI_IMAGE = "localhost/sandpen-bench-gemini"
GEMINI = {"GEMINI_API_KEY": "none", "GEMINI_SANDBOX": "docker", "GEMINI_SANDBOX_IMAGE": GEMINI_IMAGE,
          "SANDBOX_SET_UID_GID": "false", "GEMINI_CLI_TRUST_WORKSPACE": "true"}


def sandpen_alone(rig):
    """What it takes without any engine."""
    mine = lambda *words: Command([rig.sandpen, *words], shown=" ".join(["sandpen", *words]))
    table = rig.track.race(rig.rounds * 2, Command(["true"], shown="true, not sandboxed"), {
        "--version": mine("--version"),
        "--help": mine("--help"),
        "explain, native": mine("explain", "--ssh-agent", "off", "--engine", "native", "--", "true"),
        "explain, native, in a Git repository": Command(
            [rig.sandpen, "explain", "--ssh-agent", "off", "--engine", "native", "--", "true"], cwd=rig.repository("repository")),
    })
    show("sandpen alone", table)
    return table


def native(rig):
    """Beside bubblewrap, with the host's network on both sides."""
    repository = rig.repository("repository")
    table = rig.track.race(rig.rounds * 2, Command(BWRAP_SHARED, shown=" ".join(BWRAP_SHARED)), {
        "sandpen": rig.run("native"),
        "sandpen, the engine left to it": Command([rig.sandpen, "run", "--ssh-agent", "off", "--", "true"], shown="sandpen run -- true"),
        "sandpen, in a Git repository": rig.run("native", cwd=repository),
        "sandpen, in a Git repository, Git asked anew": rig.run("native", cwd=repository, env=ASK_GIT),
    })
    show("without a container, the host's network, beside bubblewrap", table)
    return table


def native_apart(rig):
    """Beside bubblewrap, without a network on both sides; and the other launchers, which cannot do otherwise."""
    repository, reference = rig.repository("repository"), Command(BWRAP, shown=" ".join(BWRAP))
    table = rig.track.race(rig.rounds, reference, {
        "sandpen --network off": rig.run("native", "--network", "off"),
        "sandpen --network off, in a Git repository": rig.run("native", "--network", "off", cwd=repository),
        "sandpen --allow-host": rig.run("native", "--allow-host", "example.org"),
        "unshare": Command(UNSHARE, shown=" ".join(UNSHARE)),
        "firejail": Command(FIREJAIL, shown=" ".join(FIREJAIL)),
    })
    slow = rig.track.race(rig.few(5, 5), reference, {"srt": Command(["srt", "true"], shown="srt true"),
                                                     "codex": Command(["codex", "sandbox", "--", "true"], shown="codex sandbox -- true")})
    table.update({name: line for name, line in slow.items() if name not in ("reference", "twin")})
    show("without a container, no network, beside bubblewrap", table)
    return table


def engine(rig, name):
    """One engine, beside itself with the same flags."""
    plain = Command([name, "run", "--rm", IMAGE, "true"], shown=f"{name} run --rm IMAGE true")
    table = rig.track.race(rig.few(2, 5), rig.bare(name), {"sandpen": rig.run(name), f"{name} run --rm": plain})
    show(f"{name}, beside the same flags without sandpen", table)
    return table


def engine_apart(rig, name):
    """The same without a network, and with a filtered one: the guest has none then, either."""
    table = rig.track.race(rig.few(3, 5), rig.bare(name, "--network", "off"), {
        "sandpen --network off": rig.run(name, "--network", "off"),
        "sandpen --allow-host": rig.run(name, "--allow-host", "example.org"),
    })
    show(f"{name}, no network, beside the same flags without sandpen", table)
    return table


def container_launchers(rig):
    """Other launchers of containers, beside `docker run`: few rounds, for they are slow."""
    with gemini_image(rig) as gemini, devcontainer(rig) as container, distrobox(rig) as box:
        commands = {"gemini-cli": gemini, "devcontainer up, exec, remove": container.whole, "devcontainer exec": container.warm,
                    "distrobox enter": box}
        table = rig.track.race(rig.few(10), rig.bare("docker"), {
            "sandpen": rig.run("docker"), **{name: command for name, command in commands.items() if command}}, with_twin=False)
    table.update({name: {"absent": "not installed"} for name, command in commands.items() if not command})
    show("other launchers of containers, beside docker run", table)
    return table


def docker(rig, *words, **more):
    return subprocess.run(["docker", *words], env=rig.track.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **more)


class gemini_image:
    """The image in which gemini-cli finds its own name; made for the while."""

    def __init__(self, rig):
        self.rig, self.is_made = rig, False

    def __enter__(self):
        if not self.rig.has("gemini"):
            return None
        recipe = "FROM localhost/sandpen-test\nRUN ln -s /bin/true /usr/local/bin/gemini\n"
        self.is_made = docker(self.rig, "build", "--quiet", "--tag", GEMINI_IMAGE, "-", input=recipe).returncode == 0
        return Command(["gemini", "--sandbox", "--prompt", "hello"], cwd=self.rig.place("home/gemini"), env=GEMINI, shown="gemini --sandbox")

    def __exit__(self, *_):
        if self.is_made:
            docker(self.rig, "rmi", "--force", GEMINI_IMAGE)


class devcontainer:
    """A devcontainer from nothing to its removal, and one that runs already."""

    def __init__(self, rig):
        self.rig, self.whole, self.warm = rig, None, None

    def __enter__(self):
        if self.rig.has("devcontainer"):
            paths = [self.project("cold"), self.project("warm")]
            up = "devcontainer up --workspace-folder . >/dev/null && devcontainer exec --workspace-folder . true"
            remove = f"docker rm --force $(docker ps --quiet --filter label=devcontainer.local_folder={paths[0]})"
            self.whole = Command(["sh", "-c", f"{up} && {remove}"], cwd=paths[0], shown="devcontainer up, exec, docker rm")
            self.rig.track.trouble(Command(["devcontainer", "up", "--workspace-folder", "."], cwd=paths[1]))
            self.warm = Command(["devcontainer", "exec", "--workspace-folder", ".", "true"], cwd=paths[1], shown="devcontainer exec true")
        return self

    def project(self, name):
        path = self.rig.place(f"home/devcontainer-{name}")
        os.makedirs(f"{path}/.devcontainer", exist_ok=True)
        with open(f"{path}/.devcontainer/devcontainer.json", "w") as file:
            json.dump({"image": "localhost/sandpen-test", "updateRemoteUserUID": False}, file)
        return path

    def __exit__(self, *_):
        for name in ("cold", "warm"):
            label = f"label=devcontainer.local_folder={self.rig.directory}/home/devcontainer-{name}"
            if left := docker(self.rig, "ps", "--all", "--quiet", "--filter", label).stdout.split() if self.whole else None:
                docker(self.rig, "rm", "--force", *left)


class distrobox:
    """A box that runs already."""

    NAME = "sandpen-bench-box"

    def __init__(self, rig):
        self.rig, self.env = rig, {"DBX_CONTAINER_MANAGER": "docker", "DBX_NON_INTERACTIVE": "1"}

    def __enter__(self):
        if not self.rig.has("distrobox"):
            return None
        self.rig.track.trouble(Command(["distrobox", "create", "--yes", "--image", "localhost/sandpen-test", "--name", self.NAME], env=self.env))
        return Command(["distrobox", "enter", "--name", self.NAME, "--", "true"], env=self.env, shown="distrobox enter -- true")

    def __exit__(self, *_):
        if self.rig.has("distrobox"):
            docker(self.rig, "rm", "--force", self.NAME)
