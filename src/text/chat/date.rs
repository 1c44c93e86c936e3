//! Python's `strftime` for chat templates that write today's date. The caller passes the time; this code has no clock.

use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// A date and time in the proleptic Gregorian calendar.
struct Moment {
    year: i64,
    /// 1 to 12.
    month: usize,
    /// 1 to 31.
    day: i64,
    /// 0 to 365.
    day_of_year: i64,
    /// 0 is Sunday.
    weekday: usize,
    second_of_day: i64,
}

impl Moment {
    /// Days to year, month and day by Howard Hinnant's "chrono-compatible low-level date algorithms" (`civil_from_days`). Years begin in
    /// March there, so the leap day is the last.
    fn new(unix_seconds: i64) -> Self {
        let days = unix_seconds.div_euclid(86_400);
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_from_march + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        let day_of_year = if month <= 2 { day_from_march - 306 } else { day_from_march + 59 + i64::from(leap) };
        Self {
            year,
            month: month as usize,
            day: day_from_march - (153 * month_from_march + 2) / 5 + 1,
            day_of_year,
            weekday: (days + 4).rem_euclid(7) as usize,
            second_of_day: unix_seconds.rem_euclid(86_400),
        }
    }

    /// The week of the year. Weeks begin on the weekday `first` (0 is Sunday), and the days before the first of these are week 0.
    fn week(&self, first: i64) -> i64 {
        let since_first = (self.weekday as i64 - first).rem_euclid(7);
        (self.day_of_year + 7 - since_first) / 7
    }
}

/// Formats local time as Python's `datetime.strftime` does. Directives with `-` (no padding) are glibc's.
pub(super) fn strftime(format: &str, local_unix_seconds: i64) -> Result<String, Error> {
    let moment = Moment::new(local_unix_seconds);
    let mut text = String::with_capacity(format.len() * 2);
    write_directives(format, &moment, &mut text)?;
    Ok(text)
}

fn write_directives(format: &str, moment: &Moment, text: &mut String) -> Result<(), Error> {
    let mut rest = format.chars();
    while let Some(character) = rest.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let mut directive = rest.next();
        let unpadded = directive == Some('-');
        if unpadded {
            directive = rest.next();
        }
        let mut number = |value: i64, width: usize| {
            let width = if unpadded { 0 } else { width };
            text.push_str(&format!("{value:0width$}"));
        };
        let hour = moment.second_of_day / 3_600;
        let minute = moment.second_of_day / 60 % 60;
        let second = moment.second_of_day % 60;
        let hour_of_12 = (hour + 11) % 12 + 1;
        match directive {
            Some('Y') => number(moment.year, 0),
            Some('y') => number(moment.year.rem_euclid(100), 2),
            Some('m') => number(moment.month as i64, 2),
            Some('d') => number(moment.day, 2),
            Some('H') => number(hour, 2),
            Some('I') => number(hour_of_12, 2),
            Some('M') => number(minute, 2),
            Some('S') => number(second, 2),
            Some('f') => number(0, 6),
            Some('j') => number(moment.day_of_year + 1, 3),
            Some('w') => number(moment.weekday as i64, 0),
            Some('u') => number((moment.weekday as i64 + 6) % 7 + 1, 0),
            Some('U') => number(moment.week(0), 2),
            Some('W') => number(moment.week(1), 2),
            Some('e') if unpadded => number(moment.day, 0),
            Some('e') => text.push_str(&format!("{:2}", moment.day)),
            Some('B') => text.push_str(MONTHS[moment.month - 1]),
            Some('b' | 'h') => text.push_str(&MONTHS[moment.month - 1][..3]),
            Some('A') => text.push_str(WEEKDAYS[moment.weekday]),
            Some('a') => text.push_str(&WEEKDAYS[moment.weekday][..3]),
            Some('p') => text.push_str(if hour < 12 { "AM" } else { "PM" }),
            Some('F') => write_directives("%Y-%m-%d", moment, text)?,
            Some('T' | 'X') => write_directives("%H:%M:%S", moment, text)?,
            Some('R') => write_directives("%H:%M", moment, text)?,
            Some('D' | 'x') => write_directives("%m/%d/%y", moment, text)?,
            Some('c') => write_directives("%a %b %e %H:%M:%S %Y", moment, text)?,
            // `datetime.now()` has no time zone, so Python writes nothing.
            Some('Z' | 'z') => {}
            Some('n') => text.push('\n'),
            Some('t') => text.push('\t'),
            Some('%') => text.push('%'),
            other => {
                let directive = other.map(String::from).unwrap_or_default();
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    format!("strftime_now({format:?}) has the directive %{directive}, which is not supported"),
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_python() {
        // python3 -c 'import datetime as d; print(d.datetime.utcfromtimestamp(N).strftime(F))'
        let all = "%Y-%m-%d %H:%M:%S %j %w %U %W %A %B %I %p %y";
        for (seconds, wanted) in [
            (0, "1970-01-01 00:00:00 001 4 00 00 Thursday January 12 AM 70"),
            (1_752_148_799, "2025-07-10 11:59:59 191 4 27 27 Thursday July 11 AM 25"),
            (951_782_400, "2000-02-29 00:00:00 060 2 09 09 Tuesday February 12 AM 00"),
            (1_735_689_599, "2024-12-31 23:59:59 366 2 52 53 Tuesday December 11 PM 24"),
            (-1, "1969-12-31 23:59:59 365 3 52 52 Wednesday December 11 PM 69"),
        ] {
            assert_eq!(strftime(all, seconds).unwrap(), wanted);
        }
        assert_eq!(strftime("%-d %b %e %-m %% %F", 1_751_500_800).unwrap(), "3 Jul  3 7 % 2025-07-03");
    }

    #[test]
    fn an_unknown_directive_is_an_error() {
        assert!(strftime("%Q", 0).is_err());
        assert!(strftime("100%", 0).is_err());
    }
}
