//! Writes text and reads it: standard output and the terminal, files, words,
//! JSON, base64.

pub mod base64;
pub mod colour;
pub mod file;
pub mod json;
pub(crate) mod output;
pub mod terminal;
pub mod words;
