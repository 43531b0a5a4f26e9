//! Times of a deployment.

fn main() {}
