//! The view: what lists show, and that whatever does not open is begun anew.

use std::collections::BTreeMap;

use cost::{Amounts, Entry, Occupancy, QUARTER, Tally};
use facts::{Hash32, JobKind, JobRequest, Outcome, Resources, RetryPolicy, StopPolicy};
use fourplane_store::SqliteView;
use ops::ports::Head;
use ops::view::{AttemptRow, Changed, JobFilter, JobRow, JobState, MemberCounts, ViewStore};
use units::{ArrayIndex, AttemptId, JobId, Seq, SubjectId, TeamId, Timestamp};

use crate::common::{fast_dir, hash};

fn job(id: u64, state: JobState) -> JobRow {
    let labels = BTreeMap::from([("model".to_owned(), format!("m{}", id % 2))]);
    let request = JobRequest {
        name: format!("job {id}"),
        kind: JobKind::Batch,
        owner: SubjectId(id % 3),
        team: TeamId(u32::try_from(id % 2).unwrap()),
        tasks: 1,
        per_task: Resources::default(),
        array: None,
        priority: 0,
        time_limit: None,
        after: Vec::new(),
        retry: RetryPolicy::default(),
        hold: false,
        stop: StopPolicy::default(),
        labels: labels.into(),
        payload: Hash32::default(),
        gpu_model: None,
    };
    let at = Timestamp::from_secs(i64::try_from(id).unwrap() * 10);
    JobRow {
        id: JobId(id),
        request,
        state,
        preemptible: false,
        held: false,
        priority: 0,
        submitted: at,
        started: None,
        ended: state.is_over().then_some(at),
        members: MemberCounts::default(),
        attempts: 0,
        outcome: None,
        cancelled_by: None,
        seq: Seq(id),
    }
}

fn attempt(id: u64, of: u64) -> AttemptRow {
    AttemptRow {
        id: AttemptId(id),
        job: JobId(of),
        index: ArrayIndex(0),
        number: 1,
        tasks: Vec::new(),
        decided: Timestamp(1),
        started: None,
        ended: None,
        freed: None,
        stop: None,
        receipt: None,
        exits: BTreeMap::new(),
        leaked: None,
        health: None,
        cpu: None,
        memory_peak: None,
        outcome: Some(Outcome::Code(3)),
    }
}

fn changed(
    jobs: impl IntoIterator<Item = JobRow>,
    attempts: impl IntoIterator<Item = AttemptRow>,
) -> Changed {
    Changed {
        jobs: jobs.into_iter().map(|row| (row.id, row)).collect(),
        attempts: attempts.into_iter().map(|row| (row.id, row)).collect(),
        ..Changed::default()
    }
}

fn head(seq: u64) -> Head {
    Head { seq: Seq(seq), hash: hash(&seq.to_string()) }
}

/// Twelve jobs: by id, two completed, two failed, two cancelled, then queued, held, running twice.
fn view_of_twelve(dir: &std::path::Path) -> SqliteView {
    use JobState::{Cancelled, Completed, Failed, Held, Queued, Running};
    let states = [
        Completed, Completed, Failed, Failed, Cancelled, Cancelled, Queued, Held, Running, Queued, Held,
        Running,
    ];
    let jobs = states.into_iter().zip(1..).map(|(state, id)| job(id, state));
    let mut view = SqliteView::open(dir).unwrap();
    view.write(&changed(jobs, [attempt(1, 5), attempt(2, 6), attempt(3, 5)]), head(12)).unwrap();
    view
}

#[test]
fn lists_show_what_the_filter_says() {
    let dir = fast_dir();
    let view = view_of_twelve(dir.path());
    let reader = view.reader().unwrap();
    let check = |filter: JobFilter, expect: &[u64]| {
        let shown: Vec<_> = reader.jobs(&filter).unwrap().iter().map(|row| row.id.0).collect();
        assert_eq!(shown, expect, "{filter:?}");
    };
    let all = || JobFilter { limit: 100, ..JobFilter::default() };
    let label = |value: &str| BTreeMap::from([("model".to_owned(), value.to_owned())]);
    check(all(), &[12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
    check(JobFilter { limit: 2, ..all() }, &[12, 11]);
    check(JobFilter { limit: 2, before: Some(JobId(11)), ..all() }, &[10, 9]);
    check(JobFilter { owners: vec![SubjectId(0)], ..all() }, &[12, 9, 6, 3]);
    check(JobFilter { owners: vec![SubjectId(0), SubjectId(1)], limit: 3, ..all() }, &[12, 10, 9]);
    check(JobFilter { teams: vec![TeamId(1)], owners: vec![SubjectId(1)], ..all() }, &[7, 1]);
    check(JobFilter { states: vec![JobState::Queued, JobState::Running], ..all() }, &[12, 10, 9, 7]);
    check(JobFilter { states: vec![JobState::Failed, JobState::Held], ..all() }, &[11, 8, 4, 3]);
    check(JobFilter { since: Some(Timestamp::from_secs(60)), ..all() }, &[12, 11, 10, 9, 8, 7, 6]);
    check(JobFilter { labels: label("m1"), states: vec![JobState::Failed], ..all() }, &[3]);
    check(JobFilter { labels: label("m2"), ..all() }, &[]);
}

#[test]
fn rows_come_back_as_put_and_change() {
    let dir = fast_dir();
    let mut view = view_of_twelve(dir.path());
    let reader = view.reader().unwrap();
    assert_eq!(reader.job(JobId(3)).unwrap(), Some(job(3, JobState::Failed)));
    assert_eq!(view.job(JobId(13)).unwrap(), None);
    assert_eq!(reader.attempts(JobId(5)).unwrap(), [attempt(1, 5), attempt(3, 5)]);
    assert_eq!(view.attempt(AttemptId(2)).unwrap(), Some(attempt(2, 6)));

    let ended = job(12, JobState::Completed);
    let freed = AttemptRow { freed: Some(Timestamp(9)), ..attempt(2, 6) };
    view.write(&changed([ended.clone()], [freed.clone()]), head(13)).unwrap();
    assert_eq!(reader.applied().unwrap(), Seq(13));
    assert_eq!(reader.job(JobId(12)).unwrap(), Some(ended));
    assert_eq!(reader.attempts(JobId(6)).unwrap(), [freed]);
    let open = JobFilter { states: vec![JobState::Running], limit: 9, ..JobFilter::default() };
    assert_eq!(reader.jobs(&open).unwrap().len(), 1);
}

#[test]
fn time_adds_up_from_the_quarter_asked_for() {
    let dir = fast_dir();
    let mut view = SqliteView::open(dir.path()).unwrap();
    let quarter = |count: i64| Timestamp(count * QUARTER.0.cast_signed());
    let free = Entry::State(Occupancy::Free);
    let mut tally = Tally::default();
    tally.count(quarter(2), &mut BTreeMap::new());
    for (at, count, devices) in [(1, 1, 5), (2, 1, 7), (3, 2, 100), (4, 2, -30)] {
        let quarters = BTreeMap::from([((quarter(count), free), Amounts { devices, cores: 1 })]);
        view.write(&Changed { tally: tally.clone(), quarters, ..Changed::default() }, head(at)).unwrap();
    }
    drop(view);
    let view = SqliteView::open(dir.path()).unwrap();
    let reader = view.reader().unwrap();
    let check = |since: Timestamp, devices, cores| {
        let (sums, known) = reader.usage(since).unwrap();
        assert_eq!((sums[&free], &known), (Amounts { devices, cores }, &tally), "{since:?}");
        assert_eq!(sums[&Entry::Capacity], Amounts::default());
    };
    check(Timestamp(0), 82, 4);
    check(quarter(2), 70, 2);
    check(Timestamp(quarter(3).0 - 1), 70, 2);
    check(quarter(3), 0, 0);
}

#[test]
fn a_view_is_kept_over_a_restart_and_can_be_cleared() {
    let dir = fast_dir();
    drop(view_of_twelve(dir.path()));
    let mut view = SqliteView::open(dir.path()).unwrap();
    assert_eq!(view.applied(), head(12));
    assert!(view.job(JobId(12)).unwrap().is_some());
    view.clear().unwrap();
    assert_eq!((view.applied(), view.job(JobId(12)).unwrap()), (Head::default(), None));
    view.write(&changed([job(1, JobState::Queued)], []), head(1)).unwrap();
    drop(view);
    assert_eq!(SqliteView::open(dir.path()).unwrap().applied(), head(1));
}

#[test]
fn what_does_not_open_is_begun_anew() {
    type Break = fn(&mut Vec<u8>);
    let breaks: [Break; 4] =
        [|bytes| bytes.truncate(1_000), |bytes| bytes.fill(0x55), |bytes| bytes[..100].reverse(), Vec::clear];
    for (which, damage) in breaks.into_iter().enumerate() {
        let dir = fast_dir();
        drop(view_of_twelve(dir.path()));
        let file = dir.path().join("view.db");
        let mut bytes = std::fs::read(&file).unwrap();
        damage(&mut bytes);
        std::fs::write(&file, bytes).unwrap();
        let mut view = SqliteView::open(dir.path()).unwrap();
        assert_eq!(view.applied(), Head::default(), "break {which}");
        view.write(&changed([job(1, JobState::Queued)], []), head(1)).unwrap();
        assert!(view.job(JobId(1)).unwrap().is_some());
    }
}

#[test]
fn an_older_format_is_begun_anew() {
    let dir = fast_dir();
    drop(view_of_twelve(dir.path()));
    let db = rusqlite::Connection::open(dir.path().join("view.db")).unwrap();
    db.pragma_update(None, "user_version", 0).unwrap();
    drop(db);
    assert_eq!(SqliteView::open(dir.path()).unwrap().applied(), Head::default());
}
