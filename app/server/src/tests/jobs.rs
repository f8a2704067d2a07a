//! Submitting, listing, waiting, control.

use std::time::Duration;

use control::Policy;
use facts::LaunchSpec;
use ops::ports::LogStore;
use serde_json::{Value, json};
use store::{ModelLog, Room};
use units::JobId;

use super::fixture::{ADMIN, ANN, BOB, Fixture, job, start, start_on, start_with};
use crate::app::Config;

fn launch(server: &Fixture, id: u64) -> LaunchSpec {
    postcard::from_bytes(&server.log.payload(JobId(id)).unwrap().unwrap()).unwrap()
}

#[tokio::test]
async fn a_job_runs_with_its_submitters_rights_and_defaults() {
    let server = start(false).await;
    let id = server.user(ANN).submit(json!({"hold": true})).await;
    let spec = launch(&server, id);
    assert_eq!((spec.uid, spec.gid, spec.groups), (ANN, ANN, vec![ANN, 7]));
    assert_eq!((spec.umask, spec.stdout.as_slice(), spec.stderr), (0o022, &b"%x-%j.out"[..], None));
    let shown = server.user(BOB).get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!(shown["name"], "echo");
    assert_eq!(shown["owner"], format!("uid:{ANN}"));
    assert_eq!(shown["team"], "default");
    assert_eq!(shown["state"], "held");
    assert_eq!((&shown["cores"], &shown["memory_bytes"]), (&json!(1), &json!(2_u64 << 30)));
    assert_eq!(shown["why"]["code"], "held");
    assert!(shown.get("env").is_none() && shown.get("argv").is_none(), "personal");
}

#[tokio::test]
async fn bytes_that_are_no_text_arrive_as_they_were() {
    let server = start(false).await;
    let argv = json!(["/bin/echo", [97, 255]]);
    let id = server.user(ANN).submit(json!({"argv": argv, "hold": true})).await;
    assert_eq!(launch(&server, id).argv, [&b"/bin/echo"[..], b"a\xff"]);
}

#[tokio::test]
async fn root_is_refused_unless_told_otherwise() {
    let server = start(true).await;
    let answer = server.user(0).send("POST", "/api/v1/jobs", job(&json!({}))).await;
    assert_eq!(answer.status, 403);
    assert!(answer.json()["hint"].as_str().unwrap().contains("--allow-root"));
}

#[tokio::test]
async fn a_bad_request_names_its_field() {
    let server = start(true).await;
    let ann = server.user(ANN);
    let check = async |more: Value, status: u16, field: &str| {
        let answer = ann.send("POST", "/api/v1/jobs", job(&more)).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.json()["where"]),
            (status, &json!(field)),
            "{more} {answer:?}"
        );
    };
    check(json!({"uid": 0}), 400, "uid").await;
    check(json!({"tasks": "two"}), 400, "tasks").await;
    check(json!({"retry": {"max": -1}}), 400, "retry.max").await;
    check(json!({"argv": []}), 400, "argv").await;
    check(json!({"argv": ["a\u{0}b"]}), 400, "argv").await;
    check(json!({"env": ["NOEQUALS"]}), 400, "env").await;
    check(json!({"cwd": "relative"}), 400, "cwd").await;
    check(json!({"umask": 0o1000}), 400, "umask").await;
    check(json!({"stop": {"signal": 0}}), 400, "stop.signal").await;
    check(json!({"stop": {"warn": {"signal": 65, "before_ns": 1}}}), 400, "stop.warn.signal").await;
    check(json!({"time_limit_ns": 0}), 400, "time_limit_ns").await;
    check(json!({"array": {"indexes": "3-1"}}), 400, "array.indexes").await;
    check(json!({"labels": {"": "x"}}), 400, "labels").await;
    let service = |more: Value| {
        let mut service = json!({"port": 8080, "health": {"every_ns": 1_000_000_000, "failures": 3}});
        service.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"kind": {"service": service}})
    };
    let health = |more: Value| {
        let mut health = json!({"every_ns": 1_000_000_000, "failures": 3});
        health.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        service(json!({"health": health}))
    };
    check(service(json!({"port": 0})), 400, "kind.service.port").await;
    check(service(json!({"port": null})), 400, "kind.service.health").await;
    check(health(json!({"failures": 0})), 400, "kind.service.health.failures").await;
    check(health(json!({"every_ns": 1})), 400, "kind.service.health.every_ns").await;
    for path in ["ok", "/a b", "/a\r\nHost: x", "/ä"] {
        check(health(json!({"http_path": path})), 400, "kind.service.health.http_path").await;
    }
    let mut hasty = service(json!({}));
    hasty["retry"] = json!({"backoff_ns": 0});
    check(hasty, 400, "retry").await;
    check(json!({"priority": 1}), 403, "priority").await;
    check(json!({"team": "nobodys"}), 422, "team").await;
    check(json!({"tasks": 0}), 422, "tasks").await;
    check(json!({"cores": 0}), 422, "cores").await;
    check(json!({"after": [{"job": 99, "condition": "ok"}]}), 422, "after").await;
    let broken = ann.send_bytes("POST", "/api/v1/jobs", b"{".to_vec()).await;
    assert_eq!((broken.status.as_u16(), &broken.json()["code"]), (400, &json!("malformed")));
}

#[tokio::test]
async fn what_can_never_run_is_told_what_would_fit() {
    let server = start(true).await;
    let answer =
        server.user(ANN).send("POST", "/api/v1/jobs", job(&json!({"tasks": 12, "memory_bytes": 1}))).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (422, &json!("over-capacity")));
    assert!(answer.json()["hint"].as_str().unwrap().contains("at most 8 tasks"), "{}", answer.text());

    let quota =
        server.user(ADMIN).send("POST", "/api/v1/teams", json!({"name": "small", "max_cores": 2})).await;
    assert_eq!(quota.status, 200, "{}", quota.text());
    let answer =
        server.user(ANN).send("POST", "/api/v1/jobs", job(&json!({"team": "small", "cores": 3}))).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (422, &json!("over-quota")));
    let teams = server.user(ANN).get("/api/v1/teams").await.json();
    assert_eq!(teams[1]["name"], "small");
    assert_eq!((&teams[1]["max_cores"], &teams[1]["max_gpus"]), (&json!(2), &Value::Null));
}

#[tokio::test]
async fn too_large_a_body_is_told_so() {
    let server = start(true).await;
    let answer = server.user(ANN).send_bytes("POST", "/api/v1/jobs", vec![b' '; (8 << 20) + 1]).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (413, &json!("too-large")));
    assert!(answer.json()["message"].as_str().unwrap().contains("8 MiB"));
}

#[tokio::test]
async fn a_key_gives_one_job_however_often_it_is_sent() {
    let server = start(false).await;
    let ann = server.user(ANN).header("idempotency-key", "k1");
    let first = ann.send("POST", "/api/v1/jobs", job(&json!({}))).await.json();
    let again = ann.send("POST", "/api/v1/jobs", job(&json!({}))).await.json();
    assert_eq!((&first["job"], &first["repeated"]), (&again["job"], &json!(false)));
    assert_eq!(again["repeated"], true);
    let other = ann.send("POST", "/api/v1/jobs", job(&json!({"name": "other"}))).await;
    assert_eq!((other.status.as_u16(), &other.json()["code"]), (409, &json!("key-reused")));
    let bob = server.user(BOB).header("idempotency-key", "k1").submit(json!({})).await;
    assert_ne!(first["job"], json!(bob), "a key is its user's own");
    let long =
        ann.header("idempotency-key", &"k".repeat(256)).send("POST", "/api/v1/jobs", job(&json!({}))).await;
    assert_eq!(long.json()["where"], "Idempotency-Key");
}

#[tokio::test]
async fn jobs_are_listed_by_what_is_asked() {
    let server = start(false).await;
    let (ann, bob) = (server.user(ANN), server.user(BOB));
    let held = ann.submit(json!({"hold": true, "labels": {"model": "m1"}})).await;
    let runs = bob.submit(json!({})).await;
    let gone = ann.submit(json!({"hold": true})).await;
    assert_eq!(ann.send("POST", &format!("/api/v1/jobs/{gone}/cancel"), Value::Null).await.status, 200);
    let check = async |query: &str, expect: &[u64]| {
        let answer = ann.get(&format!("/api/v1/jobs?{query}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let ids = answer.json()["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job["id"].as_u64().unwrap())
            .collect::<Vec<_>>();
        assert_eq!(ids, expect, "{query}");
    };
    check("", &[runs, held]).await;
    check("all=true", &[gone, runs, held]).await;
    check("user=me", &[held]).await;
    check(&format!("user={BOB}"), &[runs]).await;
    check("state=cancelled,running", &[gone, runs]).await;
    check("label=model=m1", &[held]).await;
    check("team=default&limit=1", &[runs]).await;
    check(&format!("all=true&before={runs}"), &[held]).await;
    check("all=true&since=2200-01-01T00:00:00Z", &[runs, held]).await;
    for (query, field) in
        [("user=nobody", "user"), ("state=lost", "state"), ("since=soon", "since"), ("typo=1", "typo")]
    {
        let answer = ann.get(&format!("/api/v1/jobs?{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        assert!(answer.text().contains(field), "{query}: {}", answer.text());
    }
    let lines = ann.clone().header("accept", "application/x-ndjson").get("/api/v1/jobs?all=true").await;
    let ids: Vec<Value> =
        lines.text().lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].clone()).collect();
    assert_eq!(ids, [gone, runs, held]);
}

#[tokio::test]
async fn long_streams_are_whole() {
    let server = start(true).await;
    let ann = server.user(ANN);
    for _ in 0..1_100 {
        ann.submit(json!({"hold": true})).await;
    }
    let lines = ann.clone().header("accept", "application/x-ndjson").get("/api/v1/jobs").await;
    assert_eq!(lines.text().lines().count(), 1_100);
    let page = ann.get("/api/v1/jobs").await.json();
    assert_eq!((page["jobs"].as_array().unwrap().len(), &page["next"]), (200, &json!(901)));
}

#[tokio::test]
async fn a_running_jobs_time_is_the_ledgers_whatever_the_wall_clock_does() {
    const HOUR: i64 = 3_600_000_000_000;
    let server = start(false).await;
    let ann = server.user(ANN);
    let id = ann.submit(json!({})).await;
    for step in [HOUR, -5 * HOUR] {
        server.node.wall_step.store(step, std::sync::atomic::Ordering::Relaxed);
        let detail = ann.get(&format!("/api/v1/jobs/{id}")).await.json();
        let list = ann.get("/api/v1/jobs").await.json();
        let lines = ann.clone().header("accept", "application/x-ndjson").get("/api/v1/jobs").await;
        let line: Value = serde_json::from_str(lines.text().trim()).unwrap();
        let waited = ann.get(&format!("/api/v1/jobs/{id}/wait?timeout=0")).await.json();
        for shown in [&detail, &detail["tries"][0], &list["jobs"][0], &line, &waited["job"]] {
            let elapsed = shown["elapsed_ns"].as_i64().expect("it runs");
            assert!((1..HOUR / 2).contains(&elapsed), "{elapsed} after a step of {step}");
        }
    }
    server.node.end_all(0);
    let ended = ann.get(&format!("/api/v1/jobs/{id}/wait")).await.json()["job"]["elapsed_ns"].clone();
    assert_eq!(ann.get(&format!("/api/v1/jobs/{id}")).await.json()["elapsed_ns"], ended, "it stands still");
    let held = ann.submit(json!({"hold": true})).await;
    assert_eq!(ann.get(&format!("/api/v1/jobs/{held}")).await.json()["elapsed_ns"], Value::Null);
}

#[tokio::test]
async fn an_end_is_told_with_its_attempt() {
    let server = start(true).await;
    let ann = server.user(ANN);
    let id = ann.submit(json!({"gpus": 1})).await;
    let waited = ann.get(&format!("/api/v1/jobs/{id}/wait")).await.json();
    assert_eq!((&waited["over"], &waited["job"]["state"]), (&json!(true), &json!("completed")));
    assert_eq!(waited["job"]["outcome"]["exit_code"], 0);
    let detail = ann.get(&format!("/api/v1/jobs/{id}")).await.json();
    let tries = detail["tries"].as_array().unwrap();
    assert_eq!(tries.len(), 1);
    assert_eq!(tries[0]["tasks"][0]["devices"], json!([0]));
    assert_eq!((&tries[0]["cpu_ns"], &tries[0]["memory_peak_bytes"]), (&json!(1_000_000), &json!(4096)));
    assert_eq!(detail["why"], Value::Null);
}

#[tokio::test]
async fn a_wait_ends_with_the_job_or_its_time() {
    let server = start(false).await;
    let ann = server.user(ANN);
    let id = ann.submit(json!({})).await;
    let path = format!("/api/v1/jobs/{id}/wait");
    let early = ann.get(&format!("{path}?timeout=0")).await.json();
    assert_eq!(early["over"], false);
    let ending = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        server.node.end_all(3);
    };
    let (answer, ()) = tokio::join!(ann.get(&path), ending);
    let answer = answer.json();
    assert_eq!((&answer["over"], &answer["job"]["state"]), (&json!(true), &json!("failed")));
    assert_eq!(
        (&answer["job"]["outcome"]["exit_code"], &answer["job"]["outcome"]["kind"]),
        (&json!(3), &json!("code"))
    );
}

#[tokio::test]
async fn owners_control_their_jobs() {
    let server = start(false).await;
    let ann = server.user(ANN);
    let id = ann.submit(json!({"hold": true})).await;
    let act = async |client: &super::fixture::Client<'_>, what: &str, body: Value| {
        client.send("POST", &format!("/api/v1/jobs/{id}/{what}"), body).await
    };
    let state = async || ann.get(&format!("/api/v1/jobs/{id}")).await.json()["state"].clone();
    assert_eq!(act(&ann, "priority", json!({"priority": -5})).await.status, 200);
    assert_eq!(act(&ann, "priority", json!({"priority": 5})).await.status, 403);
    assert_eq!(act(&server.user(ADMIN), "priority", json!({"priority": 5})).await.status, 200);
    assert_eq!(ann.get(&format!("/api/v1/jobs/{id}")).await.json()["priority"], 5);
    assert_eq!(act(&ann, "release", Value::Null).await.status, 200);
    assert_eq!(state().await, "running");
    assert_eq!(act(&ann, "cancel", Value::Null).await.status, 200);
    let over = ann.get(&format!("/api/v1/jobs/{id}/wait")).await.json();
    assert_eq!(
        (&over["job"]["state"], &over["job"]["cancelled_by"]),
        (&json!("cancelled"), &json!(format!("uid:{ANN}")))
    );
    let late = act(&ann, "cancel", Value::Null).await;
    assert_eq!((late.status.as_u16(), &late.json()["code"]), (409, &json!("ended")));
    assert_eq!(ann.get("/api/v1/jobs/99").await.status, 404);
    assert_eq!(ann.get("/api/v1/jobs/x").await.status, 400);
}

#[tokio::test]
async fn members_of_an_array_are_cancelled_by_index() {
    let server = start(false).await;
    let ann = server.user(ANN);
    let id = ann.submit(json!({"hold": true, "array": {"indexes": "0-9"}})).await;
    let cancel = async |indexes: &str| {
        ann.send("POST", &format!("/api/v1/jobs/{id}/cancel"), json!({"indexes": indexes}))
            .await
            .status
            .as_u16()
    };
    assert_eq!((cancel("2-3,5").await, cancel("10").await, cancel("x").await), (200, 422, 400));
    let job = ann.get(&format!("/api/v1/jobs/{id}")).await.json();
    assert_eq!(job["members"], json!({"waiting": 7, "running": 0, "succeeded": 0, "failed": 3}));
}

#[tokio::test]
async fn a_wait_for_devices_names_their_holder() {
    let server = start(false).await;
    let first = server.user(ANN).submit(json!({"gpus": 2})).await;
    let second = server.user(BOB).submit(json!({"gpus": 1})).await;
    let told = server.user(BOB).get(&format!("/api/v1/jobs/{second}/why")).await.json();
    let remedies = json!([{
        "code": "end", "text": format!("end job {first}"), "command": format!("fourplane cancel {first}"),
    }]);
    assert_eq!((&told["ahead"], &told["remedies"]), (&json!(0), &remedies));
    assert_eq!(told["start"], json!({"at": null, "after": null}), "the holder has no time limit");
    let why = &told["why"];
    assert_eq!((&why["code"], &why["text"]), (&json!("resources"), &json!("it lacks 1 GPU")));
    assert_eq!(why["holders"][0]["job"], first);
    assert_eq!(why["holders"][0]["owner"], format!("uid:{ANN}"));
    let nodes = server.user(BOB).get("/api/v1/nodes").await.json();
    assert_eq!(nodes[0]["devices"][1]["holder"]["job"], first);
    assert_eq!((&nodes[0]["cores_held"], &nodes[0]["devices"][0]["simulated"]), (&json!(1), &json!(true)));
}

#[tokio::test]
async fn what_others_hold_is_shown_and_given_to_nobody() {
    let server = start(false).await;
    server.node.outside(&[1]);
    let ann = server.user(ANN);
    let id = ann.submit(json!({"gpus": 2})).await;
    let why = ann.get(&format!("/api/v1/jobs/{id}/why")).await.json()["why"].take();
    assert_eq!(
        (&why["code"], &why["text"]),
        (&json!("outside"), &json!("processes that were not started here hold 1 GPU"))
    );
    let nodes = ann.get("/api/v1/nodes").await.json();
    assert_eq!([0, 1].map(|at| nodes[0]["devices"][at]["outside"].clone()), [json!(false), json!(true)]);
    server.node.outside(&[]);
    let nodes = ann.get("/api/v1/nodes").await.json();
    assert_eq!(nodes[0]["devices"][1]["holder"]["job"], id);
    assert_eq!(nodes[0]["devices"][1]["outside"], false);
}

#[tokio::test]
async fn what_runs_on_simulated_gpus_is_tainted() {
    for rehearsal in [true, false] {
        let config = Config { rehearsal, ..Config::default() };
        let server = start_on(ModelLog::new(), true, config).await;
        let ann = server.user(ANN);
        for (gpus, simulated) in [(1, rehearsal), (0, false)] {
            let id = ann.submit(json!({"gpus": gpus})).await;
            assert_eq!(ann.get(&format!("/api/v1/jobs/{id}")).await.json()["simulated"], json!(simulated));
        }
        assert_eq!(ann.get("/").await.text().contains("simulated GPUs"), rehearsal);
    }
}

#[tokio::test]
async fn a_job_that_no_pass_comes_to_is_told_so_by_the_servers_own_policy() {
    let server = start_with(Policy { max_examined: 0 }).await;
    let ann = server.user(ANN);
    let minute = 60_000_000_000_u64;
    ann.submit(json!({"cores": 6, "memory_bytes": 1, "time_limit_ns": 10 * minute})).await;
    ann.submit(json!({"cores": 8, "memory_bytes": 1})).await;
    let unseen = ann.submit(json!({"cores": 1, "memory_bytes": 1, "time_limit_ns": minute})).await;
    let why = ann.get(&format!("/api/v1/jobs/{unseen}/why")).await.json();
    assert_eq!(why["why"]["code"], "not-examined", "{why}");
    assert!(why["why"]["hint"].is_string());
    assert!(ann.get("/").await.text().contains("looked at 0 jobs in a pass"), "and the page says so");
}

#[tokio::test]
async fn a_drained_node_takes_no_new_work() {
    let server = start(true).await;
    let admin = server.user(ADMIN);
    let drain = json!({"schedulable": false, "reason": "disk swap"});
    assert_eq!(admin.send("POST", "/api/v1/nodes/0/schedulable", drain.clone()).await.status, 200);
    assert_eq!(admin.send("POST", "/api/v1/nodes/7/schedulable", drain).await.status, 404);
    let id = server.user(ANN).submit(json!({})).await;
    assert_eq!(admin.get(&format!("/api/v1/jobs/{id}/why")).await.json()["why"]["code"], "drained");
    let tried = server.user(BOB).send("POST", "/api/v1/preflight", job(&json!({}))).await.json();
    assert_eq!((&tried["why"]["code"], &tried["ahead"]), (&json!("drained"), &json!(1)));
    assert_eq!(tried["remedies"][0]["command"], "fourplane resume node1");
    let jobs = admin.get("/api/v1/jobs").await.json();
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1, "trying submits nothing");
    assert_eq!(admin.get("/api/v1/nodes").await.json()[0]["reason"], "disk swap");
}

#[tokio::test]
async fn a_full_disk_and_a_stopped_writer_have_their_own_answers() {
    let server = start(true).await;
    let ann = server.user(ANN);
    ann.submit(json!({})).await;
    server.log.set_room(Room::Low);
    let full = ann.send("POST", "/api/v1/jobs", job(&json!({}))).await;
    assert_eq!((full.status.as_u16(), &full.json()["code"]), (507, &json!("low-space")));
    server.app.handle.stop();
    // What came in before the writer stopped is still answered.
    while ann.get("/api/v1/nodes").await.status != 503 {}
    let stopped = ann.send("POST", "/api/v1/jobs", job(&json!({}))).await;
    assert_eq!((stopped.status.as_u16(), &stopped.json()["code"]), (503, &json!("stopping")));
}
