//! `jobs`: lists, and single jobs in full.

use std::time::Duration;

use server::wire::{Job, JobDetail, JobList};

use crate::cli::{Common, JobsArgs};
use crate::client::{Client, escape};
use crate::failure::Failure;
use crate::fields::{self, Field};
use crate::output::{Printer, csv, table, yaml};
use crate::{detail, sacct, when};

use super::actions::whole;

/// One request's page.
const PAGE: usize = 500;

/// Between two looks of `--watch`.
const WATCH: Duration = Duration::from_secs(1);

/// How a list is written.
enum Form {
    Table(Vec<Field>),
    Json,
    Yaml,
    Csv(Vec<Field>),
    Name,
    /// Fields of sacct; with bars between them, or lined up.
    Sacct(Vec<sacct::Field>, bool),
}

/// Lists jobs, or shows some in full.
pub(crate) async fn run(common: &Common, printer: Printer, args: &JobsArgs) -> Result<u8, Failure> {
    let form = form(args, printer)?;
    let mut client = Client::new(common)?;
    if !args.ids.is_empty() {
        return show(&mut client, printer, args).await;
    }
    loop {
        let mut jobs = list(&mut client, args).await?;
        sort(&mut jobs, args.sort.as_deref())?;
        let text = written(&form, &jobs, !args.no_headers);
        if !args.watch {
            printer.data(text.as_bytes());
            return Ok(0);
        }
        // Home and clear, then the list: a terminal shows no flicker.
        if !printer.data(format!("\x1b[H\x1b[2J{text}").as_bytes()) {
            return Ok(0);
        }
        tokio::time::sleep(WATCH).await;
    }
}

async fn show(client: &mut Client, printer: Printer, args: &JobsArgs) -> Result<u8, Failure> {
    let mut details: Vec<JobDetail> = Vec::new();
    for id in &args.ids {
        whole(id, "jobs")?;
        details.push(client.get(&format!("/jobs/{}", id.job)).await?);
    }
    if args.parsable || args.format.is_some() {
        let jobs: Vec<Job> = details.into_iter().map(|detail| detail.job).collect();
        printer.data(written(&form(args, printer)?, &jobs, !args.no_headers).as_bytes());
    } else if printer.is_json() || args.output.as_deref() == Some("json") {
        printer.json(&details);
    } else if args.output.as_deref() == Some("yaml") {
        printer.data(yaml(&details).as_bytes());
    } else {
        let texts: Vec<String> = details.iter().map(detail::text).collect();
        printer.data(texts.join("\n").as_bytes());
    }
    Ok(0)
}

fn form(args: &JobsArgs, printer: Printer) -> Result<Form, Failure> {
    let named = |names: &str| {
        let unknown = |name: &str| {
            let all = fields::names();
            let near = spec::nearest(name, all.split(", ")).map(|near| format!("did you mean {near}?"));
            let failure = Failure::usage(format!("there is no field '{name}'"));
            let list = format!("the fields are {all}; the forms wide, json, yaml, csv and name");
            near.into_iter().fold(failure, Failure::hint).hint(list)
        };
        names.split(',').map(|name| fields::find(name).ok_or_else(|| unknown(name))).collect::<Result<_, _>>()
    };
    if args.parsable || args.format.is_some() {
        let fields = sacct::fields(args.format.as_deref().unwrap_or(sacct::USUAL))?;
        return Ok(Form::Sacct(fields, args.parsable));
    }
    Ok(match args.output.as_deref() {
        _ if printer.is_json() => Form::Json,
        None => Form::Table(named(fields::USUAL)?),
        Some("wide") => Form::Table(named(fields::WIDE)?),
        Some("json") => Form::Json,
        Some("yaml") => Form::Yaml,
        Some("csv") => Form::Csv(named(fields::WIDE)?),
        Some("name") => Form::Name,
        Some(names) => Form::Table(named(names)?),
    })
}

/// All pages, up to the limit.
async fn list(client: &mut Client, args: &JobsArgs) -> Result<Vec<Job>, Failure> {
    let query = query(args);
    let mut jobs: Vec<Job> = Vec::new();
    let mut before = None;
    while jobs.len() < args.limit {
        let from = before.map_or_else(String::new, |id: u64| format!("&before={id}"));
        let size = PAGE.min(args.limit - jobs.len());
        let page: JobList = client.get(&format!("/jobs?limit={size}{query}{from}")).await?;
        jobs.extend(page.jobs);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    Ok(jobs)
}

/// Mine and active, unless more is asked for.
fn query(args: &JobsArgs) -> String {
    let labels: Vec<String> = args.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let everybody = args.all || args.user.is_some() || args.team.is_some();
    let user = args.user.as_deref().or_else(|| (!everybody).then_some("me"));
    let since = args.since.map(|since| since.to_string());
    let states = args.states.join(",");
    let labels = labels.join(",");
    let filters = [
        ("user", user),
        ("team", args.team.as_deref()),
        ("state", Some(states.as_str()).filter(|states| !states.is_empty())),
        ("all", (args.all || args.since.is_some()).then_some("true")),
        ("since", since.as_deref()),
        ("label", Some(labels.as_str()).filter(|labels| !labels.is_empty())),
    ];
    let given = filters.into_iter().filter_map(|(name, value)| Some(format!("&{name}={}", escape(value?))));
    given.collect()
}

fn sort(jobs: &mut [Job], by: Option<&str>) -> Result<(), Failure> {
    let Some(by) = by else { return Ok(()) };
    let (name, down) = by.strip_prefix('-').map_or((by, false), |name| (name, true));
    let key = fields::sort_key(name).ok_or_else(|| {
        Failure::usage(format!("jobs cannot be sorted by '{name}'"))
            .hint(format!("the fields are {}", fields::names()))
    })?;
    jobs.sort_by(|a, b| if down { key(b).cmp(&key(a)) } else { key(a).cmp(&key(b)) });
    Ok(())
}

fn written(form: &Form, jobs: &[Job], with_header: bool) -> String {
    let zone = when::zone();
    let zone_name = when::zone_name(&zone);
    let rows = |fields: &[Field]| -> Vec<Vec<String>> {
        jobs.iter().map(|job| fields.iter().map(|field| (field.show)(job, &zone)).collect()).collect()
    };
    let lines = |lines: Vec<String>| lines.into_iter().map(|line| line + "\n").collect::<String>();
    match form {
        Form::Json => serde_json::to_string(jobs).unwrap_or_default() + "\n",
        Form::Yaml => yaml(&jobs),
        Form::Sacct(fields, bars) => {
            let header: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
            let row = |job: &Job| fields.iter().map(|(_, show)| show(job, &zone)).collect::<Vec<_>>();
            let rows: Vec<Vec<String>> = jobs.iter().map(row).collect();
            if !bars {
                return table(&header, &rows, with_header);
            }
            let head = with_header.then(|| header.join("|"));
            lines(head.into_iter().chain(rows.iter().map(|row| row.join("|"))).collect())
        }
        Form::Name => lines(jobs.iter().map(|job| job.id.to_string()).collect()),
        Form::Table(fields) => {
            let header: Vec<String> = fields.iter().map(|field| field.header(&zone_name)).collect();
            let header: Vec<&str> = header.iter().map(String::as_str).collect();
            table(&header, &rows(fields), with_header)
        }
        Form::Csv(fields) => {
            let header = csv(&fields.iter().map(|field| field.name.to_owned()).collect::<Vec<_>>());
            let head = with_header.then_some(header);
            lines(head.into_iter().chain(rows(fields).iter().map(|row| csv(row))).collect())
        }
    }
}
