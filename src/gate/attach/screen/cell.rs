//! One cell of a screen: its character, and the colours and attributes that it is drawn with.

use std::fmt::Write;

/// The number of combining characters that a cell keeps. Others are dropped, because the guest could
/// send any number of them.
const MAX_MARKS: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Colour {
    #[default]
    Default,
    Indexed(u8),
    Rgb(u8, u8, u8),
}

/// The colours and attributes that characters are written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pen {
    pub foreground: Colour,
    pub background: Colour,
    pub underline_colour: Colour,
    /// The underline's style as in `CSI 4 : n m`; 0 is none.
    pub underline: u8,
    /// Bit `n` is set for attribute `n` of SGR, see [`ATTRIBUTES`]. The underline is not among them.
    attributes: u16,
}

/// Bold, faint, italic, blink, inverse, hidden, struck through.
const ATTRIBUTES: [u8; 7] = [1, 2, 3, 5, 7, 8, 9];

impl Pen {
    pub fn set(&mut self, attribute: u8, is_on: bool) {
        let bit = 1_u16.checked_shl(u32::from(attribute)).unwrap_or_default();
        if is_on {
            self.attributes |= bit;
        } else {
            self.attributes &= !bit;
        }
    }

    /// Returns the pen of an erased cell, which keeps the background only.
    pub fn erased(self) -> Self {
        Pen { background: self.background, ..Pen::default() }
    }

    /// Appends the sequence that selects this pen, whatever the pen was before.
    pub fn write(self, out: &mut String) {
        out.push_str("\x1b[0");
        for attribute in ATTRIBUTES.into_iter().filter(|attribute| self.attributes >> attribute & 1 == 1) {
            let _ = write!(out, ";{attribute}");
        }
        match self.underline {
            0 => {}
            1 => out.push_str(";4"),
            style => {
                let _ = write!(out, ";4:{style}");
            }
        }
        write_colour(out, self.foreground, 30);
        write_colour(out, self.background, 40);
        write_colour(out, self.underline_colour, 50);
        out.push('m');
    }
}

/// Appends a colour's parameters; `base` is 30 for the foreground, 40 for the background and 50 for
/// the underline.
fn write_colour(out: &mut String, colour: Colour, base: u8) {
    let extended = base + 8;
    let _ = match colour {
        Colour::Default => Ok(()),
        Colour::Indexed(index @ 0..8) if base < 50 => write!(out, ";{}", base + index),
        Colour::Indexed(index @ 8..16) if base < 50 => write!(out, ";{}", base + 60 + index - 8),
        // Terminals that do not know this colour ignore it only if it is one parameter.
        Colour::Indexed(index) if base == 50 => write!(out, ";58:5:{index}"),
        Colour::Rgb(red, green, blue) if base == 50 => write!(out, ";58:2::{red}:{green}:{blue}"),
        Colour::Indexed(index) => write!(out, ";{extended};5;{index}"),
        Colour::Rgb(red, green, blue) => write!(out, ";{extended};2;{red};{green};{blue}"),
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    character: char,
    marks: [char; MAX_MARKS],
    /// 2 for a wide character, 0 for the cell to the right of one.
    pub width: u8,
    pub pen: Pen,
}

impl Cell {
    pub fn new(character: char, width: u8, pen: Pen) -> Self {
        Cell { character, marks: ['\0'; MAX_MARKS], width, pen }
    }

    pub fn blank(pen: Pen) -> Self {
        Cell::new(' ', 1, pen.erased())
    }

    pub fn add_mark(&mut self, mark: char) {
        if let Some(free) = self.marks.iter_mut().find(|mark| **mark == '\0') {
            *free = mark;
        }
    }

    pub fn is_blank(&self) -> bool {
        *self == Cell::blank(Pen::default())
    }

    /// Returns whether terminals may disagree about the number of columns that this cell takes.
    pub fn is_plain(&self) -> bool {
        self.character.is_ascii() && self.marks[0] == '\0'
    }

    pub fn write_text(&self, out: &mut String) {
        if self.width > 0 {
            out.push(self.character);
            out.extend(self.marks.iter().take_while(|mark| **mark != '\0'));
        }
    }
}
