//! Tests that hidden files of the workspace read as empty by every way that leads to them, and stay
//! as they are on the host.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{Fixture, RunToEnd};
use crate::{for_every_engine, for_native_image};

for_every_engine!(hidden_files_read_as_empty, hidden_files_are_empty_in_other_mounts_too);
for_native_image!(hidden_files_read_as_empty);

const SECRETS: &[&str] = &[".env", "sub/.env.local", "secrets/key", "secrets/deep/key"];

fn prepare(fixture: &Fixture) {
    fixture.host_command("git").args(["init", "--quiet", "."]).finish().success();
    for file in SECRETS {
        fixture.write(format!("project/{file}"), "secret\n");
    }
    fixture.write("project/plain", "plain\n");
    symlink(".env", fixture.project.join("link")).expect("link");
    symlink("sub/.env.local", fixture.project.join(".env.link")).expect("link");
    fs::hard_link(fixture.project.join(".env"), fixture.project.join("sub/hard-link")).expect("hard link");
}

fn hidden_files_read_as_empty(fixture: &Fixture) {
    prepare(fixture);
    let script = r#"
        cat plain .env sub/.env.local link .env.link sub/hard-link "/proc/self/root$PWD/.env"
        ls -A secrets
        for file in .env sub/.env.local sub/hard-link secrets/new; do
            { echo x > $file; } 2>&- && echo "$file was written"
            rm -f $file 2>&-; mv $file moved 2>&- && echo "$file was moved"
        done
        ln .env second 2>&- && cat second
        mv sub other 2>&-; cat other/.env.local 2>&-
        git add --all . 2>&-; git cat-file --batch --batch-all-objects | grep -a secret
        grep -rs secret . /proc/self/root$PWD; true"#;
    let mut run = fixture.run();
    run.args(["--hide", ".env*", "--hide", "secrets/", "--", "bash", "-c", script]);
    let finished = run.finish();
    assert_eq!(finished.success(), "plain", "{}", finished.stderr);
    for file in SECRETS {
        assert_eq!(fs::read_to_string(fixture.project.join(file)).expect("file"), "secret\n", "{file}");
    }
}

fn hidden_files_are_empty_in_other_mounts_too(fixture: &Fixture) {
    prepare(fixture);
    let mut run = fixture.run();
    let mount = format!("{}:/elsewhere", fixture.project.display());
    run.args(["--mount", &mount, "--hide", "/sub/.env*", "--hide", "no-such-file"]);
    let finished = run.args(["--", "cat", "/elsewhere/plain", "/elsewhere/sub/.env.local", ".env"]).finish();
    // The pattern starts at the root, so `.env` is not hidden.
    assert_eq!(finished.success(), "plain\nsecret");
}
