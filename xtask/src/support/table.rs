//! What is proven on what. A row moves to `Proven` with the test that shows it, never before.

/// One verb, or one promise about it, on one kind of machine.
pub(super) struct Row {
    pub(super) what: &'static str,
    /// Release and hardware.
    pub(super) on: &'static str,
    pub(super) state: State,
}

/// Tests are named as `PATH::NAME`.
#[derive(Clone, Copy)]
pub(super) enum State {
    /// By these tests.
    Proven(&'static [&'static str]),
    /// What is there in its place, and the tests.
    StandIn(&'static str, &'static [&'static str]),
    /// Why not.
    NotProven(&'static str),
}

use State::{NotProven, Proven, StandIn};

pub(super) const SECTIONS: &[(&str, &[Row])] =
    &[("local", LOCAL), ("slurm", SLURM), ("kubernetes", KUBERNETES)];

/// Where the tests run on the machine's own kernel: its cgroups, whichever they are.
const HYBRID: &str = "x86-64, Linux 6.18, cgroups v1 and v2, root";
/// The test machine of `cargo xtask vm`.
const V2: &str = "x86-64, Linux 6.1 of Debian 12, cgroups v2 alone, root";
const USER: &str = "x86-64, no root, no cgroups";
const ANY: &str = "x86-64, whatever the cgroups";

const fn row(what: &'static str, on: &'static str, state: State) -> Row {
    Row { what, on, state }
}

const LOCAL: &[Row] = &[
    row(
        "up: starts, stops, jobs go on",
        HYBRID,
        Proven(&[
            "app/cli/tests/main/crash.rs::a_detached_server_answers_when_up_returns",
            "app/cli/tests/main/crash.rs::a_stopped_server_leaves_jobs_running",
        ]),
    ),
    row(
        "up: as an ordinary user",
        USER,
        Proven(&["app/cli/tests/main/users.rs::an_ordinary_user_can_start_a_server"]),
    ),
    row(
        "apply: a server or client that is killed; all of it or nothing",
        ANY,
        Proven(&["app/cli/tests/main/apply.rs::an_apply_that_is_killed_was_done_or_was_not"]),
    ),
    row(
        "notify: webhooks, mail, programs; told at least once",
        ANY,
        Proven(&[
            "app/cli/tests/main/notify.rs::a_job_tells_whom_it_was_asked_to",
            "app/cli/tests/main/notify.rs::a_specification_tells_of_its_teams_jobs",
            "app/cli/tests/main/notify.rs::nothing_is_lost_when_the_server_dies",
            "app/cli/tests/main/notify.rs::what_fails_is_tried_again_or_given_up",
        ]),
    ),
    row(
        "notify: programs get the rights of the job's owner",
        HYBRID,
        Proven(&["app/cli/tests/main/notify.rs::a_program_gets_the_rights_of_the_jobs_owner"]),
    ),
    row(
        "up: an upgrade with jobs running; going back is refused",
        HYBRID,
        Proven(&[
            "app/cli/tests/main/upgrade.rs::jobs_go_on_through_an_upgrade",
            "app/cli/tests/main/upgrade.rs::jobs_go_on_through_a_crash_that_ends_in_an_upgrade",
        ]),
    ),
    row(
        "run: exit codes, output, environment",
        HYBRID,
        Proven(&[
            "app/cli/tests/main/first.rs::the_jobs_exit_code_is_returned",
            "app/cli/tests/main/first.rs::output_goes_where_it_is_told",
            "app/cli/tests/main/first.rs::a_script_runs_by_its_first_line_with_the_users_environment",
        ]),
    ),
    row("run: exit codes", V2, Proven(&["tests/vm/controllers.sh::a job's exit code is its own"])),
    row(
        "run: as the user who asks",
        HYBRID,
        Proven(&["app/cli/tests/main/users.rs::a_job_runs_as_the_user_who_asks"]),
    ),
    row(
        "run: as the user who asks",
        V2,
        Proven(&["tests/vm/controllers.sh::another user's job is that user's"]),
    ),
    row(
        "teams: what was lent is taken back, and its borrower goes on later; the urgent stop the preemptible",
        HYBRID,
        Proven(&[
            "app/cli/tests/main/sharing.rs::what_was_lent_comes_back_and_the_borrower_goes_on_later",
            "app/cli/tests/main/sharing.rs::the_preemptible_give_way_to_the_urgent_of_their_team",
            "domain/control/tests/main/preempting.rs::the_stopped_are_enough_and_all_needed",
        ]),
    ),
    row(
        "run: arrays, gangs, dependencies",
        HYBRID,
        Proven(&[
            "app/cli/tests/main/shapes.rs::an_array_runs_every_member",
            "app/cli/tests/main/shapes.rs::a_gang_starts_together",
            "app/cli/tests/main/shapes.rs::a_job_waits_for_what_it_depends_on",
        ]),
    ),
    row(
        "run: services with health checks",
        HYBRID,
        Proven(&[
            "app/cli/tests/main/service.rs::a_service_becomes_ready_and_comes_back_until_it_is_cancelled",
            "app/cli/tests/main/service.rs::a_service_that_fails_its_check_is_stopped_and_started_again",
        ]),
    ),
    row("run: one key is one job", ANY, Proven(&["app/cli/tests/main/control.rs::one_key_is_one_job"])),
    row(
        "run: memory and process limits",
        HYBRID,
        Proven(&[
            "adapters/machine/tests/outcomes.rs::out_of_memory_is_no_plain_kill",
            "adapters/machine/tests/confinement.rs::a_fork_storm_meets_its_limit",
        ]),
    ),
    row(
        "run: core, memory and process limits",
        V2,
        Proven(&[
            "tests/vm/controllers.sh::limits are set",
            "tests/vm/controllers.sh::a memory kill is told",
            "tests/vm/controllers.sh::a fork storm meets its limit",
        ]),
    ),
    row("run: limits", "cgroups v1 alone", NotProven("every machine seen so far has a v2 tree beside v1")),
    row("run: limits", "no cgroups", NotProven("advisory there, and said so by `up`")),
    row(
        "shell, attach",
        HYBRID,
        Proven(&[
            "app/cli/tests/main/terminal.rs::a_shell_is_a_terminal_that_outlives_client_and_server",
            "app/cli/tests/main/service.rs::a_shell_that_nobody_uses_ends",
        ]),
    ),
    row("shell, attach", "from another machine", NotProven("the terminal is a local socket")),
    row(
        "jobs, logs",
        ANY,
        Proven(&[
            "app/server/src/tests/jobs.rs::jobs_are_listed_by_what_is_asked",
            "app/server/src/tests/output.rs::following_begins_before_the_file_and_ends_with_the_job",
        ]),
    ),
    row(
        "why: names the holder",
        ANY,
        Proven(&["app/server/src/tests/jobs.rs::a_wait_for_devices_names_their_holder"]),
    ),
    row(
        "why, run --dry-run: what would start the job at once; the estimate",
        ANY,
        Proven(&[
            "domain/control/tests/main/remedies.rs::what_is_told_to_help_helps",
            "domain/control/tests/main/remedies.rs::a_forecast_comes_true",
            "app/cli/tests/main/shapes.rs::a_second_job_waits_for_the_first_ones_simulated_gpu",
        ]),
    ),
    row(
        "run: scripts with #SBATCH lines",
        HYBRID,
        Proven(&["app/cli/tests/main/sbatch.rs::a_script_runs_with_what_its_lines_ask_for"]),
    ),
    row(
        "wait, hold, release, priority",
        HYBRID,
        Proven(&[
            "app/cli/tests/main/control.rs::a_detached_job_is_waited_for",
            "app/cli/tests/main/control.rs::a_held_job_starts_when_released",
        ]),
    ),
    row(
        "cancel, then proof of free",
        HYBRID,
        Proven(&[
            "app/cli/tests/main/control.rs::a_cancelled_job_says_so",
            "adapters/machine/tests/confinement.rs::what_leaves_the_session_is_killed_all_the_same",
            "adapters/machine/tests/confinement.rs::a_frozen_process_is_a_leaked_hold_until_it_is_thawed",
        ]),
    ),
    row(
        "cancel, then proof of free",
        V2,
        Proven(&[
            "tests/vm/controllers.sh::what a job leaves behind is killed",
            "tests/vm/controllers.sh::a frozen job can be ended",
        ]),
    ),
    row(
        "nodes, drain, resume",
        HYBRID,
        Proven(&["app/cli/tests/main/control.rs::a_drained_node_finishes_what_it_has_and_takes_nothing_new"]),
    ),
    row(
        "report usage",
        HYBRID,
        Proven(&[
            "app/server/src/tests/pages.rs::the_time_of_all_units_is_whole",
            "app/cli/tests/main/readme.rs::the_session_of_the_readme_is_real",
        ]),
    ),
    row(
        "reserve, reservations, unreserve",
        HYBRID,
        Proven(&[
            "app/cli/tests/main/reservations.rs::a_reservation_keeps_others_out_and_says_so",
            "app/cli/tests/main/reservations.rs::a_reservation_frees_itself_and_outlives_the_server",
            "domain/control/tests/main/histories.rs::decides_as_a_rescan_would",
        ]),
    ),
    row(
        "check, explain, schema",
        ANY,
        Proven(&[
            "domain/spec/tests/main/mistakes.rs::mistakes_are_told",
            "app/cli/tests/main/spec.rs::a_specification_is_checked",
        ]),
    ),
    row(
        "completions, manual pages",
        ANY,
        Proven(&["app/cli/tests/main/first.rs::completions_and_manual_pages_know_the_commands"]),
    ),
    row("systemd units", "systemd", NotProven("`systemd-analyze verify` takes them; no systemd ran them")),
    row("NVML asked by the static program's helper", "NVIDIA", NotProven("not tried on one")),
    row(
        "inventory",
        "x86-64, trees of eight machines",
        StandIn(
            "trees made from published outputs",
            &["app/cli/tests/main/inventory.rs::a_copy_of_another_machines_files_is_shown"],
        ),
    ),
    row("inventory by NVML", "NVIDIA", NotProven("a stand-in library was asked")),
    row(
        "login, token",
        ANY,
        Proven(&[
            "app/cli/tests/main/network.rs::a_token_opens_the_network_port",
            "app/server/src/tests/access.rs::a_link_signs_one_browser_in",
        ]),
    ),
    row(
        "audit verify",
        ANY,
        Proven(&["adapters/store/tests/main/damage.rs::a_flipped_byte_is_found_or_harmless"]),
    ),
    row(
        "server and supervisor killed at any time",
        HYBRID,
        Proven(&["app/cli/tests/main/drill.rs::no_crash_loses_a_job_or_runs_one_twice"]),
    ),
    row(
        "the log after a power cut",
        ANY,
        Proven(&["adapters/store/tests/main/power_loss.rs::every_power_loss_keeps_what_was_acknowledged"]),
    ),
    row(
        "the whole machine after a power cut or restart",
        V2,
        Proven(&["tests/vm/recovered.sh::no acknowledged job is lost"]),
    ),
    row(
        "the whole machine after a restart",
        HYBRID,
        StandIn(
            "another boot id, every process killed",
            &["app/cli/tests/main/crash.rs::a_restart_of_the_machine_is_told_and_the_job_runs_again"],
        ),
    ),
    row(
        "a full disk",
        HYBRID,
        Proven(&["app/cli/tests/main/crash.rs::a_full_disk_refuses_new_work_and_keeps_ends"]),
    ),
    row("a wall clock that steps", V2, Proven(&["tests/vm/clock.sh::time in the log never went back"])),
    row(
        "GPUs: waiting for one, given to one job at a time",
        ANY,
        StandIn(
            "simulated devices",
            &["app/cli/tests/main/shapes.rs::a_second_job_waits_for_the_first_ones_simulated_gpu"],
        ),
    ),
    row(
        "GPUs of a model",
        ANY,
        StandIn(
            "simulated devices",
            &[
                "domain/control/tests/main/histories.rs::decides_as_a_rescan_would",
                "app/cli/tests/main/gpus.rs::a_job_gets_gpus_of_the_model_it_asks_for",
                "app/cli/tests/main/gpus.rs::a_model_that_can_never_be_had_is_refused_with_those_that_can",
            ],
        ),
    ),
    row(
        "GPUs that other processes hold are given to no job",
        ANY,
        StandIn(
            "GPUs and processes made up",
            &[
                "domain/control/tests/main/histories.rs::decides_as_a_rescan_would",
                "app/server/src/tests/jobs.rs::what_others_hold_is_shown_and_given_to_nobody",
                "app/cli/src/offer.rs::what_others_use_is_held_outside",
            ],
        ),
    ),
    row(
        "GPUs: a job reaches only its own",
        HYBRID,
        StandIn(
            "`/dev/zero` and `/dev/full` as devices",
            &["adapters/machine/tests/confinement.rs::devices_not_given_cannot_be_opened"],
        ),
    ),
    row(
        "GPUs: a job reaches only its own",
        V2,
        StandIn(
            "device files as of GPUs without a driver behind them",
            &[
                "tests/vm/devices.sh::a job without a GPU opens none",
                "tests/vm/devices.sh::a job with one opens that one",
            ],
        ),
    ),
    row("GPUs", "NVIDIA", NotProven("not tried on one")),
    row("GPUs", "AMD", NotProven("not tried on one")),
    row("everything", "Linux 5.14, the oldest that is meant to do", NotProven("the oldest tried is 6.1")),
    row("everything", "aarch64", NotProven("never built there")),
];

const SLURM: &[Row] = &[row("every verb", "any release", NotProven("not built"))];

const KUBERNETES: &[Row] = &[row("every verb", "any release", NotProven("not built"))];
