//! The measuring program. Its arguments go to [`laboratory::bench`].

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    laboratory::bench::run(&arguments)
}
