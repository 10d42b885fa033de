//! The companion program: its arguments go to [`beanpole::companion`].

use std::process::ExitCode;

fn main() -> ExitCode {
    beanpole::companion::run(std::env::args_os().skip(1).collect())
}
