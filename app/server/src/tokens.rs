//! Tokens, login links and browser sessions. Only hashes of secrets are kept.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

use control::identity::{Principal, Role};
use ops::Handle;
use ops::api::{Command, Refusal};
use ops::ports::{SideTable, SideWrite};
use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};
use units::{Nanos, SubjectId, Timestamp};

use crate::error::ApiError;
use crate::{ask, wire};

/// How long a login link works.
pub(crate) const LINK_LIFE: Nanos = Nanos::from_secs(600);
/// How long a browser stays signed in.
pub(crate) const SESSION_LIFE: Nanos = Nanos::from_secs(12 * 3_600);
/// How long a token works unless told otherwise.
pub(crate) const TOKEN_LIFE: Nanos = Nanos::from_secs(90 * 86_400);
/// The most links, and sessions, at a time: the one that would end first makes room.
const MOST: usize = 1_024;

/// A hash of a secret.
type Hash = [u8; 32];

/// What a secret grants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    pub(crate) subject: SubjectId,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) role: wire::Role,
    pub(crate) label: String,
    pub(crate) created: Timestamp,
    pub(crate) expires: Timestamp,
}

impl Grant {
    pub(crate) fn principal(&self) -> Principal {
        let role = match self.role {
            wire::Role::User => Role::User,
            wire::Role::Admin => Role::Admin,
        };
        Principal { subject: self.subject, uid: self.uid, role }
    }
}

/// The wall clock.
pub(crate) fn now() -> Timestamp {
    let nanos = jiff::Timestamp::now().as_nanosecond();
    Timestamp(i64::try_from(nanos).unwrap_or(i64::MAX))
}

/// 256 random bits in hex.
pub(crate) fn new_secret() -> String {
    let mut bytes = [0; 32];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty());
    assert_eq!(filled, Ok(bytes.len()), "Linux fills up to 256 bytes at once");
    hex(&bytes)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn hash(secret: &str) -> Hash {
    *blake3::hash(secret.as_bytes()).as_bytes()
}

/// A token's public id: the first 8 bytes of its hash.
fn id_of(hash: &Hash) -> String {
    hex(&hash[..8])
}

/// Secrets that outlive the server, tokens or browser sessions: their hashes, and what each grants.
pub(crate) struct Kept {
    table: SideTable,
    grants: RwLock<BTreeMap<Hash, Grant>>,
}

impl Kept {
    /// Reads a table. Blocks.
    pub(crate) fn load(handle: &Handle, table: SideTable) -> Result<Self, Refusal> {
        let mut grants = BTreeMap::new();
        for (key, value) in handle.side(table)? {
            if let Ok(hash) = Hash::try_from(key) {
                grants.insert(hash, ask::decode_row(&value)?);
            }
        }
        Ok(Self { table, grants: RwLock::new(grants) })
    }

    /// Makes a token: its secret, which is told once, and its id.
    pub(crate) async fn mint(
        &self,
        handle: &Handle,
        who: Principal,
        grant: Grant,
    ) -> Result<(String, String), ApiError> {
        let secret = format!("fp_{}", new_secret());
        let hash = hash(&secret);
        self.change(handle, who, vec![(hash, Some(grant))]).await?;
        Ok((secret, id_of(&hash)))
    }

    /// Opens a session and tells its secret. Sessions that are over go, and one too many does.
    pub(crate) async fn sign_in(&self, handle: &Handle, grant: Grant) -> Result<String, ApiError> {
        let secret = new_secret();
        let who = grant.principal();
        let mut changes = self.to_go(grant.created);
        changes.push((hash(&secret), Some(grant)));
        self.change(handle, who, changes).await?;
        Ok(secret)
    }

    /// What makes room for one more: all that is over, else the one that would end first.
    fn to_go(&self, now: Timestamp) -> Vec<(Hash, Option<Grant>)> {
        let grants = self.read();
        let over = grants.iter().filter(|(_, grant)| grant.expires <= now).map(|(hash, _)| *hash);
        let mut gone: Vec<Hash> = over.collect();
        if gone.is_empty() && grants.len() >= MOST {
            let first = grants.iter().min_by_key(|(_, grant)| grant.expires);
            gone.extend(first.map(|(hash, _)| *hash));
        }
        gone.into_iter().map(|hash| (hash, None)).collect()
    }

    /// Takes a token back.
    pub(crate) async fn revoke(&self, handle: &Handle, who: Principal, id: &str) -> Result<(), ApiError> {
        let found = self.hash_of(id).ok_or_else(|| no_token(id))?;
        self.change(handle, who, vec![(found, None)]).await
    }

    /// What `secret` grants now.
    pub(crate) fn check(&self, secret: &str, now: Timestamp) -> Option<Grant> {
        let grants = self.read();
        grants.get(&hash(secret)).filter(|grant| grant.expires > now).cloned()
    }

    /// Whose a token is.
    pub(crate) fn owner(&self, id: &str) -> Result<SubjectId, ApiError> {
        let hash = self.hash_of(id).ok_or_else(|| no_token(id))?;
        let grants = self.read();
        grants.get(&hash).map(|grant| grant.subject).ok_or_else(|| no_token(id))
    }

    /// All tokens of `owner`, or of everybody.
    pub(crate) fn list(&self, owner: Option<SubjectId>) -> Vec<(String, Grant)> {
        let grants = self.read();
        let mine = grants.iter().filter(|(_, grant)| owner.is_none_or(|owner| grant.subject == owner));
        mine.map(|(hash, grant)| (id_of(hash), grant.clone())).collect()
    }

    fn hash_of(&self, id: &str) -> Option<Hash> {
        let grants = self.read();
        grants.keys().find(|hash| id_of(hash) == id).copied()
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Hash, Grant>> {
        self.grants.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts and erases grants: in the log's side table first, then here.
    async fn change(
        &self,
        handle: &Handle,
        who: Principal,
        changes: Vec<(Hash, Option<Grant>)>,
    ) -> Result<(), ApiError> {
        let row = |(hash, grant): &(Hash, Option<Grant>)| SideWrite {
            table: self.table,
            key: hash.to_vec(),
            value: grant.as_ref().map(ask::encode_row),
        };
        ask::call(handle, who, Command::Side(changes.iter().map(row).collect()), None).await?;
        let mut grants = self.grants.write().unwrap_or_else(PoisonError::into_inner);
        for (hash, grant) in changes {
            match grant {
                Some(grant) => grants.insert(hash, grant),
                None => grants.remove(&hash),
            };
        }
        Ok(())
    }
}

fn no_token(id: &str) -> ApiError {
    ApiError::not_found(format!("there is no token {id}"))
}

/// Secrets that live no longer than this process: login links.
#[derive(Default)]
pub(crate) struct Passing(Mutex<BTreeMap<Hash, Grant>>);

impl Passing {
    /// Makes one.
    pub(crate) fn open(&self, grant: Grant) -> String {
        let secret = new_secret();
        let mut grants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if grants.len() >= MOST
            && let Some(oldest) = grants.iter().min_by_key(|(_, grant)| grant.expires).map(|(hash, _)| *hash)
        {
            grants.remove(&oldest);
        }
        grants.insert(hash(&secret), grant);
        secret
    }

    /// What `secret` grants now, once.
    pub(crate) fn take(&self, secret: &str, now: Timestamp) -> Option<Grant> {
        let mut grants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        grants.remove(&hash(secret)).filter(|grant| grant.expires > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(expires: i64) -> Grant {
        Grant {
            subject: SubjectId(1),
            uid: 1000,
            gid: 100,
            role: wire::Role::User,
            label: String::new(),
            created: Timestamp(0),
            expires: Timestamp(expires),
        }
    }

    #[test]
    fn a_link_works_once_and_in_time() {
        let links = Passing::default();
        let (late, good) = (links.open(grant(5)), links.open(grant(7)));
        assert_eq!(links.take(&late, Timestamp(5)), None);
        assert_eq!(links.take("guess", Timestamp(5)), None);
        assert_eq!(links.take(&good, Timestamp(5)), Some(grant(7)));
        assert_eq!(links.take(&good, Timestamp(5)), None);
    }

    #[test]
    fn links_and_sessions_are_bounded() {
        let links = Passing::default();
        let first = links.open(grant(10));
        for _ in 0..MOST {
            links.open(grant(11));
        }
        assert_eq!(links.take(&first, Timestamp(0)), None);
        assert_eq!(links.0.lock().unwrap().len(), MOST);

        let number = |number: usize| hash(&number.to_string());
        let kept = |ends: i64| {
            let grants = (0..MOST).map(|at| (number(at), grant(if at == 7 { ends } else { 11 })));
            Kept { table: SideTable::Session, grants: RwLock::new(grants.collect()) }
        };
        assert_eq!(kept(10).to_go(Timestamp(9)), [(number(7), None)], "one too many");
        assert_eq!(kept(10).to_go(Timestamp(11)).len(), MOST, "all are over");
        assert_eq!(kept(10).to_go(Timestamp(10)), [(number(7), None)], "one is over");
    }

    #[test]
    fn secrets_do_not_repeat() {
        assert_eq!(new_secret().len(), 64);
        assert_ne!(new_secret(), new_secret());
    }
}
