"""Compare launches of `true` by sandpen, by the bare engines and by other installed launchers."""
import json
import os
import subprocess

from bench_compare import Command, print_table
from bench_rig import IMAGE, START_GIT

BWRAP = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "true"]
# sandpen shares the host's network by default.
BWRAP_HOST_NETWORK = [*BWRAP[:-1], "--share-net", "true"]
UNSHARE = ["unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--ipc", "--uts", "--net", "--mount-proc", "true"]
FIREJAIL = ["firejail", "--quiet", "--noprofile", "--net=none", "true"]
# gemini-cli runs `gemini` in a container of this image, where `gemini` is a link to `true`.
GEMINI_IMAGE = "localhost/sandpen-bench-gemini"
GEMINI = {"GEMINI_API_KEY": "none", "GEMINI_SANDBOX": "docker", "GEMINI_SANDBOX_IMAGE": GEMINI_IMAGE,
          "SANDBOX_SET_UID_GID": "false", "GEMINI_CLI_TRUST_WORKSPACE": "true"}


def sandpen_commands(rig):
    """Measure commands that start no sandbox."""
    sandpen = lambda *arguments: Command([rig.sandpen, *arguments], title=" ".join(["sandpen", *arguments]))
    table = rig.runner.compare(rig.rounds * 2, Command(["true"], title="true, not sandboxed"), {
        "--version": sandpen("--version"),
        "--help": sandpen("--help"),
        "explain, native": sandpen("explain", "--ssh-agent", "off", "--engine", "native", "--", "true"),
        "explain, native, in a Git repository": Command(
            [rig.sandpen, "explain", "--ssh-agent", "off", "--engine", "native", "--", "true"], cwd=rig.repository("repository")),
    })
    print_table("sandpen commands without a sandbox", table)
    return table


CLONE = "clone and pivot_root in C"


def clone_program(rig):
    """Compile the program that makes the same namespaces and nothing else; None without a compiler."""
    program = os.path.join(rig.directory, "bench_clone")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bench_clone.c")
    if not rig.has("cc") or subprocess.run(["cc", "-O2", "-o", program, source]).returncode:
        return {}
    return {CLONE: Command([program, "true"], title="scripts/lib/bench_clone.c")}


def native(rig):
    """Compare native launches to bubblewrap, both with the host's network."""
    repository = rig.repository("repository")
    table = rig.runner.compare(rig.rounds * 2, Command(BWRAP_HOST_NETWORK, title=" ".join(BWRAP_HOST_NETWORK)), {
        **clone_program(rig),
        "sandpen": rig.run("native"),
        "sandpen, engine chosen automatically": Command([rig.sandpen, "run", "--ssh-agent", "off", "--", "true"], title="sandpen run -- true"),
        "sandpen, in a Git repository": rig.run("native", cwd=repository),
        "sandpen, in a Git repository, Git started": rig.run("native", cwd=repository, env=START_GIT),
    })
    print_table("native launch with the host's network, compared to bubblewrap", table)
    return table


def native_without_network(rig):
    """Compare native launches and other launchers to bubblewrap, all without a network."""
    repository, reference = rig.repository("repository"), Command(BWRAP, title=" ".join(BWRAP))
    table = rig.runner.compare(rig.rounds, reference, {
        "sandpen --network off": rig.run("native", "--network", "off"),
        "sandpen --network off, in a Git repository": rig.run("native", "--network", "off", cwd=repository),
        "sandpen --allow-host": rig.run("native", "--allow-host", "example.org"),
        "unshare": Command(UNSHARE, title=" ".join(UNSHARE)),
        "firejail": Command(FIREJAIL, title=" ".join(FIREJAIL)),
    })
    slow = rig.runner.compare(rig.fewer_rounds(5, 5), reference, {"srt": Command(["srt", "true"], title="srt true"),
                                                     "codex": Command(["codex", "sandbox", "--", "true"], title="codex sandbox -- true")})
    table.update({name: line for name, line in slow.items() if name not in ("reference", "repeat")})
    print_table("native launch without a network, compared to bubblewrap", table)
    return table


def images(rig, engines):
    """Compare native launches with an image to native launches, and to others that run its files."""
    image = Command([rig.sandpen, "run", "--ssh-agent", "off", "--engine", "native", "--image", IMAGE, "--", "true"],
                    title="sandpen run --engine native --image IMAGE -- true")
    files = unpack_image(rig)
    if not files:
        return {}
    subprocess.run([rig.sandpen, "image", "import", f"{files}.tar"], env=rig.runner.env, check=True, stdout=subprocess.DEVNULL)
    charliecloud = Command(["ch-run", files, "--", "true"], env={"USER": "root"}, title="ch-run DIRECTORY -- true")
    table = rig.runner.compare(rig.rounds, rig.run("native"), {"sandpen": image, "charliecloud": charliecloud})
    slow = {f"{name} run": rig.bare(name) for name in engines}
    table.update({name: line for name, line in rig.runner.compare(rig.fewer_rounds(3, 5), image, slow, with_repeat=False).items() if name != "reference"})
    print_table("native launch with an image, compared to one without (engines: compared to one with an image)", table)
    return table


def unpack_image(rig):
    """Unpack the image with Docker, beside a file with it. Return the directory, or None without Docker."""
    made = docker(rig, "create", IMAGE, "true").stdout.strip() if rig.has("docker") else ""
    if not made:
        return None
    path = rig.make_directory("image")
    commands = f"docker export {made} | tar -x -C {path}; docker rm {made} >/dev/null; docker save -o {path}.tar {IMAGE}"
    subprocess.run(["sh", "-c", commands], env=rig.runner.env, check=True)
    return path


def engine(rig, name):
    """Compare sandpen on an engine to the bare engine with the same flags."""
    plain = Command([name, "run", "--rm", IMAGE, "true"], title=f"{name} run --rm IMAGE true")
    table = rig.runner.compare(rig.fewer_rounds(2, 5), rig.bare(name), {"sandpen": rig.run(name), f"{name} run --rm": plain})
    print_table(f"launch on {name}, compared to the bare engine with the same flags", table)
    return table


def engine_without_network(rig, name):
    """Compare without a network, and with the proxy, where the guest has no network either."""
    table = rig.runner.compare(rig.fewer_rounds(3, 5), rig.bare(name, "--network", "off"), {
        "sandpen --network off": rig.run(name, "--network", "off"),
        "sandpen --allow-host": rig.run(name, "--allow-host", "example.org"),
    })
    print_table(f"launch on {name} without a network, compared to the bare engine with the same flags", table)
    return table


def container_launchers(rig):
    """Compare other container launchers to `docker run`, in few rounds because they are slow."""
    with gemini_image(rig) as gemini, devcontainer(rig) as container, distrobox(rig) as box:
        commands = {"gemini-cli": gemini, "devcontainer up, exec, remove": container.full_cycle, "devcontainer exec": container.running,
                    "distrobox enter": box}
        table = rig.runner.compare(rig.fewer_rounds(10), rig.bare("docker"), {
            "sandpen": rig.run("docker"), **{name: command for name, command in commands.items() if command}}, with_repeat=False)
    table.update({name: {"absent": "not installed"} for name, command in commands.items() if not command})
    print_table("other container launchers, compared to docker run", table)
    return table


def docker(rig, *arguments, **options):
    return subprocess.run(["docker", *arguments], env=rig.runner.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options)


class gemini_image:
    """Builds the image for gemini-cli, and removes it at the end."""

    def __init__(self, rig):
        self.rig, self.is_built = rig, False

    def __enter__(self):
        if not self.rig.has("gemini"):
            return None
        dockerfile = "FROM localhost/sandpen-test\nRUN ln -s /bin/true /usr/local/bin/gemini\n"
        self.is_built = docker(self.rig, "build", "--quiet", "--tag", GEMINI_IMAGE, "-", input=dockerfile).returncode == 0
        return Command(["gemini", "--sandbox", "--prompt", "hello"], cwd=self.rig.make_directory("home/gemini"), env=GEMINI, title="gemini --sandbox")

    def __exit__(self, *_):
        if self.is_built:
            docker(self.rig, "rmi", "--force", GEMINI_IMAGE)


class devcontainer:
    """Provides commands that create and remove a devcontainer, and that enter a running one."""

    def __init__(self, rig):
        self.rig, self.full_cycle, self.running = rig, None, None

    def __enter__(self):
        if self.rig.has("devcontainer"):
            paths = [self.project("cold"), self.project("warm")]
            up = "devcontainer up --workspace-folder . >/dev/null && devcontainer exec --workspace-folder . true"
            remove = f"docker rm --force $(docker ps --quiet --filter label=devcontainer.local_folder={paths[0]})"
            self.full_cycle = Command(["sh", "-c", f"{up} && {remove}"], cwd=paths[0], title="devcontainer up, exec, docker rm")
            self.rig.runner.failure_reason(Command(["devcontainer", "up", "--workspace-folder", "."], cwd=paths[1]))
            self.running = Command(["devcontainer", "exec", "--workspace-folder", ".", "true"], cwd=paths[1], title="devcontainer exec true")
        return self

    def project(self, name):
        path = self.rig.make_directory(f"home/devcontainer-{name}")
        os.makedirs(f"{path}/.devcontainer", exist_ok=True)
        with open(f"{path}/.devcontainer/devcontainer.json", "w") as file:
            json.dump({"image": "localhost/sandpen-test", "updateRemoteUserUID": False}, file)
        return path

    def __exit__(self, *_):
        for name in ("cold", "warm"):
            label = f"label=devcontainer.local_folder={self.rig.directory}/home/devcontainer-{name}"
            if left := docker(self.rig, "ps", "--all", "--quiet", "--filter", label).stdout.split() if self.full_cycle else None:
                docker(self.rig, "rm", "--force", *left)


class distrobox:
    """Creates a distrobox container, and removes it at the end."""

    NAME = "sandpen-bench-box"

    def __init__(self, rig):
        self.rig, self.env = rig, {"DBX_CONTAINER_MANAGER": "docker", "DBX_NON_INTERACTIVE": "1"}

    def __enter__(self):
        if not self.rig.has("distrobox"):
            return None
        self.rig.runner.failure_reason(Command(["distrobox", "create", "--yes", "--image", "localhost/sandpen-test", "--name", self.NAME], env=self.env))
        return Command(["distrobox", "enter", "--name", self.NAME, "--", "true"], env=self.env, title="distrobox enter -- true")

    def __exit__(self, *_):
        if self.rig.has("distrobox"):
            docker(self.rig, "rm", "--force", self.NAME)
