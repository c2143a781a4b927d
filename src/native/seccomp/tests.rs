//! Interprets the filter for each system call number.

use super::*;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
const EPERM: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
const ENOSYS: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
#[cfg(target_arch = "x86_64")]
const HERE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const HERE: u32 = 0xc000_00b7;

fn run(program: &Program, architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let mut data = vec![number, architecture, 0, 0];
    for argument in arguments {
        data.push(argument as u32);
        data.push((argument >> 32) as u32);
    }
    let (mut at, mut accumulator) = (0, 0);
    loop {
        let instruction = program[at];
        at += 1;
        let taken = |yes: bool| usize::from(if yes { instruction.jt } else { instruction.jf });
        match u32::from(instruction.code) {
            0x20 => accumulator = data[instruction.k as usize / 4],
            0x15 => at += taken(accumulator == instruction.k),
            0x35 => at += taken(accumulator >= instruction.k),
            0x45 => at += taken(accumulator & instruction.k != 0),
            0x05 => at += instruction.k as usize,
            0x06 => return instruction.k,
            code => panic!("unknown instruction {code:#x}"),
        }
    }
}

fn call(number: i64, arguments: &[u64]) -> u32 {
    call_with(NewNamespaces::Denied, number, arguments)
}

fn call_with(namespaces: NewNamespaces, number: i64, arguments: &[u64]) -> u32 {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    run(&filter(namespaces), HERE, number as u32, all)
}

#[test]
fn every_number_gets_its_verdict() {
    let program = filter(NewNamespaces::Denied);
    let denied: Vec<i64> = [DENIED, DENIED_HERE, MOUNTS_AND_NAMESPACES, NEW_MOUNT_CALLS].concat();
    // Zero arguments pass all the tests but these.
    let tested = [libc::SYS_socket, libc::SYS_socketpair];
    for number in 0..1000_i64 {
        let expected = match number {
            number if denied.contains(&number) || tested.contains(&number) => EPERM,
            libc::SYS_clone3 | libc::SYS_openat2 => ENOSYS,
            _ => ALLOW,
        };
        let got = run(&program, HERE, number as u32, [0; 6]);
        assert_eq!(got, expected, "system call {number}");
    }
}

#[test]
fn foreign_architectures_and_x32_are_shut_out() {
    let program = filter(NewNamespaces::Denied);
    for architecture in [0x4000_0003, 0x4000_0028, 0] {
        assert_eq!(run(&program, architecture, 4, [0; 6]), KILL);
    }
    for number in [0x4000_0000, 0x4000_0001, 0x4000_0000 + 165, u32::MAX] {
        assert_eq!(run(&program, HERE, number, [0; 6]), ENOSYS);
    }
}

#[test]
fn terminal_requests_are_denied_whatever_the_high_bits() {
    for request in [0x5412, 0x5412 | 0xdead_0000_0000, 0x541c, 0x541d, 0x5423] {
        assert_eq!(call(libc::SYS_ioctl, &[0, request]), EPERM);
    }
    for request in [0x5401, 0x5413, 0x5410, 0x1_0000_5412 & 0xffff_0000] {
        assert_eq!(call(libc::SYS_ioctl, &[0, request]), ALLOW);
    }
}

#[test]
fn new_namespaces_are_denied() {
    let user = libc::CLONE_NEWUSER as u64;
    let thread = (libc::CLONE_VM | libc::CLONE_THREAD | libc::CLONE_SIGHAND) as u64;
    for number in [libc::SYS_clone, libc::SYS_unshare] {
        assert_eq!(call(number, &[user | thread]), EPERM);
        assert_eq!(call(number, &[thread]), ALLOW);
    }
    assert_eq!(call(libc::SYS_unshare, &[0x80]), EPERM);
    assert_eq!(call(libc::SYS_clone3, &[]), ENOSYS);
    assert_eq!(call(libc::SYS_mount, &[]), EPERM);
}

#[test]
fn a_nested_guest_may_create_namespaces_and_nothing_else() {
    let nested = NewNamespaces::All;
    for number in [libc::SYS_clone, libc::SYS_unshare] {
        assert_eq!(call_with(nested, number, &[u64::from(NAMESPACES)]), ALLOW);
        assert_eq!(call_with(NewNamespaces::AllButCgroup, number, &[libc::CLONE_NEWUSER as u64]), ALLOW);
        assert_eq!(call_with(NewNamespaces::AllButCgroup, number, &[libc::CLONE_NEWCGROUP as u64]), EPERM);
    }
    assert_eq!(call_with(nested, libc::SYS_unshare, &[0x80]), EPERM);
    assert_eq!(call_with(nested, libc::SYS_clone3, &[]), ENOSYS);
    for number in MOUNTS_AND_NAMESPACES {
        assert_eq!(call_with(nested, *number, &[]), ALLOW, "system call {number}");
    }
    for number in NEW_MOUNT_CALLS {
        assert_eq!(call_with(nested, *number, &[]), ENOSYS, "system call {number}");
    }
    for number in [DENIED, DENIED_HERE].concat() {
        assert_eq!(call_with(nested, number, &[]), EPERM, "system call {number}");
    }
}

#[test]
fn a_nested_guest_has_no_raw_sockets_and_no_packet_filter() {
    let socket =
        |family: i32, kind: i32| call_with(NewNamespaces::All, libc::SYS_socket, &[family as u64, kind as u64, 0]);
    for family in [libc::AF_INET, libc::AF_INET6] {
        for flags in [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK] {
            assert_eq!(socket(family, libc::SOCK_RAW | flags), EPERM);
            assert_eq!(socket(family, libc::SOCK_STREAM | flags), ALLOW);
            assert_eq!(socket(family, libc::SOCK_DGRAM | flags), ALLOW);
        }
    }
    assert_eq!(socket(libc::AF_NETLINK, libc::SOCK_RAW), ALLOW);
    assert_eq!(socket(libc::AF_PACKET, libc::SOCK_RAW), EPERM);
    let option = |level: u64, option: u64| call_with(NewNamespaces::All, libc::SYS_setsockopt, &[3, level, option]);
    for level in [libc::IPPROTO_IP as u64, libc::IPPROTO_IPV6 as u64] {
        for table in [64, 65, 96, 97, 128, 129] {
            assert_eq!(option(level, table), EPERM);
        }
        assert_eq!(option(level, 1), ALLOW);
    }
    assert_eq!(option(libc::SOL_SOCKET as u64, 64), ALLOW);
}

#[test]
fn socket_families_are_an_allow_list() {
    for (family, protocol, expected) in [
        (libc::AF_UNIX, 0, ALLOW),
        (libc::AF_INET, 6, ALLOW),
        (libc::AF_INET6, 17, ALLOW),
        (libc::AF_NETLINK, 0, ALLOW),
        (libc::AF_NETLINK, 4, ALLOW),
        (libc::AF_NETLINK, 12, EPERM),
        (libc::AF_PACKET, 0, EPERM),
        (libc::AF_ALG, 0, EPERM),
        (libc::AF_VSOCK, 0, EPERM),
        (libc::AF_BLUETOOTH, 0, EPERM),
    ] {
        let arguments = [family as u64, 1, protocol];
        assert_eq!(call(libc::SYS_socket, &arguments), expected, "{family}/{protocol}");
    }
}

#[test]
fn personality_is_an_allow_list() {
    assert_eq!(call(libc::SYS_personality, &[0xffff_ffff]), ALLOW);
    assert_eq!(call(libc::SYS_personality, &[0x40_0000]), EPERM);
}

#[test]
fn attack_34_no_call_sets_the_user_or_group_id_bit() {
    for bits in [0o4755, 0o2755, 0o6000, 0o4755 | 0xdead_0000_0000] {
        assert_eq!(call(libc::SYS_fchmod, &[0, bits]), EPERM);
        assert_eq!(call(libc::SYS_fchmodat, &[0, 0, bits]), EPERM);
        assert_eq!(call(FCHMODAT2, &[0, 0, bits]), EPERM);
        assert_eq!(call(libc::SYS_mknodat, &[0, 0, bits | 0o100_000]), EPERM);
        for flags in [libc::O_CREAT | libc::O_WRONLY, libc::O_TMPFILE | libc::O_RDWR] {
            assert_eq!(call(libc::SYS_openat, &[0, 0, flags as u64, bits]), EPERM);
            #[cfg(target_arch = "x86_64")]
            assert_eq!(call(libc::SYS_open, &[0, flags as u64, bits]), EPERM);
        }
        // Without these flags the mode is not read, and may be anything.
        for flags in [libc::O_RDONLY, libc::O_DIRECTORY, libc::O_TRUNC | libc::O_WRONLY] {
            assert_eq!(call(libc::SYS_openat, &[0, 0, flags as u64, bits]), ALLOW);
        }
        assert_eq!(call(libc::SYS_mkdirat, &[0, 0, bits]), ALLOW);
        #[cfg(target_arch = "x86_64")]
        for number in [libc::SYS_chmod, libc::SYS_creat, libc::SYS_mknod] {
            assert_eq!(call(number, &[0, bits]), EPERM);
        }
    }
    for mode in [0o755, 0o1777, 0o644] {
        assert_eq!(call(libc::SYS_fchmodat, &[0, 0, mode]), ALLOW);
        assert_eq!(call(libc::SYS_openat, &[0, 0, libc::O_CREAT as u64, mode]), ALLOW);
    }
}
