//! `login` and `token`: who may ask over the network.

use server::wire::{LoginLink, Minted, NewToken, Role, Token};

use crate::cli::{Common, TokenCommand};
use crate::client::Client;
use crate::failure::Failure;
use crate::output::{Printer, plain, table};
use crate::when;

/// Makes a link that signs a browser in, once.
pub(crate) async fn login(common: &Common, printer: Printer) -> Result<u8, Failure> {
    let link: LoginLink = Client::new(common)?.post("/login-link", &serde_json::json!({})).await?;
    if printer.is_json() {
        printer.json(&link);
        return Ok(0);
    }
    let zone = when::zone();
    printer.line(link.url.as_ref().unwrap_or(&link.path));
    printer.say(&format!(
        "works once, until {} {}",
        when::local(link.expires, &zone),
        when::zone_name(&zone)
    ));
    Ok(0)
}

/// Makes, lists and takes back tokens.
pub(crate) async fn token(common: &Common, printer: Printer, command: &TokenCommand) -> Result<u8, Failure> {
    let mut client = Client::new(common)?;
    match command {
        TokenCommand::Create { label, expires, admin } => {
            let role = if *admin { Role::Admin } else { Role::User };
            let wanted = NewToken { label: label.clone(), expires_in_ns: expires.map(|span| span.0), role };
            let minted: Minted = client.post("/tokens", &wanted).await?;
            if printer.is_json() {
                printer.json(&minted);
            } else {
                printer.line(&minted.secret);
                printer.say("keep it safe, it is shown this once; use it as FOURPLANE_TOKEN with --server");
            }
        }
        TokenCommand::List => {
            let tokens: Vec<Token> = client.get("/tokens").await?;
            if printer.is_json() {
                printer.json(&tokens);
            } else {
                printer.data(listed(&tokens).as_bytes());
            }
        }
        TokenCommand::Revoke { ids } => {
            for id in ids {
                client.delete(&format!("/tokens/{}", crate::client::escape(id))).await?;
            }
            printer.say(&format!("taken back: {}", ids.len()));
        }
    }
    Ok(0)
}

fn listed(tokens: &[Token]) -> String {
    let zone = when::zone();
    let expires = format!("EXPIRES ({})", when::zone_name(&zone));
    let row = |token: &Token| {
        let role = if token.role == Role::Admin { "admin" } else { "user" };
        vec![
            token.id.clone(),
            plain(&token.owner),
            role.to_owned(),
            when::local(token.expires, &zone),
            plain(&token.label),
        ]
    };
    let rows: Vec<Vec<String>> = tokens.iter().map(row).collect();
    table(&["ID", "OWNER", "ROLE", &expires, "LABEL"], &rows, true)
}
