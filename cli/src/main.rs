//! The tenant's and operator's command.

fn main() {}
