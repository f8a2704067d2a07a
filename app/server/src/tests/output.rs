//! Reading and following output.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::time::Duration;

use serde_json::{Value, json};
use store::ModelLog;

use super::fixture::{ADMIN, ANN, BOB, Client, Fixture, start, start_on};
use crate::app::Config;

/// A job of the user who runs the tests, so that its files can be made without root.
struct Owner {
    server: Fixture,
    uid: u32,
}

async fn owner() -> Owner {
    let uid = rustix::process::geteuid().as_raw();
    let config = Config { allow_root: true, ..Config::default() };
    Owner { server: start_on(ModelLog::new(), false, config).await, uid }
}

impl Owner {
    fn client(&self) -> Client<'_> {
        self.server.user(self.uid)
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.server.directory.path().join(name)
    }

    async fn submit(&self, more: Value) -> u64 {
        let mut fields = json!({"cwd": self.server.directory.path()});
        for (name, value) in more.as_object().unwrap() {
            fields[name] = value.clone();
        }
        self.client().submit(fields).await
    }

    async fn read(&self, job: u64, query: &str) -> super::fixture::Answer {
        self.client().get(&format!("/api/v1/jobs/{job}/output?{query}")).await
    }
}

#[tokio::test]
async fn parts_of_the_output_are_read() {
    let owner = owner().await;
    let job = owner.submit(json!({"stderr": "%j.err"})).await;
    assert_eq!(owner.read(job, "").await.status, 404, "nothing there yet");
    fs::write(owner.file(&format!("echo-{job}.out")), "0123456789").unwrap();
    fs::write(owner.file(&format!("{job}.err")), "oops").unwrap();
    for (query, offset, expect) in [
        ("", "0", "0123456789"),
        ("from=4", "4", "456789"),
        ("from=99", "99", ""),
        ("tail=3", "7", "789"),
        ("tail=99", "0", "0123456789"),
        ("stream=stderr", "0", "oops"),
    ] {
        let answer = owner.read(job, query).await;
        assert_eq!(
            (answer.text(), answer.headers["fourplane-offset"].to_str().unwrap()),
            (expect, offset),
            "{query}"
        );
    }
    assert_eq!(owner.read(job, "rank=1").await.json()["where"], "rank");
    assert_eq!(owner.read(job, "index=1").await.json()["where"], "index");
    assert_eq!(owner.read(job, "stream=x").await.status, 400);
}

#[tokio::test]
async fn members_and_ranks_have_their_own_files() {
    let owner = owner().await;
    let job = owner.submit(json!({"array": {"indexes": "3-4"}, "tasks": 2, "stdout": "%A/%a-%t"})).await;
    fs::create_dir(owner.file(&job.to_string())).unwrap();
    fs::write(owner.file(&format!("{job}/4-1")), "four one").unwrap();
    assert_eq!(owner.read(job, "index=4&rank=1").await.text(), "four one");
}

#[tokio::test]
async fn what_is_not_the_users_plain_file_is_not_read() {
    let owner = owner().await;
    let secret = owner.file("secret");
    fs::write(&secret, "secret").unwrap();
    let link = owner.submit(json!({"stdout": "link"})).await;
    symlink(&secret, owner.file("link")).unwrap();
    let device = owner.submit(json!({"stdout": "/dev/zero"})).await;
    let pipe = owner.submit(json!({"stdout": "pipe"})).await;
    rustix::fs::mknodat(rustix::fs::CWD, owner.file("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    for job in [link, device, pipe] {
        let answer = owner.read(job, "").await;
        assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (409, &json!("not-readable")));
    }
    // The file exists and may be readable by the server; it is not of the job's user.
    let foreign = owner.server.user(BOB).submit(json!({"cwd": "/", "stdout": secret})).await;
    let answer = owner.server.user(BOB).get(&format!("/api/v1/jobs/{foreign}/output")).await;
    assert_ne!(fs::metadata(&secret).unwrap().uid(), BOB);
    assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (409, &json!("not-readable")));
}

#[tokio::test]
async fn output_is_its_owners_and_the_administrators() {
    let owner = owner().await;
    let job = owner.submit(json!({})).await;
    fs::write(owner.file(&format!("echo-{job}.out")), "mine").unwrap();
    let path = format!("/api/v1/jobs/{job}/output");
    assert_eq!(owner.server.user(BOB).get(&path).await.status, 403);
    assert_eq!(owner.server.user(ADMIN).get(&path).await.text(), "mine");
}

#[tokio::test]
async fn following_begins_before_the_file_and_ends_with_the_job() {
    let owner = owner().await;
    let job = owner.submit(json!({})).await;
    let path = owner.file(&format!("echo-{job}.out"));
    let writing = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        let mut file = fs::File::create(&path).unwrap();
        for word in ["one ", "two ", "three"] {
            file.write_all(word.as_bytes()).unwrap();
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        owner.server.node.end_all(0);
    };
    let (answer, ()) = tokio::join!(owner.read(job, "follow=1"), writing);
    assert_eq!(answer.text(), "one two three");
    assert_eq!(owner.read(job, "follow=1&from=4").await.text(), "two three", "over: ends at once");
}

#[tokio::test]
async fn a_member_of_an_array_is_followed_to_its_own_end() {
    let owner = owner().await;
    let job = owner.submit(json!({"array": {"indexes": "0-1", "max_running": 1}})).await;
    fs::write(owner.file(&format!("echo-{job}_0.out")), "zero").unwrap();
    let ending = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        owner.server.node.end_all(0);
    };
    let (answer, ()) = tokio::join!(owner.read(job, "follow=1&index=0"), ending);
    assert_eq!(answer.text(), "zero");
    assert_eq!(owner.client().get(&format!("/api/v1/jobs/{job}")).await.json()["state"], "running");
}

#[tokio::test]
async fn a_large_output_is_whole_and_a_stopping_server_breaks_the_following_off() {
    let owner = owner().await;
    let job = owner.submit(json!({})).await;
    let large: Vec<u8> = (0..3_000_000_u32).flat_map(|n| n.to_le_bytes().into_iter().take(1)).collect();
    fs::write(owner.file(&format!("echo-{job}.out")), &large).unwrap();
    assert!(owner.read(job, "").await.body == large);
    let closing = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        owner.server.close.send_replace(true);
    };
    let (answer, ()) = tokio::join!(owner.read(job, "follow=1"), closing);
    assert_eq!(answer.body.len(), 0, "the answer is broken off, not ended as if whole");
}

#[tokio::test]
async fn a_job_whose_place_is_forgotten_is_told_so() {
    let server = start(false).await;
    let job = server.user(ANN).submit(json!({})).await;
    let write = ops::ports::SideWrite {
        table: ops::ports::SideTable::Output,
        key: job.to_be_bytes().to_vec(),
        value: None,
    };
    let who = control::identity::Principal {
        subject: units::SubjectId(1),
        uid: ANN,
        role: control::identity::Role::User,
    };
    crate::ask::call(&server.app.handle, who, ops::api::Command::Side(vec![write]), None).await.unwrap();
    assert_eq!(server.user(ANN).get(&format!("/api/v1/jobs/{job}/output")).await.status, 404);
}
