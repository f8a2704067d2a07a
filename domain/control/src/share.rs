//! What each team may take: its own quota, and beyond that what others leave free and lend.

use std::collections::BTreeMap;

use units::TeamId;

use crate::admit::Resource;
use crate::rows::Amount;
use crate::state::State;

/// How far a team goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// To its quota. Whoever keeps to it comes before whoever borrows.
    Own,
    /// To its quota and what it may borrow of what is free and lent.
    Borrowed,
}

/// What there is to share.
#[derive(Clone, Debug)]
pub(crate) struct Shares<'a> {
    state: &'a State,
    /// What is free on nodes that take new work.
    free: Amount,
    /// What teams hold and are about to give back.
    coming: BTreeMap<TeamId, Amount>,
}

impl<'a> Shares<'a> {
    pub(crate) fn new(state: &'a State, free: Amount) -> Self {
        Self { state, free, coming: BTreeMap::new() }
    }

    /// As if a team had given back so much, and so much were free then.
    pub(crate) fn gives_back(&mut self, team: TeamId, amount: Amount, free: Amount) {
        let coming = self.coming.entry(team).or_default();
        *coming = coming.plus(amount);
        self.free = free;
    }

    /// The same undone.
    pub(crate) fn takes_back(&mut self, team: TeamId, amount: Amount, free: Amount) {
        let coming = self.coming.entry(team).or_default();
        *coming = coming.less(amount);
        self.free = free;
    }

    fn used(&self, team: TeamId) -> Amount {
        let coming = self.coming.get(&team).copied().unwrap_or_default();
        self.state.used_by(team).less(coming)
    }

    /// What a team may take; nothing if it is not known.
    pub(crate) fn left(&self, team: TeamId, claim: Claim) -> Amount {
        let Some(row) = self.state.team(team) else { return Amount::default() };
        let used = self.used(team);
        let own = row.quota.less(used);
        if claim == Claim::Own || row.borrow == Amount::default() {
            return own;
        }
        own.max(row.limit().less(used).min(self.free.less(self.kept_from(team))))
    }

    /// What others keep for themselves: the part of their quotas that they neither hold nor lend.
    pub(crate) fn kept_from(&self, team: TeamId) -> Amount {
        let others = self.state.teams().filter(|(id, _)| *id != team);
        others
            .fold(Amount::default(), |sum, (id, row)| sum.plus(row.quota.less(row.lend).less(self.used(id))))
    }

    /// Whether any team may borrow.
    pub(crate) fn any_borrows(&self) -> bool {
        self.state.teams().any(|(_, row)| row.borrow != Amount::default())
    }

    /// Of what a team holds more than its quota.
    pub(crate) fn borrows(&self, team: TeamId) -> impl Iterator<Item = Resource> {
        let (quota, used) = (self.state.team(team).map(|row| row.quota), self.used(team));
        let over =
            move |resource: &Resource| quota.is_some_and(|quota| resource.of(used) > resource.of(quota));
        Resource::ALL.into_iter().filter(over)
    }
}
