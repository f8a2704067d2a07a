//! Plans, applies and drift over HTTP.

use serde_json::{Value, json};

use super::fixture::{ADMIN, ANN, Fixture, job, start};

const FIRST: &str =
    "fourplane: 1\ncluster: aurora\nteams: [{ name: research, quota: { gpus: 4 } }, { name: speech }]\n";
const SECOND: &str = "fourplane: 1\ncluster: aurora\nteams: [{ name: research, quota: { gpus: 8 } }]\n";

async fn plan(server: &Fixture, spec: &str) -> Value {
    let answer = server.user(ADMIN).send("POST", "/api/v1/plan", json!({ "spec": spec })).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn apply(server: &Fixture, spec: &str) -> Value {
    let plan = plan(server, spec).await["plan"].clone();
    let answer =
        server.user(ADMIN).send("POST", "/api/v1/apply", json!({ "spec": spec, "plan": plan })).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn teams(server: &Fixture) -> Vec<(String, Value)> {
    let listed = server.user(ANN).get("/api/v1/teams").await.json();
    let rows = listed.as_array().unwrap().iter();
    rows.map(|row| (row["name"].as_str().unwrap().to_owned(), row["max_gpus"].clone())).collect()
}

#[tokio::test]
async fn a_plan_is_carried_out_once_and_as_agreed() {
    let server = start(false).await;
    let told = plan(&server, FIRST).await;
    let actions: Vec<_> = told["steps"].as_array().unwrap().iter().map(|step| &step["action"]).collect();
    assert_eq!(actions, ["create", "create"]);
    assert_eq!(told["steps"][0]["fields"][0], json!({ "field": "gpus", "before": null, "after": "4" }));
    assert_eq!(teams(&server).await.len(), 1, "a plan changes nothing");

    let body = json!({ "spec": FIRST, "plan": told["plan"] });
    let twice = server.user(ADMIN).header("idempotency-key", "k");
    let first = twice.send("POST", "/api/v1/apply", body.clone()).await.json();
    assert_eq!(twice.send("POST", "/api/v1/apply", body.clone()).await.json()["seq"], first["seq"], "once");
    let late = server.user(ADMIN).send("POST", "/api/v1/apply", body).await;
    assert_eq!((late.status.as_u16(), &late.json()["code"]), (409, &json!("plan-changed")));
    assert_eq!(plan(&server, FIRST).await["steps"], json!([]), "nothing is left to do");

    let told = plan(&server, SECOND).await;
    let actions: Vec<_> = told["steps"].as_array().unwrap().iter().map(|step| &step["action"]).collect();
    assert_eq!(actions, ["change", "delete"]);
    apply(&server, SECOND).await;
    let expect = [("default".to_owned(), Value::Null), ("research".to_owned(), json!(8))];
    assert_eq!(teams(&server).await, expect);
    let gone = json!({ "team": "speech", "hold": true });
    let refused = server.user(ANN).send("POST", "/api/v1/jobs", job(&gone)).await;
    assert_eq!((refused.status.as_u16(), &refused.json()["code"]), (422, &json!("no-such-team")));
    apply(&server, told["way_back"].as_str().unwrap()).await;
    assert_eq!(teams(&server).await.len(), 3, "and back");
}

#[tokio::test]
async fn what_was_made_by_hand_is_left_alone_and_what_was_changed_is_told() {
    let server = start(false).await;
    let admin = server.user(ADMIN);
    admin.send("POST", "/api/v1/teams", json!({ "name": "manual", "max_gpus": 1 })).await;
    apply(&server, FIRST).await;
    assert_eq!(server.user(ANN).get("/api/v1/drift").await.json()["drifted"], json!([]));
    admin.send("POST", "/api/v1/teams", json!({ "name": "research", "max_gpus": 2 })).await;

    let drift = server.user(ANN).get("/api/v1/drift").await.json();
    assert_eq!(drift["cluster"], "aurora");
    assert_eq!(drift["drifted"].as_array().unwrap().len(), 1);
    let one = &drift["drifted"][0];
    assert_eq!((&one["kind"], &one["name"]), (&json!("team"), &json!("research")));
    assert_eq!(one["fields"], json!([{ "field": "gpus", "before": "4", "after": "2" }]));
    assert_eq!(one["changed"]["by"], format!("uid:{ADMIN}"));

    let told = plan(&server, FIRST).await;
    assert_eq!(told["left_alone"], json!([{ "kind": "team", "name": "manual" }]));
    assert_eq!(told["steps"][0]["changed"], one["changed"]);
    apply(&server, FIRST).await;
    assert_eq!(server.user(ANN).get("/api/v1/drift").await.json()["drifted"], json!([]));
    assert!(teams(&server).await.contains(&("manual".to_owned(), json!(1))));
}

#[tokio::test]
async fn an_apply_that_cannot_be_done_changes_nothing() {
    let server = start(false).await;
    apply(&server, FIRST).await;
    server.user(ANN).submit(json!({ "team": "speech", "hold": true })).await;
    let told = plan(&server, SECOND).await;
    assert_eq!(told["steps"][1]["blocked"], "team speech has 1 job that is not over");
    let before = teams(&server).await;
    let admin = server.user(ADMIN);
    let check = async |spec: &str, plan: Value, status: u16, code: &str| {
        let refused = admin.send("POST", "/api/v1/apply", json!({ "spec": spec, "plan": plan })).await;
        assert_eq!((refused.status.as_u16(), &refused.json()["code"]), (status, &json!(code)));
        assert_eq!(teams(&server).await, before);
    };
    check(SECOND, told["plan"].clone(), 409, "team-in-use").await;
    check(SECOND, json!("guess"), 400, "malformed").await;
    check("fourplane: 1\ncluster: C\n", told["plan"].clone(), 422, "specification").await;
    let other = "fourplane: 1\ncluster: borealis\n";
    let told = plan(&server, other).await;
    assert_eq!(told["replaces"], "aurora");
    check(other, told["plan"].clone(), 409, "other-cluster").await;
}
