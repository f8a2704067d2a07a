//! Metering: which device and core was in which state, and the conservation check
