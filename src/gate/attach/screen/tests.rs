//! Tests of the screen against itself and against another emulator, with output that programs and
//! hostile guests could write.

use std::num::NonZeroU16;

use proptest::collection::vec;
use proptest::prelude::*;
use vte::{Params, Perform};

use super::state::State;
use super::{Screen, reset_sequence};

/// Brings a terminal into a state as different from the usual as possible.
const MESS: &[u8] = b"\x1b[?1049hx\x1b[5;9r\x1b[?6h\x1b[4h\x1b[31;44;1;9mmess\x1b(0\x0e\x1b)0\x1b[?7l\x1b[?25l\x1b=\x1b[?1003h\x1b[?1006h\
    \x1b[?2004h\x1b[?1h\x1b7\x1b[5 q\x1b[>4;2m\x1b]0;mess\x07\x1b]52;c;";

fn screen(rows: u16, cols: u16, output: &[u8]) -> Screen {
    let mut screen = Screen::new(rows, cols);
    screen.process(output);
    screen
}

/// Shows a screen on a terminal in disorder, and returns that terminal.
fn redrawn(original: &Screen) -> Screen {
    let (rows, cols) = (original.state.rows() as u16, original.state.cols() as u16);
    let mut copy = screen(rows, cols, MESS);
    copy.process(&original.redraw());
    // A terminal can repeat only a character that it got.
    copy.state.last_character = original.state.last_character;
    copy
}

/// Describes everything that a user sees or that changes how later output and keys are understood.
fn described(state: &State) -> String {
    let shown = if state.is_alternate { 0..2 } else { 0..1 };
    let grids: Vec<String> = state.grids[shown]
        .iter()
        .map(|grid| {
            let cells = (0..grid.row_count()).flat_map(|row| (0..grid.cols()).map(move |col| (row, col)));
            let lines = cells.map(|(row, col)| format!("{row},{col} {:?}\n", grid.cell(row, col)));
            lines.collect()
        })
        .collect();
    let keyboard = |index: usize| state.keyboard[index].last().copied().unwrap_or_default();
    format!(
        "{}\ncursor {:?}\nsaved {:?}\nregion {:?}\nmodes {:?}\n{:?}",
        grids.concat(),
        state.cursor,
        state.saved[usize::from(state.is_alternate)],
        state.region,
        [1, 5, 7, 9, 25, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004].map(|mode| state.modes.is_set(mode)),
        (
            state.is_alternate,
            state.inserts,
            state.has_application_keypad,
            state.tab_stops.clone().unwrap_or_else(|| (8..state.cols()).step_by(8).collect()),
            state.cursor_shape,
            (keyboard(usize::from(state.is_alternate)), state.modify_other_keys),
        ),
    )
}

/// Returns output that is mostly control sequences: random bytes are seldom one.
fn output(max: usize) -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![4 => 0..12_u32, 2 => 0..110_u32, 1 => any::<u32>()];
    let csi = (
        prop::sample::select(vec!["", "?", ">", "<", "=", "!", " "]),
        vec(number, 0..4),
        prop::sample::select(vec![";", ":"]),
        prop_oneof![3 => prop::sample::select("@ABCDEFGHIJKLMPSTXZ`abdefghlmnqrsu".as_bytes()), 1 => 0x20..0x7f_u8],
    )
        .prop_map(|(prefix, numbers, separator, action)| {
            let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
            let (prefix, middle) = if prefix == "!" || prefix == " " { ("", prefix) } else { (prefix, "") };
            let mut sequence = format!("\x1b[{prefix}{}{middle}", numbers.join(separator)).into_bytes();
            sequence.push(action);
            sequence
        });
    let modes = vec![1, 5, 6, 7, 9, 25, 47, 1000, 1003, 1006, 1047, 1048, 1049, 2004];
    let mode = (prop::sample::select(modes), any::<bool>())
        .prop_map(|(mode, on)| format!("\x1b[?{mode}{}", if on { 'h' } else { 'l' }).into_bytes());
    let text = prop::sample::select(vec!["a", "lqqk", "汉字", "e\u{301}", "👩‍🚀", "ß", "\u{200b}", "word "])
        .prop_map(|text| text.as_bytes().to_vec());
    let escape = prop_oneof![
        prop::sample::select("78=>DEHMc".as_bytes()).prop_map(|byte| vec![0x1b, byte]),
        prop::sample::select(vec![
            "\x1b(0",
            "\x1b)0",
            "\x1b(B",
            "\x0e",
            "\x0f",
            "\x1b]0;title\x07",
            "\x1b]52;c;aGk=\x07"
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    let control = prop::sample::select(vec![8_u8, 9, 10, 11, 13]).prop_map(|byte| vec![byte]);
    let part = prop_oneof![4 => csi, 2 => mode, 5 => text, 3 => control, 2 => escape, 1 => vec(any::<u8>(), 0..6)];
    vec(part, 0..max).prop_map(|parts| parts.concat())
}

/// Returns whether output may show the alternate screen. A redraw of the main screen leaves the contents
/// and the saved cursor of the other one as they are.
fn shows_alternate(output: &[u8]) -> bool {
    let output = String::from_utf8_lossy(output);
    ["47", "1049"].iter().any(|mode| output.contains(mode))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_redraw_restores_the_whole_state(
        rows in 1..12_u16, cols in 1..20_u16, output in output(40), later in output(10), resized in prop::option::of((1..12_u16, 1..20_u16)),
    ) {
        let mut original = screen(rows, cols, &output);
        if let Some((rows, cols)) = resized {
            original.resize(rows, cols);
        }
        let mut copy = redrawn(&original);
        prop_assert_eq!(described(&original.state), described(&copy.state));
        if !shows_alternate(&later) {
            original.process(&later);
            copy.process(&later);
            prop_assert_eq!(original.text(), copy.text());
        }
    }

    #[test]
    fn no_output_causes_a_panic(
        size in (0..70_u16, 0..70_u16), chunks in vec((output(20), any::<Option<(u8, u8)>>()), 0..8), noise in vec(any::<u8>(), 0..300),
    ) {
        let mut screen = Screen::new(size.0, size.1);
        for (chunk, resized) in chunks {
            screen.process(&chunk);
            if let Some((rows, cols)) = resized {
                screen.resize(rows.into(), cols.into());
            }
            screen.redraw();
        }
        screen.process(&noise);
        screen.text();
    }

    #[test]
    fn a_redraw_sends_no_query_and_nothing_to_the_clipboard(output in output(40)) {
        let mut original = screen(6, 12, &output);
        // CAN ends a sequence that was cut off; its start would be sent as it is.
        original.process(b"\x18");
        let mut seen = Seen::default();
        vte::Parser::new().advance(&mut seen, &original.redraw());
        prop_assert_eq!(seen.forbidden, Vec::<String>::new());
    }

    #[test]
    fn output_may_be_divided_anywhere(output in output(12), at in any::<prop::sample::Index>(), rest in output(6)) {
        let at = at.index(output.len() + 1);
        let (first, second) = output.split_at(at);
        let mut original = screen(5, 12, first);
        let mut copy = redrawn(&original);
        original.process(second);
        copy.process(second);
        if shows_alternate(&[output.as_slice(), &rest].concat()) {
            return Ok(());
        }
        original.process(&rest);
        copy.process(&rest);
        prop_assert_eq!(original.text(), copy.text());
    }
}

/// Returns output that other emulators understand alike: the cursor is never past the last column, and
/// lines scroll without a background colour; neither a region nor a pen is carried over to the
/// other screen.
fn common_output() -> impl Strategy<Value = Vec<u8>> {
    let action = prop_oneof![
        4 => prop::sample::select(vec!["text", "e\u{301}", "\x1b[31mred", "\x1b[1;4mbold\x1b[0m", "\n", "\r", "\t", "\x08x"])
            .prop_map(str::to_owned),
        5 => (prop::sample::select("@ABCDEFGJKLMPSTXd`".chars().collect::<Vec<_>>()), 0..5_u16)
            .prop_map(|(action, count)| format!("\x1b[{}{action}", if "JK".contains(action) { count % 3 } else { count })),
        1 => (1..5_u16, 6..9_u16).prop_map(|(top, bottom)| format!("\x1b[{top};{bottom}r")),
        1 => prop::sample::select(vec!["\x1b[r\x1b[2;1H\x1bM\x1bM", "\x1b[?25l", "\x1b[?2004h", "\x1b[r\x1b[0m\x1b[?1049h", "\x1b[r\x1b[0m\x1b[?1049l"])
            .prop_map(str::to_owned),
    ];
    let placed =
        (1..12_u16, 1..12_u16, action).prop_map(|(row, col, action)| format!("\x1b[{row};{col}H{action}").into_bytes());
    vec(placed, 0..30).prop_map(|mut parts| {
        parts.push(b"\x1b[3;4H".to_vec());
        parts.concat()
    })
}

proptest! {
    #[test]
    fn another_emulator_shows_the_same(output in common_output()) {
        compare_with_vt100(9, 20, &output);
    }
}

/// Collects the sequences that a redraw must not contain.
#[derive(Default)]
struct Seen {
    forbidden: Vec<String>,
}

impl Perform for Seen {
    fn csi_dispatch(&mut self, _: &Params, intermediates: &[u8], _: bool, action: char) {
        let intermediates = String::from_utf8_lossy(intermediates).into_owned();
        let is_permitted = match intermediates.as_str() {
            "" => "HJGmrghl".contains(action),
            "?" => "hl".contains(action),
            " " => action == 'q',
            ">" => "um".contains(action),
            "=" => action == 'u',
            _ => false,
        };
        if !is_permitted {
            self.forbidden.push(format!("CSI {intermediates}{action}"));
        }
    }

    fn osc_dispatch(&mut self, params: &[&[u8]], _: bool) {
        if params.first() != Some(&b"2".as_slice()) {
            self.forbidden.push(format!("OSC {params:?}"));
        }
    }

    fn hook(&mut self, _: &Params, _: &[u8], _: bool, action: char) {
        self.forbidden.push(format!("DCS {action}"));
    }

    fn execute(&mut self, byte: u8) {
        if !b"\x08\x0e\x0f".contains(&byte) {
            self.forbidden.push(format!("control {byte}"));
        }
    }
}

fn vt100(rows: u16, cols: u16, output: &[u8]) -> vt100::Parser {
    let size = |size| NonZeroU16::new(size).expect("not 0");
    let mut parser = vt100::Parser::new(size(rows), size(cols), 0);
    parser.process(output);
    parser
}

/// Compares what another emulator makes of the output and of the redraw.
#[track_caller]
fn compare_with_vt100(rows: u16, cols: u16, output: &[u8]) {
    let redraw = screen(rows, cols, output).redraw();
    let (expected, got) = (vt100(rows, cols, output), vt100(rows, cols, &[MESS, &redraw].concat()));
    let (expected, got) = (expected.screen(), got.screen());
    for row in 0..rows {
        for col in 0..cols {
            let (expected, got) = (expected.cell(row, col).expect("a cell"), got.cell(row, col).expect("a cell"));
            let text =
                |cell: &vt100::Cell| if cell.contents().is_empty() { " ".into() } else { cell.contents().to_owned() };
            let look = |cell: &vt100::Cell| {
                // Terminals give an erased cell a background only, unlike this emulator.
                let pen = (cell.fgcolor(), cell.bold(), cell.dim(), cell.italic(), cell.underline(), cell.inverse());
                let pen = (text(cell) != " ").then_some(pen);
                (text(cell), cell.is_wide(), cell.bgcolor(), pen)
            };
            assert_eq!(look(got), look(expected), "row {row}, column {col}");
        }
    }
    let state = |screen: &vt100::Screen| {
        let cursor = (screen.cursor_position(), screen.hide_cursor(), screen.cursor_style());
        let mouse = (screen.mouse_protocol_mode(), screen.mouse_protocol_encoding());
        let keys = (screen.application_cursor(), screen.application_keypad(), screen.bracketed_paste());
        (screen.alternate_screen(), cursor, mouse, keys, screen.fgcolor(), screen.bgcolor(), screen.bold())
    };
    assert_eq!(state(got), state(expected));
}

#[test]
fn a_full_screen_program_is_redrawn() {
    let program = "$ editor\r\n\x1b[?1049h\x1b[?2004h\x1b[?1h\x1b=\x1b[?1000h\x1b[?1006h\x1b[2J\x1b[H\
        \x1b[1;37;44m File  Edit \x1b[K\x1b[0m\r\n\x1b[38;5;208morange\x1b[38;2;1;2;3mrgb\x1b[39m 汉字 e\u{301}\r\n\
        \x1b[3;4;7mstyled\x1b[0m\x1b[10;1H~\x1b[12;1H\x1b[2m-- INSERT --\x1b[0m\x1b[2;14r\x1b[5;7H\x1b[6 q\x1b[35m";
    compare_with_vt100(12, 40, program.as_bytes());
    compare_with_vt100(12, 40, format!("{program}\x1b[?25l").as_bytes());
}

#[test]
fn lines_of_a_shell_are_redrawn() {
    compare_with_vt100(5, 20, b"one\r\ntwo\r\n\x1b[32mthree\x1b[0m\r\nfour\r\nfive\r\nsix\r\n$ ");
    compare_with_vt100(3, 10, b"0123456789");
    compare_with_vt100(3, 10, b"0123456789wrapped");
    compare_with_vt100(3, 10, b"\x1b[99;99Hx\x1b[1;5H\x1b[99By\x1b[99A\x1b[99Dz");
}

#[test]
fn leaving_a_program_after_a_redraw_shows_the_main_screen() {
    let leave = b"\x1b[?1049l";
    let mut original = screen(6, 20, b"before\r\n$ edit\x1b[?1049h\x1b[HEDITOR");
    let mut copy = redrawn(&original);
    original.process(leave);
    copy.process(leave);
    assert_eq!(copy.text(), "before\n$ edit");
    assert_eq!(described(&copy.state), described(&original.state));
}

#[test]
fn line_drawing_characters_are_kept_as_unicode() {
    assert_eq!(screen(3, 10, b"\x1b(0lqk\x1b(B\r\nx\x1b)0\x0ex\x0fx").text(), "┌─┐\nx│x");
}

#[test]
fn a_title_is_short_and_has_no_control_characters() {
    let title = format!("\x1b]0;{}\x01;\u{9b}b\x07", "a".repeat(10_000));
    let kept = screen(3, 10, title.as_bytes()).state.title.expect("a title");
    assert_eq!(kept, "a".repeat(256));
    assert_eq!(screen(3, 10, b"\x1b]2;a;\x01b\x07").state.title.as_deref(), Some("a;b"));
}

#[test]
fn memory_for_strings_and_marks_is_bounded() {
    let mut screen = Screen::new(3, 10);
    screen.process(b"\x1b]52;c;");
    for _ in 0..100 {
        screen.process(&[b'A'; 10_000]);
    }
    assert!(screen.redraw().len() < 6000, "{}", screen.redraw().len());
    screen.process(b"\x07e");
    screen.process("\u{301}".repeat(10_000).as_bytes());
    screen.process(b"\x1b[c".repeat(10_000).as_slice());
    assert!(screen.redraw().len() < 2000, "{}", screen.redraw().len());
    assert!(screen.take_answers().len() <= 256);
}

#[test]
fn queries_are_answered_without_a_terminal() {
    let mut screen = screen(5, 10, b"ab\r\nc\x1b[6n\x1b[5n\x1b[c");
    assert_eq!(screen.take_answers(), b"\x1b[2;2R\x1b[0n\x1b[?62;22c");
    assert_eq!(screen.take_answers(), b"");
}

#[test]
fn a_lower_screen_keeps_the_rows_above_the_cursor() {
    let mut screen = screen(4, 10, b"1\r\n2\r\n3\r\n4");
    screen.resize(2, 10);
    assert_eq!(screen.text(), "3\n4");
    screen.resize(4, 10);
    screen.process(b"\r\n5");
    assert_eq!(screen.text(), "3\n4\n5");
}

#[test]
fn the_reset_sequence_keeps_text_and_cursor_of_the_main_screen() {
    let mut screen = screen(4, 10, b"text\x1b[31m\x1b[?1000h\x1b[2;3r\x1b[3;2H");
    screen.process(&reset_sequence());
    assert_eq!(screen.text(), "text");
    assert_eq!((screen.state.cursor.row, screen.state.cursor.col, screen.state.region.clone()), (2, 1, 0..4));
    assert!(!screen.state.modes.is_set(1000));
}
