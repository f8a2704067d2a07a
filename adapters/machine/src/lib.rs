//! This machine: supervisor, cgroups, devices, clock
