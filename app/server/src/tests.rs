//! The API over a real writer, with a log in memory and a node that does as it is told.

mod access;
mod apply;
mod fixture;
mod jobs;
mod openapi;
mod output;
mod pages;
mod sockets;
