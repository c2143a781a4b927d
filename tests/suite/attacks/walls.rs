//! Tests attempts of a guest to leave its sandbox: 12–14, 17, 18, 20.

use std::fs;
use std::io::ErrorKind;
use std::process::{Command, Stdio};

use crate::support::{Fixture, RunToEnd, Running};
use crate::{for_every_container_engine, for_every_engine, for_native_image};

for_every_engine!(
    attack_12_13_no_sockets_of_the_host,
    attack_14_no_inherited_files,
    attack_17_no_new_namespaces_and_mounts,
    attack_17_privileged_kernel_interfaces_are_blocked,
    attack_18_there_are_no_capabilities,
    attack_20_a_fork_bomb_is_bounded,
);
for_native_image!(
    attack_12_13_no_sockets_of_the_host,
    attack_14_no_inherited_files,
    attack_17_no_new_namespaces_and_mounts,
    attack_17_privileged_kernel_interfaces_are_blocked,
    attack_18_there_are_no_capabilities,
    attack_20_a_fork_bomb_is_bounded
);
for_every_container_engine!(attack_18_setuid_programs_gain_nothing,);

pub(crate) fn attack_12_13_no_sockets_of_the_host(fixture: &Fixture) {
    let mut command = fixture.run();
    command.envs([("DISPLAY", ":0"), ("WAYLAND_DISPLAY", "wayland-0"), ("GNOME_KEYRING_CONTROL", "/run/keyring")]);
    command.args(["--env", &format!("CONTAINER={}", fixture.engine().is_container())]);
    command.env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/dbus/system_bus_socket");
    let script = r#"
        find / -path /proc -prune -o -type s -print
        ls -d /run/docker.sock /var/run/docker.sock /run/podman /run/containerd /run/user /run/dbus /tmp/.X11-unix \
            /run/host-services "${XDG_RUNTIME_DIR-/none}" 2>&-
        # The host's network shows the names of its sockets; that they are out of reach is tested in `native.rs`.
        $CONTAINER && awk 'NR > 1 && $8' /proc/net/unix
        env | grep -E 'DISPLAY|DBUS|KEYRING|XDG_RUNTIME|DOCKER_HOST|CONTAINER_HOST'
        true"#;
    assert_eq!(command.args(["--", "bash", "-c", script]).finish().success(), "");
}

pub(crate) fn attack_14_no_inherited_files(fixture: &Fixture) {
    let secret = fixture.write("secret", "hunter2");
    let script = "echo ready; cat > /dev/null; perl -e 'for (3..99) { print if open my $f, q(<&), $_ }'; cat <&9";
    let mut command = fixture.run();
    command.args(["--", "bash", "-c", script]);
    // The shell starts the same command with two more open files, one of them a directory.
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"secret=$1; shift; exec 9<"$secret" 8</ "$@""#, "sh"]).arg(&secret);
    shell.arg(command.get_program()).args(command.get_args());
    shell.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut running = Running::start(shell.current_dir(&fixture.project).stdin(Stdio::piped()));
    assert_eq!(running.line(), "ready");
    // The engine's client must not inherit them either, because it could pass them on.
    for child in running.children() {
        let open = match fs::read_dir(format!("/proc/{child}/fd")) {
            // The native engine has no client: the child is the sandbox, whose files only root may
            // list.
            Err(error) if !fixture.engine().is_container() && error.kind() == ErrorKind::PermissionDenied => continue,
            open => open.expect("fd").flatten(),
        };
        let open: Vec<_> = open.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
        assert!(!open.is_empty() && !open.contains(&secret) && !open.contains(&"/".into()), "{open:?}");
    }
    running.close_stdin();
    let finished = running.finish();
    assert_eq!(finished.stdout, "", "the guest has a descriptor beyond 2, or read the secret");
    assert_ne!(finished.code, Some(0), "the guest has descriptor 9");
}

fn attack_17_no_new_namespaces_and_mounts(fixture: &Fixture) {
    let script = r#"
        unshare --user true 2>&- && echo 'a user namespace'
        unshare --user --map-root-user true 2>&- && echo 'root in a user namespace'
        unshare --user --map-root-user --mount mount -t tmpfs none /tmp 2>&- && echo 'a mount in a user namespace'
        for kind in mount net pid uts ipc cgroup; do unshare --$kind true 2>&- && echo "a $kind namespace"; done
        mount -t tmpfs none /tmp 2>&- && echo 'a mount'
        mount --bind / /tmp 2>&- && echo 'a bind mount'
        mount -o remount,rw /etc/passwd 2>&- && echo 'a remount'
        umount /etc/passwd 2>&- && echo 'an unmount'
        chroot / true 2>&- && echo 'chroot'
        mknod /tmp/disk b 8 0 2>&- && echo 'a device'
        true"#;
    assert_eq!(fixture.bash(script).success(), "");
}

/// The script calls them by number, because no program in the image does.
pub(crate) fn attack_17_privileged_kernel_interfaces_are_blocked(fixture: &Fixture) {
    let numbers: [(&str, u32, u32); 6] = [
        ("add_key", 248, 217),
        ("keyctl", 250, 219),
        ("bpf", 321, 280),
        ("userfaultfd", 323, 282),
        ("io_uring_setup", 425, 425),
        ("perf_event_open", 298, 241),
    ];
    let mut script = String::from("my $p = pack('x256'); my $s = 'user'; my $d = 'x';\n");
    for (name, x86, arm) in numbers {
        let number = if cfg!(target_arch = "x86_64") { x86 } else { arm };
        let arguments = match name {
            "add_key" => "$s, $d, $d, 1, -2",
            // This is KEYCTL_GET_KEYRING_ID of the session's keyring.
            "keyctl" => "0, -3, 1",
            "bpf" => "0, $p, 64",
            "userfaultfd" => "1",
            "io_uring_setup" => "1, $p",
            _ => "$p, 0, -1, -1, 0",
        };
        // EPERM and ENOSYS are refusals; any other result means that the call reached the kernel.
        script += &format!(
            "syscall({number}, {arguments}) == -1 && ($! == 1 || $! == 38) or print \"{name} is let through\\n\";\n"
        );
    }
    assert_eq!(fixture.run().args(["--", "perl", "-e", &script]).finish().success(), "");
}

fn attack_18_setuid_programs_gain_nothing(fixture: &Fixture) {
    let mut command = fixture.run_image("localhost/sandpen-node");
    command.args(["--user", "image"]);
    let finished = command
        .args(["--", "bash", "-c", "stat -c %A:%u /usr/local/bin/setuid-id; setuid-id -u; setuid-id -ru"])
        .finish();
    assert_eq!(finished.success(), "-rwsr-xr-x:0\n1000\n1000");
}

fn attack_18_there_are_no_capabilities(fixture: &Fixture) {
    let none = "0000000000000000";
    let finished = fixture.bash("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -s '\\t' ' '");
    let expected = format!(
        "CapInh: {none}\nCapPrm: {none}\nCapEff: {none}\nCapBnd: {none}\nCapAmb: {none}\nNoNewPrivs: 1\nSeccomp: 2"
    );
    assert_eq!(finished.success(), expected);
    // No operation works that needs a capability.
    let finished =
        fixture.bash("chown 12345 /tmp 2>&- && echo 'chown works'; cat /etc/shadow /proc/kcore 2>&- | head -c 1; true");
    assert_eq!(finished.success(), "");
}

pub(crate) fn attack_20_a_fork_bomb_is_bounded(fixture: &Fixture) {
    let explained = fixture.explain(&["--pids", "40", "--", "true"]);
    let is_limited = explained["downgrades"].as_array().expect("downgrades").is_empty();
    // Even if the limit fails, there are at most 300 processes; all end with the sandbox.
    let script = "for (1..300) { my $p = fork; if (!defined $p) { $refused = 1; last } if (!$p) { sleep 60; exit } }
        print $refused ? 'bounded' : 'unbounded'";
    let finished = fixture.run().args(["--pids", "40", "--", "perl", "-e", script]).finish();
    if is_limited {
        assert_eq!(finished.success(), "bounded");
    } else {
        assert!(
            fixture.engine().is_rootless() && finished.stderr.contains("sandpen: warning: "),
            "there is no warning about the missing limit: {}",
            finished.stderr
        );
    }
}
