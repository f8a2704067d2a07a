//! Tokens, login links, cookies, hosts and the page.

use ops::ports::{LogStore, SideTable};
use serde_json::{Value, json};
use store::ModelLog;

use super::fixture::{ADMIN, ANN, BOB, Fixture, start, start_on};
use crate::app::Config;

async fn mint(server: &Fixture, uid: u32, body: Value) -> (String, String) {
    let minted = server.user(uid).send("POST", "/api/v1/tokens", body).await;
    assert_eq!(minted.status, 201, "{}", minted.text());
    let minted = minted.json();
    (minted["secret"].as_str().unwrap().to_owned(), minted["token"]["id"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_token_carries_its_minters_rights_until_it_is_taken_back() {
    let server = start(false).await;
    let (secret, id) = mint(&server, ANN, json!({"label": "laptop"})).await;
    let remote = server.remote().header("authorization", &format!("Bearer {secret}"));
    let job = remote.submit(json!({"hold": true})).await;
    assert_eq!(remote.get(&format!("/api/v1/jobs/{job}")).await.json()["owner"], format!("uid:{ANN}"));
    assert_eq!(remote.send("POST", "/api/v1/teams", json!({"name": "x"})).await.status, 403);

    let listed = server.user(ANN).get("/api/v1/tokens").await;
    assert!(!listed.text().contains(&secret), "a secret is shown once");
    assert_eq!(listed.json()[0]["label"], "laptop");
    assert_eq!(server.user(BOB).get("/api/v1/tokens").await.json(), json!([]));
    assert_eq!(server.user(ADMIN).get("/api/v1/tokens").await.json().as_array().unwrap().len(), 1);
    for (key, row) in server.log.side(SideTable::Token).unwrap() {
        let text = String::from_utf8_lossy(&[key, row].concat()).into_owned();
        assert!(!text.contains(secret.trim_start_matches("fp_")), "only a hash is stored");
    }
    assert_eq!(remote.send("DELETE", &format!("/api/v1/tokens/{id}"), Value::Null).await.status, 204);
    assert_eq!(remote.get("/api/v1/jobs").await.status, 401);
}

#[tokio::test]
async fn tokens_and_people_outlive_the_server() {
    let log = ModelLog::new();
    let first = start_on(log.clone(), false, Config::default()).await;
    let (secret, _) = mint(&first, ANN, json!({"label": "l"})).await;
    let (short, _) = mint(&first, ANN, json!({"label": "l", "expires_in_ns": 1})).await;
    let (revoked, id) = mint(&first, ANN, json!({"label": "l"})).await;
    first.user(ANN).send("DELETE", &format!("/api/v1/tokens/{id}"), Value::Null).await;
    first.app.handle.stop();
    let second = start_on(log, false, Config::default()).await;
    let with = |secret: &str| second.remote().header("authorization", &format!("Bearer {secret}"));
    let job = with(&secret).submit(json!({"hold": true})).await;
    assert_eq!(with(&secret).get(&format!("/api/v1/jobs/{job}")).await.json()["owner"], format!("uid:{ANN}"));
    assert_eq!(
        second.user(ANN).get("/api/v1/jobs?user=me").await.json()["jobs"][0]["id"],
        job,
        "the same person"
    );
    assert_eq!(with(&short).get("/api/v1/jobs").await.status, 401, "expired");
    assert_eq!(with(&revoked).get("/api/v1/jobs").await.status, 401, "taken back");
}

#[tokio::test]
async fn a_browser_stays_signed_in_when_the_server_is_replaced() {
    let log = ModelLog::new();
    let first = start_on(log.clone(), false, Config::default()).await;
    let link = async || {
        let link = first.user(ANN).send("POST", "/api/v1/login-link", Value::Null).await.json();
        link["path"].as_str().unwrap().to_owned()
    };
    let (used, unused) = (link().await, link().await);
    let signed_in = first.remote().get(&used).await;
    let cookie = signed_in.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let secret = cookie.split_once('=').unwrap().1;
    for (key, row) in log.side(SideTable::Session).unwrap() {
        assert!(!String::from_utf8_lossy(&[key, row].concat()).contains(secret), "only a hash is stored");
    }
    first.app.handle.stop();
    let second = start_on(log, false, Config::default()).await;
    let browser = second.remote().header("cookie", &cookie);
    assert_eq!(browser.get("/api/v1/jobs?user=me").await.status, 200);
    assert_eq!(second.remote().header("cookie", "fourplane=guess").get("/").await.status, 401);
    for link in [used, unused] {
        assert_eq!(second.remote().get(&link).await.status, 401, "links end with the server");
    }
    let later = crate::tokens::now() + crate::tokens::SESSION_LIFE;
    assert_eq!(second.app.sessions.check(secret, later), None, "and sessions in their time");
}

#[tokio::test]
async fn one_person_has_so_many_streams_of_events() {
    let server = start(false).await;
    let (ann, bob) = (server.user(ANN), server.user(BOB));
    let mut open = Vec::new();
    for _ in 0..64 {
        let stream = ann.open("GET", "/api/v1/events", Vec::new()).await;
        assert_eq!(stream.status(), 200);
        open.push(stream);
    }
    assert_eq!(ann.open("GET", "/api/v1/events", Vec::new()).await.status(), 429);
    let refused = ann.get("/api/v1/events").await;
    assert_eq!((refused.status.as_u16(), &refused.json()["code"]), (429, &json!("too-many-open")));
    assert!(refused.json()["hint"].as_str().unwrap().contains("close"));
    assert_eq!(bob.open("GET", "/api/v1/events", Vec::new()).await.status(), 200);
    open.clear();
    while ann.open("GET", "/api/v1/events", Vec::new()).await.status() != 200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn nobody_mints_more_than_they_have() {
    let server = start(false).await;
    let admin = json!({"label": "l", "role": "admin"});
    assert_eq!(server.user(ANN).send("POST", "/api/v1/tokens", admin.clone()).await.status, 403);
    let (weak, _) = mint(&server, ADMIN, json!({"label": "l"})).await;
    let weak = server.remote().header("authorization", &format!("Bearer {weak}"));
    assert_eq!(
        weak.send("POST", "/api/v1/tokens", admin.clone()).await.status,
        403,
        "not by way of a weaker one"
    );
    let (strong, _) = mint(&server, ADMIN, admin).await;
    let strong = server.remote().header("authorization", &format!("Bearer {strong}"));
    assert_eq!(strong.send("POST", "/api/v1/teams", json!({"name": "x"})).await.status, 200);
}

#[tokio::test]
async fn a_link_signs_one_browser_in() {
    let server = start(false).await;
    let link = server.user(ANN).send("POST", "/api/v1/login-link", Value::Null).await.json();
    let path = link["path"].as_str().unwrap();
    let signed_in = server.remote().get(path).await;
    assert_eq!((signed_in.status.as_u16(), signed_in.headers["location"].to_str().unwrap()), (303, "/"));
    let cookie = signed_in.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    assert_eq!(server.remote().get(path).await.status, 401, "once");

    let browser = server.remote().header("cookie", cookie.split(';').next().unwrap());
    assert_eq!(browser.get("/").await.status, 200);
    let job = server.user(ANN).submit(json!({"hold": true})).await;
    let release = format!("/api/v1/jobs/{job}/release");
    let foreign = browser.clone().header("sec-fetch-site", "cross-site");
    assert_eq!(foreign.send("POST", &release, Value::Null).await.status, 403);
    assert_eq!(browser.send("POST", &release, Value::Null).await.status, 403, "no proof of origin");
    let own = browser.clone().header("sec-fetch-site", "same-origin");
    assert_eq!(own.send("POST", &release, Value::Null).await.status, 200);
    assert_eq!(own.send("POST", "/api/v1/teams", json!({"name": "x"})).await.status, 403, "still a user");
}

#[tokio::test]
async fn a_rebound_name_gets_nothing() {
    let server = start(false).await;
    let rebound = server.remote().header("host", "evil.example");
    assert_eq!(rebound.get("/api/v1/healthz").await.status, 421);
    assert_eq!(rebound.get("/").await.status, 421);
    assert_eq!(server.remote().get("/api/v1/healthz").await.status, 200);
}

#[tokio::test]
async fn without_root_only_the_servers_own_user_submits() {
    let config = Config { server_uid: ANN, admin_uid: ANN, ..Config::default() };
    let server = start_on(ModelLog::new(), false, config).await;
    server.user(ANN).submit(json!({})).await;
    let answer = server.user(BOB).send("POST", "/api/v1/jobs", super::fixture::job(&json!({}))).await;
    assert_eq!(answer.status, 403);
    assert!(answer.json()["message"].as_str().unwrap().contains(&format!("uid {ANN} only")));
    assert!(server.user(BOB).get("/").await.text().contains(&format!("all jobs run as uid {ANN}")));
}

#[tokio::test]
async fn the_page_works_empty_and_full_and_escapes_what_users_write() {
    let server = start(false).await;
    let stranger = server.remote().get("/").await;
    assert_eq!(stranger.status, 401);
    assert!(stranger.text().contains("fourplane login"));
    let ann = server.user(ANN);
    let empty = ann.get("/").await;
    assert!(empty.text().contains("fourplane run -- echo hello"));
    assert!(empty.headers["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
    let job = ann.submit(json!({"gpus": 1, "name": "<script>alert(1)</script>"})).await;
    let full = ann.get("/").await;
    assert!(full.text().contains(&format!("job {job}</a> of uid:{ANN}")), "the device names its holder");
    assert!(full.text().contains("1 of 8 cores") && full.text().contains("simulated"));
    assert!(!full.text().contains("<script>alert") && !full.text().contains("echo hello"));
    server.node.end_all(3);
    ann.get(&format!("/api/v1/jobs/{job}/wait")).await;
    assert!(ann.get("/").await.text().contains("exited with code 3"));
}

#[tokio::test]
async fn the_page_stays_small_whatever_users_make_long_and_many() {
    let server = start(false).await;
    let ann = server.user(ANN);
    let long = "n".repeat(10_000);
    for _ in 0..130 {
        ann.submit(json!({"hold": true, "name": long})).await;
    }
    let page = ann.get("/").await;
    assert_eq!(page.text().matches("<tr><td>").count(), 100);
    assert!(page.text().contains("the newest 100") && page.body.len() < 50_000, "{}", page.body.len());
    assert!(page.text().contains(&format!("{}…", &long[..80])));
}

#[tokio::test]
async fn unknown_addresses_and_methods_are_told() {
    let server = start(false).await;
    let ann = server.user(ANN);
    assert_eq!(ann.get("/api/v2/jobs").await.json()["code"], "not-found");
    assert_eq!(ann.send("PUT", "/api/v1/jobs", Value::Null).await.json()["code"], "method");
    assert_eq!(ann.get("/api/v1/version").await.json(), json!({"version": "0.0.0", "api": "v1"}));
    assert_eq!(server.remote().get("/api/v1/openapi.json").await.text(), crate::openapi_json());
}
