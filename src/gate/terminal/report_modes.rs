//! The modes in which a terminal sends bytes that nobody has typed: movements of the mouse, changes of
//! the focus, the size or the colours, and marks around pasted text.

/// The private modes (`CSI ? n h`) that let a terminal report something by itself. Modes that only
/// choose the form of a report send nothing alone.
const MODES: [u16; 9] = [9, 1000, 1001, 1002, 1003, 1004, 2004, 2031, 2048];

/// Which of them a guest has turned on.
#[derive(Debug, Default)]
pub struct ReportModes([bool; MODES.len()]);

impl ReportModes {
    /// Follows a control sequence.
    pub fn follow(&mut self, marker: u8, parameters: &[u16], last: u8) {
        if marker != b'?' || !matches!(last, b'h' | b'l') {
            return;
        }
        for (is_on, mode) in self.0.iter_mut().zip(MODES) {
            if parameters.contains(&mode) {
                *is_on = last == b'h';
            }
        }
    }

    /// Appends what turns off those that are on.
    pub fn write_off(&self, out: &mut Vec<u8>) {
        self.write(out, 'l');
    }

    /// Appends what turns them on again.
    #[cfg(target_os = "linux")]
    pub fn write_on(&self, out: &mut Vec<u8>) {
        self.write(out, 'h');
    }

    fn write(&self, out: &mut Vec<u8>, last: char) {
        let is_on = MODES.into_iter().zip(self.0).filter(|(_, is_on)| *is_on);
        is_on.for_each(|(mode, _)| out.extend_from_slice(format!("\x1b[?{mode}{last}").as_bytes()));
    }
}
