//! Compares the screen of a detached program with that of the same program on a terminal of its own,
//! in a terminal emulator.

use std::num::NonZeroU16;

use super::attach;
use crate::for_docker_and_native;
use crate::support::pty::Pty;
use crate::support::{Fixture, RunToEnd, eventually};

for_docker_and_native!(a_full_screen_program_looks_the_same_after_a_detach);

/// Draws a screen with everything that a full-screen program uses, when it is told to, and scrolls a
/// part of it. The text that tells that it is complete comes last.
const DRAWER: &str = r"#!/bin/bash
stty -echo
printf 'main screen\n'
while read -r word; do
    case $word in
    draw)
        printf '\e[?1049h\e[2J\e[H\e]0;a title\a\e[?1h\e=\e[?2004h\e[?1002h\e[?1006h'
        for color in {0..15}; do printf '\e[38;5;%dm#\e[48;5;%dm ' $color $((color + 100)); done
        printf '\e[0m\e[3;1H\e[38;2;10;20;30;48;2;200;100;50mtrue colours\e[0m'
        printf '\e[5;20H\e[1mbold\e[0m \e[3mitalic\e[0m \e[4munderlined\e[0m \e[7minverse\e[0m \e[2mdim\e[0m'
        printf '\e[7;1H\xe6\xbc\xa2\xe5\xad\x97 gr\xc3\xbcn e\xcc\x81 \e[7;95Hto the end'
        printf '\e[30;1H\e[44;97m%-100s\e[0m' ' a status line'
        printf '\e[10;20r\e[10;1H'; for line in {1..30}; do printf 'line %d\e[K\r\n' $line; done
        printf '\e[12;5H\e[?25l\e[33mdrawn'
        ;;
    scroll) printf '\e[20;1Hbelow\r\n\n\e[?25h\e[15;40Hscrolled' ;;
    end) exit 5 ;;
    esac
done
";

/// What is compared: each cell with its colours and attributes, the cursor, and the modes.
#[derive(Debug, PartialEq, Eq)]
struct Picture {
    lines: Vec<String>,
    cells: Vec<String>,
    cursor: (u16, u16),
    modes: String,
}

fn picture(pty: &Pty) -> Picture {
    let size = |size| NonZeroU16::new(size).expect("not 0");
    let mut parser = vt100::Parser::new(size(30), size(100), 0);
    parser.process(pty.said().as_bytes());
    let screen = parser.screen();
    let cell = |row, column| {
        let cell = screen.cell(row, column).expect("a cell");
        let text = if cell.has_contents() { cell.contents() } else { " " };
        let attributes = [cell.bold(), cell.dim(), cell.italic(), cell.underline(), cell.inverse(), cell.is_wide()];
        format!("{row}:{column} {text:?} {:?} {:?} {attributes:?}", cell.fgcolor(), cell.bgcolor())
    };
    Picture {
        lines: screen.rows(0, 100).collect(),
        cells: (0..30).flat_map(|row| (0..100).map(move |column| cell(row, column))).collect(),
        cursor: screen.cursor_position(),
        modes: format!(
            "{} {} {} {} {} {:?} {:?}",
            screen.alternate_screen(),
            screen.hide_cursor(),
            screen.application_cursor(),
            screen.application_keypad(),
            screen.bracketed_paste(),
            screen.mouse_protocol_mode(),
            screen.mouse_protocol_encoding()
        ),
    }
}

/// Waits until the terminal shows the picture.
#[track_caller]
fn assert_shows(pty: &Pty, expected: &Picture, what: &str) {
    let mut shown = picture(pty);
    let end = std::time::Instant::now() + crate::support::TIMEOUT;
    while shown != *expected && std::time::Instant::now() < end {
        std::thread::sleep(std::time::Duration::from_millis(50));
        shown = picture(pty);
    }
    assert_eq!(shown.lines, expected.lines, "{what}");
    let differing = shown.cells.iter().zip(&expected.cells).find(|(shown, expected)| shown != expected);
    assert_eq!(differing, None, "{what}");
    assert_eq!((shown.cursor, shown.modes), (expected.cursor, expected.modes.clone()), "{what}");
}

/// Returns what the program shows on a terminal of its own, once `shows` holds.
fn reference(pty: &mut Pty, word: &str, text: &str) -> Picture {
    pty.send(&format!("{word}\r"));
    eventually("the program has drawn", || picture(pty).lines.iter().any(|line| line.contains(text)));
    picture(pty)
}

fn a_full_screen_program_looks_the_same_after_a_detach(fixture: &Fixture) {
    fixture.write_script("project/drawer", DRAWER);
    let mut direct = Pty::start(&fixture.host_command("./drawer"));
    direct.expect("main screen");
    let drawn = reference(&mut direct, "draw", "drawn");
    let scrolled = reference(&mut direct, "scroll", "scrolled");
    assert!(drawn != scrolled && drawn.modes.starts_with("true true true"), "{}", drawn.modes);
    let id = fixture.run().args(["-d", "--", "./drawer"]).finish().success().trim().to_owned();
    let mut pty = attach(fixture, &id, &[]);
    pty.expect("main screen");
    pty.send("draw\r");
    assert_shows(&pty, &drawn, "attached");
    pty.send("\u{1d}d");
    pty.expect("[ended 0]");
    // The caller's terminal is as it was.
    let after = picture(&pty);
    assert!(after.modes.starts_with("false false false false false None"), "{}", after.modes);
    let mut pty = attach(fixture, &id, &[]);
    assert_shows(&pty, &drawn, "attached again");
    let watcher = attach(fixture, &id, &["--read-only"]);
    assert_shows(&watcher, &drawn, "watched");
    // The region in which it scrolls, and the pen, are those of before.
    pty.send("scroll\r");
    assert_shows(&pty, &scrolled, "scrolled after a detach");
    assert_shows(&watcher, &scrolled, "scrolled while watched");
    pty.send("end\r");
    pty.expect("[ended 5]");
}
