//! One module a command.

pub(crate) mod actions;
pub(crate) mod apply;
pub(crate) mod audit;
pub(crate) mod init;
pub(crate) mod inventory;
pub(crate) mod jobs;
pub(crate) mod logs;
pub(crate) mod manual;
pub(crate) mod nodes;
pub(crate) mod notifications;
pub(crate) mod report;
pub(crate) mod reservations;
pub(crate) mod run;
pub(crate) mod shell;
pub(crate) mod spec;
pub(crate) mod teams;
pub(crate) mod tokens;
pub(crate) mod up;
pub(crate) mod wait;
