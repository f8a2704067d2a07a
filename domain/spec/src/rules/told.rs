//! Who is told and how: addresses of the form that their kind has.

use units::{HostPort, MailAddress, Network, WebUrl};

use super::{Rules, at};
use crate::decode::Step;
use crate::finding::Code;
use crate::model::{Cluster, Delivery, Notification, NotificationKind, Occasion};

pub(super) fn check(cluster: &Cluster, rules: &mut Rules<'_, '_>) {
    let has_relay = cluster.delivery.as_ref().is_some_and(|delivery| delivery.relay.is_some());
    for (at, one) in cluster.notifications.iter().enumerate() {
        target(one, at, has_relay, rules);
        occasions(one, at, rules);
    }
    if let Some(delivery) = &cluster.delivery {
        ways_out(delivery, rules);
    }
}

fn target(one: &Notification, at: usize, has_relay: bool, rules: &mut Rules<'_, '_>) {
    let to = &one.to;
    let problem = match one.kind {
        NotificationKind::Webhook => to.parse::<WebUrl>().err().map(|error| error.to_string()),
        NotificationKind::Email => to.parse::<MailAddress>().err().map(|error| error.to_string()),
        NotificationKind::Command => is_no_path(to),
    };
    if let Some(message) = problem {
        return rules.report(Code::BadForm, at!["notifications", at, "to"], message, None);
    }
    if one.kind == NotificationKind::Email && !has_relay {
        let message = format!("'{}' is told by mail, and no mail server is named", one.name);
        let hint = Some("name one: `delivery: { relay: 'mail.example.org:25' }`".to_owned());
        rules.report(Code::NoRelay, at!["notifications", at, "kind"], message, hint);
    }
}

/// Of what nobody tells yet.
fn occasions(one: &Notification, at: usize, rules: &mut Rules<'_, '_>) {
    for (of, occasion) in one.when.iter().enumerate() {
        let word = match occasion {
            Occasion::Budget => "budget",
            Occasion::Hardware => "hardware",
            _ => continue,
        };
        let message = format!("nobody is told of '{word}' yet");
        rules.report(Code::NotEnforced, at!["notifications", at, "when", of], message, None);
    }
}

fn ways_out(delivery: &Delivery, rules: &mut Rules<'_, '_>) {
    let mut expect = |problem: Option<String>, path: &[Step<'_>]| {
        if let Some(message) = problem {
            rules.report(Code::BadForm, path, message, None);
        }
    };
    let relay = delivery.relay.as_ref().and_then(|relay| HostPort::parse(relay, 25).err());
    expect(relay.map(|error| error.to_string()), at!["delivery", "relay"]);
    let from = delivery.from.as_ref().and_then(|from| from.parse::<MailAddress>().err());
    expect(from.map(|error| error.to_string()), at!["delivery", "from"]);
    expect(delivery.key_file.as_ref().and_then(|path| is_no_path(path)), at!["delivery", "key_file"]);
    for (of, network) in delivery.allow.iter().enumerate() {
        let wrong = network.parse::<Network>().err().map(|error| error.to_string());
        expect(wrong, at!["delivery", "allow", of]);
    }
}

fn is_no_path(text: &str) -> Option<String> {
    let is_path = text.starts_with('/') && !text.chars().any(char::is_control);
    (!is_path).then(|| format!("'{text}' is no absolute path of a file"))
}
