//! Erases the launcher's command line from its forks, which a guest would read in `/proc/1/cmdline`.

/// The name that is left.
const NAME: &[u8] = b"sandpen";

/// The memory that `/proc/PID/cmdline` shows; empty if the kernel does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ArgumentArea {
    start: usize,
    length: usize,
}

impl ArgumentArea {
    /// Reads fields 48 and 49 of `/proc/self/stat`.
    pub(crate) fn of_this_process() -> Self {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self::parse(&stat).unwrap_or_default()
    }

    fn parse(stat: &str) -> Option<Self> {
        // The command's name (field 2) may contain anything, so fields are counted from its last `)`.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(45);
        let (start, end): (usize, usize) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(ArgumentArea { start, length: end.checked_sub(start)? })
    }

    /// Overwrites it. Makes no system call and allocates nothing.
    ///
    /// # Safety
    /// It must be the area of this process or of the one that it is a fork of, and nothing may read it
    /// any more.
    pub(crate) unsafe fn erase(self) {
        for offset in 0..self.length {
            let byte = NAME.get(offset).copied().filter(|_| offset + 1 < self.length).unwrap_or(0);
            // SAFETY: as the caller guarantees; the kernel maps the area writable.
            unsafe { std::ptr::with_exposed_provenance_mut::<u8>(self.start + offset).write_volatile(byte) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_area_is_that_of_the_command_line() {
        let area = ArgumentArea::of_this_process();
        let shown = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        assert_eq!(area.length, shown.len());
        assert_eq!(ArgumentArea::parse("1 (a) b) S 1"), None);
    }
}
