//! What every `LogStore` promises, checked on `SQLite` and on the model.

use fourplane_store::{ModelLog, Room, SqliteLog, SqliteView};
use ops::ports::{Batch, Head, Lapse, LogStore, SideTable, SideWrite, Snapshot, StoreError};
use proptest::prelude::*;
use units::{JobId, Seq};

use crate::common::{SMALL, batch, body, fast_dir, fill, hash, lapse, open, payload, read_all};

/// A store and how to open what it holds again.
trait Subject {
    fn again(&mut self);
    fn log(&mut self) -> &mut dyn LogStore;
}

struct Model(ModelLog);

impl Subject for Model {
    fn again(&mut self) {
        self.0.crash(false);
        self.0 = self.0.clone();
    }
    fn log(&mut self) -> &mut dyn LogStore {
        &mut self.0
    }
}

struct Sqlite {
    dir: tempfile::TempDir,
    log: Option<SqliteLog>,
}

impl Subject for Sqlite {
    fn again(&mut self) {
        self.log = None;
        self.log = Some(open(self.dir.path()).unwrap());
    }
    fn log(&mut self) -> &mut dyn LogStore {
        self.log.as_mut().unwrap()
    }
}

fn on_both(check: impl Fn(&mut dyn Subject)) {
    check(&mut Model(ModelLog::new()));
    let dir = fast_dir();
    let log = Some(open(dir.path()).unwrap());
    check(&mut Sqlite { dir, log });
}

#[test]
fn a_new_log_is_empty() {
    on_both(|subject| {
        let log = subject.log();
        assert_eq!(log.head(), Head::default());
        assert_eq!(read_all(log).unwrap(), Head::default());
        assert_eq!(log.event(Seq(1)).unwrap(), None);
        assert_eq!(log.event(Seq(0)).unwrap(), None);
        assert_eq!(log.snapshot().unwrap(), None);
        assert!(!log.low_space());
    });
}

#[test]
fn what_was_appended_is_there_and_after_a_restart_too() {
    on_both(|subject| {
        let heads = fill(subject.log(), 0..40);
        for restart in [false, true] {
            if restart {
                subject.again();
            }
            let log = subject.log();
            assert_eq!(log.head(), *heads.last().unwrap());
            assert_eq!(read_all(log).unwrap(), log.head());
            assert_eq!(log.event(Seq(7)).unwrap(), Some(body(7)));
            assert_eq!(log.event(log.head().seq.next()).unwrap(), None);
            assert_eq!(log.idem(&hash("key 5")).unwrap().unwrap().request, hash("request"));
            assert_eq!(log.idem(&hash("no key")).unwrap(), None);
            assert_eq!(log.payload(JobId(39)).unwrap(), Some(payload(39)));
            assert_eq!(log.payload(JobId(36)).unwrap(), None, "erased with the job's end");
            let people = log.side(SideTable::Subject).unwrap();
            assert_eq!(people.len(), 5);
            assert_eq!(people[1].1, b"person of batch 36");
            assert_eq!(log.side_row(SideTable::Subject, &people[1].0).unwrap().unwrap(), people[1].1);
            assert_eq!(log.side(SideTable::Token).unwrap(), Vec::new());
        }
        fill(subject.log(), 40..45);
    });
}

#[test]
fn both_chains_are_the_same() {
    let mut model = ModelLog::new();
    let dir = fast_dir();
    let mut sqlite = open(dir.path()).unwrap();
    assert_eq!(fill(&mut model, 0..30), fill(&mut sqlite, 0..30));
}

#[test]
fn a_scan_starts_only_where_the_chain_leads_through() {
    on_both(|subject| {
        let heads = fill(subject.log(), 0..10);
        let log = subject.log();
        let mut seen = Vec::new();
        let mut see = |seq: Seq, _: &[u8]| {
            seen.push(seq);
            Ok(())
        };
        assert_eq!(log.scan(heads[6], &mut see).unwrap(), heads[9]);
        assert_eq!(seen.first(), Some(&heads[6].seq.next()));
        let wrong = Head { hash: hash("another chain"), ..heads[6] };
        let beyond = Head { seq: Seq(1_000), hash: heads[9].hash };
        for from in [wrong, beyond] {
            let refused = log.scan(from, &mut |_, _| panic!("nothing may be visited"));
            assert!(matches!(refused, Err(StoreError::Damaged { seq, .. }) if seq == from.seq));
        }
    });
}

#[test]
fn a_visitor_may_stop_a_scan() {
    on_both(|subject| {
        fill(subject.log(), 0..10);
        let stop = |seq| StoreError::Newer { path: String::new(), found: 9, known: u32::from(seq == Seq(3)) };
        let stopped = subject.log().scan(Head::default(), &mut |seq, _| {
            if seq == Seq(3) { Err(stop(seq)) } else { Ok(()) }
        });
        assert!(matches!(stopped, Err(StoreError::Newer { known: 1, .. })));
    });
}

#[test]
fn side_tables_change_without_events() {
    on_both(|subject| {
        let write = |table, value: Option<&str>| Batch {
            side: vec![SideWrite { table, key: b"k".to_vec(), value: value.map(Into::into) }],
            ..Batch::default()
        };
        let log = subject.log();
        for value in [Some("one"), Some("two"), None] {
            assert_eq!(log.append(&write(SideTable::Token, value)).unwrap(), Head::default());
            assert_eq!(log.side_row(SideTable::Token, b"k").unwrap(), value.map(Into::into));
            assert_eq!(log.side_row(SideTable::Output, b"k").unwrap(), None);
        }
    });
}

#[test]
fn keys_are_forgotten_in_the_order_of_their_times_and_only_their_events_own() {
    on_both(|subject| {
        let heads = fill(subject.log(), 0..20);
        for restart in [false, true] {
            if restart {
                subject.again();
            }
            let log = subject.log();
            let first = log.lapses(3).unwrap();
            assert_eq!((first.len(), log.lapses(100).unwrap().len()), (3, 20));
            assert!(log.lapses(100).unwrap().is_sorted());
            assert_eq!(first[0], lapse(0, 1), "at 0");
        }
        let log = subject.log();
        let key = hash("key 0");
        let lapsed = |lapse, key| Batch { lapsed: vec![(lapse, key)], ..Batch::default() };
        // Used again by a later event: it is that one's.
        let other = Lapse { seq: heads[3].seq, ..lapse(0, 1) };
        log.append(&lapsed(other, Some(key))).unwrap();
        assert!(log.idem(&key).unwrap().is_some());
        assert_eq!(log.append(&lapsed(lapse(0, 1), Some(key))).unwrap(), heads[19], "no event");
        assert_eq!(log.idem(&key).unwrap(), None);
        assert!(log.idem(&hash("key 1")).unwrap().is_some());
        assert_eq!(log.lapses(100).unwrap().len(), 19);
        log.append(&lapsed(log.lapses(1).unwrap()[0], None)).unwrap();
        subject.again();
        assert_eq!((subject.log().idem(&key).unwrap(), subject.log().lapses(100).unwrap().len()), (None, 18));
    });
}

#[test]
fn the_newest_snapshot_that_fits_is_found() {
    on_both(|subject| {
        let heads = fill(subject.log(), 0..8);
        let snapshot = |head: Head| Snapshot { head, state: head.seq.0.to_le_bytes().repeat(1_000) };
        let log = subject.log();
        for head in [heads[2], heads[4], heads[6]] {
            log.put_snapshot(&snapshot(head)).unwrap();
            assert_eq!(log.snapshot().unwrap(), Some(snapshot(head)));
        }
        // One of another history is passed over.
        let foreign = Head { hash: hash("another history"), ..heads[7] };
        log.put_snapshot(&snapshot(foreign)).unwrap();
        assert_eq!(log.snapshot().unwrap(), Some(snapshot(heads[6])));
        subject.again();
        assert_eq!(subject.log().snapshot().unwrap(), Some(snapshot(heads[6])));
    });
}

#[test]
fn the_models_faults_leave_the_log_as_it_was() {
    let model = ModelLog::new();
    let mut log = model.clone();
    let heads = fill(&mut log, 0..3);
    model.set_room(Room::None);
    assert!(matches!(log.append(&batch(3, log.head())), Err(StoreError::DiskFull { .. })));
    model.set_room(Room::Low);
    assert!(log.low_space());
    model.set_room(Room::Plenty);
    for keep in [false, true] {
        let before = log.head();
        model.fail_commits(1);
        assert!(matches!(log.append(&batch(3, before)), Err(StoreError::Failed { .. })));
        assert_eq!((log.head(), read_all(&log).unwrap()), (before, before));
        model.crash(keep);
        assert_eq!(log.head().seq > before.seq, keep);
    }
    assert!(log.head().seq > heads[2].seq);
    model.fail_commits(1);
    drop(log.append(&batch(4, log.head())));
    fill(&mut log, 5..6);
    let acknowledged = log.head();
    model.crash(true);
    assert_eq!(log.head(), acknowledged, "what failed was overwritten by what came after it");
}

#[test]
fn one_directory_serves_one_server() {
    let dir = fast_dir();
    let log = open(dir.path()).unwrap();
    let refused = open(dir.path()).err().unwrap();
    assert!(matches!(refused, StoreError::InUse { holder: Some(pid), .. } if pid == std::process::id()));
    drop(log);
    open(dir.path()).unwrap();
}

#[test]
fn what_is_made_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let dir = fast_dir();
    let state = dir.path().join("a/b");
    let mut log = SqliteLog::open(&state, SMALL).unwrap();
    let head = fill(&mut log, 0..1)[0];
    log.put_snapshot(&Snapshot { head, state: Vec::new() }).unwrap();
    let _view = SqliteView::open(&state).unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&state), 0o700);
    for entry in std::fs::read_dir(&state).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[derive(Clone, Debug)]
enum Step {
    Append(u8),
    Erase(u8),
    Forget(u8),
    Restart,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn sqlite_and_model_never_differ(steps in prop::collection::vec(
        prop_oneof![
            6 => (1_u8..40).prop_map(Step::Append),
            2 => any::<u8>().prop_map(Step::Erase),
            2 => any::<u8>().prop_map(Step::Forget),
            1 => Just(Step::Restart),
        ],
        1..60,
    )) {
        let mut model = Model(ModelLog::new());
        let dir = fast_dir();
        let log = Some(open(dir.path()).unwrap());
        let mut sqlite = Sqlite { dir, log };
        for (step, number) in steps.into_iter().zip(0_u64..) {
            let head = model.log().head();
            let change = match step {
                Step::Append(count) => {
                    let first = head.seq.0 + 1;
                    let events = (first..first + u64::from(count)).map(body).collect();
                    Batch { events, ..batch(number, head) }
                }
                Step::Erase(job) => Batch { erase: vec![JobId(job.into())], ..Batch::default() },
                Step::Forget(number) => {
                    let first = model.log().lapses(1).unwrap().first().copied();
                    let key = hash(&format!("key {}", number % 60));
                    Batch { lapsed: first.map(|lapse| (lapse, Some(key))).into_iter().collect(), ..Batch::default() }
                }
                Step::Restart => {
                    sqlite.again();
                    model.again();
                    continue;
                }
            };
            prop_assert_eq!(model.log().append(&change).unwrap(), sqlite.log().append(&change).unwrap());
        }
        prop_assert_eq!(read_all(model.log()).unwrap(), read_all(sqlite.log()).unwrap());
        for number in 0..60 {
            let (job, key) = (JobId(number), hash(&format!("key {number}")));
            prop_assert_eq!(model.log().payload(job).unwrap(), sqlite.log().payload(job).unwrap());
            prop_assert_eq!(model.log().idem(&key).unwrap(), sqlite.log().idem(&key).unwrap());
        }
        prop_assert_eq!(model.log().lapses(1_000).unwrap(), sqlite.log().lapses(1_000).unwrap());
        let side = SideTable::Subject;
        prop_assert_eq!(model.log().side(side).unwrap(), sqlite.log().side(side).unwrap());
        fourplane_store::verify(sqlite.dir.path()).unwrap();
    }
}
