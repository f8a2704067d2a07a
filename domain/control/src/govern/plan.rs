//! What would make observed things what is desired, in an order that works; for any kind of things.

use std::collections::{BTreeMap, BTreeSet};

/// Something that a specification describes and an engine has.
pub trait Thing: Clone + Eq {
    /// What tells it from all others.
    type Key: Clone + Ord;

    /// Which one it is.
    fn key(&self) -> Self::Key;

    /// What has to be there before it, and may not go before it.
    fn needs(&self) -> Vec<Self::Key>;

    /// What stands when nobody says anything about it any more: none where it is gone then.
    fn at_rest(&self) -> Option<Self>;

    /// What there is to say about it, field by field, in a fixed order.
    fn fields(&self) -> Vec<Field>;
}

/// One field of a thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its path below the thing.
    pub name: &'static str,
    /// Its value, in words.
    pub value: String,
    /// Whether that holds as well where nothing is said about it.
    pub usual: bool,
}

/// A field that changes; none where the thing does not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldChange {
    /// Its path below the thing.
    pub field: &'static str,
    /// What it is.
    pub before: Option<String>,
    /// What it will be.
    pub after: Option<String>,
}

/// What is done about one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is made.
    Create,
    /// It becomes something else.
    Change,
    /// It goes.
    Delete,
    /// It is as desired already, and is owned from now on.
    Adopt,
    /// It was changed by somebody, and that is what is desired now.
    Accept,
    /// It is no longer desired and was in no way special: it is owned no longer.
    Release,
}

/// One step of a plan, about one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<T> {
    /// What there is.
    pub before: Option<T>,
    /// What there will be.
    pub after: Option<T>,
    /// What the last apply made it, where that owned it.
    pub last: Option<T>,
    /// Whether it is desired, and so owned afterwards.
    pub desired: bool,
}

/// What is to be done, in order, and what is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<T> {
    /// What is made and changed, dependencies first; then what goes, dependents first.
    pub steps: Vec<Step<T>>,
    /// Things that are neither desired nor owned.
    pub alone: Vec<T>,
}

impl<T: Thing> Step<T> {
    /// What is done.
    pub fn action(&self) -> Action {
        match (&self.before, &self.after) {
            (None, Some(_)) => Action::Create,
            (Some(_), None) => Action::Delete,
            (before, after) if before != after => Action::Change,
            _ if !self.desired => Action::Release,
            _ if self.last.is_none() => Action::Adopt,
            _ => Action::Accept,
        }
    }

    /// The thing that this is about, as it is or will be.
    pub fn thing(&self) -> Option<&T> {
        self.after.as_ref().or(self.before.as_ref()).or(self.last.as_ref())
    }

    /// The fields that change.
    pub fn changes(&self) -> Vec<FieldChange> {
        changes(self.before.as_ref(), self.after.as_ref())
    }

    /// Whether it was changed since the last apply, by somebody else.
    pub fn is_drifted(&self) -> bool {
        self.last.is_some() && self.last != self.before
    }
}

/// The fields in which two states of a thing differ; of a thing that comes or goes, those that say
/// something.
pub fn changes<T: Thing>(before: Option<&T>, after: Option<&T>) -> Vec<FieldChange> {
    let fields = |thing: Option<&T>, other: Option<&T>| {
        let mut fields = thing.map_or_else(Vec::new, T::fields);
        fields.retain(|field| other.is_some() || !field.usual);
        fields
    };
    let (old, new) = (fields(before, after), fields(after, before));
    let value = |fields: &[Field], name: &str| {
        fields.iter().find(|field| field.name == name).map(|field| field.value.clone())
    };
    let gone = old.iter().filter(|field| value(&new, field.name).is_none());
    let names = new.iter().chain(gone).map(|field| field.name);
    names
        .map(|field| FieldChange { field, before: value(&old, field), after: value(&new, field) })
        .filter(|change| change.before != change.after)
        .collect()
}

/// Finds the steps from `observed` to `desired`. What the last apply made is owned: of that, what is
/// no longer desired goes. All else that is not desired is left alone.
pub fn plan<T: Thing>(desired: &[T], observed: &[T], last: &[T]) -> Plan<T> {
    let [desired, observed, last] = [desired, observed, last].map(by_key);
    let made = in_order(&desired).into_iter().filter_map(|key| {
        let (after, before, last) = (desired[&key], observed.get(&key), last.get(&key));
        let is_done = before == Some(&after) && last == Some(&after);
        (!is_done).then(|| Step {
            before: before.map(|&thing| thing.clone()),
            after: Some(after.clone()),
            last: last.map(|&thing| thing.clone()),
            desired: true,
        })
    });
    let undesired: BTreeMap<_, _> = last
        .iter()
        .filter(|(key, _)| !desired.contains_key(key))
        .map(|(key, &thing)| (key.clone(), thing))
        .collect();
    // What depends on what is as it stands now, not as it was applied.
    let standing: BTreeMap<_, _> = undesired
        .iter()
        .map(|(key, &thing)| (key.clone(), observed.get(key).copied().unwrap_or(thing)))
        .collect();
    let gone = in_order(&standing).into_iter().rev().map(|key| {
        let before = observed.get(&key).map(|&thing| thing.clone());
        let after = before.as_ref().and_then(T::at_rest);
        Step { before, after, last: Some(undesired[&key].clone()), desired: false }
    });
    let steps = made.chain(gone).collect();
    let strange = |key: &T::Key| !desired.contains_key(key) && !last.contains_key(key);
    let alone =
        observed.iter().filter(|(key, thing)| strange(key) && thing.at_rest().as_ref() != Some(**thing));
    Plan { steps, alone: alone.map(|(_, &thing)| thing.clone()).collect() }
}

fn by_key<T: Thing>(things: &[T]) -> BTreeMap<T::Key, &T> {
    things.iter().map(|thing| (thing.key(), thing)).collect()
}

/// All keys, each after what it needs.
fn in_order<T: Thing>(things: &BTreeMap<T::Key, &T>) -> Vec<T::Key> {
    fn visit<T: Thing>(
        key: &T::Key,
        things: &BTreeMap<T::Key, &T>,
        seen: &mut BTreeSet<T::Key>,
        order: &mut Vec<T::Key>,
    ) {
        let Some(thing) = things.get(key) else { return };
        if seen.insert(key.clone()) {
            for needed in thing.needs() {
                visit(&needed, things, seen, order);
            }
            order.push(key.clone());
        }
    }
    let (mut seen, mut order) = (BTreeSet::new(), Vec::with_capacity(things.len()));
    for key in things.keys() {
        visit(key, things, &mut seen, &mut order);
    }
    order
}
