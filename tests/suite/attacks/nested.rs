//! Attack 35: a guest that may make sandboxes of its own (`--nested on`), and is root there.

use std::fs;
use std::process::{Command, Stdio};

use crate::attacks::{guest, network, repository, terminal, walls};
use crate::native;
use crate::support::{Engine, Fixture, RunToEnd};

/// Repeats tests of other modules; every script of theirs runs in a namespace of its own.
macro_rules! repeated {
    ($name_of_module:ident, $on:expr, $($module:ident::$name:ident),+ $(,)?) => {
        mod $name_of_module {
            use super::*;
            $(#[test]
            fn $name() {
                $on(Fixture::nested, $module::$name);
            })+
        }
    };
}

/// The tests that are repeated in containers.
macro_rules! repeated_in_containers {
    ($name_of_module:ident, $on:expr) => {
        repeated!(
            $name_of_module,
            $on,
            walls::attack_12_13_no_sockets_of_the_host,
            walls::attack_14_no_inherited_files,
            walls::attack_17_privileged_kernel_interfaces_are_blocked,
            guest::attack_25_a_killed_launcher_takes_the_guest_along,
            guest::attack_25_the_guest_cannot_prevent_its_termination,
            network::attack_22_no_way_out_but_the_proxy,
            repository::attack_19_links_do_not_lead_outside,
            terminal::attack_27_a_sandbox_in_the_background_reads_no_keys,
        );
    };
}

repeated_in_containers!(attack_35_from_within_a_namespace_in_a_container, |prepare, test: fn(&Fixture)| {
    Fixture::on_prepared(Engine::PodmanRootless, prepare, test)
});

repeated_in_containers!(attack_35_from_within_a_namespace_in_docker, |prepare, test: fn(&Fixture)| {
    Fixture::on_docker_as_ordinary_user(prepare, test)
});

repeated!(
    attack_35_from_within_a_nested_namespace,
    |prepare, test: fn(&Fixture)| Fixture::on_prepared(Engine::Native, prepare, test),
    native::attack_11_nothing_can_be_typed_into_a_terminal,
    native::attack_15_nothing_secret_of_the_system_is_visible,
    native::attack_16_abstract_sockets_of_the_host_are_out_of_reach,
    native::attack_16_the_hosts_processes_are_out_of_reach,
    native::the_system_is_read_only,
    walls::attack_12_13_no_sockets_of_the_host,
    walls::attack_14_no_inherited_files,
    walls::attack_17_privileged_kernel_interfaces_are_blocked,
    walls::attack_20_a_fork_bomb_is_bounded,
    guest::attack_25_a_killed_launcher_takes_the_guest_along,
    guest::attack_25_the_guest_cannot_prevent_its_termination,
    network::attack_21_odd_names_and_addresses_are_refused_and_logged,
    network::attack_22_no_way_out_but_the_proxy,
    network::attack_23_a_listed_name_does_not_lead_to_this_machine,
    repository::attack_19_links_do_not_lead_outside,
    terminal::attack_27_a_sandbox_in_the_background_reads_no_keys,
    terminal::attack_27_what_exec_leaves_behind_reads_no_keys,
);

fn on_native(test: impl FnOnce(&Fixture)) {
    Fixture::on_prepared(Engine::Native, Fixture::nested, test);
}

#[test]
fn attack_35_a_container_shows_all_of_proc_to_ordinary_users_only() {
    let new_proc =
        "unshare --user --map-root-user --pid --fork --mount-proc sh -c 'head -n 1 /proc/self/status; echo $$'";
    let shows_all_of_proc = |fixture: &Fixture| {
        let run =
            |option: &str, script: &str| fixture.run().args(["--nested", option, "--", "bash", "-c", script]).finish();
        assert_eq!(run("on", new_proc).success(), "Name:\thead\n1");
        assert_ne!(run("off", new_proc).code, Some(0));
        // What the masks hid belongs to the host's root, as seen from the guest and from its namespace.
        let probe = "for file in /proc/kcore /proc/timer_list /proc/sysrq-trigger /proc/sys/kernel/core_pattern \
                /proc/sys/vm/drop_caches /proc/sys/kernel/randomize_va_space; do
                (echo 0 > $file) 2>&- && echo \"$file is written\"
            done
            (head -c 1 /proc/kcore) 2>&- && echo 'memory is read'
            find /proc/sys /proc/bus /proc/irq /proc/acpi /proc/scsi /proc/fs -type f -writable ! -path '/proc/sys/net/*' \
                ! -path '/proc/sys/user/*' ! -path '/proc/sys/kernel/*_next_id' ! -path '/proc/sys/kernel/ns_last_pid' ! -path '/proc/sys/kernel/pid_max' 2>&-
            ls /sys/firmware
            true";
        assert_eq!(run("on", probe).success(), "");
        let within =
            format!("unshare --user --map-root-user --pid --fork --mount-proc bash -c '{}'", probe.replace('\'', "\""));
        assert_eq!(run("on", &within).success(), "");
    };
    Fixture::on(Engine::PodmanRootless, shows_all_of_proc);
    Fixture::on_docker_as_ordinary_user(std::convert::identity, shows_all_of_proc);
    // Root's guest is the host's root, who could write some of it.
    let is_denied = |fixture: &Fixture| {
        let finished = fixture.run().args(["--nested", "on", "--", "bash", "-c", new_proc]).finish();
        assert_ne!(finished.code, Some(0), "{finished:?}");
        assert!(
            finished.stderr.contains("sandboxes within the sandbox (flag --nested): denied"),
            "{}",
            finished.stderr
        );
    };
    Fixture::on(Engine::Podman, is_denied);
    Fixture::on(Engine::Docker, is_denied);
}

#[test]
fn attack_35_the_mounts_of_the_sandbox_are_locked() {
    on_native(|fixture| {
        // The script proves first that it has the power to mount.
        let script = r#"
            mount -t tmpfs none /tmp && umount /tmp && echo powerful
            awk '{ print $5 }' /proc/self/mountinfo | sort -u | tac | while read -r place; do
                umount "$place" 2>&- && echo "$place is unmounted"
                umount -l "$place" 2>&- && echo "$place is detached"
            done
            for place in / /usr /etc/passwd /proc/sys /proc/kcore; do
                mount -o remount,bind,rw "$place" 2>&- && echo "$place is writable"
                mount -o remount,rw "$place" 2>&- && echo "$place is writable"
                mount -o remount,bind,ro,suid "$place" 2>&- && echo "$place honours setuid"
                mount -o remount,bind,ro,dev "$place" 2>&- && echo "$place honours devices"
            done
            mount --bind /proc /tmp 2>&- && echo 'what covers /proc is gone'
            mount --bind /dev /tmp 2>&- && echo 'what covers /dev is gone'
            mount --rbind / /tmp && mount -o remount,bind,rw /tmp/usr 2>&- && echo 'a copy is writable'
            umount /tmp/proc/sys 2>&- && echo 'a copy of /proc/sys is unmounted'
            mkdir /tmp/usr/sandpen 2>&- && echo 'a copy is written'
            true"#;
        assert_eq!(fixture.bash(script).success(), "powerful");
    });
}

#[test]
fn attack_35_no_file_system_shows_more_of_the_host() {
    on_native(|fixture| {
        let script = r#"
            for type in sysfs cgroup cgroup2 debugfs tracefs securityfs bpf configfs fusectl devtmpfs ext4; do
                mount -t $type none /tmp 2>&- && echo "$type is mounted"
            done
            mknod /tmp/disk b 8 0 2>&- && echo 'a device'
            mknod /tmp/memory c 1 1 2>&- && echo 'the memory'
            mount -t tmpfs -o dev,suid none /tmp && mknod /tmp/disk b 8 0 2>&- && echo 'a device on a mount of its own'
            chown 12345 /tmp 2>&- && echo 'another owner'
            for file in /proc/sys/kernel/core_pattern /proc/sys/vm/overcommit_memory /proc/sysrq-trigger; do
                (echo 1 > $file) 2>&- && echo "$file is written"
            done
            unshare --pid --fork --mount-proc bash -c '
                [ "$(ls -d /proc/[0-9]* | wc -l)" -lt 5 ] && echo "own processes"
                for file in kernel/core_pattern kernel/modprobe vm/overcommit_memory net/ipv4/ip_forward; do
                    (echo 1 > /proc/sys/$file) 2>&- && echo "$file is written"
                done
                (echo b > /proc/sysrq-trigger) 2>&- && echo sysrq
                head -c 1 /proc/kcore 2>&-
                true'"#;
        assert_eq!(fixture.bash(script).success(), "own processes");
    });
}

#[test]
fn attack_35_the_network_of_the_host_cannot_be_configured() {
    on_native(|fixture| {
        let script = r#"
            use Socket;
            my $interface = pack('a16 s x22', 'lo', 0);
            socket(my $s, AF_INET, SOCK_DGRAM, 0) or die $!;
            print "lo is down\n" if ioctl($s, 0x8914, $interface);
            for my $family (AF_INET, 10) {
                for my $type (SOCK_RAW, SOCK_RAW | 0x80000, SOCK_RAW | 0x800) {
                    print "a raw socket\n" if socket(my $raw, $family, $type, 1);
                }
            }
            print "a packet socket\n" if socket(my $packet, 17, SOCK_RAW, 0);
            print "netfilter\n" if socket(my $netfilter, 16, SOCK_RAW, 12);"#;
        // The host's network first, then one of the guest's own, of which it is root.
        assert_eq!(fixture.run().args(["--", "perl", "-e", script]).finish().success(), "");
        let script = script.replace("print \"lo is down\\n\" if", "print \"own\\n\" if");
        let finished =
            fixture.run().args(["--", "bash", "-c", "unshare --net /usr/bin/perl -e \"$1\"", "bash", &script]).finish();
        assert_eq!(finished.success(), "own");
    });
}

#[test]
fn attack_35_no_namespace_of_the_sandbox_can_be_entered() {
    on_native(|fixture| {
        let script = r#"
            for kind in user mnt pid net ipc uts cgroup; do
                nsenter --$kind=/proc/1/ns/$kind true 2>&- && echo "the $kind namespace of pid 1"
            done
            ls /proc/1/fd /proc/1/root/ /proc/1/cwd/ 2>&-
            nsenter --target 1 --all true 2>&- && echo 'all of pid 1'
            perl -e 'print "traced\n" if syscall(101, 16, 1, 0, 0) == 0'
            true"#;
        assert_eq!(fixture.bash(script).success(), "");
    });
}

#[test]
fn attack_35_the_files_of_the_streams_stay_outside() {
    on_native(|fixture| {
        let input = fixture.write("input", "line 1\nline 2\n");
        let output = fixture.write("output", "before\n");
        let script = r#"
            read -r line; echo "$line"
            for number in 0 1 2; do
                chmod 0666 /dev/fd/$number; touch -d 2001-01-01 /dev/fd/$number
            done 2>&-
            (echo planted > /proc/self/fd/0) 2>&-; (echo planted >> /dev/stdin) 2>&-
            perl -e 'for (0..2) { print STDERR "file $_" if -f "/proc/self/fd/$_" }'
            mkdir /tmp/m && mount --bind /proc/self/fd/0 /tmp/m
            true"#;
        let before = fs::metadata(&input).expect("input");
        let mut command = fixture.run();
        command.args(["--", "bash", "-c", script]).stdin(fs::File::open(&input).expect("input"));
        command.stdout(fs::OpenOptions::new().append(true).open(&output).expect("output")).stderr(Stdio::null());
        assert!(command.status().expect("status").success());
        assert_eq!(fs::read_to_string(&input).expect("input"), "line 1\nline 2\n");
        assert_eq!(fs::read_to_string(&output).expect("output"), "before\nline 1\n");
        let after = fs::metadata(&input).expect("input");
        assert_eq!(after.permissions(), before.permissions());
        assert_eq!(after.modified().ok(), before.modified().ok());
    });
}

#[test]
fn nested_streams_that_are_files_keep_their_positions() {
    on_native(|fixture| {
        let lines: String = (0..30_000).map(|number| format!("line {number}\n")).collect();
        let input = fixture.write("lines", &lines);
        let output = fixture.write("output", "");
        let mut command = fixture.run();
        command.args(["--", "head", "-c", "7"]);
        // The shell and the sandboxes share one position in each file.
        let mut shell = Command::new("sh");
        let script = r#"exec < "$1" > "$2" 2>&1; shift 2; read -r line; "$@"; "$@"; echo end; wc -l"#;
        shell.args(["-c", script, "sh"]).args([&input, &output]).arg(command.get_program()).args(command.get_args());
        shell.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        assert!(shell.current_dir(&fixture.project).status().expect("status").success());
        let written = fs::read_to_string(&output).expect("output");
        let position = written.lines().next().expect("a line");
        assert_eq!(position, "line 1", "{written}");
        assert!(written.contains("end\n2"), "{written}");
    });
}

#[test]
fn attack_35_namespaces_do_not_multiply_the_limits() {
    on_native(|fixture| {
        let script = "for i in 1 2 3; do unshare --user --map-root-user perl -e '
            for (1..100) { my $p = fork; if (!defined $p) { print qq(bounded\\n); last } if (!$p) { sleep 60; exit } }' & done; wait -n; wait -n; wait -n";
        let finished = fixture.run().args(["--pids", "60", "--", "bash", "-c", script]).finish();
        assert!(finished.stdout.contains("bounded"), "{finished:?}");
        // Each namespace is held by a process, which waits for the next.
        let script = r#"n=0; while unshare --user --map-root-user true; do n=$((n + 1)); [ $n -gt 300 ] && break
            unshare --user sleep 300 & done 2>&-; [ $n -lt 300 ] && echo bounded"#;
        assert_eq!(fixture.bash(script).success(), "bounded");
    });
}

#[test]
fn attack_35_exec_has_the_same_walls() {
    on_native(|fixture| {
        let mut running = crate::support::Running::start(fixture.run().args([
            "--name",
            "pen",
            "--",
            "bash",
            "-c",
            "echo ready; exec sleep 300",
        ]));
        assert_eq!(running.line(), "ready");
        let script = "unshare --user --map-root-user --mount bash -c 'umount /proc/sys 2>&- && echo unmounted; echo $((40 + 2))'";
        let input = fixture.write("input", "mine\n");
        let mut command = fixture.sandpen([
            "exec",
            "pen",
            "--",
            "bash",
            "-c",
            &format!("{script}; (echo planted > /proc/self/fd/0) 2>&-; true"),
        ]);
        let finished = fixture.finish(command.stdin(fs::File::open(&input).expect("input")));
        assert_eq!(finished.success(), "42");
        assert_eq!(fs::read_to_string(&input).expect("input"), "mine\n");
        running.kill_alone();
    });
}

/// The kernel maps uid 0 only for a creator that may give files capabilities, which no guest may.
#[test]
fn attack_35_the_guest_of_root_makes_no_namespaces() {
    Fixture::on(Engine::NativeRoot, |fixture| {
        let finished = fixture.run().args(["--nested", "on", "--", "unshare", "--user", "true"]).finish();
        let message = finished.failure(1);
        assert!(message.contains("warning: sandboxes within the sandbox (flag --nested): denied"), "{message}");
        let strict = fixture.run().args(["--strict", "--nested", "on", "--", "true"]).finish();
        strict.failure(44);
    });
}
