//! Asks on the terminal which hunks are taken over, with the keys of `git add -p`.

use super::find::{Found, shown};
use super::pager::DiffFilter;
use super::patch::{Look, Patch};
use crate::error::Result;
use crate::gate::workspace::{Content, FileReview, State, shown as shown_path};
use crate::ui::Ui;

const HELP: &str = "y: take this  n: leave it  a: take it and the rest of the file  d: leave it and the rest of the file  q: leave all that follow";

/// What was chosen for one file.
pub enum Chosen {
    None,
    All,
    Hunks(Vec<usize>),
}

/// Asks about one file; `None` ends the questions.
pub fn choose(
    found: &Found,
    file: &FileReview,
    colours: bool,
    filter: Option<&DiffFilter<'_>>,
    ui: Ui,
) -> Result<Option<Chosen>> {
    let mut head = Patch::new(Look::Terminal { colours });
    head.file(&found.copy, file);
    let Content::Text(hunks) = &file.content else {
        ui.bytes(&head.text)?;
        return Ok(match ask(ui, "take this file?")? {
            'y' | 'a' => Some(Chosen::All),
            'q' => None,
            _ => Some(Chosen::None),
        });
    };
    let path = shown_path(&shown(&found.copy, file.tree, &file.path));
    ui.bytes(format!("\n{}\n", crate::ui::escape::escape(&path)).as_bytes())?;
    if let State::Conflict(reason) = &file.state {
        ui.bytes(format!("conflict: {}\n", crate::ui::escape::escape(reason)).as_bytes())?;
    }
    let mut parts: Vec<Vec<u8>> = Vec::new();
    for hunk in hunks {
        let mut shown = Patch::new(Look::Terminal { colours });
        shown.hunk(hunk);
        parts.push(shown.text);
    }
    match filter.map(|filter| filter.lines(&head.text)) {
        None => {}
        Some(Some(lines)) => parts = divided(&lines, &parts),
        Some(None) => ui.warn("`interactive.diffFilter` failed, or wrote another number of lines: shown without it"),
    }
    let mut chosen = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        ui.bytes(part)?;
        match ask(ui, &format!("({}/{}) take this hunk?", number + 1, hunks.len()))? {
            'y' => chosen.push(number),
            'a' => {
                chosen.extend(number..hunks.len());
                break;
            }
            'd' => break,
            'q' => return Ok(if chosen.is_empty() { None } else { Some(Chosen::Hunks(chosen)) }),
            _ => {}
        }
    }
    Ok(Some(match chosen.len() {
        0 => Chosen::None,
        count if count == hunks.len() => Chosen::All,
        _ => Chosen::Hunks(chosen),
    }))
}

/// Divides the filtered lines of a file into its hunks, which are at its end.
fn divided(lines: &[Vec<u8>], parts: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let length = |part: &Vec<u8>| part.iter().filter(|byte| **byte == b'\n').count();
    let mut rest = &lines[lines.len().saturating_sub(parts.iter().map(length).sum())..];
    let take = |part: &Vec<u8>| {
        let (taken, after) = rest.split_at(length(part).min(rest.len()));
        rest = after;
        taken.concat()
    };
    parts.iter().map(take).collect()
}

fn ask(ui: Ui, question: &str) -> Result<char> {
    loop {
        let Some(answer) = ui.prompt(&format!("{question} [y,n,a,d,q,?] "))? else { return Ok('q') };
        match answer.trim() {
            "y" => return Ok('y'),
            "n" => return Ok('n'),
            "a" => return Ok('a'),
            "d" => return Ok('d'),
            "q" => return Ok('q'),
            _ => ui.bytes(format!("{HELP}\n").as_bytes())?,
        }
    }
}
