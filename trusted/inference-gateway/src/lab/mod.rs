//! What tests of several modules stand on: machines whose evidence is minted, and their guest agents.

pub(crate) mod agent;
pub(crate) mod machine;
