//! The companion program: its arguments go to [`companion`].

use std::process::ExitCode;

fn main() -> ExitCode {
    companion::run(std::env::args_os().skip(1).collect())
}
