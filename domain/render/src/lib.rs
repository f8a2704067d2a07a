//! Tables and reports
