//! Executes the guest's command: process group, terminal, signals, exec. Everything is resolved
//! beforehand; between clone and exec only system calls are made.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;

use rustix::io::{Errno, Result};
use rustix::process::Pid;

use super::{privileges, sys};
use crate::process::terminal::set_foreground;

/// A command in the form that exec takes.
#[derive(Debug)]
pub struct Command {
    /// The paths to try, in this order.
    candidates: Vec<CString>,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    /// Whether its process group takes the terminal's foreground before exec.
    pub foreground: bool,
    /// Whether the launcher waits to be told that it runs.
    pub reports_start: bool,
}

impl Command {
    /// Returns `None` if a text contains a NUL byte or there is no program. A program without a
    /// slash is looked up in `path`, inside the sandbox; an empty entry is not the working
    /// directory.
    pub fn new<A: AsRef<OsStr>>(
        argv: &[A],
        environment: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
        path: &OsStr,
    ) -> Option<Self> {
        let text = |bytes: &[u8]| CString::new(bytes).ok();
        let program = argv.first()?.as_ref().as_bytes();
        let candidates = if program.contains(&b'/') {
            vec![text(program)?]
        } else {
            path.as_bytes()
                .split(|&byte| byte == b':')
                .filter(|directory| !directory.is_empty() && !program.is_empty())
                .map(|directory| text(&[directory, b"/", program].concat()))
                .collect::<Option<_>>()?
        };
        let arguments = argv.iter().map(|argument| text(argument.as_ref().as_bytes()));
        let environment = environment
            .into_iter()
            .map(|(name, value)| text(&[name.as_ref().as_bytes(), b"=", value.as_ref().as_bytes()].concat()));
        Some(Self {
            candidates,
            arguments: arguments.collect::<Option<_>>()?,
            environment: environment.collect::<Option<_>>()?,
            foreground: false,
            reports_start: false,
        })
    }
}

/// The data of the child of [`start`], in the memory of the parent, which waits.
struct Launch<'a> {
    candidates: &'a [CString],
    arguments: Vec<*const libc::c_char>,
    environment: Vec<*const libc::c_char>,
    mask: &'a libc::sigset_t,
    foreground: bool,
    die_with_parent: bool,
    /// Set by the child if exec failed.
    errno: i32,
}

/// Starts the command, or returns the error of exec.
///
/// As with `posix_spawn`, the child uses the parent's memory and the parent sleeps until exec, so
/// no page is copied. `posix_spawn` itself cannot hand over the terminal before exec, and a shell
/// that starts in the background stops at once.
pub(crate) fn start(command: &Command, mask: &libc::sigset_t, die_with_parent: bool) -> Result<Pid> {
    let pointers = |texts: &[CString]| {
        let all = texts.iter().map(|text| text.as_ptr());
        all.chain([std::ptr::null()]).collect()
    };
    let mut launch = Launch {
        candidates: &command.candidates,
        arguments: pointers(&command.arguments),
        environment: pointers(&command.environment),
        mask,
        foreground: command.foreground,
        die_with_parent,
        errno: 0,
    };
    let mut stack = vec![0_u128; 2048];
    // SAFETY: one past the end of the buffer; the stack grows downwards from there, 16-aligned.
    let top = unsafe { stack.as_mut_ptr().add(stack.len()) };
    // SAFETY: CLONE_VFORK keeps this thread, and with it `launch` and `stack`, in place until the
    // child has executed or ended; all signals are blocked, so no handler runs on shared memory.
    // The child neither allocates nor panics: it makes system calls, directly or through rustix,
    // whose errors are plain numbers, and writes only to `launch.errno` and its own stack.
    let pid = unsafe {
        libc::clone(child, top.cast(), libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD, (&raw mut launch).cast())
    };
    sys::check(libc::c_long::from(pid))?;
    let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    // SAFETY: the child has written it, if at all, before this thread continued.
    match unsafe { (&raw const launch.errno).read_volatile() } {
        0 => Ok(pid),
        errno => {
            let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
            Err(Errno::from_raw_os_error(errno))
        }
    }
}

extern "C" fn child(launch: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `start` passes a `Launch` that no other thread uses until this process has executed.
    let launch = unsafe { &mut *launch.cast::<Launch<'_>>() };
    launch.errno = prepare_and_execute(launch).raw_os_error();
    127
}

fn prepare_and_execute(launch: &Launch<'_>) -> Errno {
    if launch.die_with_parent
        && let Err(errno) = privileges::die_with_parent()
    {
        return errno;
    }
    if let Err(errno) = rustix::process::setpgid(None, None) {
        return errno;
    }
    if launch.foreground {
        give_terminal(rustix::process::getpid());
    }
    // SAFETY: no handler is installed. Rust's runtime ignores SIGPIPE, which a guest must not
    // inherit.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    sys::restore_signals(launch.mask);
    execute(launch)
}

/// Puts a process group into the foreground of the controlling terminal, if there is one.
pub(crate) fn give_terminal(group: Pid) {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    if let Ok(terminal) = rustix::fs::open(c"/dev/tty", flags, rustix::fs::Mode::empty()) {
        set_foreground(&terminal, group);
    }
}

/// Tries the candidates as `execvp` does: a missing or forbidden one is skipped.
fn execute(launch: &Launch<'_>) -> Errno {
    let mut result = Errno::NOENT;
    for candidate in launch.candidates {
        match execute_one(candidate, launch) {
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCESS => result = Errno::ACCESS,
            errno => return errno,
        }
    }
    result
}

fn execute_one(program: &CStr, launch: &Launch<'_>) -> Errno {
    // SAFETY: both lists end with a null pointer and point to texts that `start`'s caller holds.
    unsafe { libc::execve(program.as_ptr(), launch.arguments.as_ptr(), launch.environment.as_ptr()) };
    sys::last_errno()
}
