//! Tests attempts of a guest to leave files behind that give others rights, or to change the files that
//! are its streams: 34.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::support::{Engine, Fixture, RunToEnd};
use crate::{for_every_engine, for_native_image};

for_every_engine!(
    attack_34_no_set_user_id_file_is_left,
    attack_34_ordinary_modes_and_tools_work,
    attack_34_the_files_of_the_streams_cannot_be_changed,
    files_as_streams_work,
);
for_native_image!(
    attack_34_no_set_user_id_file_is_left,
    attack_34_ordinary_modes_and_tools_work,
    attack_34_the_files_of_the_streams_cannot_be_changed
);

fn attack_34_no_set_user_id_file_is_left(fixture: &Fixture) {
    let script = r#"
        cp /bin/true file; mkdir directory
        for mode in 4755 2755 6755 u+s g+s; do chmod $mode file 2>&- && echo "chmod $mode"; done
        install -m 4755 /bin/true installed 2>&-
        perl -MFcntl -e 'for my $mode (04755, 02755) {
            sysopen(my $f, "created", O_CREAT | O_WRONLY, $mode) and print "open\n";
            mknod_($mode) }
            sub mknod_ { my $n = "node"; syscall($ARGV[0], -100, $n, 0100000 | $_[0], 0) == 0 and print "mknod\n" }' MKNODAT
        perl -e 'my $n = "handle"; my $how = pack("QQQ", 0101, 04755, 0);
            syscall(437, -100, $n, $how, 24) >= 0 and print "openat2\n"'
        cp --preserve=mode /usr/bin/passwd copied 2>&-
        true"#;
    let mknodat = if cfg!(target_arch = "x86_64") { "259" } else { "33" };
    assert_eq!(fixture.bash(&script.replace("MKNODAT", mknodat)).success(), "");
    for entry in fs::read_dir(&fixture.project).expect("project").flatten() {
        let mode = entry.metadata().expect("metadata").permissions().mode();
        assert_eq!(mode & 0o6000, 0, "{:?} has the mode {mode:o}", entry.file_name());
    }
}

fn attack_34_ordinary_modes_and_tools_work(fixture: &Fixture) {
    let script = r#"
        set -e
        mkdir -m 1777 sticky; mkdir -p a/b; echo x > a/b/file; chmod -R u+rwX,g-w,o=rX a; chmod 755 a/b/file
        tar cf a.tar a; mkdir out; tar xpf a.tar -C out; cp -a a copy; cp -r a plain; install -m 644 a/b/file installed
        install -d -m 755 new/directory; mktemp -d ./tmp.XXXX > /dev/null; umask 002; cp -r a shared
        git init -q repo; cd repo; git config user.email a@b; git config user.name a
        cp ../a/b/file .; git add file; git commit -qm one; git gc -q; git clone -q . ../clone
        stat -c %a ../sticky ../out/a/b/file ../copy/b/file"#;
    assert_eq!(fixture.bash(script).success(), "1777\n755\n755");
}

fn attack_34_the_files_of_the_streams_cannot_be_changed(fixture: &Fixture) {
    let (input, output) = (fixture.write("input", "in"), fixture.write("output", ""));
    let open = |path, write: bool| File::options().read(!write).write(write).open(path).expect("open");
    let facts = |path| {
        let meta = fs::metadata(path).expect("metadata");
        (meta.mode(), meta.uid(), meta.atime() > 1000)
    };
    let before = [facts(&input), facts(&output)];
    let script = r#"for n in 0 1 2; do chmod 4777 /proc/self/fd/$n; chmod 777 /dev/fd/$n; touch -d @1 /dev/fd/$n; done
        perl -e 'chmod 0777, *STDIN; chmod 0777, *STDOUT; utime 1, 1, *STDIN; utime 1, 1, *STDOUT'
        chattr +d /dev/fd/0; setfattr -n user.x -v y /dev/fd/0; true"#;
    let mut command = fixture.run();
    command.stdin(open(&input, false)).stdout(open(&output, true)).stderr(open(&output, true));
    let status = command.args(["--", "bash", "-c", script]).status().expect("sandpen");
    assert_eq!(status.code(), Some(0), "{}", fs::read_to_string(&output).unwrap_or_default());
    assert_eq!([facts(&input), facts(&output)], before);
    // The host's device nodes are as safe, from root as well.
    let null = fs::metadata("/dev/null").expect("null").ctime_nsec();
    let finished = fixture.bash("chmod 666 /dev/fd/0 && echo changed; chmod 666 /dev/null && echo changed; true");
    // In a container stdin is a pipe of the engine's, and so may be a node of its own.
    if !fixture.engine().is_container() {
        assert_eq!(finished.success(), "");
    }
    assert_eq!(fs::metadata("/dev/null").expect("null").ctime_nsec(), null);
}

fn files_as_streams_work(fixture: &Fixture) {
    let lines: String = (0..40_000).map(|number| format!("line {number}\n")).collect();
    let input = fixture.write("input", &lines);
    let output = fixture.write("output", "before\n");
    let mut command = fixture.run();
    command.stdin(File::open(&input).expect("input"));
    let appended = File::options().append(true).open(&output).expect("output");
    command.stdout(appended.try_clone().expect("clone")).stderr(appended);
    let status = command.args(["--", "bash", "-c", "cat; echo error >&2; echo last; exit 7"]).status();
    assert_eq!(status.expect("sandpen").code(), Some(7));
    let written = fs::read_to_string(&output).expect("output");
    assert!(written.starts_with("before\n") && written.contains("\nline 39999\n"), "{}", written.len());
    // Engines have a pipe for each stream, and keep no order between them.
    if !fixture.engine().is_container() {
        assert!(written.ends_with("line 39999\nerror\nlast\n"), "{}", &written[written.len() - 40..]);
    }
    assert_eq!(written.len(), lines.len() + "before\nerror\nlast\n".len());
}

/// Programs that share a file continue where the guest stopped reading, as without a sandbox.
#[test]
fn the_rest_of_a_file_is_left_to_the_next_program() {
    Fixture::on(Engine::Native, |fixture| {
        let input = fixture.write("input", "one\ntwo\nthree\n");
        let mut command = fixture.run();
        command.args(["--", "bash", "-c", "read -r line; echo $line"]);
        let mut shell = fixture.host_command("sh");
        shell.args(["-c", r#"input=$1; shift; { "$@"; cat; } < "$input""#, "sh"]).arg(input);
        shell.arg(command.get_program()).args(command.get_args());
        assert_eq!(shell.finish().success(), "one\ntwo\nthree");
    });
}
