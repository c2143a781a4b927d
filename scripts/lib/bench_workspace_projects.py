"""Make the projects in which copied workspaces are measured. Nothing is downloaded."""
import io
import json
import os
import subprocess
import tarfile

MODULES = 50_000
PACKAGES, PACKAGE_FILES = 100, 30
SOURCES = 20
# Private to a sandbox, and removed before each run on the host.
CACHE = "/tmp/sandpen-bench-cache"


def large(rig):
    """Create a repository of 100,000 files once, with node_modules that Git ignores."""
    path = rig.repository("large", files=100_000)
    if not os.path.exists(f"{path}/node_modules"):
        for number in range(MODULES):
            directory = f"{path}/node_modules/p{number // 50}"
            os.makedirs(directory, exist_ok=True)
            with open(f"{directory}/f{number}.js", "w") as file:
                file.write("x\n" * 100)
        with open(f"{path}/.git/info/exclude", "a") as file:
            file.write("node_modules\n")
    return path


def npm_ci(rig):
    """Packages are archives in the project, so no registry is asked."""
    path = rig.make_directory("home/npm-project")
    os.makedirs(f"{path}/archives", exist_ok=True)
    dependencies = {}
    for number in range(PACKAGES):
        name = f"package-{number}"
        files = {"package.json": json.dumps({"name": name, "version": "1.0.0"}), **{f"lib/{i}.js": f"module.exports = {i}\n" * 50 for i in range(PACKAGE_FILES)}}
        with tarfile.open(f"{path}/archives/{name}.tgz", "w:gz") as archive:
            for file, text in files.items():
                entry = tarfile.TarInfo(f"package/{file}")
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text.encode()))
        dependencies[name] = f"file:archives/{name}.tgz"
    with open(f"{path}/package.json", "w") as file:
        json.dump({"name": "app", "version": "1.0.0", "dependencies": dependencies}, file)
    quiet = "--offline --no-audit --no-fund --ignore-scripts"
    subprocess.run(["npm", "install", "--package-lock-only", *quiet.split()], cwd=path, env={**rig.runner.env, "HOME": rig.home}, capture_output=True, check=True)
    return path, [], f"rm -rf node_modules {CACHE}; export npm_config_cache={CACHE}; ", f"npm ci {quiet}"


def cargo_build(rig):
    path = rig.make_directory("home/crate")
    os.makedirs(f"{path}/src", exist_ok=True)
    toolchain = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    with open(f"{path}/Cargo.toml", "w") as file:
        file.write('[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n')
    for number in range(SOURCES):
        functions = "".join(f"pub fn f{i}(x: u64) -> String {{ format!(\"{{}} {i}\", x + {i}) }}\n" for i in range(50))
        with open(f"{path}/src/m{number}.rs", "w") as file:
            file.write(functions)
    with open(f"{path}/src/main.rs", "w") as file:
        file.write("".join(f"mod m{number};\n" for number in range(SOURCES)))
        file.write("fn main() {\n" + "".join(f"    println!(\"{{}}\", m{number}::f{number}(1));\n" for number in range(SOURCES)) + "}\n")
    before = f"rm -rf target {CACHE}; export PATH={toolchain}/bin:/usr/bin:/bin CARGO_HOME={CACHE}; "
    return path, ["--mount", toolchain], before, "cargo build --quiet --offline"


PROJECTS = {"npm ci": npm_ci, "cargo build": cargo_build}
