//! Who people are: the operating system's accounts, and the directory that gives each an
//! opaque id (decision D32).

use std::collections::BTreeMap;
use std::fs::read_to_string;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use control::identity::{Principal, Role};
use ops::Handle;
use ops::api::{Command, Refusal, SubjectRow};
use ops::ports::{SideTable, SideWrite};
use units::SubjectId;

use crate::ask;
use crate::error::ApiError;

/// A change to the system's accounts counts after this time.
const ACCOUNT_LIFE: Duration = Duration::from_secs(30);

/// The rights that somebody's jobs get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) groups: Vec<u32>,
}

impl Rights {
    /// Those of a connected process, by what the kernel vouches for.
    pub(crate) fn of_peer(uid: u32, gid: u32, pid: Option<i32>) -> Self {
        let status = pid.and_then(|pid| read_to_string(format!("/proc/{pid}/status")).ok());
        let groups = status.and_then(|status| groups_of_process(&status, uid));
        groups.map_or_else(|| Self::of_account(uid, gid), |groups| Self { uid, gid, groups })
    }

    /// Those of an account as the system's files list it; `gid` is its primary group.
    pub(crate) fn of_account(uid: u32, gid: u32) -> Self {
        let groups = login_name(uid)
            .and_then(|name| Some(groups_of_name(&read_to_string("/etc/group").ok()?, &name)))
            .unwrap_or_default();
        Self { uid, gid, groups }
    }
}

/// The supplementary groups in a `/proc/PID/status`. None if the process is not, or not only,
/// `uid`'s: the number may have gone to another process since the connection was made.
fn groups_of_process(status: &str, uid: u32) -> Option<Vec<u32>> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().map(|number| number.parse().ok()).collect::<Option<Vec<u32>>>()
    };
    let uids = field("Uid:")?;
    (!uids.is_empty() && uids.iter().all(|found| *found == uid)).then(|| field("Groups:"))?
}

/// The groups that list `name` as a member in an `/etc/group`.
fn groups_of_name(file: &str, name: &str) -> Vec<u32> {
    let member_of = |line: &str| {
        let mut fields = line.split(':').skip(2);
        let gid = fields.next()?.parse().ok()?;
        fields.next()?.split(',').any(|member| member == name).then_some(gid)
    };
    file.lines().filter_map(member_of).collect()
}

/// The login name of `uid`, where the system's files list it.
fn login_name(uid: u32) -> Option<String> {
    name_in(&read_to_string("/etc/passwd").ok()?, uid)
}

fn name_in(file: &str, uid: u32) -> Option<String> {
    file.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

/// Everybody the server has met.
#[derive(Default)]
pub(crate) struct People {
    known: RwLock<Known>,
    adding: tokio::sync::Mutex<()>,
    accounts: Mutex<BTreeMap<u32, (Instant, Arc<Rights>)>>,
}

#[derive(Default)]
struct Known {
    by_uid: BTreeMap<u32, SubjectId>,
    rows: BTreeMap<SubjectId, SubjectRow>,
}

impl Known {
    fn put(&mut self, row: SubjectRow) {
        self.by_uid.insert(row.uid, row.subject);
        self.rows.insert(row.subject, row);
    }
}

impl People {
    /// Reads the directory. Blocks.
    pub(crate) fn load(handle: &Handle) -> Result<Self, Refusal> {
        let mut known = Known::default();
        for (_, value) in handle.side(SideTable::Subject)? {
            known.put(ask::decode_row(&value)?);
        }
        Ok(Self { known: RwLock::new(known), ..Self::default() })
    }

    /// The id of `uid`; the first time somebody is met it is written before it is used.
    pub(crate) async fn subject(&self, handle: &Handle, uid: u32) -> Result<SubjectId, ApiError> {
        if let Some(subject) = self.of_uid(uid) {
            return Ok(subject);
        }
        let _one_at_a_time = self.adding.lock().await;
        if let Some(subject) = self.of_uid(uid) {
            return Ok(subject);
        }
        let last = self.known.read().unwrap_or_else(PoisonError::into_inner).rows.keys().next_back().copied();
        let subject = SubjectId(last.map_or(1, |last| last.0 + 1));
        let row = SubjectRow { subject, uid, name: login_name(uid).unwrap_or_else(|| format!("uid:{uid}")) };
        let write = SideWrite {
            table: SideTable::Subject,
            key: subject.0.to_be_bytes().to_vec(),
            value: Some(ask::encode_row(&row)),
        };
        let who = Principal { subject, uid, role: Role::User };
        ask::call(handle, who, Command::Side(vec![write]), None).await?;
        self.known.write().unwrap_or_else(PoisonError::into_inner).put(row);
        Ok(subject)
    }

    /// The rights of an account, as of at most half a minute ago.
    pub(crate) fn rights(&self, uid: u32, gid: u32) -> Arc<Rights> {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        match accounts.get(&uid) {
            Some((read, rights)) if read.elapsed() < ACCOUNT_LIFE && rights.gid == gid => Arc::clone(rights),
            _ => {
                let rights = Arc::new(Rights::of_account(uid, gid));
                accounts.insert(uid, (Instant::now(), Arc::clone(&rights)));
                rights
            }
        }
    }

    fn of_uid(&self, uid: u32) -> Option<SubjectId> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).by_uid.get(&uid).copied()
    }

    /// What people call `subject`.
    pub(crate) fn name(&self, subject: SubjectId) -> String {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.rows.get(&subject).map_or_else(|| format!("subject:{subject}"), |row| row.name.clone())
    }

    /// Who is called `text`: a login name or a uid.
    pub(crate) fn find(&self, text: &str) -> Option<SubjectId> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let by_name = known.rows.values().find(|row| row.name == text).map(|row| row.subject);
        by_name.or_else(|| known.by_uid.get(&text.parse().ok()?).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_come_only_from_a_process_that_is_wholly_the_users() {
        let status = |uids: &str| format!("Name:\tsh\nUid:\t{uids}\nGid:\t5\t5\t5\t5\nGroups:\t4 27 \n");
        assert_eq!(groups_of_process(&status("7\t7\t7\t7"), 7), Some(vec![4, 27]));
        assert_eq!(groups_of_process(&status("7\t0\t0\t0"), 7), None);
        assert_eq!(groups_of_process(&status("8\t8\t8\t8"), 7), None);
        assert_eq!(groups_of_process("Groups:\t4\n", 7), None);
    }

    #[test]
    fn accounts_are_read_from_the_systems_files() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nann:x:1000:100::/home/ann:\nbroken\n";
        assert_eq!(name_in(passwd, 1000).as_deref(), Some("ann"));
        assert_eq!(name_in(passwd, 100), None);
        let group = "users:x:100:\nvideo:x:44:ann,bob\nanna:x:45:anna\nbad:x:y:ann\n";
        assert_eq!(groups_of_name(group, "ann"), [44]);
    }
}
