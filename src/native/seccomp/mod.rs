//! Decides which system calls the guest may not make: everything that containers deny, requests
//! that would reach the host's terminal, and modes that leave set-user-ID files behind.
//!
//! It is a deny-list, because the guest may be any program. The namespaces and the empty capability
//! sets are the primary boundary; the filter keeps the guest away from the parts of the kernel that
//! have the most bugs. `ptrace` is allowed: it cannot leave the pid namespace, debuggers need it,
//! and pid 1 is hidden from it.

mod program;

pub(crate) use program::{Program, install};
use program::{Test, Verdict};

/// The flags of new namespaces. `CLONE_NEWTIME` is not among them: to `clone` it is a signal
/// number.
const NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32;
const CLONE_NEWTIME: u32 = 0x80;

/// `TIOCSTI` types into the terminal, `TIOCLINUX` pastes into it, `TIOCCONS` redirects the
/// console's output, `TIOCSETD` loads line disciplines.
const TERMINAL_REQUESTS: [u32; 4] = [0x5412, 0x541c, 0x541d, 0x5423];

/// The allowed arguments of `personality`: Docker's list (query, Linux, 32-bit and 2.6 names), and
/// disabled address randomisation for debuggers.
const PERSONALITIES: [u32; 6] = [0, 8, 0x2_0000, 0x2_0008, 0x4_0000, 0xffff_ffff];

const FAMILIES: [u32; 4] = [libc::AF_UNIX as u32, libc::AF_INET as u32, libc::AF_INET6 as u32, libc::AF_NETLINK as u32];
/// Interfaces and routes (getifaddrs), and the list of sockets (ss).
const NETLINK_PROTOCOLS: [u32; 2] = [0, 4];

const OPEN_TREE_ATTR: i64 = 467;
const FCHMODAT2: i64 = 452;

/// The bits that run a program as the owner or the group of its file (attack 34). `chmod` of a
/// directory with the group's bit is refused as well, because a filter cannot see what a path leads
/// to; `mkdir` needs no test, because the kernel ignores these bits there.
const SET_ID: u32 = libc::S_ISUID | libc::S_ISGID;
/// The flags with which `open` uses its mode. `O_TMPFILE` contains `O_DIRECTORY`, which alone creates
/// nothing.
const CREATES: u32 = (libc::O_CREAT | libc::O_TMPFILE & !libc::O_DIRECTORY) as u32;

/// The calls that set the mode of a file, and the argument with the mode.
const MODES: &[(i64, u8)] = &[(libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (FCHMODAT2, 2), (libc::SYS_mknodat, 2)];
#[cfg(target_arch = "x86_64")]
const MODES_HERE: &[(i64, u8)] = &[(libc::SYS_chmod, 1), (libc::SYS_creat, 1), (libc::SYS_mknod, 1)];
#[cfg(not(target_arch = "x86_64"))]
const MODES_HERE: &[(i64, u8)] = &[];

/// The calls that may create a file, and the arguments with the flags and the mode.
#[cfg(target_arch = "x86_64")]
const OPENS: &[(i64, u8, u8)] = &[(libc::SYS_open, 1, 2), (libc::SYS_openat, 2, 3)];
#[cfg(not(target_arch = "x86_64"))]
const OPENS: &[(i64, u8, u8)] = &[(libc::SYS_openat, 2, 3)];
/// Not defined by libc for every architecture.
#[cfg(target_arch = "x86_64")]
const KEXEC_FILE_LOAD: i64 = 320;
#[cfg(not(target_arch = "x86_64"))]
const KEXEC_FILE_LOAD: i64 = 294;

const DENIED: &[i64] = &[
    // The machine: modules, kexec, clock, swap, log, accounting.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    KEXEC_FILE_LOAD,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_vhangup,
    libc::SYS_nfsservctl,
    libc::SYS_lookup_dcookie,
    // Large parts of the kernel with a history of vulnerabilities.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_fanotify_init,
    libc::SYS_fanotify_mark,
    libc::SYS_memfd_secret,
    // Keyrings are not namespaced.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Files by handle, which bypass every mount.
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // Other processes' memory and descriptors.
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
];

/// Mounts and namespaces. With `nested` they are allowed: the kernel lets a process use them only
/// in a user namespace of its own.
const MOUNTS_AND_NAMESPACES: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

/// The newer calls for mounts. They are never allowed, because `mount` does the same with less of
/// the kernel; with `nested` they seem not to exist, so that programs fall back to it.
const NEW_MOUNT_CALLS: &[i64] = &[
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
];

/// The levels and options of `setsockopt` that replace the tables of iptables, ip6tables, arptables
/// and ebtables. Root of a network namespace may use them.
const PACKET_FILTER_LEVELS: [u32; 2] = [libc::IPPROTO_IP as u32, libc::IPPROTO_IPV6 as u32];
const PACKET_FILTER_OPTIONS: [u32; 6] = [64, 65, 96, 97, 128, 129];
/// Raw sockets, with each combination of the flags that the kernel accepts.
const RAW_SOCKETS: [u32; 4] = [
    libc::SOCK_RAW as u32,
    (libc::SOCK_RAW | libc::SOCK_CLOEXEC) as u32,
    (libc::SOCK_RAW | libc::SOCK_NONBLOCK) as u32,
    (libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u32,
];

#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[i64] =
    &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_uselib, libc::SYS_ustat, libc::SYS_sysfs, libc::SYS__sysctl];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[i64] = &[];

/// The namespaces that a guest may create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NewNamespaces {
    Denied,
    /// For a guest in a control group of the caller's: root of a cgroup namespace may mount it.
    AllButCgroup,
    All,
}

impl NewNamespaces {
    pub fn new(nested: bool, has_separate_cgroup: bool) -> Self {
        match (nested, has_separate_cgroup) {
            (false, _) => Self::Denied,
            (true, false) => Self::AllButCgroup,
            (true, true) => Self::All,
        }
    }

    /// Returns the flags of those that are denied.
    fn denied(self) -> u32 {
        match self {
            Self::Denied => NAMESPACES,
            Self::AllButCgroup => libc::CLONE_NEWCGROUP as u32,
            Self::All => 0,
        }
    }
}

/// Builds the filter; called before the fork. If the guest may create namespaces, it may mount in
/// them; the rest is the same for what runs there.
pub(crate) fn filter(namespaces: NewNamespaces) -> Program {
    let nested = namespaces != NewNamespaces::Denied;
    let deny = |with: libc::c_int| move |number: &i64| (*number as u32, Verdict::Deny(with));
    let mut rules: Vec<(u32, Verdict)> = DENIED.iter().chain(DENIED_HERE).map(deny(libc::EPERM)).collect();
    let new_mount_calls = if nested { libc::ENOSYS } else { libc::EPERM };
    rules.extend(NEW_MOUNT_CALLS.iter().map(deny(new_mount_calls)));
    if !nested {
        rules.extend(MOUNTS_AND_NAMESPACES.iter().map(deny(libc::EPERM)));
    }
    let mut test = |number: i64, tests: Vec<Test>| {
        rules.push((number as u32, Verdict::DenyIf(tests)));
    };
    test(libc::SYS_ioctl, vec![Test::OneOf { argument: 1, values: &TERMINAL_REQUESTS }]);
    test(libc::SYS_personality, vec![Test::NoneOf { argument: 0, values: &PERSONALITIES }]);
    let mut sockets = vec![
        Test::NoneOf { argument: 0, values: &FAMILIES },
        Test::NoneOfWhen { first: 0, is: libc::AF_NETLINK as u32, argument: 2, values: &NETLINK_PROTOCOLS },
    ];
    if nested {
        // A process that is root of a network namespace has the capability for these.
        let raw = |family: i32| Test::OneOfWhen { first: 0, is: family as u32, argument: 1, values: &RAW_SOCKETS };
        sockets.extend([libc::AF_INET, libc::AF_INET6].map(raw));
        let tables = |level| Test::OneOfWhen { first: 1, is: level, argument: 2, values: &PACKET_FILTER_OPTIONS };
        test(libc::SYS_setsockopt, PACKET_FILTER_LEVELS.map(tables).into());
    }
    test(libc::SYS_socket, sockets);
    test(libc::SYS_socketpair, vec![Test::NoneOf { argument: 0, values: &[libc::AF_UNIX as u32] }]);
    test(libc::SYS_clone, vec![Test::AnyBit { argument: 0, bits: namespaces.denied() }]);
    test(libc::SYS_unshare, vec![Test::AnyBit { argument: 0, bits: namespaces.denied() | CLONE_NEWTIME }]);
    for (number, argument) in MODES.iter().chain(MODES_HERE) {
        test(*number, vec![Test::AnyBit { argument: *argument, bits: SET_ID }]);
    }
    for (number, flags, mode) in OPENS {
        test(*number, vec![Test::AnyBitWhen { first: *flags, any_of: CREATES, argument: *mode, bits: SET_ID }]);
    }
    // Their flags and modes are in memory, where no filter can see them; callers fall back to `clone`
    // and `openat`, as on older kernels.
    for number in [libc::SYS_clone3, libc::SYS_openat2] {
        rules.push((number as u32, Verdict::Deny(libc::ENOSYS)));
    }
    program::assemble(rules)
}

/// Builds a filter that denies every socket but those of the local system. It comes on top of
/// [`filter`], which denies io_uring, by which sockets can be made without the call.
pub(crate) fn local_sockets_only() -> Program {
    let local = vec![Test::NoneOf { argument: 0, values: &[libc::AF_UNIX as u32] }];
    program::assemble(vec![(libc::SYS_socket as u32, Verdict::DenyIf(local))])
}

#[cfg(test)]
mod tests;
