//! The first program of ours in a CVM: prepares it, runs the compose file, reports to the node.

fn main() {}
