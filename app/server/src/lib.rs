//! HTTP API, authorisation, pages
