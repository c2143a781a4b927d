//! Does a day's work in a native sandbox with small local packages: npm, husky, hooks of other tools,
//! Python environments, cargo, editors. Needs no network.

use std::path::Path;
use std::process::Command;

use crate::support::{Engine, Finished, Fixture, RunToEnd};

fn git(fixture: &Fixture, arguments: &[&str]) -> String {
    fixture.host_command("git").args(arguments).finish().success().to_owned()
}

fn repository(fixture: &Fixture) {
    fixture.write(".gitconfig", "[user]\n\tname = Me\n\temail = me@example.org\n");
    git(fixture, &["init", "--quiet", "-b", "main", "."]);
    git(fixture, &["commit", "--quiet", "--allow-empty", "-m", "first"]);
}

/// Adds a directory of HOME to PATH.
fn with_path(fixture: &Fixture, directory: &str) -> Command {
    let mut command = fixture.run();
    command.env("PATH", format!("{}:/usr/bin:/bin", fixture.home.join(directory).display()));
    command
}

fn bash(command: &mut Command, script: &str) -> Finished {
    command.args(["--", "bash", "-ec", script]).finish()
}

/// Sets hooks up as husky does: `core.hooksPath` leads to generated files, which call the project's.
const HUSKY: &str = r#"#!/bin/sh
set -e
git config core.hooksPath .husky/_
mkdir -p .husky/_
rm -f .husky/_/husky.sh .husky/_/pre-commit
echo '*' > .husky/_/.gitignore
printf '#!/bin/sh\nexec sh .husky/pre-commit\n' > .husky/_/pre-commit
chmod 755 .husky/_/pre-commit
touch .husky/_/husky.sh
"#;

fn husky_project(fixture: &Fixture) {
    repository(fixture);
    fixture.write_script("project/packages/husky/husky.sh", HUSKY);
    fixture.write(
        "project/packages/husky/package.json",
        r#"{"name": "husky", "version": "9.0.0", "bin": {"husky": "husky.sh"}}"#,
    );
    fixture.write(
        "project/package.json",
        r#"{"name": "app", "version": "1.0.0", "scripts": {"prepare": "husky", "build": "echo built"},
            "devDependencies": {"husky": "file:packages/husky"}}"#,
    );
    fixture.write("project/.husky/pre-commit", "echo the hook runs >&2\n");
    fixture.write("project/.gitignore", "node_modules\npackage-lock.json\n");
    git(fixture, &["add", "."]);
    git(fixture, &["commit", "--quiet", "-m", "packages"]);
}

const NPM_INSTALL: &str = "npm install --offline --no-audit --no-fund --loglevel=error";

#[test]
fn npm_install_with_husky_works_and_its_hooks_run_inside() {
    Fixture::on(Engine::Native, |fixture| {
        husky_project(fixture);
        let script = format!(
            "{NPM_INSTALL}; npm run --silent build; git commit --quiet --allow-empty -m inside; git config core.hooksPath"
        );
        // Twice: before husky has run on the host, and after.
        for round in ["fresh", "installed"] {
            let finished = bash(&mut fixture.run(), &script);
            assert!(finished.success().ends_with("built\n.husky/_"), "{round}: {finished:?}");
            assert!(finished.stderr.contains("the hook runs"), "{round}: {}", finished.stderr);
            fixture.host_command("sh").args(["-c", NPM_INSTALL]).finish().success();
        }
        assert_eq!(git(fixture, &["log", "--format=%s", "-2"]), "inside\ninside");
    });
}

#[test]
fn generated_hooks_of_the_host_stay_as_they_are() {
    Fixture::on(Engine::Native, |fixture| {
        husky_project(fixture);
        fixture.host_command("sh").args(["-c", NPM_INSTALL]).finish().success();
        let hook = fixture.project.join(".husky/_/pre-commit");
        let before = std::fs::read_to_string(&hook).expect("a hook");
        let script = "echo 'touch ~/evil' >> .husky/_/pre-commit; echo evil > .husky/_/post-commit
            mv .husky/_ .husky/other 2>&- || mv .husky other 2>&- || echo in place";
        assert_eq!(bash(&mut fixture.run(), script).success(), "in place");
        assert_eq!(std::fs::read_to_string(&hook).expect("a hook"), before);
        assert!(!fixture.project.join(".husky/_/post-commit").exists());
        // Hooks that Git tracks are the project's: their changes would be lost in a copy.
        git(fixture, &["config", "core.hooksPath", ".husky"]);
        let finished = fixture.bash("echo x >> .husky/pre-commit");
        assert!(finished.failure(1).contains("Read-only file system"), "{}", finished.stderr);
    });
}

#[test]
fn hooks_that_tools_install_run_inside_only() {
    Fixture::on(Engine::Native, |fixture| {
        repository(fixture);
        for tool in ["pre-commit", "lefthook"] {
            let hook = format!("#!/bin/sh\\nexec {tool} run\\n");
            let text = format!(
                "#!/bin/sh\ncase $1 in\n\
                 install) printf '{hook}' > \"$(git rev-parse --git-path hooks)/pre-commit\"\n\
                 chmod 755 \"$(git rev-parse --git-path hooks)/pre-commit\";;\n\
                 run) echo {tool} checks >&2;;\nesac\n"
            );
            fixture.write_script(format!(".local/bin/{tool}"), &text);
            let script = format!("{tool} install; git commit --quiet --allow-empty -m {tool}");
            let finished = bash(&mut with_path(fixture, ".local/bin"), &script);
            finished.success();
            assert!(finished.stderr.contains(&format!("{tool} checks")), "{}", finished.stderr);
            assert!(!fixture.project.join(".git/hooks/pre-commit").exists());
        }
        assert_eq!(git(fixture, &["log", "--format=%s", "-2"]), "lefthook\npre-commit");
    });
}

#[test]
fn a_python_environment_is_made_and_packages_are_installed() {
    Fixture::on(Engine::Native, |fixture| {
        // A wheel is an archive with a list of its files.
        let wheel = r#"
import zipfile
info = 'tiny-1.0.dist-info/'
with zipfile.ZipFile('tiny-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('tiny.py', 'print("tiny works")\n')
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    wheel.writestr(info + 'RECORD', 'tiny.py,,\n' + ''.join(info + name + ',,\n' for name in ('METADATA', 'WHEEL', 'RECORD')))
"#;
        fixture.write("project/make-wheel.py", wheel);
        let script = "python3 make-wheel.py; python3 -m venv .venv
            .venv/bin/pip install --quiet --no-index --disable-pip-version-check ./tiny-1.0-py3-none-any.whl";
        bash(&mut fixture.run(), script).success();
        // Activated on the host, it is used inside.
        let mut run = with_path(fixture, "project/.venv/bin");
        run.env("VIRTUAL_ENV", fixture.project.join(".venv"));
        let finished = bash(&mut run, "python -m tiny; command -v pip");
        let pip = fixture.project.join(".venv/bin/pip");
        assert_eq!(finished.success(), format!("tiny works\n{}", pip.display()));
    });
}

#[test]
fn cargo_builds_a_package_with_a_dependency() {
    // `cargo test` names the cargo of a toolchain; the ordinary test user may not be able to read it.
    let Some(toolchain) =
        std::env::var("CARGO").ok().and_then(|cargo| Some(Path::new(&cargo).parent()?.parent()?.to_owned()))
    else {
        return;
    };
    Fixture::on(Engine::NativeRoot, |fixture| {
        fixture.write(
            "project/Cargo.toml",
            "[package]\nname = \"app\"\nedition = \"2021\"\n[dependencies]\ndep = { path = \"dep\" }\n",
        );
        fixture.write("project/src/main.rs", "fn main() { println!(\"{}\", dep::text()) }\n");
        fixture.write("project/dep/Cargo.toml", "[package]\nname = \"dep\"\nedition = \"2021\"\n");
        fixture.write("project/dep/src/lib.rs", "pub fn text() -> &'static str { \"built inside\" }\n");
        let mut run = fixture.run();
        run.arg("--mount").arg(&toolchain);
        run.args(["--env", &format!("PATH={}/bin:/usr/bin:/bin", toolchain.display())]);
        let finished = bash(&mut run, "cargo run --quiet --offline");
        assert_eq!(finished.success(), "built inside", "{}", finished.stderr);
    });
}

#[test]
fn an_editor_below_home_writes_messages_and_rebases() {
    Fixture::on(Engine::Native, |fixture| {
        repository(fixture);
        let editor = "#!/bin/sh\ncase $1 in\n*git-rebase-todo) sed -i '2s/^pick/fixup/' \"$1\";;\n*) echo written by the editor > \"$1\";;\nesac\n";
        fixture.write_script("bin/my-editor", editor);
        let script = "git commit --quiet --allow-empty
            for n in 1 2; do echo $n > file$n; git add file$n; git commit --quiet -m $n; done
            git rebase --quiet -i HEAD~2";
        let mut run = with_path(fixture, "bin");
        run.env("EDITOR", "my-editor");
        bash(&mut run, script).success();
        assert_eq!(git(fixture, &["log", "--format=%s"]), "1\nwritten by the editor\nfirst");
        assert_eq!(git(fixture, &["status", "--porcelain"]), "");
    });
}
