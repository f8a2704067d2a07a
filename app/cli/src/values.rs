//! How flags are read: times, memory, arrays, dependencies, signals, ids.

use server::wire::{After, Array, Condition, Restart, RetryClass, Warn};
use units::{Bytes, GpuModel, GpuNameError, Nanos};

pub(crate) use crate::gpus::{Gpus, gpus};

/// A job, or members of an array job: `123`, `123_4`, `123_[0-9,12]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JobRef {
    /// The job.
    pub(crate) job: u64,
    /// Which members; none is all.
    pub(crate) indexes: Option<String>,
}

/// Reads [`JobRef`].
pub(crate) fn job_ref(text: &str) -> Result<JobRef, String> {
    let wrong = || format!("'{text}' is no job id; write for example 123, or 123_4 for a member of an array");
    // As kubectl names things.
    let text = text.strip_prefix("job/").unwrap_or(text);
    let (job, indexes) = match text.split_once('_') {
        Some((job, index)) => {
            let bare = index.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(index);
            let well = !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_digit() || b == b'-' || b == b',');
            (job, Some(well.then(|| bare.to_owned()).ok_or_else(wrong)?))
        }
        None => (text, None),
    };
    Ok(JobRef { job: job.parse().map_err(|_| wrong())?, indexes })
}

/// A time with a unit, or `UNLIMITED`, which is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<Nanos>);

/// Reads `90m`, `HH:MM:SS`, `UNLIMITED`.
pub(crate) fn limit(text: &str) -> Result<Limit, String> {
    if text.eq_ignore_ascii_case("unlimited") {
        return Ok(Limit(None));
    }
    let span: Nanos = text.parse().map_err(|error: units::QuantityError| error.to_string())?;
    if span == Nanos::ZERO {
        Err("a limit of no time ends every job at once".to_owned())
    } else {
        Ok(Limit(Some(span)))
    }
}

/// Reads a span with a unit.
pub(crate) fn span(text: &str) -> Result<Nanos, String> {
    text.parse().map_err(|error: units::QuantityError| error.to_string())
}

/// Reads a time as Slurm does: `30` is minutes, `4:00` minutes and seconds, `1-12` days and
/// hours; units are read as elsewhere.
pub(crate) fn slurm_limit(text: &str) -> Result<Limit, String> {
    if let Ok(limit) = limit(text) {
        return Ok(limit);
    }
    let wrong =
        || format!("'{text}' is no time; write MINUTES, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS");
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days.parse::<u64>().map_err(|_| wrong())?), rest),
        None => (None, text),
    };
    let fields: Vec<u64> = rest.split(':').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
    let (hours, minutes, seconds) = match (days, fields.as_slice()) {
        (None, &[minutes]) => (0, minutes, 0),
        (None, &[minutes, seconds]) => (0, minutes, seconds),
        (Some(_), &[hours]) => (hours, 0, 0),
        (Some(_), &[hours, minutes]) => (hours, minutes, 0),
        (_, &[hours, minutes, seconds]) => (hours, minutes, seconds),
        _ => return Err(wrong()),
    };
    let parts = [(days.unwrap_or(0), 86_400), (hours, 3_600), (minutes, 60), (seconds, 1)];
    let total = parts.iter().try_fold(0_u64, |sum, (count, unit)| sum.checked_add(count.checked_mul(*unit)?));
    match total {
        Some(total) if total > 0 && total < u64::MAX / 1_000_000_000 => {
            Ok(Limit(Some(Nanos::from_secs(total))))
        }
        _ => Err(wrong()),
    }
}

/// Memory, and the text it was read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The amount.
    pub(crate) bytes: Bytes,
    /// As written.
    pub(crate) text: String,
}

/// Reads `16GiB`, and `16G` as the same.
pub(crate) fn memory(text: &str) -> Result<Memory, String> {
    let bytes: Bytes = text.parse().map_err(|error: units::QuantityError| error.to_string())?;
    Ok(Memory { bytes, text: text.to_owned() })
}

/// A place in the queue: a number, or a class of urgency, for which the server knows the number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Priority {
    /// The number; 0 where a class tells it.
    pub(crate) number: i32,
    /// The class.
    pub(crate) class: Option<String>,
}

/// Reads `-10` and `high`.
pub(crate) fn priority(text: &str) -> Result<Priority, String> {
    if let Ok(number) = text.parse() {
        return Ok(Priority { number, class: None });
    }
    let is_name = text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && text.bytes().any(|byte| byte.is_ascii_alphabetic());
    let wrong = || format!("'{text}' is no priority; write a number, or the name of a class");
    is_name.then(|| Priority { number: 0, class: Some(text.to_owned()) }).ok_or_else(wrong)
}

/// What GPUs of a rehearsal are called where nothing was said of them.
pub(crate) const SIMULATED: &str = "simulated";

/// The models of a rehearsal's GPUs, one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SimulatedGpus(pub(crate) Vec<String>);

/// Reads `8`, `8:h100` and `4:h100,4:a100-sxm-80gb`.
pub(crate) fn simulated_gpus(text: &str) -> Result<SimulatedGpus, String> {
    /// More than one machine has.
    const MOST: usize = 1_024;
    let mut models = Vec::new();
    for part in text.split(',') {
        let (count, model) = match part.split_once(':') {
            Some((count, model)) => {
                let model: GpuModel = model.parse().map_err(|error: GpuNameError| error.to_string())?;
                (count, model.name())
            }
            None => (part, SIMULATED),
        };
        let count = count.parse().ok().filter(|count| (1..=MOST - models.len()).contains(count));
        let count = count
            .ok_or_else(|| format!("'{text}' is no count of GPUs; write 1 to {MOST}, and perhaps :MODEL"))?;
        models.resize(models.len() + count, model.to_owned());
    }
    Ok(SimulatedGpus(models))
}

/// The largest array that is written out index by index.
const MAX_STEPPED: u32 = 100_000;

/// Reads `0-99%8`, `1,3,5-9`, `0-20:5`.
pub(crate) fn array(text: &str) -> Result<Array, String> {
    let wrong = || format!("'{text}' is no array; write for example 0-99, 1,3,5-9, 0-20:5 or 0-99%8");
    let (indexes, most) = match text.split_once('%') {
        Some((indexes, most)) => {
            (indexes, Some(most.parse().ok().filter(|&most: &u32| most > 0).ok_or_else(wrong)?))
        }
        None => (text, None),
    };
    let mut parts = Vec::new();
    for part in indexes.split(',') {
        let (range, step) = match part.split_once(':') {
            Some((range, step)) => (range, step.parse().map_err(|_| wrong())?),
            None => (part, 1),
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) =
            (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
        if first > last || step == 0 || (step > 1 && (last - first) / step >= MAX_STEPPED) {
            return Err(wrong());
        }
        if step == 1 {
            parts.push(range.to_owned());
        } else {
            parts.extend((first..=last).step_by(step as usize).map(|index| index.to_string()));
        }
    }
    Ok(Array { indexes: parts.join(","), max_running: most })
}

/// Dependencies of one flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Afters(pub(crate) Vec<After>);

/// Reads `afterok:12:13,afterany:14`.
pub(crate) fn dependencies(text: &str) -> Result<Afters, String> {
    let mut afters = Vec::new();
    for part in text.split(',') {
        let (word, jobs) = part.split_once(':').ok_or_else(|| {
            format!(
                "'{part}' is no dependency; write for example afterok:12, afternotok:12:13 or afterany:12"
            )
        })?;
        let condition = match word {
            "afterok" => Condition::Ok,
            "afternotok" => Condition::NotOk,
            "afterany" => Condition::Any,
            _ => return Err(format!("'{word}' is no condition; there are afterok, afternotok and afterany")),
        };
        for job in jobs.split(':') {
            let job = job.parse().map_err(|_| format!("'{job}' in '{part}' is no job id"))?;
            afters.push(After { job, condition });
        }
    }
    Ok(Afters(afters))
}

/// Signals by name, as Linux numbers them on x86-64 and aarch64.
const SIGNALS: [(&str, u8); 10] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ABRT", 6),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
];

/// Reads `USR1`, `SIGUSR1` or `10`.
fn signal(text: &str) -> Result<u8, String> {
    let bare = text.strip_prefix("SIG").unwrap_or(text);
    let by_name = SIGNALS.iter().find(|(name, _)| *name == bare).map(|(_, number)| *number);
    by_name
        .or_else(|| text.parse().ok().filter(|number| (1..=64).contains(number)))
        .ok_or_else(|| format!("'{text}' is no signal; write for example USR1, TERM or 10"))
}

/// Reads `USR1@120`: a signal so many seconds, or a time with a unit, before the limit.
pub(crate) fn warning(text: &str) -> Result<Warn, String> {
    let bare = text.strip_prefix("B:").unwrap_or(text);
    let (name, before) = bare.split_once('@').unwrap_or((bare, "60"));
    let before = match before.parse::<u64>() {
        Ok(seconds) => Nanos::from_secs(seconds),
        Err(_) => span(before)?,
    };
    Ok(Warn { signal: signal(name)?, before_ns: before.0 })
}

/// Reads a stop signal.
pub(crate) fn stop_signal(text: &str) -> Result<u8, String> {
    signal(text)
}

/// Reads `key=value`.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("'{text}' is no label; write key=value")),
    }
}

/// Reads a class of end that is tried again.
pub(crate) fn retry_class(text: &str) -> Result<RetryClass, String> {
    Ok(match text {
        "failure" => RetryClass::Failure,
        "out-of-memory" => RetryClass::OutOfMemory,
        "time-limit" => RetryClass::TimeLimit,
        "start-failed" => RetryClass::StartFailed,
        "unknown" => RetryClass::Unknown,
        _ => {
            return Err(
                "the classes are failure, out-of-memory, time-limit, start-failed and unknown".to_owned()
            );
        }
    })
}

/// Reads when a service is started again.
pub(crate) fn restart(text: &str) -> Result<Restart, String> {
    Ok(match text {
        "always" => Restart::Always,
        "on-failure" => Restart::OnFailure,
        "never" => Restart::Never,
        _ => return Err("write always, on-failure or never".to_owned()),
    })
}

/// What a health check asks: a path over HTTP, or without one only for a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe(pub(crate) Option<String>);

/// Reads a health check: `tcp`, or a path that must answer 2xx.
pub(crate) fn health(text: &str) -> Result<Probe, String> {
    match text {
        "tcp" => Ok(Probe(None)),
        path if path.starts_with('/') => Ok(Probe(Some(path.to_owned()))),
        _ => Err("write tcp, or a path such as /healthz".to_owned()),
    }
}

/// Reads a moment: `now-7d`, `2026-11-30`, `2026-11-30T12:00` (local), or RFC 3339.
pub(crate) fn moment(text: &str) -> Result<jiff::Timestamp, String> {
    let wrong = || format!("'{text}' is no time; write now-7d, 2026-11-30, 2026-11-30T12:00 or RFC 3339");
    if let Some(back) = text.strip_prefix("now") {
        let now = jiff::Timestamp::now();
        let Some(back) = back.strip_prefix('-') else {
            return if back.is_empty() { Ok(now) } else { Err(wrong()) };
        };
        let back = std::time::Duration::from_nanos(span(back)?.0);
        return now.checked_sub(back).map_err(|_| wrong());
    }
    if let Ok(instant) = text.parse::<jiff::Timestamp>() {
        return Ok(instant);
    }
    let local: jiff::civil::DateTime = text.parse().map_err(|_| wrong())?;
    local.to_zoned_datetime(crate::when::zone()).map(|zoned| zoned.timestamp()).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_priority_is_a_number_or_a_class() {
        let check = |text: &str, expect: Option<(i32, Option<&str>)>| {
            let read = priority(text).ok();
            assert_eq!(read.as_ref().map(|one| (one.number, one.class.as_deref())), expect, "{text}");
        };
        check("-10", Some((-10, None)));
        check("high", Some((0, Some("high"))));
        check("p1-urgent", Some((0, Some("p1-urgent"))));
        check("99999999999", None);
        check("-high", None);
        check("", None);
    }

    #[test]
    fn job_ids() {
        let check = |text: &str, expect: Option<(u64, Option<&str>)>| {
            let expect = expect.map(|(job, indexes)| JobRef { job, indexes: indexes.map(str::to_owned) });
            assert_eq!(job_ref(text).ok(), expect, "{text}");
        };
        check("123", Some((123, None)));
        check("123_4", Some((123, Some("4"))));
        check("123_[0-9,12]", Some((123, Some("0-9,12"))));
        check("job/123", Some((123, None)));
        check("x", None);
        check("1_", None);
        check("1_x", None);
    }

    #[test]
    fn rehearsals_name_a_count_and_perhaps_a_model() {
        let check = |text: &str, expect: Option<&[(usize, &str)]>| {
            let models = |parts: &[(usize, &str)]| {
                let all = parts.iter().flat_map(|(count, model)| vec![(*model).to_owned(); *count]);
                SimulatedGpus(all.collect())
            };
            assert_eq!(simulated_gpus(text).ok(), expect.map(models), "{text}");
        };
        check("8", Some(&[(8, "simulated")]));
        check("8:h100", Some(&[(8, "H100-SXM-80GB")]));
        check("2:h100,1:a100-sxm-80gb", Some(&[(2, "H100-SXM-80GB"), (1, "A100-SXM-80GB")]));
        check("1024,1", None);
        check("0", None);
        check("70000", None);
        check("8:", None);
        check("8:no such card", None);
        check("h100:8", None);
    }

    #[test]
    fn gpus_are_a_number_and_perhaps_a_model() {
        let check = |text: &str, expect: Option<(u16, Option<&str>)>| {
            let read = gpus(text).ok().map(|gpus| (gpus.count, gpus.model.map(GpuModel::name)));
            assert_eq!(read, expect, "{text}");
        };
        let h100 = Some("H100-SXM-80GB");
        check("8", Some((8, None)));
        check("0", Some((0, None)));
        check("gpu", Some((1, None)));
        check("gpu:2", Some((2, None)));
        check("h100:8", Some((8, h100)));
        check("gpu:h100:2", Some((2, h100)));
        check("gpu:h100", Some((1, h100)));
        check("nvidia_h100_80gb_hbm3:4", Some((4, h100)));
        check("NVIDIA-H100-80GB-HBM3", Some((1, h100)));
        check("h100:many", None);
        check("no such card:1", None);
        check("a100:1", None);
        check("70000", None);
        check("", None);
        assert_eq!(gpus("8:h100"), Err("'8:h100' names the model last; write h100:8".to_owned()));
    }

    #[test]
    fn times_with_units_and_as_slurm_reads_them() {
        let secs = |read: Result<Limit, String>| read.ok().map(|limit| limit.0.map(Nanos::as_secs));
        for (text, plain, slurm) in [
            ("90m", Some(Some(5_400)), Some(Some(5_400))),
            ("01:00:00", Some(Some(3_600)), Some(Some(3_600))),
            ("30", None, Some(Some(1_800))),
            ("4:00", None, Some(Some(240))),
            ("1-12", None, Some(Some(129_600))),
            ("1-12:30", None, Some(Some(131_400))),
            ("UNLIMITED", Some(None), Some(None)),
            ("0", None, None),
            ("0s", None, None),
            ("soon", None, None),
            ("99999999999999999999", None, None),
        ] {
            assert_eq!(secs(limit(text)), plain, "{text}");
            assert_eq!(secs(slurm_limit(text)), slurm, "{text} by -t");
        }
    }

    #[test]
    fn arrays() {
        let check = |text: &str, expect: Option<(&str, Option<u32>)>| {
            let read = array(text).ok().map(|array| (array.indexes, array.max_running));
            assert_eq!(read, expect.map(|(indexes, most)| (indexes.to_owned(), most)), "{text}");
        };
        check("0-99%8", Some(("0-99", Some(8))));
        check("1,3,5-9", Some(("1,3,5-9", None)));
        check("0-20:5", Some(("0,5,10,15,20", None)));
        check("9-1", None);
        check("0-9%0", None);
        check("0-9:0", None);
        check("", None);
    }

    #[test]
    fn dependencies_in_slurms_words() {
        let ok = |job| After { job, condition: Condition::Ok };
        let any = |job| After { job, condition: Condition::Any };
        assert_eq!(dependencies("afterok:12:13,afterany:14").unwrap().0, [ok(12), ok(13), any(14)]);
        assert!(dependencies("after:12").is_err());
        assert!(dependencies("afterok").is_err());
        assert!(dependencies("afterok:").is_err());
    }

    #[test]
    fn warnings_before_the_limit() {
        let check = |text: &str, expect: Option<(u8, u64)>| {
            let read = warning(text).ok().map(|warn| (warn.signal, warn.before_ns / 1_000_000_000));
            assert_eq!(read, expect, "{text}");
        };
        check("USR1@120", Some((10, 120)));
        check("B:SIGUSR2@2m", Some((12, 120)));
        check("10", Some((10, 60)));
        check("0@10", None);
        check("NOPE@10", None);
    }

    #[test]
    fn moments() {
        assert!(moment("now-7d").unwrap() < jiff::Timestamp::now());
        assert_eq!(moment("1970-01-01T00:00:01Z").unwrap().as_second(), 1);
        assert!(moment("2026-11-30").is_ok());
        assert!(moment("yesterday").is_err());
        assert!(moment("nowish").is_err());
    }
}
