//! What everything costs, here and elsewhere (O7, R9, V8, Z8).

use units::{Currency, Price, Share};

use crate::scalar::{Date, Name};
use crate::shape::{choice, record};

record! {
    /// The price book: every price dated, with its source.
    pub struct Prices {
        /// The version that bills name; a change is a new version.
        version: String { required, [O7], Later, "2026-a" },
        /// The currency of everything here.
        currency: Currency { required, [O7], Checked, "USD" },
        /// The day the prices are from.
        as_of: Date { required, [R9], Later, "2026-11-01" },
        /// Where they come from.
        source: String { required, [R9], Later, "contract 4711" },
        /// What pools cost.
        pools: Vec<PoolPrice> { optional, [Z8], Checked, "[{pool: train, price: 2.35 USD per GPU-hour}]" },
        /// Energy.
        energy: Option<Price> { optional, [Z8], Checked, "0.12 USD per kWh" },
        /// Rented power.
        colocation: Option<Price> { optional, [Z8], Checked, "200 USD per kW-month" },
        /// Storage.
        storage: Option<Price> { optional, [Z8], Checked, "20 USD per TB-month" },
        /// Data that leaves.
        egress: Option<Price> { optional, [Z8], Checked, "0.02 USD per GB" },
        /// Costs that are not any pool's.
        shared: Vec<SharedCost> { optional, [Z8], Checked, "[{name: support, price: 9000 USD per month}]" },
        /// Capacity that is paid whether used or not.
        commitments: Vec<Commitment> { optional, [Z7 P4], Checked, "[{pool: train, from: 2026-01-01, until: 2028-12-31}]" },
        /// How costs that nobody caused are spread.
        spread_idle: Shares { default "pool-line", [Z8], Later, "by-quota" },
    }
}

record! {
    /// What a pool costs.
    pub struct PoolPrice {
        /// The pool.
        pool: Name { required, [Z8], Checked, "train" },
        /// How much, for each GPU, node or core and its time.
        price: Price { required, [Z8], Checked, "2.35 USD per GPU-hour" },
        /// The first day it holds.
        from: Option<Date> { optional, [O7], Checked, "2026-01-01" },
        /// The last day it holds.
        until: Option<Date> { optional, [O7], Checked, "2026-12-31" },
        /// How it was bought.
        purchase: Option<Purchase> { optional, [R9], Later, "reserved" },
    }
}

choice! {
    /// How capacity was bought.
    pub enum Purchase {
        /// By the hour.
        OnDemand = "on-demand",
        /// For a term.
        Reserved = "reserved",
        /// Until somebody else wants it.
        Spot = "spot",
        /// To keep.
        Owned = "owned",
    }
}

record! {
    /// A cost that is not any pool's: support, people, licences.
    pub struct SharedCost {
        /// What it is for.
        name: Name { required, [Z8], Checked, "support" },
        /// How much in which time.
        price: Price { required, [Z8], Checked, "9000 USD per month" },
    }
}

record! {
    /// Capacity that is paid whether used or not.
    pub struct Commitment {
        /// The pool.
        pool: Name { required, [P4], Checked, "train" },
        /// The first day.
        from: Date { required, [P4], Checked, "2026-01-01" },
        /// The last day.
        until: Date { required, [P4 Z7], Checked, "2028-12-31" },
        /// The part of time that the provider promises.
        availability: Option<Share> { optional, [P4], Later, "99.5%" },
    }
}

choice! {
    /// How costs that nobody caused are spread.
    pub enum Shares {
        /// They are not: they stay a line of the pool.
        PoolLine = "pool-line",
        /// Over teams by their quota.
        ByQuota = "by-quota",
        /// Over teams by what they used.
        ByUse = "by-use",
    }
}

record! {
    /// What the same work costs elsewhere, on the same accepted unit.
    pub struct Baselines {
        /// Rented by the hour.
        rental: Option<Baseline> { optional, [R9], Checked, "{price: 2.35 USD per GPU-hour, as_of: 2026-11-01, source: quote}" },
        /// Own machines in a rented hall.
        colocation: Option<Baseline> { optional, [R9], Checked, "{price: 1.9 USD per GPU-hour, as_of: 2026-11-01, source: quote}" },
        /// Own machines in an own hall.
        on_premises: Option<Baseline> { optional, [R9], Checked, "{price: 1.7 USD per GPU-hour, as_of: 2026-11-01, source: own figures}" },
        /// GPUs by the second.
        serverless: Option<Baseline> { optional, [R9 V4], Checked, "{price: 3.95 USD per GPU-hour, as_of: 2026-11-01, source: price list}" },
        /// A model by the token.
        api: Option<ApiBaseline> { optional, [R9 V8], Checked, "{input: 0.15 USD per Mtok, output: 0.6 USD per Mtok, as_of: 2026-11-01, source: price list}" },
    }
}

record! {
    /// A price elsewhere.
    pub struct Baseline {
        /// How much.
        price: Price { required, [R9], Checked, "2.35 USD per GPU-hour" },
        /// The day it is from.
        as_of: Date { required, [R9], Later, "2026-11-01" },
        /// Where it comes from.
        source: String { required, [R9], Later, "quote of a provider" },
    }
}

record! {
    /// The price of a model by the token.
    pub struct ApiBaseline {
        /// Tokens sent.
        input: Price { required, [V8], Checked, "0.15 USD per Mtok" },
        /// Tokens received.
        output: Price { required, [V8], Checked, "0.6 USD per Mtok" },
        /// The part of answers that is accepted, measured as one's own are.
        accepted: Option<Share> { optional, [V8], Later, "92%" },
        /// The day it is from.
        as_of: Date { required, [V8], Later, "2026-11-01" },
        /// Where it comes from.
        source: String { required, [V8], Later, "price list" },
    }
}
