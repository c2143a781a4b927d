//! Tests restrictions of the native engine that containers do not have, as an ordinary user and as
//! root.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::support::{Engine, Fixture, RunToEnd, install_program, is_root_or_skip};

macro_rules! natively {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            use $crate::support::{Engine, Fixture};
            #[test]
            fn user() { Fixture::on(Engine::Native, super::$name) }
            #[test]
            fn root() { Fixture::on(Engine::NativeRoot, super::$name) }
        }
    )+};
}

natively!(
    attack_15_nothing_secret_of_the_system_is_visible,
    attack_16_abstract_sockets_of_the_host_are_out_of_reach,
    attack_16_the_hosts_processes_are_out_of_reach,
    attack_11_nothing_can_be_typed_into_a_terminal,
    attack_18_setuid_programs_gain_nothing_here,
    the_system_is_read_only,
    host_tools_run,
    auto_means_native_when_no_image_is_named,
    a_command_under_home_brings_what_it_needs_and_nothing_else,
    names_resolve_as_on_the_host,
    nothing_of_the_sandbox_is_on_the_host_after_a_kill,
    attack_20_directories_in_memory_share_one_bound,
);

/// A file in one of them takes the space of all others, also with sandboxes inside (`--nested`), where
/// `/dev/shm` is mounted twice, and where `TMPDIR` is in the workspace.
pub(crate) fn attack_20_directories_in_memory_share_one_bound(fixture: &Fixture) {
    std::fs::create_dir(fixture.project.join("temp")).expect("a directory");
    fixture.give_to_user(fixture.project.join("temp"));
    let in_workspace = format!("TMPDIR={}", fixture.project.join("temp").display());
    let temp = in_workspace.trim_start_matches("TMPDIR=");
    let script = format!(
        "for place in /tmp /var/tmp /dev/shm {temp}; do stat --format %d $place; stat --file-system --format %b $place; done | sort -u | wc -l
        stat --format %a /tmp /var/tmp /dev/shm {temp}
        touch /dev/shm/one /tmp/two && ls -A /tmp /var/tmp {temp} | wc -l; touch /three 2>&1 | grep -c Read-only"
    );
    for nested in ["off", "on"] {
        let mut command = fixture.run();
        command.env("TMPDIR", temp).args(["--nested", nested, "--", "bash", "-c", &script]);
        // One device and one size.
        assert_eq!(command.finish().success(), "2\n1777\n1777\n1777\n1777\n7\n1", "--nested {nested}");
    }
    assert_eq!(std::fs::read_dir(temp).expect("a directory").count(), 0);
}

/// Without a control group the size still holds.
#[test]
fn attack_20_a_memory_limit_bounds_directories_in_memory() {
    Fixture::on(Engine::Native, |fixture| {
        let script = "head -c 20M /dev/zero > /tmp/one && head -c 20M /dev/zero > /dev/shm/two";
        let mut command = fixture.run();
        command.args(["--memory", "32m", "--", "bash", "-c", script]);
        let finished = command.finish();
        assert!(finished.failure(1).contains("No space left on device"), "{}", finished.stderr);
        let plan = fixture.explain(&["--memory", "32m", "--", "true"]);
        let details = plan["details"].as_array().expect("a list");
        let bound = details.iter().find(|detail| detail["name"] == "memory files").expect("a detail");
        assert_eq!((&bound["value"], &bound["from"]), (&"32m".into(), &"flag --memory".into()));
    });
}

pub(crate) fn attack_15_nothing_secret_of_the_system_is_visible(fixture: &Fixture) {
    fixture.write(".ssh/id_ed25519", "private");
    let script = r#"
        for path in /etc/shadow /etc/gshadow /etc/sudoers /etc/ssh/ssh_host_ed25519_key /etc/ssl/private /root/.bashrc \
            /var/lib /var/log /run/dbus /boot /sys/kernel /home/node "$HOME/.ssh/id_ed25519" /proc/kcore; do
            [ -e "$path" ] && [ -s "$path" ] && echo "$path is visible"
        done
        head -c1 /proc/kcore /proc/sysrq-trigger 2>/dev/null
        true"#;
    assert_eq!(fixture.bash(script).success(), "");
}

pub(crate) fn attack_16_abstract_sockets_of_the_host_are_out_of_reach(fixture: &Fixture) {
    let name = format!("sandpen-test-{}-{:?}", std::process::id(), std::thread::current().id());
    let address = SocketAddr::from_abstract_name(&name).expect("an abstract name");
    let _listener = UnixListener::bind_addr(&address).expect("the host listens at an abstract socket");
    let script = format!(
        "use Socket; socket(my $s, AF_UNIX, SOCK_STREAM, 0); print connect($s, pack('S a*', AF_UNIX, qq(\\0{name}))) ? 'reached' : $!"
    );
    let finished = fixture.run().args(["--", "perl", "-e", &script]).finish();
    assert_eq!(finished.success(), "Operation not permitted");
}

pub(crate) fn attack_16_the_hosts_processes_are_out_of_reach(fixture: &Fixture) {
    let host = std::process::id();
    let script = format!(
        "kill -0 {host} 2>&-; echo $?; ls /proc | grep -c '^[0-9]'; cat /proc/1/environ 2>&- | wc -c; ls /proc/1/root/ 2>&- | wc -l; kill -9 1; echo alive"
    );
    let finished = fixture.bash(&script);
    let lines: Vec<&str> = finished.success().lines().collect();
    assert_eq!((lines[0], lines[2], lines[3], lines[4]), ("1", "0", "0", "alive"), "{lines:?}");
    assert!(lines[1].parse::<u32>().is_ok_and(|processes| processes < 10), "{lines:?}");
}

pub(crate) fn attack_11_nothing_can_be_typed_into_a_terminal(fixture: &Fixture) {
    let script = r#"open my $t, '+<', '/dev/ptmx' or die $!; my $c = 'x';
        for my $request (0x5412, 0x541c, 0x100005412) { print ioctl($t, $request, $c) ? 'typed' : $!, "\n" }"#;
    let finished = fixture.run().args(["--", "perl", "-e", script]).finish();
    assert_eq!(finished.success(), "Operation not permitted\nOperation not permitted\nOperation not permitted");
}

pub(crate) fn attack_18_setuid_programs_gain_nothing_here(fixture: &Fixture) {
    if !is_root_or_skip("setuid programs of root") {
        return;
    }
    let program = fixture.project.join("setuid-id");
    install_program("/usr/bin/id", &program);
    std::os::unix::fs::chown(&program, Some(0), Some(0)).expect("chown");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o6755)).expect("setuid");
    let finished = fixture.run().args(["--", "./setuid-id", "-u"]).finish();
    assert_eq!(finished.success(), fixture.uid.to_string());
}

pub(crate) fn the_system_is_read_only(fixture: &Fixture) {
    let script = "for place in / /usr /usr/bin /etc /bin /dev/sandpen; do touch $place/sandpen-was-here 2>&- && echo $place; done; true";
    assert_eq!(fixture.bash(script).success(), "");
}

fn host_tools_run(fixture: &Fixture) {
    assert_eq!(
        fixture
            .bash("git --version >/dev/null && perl -e 'print 6*7' && ls / >/dev/null && echo && hostname")
            .success()
            .lines()
            .next(),
        Some("42")
    );
}

fn auto_means_native_when_no_image_is_named(fixture: &Fixture) {
    let plan = fixture.sandpen(["explain", "--format", "json", "--", "true"]).finish().json();
    assert_eq!(plan["engine"]["name"], "native");
    assert!(plan["steps"].as_array().is_some_and(|steps| steps.len() > 20));
    assert_eq!(plan["argv"], serde_json::json!(["true"]));
}

fn a_command_under_home_brings_what_it_needs_and_nothing_else(fixture: &Fixture) {
    fixture.write_script(
        ".local/share/tool/versions/1/tool",
        "#!/bin/sh\ncat ~/.local/share/tool/data; ls -A ~ ~/.local/share\n",
    );
    fixture.write(".local/share/tool/data", "its data\n");
    fixture.write(".local/share/other/secret", "hunter2");
    fixture.write(".local/bin/placeholder", "");
    std::os::unix::fs::symlink("../share/tool/versions/1/tool", fixture.home.join(".local/bin/tool")).expect("link");
    let path = format!("{}:/usr/bin:/bin", fixture.home.join(".local/bin").display());
    let finished = fixture.run().env("PATH", path).args(["--", "tool"]).finish();
    let home = fixture.home.display();
    assert_eq!(finished.success(), format!("its data\n{home}:\n.local\nproject\n\n{home}/.local/share:\ntool"));
}

fn names_resolve_as_on_the_host(fixture: &Fixture) {
    assert_eq!(fixture.bash("getent hosts localhost | wc -l; getent hosts \"$(hostname)\" | wc -l").success(), "1\n1");
}

fn nothing_of_the_sandbox_is_on_the_host_after_a_kill(fixture: &Fixture) {
    let finished = fixture.bash("echo secret > ~/file; echo secret > /tmp/file; ls ~ /tmp | grep -c file");
    assert_eq!(finished.success(), "2");
    assert!(fixture.sessions().is_empty());
    assert!(!fixture.home.join("file").exists());
    assert_ne!(fixture.engine(), Engine::Docker);
}
