//! What devices and cores did.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use cost::{Amounts, Entry, QUARTER, Sums};
use serde::Deserialize;
use units::{Nanos, Timestamp};
use utoipa::IntoParams;

use super::input::Params;
use crate::app::App;
use crate::error::ApiError;
use crate::wire::{Error, Spent, Time, Usage};

/// What is told of unless it is asked for.
const WINDOW: Nanos = Nanos::from_secs(86_400);

/// Since when.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct UsageParams {
    /// From the quarter of an hour in which this lies (RFC 3339); a day ago if absent.
    #[param(value_type = Option<String>, format = DateTime)]
    since: Option<Time>,
}

/// Tell what devices and cores did until now.
#[utoipa::path(get, path = "/api/v1/usage", params(UsageParams),
    responses((status = 200, body = Usage), (status = "4XX", body = Error)))]
pub(super) async fn usage(
    State(app): State<Arc<App>>,
    Params(params): Params<UsageParams>,
) -> Result<Json<Usage>, ApiError> {
    let since = match params.since {
        Some(since) => since.0,
        None => app.now().await? - WINDOW,
    };
    since_quarter_of(&app, since).await.map(Json)
}

/// What they did since the quarter of an hour in which `since` lies.
pub(crate) async fn since_quarter_of(app: &Arc<App>, since: Timestamp) -> Result<Usage, ApiError> {
    let since = Timestamp(since.0.saturating_sub(since.0.rem_euclid(QUARTER.0.cast_signed())));
    let (mut sums, mut tally) = app.view(move |view| view.usage(since)).await?;
    let now = app.now().await?;
    let mut rest = BTreeMap::new();
    tally.count(now, &mut rest);
    for ((quarter, entry), amounts) in rest {
        if quarter >= since {
            let sum = sums.entry(entry).or_default();
            *sum = *sum + amounts;
        }
    }
    Ok(Usage {
        since: since.into(),
        until: now.into(),
        simulated: app.config.rehearsal,
        devices: spent(&sums, |amounts| amounts.devices),
        cores: spent(&sums, |amounts| amounts.cores),
    })
}

fn spent(sums: &Sums, part: impl Fn(&Amounts) -> i64) -> Spent {
    let of = |entry: Entry| sums.get(&entry).map_or(0, &part);
    let states = Entry::ALL.into_iter().filter(|entry| matches!(entry, Entry::State(_)));
    let states: BTreeMap<String, i64> = states.map(|entry| (entry.word().to_owned(), of(entry))).collect();
    let capacity_ns = of(Entry::Capacity);
    Spent { capacity_ns, residue_ns: capacity_ns - states.values().sum::<i64>(), states }
}
