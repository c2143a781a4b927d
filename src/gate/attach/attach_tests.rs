//! Tests of server and client together, on real pseudo-terminals.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::SIGTERM;

use super::client::{AttachEnd, AttachOptions, attach_stream, greet};
use super::frame::{ClientFrame, Decoder, Frame, LauncherFrame, VERSION};
use super::screen::Screen;
use super::server;
use super::terminals_for_tests::{Guest, LIMIT, SIGNALS, User, open_pty, set_size, size_of, spawn, stop};

const PROGRAM: &str = "$ editor\r\n\x1b[?1049h\x1b[?2004h\x1b[?1h\x1b=\x1b[?1000h\x1b[?1006h\x1b[2J\x1b[H\x1b[44m\x1b[1;37m Menu \
    \x1b[K\x1b[0m\r\n\x1b[38;5;208morange \x1b[38;2;1;2;3mrgb\x1b[0m 汉字 e\u{301}\x1b[12;1H\x1b[7mstatus\x1b[0m\x1b[2;11r\x1b[5;7H\x1b[6 q";

#[test]
fn a_full_screen_program_looks_the_same_after_a_detach() {
    let mut guest = Guest::start(24, 80);
    let mut first = guest.attach(12, 40);
    guest.wait_until_attached(true);
    guest.print(PROGRAM);
    guest.print("all");
    first.wait_for_text("all");
    let before = first.screen();
    first.type_keys(b"\x1dd");
    assert_eq!(first.end(), AttachEnd::Detached);
    first.wait_until_usual();
    guest.wait_until_attached(false);
    let mut second = guest.attach(12, 40);
    second.wait_for_screen(&before);
    // The scroll region is in effect too.
    guest.print("\x1b[11;1Hlast\nnew\x1b[6;1H");
    second.wait_for_text("new");
    assert!(second.emulator.screen().rows(0, 40).last().is_some_and(|row| row.starts_with("status")));
}

#[test]
fn real_programs_look_the_same_after_a_detach() {
    let programs: [&[&str]; 2] = [&["vim", "-u", "NONE", "-c", "set ruler laststatus=2"], &["less", "-S"]];
    for program in programs {
        let mut guest = Guest::start(24, 80);
        let text = guest.directory.path().join("text");
        let lines: String = (0..100).map(|line| format!("line {line} with some text\n")).collect();
        std::fs::write(&text, lines).expect("a file");
        let mut first = guest.attach(20, 60);
        guest.wait_until_attached(true);
        let Some(mut child) = spawn(&guest, program, &text) else { continue };
        first.wait_for_text("line 17");
        first.type_keys(b"\x06");
        first.wait_for_text("line 30");
        // A program that is stopped writes nothing more, so the mark comes last.
        stop(&child);
        guest.print("\x1b[1;1Hmark");
        first.wait_for_text("mark");
        let before = first.screen();
        first.type_keys(b"\x1dd");
        assert_eq!(first.end(), AttachEnd::Detached);
        let mut second = guest.attach(20, 60);
        second.wait_for_screen(&before);
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
}

#[test]
fn keys_and_sizes_reach_the_guest() {
    let mut guest = Guest::start(24, 80);
    assert_eq!(size_of(&guest.terminal), (24, 80));
    let mut user = guest.attach(10, 30);
    guest.wait_until_attached(true);
    assert_eq!(size_of(&guest.terminal), (10, 30));
    guest.print("$ ");
    user.wait_for_text("$");
    user.type_keys(b"a\x03\x1d\x1d\x1b[A");
    assert_eq!(guest.input(6), "a\x03\x1d\x1b[A");
    set_size(&user.slave, 11, 33);
    kill_process(getpid(), Signal::WINCH).expect("a signal");
    let limit = Instant::now() + LIMIT;
    while size_of(&guest.terminal) != (11, 33) {
        assert!(Instant::now() < limit, "the size is {:?}", size_of(&guest.terminal));
        thread::yield_now();
    }
}

#[test]
fn a_second_client_takes_over() {
    let mut guest = Guest::start(24, 80);
    let mut first = guest.attach(10, 30);
    guest.print("hello");
    first.wait_for_text("hello");
    let mut second = guest.attach(12, 40);
    assert_eq!(first.end(), AttachEnd::TakenOver);
    first.wait_until_usual();
    second.wait_for_text("hello");
    assert_eq!(size_of(&guest.terminal), (12, 40));
    second.type_keys(b"x");
    assert_eq!(guest.input(1), "x");
    guest.wait_until_attached(true);
}

#[test]
fn a_watcher_sees_and_does_not_type() {
    let mut guest = Guest::start(10, 30);
    let mut watcher = guest.watch(10, 30);
    guest.print("shown");
    watcher.wait_for_text("shown");
    watcher.type_keys(b"typed");
    let mut user = guest.attach(10, 30);
    user.wait_for_text("shown");
    guest.wait_until_attached(true);
    watcher.type_keys(b"typed");
    // The launcher does not trust a client to hold back keys.
    let (mut stream, _) = say_hello(&guest, VERSION);
    let mut keys = Vec::new();
    ClientFrame::Input(b"typed".to_vec()).encode(&mut keys);
    stream.write_all(&keys).expect("sent");
    assert!(!guest.has_input());
    user.type_keys(b"k");
    assert_eq!(guest.input(1), "k");
    guest.print("\r\nmore");
    watcher.wait_for_text("more");
    watcher.type_keys(b"\x03");
    assert_eq!(watcher.end(), AttachEnd::Detached);
    guest.wait_until_attached(true);
}

#[test]
fn the_seventeenth_watcher_is_refused() {
    let guest = Guest::start(10, 30);
    let watchers: Vec<UnixStream> = (0..16).map(|_| say_hello(&guest, VERSION).0).collect();
    assert_eq!(watchers.len(), 16);
    let mut last = guest.watch(10, 30);
    let end = last.end.recv_timeout(LIMIT).expect("an end");
    assert_eq!(end.expect_err("refused").to_string(), "cannot attach: 16 clients are watching already");
    last.show(Duration::ZERO);
    assert_eq!(last.emulator.screen().contents(), "");
}

/// Attaches to watch without reading anything after the first frame.
fn say_hello(guest: &Guest, version: u16) -> (UnixStream, LauncherFrame) {
    let mut stream = guest.connect();
    let mut hello = Vec::new();
    ClientFrame::Hello { version, rows: 10, cols: 30, read_only: true }.encode(&mut hello);
    let frame = greet(&mut stream, &hello, &mut Decoder::default()).expect("an answer");
    (stream, frame)
}

#[test]
fn another_version_is_refused() {
    let guest = Guest::start(10, 30);
    let (_, frame) = say_hello(&guest, 9);
    assert!(matches!(frame, LauncherFrame::Refused(reason) if reason.contains("protocol 1, not 9")));
}

#[test]
fn a_malformed_frame_ends_one_connection_only() {
    let mut guest = Guest::start(10, 30);
    let mut stream = guest.connect();
    stream.write_all(&[255; 100]).expect("sent");
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    assert_eq!(stream.read(&mut [0; 10]).expect("an end"), 0);
    let mut user = guest.attach(10, 30);
    guest.print("still here");
    user.wait_for_text("still here");
}

#[test]
fn a_slow_client_does_not_hold_up_the_guest() {
    let mut guest = Guest::start(10, 30);
    let (_stream, _) = say_hello(&guest, VERSION);
    let line = "0123456789abcdef\r\n".repeat(64);
    for _ in 0..8 * 1024 {
        guest.print(&line);
    }
    guest.print("\x1b[2J\x1b[Hlast screen");
    assert_eq!(guest.finish_in_thread(3).recv_timeout(LIMIT).as_deref(), Ok("last screen"));
}

#[test]
fn a_client_that_was_slow_sees_the_right_screen() {
    let mut guest = Guest::start(10, 30);
    let mut stream = guest.connect();
    let mut hello = Vec::new();
    ClientFrame::Hello { version: VERSION, rows: 10, cols: 30, read_only: false }.encode(&mut hello);
    stream.write_all(&hello).expect("sent");
    guest.wait_until_attached(true);
    for number in 0..40_000 {
        guest.print(format!(
            "\x1b[3{}mnumber {number} of a long list, which is more than a queue holds\r\n",
            number % 8
        ));
    }
    guest.print("\x1b[?1049h\x1b[4;5Hprogram");
    let mut expected = Screen::new(10, 30);
    expected.process(b"\x1b[?1049h\x1b[4;5Hprogram");
    let mut shown = Screen::new(10, 30);
    let mut decoder = Decoder::<LauncherFrame>::default();
    let mut buffer = vec![0; 64 * 1024];
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    while shown.text() != expected.text() {
        let length = stream.read(&mut buffer).expect("output");
        decoder.push(&buffer[..length]);
        while let Some(frame) = decoder.next_frame().expect("a frame") {
            if let LauncherFrame::Output(output) = frame {
                shown.process(&output);
            }
        }
    }
}

#[test]
fn a_guest_without_a_client_is_read_and_answered() {
    let mut guest = Guest::start(10, 30);
    for _ in 0..1000 {
        guest.print([b'x'; 4096]);
    }
    guest.print("\x1b[2J\x1b[3;4H\x1b[6n");
    assert_eq!(guest.input(6), "\x1b[3;4R");
    guest.print("done");
    assert_eq!(guest.finish(0).trim(), "done");
}

#[test]
fn the_end_reaches_the_client_after_all_output() {
    let mut guest = Guest::start(10, 30);
    let mut user = guest.attach(10, 30);
    guest.wait_until_attached(true);
    guest.print("almost\r\n");
    user.wait_for_text("almost");
    guest.print("over\r\n");
    assert_eq!(guest.finish(42), "almost\nover");
    assert_eq!(user.end(), AttachEnd::Ended(42));
    user.wait_for(|screen| screen.contents() == "almost\nover");
    user.wait_until_usual();
    assert!(!server::is_attached(guest.directory.path()));
}

#[test]
fn a_launcher_that_is_gone_ends_the_client() {
    let mut guest = Guest::start(10, 30);
    let mut user = guest.attach(10, 30);
    guest.wait_until_attached(true);
    guest.print(PROGRAM);
    user.wait_for(vt100::Screen::alternate_screen);
    drop(guest.server.take());
    assert_eq!(user.end(), AttachEnd::Lost);
    user.wait_until_usual();
}

#[test]
fn a_terminal_that_hangs_up_detaches() {
    let mut guest = Guest::start(10, 30);
    let user = guest.attach(10, 30);
    guest.wait_until_attached(true);
    let User { master, end, .. } = user;
    drop(master);
    assert_eq!(end.recv_timeout(LIMIT).expect("an end").expect("attached"), AttachEnd::Detached);
    guest.wait_until_attached(false);
    guest.print("on");
    assert_eq!(guest.finish(0), "on");
}

#[test]
fn a_terminal_that_hangs_up_before_raw_mode_detaches() {
    let (mut launcher, stream) = UnixStream::pair().expect("a connection");
    let (master, slave) = open_pty(10, 30);
    let client = thread::spawn(move || attach_stream(stream, slave.as_fd(), slave.as_fd(), AttachOptions::default()));
    launcher.set_read_timeout(Some(LIMIT)).expect("a timeout");
    assert_ne!(launcher.read(&mut [0; 100]).expect("the hello"), 0);
    drop(master);
    let mut welcome = Vec::new();
    LauncherFrame::Welcome.encode(&mut welcome);
    launcher.write_all(&welcome).expect("sent");
    let end = client.join().expect("no panic");
    assert_eq!(end.expect("attached"), AttachEnd::Detached);
}

#[test]
fn a_guest_that_closes_its_terminal_is_served() {
    let mut guest = Guest::start(10, 30);
    guest.print("text");
    let mut user = guest.attach(10, 30);
    user.wait_for_text("text");
    guest.terminal = File::open("/dev/null").expect("a file");
    user.type_keys(b"lost");
    user.type_keys(b"\x1dd");
    assert_eq!(user.end(), AttachEnd::Detached);
    assert_eq!(guest.finish(0), "text");
}

#[test]
fn other_keys_detach_if_they_are_chosen() {
    let guest = Guest::start(10, 30);
    let options = AttachOptions { detach_keys: "ctrl-p,ctrl-q".parse().expect("keys"), ..AttachOptions::default() };
    let mut user = guest.attach_with(10, 30, options);
    guest.wait_until_attached(true);
    user.wait_until_raw();
    user.type_keys(b"\x10\x11");
    assert_eq!(user.end(), AttachEnd::Detached);
}

#[test]
fn sigterm_ends_the_client_and_restores_the_terminal() {
    let alone = SIGNALS.write().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut guest = Guest::start_with(10, 30, Box::new(alone));
    let mut user = guest.attach(10, 30);
    guest.wait_until_attached(true);
    guest.print(PROGRAM);
    user.wait_for(vt100::Screen::alternate_screen);
    kill_process(getpid(), Signal::TERM).expect("a signal");
    assert_eq!(user.end(), AttachEnd::Signal(SIGTERM));
    user.wait_until_usual();
    guest.wait_until_attached(false);
}
