//! What is true of the sources as a whole, and of the scripts that check them.

mod check;
mod directions;
mod release;
