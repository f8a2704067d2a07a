//! When somebody is told: our words and Slurm's.

use server::wire::{Notify, Occasion};

const END: [Occasion; 3] = [Occasion::Completed, Occasion::Failed, Occasion::Cancelled];
const ALL: [Occasion; 6] = [
    Occasion::Started,
    Occasion::Completed,
    Occasion::Failed,
    Occasion::Cancelled,
    Occasion::Preempted,
    Occasion::Leaked,
];

/// Reads `failed,preempted=https://example.org/hook`.
pub(crate) fn notify(text: &str) -> Result<Notify, String> {
    let (when, to) =
        text.split_once('=').filter(|(when, to)| !when.is_empty() && !to.is_empty()).ok_or_else(|| {
            format!("'{text}' does not say when and whom; write for example failed=ada@example.org")
        })?;
    let words = when.split(',').map(ours).collect::<Result<Vec<_>, _>>()?;
    Ok(Notify { on: words.concat(), to: to.to_owned() })
}

fn ours(word: &str) -> Result<Vec<Occasion>, String> {
    Ok(match word {
        "start" | "started" => vec![Occasion::Started],
        "end" | "ended" => END.to_vec(),
        "completed" => vec![Occasion::Completed],
        "fail" | "failed" => vec![Occasion::Failed],
        "cancelled" => vec![Occasion::Cancelled],
        "preempted" => vec![Occasion::Preempted],
        "leaked" => vec![Occasion::Leaked],
        "all" => ALL.to_vec(),
        _ => {
            return Err(format!(
                "'{word}' is no time to tell anybody; there are start, end, completed, fail, cancelled, \
                 preempted, leaked and all"
            ));
        }
    })
}

/// What sbatch's `--mail-type` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MailType(pub(crate) Vec<Occasion>);

/// Reads [`MailType`]: `END,FAIL`.
pub(crate) fn mail_type(text: &str) -> Result<MailType, String> {
    let words = text.split(',').map(slurms).collect::<Result<Vec<_>, _>>()?;
    Ok(MailType(words.concat()))
}

fn slurms(word: &str) -> Result<Vec<Occasion>, String> {
    Ok(match word.to_ascii_uppercase().as_str() {
        "NONE" => Vec::new(),
        "BEGIN" => vec![Occasion::Started],
        "END" => END.to_vec(),
        // A job whose time is over, or that waits in vain, has failed.
        "FAIL" | "TIME_LIMIT" | "INVALID_DEPEND" => vec![Occasion::Failed],
        "REQUEUE" => vec![Occasion::Preempted],
        "ALL" => ALL.to_vec(),
        _ => {
            return Err(format!("no mail is sent for '{word}'; there are BEGIN, END, FAIL, REQUEUE and ALL"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_when_and_whom() {
        let check = |text: &str, expect: Option<(&[Occasion], &str)>| {
            let read = notify(text).ok();
            let seen = read.as_ref().map(|one| (one.on.as_slice(), one.to.as_str()));
            assert_eq!(seen, expect, "{text}");
        };
        check("fail=ada@example.org", Some((&[Occasion::Failed], "ada@example.org")));
        check("start,end=/bin/tell", Some((&[Occasion::Started, END[0], END[1], END[2]], "/bin/tell")));
        check("all=https://example.org/?a=b", Some((&ALL, "https://example.org/?a=b")));
        check("never=ada@example.org", None);
        check("=ada@example.org", None);
        check("fail=", None);
        check("ada@example.org", None);
    }

    #[test]
    fn slurms_words_are_read() {
        let check = |text: &str, expect: Option<&[Occasion]>| {
            assert_eq!(mail_type(text).ok(), expect.map(|on| MailType(on.to_vec())), "{text}");
        };
        check("NONE", Some(&[]));
        check("begin,FAIL", Some(&[Occasion::Started, Occasion::Failed]));
        check("END", Some(&END));
        check("ALL", Some(&ALL));
        check("TIME_LIMIT_80", None);
    }
}
