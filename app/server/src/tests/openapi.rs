//! The published document, and that nothing in it escapes the choke point.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::fixture::{ANN, BOB, start};
use crate::guard::{Access, OPERATIONS, PAGES};
use crate::openapi_json;

fn operations() -> BTreeSet<(String, String)> {
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    let methods = |path: &Value| path.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    paths
        .iter()
        .flat_map(|(path, item)| {
            methods(item).into_iter().map(|method| (method.to_uppercase(), path.clone()))
        })
        .collect()
}

#[test]
fn the_document_is_checked_in() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, openapi_json()).unwrap();
    }
    let checked_in = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        checked_in == openapi_json(),
        "docs/openapi.json is out of step; run UPDATE=1 cargo test -p fourplane-server openapi"
    );
}

#[test]
fn every_operation_has_its_row_in_the_table_of_access() {
    let table = OPERATIONS.iter().filter(|(_, path, _)| !PAGES.contains(path));
    let table: BTreeSet<_> =
        table.map(|(method, path, _)| ((*method).to_owned(), (*path).to_owned())).collect();
    assert_eq!(operations(), table);
    assert_eq!(OPERATIONS.len(), table.len() + PAGES.len(), "no row twice");
}

/// Operations that an owner may do and another user may not, and those for administrators.
const OWNERS: [&str; 7] = ["output", "hold", "release", "cancel", "priority", "preemptible", "tokens/"];
const ADMINISTRATORS: [&str; 5] = ["schedulable", "teams", "preemption", "apply", "reservations"];

#[tokio::test]
async fn nobody_gets_in_and_strangers_touch_nothing() {
    let server = start(false).await;
    let ann = server.user(ANN);
    let job = ann.submit(json!({})).await;
    let minted = ann.send("POST", "/api/v1/tokens", json!({"label": "mine"})).await.json();
    let token = minted["token"]["id"].as_str().unwrap();
    let before = ann.get(&format!("/api/v1/jobs/{job}")).await.json();

    for (method, path) in operations() {
        let id = if path.contains("tokens") {
            token.to_owned()
        } else if path.contains("nodes") {
            "0".to_owned()
        } else {
            job.to_string()
        };
        let path = path.replace("{id}", &id);
        let public =
            OPERATIONS.iter().any(|(_, public, access)| *public == path && *access == Access::Public);
        let nobody = server.remote().send(&method, &path, Value::Null).await;
        assert_eq!(nobody.status == 401, !public, "{method} {path}: {nobody:?}");
        let guess = server.remote().header("authorization", "Bearer fp_guess");
        assert_eq!(guess.send(&method, &path, Value::Null).await.status == 401, !public, "{method} {path}");

        let changes = method != "GET";
        let forbidden = OWNERS.iter().any(|word| path.contains(word))
            || changes && ADMINISTRATORS.iter().any(|word| path.contains(word));
        if forbidden {
            let stranger = server.user(BOB).send(&method, &path, Value::Null).await;
            assert_eq!(stranger.status, 403, "{method} {path}: {stranger:?}");
            assert_eq!(stranger.json()["code"], "forbidden");
        }
    }
    // Its time goes on.
    let untimed = |mut job: Value| {
        job["elapsed_ns"] = Value::Null;
        job["tries"][0]["elapsed_ns"] = Value::Null;
        job
    };
    assert_eq!(untimed(ann.get(&format!("/api/v1/jobs/{job}")).await.json()), untimed(before));
    let mine = server.user(ANN).get("/api/v1/tokens").await.json();
    assert_eq!(mine.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_forbidden_are_what_the_table_says() {
    use control::identity::Action::{Control, Operate, ReadOutput};
    for (method, path, access) in OPERATIONS {
        let owner = OWNERS.iter().any(|word| path.contains(word));
        let admin = *method != "GET" && ADMINISTRATORS.iter().any(|word| path.contains(word));
        let expect = matches!(access, Access::Job(Control | ReadOutput) | Access::Token(_));
        assert_eq!(owner, expect, "{method} {path}");
        assert_eq!(admin, *access == Access::Cluster(Operate), "{method} {path}");
    }
}
