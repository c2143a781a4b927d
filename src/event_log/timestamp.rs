//! Formats times: in UTC for records, and in the local time zone for people.

use std::time::{SystemTime, UNIX_EPOCH};

/// Formats a time in UTC according to RFC 3339.
pub fn timestamp(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Converts days to a civil date, in eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Formats a timestamp in the local time zone; returns it unchanged if it is none.
pub fn local_time(timestamp: &str) -> String {
    seconds(timestamp).and_then(local).unwrap_or_else(|| timestamp.to_owned())
}

/// Parses what [`timestamp`] wrote, in seconds since 1970.
fn seconds(timestamp: &str) -> Option<i64> {
    let number = |from: usize, to: usize| timestamp.get(from..to)?.parse::<i64>().ok();
    let is_form = timestamp.len() == 20 && timestamp.ends_with('Z');
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let year_of_era = shifted_year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = shifted_year.div_euclid(400) * 146_097 + day_of_era - 719_468;
    is_form.then_some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

fn local(seconds: i64) -> Option<String> {
    let time: libc::time_t = seconds;
    // SAFETY: `tm` is plain data, which the call fills; both pointers are valid during the call.
    let parts = unsafe {
        let mut parts: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&raw const time, &raw mut parts).is_null() {
            return None;
        }
        parts
    };
    Some(format!(
        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn at(seconds: u64) -> String {
        timestamp(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[test]
    fn times_are_civil() {
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_767_225_599), "2025-12-31T23:59:59Z");
        assert_eq!(local_time("yesterday"), "yesterday");
    }

    proptest! {
        #[test]
        fn times_are_read_as_they_were_written(time in 0u64..4_000_000_000) {
            prop_assert_eq!(seconds(&at(time)), i64::try_from(time).ok());
        }

        #[test]
        fn any_text_is_a_time_or_none(text in any::<String>()) {
            let _ = seconds(&text);
        }
    }
}
