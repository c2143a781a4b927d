//! Tests package caches: what a sandbox adds is kept for its project, and nothing else changes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::for_every_engine;
use crate::support::{Engine, Fixture, RunToEnd, Running};

for_every_engine!(
    what_is_added_is_kept_for_the_project,
    without_caches_nothing_is_kept,
    a_guest_changes_no_byte_of_the_host_or_another_project,
    two_sandboxes_of_a_project_do_not_share_a_layer,
    layers_that_became_too_large_are_emptied,
);

const CACHE: &str = ".npm/_cacache";

fn with_host_cache(fixture: &Fixture) {
    fixture.write(".npm/_cacache/content", "the host's");
    fixture.write(".npm/_logs/log", "not a cache");
    fixture.write(".cargo/registry/cache/crate", "the host's crate");
    fixture.write(".cargo/credentials.toml", "token");
    fixture.write(".m2/settings.xml", "password");
}

fn in_project(fixture: &Fixture, project: &Path, script: &str) -> String {
    let mut command = fixture.run();
    command.current_dir(project).args(["--", "bash", "-c", script]);
    command.finish().success().to_owned()
}

fn what_is_added_is_kept_for_the_project(fixture: &Fixture) {
    with_host_cache(fixture);
    let other = fixture.home.join("other");
    fs::create_dir(&other).expect("directory");
    fixture.give_to_user(&other);
    let add =
        format!("echo added > ~/{CACHE}/added; echo poisoned > ~/{CACHE}/content; rm -rf ~/.cargo/registry/cache");
    in_project(fixture, &fixture.project, &add);
    let see = format!("cat ~/{CACHE}/added ~/{CACHE}/content; ls ~/.cargo/registry");
    assert_eq!(in_project(fixture, &fixture.project, &see), "added\npoisoned");
    // Neither the host nor another project reads it.
    let host = |path: &str| fs::read_to_string(fixture.home.join(path)).expect(path);
    assert_eq!(host(".npm/_cacache/content"), "the host's");
    assert_eq!(host(".cargo/registry/cache/crate"), "the host's crate");
    assert_eq!(fs::read_dir(fixture.home.join(CACHE)).expect("cache").count(), 1);
    let elsewhere = in_project(fixture, &other, &format!("cat ~/{CACHE}/added 2>&-; cat ~/{CACHE}/content 2>&-; true"));
    assert_eq!(elsewhere, "the host's");
    let removed = fixture.sandpen(["prune", "--cache"]).finish();
    assert!(removed.stderr.contains("package caches of 2 projects removed"), "{}", removed.stderr);
    let after = in_project(fixture, &fixture.project, &format!("ls ~/{CACHE}"));
    assert_eq!(after, "content");
    let removed = fixture.sandpen(["prune", "--cache"]).finish();
    assert!(!removed.stderr.contains("cannot be removed"), "{}", removed.stderr);
}

fn without_caches_nothing_is_kept(fixture: &Fixture) {
    with_host_cache(fixture);
    let finished = fixture.run().args(["--cache", "off", "--", "bash", "-c", "ls -A ~ | grep -v project"]).finish();
    assert_eq!(finished.stdout, "");
    assert!(!fixture.home.join(".local/state/sandpen/cache").exists());
    // Only the caches come along, not what is beside them.
    let beside = "cat ~/.npm/_logs/log ~/.cargo/credentials.toml ~/.m2/settings.xml 2>&-; true";
    assert_eq!(fixture.bash(beside).success(), "");
}

/// Lists everything in a directory: paths, owners, permissions, times and content.
fn picture(directory: &Path) -> Vec<String> {
    let list = |arguments: &[&str]| {
        let mut command = std::process::Command::new("find");
        let output = command.arg(directory).args(arguments).output().expect("find");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let mut lines = list(&["-printf", "%p %y %m %U:%G %n %s %T@ %C@ %i\n"]);
    lines.extend(list(&["-type", "f", "-exec", "sha256sum", "{}", "+"]));
    lines.sort();
    lines
}

fn a_guest_changes_no_byte_of_the_host_or_another_project(fixture: &Fixture) {
    with_host_cache(fixture);
    fixture.write(".npm/_cacache/tree/a/b", "deep");
    fixture.write_script(".npm/_cacache/tree/program", "#!/bin/sh\necho the host\n");
    let other = fixture.home.join("other");
    fs::create_dir(&other).expect("directory");
    fixture.give_to_user(&other);
    in_project(fixture, &other, &format!("echo the other project > ~/{CACHE}/theirs"));
    let directories = [fixture.home.join(".npm"), fixture.home.join(".cargo"), fixture.home.join(".m2")];
    let before: Vec<_> = directories.iter().map(|directory| picture(directory)).collect();
    let theirs = layer_files(fixture, "theirs");
    let attack = format!(
        "cd ~/{CACHE}
        echo x >> content; printf y | dd of=content conv=notrunc bs=1 2>&-; truncate -s 0 tree/program
        chmod 777 content tree; touch -d 2001-01-01 content tree/a/b tree
        ln content linked 2>&-; mv tree/a tree/moved; rm -rf tree/moved; mkdir tree/a; echo new > tree/a/b
        perl -e 'open(my $f, \"+<\", \"content\") or die; print $f \"z\"' 2>&-
        rm -rf ~/.cargo/registry/cache; echo x > ~/.cargo/credentials.toml
        echo evil > ~/{CACHE}/theirs; ls ~/.m2; cat content tree/a/b"
    );
    let seen = in_project(fixture, &fixture.project, &attack);
    assert!(seen.ends_with("new"), "{seen}");
    for (directory, before) in directories.iter().zip(before) {
        assert_eq!(picture(directory), before, "{}", directory.display());
    }
    assert_eq!(layer_files(fixture, "theirs").len(), theirs.len() + 1, "{theirs:?}");
    let see = format!("cat ~/{CACHE}/theirs ~/{CACHE}/content ~/{CACHE}/tree/a/b");
    assert_eq!(in_project(fixture, &other, &see), "the other project\nthe host'sdeep");
}

/// Finds files of this name in the layers of all projects.
fn layer_files(fixture: &Fixture, name: &str) -> Vec<String> {
    let layers = fixture.home.join(".local/state/sandpen/cache");
    let found = std::process::Command::new("find").arg(layers).args(["-name", name]).output().expect("find");
    String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect()
}

fn two_sandboxes_of_a_project_do_not_share_a_layer(fixture: &Fixture) {
    with_host_cache(fixture);
    let script = format!("echo first > ~/{CACHE}/first; echo ready; cat");
    let mut first = Running::start(fixture.run().stdin(Stdio::piped()).args(["--", "bash", "-c", &script]));
    assert_eq!(first.line(), "ready");
    let script = format!("ls ~/{CACHE}; echo second > ~/{CACHE}/second; rm ~/{CACHE}/content; ls ~/{CACHE}");
    let second = fixture.run().args(["--verbose", "--", "bash", "-c", &script]).finish();
    assert_eq!(second.success(), "content\nsecond");
    assert!(second.stderr.contains("what this one adds to package caches is not kept"), "{}", second.stderr);
    let kept = fixture.sandpen(["prune", "--cache"]).finish();
    assert!(kept.stderr.contains("package caches of 0 projects removed"), "{}", kept.stderr);
    first.close_stdin();
    first.finish().success();
    assert_eq!(in_project(fixture, &fixture.project, &format!("ls ~/{CACHE}")), "content\nfirst");
    // Nothing of the second one's layer is left. Spare layers of containers stay, and are empty.
    assert_eq!(layer_files(fixture, "second"), Vec::<String>::new());
    let sessions = fixture.home.join(".local/state/sandpen/sessions");
    assert_eq!(fs::read_dir(&sessions).expect("sessions").count(), 0, "{}", sessions.display());
}

fn layers_that_became_too_large_are_emptied(fixture: &Fixture) {
    with_host_cache(fixture);
    in_project(fixture, &fixture.project, &format!("echo large > ~/{CACHE}/large; rm ~/{CACHE}/content"));
    let layers = fs::read_dir(fixture.home.join(".local/state/sandpen/cache")).expect("layers");
    for project in layers.flatten() {
        fs::write(project.path().join("full"), "").expect("note");
        fixture.give_to_user(project.path().join("full"));
    }
    assert_eq!(in_project(fixture, &fixture.project, &format!("ls ~/{CACHE}")), "content");
}

fn natively(test: fn(&Fixture)) {
    for engine in [Engine::Native, Engine::NativeRoot] {
        Fixture::on(engine, test);
    }
}

/// An engine with volumes that outlive the container would keep the layers mounted.
#[test]
fn containers_leave_no_volume() {
    Fixture::on_docker_as_ordinary_user(std::convert::identity, |fixture| {
        with_host_cache(fixture);
        let volumes = || {
            let listed = fixture.client().args(["volume", "ls", "--quiet"]).output().expect("volumes");
            String::from_utf8_lossy(&listed.stdout).lines().map(str::to_owned).collect::<BTreeSet<_>>()
        };
        let of_containers = || {
            let format = "{{range .Mounts}}{{.Name}} {{end}}";
            let script = format!("docker ps -aq | xargs -r docker inspect --format '{format}'");
            let listed = std::process::Command::new("sh").args(["-c", &script]).output().expect("containers");
            String::from_utf8_lossy(&listed.stdout).split_whitespace().map(str::to_owned).collect::<BTreeSet<_>>()
        };
        let before = volumes();
        in_project(fixture, &fixture.project, &format!("echo x > ~/{CACHE}/x; rm ~/{CACHE}/content"));
        let kept = fixture.run().args(["--keep", "--name", "keeps-caches", "--", "ls"]).finish();
        kept.success();
        fixture.sandpen(["prune"]).finish().success();
        // Other tests run containers at the same time.
        let left: Vec<_> = volumes().difference(&before).cloned().collect();
        let used = of_containers();
        let unused: Vec<_> = left.iter().filter(|name| !used.contains(*name) && volumes().contains(*name)).collect();
        assert!(unused.is_empty(), "{unused:?}");
        // The whiteouts that Docker's root made are in directories of the user.
        let removed = fixture.sandpen(["prune", "--cache"]).finish();
        removed.success();
    });
}

#[test]
fn a_path_that_options_cannot_name_shows_the_layer_alone() {
    for engine in [Engine::Docker, Engine::Podman, Engine::PodmanRootless] {
        Fixture::on(engine, |fixture| {
            fixture.write("a,b/_cacache/content", "the host's");
            let mut command = fixture.run();
            command.env("npm_config_cache", fixture.home.join("a,b"));
            let script = "ls $npm_config_cache/_cacache; echo kept > $npm_config_cache/_cacache/kept";
            assert_eq!(command.args(["--", "bash", "-c", script]).finish().success(), "");
            let mut explained = fixture.sandpen(["explain"]);
            explained.env("npm_config_cache", fixture.home.join("a,b")).args(["--engine", engine.flag(), "--image"]);
            let explained = explained.args([crate::support::IMAGE, "-v", "--", "true"]).finish();
            assert!(explained.success().contains("the host's is not visible: its path contains"), "{explained:?}");
        });
    }
}

#[test]
fn a_cache_that_a_variable_names_is_found() {
    natively(|fixture| {
        fixture.write("tools/cargo/registry/crate", "here");
        fixture.write("tools/cargo/credentials.toml", "token");
        let cargo_home = fixture.home.join("tools/cargo");
        let mut command = fixture.run();
        command.env("CARGO_HOME", &cargo_home);
        let script = "cat $CARGO_HOME/registry/crate; ls $CARGO_HOME";
        assert_eq!(command.args(["--", "bash", "-c", script]).finish().success(), "hereregistry");
    });
}

#[test]
fn a_link_of_the_guest_chooses_no_cache() {
    natively(|fixture| {
        fixture.write("secret/key", "hunter2");
        fixture.write("project/cargo/placeholder", "");
        std::os::unix::fs::symlink(fixture.home.join("secret"), fixture.project.join("cargo/registry")).expect("link");
        let mut command = fixture.run();
        command.env("CARGO_HOME", fixture.project.join("cargo"));
        let finished = command.args(["--", "bash", "-c", "cat cargo/registry/key 2>&-; true"]).finish();
        assert_eq!(finished.success(), "");
    });
}
