//! Prices and budgets: one currency, dates in order, each price for what its field is about.

use units::{Currency, Per, Price, Window};

use super::{Rules, at};
use crate::decode::Step;
use crate::finding::Code;
use crate::model::{Budget, Cluster, Prices};

const CAPACITY: &[Per] = &[
    Per::GpuHour,
    Per::GpuMonth,
    Per::NodeHour,
    Per::NodeMonth,
    Per::CoreHour,
    Per::Time(Window::Hour),
    Per::Time(Window::Month),
    Per::Time(Window::Year),
];
const BUDGET: &[Per] = &[
    Per::Time(Window::Day),
    Per::Time(Window::Week),
    Per::Time(Window::Month),
    Per::Time(Window::Quarter),
    Per::Time(Window::Year),
];
const ELSEWHERE: &[Per] = &[Per::GpuHour, Per::GpuMonth, Per::NodeHour, Per::NodeMonth, Per::Unit];

pub(super) fn check(cluster: &Cluster, rules: &mut Rules<'_, '_>) {
    let book = cluster.prices.as_ref().filter(|_| rules.is_whole(at!["prices", "currency"]));
    let currency = book.map(|prices| prices.currency);
    let mut amounts = Amounts { rules, currency };
    if let Some(prices) = &cluster.prices {
        book_prices(prices, &mut amounts);
        dates(prices, amounts.rules);
    }
    if let Some(egress) = cluster.network.as_ref().and_then(|network| network.egress) {
        amounts.check(egress, &[Per::Gigabyte], at!["network", "egress"]);
    }
    for (at, team) in cluster.teams.iter().enumerate() {
        let mut budget = |budget: Option<&Budget>, path: Vec<Step<'_>>| {
            if let Some(budget) = budget {
                amounts.check(budget.amount, BUDGET, &path);
            }
        };
        budget(team.budget.as_ref(), at!["teams", at, "budget", "amount"].to_vec());
        for (of, project) in team.projects.iter().enumerate() {
            budget(project.budget.as_ref(), at!["teams", at, "projects", of, "budget", "amount"].to_vec());
        }
        for (of, limit) in team.labels.iter().enumerate() {
            budget(limit.budget.as_ref(), at!["teams", at, "labels", of, "budget", "amount"].to_vec());
        }
    }
    if let Some(elsewhere) = &cluster.baselines {
        let baselines = [
            ("rental", &elsewhere.rental),
            ("colocation", &elsewhere.colocation),
            ("on_premises", &elsewhere.on_premises),
            ("serverless", &elsewhere.serverless),
        ];
        for (field, baseline) in baselines {
            if let Some(baseline) = baseline {
                amounts.check(baseline.price, ELSEWHERE, at!["baselines", field, "price"]);
            }
        }
        if let Some(api) = &elsewhere.api {
            amounts.check(api.input, &[Per::MillionTokens, Per::Unit], at!["baselines", "api", "input"]);
            amounts.check(api.output, &[Per::MillionTokens, Per::Unit], at!["baselines", "api", "output"]);
        }
    }
}

struct Amounts<'r, 'a, 's> {
    rules: &'r mut Rules<'a, 's>,
    /// Of the price book, where there is one.
    currency: Option<Currency>,
}

impl Amounts<'_, '_, '_> {
    fn check(&mut self, price: Price, allowed: &[Per], path: &[Step<'_>]) {
        if !allowed.contains(&price.per) {
            let words: Vec<_> = allowed.iter().map(Per::to_string).collect();
            let message = format!("a price here is per {}, not per {}", words.join(", "), price.per);
            self.rules.report(Code::WrongBasis, path, message, None);
        }
        if let Some(book) = self.currency.filter(|book| *book != price.amount.currency) {
            let message = format!("{} stands here; the price book is in {book}", price.amount.currency);
            let hint = Some("nothing here converts currencies; write one of them everywhere".to_owned());
            self.rules.report(Code::MixedCurrency, path, message, hint);
        }
    }
}

fn book_prices(prices: &Prices, amounts: &mut Amounts<'_, '_, '_>) {
    for (at, price) in prices.pools.iter().enumerate() {
        amounts.check(price.price, CAPACITY, at!["prices", "pools", at, "price"]);
    }
    let single = [
        ("energy", prices.energy, Per::KilowattHour),
        ("colocation", prices.colocation, Per::KilowattMonth),
        ("storage", prices.storage, Per::TerabyteMonth),
        ("egress", prices.egress, Per::Gigabyte),
    ];
    for (field, price, per) in single {
        if let Some(price) = price {
            amounts.check(price, &[per], at!["prices", field]);
        }
    }
    for (at, cost) in prices.shared.iter().enumerate() {
        amounts.check(cost.price, BUDGET, at!["prices", "shared", at, "price"]);
    }
}

fn dates(prices: &Prices, rules: &mut Rules<'_, '_>) {
    let mut check = |from, until, path: &[Step<'_>]| {
        if let (Some(from), Some(until)) = (from, until)
            && from > until
        {
            let message = format!("it ends on {until}, before it begins on {from}");
            rules.report(Code::DateOrder, path, message, None);
        }
    };
    for (at, price) in prices.pools.iter().enumerate() {
        check(price.from, price.until, at!["prices", "pools", at, "until"]);
    }
    for (at, commitment) in prices.commitments.iter().enumerate() {
        let (from, until) = (Some(commitment.from), Some(commitment.until));
        check(from, until, at!["prices", "commitments", at, "until"]);
    }
}
