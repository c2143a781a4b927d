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
    // Mounts and namespaces.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    OPEN_TREE_ATTR,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
];

#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[i64] =
    &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_uselib, libc::SYS_ustat, libc::SYS_sysfs, libc::SYS__sysctl];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[i64] = &[];

/// Builds the filter; called before the fork.
pub(crate) fn filter() -> Program {
    let deny = |number: &i64| (*number as u32, Verdict::Deny(libc::EPERM));
    let mut rules: Vec<(u32, Verdict)> = DENIED.iter().chain(DENIED_HERE).map(deny).collect();
    let mut test = |number: i64, tests: Vec<Test>| {
        rules.push((number as u32, Verdict::DenyIf(tests)));
    };
    test(libc::SYS_ioctl, vec![Test::OneOf { argument: 1, values: &TERMINAL_REQUESTS }]);
    test(libc::SYS_personality, vec![Test::NoneOf { argument: 0, values: &PERSONALITIES }]);
    test(
        libc::SYS_socket,
        vec![
            Test::NoneOf { argument: 0, values: &FAMILIES },
            Test::NoneOfWhen { first: 0, is: libc::AF_NETLINK as u32, argument: 2, values: &NETLINK_PROTOCOLS },
        ],
    );
    test(libc::SYS_socketpair, vec![Test::NoneOf { argument: 0, values: &[libc::AF_UNIX as u32] }]);
    test(libc::SYS_clone, vec![Test::AnyBit { argument: 0, bits: NAMESPACES }]);
    test(libc::SYS_unshare, vec![Test::AnyBit { argument: 0, bits: NAMESPACES | CLONE_NEWTIME }]);
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

#[cfg(test)]
mod tests;
