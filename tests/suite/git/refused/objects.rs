//! Objects, packs and numbers of refs that a guest has crafted are refused with the ref that leads
//! to them, within bounded time.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use super::attack::{self, Attack};
use crate::for_docker_and_native;
use crate::git::git;
use crate::support::{Engine, Fixture, RunToEnd};

for_docker_and_native!(
    objects_that_do_not_match_their_names_are_refused,
    trees_with_forbidden_names_are_refused,
    a_large_lfs_file_with_holes_is_not_copied,
);

/// Makes the branch `bad` with a commit whose id is `$id`, and goes back to `main`.
const BAD: &str =
    "git switch --quiet -c bad; echo bad > bad; git add bad; git commit --quiet -m bad; git switch --quiet main
    id=$(git rev-parse bad); object=.git/objects/${id:0:2}/${id:2}; chmod u+w $object\n";

#[track_caller]
fn refused(fixture: &Fixture, name: &str, script: &str) {
    refused_with(fixture, name, &[], script);
}

#[track_caller]
fn refused_with(fixture: &Fixture, name: &str, options: &[&str], script: &str) {
    Attack::new(fixture, name, script).options(options).says("`bad`").brings_out_good_commits().run();
    let main = attack::directory(fixture, name);
    let found = git(fixture, &main, &["for-each-ref", "--format=%(refname)", "refs/heads/bad", "refs/sandpen"]);
    assert_eq!(found.success(), "", "{name}: the ref came out");
}

fn objects_that_do_not_match_their_names_are_refused(fixture: &Fixture) {
    let other = "other=$(git rev-parse good); cat .git/objects/${other:0:2}/${other:2} > $object";
    refused(fixture, "other-object", &format!("{BAD}{other}"));
    refused(fixture, "empty-object", &format!("{BAD}: > $object"));
    refused(fixture, "garbage-object", &format!("{BAD}head -c 200 /dev/urandom > $object"));
    refused(fixture, "missing-object", &format!("{BAD}rm -f $object"));
    refused(fixture, "linked-object", &format!("{BAD}rm -f $object; ln -s \"$PWD/file\" $object"));
    refused(
        fixture,
        "missing-blob",
        &format!("{BAD}id=$(git rev-parse bad:bad); rm -f .git/objects/${{id:0:2}}/${{id:2}}"),
    );
    let pack = "git rev-list --objects main..bad | git pack-objects --quiet .git/objects/pack/pack > /dev/null
        git rev-list --objects main..bad | while read id rest; do rm -f .git/objects/${id:0:2}/${id:2}; done
        pack=$(ls .git/objects/pack/*.pack); chmod u+w .git/objects/pack/*\n";
    for (name, damage) in [
        ("corrupt-pack", "printf XXXXXXXXXXXXXXXX | dd of=$pack bs=1 seek=20 conv=notrunc 2> /dev/null"),
        ("short-pack", "truncate -s 30 $pack"),
        ("long-pack", "truncate -s 1T $pack"),
        ("empty-pack", ": > $pack"),
        ("linked-pack", "rm $pack; ln -s /dev/zero $pack"),
        ("fifo-pack", "rm $pack; mkfifo $pack"),
    ] {
        refused(fixture, name, &format!("{BAD}{pack}{damage}"));
    }
}

fn trees_with_forbidden_names_are_refused(fixture: &Fixture) {
    for (number, entry) in [".git", "..", ".", ".GIT", "git~1", ".gitmodules/../x"].iter().enumerate() {
        // `git mktree` refuses a slash, so the bytes of the tree are written.
        let script = format!(
            "blob=$(echo x | git hash-object -w --stdin)
            tree=$({{ printf '100644 %s\\0' '{entry}'; printf \"$(echo $blob | sed 's/../\\\\x&/g')\"; }} | git hash-object -t tree -w --literally --stdin)
            echo $(git commit-tree -p main -m bad $tree) > .git/refs/heads/bad"
        );
        refused(fixture, &format!("tree-{number}"), &script);
    }
    // The commit itself is malformed.
    let script = "id=$(printf 'tree %s\\nauthor x\\n\\nbad\\n' $(git rev-parse main^{tree}) | git hash-object -t commit -w --literally --stdin)
        echo $id > .git/refs/heads/bad";
    refused(fixture, "malformed-commit", script);
    // A tag or a blob is no branch.
    refused(fixture, "blob-as-branch", "echo x | git hash-object -w --stdin > .git/refs/heads/bad");
}

/// The object claims a few bytes and inflates to 1 GiB, or really has 1 GiB.
#[test]
fn bombs_are_refused() {
    Fixture::on(Engine::Native, |fixture| {
        for (name, size) in [("false-size", "200"), ("true-size", "1073741824")] {
            let program = "use Compress::Zlib; binmode STDOUT; my $d = deflateInit(-Level => 1);
                sub out { my ($o, $s) = @_; print $o } out($d->deflate(\"commit $ARGV[0]\\0\"));
                my $z = \"\\0\" x (1 << 20); out($d->deflate($z)) for 1..1024; out($d->flush())";
            let deflated = fixture.host_command("perl").args(["-e", program, size]).stderr(Stdio::inherit()).output();
            let deflated = deflated.expect("perl");
            assert!(deflated.status.success() && deflated.stdout.len() < 10 << 20, "{}", deflated.stdout.len());
            let bomb = fixture.outside("bombs").join(name);
            fs::write(&bomb, deflated.stdout).expect("bomb");
            let mount = format!("{}:/bomb", bomb.display());
            refused_with(fixture, name, &["--mount", &mount], &format!("{BAD}cat /bomb > $object"));
        }
    });
}

/// A million refs are refused; fewer may come out, but never block the session.
#[test]
fn many_refs_take_bounded_time() {
    Fixture::on(Engine::Native, |fixture| {
        let many = |number: &str| {
            format!(
                "head=$(git rev-parse main); seq {number} | sed \"s|.*|$head refs/heads/many/&|\" >> .git/packed-refs"
            )
        };
        Attack::new(fixture, "hundred-thousand", &many("100000")).run();
        Attack::new(fixture, "million", &many("1000000")).says("ref").run();
        let deep = "name=.git/refs/heads; for i in $(seq 500); do name=$name/d; done; mkdir -p $name; git rev-parse main > $name/x";
        Attack::new(fixture, "deep", deep).run();
        let wide = "cd .git/refs/heads; mkdir wide; cd wide; seq 100000 | xargs touch; cd ../../../..";
        Attack::new(fixture, "wide", wide).says("ref").run();
        let huge = "truncate -s 1T .git/packed-refs";
        Attack::new(fixture, "huge", huge).says("packed-refs").run();
        let long = "truncate -s 1G .git/refs/heads/long";
        Attack::new(fixture, "long", long).says("long`").brings_out_good_commits().run();
    });
}

#[test]
fn migrated_refs_stay_inside() {
    Fixture::on(Engine::Native, |fixture| {
        Attack::new(fixture, "migrated", "rm -rf .git/logs; git refs migrate --ref-format=reftable")
            .says("reftable")
            .run();
    });
}

/// Returns the bytes of an index with one entry, whose path is not checked.
pub fn index_with_path(fixture: &Fixture, path: &str, blob: &str) -> Vec<u8> {
    let mut bytes = b"DIRC\0\0\0\x02\0\0\0\x01".to_vec();
    let mut fields = [0_u32; 10];
    fields[6] = 0o100_755;
    bytes.extend(fields.iter().flat_map(|field| field.to_be_bytes()));
    bytes.extend(hex(blob));
    bytes.extend(u16::try_from(path.len()).expect("a short path").to_be_bytes());
    bytes.extend(path.as_bytes());
    let padding = 8 - (bytes.len() - 12) % 8;
    bytes.extend(std::iter::repeat_n(0, padding));
    let sum = sha1(fixture, &bytes);
    bytes.extend(sum);
    bytes
}

fn hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("text"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("hexadecimal digits")).collect()
}

fn sha1(fixture: &Fixture, bytes: &[u8]) -> Vec<u8> {
    let mut command = fixture.host_command("sha1sum");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("sha1sum");
    child.stdin.take().expect("a pipe").write_all(bytes).expect("written");
    let output = child.wait_with_output().expect("sha1sum");
    hex(std::str::from_utf8(&output.stdout[..40]).expect("text"))
}

/// The attack's limit of time is too short for reading this file; its digest is that of no file.
fn a_large_lfs_file_with_holes_is_not_copied(fixture: &Fixture) {
    let digest = format!("abcd{}", "0".repeat(60));
    let script = format!(
        "mkdir -p .git/lfs/objects/ab/cd; truncate -s 100G .git/lfs/objects/ab/cd/{digest}
        digest=$(sha256sum < file); digest=${{digest%% *}}; place=.git/lfs/objects/${{digest:0:2}}/${{digest:2:2}}
        mkdir -p $place; cp file $place/$digest; echo $digest > digest
        git commit --quiet --allow-empty --message inside"
    );
    let main = attack::prepare(fixture, "lfs");
    let finished = attack::limited(fixture.run().current_dir(&main).args(["--", "bash", "-c", &script])).finish();
    finished.success();
    let lfs = |digest: &str| main.join(".git/lfs/objects").join(&digest[..2]).join(&digest[2..4]).join(digest);
    assert!(!lfs(&digest).exists(), "the file with holes came out");
    let good = fs::read_to_string(main.join("digest")).expect("digest");
    assert!(lfs(good.trim_end()).exists(), "the other file stays inside: {}", finished.stderr);
    assert_eq!(fixture.sessions(), Vec::<std::path::PathBuf>::new());
}
