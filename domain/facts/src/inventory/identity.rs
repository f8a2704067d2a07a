//! What identifies a GPU for ever, and texts that stand for "no value".

use super::Seen;

/// A text that looks like a value and is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sentinel;

/// Refuses texts that drivers and firmware give instead of a value: `[N/A]`, `Unknown`, `0xFFFF`,
/// a UUID of question marks, a serial of zeros.
pub fn sentinel(text: &str) -> Result<&str, Sentinel> {
    const WORDS: [&str; 14] = [
        "",
        "n/a",
        "none",
        "null",
        "unknown",
        "unknown error",
        "not supported",
        "not specified",
        "not applicable",
        "default string",
        "system serial number",
        "to be filled by o.e.m.",
        "err!",
        "gpu requires reset",
    ];
    let text = text.trim();
    let bare = text.trim_matches(['[', ']']).to_ascii_lowercase();
    let digits = bare.strip_prefix("0x").unwrap_or(&bare);
    let all = |c: char| digits.len() > 1 && digits.chars().all(|other| other == c);
    if WORDS.contains(&bare.as_str()) || bare.contains('?') || digits == "0" || all('0') || all('f') {
        return Err(Sentinel);
    }
    Ok(text)
}

/// A GPU's UUID as NVIDIA drivers write it: `GPU-` and 8-4-4-4-12 hexadecimal digits. A text that
/// was cut short is none.
pub fn gpu_uuid(text: &str) -> Result<String, String> {
    let text = text.trim();
    let groups: Vec<&str> = text.split('-').collect();
    let lengths = groups.iter().skip(1).map(|group| group.len());
    let is_hex = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    let formed = lengths.eq([8, 4, 4, 4, 12]) && matches!(groups[0], "GPU" | "MIG");
    if !formed || !groups[1..].iter().all(is_hex) || groups[1..].iter().all(|group| sentinel(group).is_err())
    {
        return Err(format!("{text:?} is no GPU UUID"));
    }
    Ok(text.to_owned())
}

/// The first of UUID, serial number, and machine id with PCI address (decision D11). Only what is
/// absent is passed over: an identity that could not be read must not make a known GPU a new one.
pub fn identity(
    uuid: &Seen<String>,
    serial: &Seen<String>,
    machine: &Seen<String>,
    address: &str,
) -> Seen<String> {
    let placed = machine.clone().map(|machine| format!("machine-{machine}-pci-{address}"));
    let serial = serial.clone().map(|serial| format!("serial-{serial}"));
    [uuid.clone(), serial, placed]
        .into_iter()
        .find(|candidate| !matches!(candidate, Seen::Absent { .. }))
        .unwrap_or_else(|| Seen::absent("no UUID, no serial number and no machine id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_stand_for_nothing_are_no_values() {
        let nothing = [
            "",
            "[N/A]",
            "N/A",
            "[Unknown Error]",
            "0xFFFF",
            "ffff",
            "0",
            "0x0000",
            "GPU-????????-????",
            "[Not Supported]",
            "To Be Filled By O.E.M.",
        ];
        for text in nothing {
            assert_eq!(sentinel(text), Err(Sentinel), "{text:?}");
        }
        for text in ["1650522003820", "f", "MT4129", "0x1b", " NVIDIA H100 80GB HBM3\n"] {
            assert_eq!(sentinel(text), Ok(text.trim()), "{text:?}");
        }
    }

    #[test]
    fn a_uuid_has_its_form() {
        let check = |text: &str, good: bool| assert_eq!(gpu_uuid(text).is_ok(), good, "{text:?}");
        check("GPU-ad536355-482f-a87c-b081-8523fb3971c4\n", true);
        check("MIG-ad536355-482f-a87c-b081-8523fb3971c4", true);
        check("GPU-ad536355-482f-a87c-b081-8523fb3971", false);
        check("GPU-00000000-0000-0000-0000-000000000000", false);
        check("GPU-????????-????-????-????-????????????", false);
        check("ad536355-482f-a87c-b081-8523fb3971c4", false);
        check("GPU-", false);
        check("", false);
    }

    #[test]
    fn only_what_is_absent_is_passed_over() {
        let seen = |text: &str| Seen::new(text.to_owned(), "test");
        let absent = || Seen::absent("nothing");
        let failed = || Seen::failed("garbled");
        let check = |uuid, serial, machine, expect: Seen<String>| {
            assert_eq!(identity(&uuid, &serial, &machine, "0000:1b:00.0"), expect);
        };
        check(seen("GPU-1"), seen("7"), seen("m"), seen("GPU-1"));
        check(absent(), seen("7"), seen("m"), seen("serial-7"));
        check(absent(), absent(), seen("m"), seen("machine-m-pci-0000:1b:00.0"));
        check(failed(), seen("7"), seen("m"), failed());
        check(absent(), failed(), seen("m"), failed());
        check(absent(), absent(), absent(), Seen::absent("no UUID, no serial number and no machine id"));
    }
}
