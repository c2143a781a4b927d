//! Parses the parameters of `CSI … m`, which select colours and attributes.

use vte::Params;

use super::cell::{Colour, Pen};

/// Applies the parameters to a pen. Unknown ones are skipped.
pub fn apply(pen: &mut Pen, params: &Params) {
    let mut params = params.iter();
    while let Some(param) = params.next() {
        let (code, detail) = match param {
            [] => continue,
            [code, detail @ ..] => (*code, detail),
        };
        match code {
            0 => *pen = Pen::default(),
            4 if !detail.is_empty() => pen.underline = detail.first().map_or(1, |style| (*style).min(5) as u8),
            4 => pen.underline = 1,
            21 => pen.underline = 2,
            24 => pen.underline = 0,
            // Fast blinking is shown as blinking.
            6 => pen.set(5, true),
            1..=9 => pen.set(code as u8, true),
            22 => {
                pen.set(1, false);
                pen.set(2, false);
            }
            23 | 25 | 27..=29 => pen.set((code - 20) as u8, false),
            30..=37 => pen.foreground = Colour::Indexed((code - 30) as u8),
            40..=47 => pen.background = Colour::Indexed((code - 40) as u8),
            90..=97 => pen.foreground = Colour::Indexed((code - 82) as u8),
            100..=107 => pen.background = Colour::Indexed((code - 92) as u8),
            39 => pen.foreground = Colour::Default,
            49 => pen.background = Colour::Default,
            59 => pen.underline_colour = Colour::Default,
            38 | 48 | 58 => {
                let colour = if detail.is_empty() {
                    colour(&mut params.by_ref().map(|param| param.first().copied().unwrap_or_default()))
                } else {
                    colour_of_subparams(detail)
                };
                let Some(colour) = colour else { continue };
                match code {
                    38 => pen.foreground = colour,
                    48 => pen.background = colour,
                    _ => pen.underline_colour = colour,
                }
            }
            _ => {}
        }
    }
}

/// Parses `5 ; index` or `2 ; red ; green ; blue`, and takes no more numbers than these.
fn colour(numbers: &mut dyn Iterator<Item = u16>) -> Option<Colour> {
    let mut next = || numbers.next().and_then(|number| u8::try_from(number).ok());
    match next()? {
        5 => next().map(Colour::Indexed),
        2 => Some(Colour::Rgb(next()?, next()?, next()?)),
        _ => None,
    }
}

/// Parses `5:index`, `2:red:green:blue` or `2:space:red:green:blue`.
fn colour_of_subparams(detail: &[u16]) -> Option<Colour> {
    match detail {
        [2, _, rest @ ..] if rest.len() >= 3 => colour(&mut [2].iter().chain(rest).copied()),
        detail => colour(&mut detail.iter().copied()),
    }
}
