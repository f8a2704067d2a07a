//! What devices did, and the page of a job.

use serde_json::json;

use super::fixture::{ANN, BOB, start};

#[tokio::test]
async fn the_time_of_all_units_is_whole() {
    let server = start(false).await;
    let ann = server.user(ANN);
    let job = ann.submit(json!({"cores": 2, "gpus": 1})).await;
    ann.get(&format!("/api/v1/jobs/{job}/wait?timeout=0")).await;
    let usage = ann.get("/api/v1/usage").await.json();
    for (class, each) in [("devices", 1), ("cores", 2)] {
        let told = &usage[class];
        assert_eq!(told["residue_ns"], 0, "{usage}");
        let held = ["starting", "running"].map(|state| told["states"][state].as_i64().unwrap());
        assert!(held.iter().sum::<i64>() > 0 && told["states"]["free"].as_i64().unwrap() > 0, "{usage}");
        assert_eq!(held.iter().sum::<i64>() % each, 0, "{usage}");
    }
    let later = ann.get("/api/v1/usage").await.json();
    assert!(later["cores"]["capacity_ns"].as_i64() > usage["cores"]["capacity_ns"].as_i64(), "time goes on");
    assert_eq!(later["cores"]["residue_ns"], 0);
    let future = ann.get("/api/v1/usage?since=2200-01-01T00:00:00Z").await.json();
    assert_eq!(future["cores"]["capacity_ns"], 0, "nothing is told of what is to come");
    assert_eq!(ann.get("/api/v1/usage?sinc=2026-01-01T00:00:00Z").await.json()["code"], "malformed");
}

#[tokio::test]
async fn only_who_may_cancel_a_job_sees_the_button() {
    let server = start(false).await;
    let job = server.user(ANN).submit(json!({"name": "<b>bold</b>"})).await;
    let path = format!("/jobs/{job}");
    let check = async |uid: u32, expect: bool| {
        let page = server.user(uid).get(&path).await;
        assert_eq!(page.text().contains("<button"), expect, "{uid}");
        assert!(!page.text().contains("<b>"), "a name is text");
    };
    check(ANN, true).await;
    check(BOB, false).await;
    server.user(ANN).send("POST", &format!("/api/v1/jobs/{job}/cancel"), json!({})).await;
    server.user(ANN).get(&format!("/api/v1/jobs/{job}/wait")).await;
    check(ANN, false).await;
    assert!(server.user(ANN).get("/jobs/77").await.text().contains("there is no job 77"));
    let stranger = server.remote().get(&path).await;
    assert!(stranger.text().contains("fourplane login") && !stranger.text().contains("bold"));
}
